//! The key table of a shard: (fingerprint, policy) → the state of that key under that policy.
//!
//! Everything goes in the order of keys, which is that of their table hashes; how they are laid out in memory never shows.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::command::Charge;
pub(crate) use crate::digest::Sum;
use crate::digest::{Hash, Part};
use crate::ids::PolicyId;
use crate::key::Fingerprint;
use crate::limit::State;

/// What a state belongs to. Ordered by fingerprint, so by table hash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    pub(crate) print: Fingerprint,
    pub(crate) policy: PolicyId,
}

impl Key {
    /// What a charge went to.
    pub(crate) fn of(charge: &Charge) -> Key {
        Key { print: charge.key, policy: charge.policy }
    }

    /// The least key above it; the greatest stays.
    pub(crate) fn next(self) -> Key {
        let Key { print: Fingerprint { table, ring }, policy } = self;
        let key = |table, ring, policy| Key { print: Fingerprint { table, ring }, policy: PolicyId(policy) };
        if let Some(policy) = policy.0.checked_add(1) {
            return key(table, ring, policy);
        }
        match (ring.checked_add(1), table.checked_add(1)) {
            (Some(ring), _) => key(table, ring, 0),
            (None, Some(table)) => key(table, 0, 0),
            (None, None) => self,
        }
    }
}

/// A state, and the generation of its policy that it was written under.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry<'a> {
    pub(crate) generation: u8,
    pub(crate) state: Cow<'a, State>,
}

/// All keys of a shard that are not as good as new.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    entries: BTreeMap<Key, (u8, State)>,
    log_bytes: u64,
    sum: Sum,
}

impl Table {
    pub(crate) fn len(&self) -> u64 {
        self.entries.len() as u64
    }

    /// Bytes of sliding logs and held buckets.
    pub(crate) fn log_bytes(&self) -> u64 {
        self.log_bytes
    }

    pub(crate) fn sum(&self) -> Sum {
        self.sum
    }

    pub(crate) fn get(&self, key: Key) -> Option<Entry<'_>> {
        let (generation, state) = self.entries.get(&key)?;
        Some(Entry { generation: *generation, state: Cow::Borrowed(state) })
    }

    /// A key's state and its generation, to be changed. A state that [moves out](Table::is_moved_out) has to be put back, or
    /// the key removed.
    pub(crate) fn take(&mut self, key: Key) -> Option<(u8, State)> {
        self.entries.get(&key).cloned()
    }

    /// Whether taking such a state leaves nothing behind.
    pub(crate) fn is_moved_out(state: &State) -> bool {
        matches!(state, State::SlidingLog(_) | State::HeldBucket(_))
    }

    /// Sets a key's state.
    pub(crate) fn put(&mut self, key: Key, generation: u8, state: State) {
        self.remove(key);
        self.log_bytes += log_bytes(&state);
        self.sum.add(hash(key, generation, &state));
        self.entries.insert(key, (generation, state));
    }

    /// Drops a key; the generation that it had.
    pub(crate) fn remove(&mut self, key: Key) -> Option<u8> {
        let (generation, state) = self.entries.remove(&key)?;
        self.log_bytes -= log_bytes(&state);
        self.sum.remove(hash(key, generation, &state));
        Some(generation)
    }

    /// The keys from one on, in order.
    pub(crate) fn from(&self, key: Key) -> impl Iterator<Item = (Key, Entry<'_>)> {
        self.entries
            .range(key..)
            .map(|(key, (generation, state))| (*key, Entry { generation: *generation, state: Cow::Borrowed(state) }))
    }
}

/// What a state counts against the budget for logs; of what it holds, not of how its memory happens to be laid out.
fn log_bytes(state: &State) -> u64 {
    match state {
        State::SlidingLog(log) => 128 + 4 * log.entries().count() as u64,
        State::HeldBucket(bucket) => 128 + 40 * bucket.holds.len() as u64,
        _ => 0,
    }
}

pub(crate) fn hash(key: Key, generation: u8, state: &State) -> u128 {
    let wide = |hash: Hash, value: i128| hash.word(value as u64).word((value >> 64) as u64);
    let hash = Hash::of(Part::Key).word(key.print.table).word(key.print.ring);
    let hash = hash.word(u64::from(key.policy.0) << 8 | u64::from(generation));
    match state {
        State::FixedWindow { window, used } => hash.word(0).word(*window as u64).word(*used),
        State::SlidingCounter { window, prev, curr } => hash.word(1).word(*window as u64).word(*prev).word(*curr),
        State::TokenBucket { full_at } => wide(hash.word(2), *full_at),
        State::LeakyBucket { next } => wide(hash.word(3), *next),
        State::SlidingLog(log) => {
            log.entries().fold(hash.word(4), |hash, (at, units)| hash.word(at.0 as u64).word(units))
        }
        State::HeldBucket(bucket) => bucket.holds.iter().fold(wide(hash.word(5), bucket.full_at), |hash, hold| {
            hash.word(hold.id.index.0).word(hold.id.place.into()).word(hold.cost.get()).word(hold.expires.0 as u64)
        }),
    }
    .end()
}
