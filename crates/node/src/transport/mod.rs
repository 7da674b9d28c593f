//! How nodes talk to each other: calls and snapshots, behind traits that a simulator can stand in for.
//!
//! ```text
//!  raft, control, services ─► PeerTransport::call ─► one stream to that node, what waits in one message ─► PeerHandler::handle
//!                             PeerTransport::send_snapshot ─► a stream of its own, in blocks ────────────► PeerHandler::install
//!                             PeerTransport::fetch_snapshot ◄── a stream of its own, in blocks ◄─────────── PeerHandler::snapshot
//! ```
//!
//! Invariants: calls to one node reach its handler in the order in which [`PeerTransport::call`] was called, as long as the
//! stream to it holds; when it breaks, every call on it fails and none is sent again. Nothing here decides or retries.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use quorate_core::{GroupId, NodeId};
use quorate_proto::v1::peer_request::Kind;

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

/// Why a call has no answer.
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
    /// The stream broke, or the answer did not come in time. The question may have been handled all the same.
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

/// A snapshot on its way: what it is, and its file's bytes.
pub struct SnapshotStream {
    /// The group.
    pub group: GroupId,
    /// The sending leader's vote, encoded; empty where it was asked for by a node that starts.
    pub vote: Bytes,
    /// How many bytes there are.
    pub length: u64,
    /// The bytes, in order; an error ends them.
    pub blocks: BoxStream<'static, std::io::Result<Bytes>>,
}

impl fmt::Debug for SnapshotStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SnapshotStream({}, {} bytes)", self.group, self.length)
    }
}

/// Reaches other nodes.
#[async_trait]
pub trait PeerTransport: Send + Sync + fmt::Debug {
    /// Puts the question on the stream to a node, now, and gives back its answer to come. The question stays there when the
    /// answer is no longer waited for.
    fn call(&self, to: NodeId, call: Call, patience: Duration) -> BoxFuture<'static, Result<Bytes, CallError>>;

    /// Sends a whole snapshot and gives back the answer to it.
    ///
    /// # Errors
    /// It did not arrive, or was refused.
    async fn send_snapshot(&self, to: NodeId, snapshot: SnapshotStream) -> Result<Bytes, CallError>;

    /// Asks a node for its newest snapshot of a group; none if it has none.
    ///
    /// # Errors
    /// The node cannot be asked, or holds no replica of the group.
    async fn fetch_snapshot(&self, from: NodeId, group: GroupId) -> Result<Option<SnapshotStream>, CallError>;
}

/// An answer to come; an error is told to the caller in words.
pub type Reply<T> = BoxFuture<'static, Result<T, String>>;

/// Answers other nodes.
pub trait PeerHandler: Send + Sync + 'static {
    /// Takes a question in. What has to keep its order is put in order before this returns; the future only waits.
    fn handle(&self, from: NodeId, call: Call) -> Reply<Bytes>;

    /// Takes a whole snapshot in.
    fn install(&self, from: NodeId, snapshot: SnapshotStream) -> Reply<Bytes>;

    /// Gives the newest snapshot of a group, if there is one.
    fn snapshot(&self, from: NodeId, group: GroupId) -> Reply<Option<SnapshotStream>>;
}
