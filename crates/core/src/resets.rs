//! Resets that a refund could still tell.
//!
//! A charge made before its key was reset is gone, and refunding it must do nothing, also when the key was charged again
//! since. So a reset is remembered until the state that it threw away would have been as good as new: from then on, time has
//! given back all that a refund could.

use crate::digest::{Hash, Part, Sum};
use crate::ids::Position;
use crate::table::Key;
use crate::table::pages::{Pages, Slot};
use crate::units::Stamp;

/// When a key was reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reset {
    pub(crate) at: Position,
    /// Until then, a refund of what was charged before could change something.
    pub(crate) until: Stamp,
}

/// A reset, and the key it is of.
#[derive(Clone, Copy, Debug)]
struct Remembered {
    key: Key,
    reset: Reset,
}

impl Slot for Remembered {
    fn key(&self) -> Key {
        self.key
    }

    fn unused() -> Self {
        Remembered { key: Key::default(), reset: Reset { at: Position::default(), until: Stamp(0) } }
    }
}

/// The remembered resets of a shard.
#[derive(Clone, Debug, Default)]
pub(crate) struct Resets {
    all: Pages<Remembered>,
    sum: Sum,
}

impl Resets {
    pub(crate) fn len(&self) -> u64 {
        self.all.len()
    }

    pub(crate) fn sum(&self) -> Sum {
        self.sum
    }

    /// Whether a charge of that receipt was made before the key's last reset.
    pub(crate) fn is_gone(&self, key: Key, receipt: Position) -> bool {
        self.len() > 0 && self.all.get(key).is_some_and(|of| receipt < of.reset.at)
    }

    /// Remembers a reset; a later one of the same key takes its place, for as long as either could tell.
    pub(crate) fn put(&mut self, key: Key, reset: Reset) {
        let until = self.remove(key).map_or(reset.until, |before| before.until.max(reset.until));
        let of = Remembered { key, reset: Reset { until, ..reset } };
        self.sum.add(hash(&of));
        self.all.put(of);
    }

    pub(crate) fn remove(&mut self, key: Key) -> Option<Reset> {
        let of = self.all.remove(key)?;
        self.sum.remove(hash(&of));
        Some(of.reset)
    }

    /// The resets from a key on, in order.
    pub(crate) fn from(&self, key: Key) -> impl Iterator<Item = (Key, Reset)> {
        self.all.from(key).map(|of| (of.key, of.reset))
    }
}

fn hash(of: &Remembered) -> u128 {
    let Remembered { key: Key { print, policy }, reset: Reset { at, until } } = *of;
    let words = [print.table, print.ring, policy.0.into(), at.index.0, at.place.into(), until.0 as u64];
    words.into_iter().fold(Hash::of(Part::Reset), Hash::word).end()
}
