//! A service keeps its word when its cluster is killed, hangs, or has no majority.

use std::time::Duration;

use quorate_tests::outage::{By, Fate, KEYS, LIMIT, POLICIES, Pace, Phase, SHARE, passed, run};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_failure_policy_keeps_its_word() {
    let ended = run(Pace { every: Duration::from_millis(2), requests: 600 }).await;
    let odd: Vec<_> = ended.iter().filter(|one| matches!(one.fate, Fate::Odd(_))).collect();
    assert!(odd.is_empty(), "{odd:?}");
    for one in &ended {
        let allowed = match POLICIES[one.policy] {
            "fail_closed" => {
                [Fate::Passed(By::Cluster), Fate::Denied(By::Cluster), Fate::Unavailable].contains(&one.fate)
            }
            "fail_open" => {
                [Fate::Passed(By::Cluster), Fate::Denied(By::Cluster), Fate::Passed(By::FailOpen)].contains(&one.fate)
            }
            _ => matches!(one.fate, Fate::Passed(By::Cluster | By::Local) | Fate::Denied(By::Cluster | By::Local)),
        };
        assert!(allowed, "{one:?}");
    }
    // Never over: what the cluster granted, over all outages, and what this process granted by itself.
    for ((policy, key), granted) in passed(&ended, By::Cluster) {
        assert!(granted <= LIMIT, "{policy} {key}: {granted} of {LIMIT}");
    }
    for ((policy, key), granted) in passed(&ended, By::Local) {
        assert!(granted <= SHARE, "{policy} {key}: {granted} of a share of {SHARE}");
    }
    // It did happen: while the cluster was away its share was used up, others passed or were refused; it answered before,
    // between and after.
    let fates = |phase, fate| ended.iter().filter(|one| one.phase == phase && one.fate == fate).count();
    for away in [Phase::Killed, Phase::Paused, Phase::Halved] {
        assert!(fates(away, Fate::Unavailable) > 0, "{away:?}: fail_closed");
        assert!(fates(away, Fate::Passed(By::FailOpen)) > 0, "{away:?}: fail_open");
        assert!(fates(away, Fate::Passed(By::Local)) + fates(away, Fate::Denied(By::Local)) > 0, "{away:?}: local");
    }
    assert_eq!(passed(&ended, By::Local).into_values().collect::<Vec<_>>(), [SHARE; KEYS]);
    assert!(fates(Phase::Healed, Fate::Passed(By::Cluster)) + fates(Phase::Healed, Fate::Denied(By::Cluster)) > 0);
}
