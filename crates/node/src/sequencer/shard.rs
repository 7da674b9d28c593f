//! What the sequencer needs of a shard; a fake one can stand in for it.

use std::future::Future;

use bytes::Bytes;
use quorate_core::{Applied, NodeId, PolicyVersion, ShardId, Stamp, Term};
use tokio::sync::watch;

/// Who leads a shard, as this node knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Leadership {
    /// The term.
    pub term: Term,
    /// Its leader, if it is known.
    pub leader: Option<NodeId>,
    /// Whether that is this node, and it has applied an entry of the term: so its state holds all that was ever answered.
    pub is_self: bool,
}

/// Why a proposal has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProposeError {
    /// It was not proposed: this node does not lead.
    #[error("this node does not lead the group")]
    NotLeader {
        /// Who does, if it is known.
        leader: Option<NodeId>,
    },
    /// It was proposed, and whether it will be committed is not known.
    #[error("leadership was lost before the proposal was known to be committed")]
    Unknown,
    /// The group has stopped on this node; it was not proposed.
    #[error("the group has stopped on this node: {0}")]
    Stopped(String),
}

/// A shard to propose to.
pub trait Proposer: Send + Sync + 'static {
    /// The answer to come.
    type Ticket: Future<Output = Result<Applied, ProposeError>> + Send + Unpin + 'static;

    /// Which shard.
    fn id(&self) -> ShardId;
    /// Follows who leads it; ends when the shard stops.
    fn leadership(&self) -> watch::Receiver<Leadership>;
    /// Proposes an encoded batch; proposals are logged in the order in which this returned.
    fn propose(&self, batch: Bytes) -> impl Future<Output = Result<Self::Ticket, ProposeError>> + Send;
    /// The stamp that was applied last.
    fn stamp(&self) -> Stamp;
    /// The policy set that is applied.
    fn policy_version(&self) -> PolicyVersion;
    /// When something expires, if nothing comes before; none: nothing awaits expiry.
    fn expires_at(&self) -> Option<Stamp>;
}
