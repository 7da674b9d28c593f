//! Resets that a refund could still tell.
//!
//! A charge made before its key was reset is gone, and refunding it must do nothing, also when the key was charged again
//! since. So a reset is remembered until the state that it threw away would have been as good as new: from then on, time has
//! given back all that a refund could.

use std::collections::BTreeMap;

use crate::digest::{Hash, Part, Sum};
use crate::ids::Position;
use crate::table::Key;
use crate::units::Stamp;

/// When a key was reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reset {
    pub(crate) at: Position,
    /// Until then, a refund of what was charged before could change something.
    pub(crate) until: Stamp,
}

/// The remembered resets of a shard.
#[derive(Clone, Debug, Default)]
pub(crate) struct Resets {
    all: BTreeMap<Key, Reset>,
    sum: Sum,
}

impl Resets {
    pub(crate) fn len(&self) -> u64 {
        self.all.len() as u64
    }

    pub(crate) fn sum(&self) -> Sum {
        self.sum
    }

    /// Whether a charge of that receipt was made before the key's last reset.
    pub(crate) fn is_gone(&self, key: Key, receipt: Position) -> bool {
        !self.all.is_empty() && self.all.get(&key).is_some_and(|reset| receipt < reset.at)
    }

    /// Remembers a reset; a later one of the same key takes its place, for as long as either could tell.
    pub(crate) fn put(&mut self, key: Key, reset: Reset) {
        let until = self.remove(key).map_or(reset.until, |before| before.until.max(reset.until));
        let reset = Reset { until, ..reset };
        self.sum.add(hash(key, reset));
        self.all.insert(key, reset);
    }

    pub(crate) fn remove(&mut self, key: Key) -> Option<Reset> {
        let reset = self.all.remove(&key)?;
        self.sum.remove(hash(key, reset));
        Some(reset)
    }

    /// The resets from a key on, in order.
    pub(crate) fn from(&self, key: Key) -> impl Iterator<Item = (Key, Reset)> {
        self.all.range(key..).map(|(key, reset)| (*key, *reset))
    }
}

fn hash(key: Key, reset: Reset) -> u128 {
    let words = [
        key.print.table,
        key.print.ring,
        key.policy.0.into(),
        reset.at.index.0,
        reset.at.place.into(),
        reset.until.0 as u64,
    ];
    words.into_iter().fold(Hash::of(Part::Reset), Hash::word).end()
}
