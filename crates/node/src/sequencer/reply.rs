//! Replies to frames: each gets exactly one.

use quorate_core::{NodeId, PlaceAnswer, ShardId};
use tokio::sync::mpsc;

/// Why a whole frame has no answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// This node does not lead the shard; nothing was proposed.
    NotLeader {
        /// Who does, if it is known.
        leader: Option<NodeId>,
    },
    /// The queue is full; nothing was proposed.
    Overloaded,
    /// Its time was over before it was proposed.
    Deadline,
    /// It was proposed, and whether it was charged is not known yet.
    Unknown,
    /// The shard has stopped on this node; nothing was proposed.
    Stopped,
}

/// The reply to a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The frame's tag.
    pub tag: u64,
    /// The shard that was asked.
    pub shard: ShardId,
    /// An answer for each of its commands, or why there is none.
    pub outcome: Result<Vec<PlaceAnswer>, Failure>,
}

/// Where the reply to one frame goes. Dropped without one, it replies that the frame was not proposed, or, if it was, that its
/// outcome is unknown.
#[derive(Debug)]
pub struct ReplySlot {
    tag: u64,
    shard: ShardId,
    to: Option<mpsc::UnboundedSender<Reply>>,
    proposed: bool,
    /// Answers that are known before the others.
    known: Vec<PlaceAnswer>,
}

impl ReplySlot {
    /// A slot for the frame of that tag. Whoever holds the other end bounds how many there are.
    pub fn new(tag: u64, shard: ShardId, to: mpsc::UnboundedSender<Reply>) -> ReplySlot {
        ReplySlot { tag, shard, to: Some(to), proposed: false, known: Vec::new() }
    }

    pub(super) fn mark_proposed(&mut self) {
        self.proposed = true;
    }

    /// Keeps an answer for when the others come; where they never do, it is not given either.
    pub(super) fn know(&mut self, answer: PlaceAnswer) {
        self.known.push(answer);
    }

    /// Gives the reply: the answers, and those that were known before.
    pub fn reply(mut self, outcome: Result<Vec<PlaceAnswer>, Failure>) {
        let known = std::mem::take(&mut self.known);
        self.send(outcome.map(|mut answers| {
            if !known.is_empty() {
                answers.extend(known);
                answers.sort_by_key(|answer| answer.place);
            }
            answers
        }));
    }

    fn send(&mut self, outcome: Result<Vec<PlaceAnswer>, Failure>) {
        if let Some(to) = self.to.take() {
            // Whoever asked may have gone away; then nobody waits for it.
            let _ = to.send(Reply { tag: self.tag, shard: self.shard, outcome });
        }
    }
}

impl Drop for ReplySlot {
    fn drop(&mut self) {
        self.send(Err(if self.proposed { Failure::Unknown } else { Failure::Stopped }));
    }
}
