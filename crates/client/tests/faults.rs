//! One fault at a time: what was executed is charged once, and whoever cannot know says so.

#![allow(clippy::unwrap_used, reason = "a test")]

mod fake;

use std::future::IntoFuture;
use std::time::Duration;

use fake::{Fake, Fate, works};
use futures::FutureExt as _;
use quorate_client::{Client, Error, ErrorKind, limit};
use quorate_proto::v1::ErrorCode;
use tokio::time::{Instant, timeout};

/// One shard, and a client with a session on it.
async fn start() -> (Fake, Client) {
    let fake = Fake::new(1);
    let client = fake.connect().await;
    works(&client, "warm").await.unwrap();
    (fake, client)
}

/// Faults after which the check is granted, charged once, and within its deadline.
#[tokio::test(start_paused = true)]
async fn faults_that_are_survived() {
    let fates = [
        Fate::Served,
        Fate::BrokenBefore,
        Fate::BrokenAfter,
        Fate::Refused(ErrorCode::Overloaded),
        Fate::Refused(ErrorCode::PoliciesBehind),
        Fate::Refused(ErrorCode::Unavailable),
        Fate::Refused(ErrorCode::Deadline),
        Fate::Refused(ErrorCode::SessionSpan),
        Fate::Refused(ErrorCode::Unknown),
        Fate::Denounced(ErrorCode::Unknown),
        Fate::Delayed(Duration::from_millis(700)),
        Fate::AnsweredLate(Duration::from_millis(700)),
        Fate::Twice,
        Fate::Halves(Duration::from_millis(50)),
        Fate::HalfThenBroken,
    ];
    for fate in fates {
        let (fake, client) = start().await;
        fake.script([fate]);
        let decision = client.check("ten", "alice").cost(3).await.unwrap_or_else(|error| panic!("{fate:?}: {error}"));
        fake.assert_true(&decision);
        assert!(decision.allowed, "{fate:?}");
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!(fake.used("ten", "alice"), 3, "{fate:?}");

        fake.script([fate, fate, fate, fate]);
        let results = client.check_many((0..100).map(|i| limit("ten", format!("k{i}")))).await;
        for (i, result) in results.into_iter().enumerate() {
            fake.assert_true(&result.unwrap_or_else(|error| panic!("{fate:?} {i}: {error}")));
            assert_eq!(fake.used("ten", &format!("k{i}")), 1, "{fate:?} {i}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_moved_is_followed_at_once() {
    let (fake, client) = start().await;
    fake.elect(1, 3);
    let before = Instant::now();
    assert!(works(&client, "a").await.unwrap());
    assert!(before.elapsed() < Duration::from_millis(5), "the old leader says who leads: {:?}", before.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_dies_with_the_answer_is_replaced() {
    let (fake, client) = start().await;
    fake.script([Fate::Swallowed]);
    let check = tokio::spawn({
        let client = client.clone();
        async move { client.check("ten", "alice").cost(3).deadline(Duration::from_secs(5)).await }
    });
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert_eq!(fake.used("ten", "alice"), 3);
    fake.set_down(1, true);
    tokio::time::sleep(Duration::from_millis(600)).await;
    fake.elect(1, 2);
    fake.publish();
    let decision = check.await.unwrap().unwrap();
    assert!(decision.allowed);
    fake.assert_true(&decision);
    assert_eq!(fake.used("ten", "alice"), 3, "the next leader gives the first answer");
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_hangs_is_left_when_another_node_knows_better() {
    let (fake, client) = start().await;
    fake.set_hung(1);
    fake.elect(1, 2);
    // The change is not published: only a stream to another node, opened anew, tells of it.
    let stale = fake.clone();
    let check = tokio::spawn(async move { client.check("ten", "alice").deadline(Duration::from_secs(10)).await });
    tokio::time::sleep(Duration::from_millis(50)).await;
    stale.publish();
    assert!(check.await.unwrap().unwrap().allowed);
    assert_eq!(fake.used("ten", "alice"), 1);
}

#[tokio::test(start_paused = true)]
async fn an_expired_session_is_replaced_where_nothing_can_have_run() {
    let (fake, client) = start().await;
    fake.expire_sessions(1);
    let results = client.check_many((0..50).map(|i| limit("ten", format!("k{i}")))).await;
    for (i, result) in results.into_iter().enumerate() {
        assert!(result.unwrap().allowed);
        assert_eq!(fake.used("ten", &format!("k{i}")), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_frame_that_may_have_run_in_an_expired_session_is_unknown() {
    for fate in [Fate::BrokenAfter, Fate::BrokenBefore] {
        let (fake, client) = start().await;
        fake.script([fate]);
        let mut check = client.check("ten", "alice").into_future();
        assert!((&mut check).now_or_never().is_none());
        // Let it reach the node, then take the session away before it is sent again.
        while fake.frames().len() < 3 {
            assert!((&mut check).now_or_never().is_none());
            tokio::task::yield_now().await;
        }
        fake.expire_sessions(1);
        let error = check.await.unwrap_err();
        assert_eq!((error.kind(), error.may_have_charged()), (ErrorKind::Unknown, true), "{error}");
        assert_eq!(fake.used("ten", "alice"), u64::from(fate == Fate::BrokenAfter));
        assert!(works(&client, "alice").await.unwrap(), "the next check opens another session");
    }
}

fn kind(result: Result<quorate_client::Decision, Error>) -> (ErrorKind, bool, String) {
    let error = result.unwrap_err();
    (error.kind(), error.may_have_charged(), error.to_string())
}

#[tokio::test(start_paused = true)]
async fn a_deadline_says_what_is_known() {
    let (fake, client) = start().await;
    let before = Instant::now();
    fake.script([Fate::AnsweredLate(Duration::from_secs(3))]);
    let (what, charged, text) = kind(client.check("ten", "slow").await);
    assert_eq!((what, charged), (ErrorKind::Deadline, true), "{text}");
    assert!(before.elapsed() >= Duration::from_secs(1) && before.elapsed() < Duration::from_millis(1_010));
    assert_eq!(fake.used("ten", "slow"), 1);
    assert!(works(&client, "next").await.unwrap());

    fake.script(std::iter::repeat_n(Fate::Refused(ErrorCode::Overloaded), 1_000));
    let (what, charged, text) = kind(client.check("ten", "much").deadline(Duration::from_millis(300)).await);
    assert_eq!((what, charged), (ErrorKind::Overloaded, false), "{text}");
    assert!(text.contains("node n1") && text.contains("nothing was charged"), "{text}");
    assert_eq!(fake.used("ten", "much"), 0);

    fake.script([]);
    fake.elect(1, 0);
    let (what, charged, text) = kind(client.check("ten", "headless").await);
    assert_eq!((what, charged), (ErrorKind::NoLeader, false), "{text}");
    for node in 1..=3 {
        fake.set_down(node, true);
    }
    let (what, charged, text) = kind(client.check("ten", "dark").await);
    assert_eq!((what, charged), (ErrorKind::Unavailable, false), "{text}");
    assert!(text.contains("connection refused"), "{text}");
    for node in 1..=3 {
        fake.set_down(node, false);
    }
    fake.elect(1, 2);
    fake.publish();
    assert!(works(&client, "back").await.unwrap(), "it comes back by itself");
}

#[tokio::test(start_paused = true)]
async fn retries_are_spread_out() {
    let (fake, client) = start().await;
    let before = fake.frames().len();
    fake.script(std::iter::repeat_n(Fate::Refused(ErrorCode::Overloaded), 10_000));
    let calls = (0..200).map(|i| client.check("ten", format!("k{i}")).deadline(Duration::from_secs(10)).into_future());
    for result in futures::future::join_all(calls).await {
        assert_eq!(result.unwrap_err().kind(), ErrorKind::Overloaded);
    }
    let sent = fake.frames().len() - before;
    assert!(sent < 3 * 200, "{sent} frames in ten seconds");
}

#[tokio::test(start_paused = true)]
async fn who_gives_up_is_forgotten() {
    let (fake, client) = start().await;
    fake.script([Fate::Lost, Fate::Lost, Fate::Lost]);
    // Three frames that are never answered fill the lane.
    let mut stuck: Vec<_> = Vec::new();
    for i in 0..3 {
        let mut check = client.check("ten", format!("stuck{i}")).deadline(Duration::from_millis(200)).into_future();
        assert!((&mut check).now_or_never().is_none());
        let before = fake.frames().len();
        while fake.frames().len() == before {
            tokio::task::yield_now().await;
        }
        stuck.push(check);
    }
    // These wait in line; all but one give up.
    let gone: Vec<_> = (0..5)
        .map(|i| {
            let mut check = client.check("ten", format!("gone{i}")).into_future();
            assert!((&mut check).now_or_never().is_none());
            check
        })
        .collect();
    let mut stays = client.check("ten", "stays").into_future();
    assert!((&mut stays).now_or_never().is_none());
    drop((gone, stuck));
    assert!(stays.await.unwrap().allowed, "the lane is free when the last caller of a frame has no time left");
    for i in 0..5 {
        assert_eq!(fake.used("ten", &format!("gone{i}")), 0, "what nobody waits for is not sent");
    }
    let last = fake.frames().pop().unwrap();
    assert_eq!((last.places.as_slice(), last.keys.as_ref()), (&[5][..], &b"stays"[..]));
    assert_eq!(last.lowest_unanswered, last.sequence, "what was given up is not awaited any more");
}

#[tokio::test(start_paused = true)]
async fn what_waits_is_bounded() {
    let (fake, client) = start().await;
    fake.script([Fate::Lost, Fate::Lost, Fate::Lost]);
    fake.set_hung(1);
    let calls = 16 * 1_024 + 3 * 1_024 + 10;
    let mut checks: Vec<_> = Vec::with_capacity(calls);
    let mut refused = 0;
    // Polled without tokio's budget for one task, which would make the rest of them wait for no reason of ours.
    let ask_all = async {
        for i in 0..calls {
            let mut check = client.check("ten", i.to_string()).into_future();
            match (&mut check).now_or_never() {
                None => checks.push(check),
                Some(result) => {
                    let (what, charged, text) = kind(result);
                    assert_eq!((what, charged), (ErrorKind::Overloaded, false), "{text}");
                    refused += 1;
                }
            }
        }
    };
    tokio::task::unconstrained(ask_all).await;
    assert_eq!(refused, calls - 16 * 1_024, "the engine had no turn yet, so nothing was taken out of line");
    for check in checks {
        assert!(check.await.is_err());
    }
    assert!(fake.frames().len() < 10);
}

#[tokio::test(start_paused = true)]
async fn a_node_of_another_cluster_is_not_believed() {
    let (fake, client) = start().await;
    let known = client.topology();
    fake.set_cluster(7);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(client.topology(), known);
    assert!(works(&client, "a").await.unwrap(), "what is known still serves");
    fake.set_cluster(9);
    tokio::time::sleep(Duration::from_secs(2)).await;
    fake.elect(1, 3);
    fake.publish();
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert_eq!(client.topology().shards[0].leader.map(|node| node.0), Some(3), "and it listens again");
}

#[tokio::test(start_paused = true)]
async fn refunds_and_settlements_are_done_once() {
    for fate in [Fate::BrokenAfter, Fate::Twice, Fate::Denounced(ErrorCode::Unknown), Fate::Swallowed] {
        let (fake, client) = start().await;
        let patient = Duration::from_secs(10);
        client.check("ten", "a").cost(5).await.unwrap();
        let decision = client.check("ten", "a").cost(5).await.unwrap();
        fake.script([fate]);
        assert_eq!(client.refund(decision).deadline(patient).await.unwrap(), 1, "{fate:?}");
        assert_eq!(fake.used("ten", "a"), 5, "{fate:?}");
        fake.script([fate]);
        client.reset("ten", "a").deadline(patient).await.unwrap();
        let reservation = client.reserve("ten", "a").cost(6).await.unwrap();
        if fate != Fate::Swallowed {
            fake.script([fate]);
        }
        assert_eq!(reservation.settle(2).await.unwrap(), 1, "{fate:?}");
        assert_eq!(fake.used("ten", "a"), 2, "{fate:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn many_callers_of_a_dead_cluster_wait_no_longer_than_they_said() {
    let (fake, client) = start().await;
    for node in 1..=3 {
        fake.set_down(node, true);
    }
    let before = Instant::now();
    let calls = (0..500).map(|i| client.check("ten", i.to_string()).deadline(Duration::from_millis(50)).into_future());
    let all = timeout(Duration::from_secs(10), futures::future::join_all(calls)).await.unwrap();
    assert!(before.elapsed() <= Duration::from_millis(55), "{:?}", before.elapsed());
    assert!(all.into_iter().all(|result| result.is_err()));
}

#[tokio::test(start_paused = true)]
async fn a_key_that_moved_is_asked_elsewhere_only_where_nothing_can_have_run() {
    let wrong = Fate::Refused(ErrorCode::WrongShard);
    let (fake, client) = start().await;
    fake.script([wrong, wrong, wrong, wrong]);
    let news = {
        let fake = fake.clone();
        async move {
            tokio::time::sleep(Duration::from_millis(100)).await;
            fake.script([]);
            fake.renew_topology();
        }
    };
    let (decision, ()) = tokio::join!(client.check("ten", "alice").into_future(), news);
    assert!(decision.unwrap().allowed);
    assert_eq!(fake.used("ten", "alice"), 1);

    fake.script([wrong, wrong]);
    let (what, charged, text) = kind(client.check("ten", "bob").deadline(Duration::from_millis(50)).await);
    assert_eq!((what, charged), (ErrorKind::Unavailable, false), "no newer topology came: {text}");
    fake.script([Fate::BrokenAfter, wrong]);
    let (what, charged, text) = kind(client.check("ten", "carol").await);
    assert_eq!((what, charged), (ErrorKind::Unknown, true), "{text}");
    assert_eq!(fake.used("ten", "carol"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_policy_that_is_gone_or_written_anew_is_looked_up_again() {
    let (fake, client) = start().await;
    let mut others = fake::policies();
    let mut anew = others.remove(0);
    fake.install(others.clone());
    let (what, charged, text) = kind(client.check("ten", "alice").await);
    assert_eq!((what, charged), (ErrorKind::UnknownPolicy, false), "{text}");
    anew.id = quorate_client::PolicyId(77);
    others.push(anew);
    fake.install(others);
    assert!(client.check("ten", "alice").await.unwrap().allowed);
    assert_eq!(fake.used("ten", "alice"), 1);
}
