//! How nodes talk to each other: calls and snapshots, behind a trait that a simulator can stand in for.
//!
//! ```text
//!  raft, control, services ─► Transport::call ─► one stream to that node, what waits in one message ─► Handler::handle
//!                             Transport::send_snapshot ─► a stream of its own, in blocks ─────────────► Handler::install
//!                             Transport::fetch_snapshot ◄─ a stream of its own, in blocks ◄──────────── Handler::snapshot
//! ```
//!
//! Invariants: calls to one node reach its handler in the order in which [`Transport::call`] was called, as long as the
//! stream to it holds; when it breaks, every call on it fails and none is sent again. Nothing here decides or retries.

mod directory;
pub mod tonic;

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use quorate_core::{GroupId, Index, NodeId};
use quorate_proto::v1::{self, peer_request::Kind};

pub use self::tonic::{TonicNewcomers, TonicPeers};
pub use directory::Directory;

/// A question to another node.
#[derive(Clone, Debug)]
pub struct Call {
    /// The group that it is for; [`GroupId::CONTROL`] also where it is for the node itself.
    pub group: GroupId,
    /// What is asked.
    pub kind: Kind,
    /// In the encoding of its kind.
    pub body: Bytes,
}

/// Why a call has no answer. It may have been handled all the same, except where it was never sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The node cannot be reached now; nothing was sent.
    #[error("node {node} cannot be reached: {problem}")]
    Unreachable {
        /// The node.
        node: NodeId,
        /// Why.
        problem: String,
    },
    /// The stream broke, or the answer did not come in time.
    #[error("node {node} gave no answer: {problem}")]
    Lost {
        /// The node.
        node: NodeId,
        /// What happened.
        problem: String,
    },
    /// The node answered that it could not.
    #[error("node {node} answered: {problem}")]
    Remote {
        /// The node.
        node: NodeId,
        /// In its words.
        problem: String,
    },
}

/// A snapshot on its way: what it is, and its bytes in blocks.
pub struct SnapshotOut {
    /// The group.
    pub group: GroupId,
    /// The sender's vote, encoded; empty where it was asked for.
    pub vote: Bytes,
    /// The snapshot's meta, encoded.
    pub meta: Bytes,
    /// How many bytes follow.
    pub length: u64,
    /// The bytes; an error ends it.
    pub blocks: BoxStream<'static, std::io::Result<Bytes>>,
}

/// Reaches other nodes.
#[async_trait]
pub trait Transport: Send + Sync + fmt::Debug {
    /// Puts the question on the stream to a node, now, and gives back its answer to come.
    fn call(&self, to: NodeId, call: Call, patience: Duration) -> BoxFuture<'static, Result<Bytes, CallError>>;

    /// Sends a whole snapshot and gives back the answer to it.
    async fn send_snapshot(&self, to: NodeId, snapshot: SnapshotOut) -> Result<Bytes, CallError>;

    /// Asks a node for its newest snapshot of a group; none if it has none that covers `at_least`, and is making one.
    async fn fetch_snapshot(
        &self,
        from: NodeId,
        group: GroupId,
        at_least: Index,
    ) -> Result<Option<SnapshotOut>, CallError>;
}

/// Reaches nodes by their addresses, before they are members of anything.
#[async_trait]
pub trait Newcomers: Send + Sync + fmt::Debug {
    /// Asks who listens there.
    ///
    /// # Errors
    /// Nobody answered; in words that name the address.
    async fn identify(&self, address: &str) -> Result<v1::IdentifyResponse, String>;

    /// Makes the node that listens there a member. Done twice it is the same as done once.
    ///
    /// # Errors
    /// It did not answer, or is another already; in words that name the address.
    async fn assign(&self, address: &str, request: v1::AssignRequest) -> Result<(), String>;
}

/// Answers other nodes.
pub trait Handler: Send + Sync + 'static {
    /// Takes a question in. What has to keep its order is put in order before this returns; the future only waits.
    /// An error is told to the caller in words.
    fn handle(&self, from: NodeId, call: Call) -> BoxFuture<'static, Result<Bytes, String>>;

    /// Takes a whole snapshot in.
    fn install(&self, from: NodeId, snapshot: SnapshotOut) -> BoxFuture<'static, Result<Bytes, String>>;

    /// Gives the newest snapshot of a group, if it covers `at_least`; if not, one is made, and none is given yet.
    fn snapshot(
        &self,
        from: NodeId,
        group: GroupId,
        at_least: Index,
    ) -> BoxFuture<'static, Result<Option<SnapshotOut>, String>>;
}
