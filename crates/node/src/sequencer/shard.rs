//! What the sequencer needs of a shard; a fake one can stand in for it.

use std::future::Future;

use bytes::Bytes;
use quorate_core::{Applied, PlaceAnswer, PolicyVersion, ShardId, Stamp, Term};
use tokio::sync::watch;

use super::denials::Suspect;
use crate::raft::{Leadership, ProposeError};

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
    /// The answers of those checks that the state alone is sure to deny, at that time: none where this node, which leads in that
    /// term, is not known to be the only one that can. `coming` limits may yet be charged by what is in flight. The receipts bear
    /// the term and the last applied index.
    fn deny(&self, term: Term, stamp: Stamp, coming: u64, suspects: &[Suspect<'_>]) -> Vec<Option<PlaceAnswer>>;
    /// When something expires, if nothing comes before; none: nothing awaits expiry.
    fn expires_at(&self) -> Option<Stamp>;
}
