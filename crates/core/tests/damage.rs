//! Damaged and hostile bytes: found, never loaded; nothing panics.

#![allow(clippy::unwrap_used)]

mod history;

use history::{History, snapshot};
use proptest::prelude::*;
use quorate_core::*;

fn shard(seed: u64, batches: u64) -> Shard {
    let mut history = History::new(seed, 12);
    let mut shard = Shard::new(ShardId(1), Arc::WHOLE);
    for _ in 0..batches {
        let (term, index, batch) = history.batch();
        let applied = shard.apply(term, index, &batch, true);
        history.learn(&batch, &applied);
    }
    shard
}

fn restore(bytes: &[u8]) -> Result<Shard, SnapshotError> {
    let mut from = bytes;
    Shard::restore(&mut from)
}

#[test]
fn every_flipped_bit_of_a_snapshot_is_found() {
    let mut bytes = snapshot(&shard(7, 40));
    assert!(restore(&bytes).is_ok());
    for at in 0..bytes.len() {
        for bit in 0..8 {
            bytes[at] ^= 1 << bit;
            assert!(restore(&bytes).is_err(), "bit {bit} of byte {at}");
            bytes[at] ^= 1 << bit;
        }
    }
}

#[test]
fn every_truncation_of_a_snapshot_is_found() {
    let bytes = snapshot(&shard(8, 40));
    for end in 0..bytes.len() {
        assert!(restore(&bytes[..end]).is_err(), "cut at {end} of {}", bytes.len());
    }
}

#[test]
fn a_snapshot_is_read_to_its_end_and_not_beyond() {
    let shard = shard(9, 10);
    let mut bytes = snapshot(&shard);
    bytes.extend_from_slice(b"more");
    let mut from = bytes.as_slice();
    assert_eq!(Shard::restore(&mut from).unwrap().digest(), shard.digest());
    assert_eq!(from, b"more");
}

#[test]
fn blocks_that_change_places_are_found() {
    let bytes = snapshot(&shard(10, 40));
    let mut blocks = vec![];
    let mut rest = &bytes[8..];
    while let Some((length, _)) = rest.split_first_chunk::<4>() {
        let (block, after) = rest.split_at(16 + u32::from_le_bytes(*length) as usize);
        blocks.push(block);
        rest = after;
    }
    assert!(blocks.len() > 3);
    for at in 1..blocks.len() {
        let mut other = blocks.clone();
        other.swap(at - 1, at);
        assert!(restore(&[&bytes[..8], &other.concat()].concat()).is_err());
        let mut other = blocks.clone();
        other.remove(at);
        assert!(restore(&[&bytes[..8], &other.concat()].concat()).is_err());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn hostile_batches_are_refused_or_are_batches(bytes: Vec<u8>) {
        if let Ok(batch) = Batch::decode(&bytes) {
            let _ = Shard::new(ShardId(1), Arc::WHOLE).apply(Term(1), Index(1), &batch, true);
        }
    }

    #[test]
    fn damaged_batches_are_refused_or_are_batches(seed: u64, at: prop::sample::Index, byte: u8, cut: prop::sample::Index) {
        let mut history = History::new(seed, 5);
        let mut shard = Shard::new(ShardId(1), Arc::WHOLE);
        for _ in 0..3 {
            let (term, index, batch) = history.batch();
            let mut bytes = vec![];
            batch.encode(&mut bytes);
            let at = at.index(bytes.len());
            bytes[at] ^= byte;
            if let Ok(damaged) = Batch::decode(&bytes) {
                let _ = shard.apply(term, index, &damaged, true);
            }
            let _ = Batch::decode(&bytes[..cut.index(bytes.len())]);
        }
        prop_assert!(restore(&snapshot(&shard)).is_ok());
    }

    #[test]
    fn hostile_snapshots_are_refused(bytes: Vec<u8>) {
        prop_assert!(restore(&[b"QSNP\x01\0\0\0".as_slice(), &bytes].concat()).is_err());
    }
}
