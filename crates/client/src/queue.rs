//! What waits for one shard, packed as it comes: callers push, the engine takes whole frames.
//!
//! This is the one state that callers and engine share. A caller holds the lock for a push of a few bytes; the engine for
//! taking a pack. Whoever pushes into an empty queue rings the engine's bell; later pushes need not.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use quorate_core::ShardId;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use crate::breaker::Gate;
use crate::caps;
use crate::error::{Error, ErrorKind};
use crate::gather::Seat;
use crate::pack::{Operation, Pack};
use crate::question::Question;

/// What comes back for one command: the core's answer and its receipt, or why there is none.
pub(crate) type Outcome = Result<quorate_core::PlaceAnswer, Failure>;

/// What a caller waits for; it ends without an outcome only if the client is gone.
pub(crate) type Awaited = oneshot::Receiver<Outcome>;

/// Why a command has no answer.
#[derive(Debug)]
pub(crate) enum Failure {
    /// For the caller to see.
    Final(Error),
    /// Nothing was executed: the shard does not hold the key any more, or the policy was written anew. Look the route up
    /// again in anything newer than what it was sent by, or give up with this error.
    Moved(Error),
}

impl Failure {
    pub(crate) fn map(self, f: impl FnOnce(Error) -> Error) -> Failure {
        match self {
            Failure::Final(error) => Failure::Final(f(error)),
            Failure::Moved(error) => Failure::Moved(f(error)),
        }
    }

    /// The same for another command.
    pub(crate) fn again(&self) -> Failure {
        match self {
            Failure::Final(error) => Failure::Final(error.again()),
            Failure::Moved(error) => Failure::Moved(error.again()),
        }
    }
}

/// One command's way back to its caller.
#[derive(Debug)]
pub(crate) struct Slot {
    reply: Reply,
    pub(crate) deadline: Instant,
}

#[derive(Debug)]
enum Reply {
    One(oneshot::Sender<Outcome>),
    Many(Seat),
}

impl Slot {
    pub(crate) fn one(deadline: Instant) -> (Slot, Awaited) {
        let (reply, outcome) = oneshot::channel();
        (Slot { reply: Reply::One(reply), deadline }, outcome)
    }

    pub(crate) fn many(seat: Seat, deadline: Instant) -> Slot {
        Slot { reply: Reply::Many(seat), deadline }
    }

    /// Whether anybody still waits.
    pub(crate) fn is_awaited(&self) -> bool {
        match &self.reply {
            Reply::One(reply) => !reply.is_closed(),
            Reply::Many(seat) => seat.is_awaited(),
        }
    }

    pub(crate) fn answer(self, outcome: Outcome) {
        match self.reply {
            // Nobody waits any more: the answer is of no use to anyone.
            Reply::One(reply) => drop(reply.send(outcome)),
            Reply::Many(seat) => seat.take(outcome),
        }
    }
}

/// The queue of one shard.
#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) shard: ShardId,
    /// Whether checks are put in line at all.
    pub(crate) gate: Gate,
    bell: mpsc::UnboundedSender<ShardId>,
    inner: Mutex<Inner>,
}

/// Why a queue takes nothing more.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Closed {
    /// The client is closed.
    Client,
    /// The shard is not part of the topology any more.
    Shard,
}

impl Closed {
    pub(crate) fn failure(self) -> Failure {
        match self {
            Closed::Client => Failure::Final(Error::closed()),
            Closed::Shard => {
                let text = "the shard is not part of the topology any more, and nobody else holds the key; nothing was charged";
                Failure::Moved(Error::new(ErrorKind::Unavailable, text))
            }
        }
    }
}

#[derive(Debug, Default)]
struct Inner {
    packs: VecDeque<Pack>,
    commands: usize,
    bytes: usize,
    /// The bell was rung and the engine has not looked yet.
    rung: bool,
    /// Not later than the earliest deadline of what waits.
    earliest: Option<Instant>,
    closed: Option<Closed>,
}

impl Queue {
    /// The bell is unbounded, and holds each queue at most once.
    pub(crate) fn new(shard: ShardId, bell: mpsc::UnboundedSender<ShardId>) -> Queue {
        Queue { shard, gate: Gate::new(shard), bell, inner: Mutex::default() }
    }

    /// Puts a check in line. Its policies are looked up, in the set of that version.
    pub(crate) fn check(&self, question: &Question<'_>, version: u64, slot: Slot) {
        self.push(question.bytes(), slot, |pack, slot| pack.check(question, version, slot))
    }

    /// Puts anything else in line.
    pub(crate) fn operation(&self, operation: &Operation<'_, '_>, version: u64, slot: Slot) {
        self.push(operation.bytes(), slot, |pack, slot| pack.operation(operation, version, slot))
    }

    /// Into the pack that is being filled, or a new one; where there is no room, the slot is answered so at once.
    fn push(&self, bytes: usize, slot: Slot, into: impl FnOnce(&mut Pack, Slot)) {
        let deadline = slot.deadline;
        let mut inner = self.lock();
        if let Some(closed) = inner.closed {
            drop(inner);
            return slot.answer(Err(closed.failure()));
        }
        if inner.commands >= caps::QUEUED_COMMANDS || inner.bytes + bytes > caps::QUEUED_BYTES {
            let error = overloaded(self.shard, inner.commands);
            drop(inner);
            return slot.answer(Err(Failure::Final(error)));
        }
        let empty = inner.commands == 0;
        inner.commands += 1;
        inner.bytes += bytes;
        match inner.packs.back_mut() {
            Some(pack) if pack.has_room(bytes) => into(pack, slot),
            _ => {
                let mut pack = Pack::default();
                into(&mut pack, slot);
                inner.packs.push_back(pack);
            }
        }
        let sooner = inner.earliest.is_none_or(|earliest| deadline < earliest);
        if sooner {
            inner.earliest = Some(deadline);
        }
        if (empty || sooner) && !inner.rung {
            inner.rung = true;
            // The engine is gone only when the client is closed; the slot's owner then hears of it when it is dropped.
            let _ = self.bell.send(self.shard);
        }
    }

    /// The engine has heard the bell: the earliest deadline of what waits.
    pub(crate) fn heard(&self) -> Option<Instant> {
        let mut inner = self.lock();
        inner.rung = false;
        inner.earliest
    }

    /// The oldest pack, and what the earliest deadline is after it.
    pub(crate) fn take(&self) -> Option<Pack> {
        let mut inner = self.lock();
        let pack = inner.packs.pop_front()?;
        inner.commands -= pack.len();
        inner.bytes -= pack.bytes();
        if inner.packs.is_empty() {
            inner.earliest = None;
        }
        Some(pack)
    }

    /// Answers everything whose time is over, and forgets what nobody waits for; gives the next deadline.
    pub(crate) fn expire(&self, now: Instant, late: impl Fn() -> Error) -> Option<Instant> {
        let mut inner = self.lock();
        if inner.earliest.is_none_or(|earliest| now < earliest) {
            return inner.earliest;
        }
        let mut earliest = None;
        inner.packs.retain_mut(|pack| {
            let next = pack.expire(now, &late);
            earliest = [earliest, next].into_iter().flatten().min();
            next.is_some()
        });
        inner.commands = inner.packs.iter().map(Pack::len).sum();
        inner.bytes = inner.packs.iter().map(Pack::bytes).sum();
        inner.earliest = earliest;
        earliest
    }

    /// Takes nothing more; gives what waited.
    pub(crate) fn close(&self, why: Closed) -> Vec<Pack> {
        let mut inner = self.lock();
        inner.closed = Some(why);
        inner.commands = 0;
        inner.bytes = 0;
        inner.earliest = None;
        inner.packs.drain(..).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Nothing that can panic runs under the lock between two states that belong together.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn overloaded(shard: ShardId, waiting: usize) -> Error {
    let text = format!(
        "{waiting} commands already wait for shard {shard} in this client; nothing was charged: shed load, or add capacity"
    );
    Error::new(ErrorKind::Overloaded, text)
}
