//! The only way into a shard's log: one task for each shard that this node leads.
//!
//! ```text
//! submit ─► bounded queue ─► batch: all that waits ─► stamp ─► propose ─► … ─► applied ─► each frame's reply
//!             │ full: overloaded   │ too late: deadline          a few in flight, in order
//!             └ not led: not_leader                              led no more: unknown
//! ```
//!
//! What waits while earlier batches are in flight goes into the next one together: no timer, no lingering. Under little load a
//! frame is a batch of its own; under much, batches grow by themselves.
//!
//! A check whose key was denied a moment ago is first held against the state as it is. Where nothing in flight could change that,
//! and no other node can be leading, a denial needs no log: it is answered at once, and a flood of them is not even replicated.
//!
//! Invariants: every frame that is submitted gets exactly one reply (a [`ReplySlot`] that is dropped replies by itself);
//! nothing is stamped before the cluster's clock is trusted; stamps and batches of one term are proposed in one order; policy
//! sets, and the passing of time on an idle shard, come into the log here and nowhere else.

mod denials;
mod queue;
mod reply;
mod shard;
mod term;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use quorate_core::{NodeId, PolicySet, ShardId};
use tokio::sync::watch;
use tokio::task::JoinHandle;

pub use denials::Suspect;
pub use queue::{QueueCaps, Submission};
pub use reply::{Failure, Reply, ReplySlot};
pub use shard::Proposer;

use crate::clock::ClusterClock;
use queue::Queue;

/// The way into one shard. Clones share it.
#[derive(Clone, Debug)]
pub struct Sequencer {
    shard: ShardId,
    queue: Arc<Queue>,
}

impl Sequencer {
    /// Starts the task that leads the shard's frames into its log whenever this node leads it. It brings in each newer set of
    /// `policies`, too, and ends when the shard's leadership watch does.
    pub fn start(
        shard: impl Proposer,
        clock: ClusterClock,
        policies: watch::Receiver<Arc<PolicySet>>,
        caps: QueueCaps,
    ) -> (Sequencer, JoinHandle<()>) {
        let queue = Arc::new(Queue::new(shard.leadership().borrow().leader, caps));
        let sequencer = Sequencer { shard: shard.id(), queue: Arc::clone(&queue) };
        (sequencer, tokio::spawn(term::keep_leading(shard, clock, policies, queue)))
    }

    /// The shard.
    pub fn shard(&self) -> ShardId {
        self.shard
    }

    /// Takes a frame in. Its reply comes through its slot, at once where it is not taken.
    pub fn submit(&self, submission: Submission) {
        self.queue.push(submission);
    }

    /// Whether frames are taken: this node leads the shard, and may stamp. Else, who leads, as far as it knows.
    pub fn leads(&self) -> Result<(), Option<NodeId>> {
        self.queue.is_open()
    }
}
