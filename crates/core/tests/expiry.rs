//! What is as good as new is gone within a minute of logical time, if the leader of an idle shard ticks.

use quorate_core::*;

const KEYS: u64 = 200_000;

fn apply(shard: &mut Shard, index: &mut u64, stamp: i64, commands: Vec<Command>) {
    *index += 1;
    let commands = (0..).zip(commands).collect();
    let batch = Batch { stamp: Stamp(stamp), groups: vec![Group { frame: None, commands }] };
    shard.apply(Term(1), Index(*index), &batch, false);
}

#[test]
fn a_spike_is_gone_within_a_minute_of_ticks() {
    let mut policy = Policy::new("p", Algorithm::FixedWindow { limit: 5, window: Span(1_000_000) });
    policy.id = PolicyId(1);
    let (mut shard, mut index) = (Shard::new(ShardId(1), Arc::WHOLE), 0);
    let set = PolicySet { version: PolicyVersion(1), policies: vec![policy] };
    apply(&mut shard, &mut index, 5, vec![Command::Install(set)]);
    assert!(!shard.awaits_expiry());
    for from in (0..KEYS).step_by(1000) {
        let check = |key: u64| {
            let key = Fingerprint { table: key.wrapping_mul(0x9e37_79b9_7f4a_7c15), ring: key };
            let limits = [Limit { policy: PolicyId(1), key, cost: Cost::ONE }].into_iter().collect();
            Command::Check(Check { limits, ..Check::default() })
        };
        apply(&mut shard, &mut index, 10, (from..from + 1000).map(check).collect());
    }
    assert_eq!((shard.keys(), shard.expires_at()), (KEYS, Some(Stamp(1_000_000))));
    let mut stamp = 1_000_000;
    while shard.awaits_expiry() {
        apply(&mut shard, &mut index, stamp, vec![Command::Tick]);
        stamp += 100_000;
        assert!(stamp < 61_000_000, "{} keys are left after a minute", shard.keys());
    }
    assert_eq!(shard.keys(), 0);
}
