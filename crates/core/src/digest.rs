//! The digest of a shard's state: equal on all replicas at equal index, or one of them is wrong.
//!
//! It is the wrapping sum of a hash of each part of the state (each key, each remembered reset, each session, each remembered
//! frame, and one of all the rest), so that a change costs two hashes, whatever the size of the state. It guards against
//! faults, not against forgery: keys are hashed under secrets before they come here. The function is permanent, as replicas
//! of different versions compare digests.

use std::fmt;

/// The digest of a whole shard.
///
/// ```
/// use quorate_core::{Arc, Shard, ShardId};
/// let (one, other) = (Shard::new(ShardId(1), Arc::WHOLE), Shard::new(ShardId(1), Arc::WHOLE));
/// assert_eq!(one.digest(), other.digest());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Digest(pub u128);

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// What is hashed: parts of different kinds never hash alike by having the same words.
#[derive(Clone, Copy)]
pub(crate) enum Part {
    Key = 1,
    Reset = 2,
    Session = 3,
    Frame = 4,
    Head = 5,
    LogEntry = 6,
    Holds = 7,
}

const ODD: [u64; 4] = [0x9e37_79b9_7f4a_7c15, 0xd6e8_feb8_6659_fd93, 0xa076_1d64_78bd_642f, 0xe703_7ed1_a0b4_28db];

/// The hash of one part: two lanes of folded multiplications.
#[derive(Clone, Copy)]
pub(crate) struct Hash {
    a: u64,
    b: u64,
}

fn fold(x: u64, y: u64) -> u64 {
    let wide = u128::from(x) * u128::from(y);
    (wide as u64) ^ (wide >> 64) as u64
}

impl Hash {
    pub(crate) fn of(part: Part) -> Hash {
        Hash { a: ODD[2] ^ part as u64, b: ODD[3].wrapping_mul(part as u64) }
    }

    pub(crate) fn word(self, word: u64) -> Hash {
        // Each lane is a bijection of itself but for the fold, and takes the word in another way.
        Hash { a: fold(self.a ^ word, ODD[0]).wrapping_add(ODD[1]), b: fold(self.b.wrapping_add(word), ODD[1]) ^ word }
    }

    pub(crate) fn bytes(self, bytes: &[u8]) -> Hash {
        let (words, tail) = bytes.as_chunks::<8>();
        let hash = words.iter().fold(self, |hash, word| hash.word(u64::from_le_bytes(*word)));
        let mut last = [0; 8];
        last[..tail.len()].copy_from_slice(tail);
        hash.word(u64::from_le_bytes(last)).word(bytes.len() as u64)
    }

    pub(crate) fn end(self) -> u128 {
        let (a, b) = (fold(self.a ^ self.b.rotate_left(23), ODD[2]), fold(self.b ^ self.a.rotate_left(41), ODD[3]));
        let (high, low) = (fold(a ^ ODD[1], b | 1), fold(b ^ ODD[0], a | 1));
        u128::from(a ^ high) << 64 | u128::from(b ^ low)
    }
}

/// A sum of hashes that follows the state as it changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sum(pub(crate) u128);

impl Sum {
    pub(crate) fn add(&mut self, hash: u128) {
        self.0 = self.0.wrapping_add(hash);
    }

    pub(crate) fn remove(&mut self, hash: u128) {
        self.0 = self.0.wrapping_sub(hash);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn hash(words: &[u64]) -> u128 {
        words.iter().fold(Hash::of(Part::Key), |hash, &word| hash.word(word)).end()
    }

    #[test]
    fn every_bit_of_every_word_reaches_both_halves() {
        let base = [3, 0, u64::MAX, 1 << 40];
        let before = hash(&base);
        for word in 0..base.len() {
            for bit in 0..64 {
                let mut other = base;
                other[word] ^= 1 << bit;
                let changed = hash(&other) ^ before;
                let (high, low) = ((changed >> 64).count_ones(), (changed as u64).count_ones());
                assert!(high > 8 && low > 8, "word {word} bit {bit}: {high} {low}");
            }
        }
    }

    #[test]
    fn small_words_do_not_collide_in_either_half() {
        let (mut high, mut low) = (HashSet::new(), HashSet::new());
        for a in 0..200 {
            for b in 0..200 {
                let hash = hash(&[a, b]);
                assert!(high.insert((hash >> 64) as u64) && low.insert(hash as u64));
            }
        }
    }

    #[test]
    fn lengths_and_kinds_tell() {
        let bytes = |bytes: &[u8]| Hash::of(Part::Frame).bytes(bytes).end();
        assert_ne!(bytes(&[0; 7]), bytes(&[0; 8]));
        assert_ne!(bytes(&[0; 8]), bytes(&[0; 16]));
        assert_ne!(Hash::of(Part::Key).word(1).end(), Hash::of(Part::Reset).word(1).end());
    }
}
