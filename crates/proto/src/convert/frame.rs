//! Packing a frame: the client's end.
//!
//! A column whose elements are all at their default stays empty: the commonest frame, single-limit checks of cost 1, is three
//! columns and the keys.

use bytes::Bytes;
use quorate_core::{Cost, Epoch, FrameId, PolicyId, PolicyVersion, Receipt, SessionId, ShardId, Span};

use super::common::{mark_to_wire, receipt_to_wire, span_plus_one};
use crate::v1::{self, operation::Operation};

/// What stands over a frame's commands.
///
/// ```
/// use quorate_core::ShardId;
/// use quorate_proto::convert::FrameHead;
/// let head = FrameHead { tag: 1, shard: ShardId(3), ..FrameHead::default() };
/// assert!(head.frame.is_none());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameHead {
    /// Unique on the stream; every answer carries it.
    pub tag: u64,
    /// The shard asked.
    pub shard: ShardId,
    /// The topology that the client routed by.
    pub epoch: Epoch,
    /// The policy set that its policy ids are from.
    pub policy_version: PolicyVersion,
    /// Its place in a session; none: a retry may charge again.
    pub frame: Option<FrameId>,
    /// How long the most patient caller in it still waits; none: no bound.
    pub budget: Option<Span>,
    /// Nothing of it was ever sent before.
    pub first: bool,
}

/// One limit that a check names, with its key in text.
///
/// ```
/// use quorate_core::{Cost, PolicyId};
/// use quorate_proto::convert::LimitRef;
/// let limit = LimitRef { policy: PolicyId(1), key: b"alice", cost: Cost::ONE };
/// assert_eq!(limit.key.len(), 5);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitRef<'a> {
    /// The policy.
    pub policy: PolicyId,
    /// The key; at most [`caps::KEY_BYTES`](quorate_core::caps::KEY_BYTES).
    pub key: &'a [u8],
    /// What is asked.
    pub cost: Cost,
}

/// One limit of a granted check, with its key in text.
///
/// ```
/// use quorate_core::{Cost, PolicyId};
/// use quorate_proto::convert::ChargeRef;
/// let charge = ChargeRef { policy: PolicyId(1), key: b"alice", cost: Cost::ONE, mark: None };
/// assert!(charge.mark.is_none());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChargeRef<'a> {
    /// The policy charged.
    pub policy: PolicyId,
    /// The key charged.
    pub key: &'a [u8],
    /// What was charged.
    pub cost: Cost,
    /// The mark of the answer, if it had one.
    pub mark: Option<i128>,
}

/// Packs commands into a frame, one after another. Each has a place of its own, below
/// [`caps::COMMANDS_PER_FRAME`](quorate_core::caps::COMMANDS_PER_FRAME); the shard executes them in the order of places.
///
/// ```
/// use quorate_core::{Cost, PolicyId, ShardId};
/// use quorate_proto::convert::{FrameHead, FramePacker, LimitRef};
/// let mut packer = FramePacker::default();
/// packer.check(0, &[LimitRef { policy: PolicyId(1), key: b"alice", cost: Cost::ONE }], false, None);
/// packer.check(1, &[LimitRef { policy: PolicyId(1), key: b"bob", cost: Cost::ONE }], false, None);
/// let frame = packer.pack(&FrameHead { tag: 7, shard: ShardId(1), ..FrameHead::default() });
/// assert_eq!(&frame.keys[..], b"alicebob");
/// assert!(frame.costs.is_empty() && frame.places.is_empty());
/// ```
#[derive(Clone, Debug, Default)]
pub struct FramePacker {
    frame: v1::Frame,
    keys: Vec<u8>,
    checks: usize,
}

/// Adds an element to a column that stays empty as long as every element is the default: `len` elements went before.
pub(super) fn push<T: Clone + PartialEq>(column: &mut Vec<T>, len: usize, value: T, default: T) {
    if column.is_empty() {
        if value == default {
            return;
        }
        column.resize(len, default);
    }
    column.push(value);
}

/// Adds to the column of places, which stays empty as long as they count up from 0.
pub(super) fn push_place(column: &mut Vec<u32>, len: usize, place: u32) {
    if column.is_empty() {
        if place as usize == len {
            return;
        }
        column.extend(0..len as u32);
    }
    column.push(place);
}

impl FramePacker {
    /// How many commands it holds.
    pub fn len(&self) -> usize {
        self.checks + self.frame.operations.len()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of the checks' keys in it.
    pub fn key_bytes(&self) -> usize {
        self.keys.len()
    }

    /// A check, or a peek, of one or several limits.
    pub fn check(&mut self, place: u32, limits: &[LimitRef<'_>], peek: bool, max_delay: Option<Span>) {
        let (frame, len) = (&mut self.frame, self.checks);
        push_place(&mut frame.places, len, place);
        push(&mut frame.limit_counts, len, limits.len() as u32, 1);
        push(&mut frame.flags, len, u32::from(peek), 0);
        push(&mut frame.max_delays_us, len, span_plus_one(max_delay), 0);
        for limit in limits {
            push(&mut frame.costs, frame.policies.len(), limit.cost.get(), 1);
            frame.policies.push(limit.policy.0);
            frame.key_lengths.push(limit.key.len() as u32);
            self.keys.extend_from_slice(limit.key);
        }
        self.checks += 1;
    }

    /// Undoes a granted check.
    pub fn refund(&mut self, place: u32, receipt: &Receipt, charges: &[ChargeRef<'_>]) {
        let refund = v1::Refund { receipt: Some(receipt_to_wire(receipt)), charges: charges_to_wire(charges) };
        self.operation(place, Operation::Refund(refund));
    }

    /// A check whose charge can be settled until `ttl` has passed.
    pub fn reserve(&mut self, place: u32, limits: &[LimitRef<'_>], ttl: Span) {
        let limit = |limit: &LimitRef<'_>| v1::Limit {
            policy: limit.policy.0,
            key: Bytes::copy_from_slice(limit.key),
            cost: limit.cost.get(),
        };
        let reserve = v1::Reserve { limits: limits.iter().map(limit).collect(), ttl_us: ttl.0 };
        self.operation(place, Operation::Reserve(reserve));
    }

    /// Says what a reservation of that `ttl` really used of each charge.
    pub fn settle(&mut self, place: u32, receipt: &Receipt, ttl: Span, settled: &[(ChargeRef<'_>, Cost)]) {
        let (charges, actual): (Vec<_>, Vec<_>) =
            settled.iter().map(|(charge, actual)| (*charge, actual.get())).unzip();
        let settle = v1::Settle {
            receipt: Some(receipt_to_wire(receipt)),
            charges: charges_to_wire(&charges),
            ttl_us: ttl.0,
            actual,
        };
        self.operation(place, Operation::Settle(settle));
    }

    /// Makes a key as good as new.
    pub fn reset(&mut self, place: u32, policy: PolicyId, key: &[u8]) {
        self.operation(place, Operation::Reset(v1::Reset { policy: policy.0, key: Bytes::copy_from_slice(key) }));
    }

    /// Opens a session; in a frame without one.
    pub fn open_session(&mut self, place: u32) {
        self.operation(place, Operation::OpenSession(v1::OpenSession {}));
    }

    /// Ends a session; in a frame without one.
    pub fn close_session(&mut self, place: u32, session: SessionId) {
        self.operation(place, Operation::CloseSession(v1::CloseSession { session: session.0 }));
    }

    fn operation(&mut self, place: u32, operation: Operation) {
        self.frame.operations.push(v1::Operation { place, operation: Some(operation) });
    }

    /// The frame, under its head.
    pub fn pack(self, head: &FrameHead) -> v1::Frame {
        let id = head.frame.as_ref();
        v1::Frame {
            tag: head.tag,
            shard: head.shard.0,
            epoch: head.epoch.0,
            policy_version: head.policy_version.0,
            session: id.map_or(0, |id| id.session.0),
            sequence: id.map_or(0, |id| id.sequence.0),
            lowest_unanswered: id.map_or(0, |id| id.lowest_unanswered.0),
            // A budget that is used up is not the same as none.
            budget_us: head.budget.map_or(0, |budget| budget.0.max(1) as u64),
            keys: Bytes::from(self.keys),
            first: head.first,
            ..self.frame
        }
    }
}

fn charges_to_wire(charges: &[ChargeRef<'_>]) -> Vec<v1::Charge> {
    let charge = |charge: &ChargeRef<'_>| v1::Charge {
        policy: charge.policy.0,
        key: Bytes::copy_from_slice(charge.key),
        cost: charge.cost.get(),
        mark: mark_to_wire(charge.mark),
    };
    charges.iter().map(charge).collect()
}
