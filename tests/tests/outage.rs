//! A service behind `RateLimitLayer` while its cluster is killed, hangs, loses its majority, and is slow: what its policies say
//! about such a day is what its callers get, no more and no less, and the cluster decides again when it is back.
//!
//! `just outage` times the same.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeMap;
use std::time::Duration;

use http::StatusCode;
use quorate_client::layer::Decided;
use quorate_client::{DecidedBy, Receipt};
use quorate_law::{Limiter, Rule};
use quorate_tests::health::agree;
use quorate_tests::ledger::Ledger;
use quorate_tests::outage::{Away, Counts, Form, POLICIES, Run};
use quorate_tests::service::{Answer, Pace, Said, key_name};

/// The deadline is longer than the client's own, for nodes in a debug build on a machine that does ten other things.
const FORM: Form = Form { pace: Pace { rate: 1_000, keys: 24 }, deadline: Duration::from_millis(250), times: 10 };

/// A tenth of a capacity of 25 and of 5 each second, rounded down.
const SHARE: Rule = Rule::TokenBucket { capacity: 2, units: 5, period: 10_000_000 };

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_policy_says_of_a_bad_day_is_what_callers_get() {
    let mut run = Run::of(FORM).await;
    assert!(!run.answers.is_empty());
    run.answers.iter().for_each(is_what_its_policy_says);
    let passed = run.answers.iter().filter(|answer| answer.status == StatusCode::OK).count();
    assert_eq!(run.served, passed as u64, "the service sees what is let through, and nothing else");
    assert_eq!(Counts::counted(), Counts::of(&run.answers), "what is counted is what was answered");
    for (phase, away) in Away::ALL.iter().enumerate().map(|(nth, away)| (2 * nth + 1, away)) {
        assert_eq!(run.phases[phase].away, Some(*away));
        for (policy, name) in POLICIES.iter().enumerate() {
            let without = run.of_phase(phase).any(|answer| answer.policy == policy && answer.is_without_cluster());
            let again = run.of_phase(phase + 1).any(|answer| answer.policy == policy && answer.is_of_cluster());
            assert!(without && again, "{name} while {}", away.name());
        }
    }
    let grants = cluster_is_never_over(&run);
    share_is_kept_exactly(&run);
    fail_closed_is_never_over_by_the_clock_on_the_wall(&run);

    // What was granted by nodes that were killed and paused is in every node's log.
    agree(&run.admin).await;
    for node in 0..run.cluster.len() {
        assert!(run.cluster.stop(node), "a node ends in order");
        grants.is_in_log_of(&run.cluster.data_directory(node));
    }
}

/// One answer, by itself.
fn is_what_its_policy_says(answer: &Answer) {
    let policy = POLICIES[answer.policy];
    let decided = match &answer.said {
        Said::Decided(decided) => decided,
        Said::Nothing(kind) => {
            assert_eq!(policy, "fail_closed", "no other goes without a decision: {answer:?}");
            assert!(kind.is_unavailable(), "{answer:?}");
            assert!(answer.status == StatusCode::SERVICE_UNAVAILABLE && answer.tells_wait, "{answer:?}");
            return;
        }
        Said::Unmarked => panic!("it does not say who decided: {answer:?}"),
    };
    let by = match policy {
        "fail_open" => DecidedBy::FailOpen,
        "local" => DecidedBy::Local,
        _ => DecidedBy::Cluster,
    };
    let is_without = decided.decided_by != DecidedBy::Cluster;
    assert!(decided.decided_by == DecidedBy::Cluster || decided.decided_by == by, "{answer:?}");
    assert_eq!(decided.degraded, is_without, "{answer:?}");
    assert_eq!(decided.cause().is_some_and(|cause| cause.kind().is_unavailable()), is_without, "{answer:?}");
    assert!(!(is_without && decided.remembered), "only the cluster's denials are remembered: {answer:?}");
    let status = if decided.allowed { StatusCode::OK } else { StatusCode::TOO_MANY_REQUESTS };
    assert_eq!(answer.status, status, "{answer:?}");
    assert_eq!(answer.tells_wait, !decided.allowed, "{answer:?}");
    assert_eq!(answer.tells_limit, decided.decided_by != DecidedBy::FailOpen, "{answer:?}");
    match decided.decided_by {
        DecidedBy::FailOpen => {
            assert!(decided.allowed && decided.receipt == Receipt::default(), "{answer:?}");
            assert_eq!((decided.limit, decided.remaining), (u64::MAX, u64::MAX), "{answer:?}");
        }
        DecidedBy::Local => assert_eq!((decided.receipt.shard.0, decided.limit), (u32::MAX, 2), "{answer:?}"),
        _ => assert_eq!(decided.limit, if policy == "local" { 25 } else { 20 }, "{answer:?}"),
    }
}

/// What was decided about each key of each policy, in the order of the log it was decided by.
fn by_key(run: &Run, of: impl Fn(&Decided) -> bool) -> BTreeMap<(usize, usize), Vec<&Decided>> {
    let mut all = BTreeMap::<_, Vec<&Decided>>::new();
    for answer in &run.answers {
        if let Some(decided) = answer.decided().filter(|decided| of(decided)) {
            all.entry((answer.policy, answer.key)).or_default().push(decided);
        }
    }
    all.values_mut().for_each(|decided| decided.sort_by_key(|one| (one.receipt.index, one.receipt.place)));
    all
}

/// What the cluster has granted, the model grants as well; it was told less than was charged, for some grants were late and their
/// answers lost. Returns all of it.
fn cluster_is_never_over(run: &Run) -> Ledger {
    let mut ledger = Ledger::default();
    for ((policy, key), granted) in by_key(run, |one| one.decided_by == DecidedBy::Cluster && one.allowed) {
        let name = format!("{}/{}", POLICIES[policy], key_name(key));
        let mut model = Limiter::new(Rule::from(&run.policies[policy].algorithm));
        for one in granted {
            let receipt = one.receipt;
            ledger.add((receipt.shard.0, receipt.term.0, receipt.index.0, receipt.place), name.clone());
            model.pass(receipt.stamp.0.into());
            assert!(model.grants(1, None), "{name} was granted beyond its limit at {receipt:?}");
            model.charge(receipt.stamp.0.into(), 0, 1, None);
        }
    }
    ledger
}

/// This process has answered, over the whole run, what the model answers about a tenth of the limit: every answer is known here, so
/// denials and what remains are exact as well.
fn share_is_kept_exactly(run: &Run) {
    let (mut granted, mut denied) = (0, 0);
    for ((policy, key), decided) in by_key(run, |one| one.decided_by == DecidedBy::Local) {
        let name = format!("{}/{}", POLICIES[policy], key_name(key));
        let mut model = Limiter::new(SHARE);
        for one in decided {
            let stamp = one.receipt.stamp.0.into();
            model.pass(stamp);
            assert_eq!(one.allowed, model.grants(1, None), "{name} on its share at {:?}", one.receipt);
            if one.allowed {
                model.charge(stamp, 0, 1, None);
            }
            *(if one.allowed { &mut granted } else { &mut denied }) += 1;
            assert_eq!(model.remaining(), one.remaining.into(), "{name} on its share at {:?}", one.receipt);
        }
    }
    assert!(granted > 0 && denied > 0, "{granted} granted and {denied} denied on the share");
}

/// By no clock of a node's but this process's own: over the whole run, no key was granted more than its capacity and what was
/// refilled meanwhile, give or take a hundredth, by which the clocks of one machine may differ.
fn fail_closed_is_never_over_by_the_clock_on_the_wall(run: &Run) {
    let most = 20.0 + 5.0 * run.took.as_secs_f64() * 1.01;
    let passed = run.answers.iter().filter(|answer| answer.policy == 0 && answer.status == StatusCode::OK);
    let mut granted = BTreeMap::<usize, u32>::new();
    passed.for_each(|answer| *granted.entry(answer.key).or_default() += 1);
    for (key, granted) in granted {
        assert!(f64::from(granted) <= most, "{} was granted {granted} times in {:?}", key_name(key), run.took);
    }
}
