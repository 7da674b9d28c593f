//! The types that openraft is built with here, each named once. Nobody outside this file writes openraft's generics.
//!
//! Three choices are safety: [`LeaderId`](openraft::vote::leader_id_std::LeaderId) of the standard kind (one leader a
//! term at most), our own encodings on disk and wire instead of openraft's serde, and a runtime whose randomness can be
//! seeded, so that a simulated cluster is deterministic.

use std::fmt;

use bytes::Bytes;
use openraft::alias;
use quorate_core::NodeId;

use crate::raft::applied::Applied;
use crate::raft::runtime::Runtime;

/// What a log entry carries: an encoded [`Batch`](quorate_core::Batch) in a shard's log, an encoded control command in
/// the control group's. Opaque to Raft and to the log.
#[derive(Clone, PartialEq, Eq)]
pub struct Proposal(pub Bytes);

impl fmt::Debug for Proposal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Proposal({} bytes)", self.0.len())
    }
}

impl fmt::Display for Proposal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

openraft::declare_raft_types!(
    /// The one configuration of openraft that shards and control group share.
    pub TypeConfig:
        D = Proposal,
        R = Applied,
        NodeId = NodeId,
        Node = openraft::EmptyNode,
        Term = u64,
        LeaderId = openraft::vote::leader_id_std::LeaderId<u64, NodeId>,
        AsyncRuntime = Runtime,
);

/// A term and an index.
pub type LogId = alias::LogIdOf<TypeConfig>;
/// Who proposed: a term and a node.
pub type LeaderId = alias::LeaderIdOf<TypeConfig>;
/// A log entry.
pub type Entry = alias::EntryOf<TypeConfig>;
/// What an entry carries: nothing, a proposal, or a membership.
pub type Payload = alias::PayloadOf<TypeConfig>;
/// A node's vote, or a leader's claim.
pub type Vote = alias::VoteOf<TypeConfig>;
/// Voters (joint or not) and learners.
pub type Membership = openraft::Membership<NodeId, openraft::EmptyNode>;
/// A membership and the entry that set it.
pub type StoredMembership = alias::StoredMembershipOf<TypeConfig>;
/// What a snapshot covers.
pub type SnapshotMeta = alias::SnapshotMetaOf<TypeConfig>;
/// A snapshot as openraft passes it around: its meta and a `D`.
pub type Snapshot<D> = alias::SnapshotOf<TypeConfig, D>;
/// Where a log begins and ends.
pub type LogState = openraft::storage::LogState<TypeConfig>;
/// The call that tells openraft that entries are on disk.
pub type IoFlushed = openraft::storage::IOFlushed<TypeConfig>;

/// A log id of that term and index.
pub fn log_id(term: u64, index: u64) -> LogId {
    LogId::new_term_index(term, index)
}
