//! The bounded queue of frames before a shard.
//!
//! Closed while this node does not lead the shard; then it holds nothing. One lock, held for a few instructions a frame.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use quorate_core::{Command, Group, NodeId};
use tokio::sync::Notify;

use super::reply::{Failure, ReplySlot};
use crate::caps;
use crate::clock::Monotonic;

/// How much may wait before a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueCaps {
    /// Commands.
    pub commands: usize,
    /// Bytes that they take in the log, about.
    pub bytes: usize,
}

/// A frame to be proposed.
#[derive(Debug)]
pub struct Submission {
    /// Its commands.
    pub group: Group,
    /// Later than that it is not proposed.
    pub deadline: Monotonic,
    /// Nothing of it was ever sent before: so nowhere is a copy of it on its way that might yet be granted.
    pub first: bool,
    /// Where its reply goes.
    pub reply: ReplySlot,
}

#[derive(Debug)]
pub(super) struct Queue {
    caps: QueueCaps,
    inner: Mutex<Inner>,
    /// Woken when something comes into an empty queue.
    pub(super) filled: Notify,
}

#[derive(Debug)]
struct Inner {
    open: bool,
    leader: Option<NodeId>,
    stopped: bool,
    waiting: VecDeque<(Submission, Size)>,
    size: Size,
}

#[derive(Clone, Copy, Debug, Default)]
struct Size {
    commands: usize,
    bytes: usize,
}

impl Size {
    fn of(group: &Group) -> Size {
        let bytes: usize = group.commands.iter().map(|(_, command)| command_bytes(command)).sum();
        Size { commands: group.commands.len(), bytes: bytes + 32 }
    }

    fn add(&mut self, other: Size) {
        self.commands += other.commands;
        self.bytes += other.bytes;
    }

    fn sub(&mut self, other: Size) {
        self.commands -= other.commands;
        self.bytes -= other.bytes;
    }

    fn fits(self, more: Size, commands: usize, bytes: usize) -> bool {
        self.commands + more.commands <= commands && self.bytes + more.bytes <= bytes
    }
}

/// At least what the command takes in a log entry.
fn command_bytes(command: &Command) -> usize {
    match command {
        Command::Check(check) | Command::Reserve { check, .. } => 32 + 32 * check.limits.len(),
        Command::Refund { charges, .. } => 48 + 56 * charges.len(),
        Command::Settle { charges, .. } => 64 + 64 * charges.len(),
        _ => 48,
    }
}

impl Queue {
    pub(super) fn new(leader: Option<NodeId>, caps: QueueCaps) -> Queue {
        let waiting = VecDeque::new();
        let inner = Inner { open: false, leader, stopped: false, waiting, size: Size::default() };
        Queue { caps, inner: Mutex::new(inner), filled: Notify::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn push(&self, submission: Submission) {
        let size = Size::of(&submission.group);
        let mut inner = self.lock();
        let failure = if inner.stopped {
            Failure::Stopped
        } else if !inner.open {
            Failure::NotLeader { leader: inner.leader }
        } else if !inner.size.fits(size, self.caps.commands, self.caps.bytes) {
            Failure::Overloaded
        } else {
            let was_empty = inner.waiting.is_empty();
            inner.size.add(size);
            inner.waiting.push_back((submission, size));
            drop(inner);
            if was_empty {
                self.filled.notify_one();
            }
            return;
        };
        drop(inner);
        submission.reply.reply(Err(failure));
    }

    pub(super) fn is_open(&self) -> Result<(), Option<NodeId>> {
        let inner = self.lock();
        if inner.open { Ok(()) } else { Err(inner.leader) }
    }

    pub(super) fn open(&self, me: Option<NodeId>) {
        let mut inner = self.lock();
        (inner.open, inner.leader) = (true, me);
    }

    /// Takes no more frames, and tells those that wait who leads.
    pub(super) fn close(&self, leader: Option<NodeId>) {
        let mut inner = self.lock();
        (inner.open, inner.leader, inner.size) = (false, leader, Size::default());
        let waiting = std::mem::take(&mut inner.waiting);
        drop(inner);
        for (submission, _) in waiting {
            submission.reply.reply(Err(Failure::NotLeader { leader }));
        }
    }

    /// Takes no more frames, for good.
    pub(super) fn stop(&self) {
        let mut inner = self.lock();
        (inner.open, inner.stopped, inner.size) = (false, true, Size::default());
        let waiting = std::mem::take(&mut inner.waiting);
        drop(inner);
        for (submission, _) in waiting {
            submission.reply.reply(Err(Failure::Stopped));
        }
    }

    /// Sheds what waits in vain.
    pub(super) fn shed(&self, now: Monotonic) {
        let mut late = Vec::new();
        let mut inner = self.lock();
        let inner = &mut *inner;
        if inner.waiting.iter().any(|(submission, _)| submission.deadline < now) {
            for (submission, size) in std::mem::take(&mut inner.waiting) {
                if submission.deadline < now {
                    inner.size.sub(size);
                    late.push(submission.reply);
                } else {
                    inner.waiting.push_back((submission, size));
                }
            }
        }
        for reply in late {
            reply.reply(Err(Failure::Deadline));
        }
    }

    /// All that waits, as far as one batch takes it, in order; what waits in vain is shed.
    pub(super) fn take_batch(&self, now: Monotonic) -> Vec<Submission> {
        let (mut batch, mut late, mut size) = (Vec::new(), Vec::new(), Size::default());
        let mut inner = self.lock();
        while let Some((front, front_size)) = inner.waiting.front() {
            let (in_time, front_size) = (front.deadline >= now, *front_size);
            let fits = size.fits(front_size, quorate_core::caps::COMMANDS_PER_BATCH, caps::BATCH_BYTES);
            if in_time && !fits && !batch.is_empty() {
                break;
            }
            let Some((submission, _)) = inner.waiting.pop_front() else { break };
            inner.size.sub(front_size);
            if in_time {
                size.add(front_size);
                batch.push(submission);
            } else {
                late.push(submission.reply);
            }
        }
        drop(inner);
        for reply in late {
            reply.reply(Err(Failure::Deadline));
        }
        batch
    }
}
