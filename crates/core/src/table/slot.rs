//! A key and its state in 44 bytes.
//!
//! ```text
//! table hash 8 │ ring hash 8 │ kind 3 bits, generation 8 bits, number 53 bits │ 8 │ 8 │ policy 4
//! ```
//!
//! Fixed window: number = window, then used. Sliding counter: number = window, then prev, curr. Buckets: the moment, low half
//! first. What does not fit (logs, held units) is kept beside the slots; number is then what it counts against the budget,
//! and the rest the digest of what it holds: so a slot alone says all there is to compare.

use super::pages::Slot;
use super::{Key, log_bytes};
use crate::digest::{Hash, Part};
use crate::ids::PolicyId;
use crate::key::Fingerprint;
use crate::limit::{HeldBucket, State};

/// Bits of `head` below the generation.
const NUMBER_BITS: u32 = 53;
const KIND_SHIFT: u32 = 61;

const FIXED_WINDOW: u64 = 0;
const SLIDING_COUNTER: u64 = 1;
const TOKEN_BUCKET: u64 = 2;
const LEAKY_BUCKET: u64 = 3;
const SLIDING_LOG: u64 = 4;
const HELD_BUCKET: u64 = 5;

/// A key and its packed state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, packed(4))]
pub(crate) struct Packed {
    table: u64,
    ring: u64,
    head: u64,
    low: u64,
    high: u64,
    policy: u32,
}

const _: () = assert!(size_of::<Packed>() == 44);

impl Slot for Packed {
    #[inline]
    fn key(&self) -> Key {
        Key { print: Fingerprint { table: self.table, ring: self.ring }, policy: PolicyId(self.policy) }
    }

    fn unused() -> Self {
        Packed::default()
    }
}

impl Packed {
    /// Packs a state; of what does not fit, its size and digest.
    pub(crate) fn new(key: Key, generation: u8, state: &State) -> Packed {
        let halves = |wide: i128| (wide as u64, (wide >> 64) as u64);
        let (kind, number, (low, high)) = match state {
            State::FixedWindow { window, used } => (FIXED_WINDOW, *window as u64, (*used, 0)),
            State::SlidingCounter { window, prev, curr } => (SLIDING_COUNTER, *window as u64, (*prev, *curr)),
            State::TokenBucket { full_at } => (TOKEN_BUCKET, 0, halves(*full_at)),
            State::LeakyBucket { next } => (LEAKY_BUCKET, 0, halves(*next)),
            State::SlidingLog(log) => (SLIDING_LOG, log_bytes(state), halves(log.digest() as i128)),
            State::HeldBucket(bucket) => (HELD_BUCKET, log_bytes(state), halves(held_digest(bucket) as i128)),
        };
        // A window's number is below 2^53, as stamps are at most 2^62 and a window lasts at least 1000.
        debug_assert!(number >> NUMBER_BITS == 0);
        let head = kind << KIND_SHIFT | u64::from(generation) << NUMBER_BITS | number;
        let Key { print: Fingerprint { table, ring }, policy } = key;
        Packed { table, ring, head, low, high, policy: policy.0 }
    }

    pub(crate) fn generation(&self) -> u8 {
        (self.head >> NUMBER_BITS) as u8
    }

    /// The state, where it is all here.
    #[inline]
    pub(crate) fn state(&self) -> Option<State> {
        let (window, wide) = (self.number() as i64, (u128::from(self.high) << 64 | u128::from(self.low)) as i128);
        Some(match self.head >> KIND_SHIFT {
            FIXED_WINDOW => State::FixedWindow { window, used: self.low },
            SLIDING_COUNTER => State::SlidingCounter { window, prev: self.low, curr: self.high },
            TOKEN_BUCKET => State::TokenBucket { full_at: wide },
            LEAKY_BUCKET => State::LeakyBucket { next: wide },
            _ => return None,
        })
    }

    /// What it counts against the budget for logs.
    pub(crate) fn log_bytes(&self) -> u64 {
        if self.head >> KIND_SHIFT >= SLIDING_LOG { self.number() } else { 0 }
    }

    fn number(&self) -> u64 {
        self.head & ((1 << NUMBER_BITS) - 1)
    }

    /// Its part of the shard's digest.
    #[inline]
    pub(crate) fn hash(&self) -> u128 {
        let hash = Hash::of(Part::Key).word(self.table).word(self.ring).word(self.policy.into());
        hash.word(self.head).word(self.low).word(self.high).end()
    }
}

fn held_digest(bucket: &HeldBucket) -> u128 {
    let hash = Hash::of(Part::Holds).word(bucket.full_at as u64).word((bucket.full_at >> 64) as u64);
    let holds = bucket.holds.iter().fold(hash, |hash, hold| {
        let hash = hash.word(hold.id.index.0).word(hold.id.place.into());
        hash.word(hold.cost.get()).word(hold.expires.0 as u64)
    });
    holds.end()
}
