//! A denial from the state alone is what the log would have said, whatever charges are on their way.

#![allow(clippy::unwrap_used)]

mod history;

use history::{History, snapshot};
use quorate_core::*;

fn gives_back(command: &Command) -> bool {
    !matches!(
        command,
        Command::Check(_) | Command::Reserve { .. } | Command::Tick | Command::OpenSession | Command::CloseSession(_)
    )
}

fn limits(command: &Command) -> u64 {
    match command {
        Command::Check(check) | Command::Reserve { check, .. } => check.limits.len() as u64,
        _ => 1,
    }
}

/// How many checks of a random history could have been denied before they were logged.
fn run(seed: u64, keys: u64) -> (u64, u64) {
    let mut history = History::new(seed, keys);
    let mut shard = Shard::new(ShardId(1), Arc::WHOLE);
    let (mut sure, mut denied) = (0, 0);
    for _ in 0..150 {
        let (term, index, batch) = history.batch();
        let commands =
            || batch.groups.iter().flat_map(|group| group.commands.iter().map(move |(_, c)| (group.frame, c)));
        let coming = commands().map(|(_, command)| limits(command)).sum();
        let stamp = batch.stamp.max(shard.stamp());
        let early: Vec<Option<Decision>> = commands()
            .take_while(|(_, command)| !gives_back(command))
            .map(|(frame, command)| match command {
                Command::Check(check) => shard.sure_denial(stamp, frame, check, coming),
                _ => None,
            })
            .collect();
        let applied = shard.apply(term, index, &batch, true);
        let answers: Vec<&Answer> = applied.groups.iter().flatten().map(|answer| &answer.answer).collect();
        for (early, answer) in early.iter().zip(&answers) {
            if let Some(early) = early {
                assert!(!early.allowed && early.limits.iter().all(|limit| !limit.charged));
                let granted = matches!(answer, Answer::Decision(decision) if decision.allowed);
                assert!(!granted, "seed {seed}: {early:?} was granted at {index}: {answer:?}");
                sure += 1;
            }
        }
        denied +=
            answers.iter().filter(|answer| matches!(answer, Answer::Decision(one) if !one.allowed)).count() as u64;
        history.learn(&batch, &applied);
    }
    assert!(Shard::restore(&mut snapshot(&shard).as_slice()).is_ok());
    (sure, denied)
}

#[test]
fn what_the_state_is_sure_to_deny_the_log_denies() {
    let (mut sure, mut denied) = (0, 0);
    for seed in 0..400 {
        let (one, all) = run(seed, 1 + seed % 40);
        (sure, denied) = (sure + one, denied + all);
    }
    // Enough to mean something: many are sure, and those after a refund, or in a table that is full, are not.
    assert!(sure * 10 > denied && sure < denied, "{sure} of {denied}");
}

fn one_second() -> (Shard, Check) {
    let mut shard = Shard::new(ShardId(1), Arc::WHOLE);
    let mut policy = Policy::new("p", Algorithm::FixedWindow { limit: 1, window: Span(1_000_000) });
    policy.id = PolicyId(1);
    let limit = Limit { policy: PolicyId(1), key: Fingerprint { table: 7, ring: 7 }, cost: Cost::ONE };
    let check = Check { limits: [limit].into_iter().collect(), ..Check::default() };
    let set = PolicySet { version: PolicyVersion(1), policies: vec![policy] };
    let commands = vec![(0, Command::Install(set)), (1, Command::OpenSession)];
    apply(&mut shard, 1, None, commands);
    (shard, check)
}

fn apply(shard: &mut Shard, index: u64, frame: Option<FrameId>, commands: Vec<(u32, Command)>) {
    let batch = Batch { stamp: Stamp(5_000_000), groups: vec![Group { frame, commands }] };
    shard.apply(Term(1), Index(index), &batch, false);
}

#[test]
fn a_denial_is_sure_until_time_brings_back_what_was_charged() {
    let (mut shard, check) = one_second();
    let at = |stamp, shard: &Shard| shard.sure_denial(Stamp(stamp), None, &check, 0);
    assert_eq!(at(5_000_000, &shard), None);
    apply(&mut shard, 2, None, vec![(0, Command::Check(check.clone()))]);
    let denial = at(5_400_000, &shard).unwrap();
    assert_eq!((denial.allowed, denial.retry_after), (false, Some(Span(600_000))));
    assert!(at(5_999_999, &shard).is_some());
    assert_eq!(at(6_000_000, &shard), None);
    // A time before the shard's is the shard's.
    assert_eq!(at(0, &shard).unwrap().retry_after, Some(Span(1_000_000)));
    let peek = Check { peek: true, ..check.clone() };
    assert_eq!(shard.sure_denial(Stamp(5_400_000), None, &peek, 0), None);
}

#[test]
fn a_frame_that_the_session_knows_or_that_may_not_be_sent_is_left_to_the_log() {
    let (mut shard, check) = one_second();
    let frame = |sequence, lowest| FrameId {
        session: SessionId(1),
        sequence: Sequence(sequence),
        lowest_unanswered: Sequence(lowest),
    };
    apply(&mut shard, 2, Some(frame(1, 1)), vec![(0, Command::Check(check.clone()))]);
    let sure = |frame, stamp| shard.sure_denial(Stamp(stamp), Some(frame), &check, 0).is_some();
    assert!(sure(frame(2, 1), 5_000_000));
    assert!(!sure(frame(1, 1), 5_000_000), "it may have been granted");
    assert!(!sure(frame(2, 3), 5_000_000), "it says itself that it was answered");
    assert!(!sure(frame(1 + caps::SESSION_SPAN, 1), 5_000_000), "too far ahead");
    assert!(!sure(FrameId { session: SessionId(9), ..frame(2, 1) }, 5_000_000), "no such session");
}

#[test]
fn a_session_that_has_not_been_logged_for_half_of_its_life_is_logged() {
    let (shard, mut check) = one_second();
    // Never granted, whatever time it is.
    check.limits[0].cost = Cost::new(2).unwrap();
    let frame = FrameId { session: SessionId(1), sequence: Sequence(1), lowest_unanswered: Sequence(1) };
    let half = 5_000_000 + caps::SESSION_IDLE.0 / 2;
    assert!(shard.sure_denial(Stamp(half - 1), Some(frame), &check, 0).is_some());
    assert!(shard.sure_denial(Stamp(half), Some(frame), &check, 0).is_none());
}
