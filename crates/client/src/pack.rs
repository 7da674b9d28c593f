//! Commands on their way: the columns of one frame, and the way back of each command in it.
//!
//! A pack is filled while it waits in a [`Queue`](crate::queue::Queue), is then sealed, and is sent as often as it takes
//! until every place has its answer or nobody waits any more. Places never change; what nobody waits for is left out when
//! the frame is sent again.

use quorate_core::{Cost, Span, caps as core_caps};
use quorate_proto::convert::{FrameHead, FramePacker, LimitRef};
use quorate_proto::v1;
use smallvec::SmallVec;
use tokio::time::Instant;

use crate::caps;
use crate::charge::Part;
use crate::error::Error;
use crate::question::{Limit, Question};
use crate::queue::{Failure, Outcome, Slot};

/// Everything that is not a check.
#[derive(Debug)]
pub(crate) enum Operation<'a, 'q> {
    Refund(&'a Part),
    Settle { part: &'a Part, ttl: Span, actual: &'a [Cost] },
    Reserve { question: &'a Question<'q>, ttl: Span },
    Reset(&'a Question<'q>),
}

impl Operation<'_, '_> {
    /// Bytes of keys in it.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Operation::Refund(part) | Operation::Settle { part, .. } => part.bytes(),
            Operation::Reserve { question, .. } | Operation::Reset(question) => question.bytes(),
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Pack {
    packer: FramePacker,
    /// By place; none where the answer was given, or nobody waits.
    slots: Vec<Option<Slot>>,
    awaited: usize,
    bytes: usize,
    /// The newest policy set that a policy id in it was taken from.
    policy_version: u64,
}

/// A pack that takes nothing more.
#[derive(Debug)]
pub(crate) struct Sealed {
    /// Every command of it, under no head.
    frame: v1::Frame,
    slots: Vec<Option<Slot>>,
    awaited: usize,
}

impl Pack {
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        self.len() < caps::COMMANDS_PER_FRAME && self.bytes + bytes <= caps::FRAME_BYTES
    }

    pub(crate) fn check(&mut self, question: &Question<'_>, version: u64, slot: Slot) {
        let limits = limit_refs(question);
        self.bytes += question.bytes();
        let place = self.place(version, slot);
        self.packer.check(place, &limits, question.peek, question.max_delay.map(span));
    }

    pub(crate) fn operation(&mut self, operation: &Operation<'_, '_>, version: u64, slot: Slot) {
        self.bytes += operation.bytes();
        let place = self.place(version, slot);
        match operation {
            Operation::Refund(part) => self.packer.refund(place, &part.receipt, &part.charges()),
            Operation::Settle { part, ttl, actual } => {
                let settled: Vec<_> = part.charges().into_iter().zip(actual.iter().copied()).collect();
                self.packer.settle(place, &part.receipt, *ttl, &settled);
            }
            Operation::Reserve { question, ttl } => self.packer.reserve(place, &limit_refs(question), *ttl),
            Operation::Reset(question) => {
                for limit in &question.limits {
                    self.packer.reset(place, limit.policy_id(), limit.key.as_bytes());
                }
            }
        }
    }

    fn place(&mut self, version: u64, slot: Slot) -> u32 {
        self.policy_version = self.policy_version.max(version);
        self.slots.push(Some(slot));
        self.awaited += 1;
        self.slots.len() as u32 - 1
    }

    /// Answers what is too late and forgets what nobody waits for; gives the next deadline, none if nothing is left.
    pub(crate) fn expire(&mut self, now: Instant, late: impl Fn() -> Error) -> Option<Instant> {
        expire(&mut self.slots, &mut self.awaited, now, late)
    }

    pub(crate) fn seal(self) -> Sealed {
        let head =
            FrameHead { policy_version: quorate_core::PolicyVersion(self.policy_version), ..FrameHead::default() };
        Sealed { frame: self.packer.pack(&head), slots: self.slots, awaited: self.awaited }
    }
}

impl Sealed {
    /// The commands that somebody waits for, as a frame under no head; none if nobody waits for any. What was dropped
    /// meanwhile is forgotten.
    pub(crate) fn frame(&mut self) -> Option<v1::Frame> {
        self.forget_dropped();
        match self.awaited {
            0 => None,
            all if all == self.slots.len() => Some(self.frame.clone()),
            _ => Some(select(&self.frame, |place| self.awaits(place))),
        }
    }

    pub(crate) fn is_awaited(&self) -> bool {
        self.awaited > 0
    }

    pub(crate) fn awaits(&self, place: u32) -> bool {
        matches!(self.slots.get(place as usize), Some(Some(_)))
    }

    pub(crate) fn awaited_places(&self) -> impl Iterator<Item = u32> {
        (0..self.slots.len() as u32).filter(|place| self.awaits(*place))
    }

    /// The time of the most patient caller.
    pub(crate) fn latest(&self) -> Option<Instant> {
        self.slots.iter().flatten().map(|slot| slot.deadline).max()
    }

    pub(crate) fn earliest(&self) -> Option<Instant> {
        self.slots.iter().flatten().map(|slot| slot.deadline).min()
    }

    pub(crate) fn answer(&mut self, place: u32, outcome: Outcome) {
        if let Some(slot) = self.slots.get_mut(place as usize).and_then(Option::take) {
            self.awaited -= 1;
            slot.answer(outcome);
        }
    }

    /// Answers everything that is still awaited.
    pub(crate) fn fail(&mut self, failure: impl Fn() -> Failure) {
        for slot in self.slots.iter_mut().filter_map(Option::take) {
            slot.answer(Err(failure()));
        }
        self.awaited = 0;
    }

    pub(crate) fn expire(&mut self, now: Instant, late: impl Fn() -> Error) -> Option<Instant> {
        expire(&mut self.slots, &mut self.awaited, now, late)
    }

    fn forget_dropped(&mut self) {
        for slot in &mut self.slots {
            if slot.as_ref().is_some_and(|slot| !slot.is_awaited()) {
                *slot = None;
                self.awaited -= 1;
            }
        }
    }
}

fn expire(slots: &mut [Option<Slot>], awaited: &mut usize, now: Instant, late: impl Fn() -> Error) -> Option<Instant> {
    let mut earliest = None;
    for place in slots {
        let Some(slot) = place else { continue };
        let is_late = slot.deadline <= now;
        if !is_late && slot.is_awaited() {
            earliest = Some(earliest.map_or(slot.deadline, |earliest: Instant| earliest.min(slot.deadline)));
            continue;
        }
        *awaited -= 1;
        if let Some(slot) = place.take()
            && is_late
        {
            slot.answer(Err(Failure::Final(late())));
        }
    }
    earliest
}

fn limit_refs<'a>(question: &'a Question<'_>) -> SmallVec<[LimitRef<'a>; 1]> {
    let limit =
        |limit: &'a Limit<'_>| LimitRef { policy: limit.policy_id(), key: limit.key.as_bytes(), cost: limit.units() };
    question.limits.iter().map(limit).collect()
}

/// Rounded down to whole microseconds, cut to the longest span.
pub(crate) fn span(duration: std::time::Duration) -> Span {
    Span(i64::try_from(duration.as_micros()).unwrap_or(i64::MAX).min(core_caps::LONGEST_US))
}

/// The frame's commands at the places kept, with their places written out.
fn select(frame: &v1::Frame, keep: impl Fn(u32) -> bool) -> v1::Frame {
    let mut out = v1::Frame { policy_version: frame.policy_version, ..Default::default() };
    let mut keys = Vec::new();
    let (mut limit, mut key) = (0, 0);
    let checks = if frame.limit_counts.is_empty() { frame.policies.len() } else { frame.limit_counts.len() };
    for at in 0..checks {
        let place = frame.places.get(at).copied().unwrap_or(at as u32);
        let count = frame.limit_counts.get(at).copied().unwrap_or(1);
        let limits = limit..limit + count as usize;
        let lengths = frame.key_lengths.get(limits.clone()).unwrap_or_default();
        let bytes: usize = lengths.iter().map(|length| *length as usize).sum();
        if keep(place) {
            out.places.push(place);
            out.limit_counts.push(count);
            copy(&mut out.flags, &frame.flags, at..at + 1);
            copy(&mut out.max_delays_us, &frame.max_delays_us, at..at + 1);
            copy(&mut out.costs, &frame.costs, limits.clone());
            copy(&mut out.policies, &frame.policies, limits.clone());
            out.key_lengths.extend_from_slice(lengths);
            keys.extend_from_slice(frame.keys.get(key..key + bytes).unwrap_or_default());
        }
        (limit, key) = (limits.end, key + bytes);
    }
    out.keys = keys.into();
    out.operations = frame.operations.iter().filter(|operation| keep(operation.place)).cloned().collect();
    out
}

/// An empty column stays empty: its default everywhere.
fn copy<T: Copy>(to: &mut Vec<T>, from: &[T], range: std::ops::Range<usize>) {
    to.extend_from_slice(from.get(range).unwrap_or_default());
}
