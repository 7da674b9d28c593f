//! What a full table does to those that are in it.

#![allow(clippy::unwrap_used)]

use quorate_core::*;

fn apply(shard: &mut Shard, index: u64, stamp: i64, command: Command) -> Answer {
    let commands = vec![(0, command)];
    let batch = Batch { stamp: Stamp(stamp), groups: vec![Group { frame: None, commands }] };
    shard.apply(Term(1), Index(index), &batch, true).groups.remove(0).remove(0).answer
}

fn decision(answer: Answer) -> Decision {
    let Answer::Decision(decision) = answer else { panic!("no decision: {answer:?}") };
    decision
}

fn shard(policy: Policy, bounds: Bounds) -> Shard {
    let mut shard = Shard::new(ShardId(1), Arc::WHOLE);
    let set = PolicySet { version: PolicyVersion(1), policies: vec![Policy { id: PolicyId(1), ..policy }] };
    assert_eq!(apply(&mut shard, 1, 1, Command::Bounds(bounds)), Answer::Done);
    assert_eq!(apply(&mut shard, 2, 1, Command::Install(set)), Answer::Done);
    shard
}

fn check(key: u64, peek: bool) -> Command {
    let cost = Cost::new(1).unwrap();
    let limit = Limit { policy: PolicyId(1), key: Fingerprint { table: key, ring: 0 }, cost };
    Command::Check(Check { limits: [limit].into_iter().collect(), peek, max_delay: None })
}

fn log(mode: Mode, on_full: OnFull) -> Policy {
    let algorithm = Algorithm::SlidingLog { limit: 5, window: Span(1_000_000) };
    Policy { mode, on_full, ..Policy::new("log", algorithm) }
}

/// Restoring recomputes the digest: a state that was lost would be found.
fn is_sound(shard: &Shard) {
    let mut bytes = Vec::new();
    shard.capture().write(&mut bytes).unwrap();
    assert_eq!(Shard::restore(&mut bytes.as_slice()).unwrap().digest(), shard.digest());
}

#[test]
fn a_shadow_log_without_room_is_left_as_it_was() {
    let mut shard = shard(log(Mode::Shadow, OnFull::Refuse), Bounds { log_bytes: 200, ..Bounds::default() });
    assert!(decision(apply(&mut shard, 3, 10, check(7, false))).limits[0].charged);
    // The budget is spent: the next charges are left out, and what was charged stays.
    for index in 4..8 {
        let left_out = decision(apply(&mut shard, index, 20, check(7, false)));
        assert!(left_out.degraded && !left_out.limits[0].charged, "{left_out:?}");
        assert_eq!(decision(apply(&mut shard, index, 20, check(7, true))).limits[0].remaining, 4);
        is_sound(&shard);
    }
}

#[test]
fn a_log_without_room_is_refused_uncharged() {
    let mut shard = shard(log(Mode::Enforce, OnFull::Refuse), Bounds { log_bytes: 200, ..Bounds::default() });
    assert!(decision(apply(&mut shard, 3, 10, check(7, false))).allowed);
    assert_eq!(apply(&mut shard, 4, 20, check(7, false)), Answer::Refused(Refusal::TableFull));
    assert_eq!(decision(apply(&mut shard, 5, 20, check(7, true))).limits[0].remaining, 4);
    // What expires makes room.
    assert!(decision(apply(&mut shard, 6, 2_000_000, check(8, false))).allowed);
    is_sound(&shard);
}

#[test]
fn a_full_table_throws_out_one_for_each_that_comes_and_says_so() {
    let bucket = Algorithm::FixedWindow { limit: 9, window: Span(1_000_000_000) };
    let policy = Policy { on_full: OnFull::Evict, ..Policy::new("window", bucket) };
    let mut shard = shard(policy, Bounds { keys: 10, ..Bounds::default() });
    for key in 0..10 {
        assert!(!decision(apply(&mut shard, 3 + key, 10, check(key << 59, false))).degraded);
    }
    for key in 10..25 {
        let decision = decision(apply(&mut shard, 3 + key, 10, check(key << 59, false)));
        assert!(decision.allowed && decision.degraded);
        assert_eq!((shard.usage().keys, shard.usage().evicted), (10, key - 9));
    }
    is_sound(&shard);
}
