//! The key table of a shard: (fingerprint, policy) → the state of that key under that policy.
//!
//! Everything goes in the order of keys, which is that of their table hashes; how they are laid out in memory never shows.
//! `pages` is the ordered map, `slot` what stands in it. A key costs some 48 bytes; logs and held units come on top, counted.
//!
//! Invariants: `sum` and `log_bytes` are those of all slots; a state that does not fit its slot is in `bulk`, and nothing else
//! is.

pub(crate) mod pages;
mod slot;

use std::borrow::Cow;
use std::sync::Arc;

use self::pages::{Pages, Slot};
use self::slot::Packed;
use crate::command::Charge;
use crate::digest::Sum;
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

/// What a taken state came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Had {
    /// The generation of its policy that it was written under.
    pub(crate) generation: u8,
    /// It did not fit its slot, and may have left nothing behind: so says its kind, whether or not it is shared with a capture,
    /// or replicas would differ.
    pub(crate) moved_out: bool,
}

/// A state that does not fit a slot.
#[derive(Clone, Debug)]
struct Bulk {
    key: Key,
    /// None where nothing stands.
    state: Option<Arc<State>>,
}

impl Slot for Bulk {
    fn key(&self) -> Key {
        self.key
    }

    fn unused() -> Self {
        Bulk { key: Key::default(), state: None }
    }
}

/// All keys of a shard that are not as good as new. A clone costs next to nothing, and keeps what it is a clone of.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    slots: Pages<Packed>,
    /// The states that do not fit their slots.
    bulk: Pages<Bulk>,
    log_bytes: u64,
    sum: Sum,
}

impl Table {
    pub(crate) fn len(&self) -> u64 {
        self.slots.len()
    }

    /// Bytes of sliding logs and held buckets.
    pub(crate) fn log_bytes(&self) -> u64 {
        self.log_bytes
    }

    pub(crate) fn sum(&self) -> Sum {
        self.sum
    }

    pub(crate) fn has(&self, key: Key) -> bool {
        self.slots.get(key).is_some()
    }

    pub(crate) fn get(&self, key: Key) -> Option<Entry<'_>> {
        self.slots.get(key).map(|slot| self.entry(slot))
    }

    fn entry(&self, slot: &Packed) -> Entry<'_> {
        let state = match slot.state() {
            Some(state) => Cow::Owned(state),
            None => {
                let bulk = self.bulk.get(slot.key()).and_then(|bulk| bulk.state.as_deref());
                let state = bulk.expect("a state that does not fit its slot is kept beside");
                debug_assert!(is_bulk(state), "a state that was taken was not put back");
                Cow::Borrowed(state)
            }
        };
        Entry { generation: slot.generation(), state }
    }

    /// A key's state and what it came from, to be changed. One that [moved out](Had::moved_out) has to be put back, whatever
    /// became of it, or the key removed.
    pub(crate) fn take(&mut self, key: Key) -> Option<(Had, State)> {
        let slot = self.slots.look(key)?;
        let generation = slot.generation();
        if let Some(state) = slot.state() {
            return Some((Had { generation, moved_out: false }, state));
        }
        let bulk = self.bulk.get_mut(key).and_then(|bulk| bulk.state.as_mut());
        let bulk = bulk.expect("a state that does not fit its slot is kept beside");
        let state = match Arc::get_mut(bulk) {
            Some(state) => std::mem::replace(state, MOVED_OUT),
            None => (**bulk).clone(),
        };
        Some((Had { generation, moved_out: true }, state))
    }

    /// Sets a key's state.
    pub(crate) fn put(&mut self, key: Key, generation: u8, state: State) {
        let slot = Packed::new(key, generation, &state);
        self.sum.add(slot.hash());
        self.log_bytes += slot.log_bytes();
        let before = self.slots.put(slot);
        if let Some(before) = &before {
            self.sum.remove(before.hash());
            self.log_bytes -= before.log_bytes();
        }
        if is_bulk(&state) {
            self.put_bulk(key, state);
        } else if before.is_some_and(|before| before.log_bytes() > 0) {
            self.bulk.remove(key);
        }
    }

    fn put_bulk(&mut self, key: Key, state: State) {
        let Some(bulk) = self.bulk.get_mut(key) else {
            self.bulk.put(Bulk { key, state: Some(Arc::new(state)) });
            return;
        };
        match bulk.state.as_mut().and_then(Arc::get_mut) {
            Some(there) => *there = state,
            None => bulk.state = Some(Arc::new(state)),
        }
    }

    /// Drops a key; the generation that it had.
    pub(crate) fn remove(&mut self, key: Key) -> Option<u8> {
        let slot = self.slots.remove(key)?;
        self.sum.remove(slot.hash());
        if slot.log_bytes() > 0 {
            self.log_bytes -= slot.log_bytes();
            self.bulk.remove(key);
        }
        Some(slot.generation())
    }

    /// The keys from one on, in order.
    pub(crate) fn from(&self, key: Key) -> impl Iterator<Item = (Key, Entry<'_>)> {
        self.slots.from(key).map(|slot| (slot.key(), self.entry(slot)))
    }

    /// Hashes a key anew, as it is.
    pub(crate) fn hash(key: Key, entry: &Entry<'_>) -> u128 {
        Packed::new(key, entry.generation, &entry.state).hash()
    }
}

/// Whether a state does not fit its slot.
fn is_bulk(state: &State) -> bool {
    matches!(state, State::SlidingLog(_) | State::HeldBucket(_))
}

/// What is left of a state that was taken.
const MOVED_OUT: State = State::TokenBucket { full_at: 0 };

/// What a state counts against the budget for logs: never 0 for one that does not fit its slot. Of what it holds, not of how
/// its memory happens to be laid out, or replicas would differ.
fn log_bytes(state: &State) -> u64 {
    match state {
        State::SlidingLog(log) => 256 + 2 * log.coded_len() as u64,
        State::HeldBucket(bucket) => 256 + 64 * bucket.holds.len() as u64,
        _ => 0,
    }
}
