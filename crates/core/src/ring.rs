//! The ring: the space of 64-bit hashes, cut into arcs, each owned by one shard.
//!
//! Invariant: the arcs of a [`Ring`] cover the whole space, and no hash falls into two.

use crate::ids::ShardId;

/// A part of the ring, both ends included.
///
/// ```
/// use quorate_core::Arc;
/// let arc = Arc { start: 10, end_inclusive: 19 };
/// assert!(arc.contains(19) && !arc.contains(20));
/// assert!(Arc::WHOLE.contains(u64::MAX));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Arc {
    /// Its first hash.
    pub start: u64,
    /// Its last hash; not below `start`: an arc does not wrap.
    pub end_inclusive: u64,
}

impl Arc {
    /// The whole ring.
    pub const WHOLE: Arc = Arc { start: 0, end_inclusive: u64::MAX };

    /// Whether a hash falls into it.
    pub fn contains(self, hash: u64) -> bool {
        (self.start..=self.end_inclusive).contains(&hash)
    }
}

/// Why a list of arcs is not a ring.
///
/// ```
/// use quorate_core::{Arc, Ring, RingError, ShardId};
/// let half = Arc { start: 0, end_inclusive: u64::MAX / 2 };
/// assert_eq!(Ring::new([(half, ShardId(1))]).unwrap_err(), RingError::Gap { from: u64::MAX / 2 + 1 });
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RingError {
    /// Nobody owns what begins there.
    #[error("no shard owns the ring from {from:#018x} on; the arcs of a topology must cover all of it")]
    Gap {
        /// The first hash without an owner.
        from: u64,
    },
    /// Two shards own the same hash.
    #[error("{first} and {second} both own {at:#018x}; the arcs of a topology must not overlap")]
    Overlap {
        /// The shard whose arc begins first.
        first: ShardId,
        /// The other.
        second: ShardId,
        /// The first hash that both own.
        at: u64,
    },
    /// An arc ends before it starts.
    #[error("the arc of {0} ends before it starts; an arc does not wrap around the ring")]
    Backwards(ShardId),
}

/// Who owns which part of the hash space.
///
/// ```
/// use quorate_core::{Ring, ShardId};
/// let ring = Ring::even(4);
/// assert_eq!(ring.shard_of(0), ShardId(1));
/// assert_eq!(ring.shard_of(u64::MAX), ShardId(4));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ring {
    /// By start, ascending.
    arcs: Vec<(Arc, ShardId)>,
}

impl Ring {
    /// A ring of these arcs, in any order.
    ///
    /// # Errors
    /// Where they do not cover every hash exactly once.
    pub fn new(arcs: impl IntoIterator<Item = (Arc, ShardId)>) -> Result<Ring, RingError> {
        let mut arcs: Vec<_> = arcs.into_iter().collect();
        arcs.sort_by_key(|(arc, shard)| (arc.start, *shard));
        let mut next = Some(0);
        let mut before = ShardId(0);
        for &(arc, shard) in &arcs {
            if arc.end_inclusive < arc.start {
                return Err(RingError::Backwards(shard));
            }
            match next {
                Some(from) if arc.start > from => return Err(RingError::Gap { from }),
                Some(from) if arc.start == from => {}
                _ => return Err(RingError::Overlap { first: before, second: shard, at: arc.start }),
            }
            next = arc.end_inclusive.checked_add(1);
            before = shard;
        }
        match next {
            None => Ok(Ring { arcs }),
            Some(from) => Err(RingError::Gap { from }),
        }
    }

    /// A ring cut into `shards` arcs of the same length, numbered from 1; at least one.
    pub fn even(shards: u32) -> Ring {
        let shards = u128::from(shards.max(1));
        let start = |i: u128| (i << 64) / shards;
        let arc = |i| Arc { start: start(i) as u64, end_inclusive: (start(i + 1) - 1) as u64 };
        Ring { arcs: (0..shards).map(|i| (arc(i), ShardId(i as u32 + 1))).collect() }
    }

    /// The shard that owns a ring hash.
    pub fn shard_of(&self, hash: u64) -> ShardId {
        let after = self.arcs.partition_point(|(arc, _)| arc.start <= hash);
        self.arcs[after - 1].1
    }

    /// Every arc with its owner, by start.
    pub fn arcs(&self) -> &[(Arc, ShardId)] {
        &self.arcs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_even_ring_is_a_ring() {
        for shards in [1, 2, 3, 12, 4096] {
            let ring = Ring::even(shards);
            assert_eq!(Ring::new(ring.arcs().iter().copied()), Ok(ring.clone()));
            assert_eq!(ring.arcs().len(), shards as usize);
            for &(arc, shard) in ring.arcs() {
                assert_eq!((ring.shard_of(arc.start), ring.shard_of(arc.end_inclusive)), (shard, shard));
            }
        }
        assert_eq!(Ring::even(0), Ring::even(1));
    }

    #[test]
    fn what_is_not_a_ring_is_refused() {
        let arc = |start, end_inclusive| Arc { start, end_inclusive };
        assert_eq!(Ring::new([]), Err(RingError::Gap { from: 0 }));
        assert_eq!(Ring::new([(arc(5, u64::MAX), ShardId(1))]), Err(RingError::Gap { from: 0 }));
        assert_eq!(Ring::new([(arc(5, 4), ShardId(1))]), Err(RingError::Backwards(ShardId(1))));
        let overlap = [(arc(0, 9), ShardId(1)), (arc(9, u64::MAX), ShardId(2))];
        assert_eq!(Ring::new(overlap), Err(RingError::Overlap { first: ShardId(1), second: ShardId(2), at: 9 }));
        let twice = [(Arc::WHOLE, ShardId(1)), (arc(7, 8), ShardId(2))];
        assert_eq!(Ring::new(twice), Err(RingError::Overlap { first: ShardId(1), second: ShardId(2), at: 7 }));
    }
}
