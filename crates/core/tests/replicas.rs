//! Replicas agree: one that replayed, one that was restored from a snapshot half way, one that wants no answers, and one whose
//! log went through its encoding, come to the same answers, digests and snapshots.

#![allow(clippy::unwrap_used)]

mod history;

use history::{History, snapshot};
use proptest::prelude::*;
use quorate_core::*;

fn run(seed: u64, batches: u64, keys: u64) {
    let mut history = History::new(seed, keys);
    let new = || Shard::new(ShardId(1), Arc::WHOLE);
    let (mut leader, mut follower, mut restored) = (new(), new(), new());
    let half = history.draw.below(batches);
    let mut images = vec![];
    for at in 0..batches {
        if at == half {
            restored = Shard::restore(&mut snapshot(&leader).as_slice()).expect("a snapshot is read back");
            assert_eq!(snapshot(&restored), snapshot(&leader));
            assert_eq!(restored.usage(), leader.usage());
        }
        let (term, index, batch) = history.batch();
        let mut bytes = vec![];
        batch.encode(&mut bytes);
        let decoded = Batch::decode(&bytes).expect("a batch is read back");
        assert_eq!(decoded, batch);

        let applied = leader.apply(term, index, &batch, true);
        assert_eq!(follower.apply(term, index, &decoded, false), Applied { groups: vec![], ..applied });
        if at >= half {
            assert_eq!(restored.apply(term, index, &decoded, true), applied, "batch {at} of seed {seed}");
        }
        assert_eq!(leader.digest(), follower.digest(), "batch {at} of seed {seed}");
        if at % 37 == 0 {
            // An image is what it was, whatever happens to the shard afterwards.
            images.push((leader.capture(), snapshot(&leader)));
            if images.len() > 2 {
                let (image, bytes) = images.remove(0);
                let mut later = vec![];
                image.write(&mut later).unwrap();
                assert!(later == bytes, "an image changed before batch {at} of seed {seed}");
            }
        }
        history.learn(&batch, &applied);
    }
    // The digest from scratch is the incremental one, or the snapshot would not be read.
    assert_eq!(Shard::restore(&mut snapshot(&follower).as_slice()).unwrap().digest(), leader.digest());
    assert!(snapshot(&restored) == snapshot(&leader), "snapshots differ at the end of seed {seed}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn replicas_agree(seed: u64, keys in 1_u64..40) {
        run(seed, 150, keys);
    }

    #[test]
    fn replicas_agree_with_many_keys(seed: u64) {
        run(seed, 400, 3000);
    }
}

/// Histories under which replicas once differed, by what was wrong.
#[test]
fn replicas_agree_where_they_once_did_not() {
    // A log or held bucket that came to fit its slot was not put back, unless a capture shared it.
    run(1_035_782_034_606_353_087, 150, 14);
    // A policy's id came back in the middle of a sweep's round, and keys before the cursor were not brought up.
    for seed in [12_966_521_274_084_743_852, 9_156_397_075_255_932_934, 7_226_422_760_497_805_166] {
        run(seed, 400, 3000);
    }
}
