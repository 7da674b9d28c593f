//! Every call of the client, on a wire that works: what comes back is what the state machine decided.

#![allow(clippy::unwrap_used, reason = "a test")]

mod fake;

use std::time::Duration;

use fake::{Fake, policies};
use quorate_client::{Client, ErrorKind, Question, limit};

#[tokio::test(start_paused = true)]
async fn a_check_is_decided_and_charged() {
    let fake = Fake::new(3);
    let client = fake.connect().await;
    let decision = client.check("ten", "alice").cost(3).await.unwrap();
    fake.assert_true(&decision);
    assert!(decision.allowed && !decision.degraded && !decision.shadow_denied);
    assert_eq!((decision.limit, decision.remaining, decision.retry_after), (10, 7, None));
    assert_eq!((&*decision.limits[0].policy, decision.limits[0].key.as_str()), ("ten", "alice"));
    assert_eq!(decision.receipt.shard.0, fake.shard_of("alice"));
    assert_eq!(decision.policy_version.0, 1);

    let denied = client.check("ten", "alice").cost(8).await.unwrap();
    fake.assert_true(&denied);
    assert!(!denied.allowed && denied.retry_after.is_some());
    assert_eq!(fake.used("ten", "alice"), 3);
    let never = client.check("ten", "alice").cost(11).await.unwrap();
    assert!(!never.allowed && never.retry_after.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_peek_charges_nothing_and_a_reset_makes_new() {
    let fake = Fake::new(3);
    let client = fake.connect().await;
    assert_eq!(client.peek("ten", "alice").await.unwrap().remaining, 10);
    client.check("ten", "alice").cost(10).await.unwrap();
    let mut peeked = client.peek("ten", "alice").await.unwrap();
    assert!(!peeked.allowed && peeked.take_charge().is_none());
    client.reset("ten", "alice").await.unwrap();
    assert_eq!(client.peek("ten", "alice").await.unwrap().remaining, 10);
}

#[tokio::test(start_paused = true)]
async fn several_limits_are_one_question() {
    let fake = Fake::new(12);
    let client = fake.connect().await;
    let limits = [limit("plenty", "{acme}"), limit("ten", "{acme}/7").cost(2), limit("ten", "{acme}/7").cost(3)];
    let decision = client.check_all(limits).await.unwrap();
    fake.assert_true(&decision);
    let seen: Vec<_> = decision.limits.iter().map(|one| (&*one.policy, one.key.as_str(), one.cost)).collect();
    assert_eq!(seen, [("plenty", "{acme}", 1), ("ten", "{acme}/7", 5)]);
    assert_eq!((decision.limit, decision.remaining), (10, 5), "those of the tightest");

    let denied = client.check_all([limit("plenty", "{acme}"), limit("ten", "{acme}/7").cost(6)]).await.unwrap();
    assert!(!denied.allowed && denied.limits[0].allowed && !denied.limits[1].allowed);
    assert_eq!(fake.used("plenty", "{acme}"), 1, "all or nothing");
}

#[tokio::test(start_paused = true)]
async fn a_reservation_over_several_shards_is_refused_and_the_way_is_named() {
    let fake = Fake::new(12);
    let client = fake.connect().await;
    let (one, other) = fake.keys_apart();
    let error = client.reserve_all([limit("ten", one), limit("ten", other)]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("hash tag"), "{error}");
    assert!(!error.may_have_charged());
}

#[tokio::test(start_paused = true)]
async fn modes_and_delays_come_through() {
    let fake = Fake::new(3);
    let client = fake.connect().await;
    client.check("shadowed", "a").await.unwrap();
    let shadow = client.check("shadowed", "a").await.unwrap();
    assert!(shadow.allowed && shadow.shadow_denied && shadow.limits[0].shadow);

    let off = client.check("off", "a").await.unwrap();
    assert!(off.allowed && off.limits.is_empty());
    assert_eq!((off.limit, off.remaining), (u64::MAX, u64::MAX));

    client.check("paced", "a").cost(3).await.unwrap();
    let later = client.check("paced", "a").await.unwrap();
    assert!(later.delay.is_some_and(|delay| delay > Duration::from_secs(2) && delay <= Duration::from_secs(3)));
    let impatient = client.check("paced", "a").max_delay(Duration::from_secs(1)).await.unwrap();
    assert!(!impatient.allowed && impatient.retry_after.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_charge_is_given_back_once() {
    let fake = Fake::new(3);
    let client = fake.connect().await;
    let mut decision = client.check("ten", "alice").cost(4).await.unwrap();
    let charge = decision.take_charge().unwrap();
    assert!(decision.take_charge().is_none());
    assert_eq!(client.refund(decision).await.unwrap(), 0, "it was taken out before");
    assert_eq!(client.refund(charge).await.unwrap(), 1);
    assert_eq!(fake.used("ten", "alice"), 0);

    let paced = client.check("paced", "a").cost(2).await.unwrap();
    assert_eq!(client.refund(paced).await.unwrap(), 1, "the mark travels along");
    assert_eq!(client.peek("paced", "a").await.unwrap().remaining, 6);

    client.check("ten", "alice").cost(10).await.unwrap();
    let denied = client.check("ten", "alice").await.unwrap();
    assert_eq!(client.refund(denied).await.unwrap(), 0);
    assert_eq!(fake.used("ten", "alice"), 10);
}

#[tokio::test(start_paused = true)]
async fn a_reservation_is_settled_once() {
    let fake = Fake::new(3);
    let client = fake.connect().await;
    let reservation = client.reserve("ten", "alice").cost(8).await.unwrap();
    assert!(reservation.allowed());
    assert_eq!(reservation.decision().remaining, 2);
    assert_eq!(reservation.settle(3).await.unwrap(), 1);
    assert_eq!(fake.used("ten", "alice"), 3);

    client.reserve("ten", "alice").cost(2).await.unwrap().refund().await.unwrap();
    assert_eq!(fake.used("ten", "alice"), 3);
    drop(client.reserve("ten", "alice").cost(2).await.unwrap());
    assert_eq!(fake.used("ten", "alice"), 5, "dropped, it stays charged");

    let denied = client.reserve("ten", "alice").cost(9).await.unwrap();
    assert!(!denied.allowed());
    assert_eq!(denied.settle(9).await.unwrap_err().kind(), ErrorKind::Invalid);

    let both = client.reserve_all([limit("bucket", "{a}"), limit("ten", "{a}")]).cost(5).await.unwrap();
    assert_eq!(both.settle_each(&[1]).await.unwrap_err().kind(), ErrorKind::Invalid);
    let both = client.reserve_all([limit("bucket", "{a}"), limit("ten", "{a}")]).cost(5).await.unwrap();
    assert_eq!(both.settle_each(&[1, 2]).await.unwrap(), 2);
    assert_eq!(fake.used("ten", "{a}"), 5 + 2);

    let paced = client.reserve("paced", "a").await.unwrap_err();
    assert_eq!(paced.kind(), ErrorKind::Invalid);
    let long = client.reserve("ten", "a").ttl(Duration::from_secs(3_601)).await.unwrap_err();
    assert_eq!(long.kind(), ErrorKind::Invalid);
}

#[tokio::test(start_paused = true)]
async fn many_are_answered_in_order_and_travel_together() {
    let fake = Fake::new(3);
    let client = fake.connect().await;
    let mut questions: Vec<_> =
        (0..2_000).map(|i| Question::from(limit("ten", format!("k{i}")).cost(i % 20))).collect();
    questions[7] = limit("nonesuch", "k").into();
    questions[8] = limit("ten", "").into();
    questions[9] = Question::from(limit("ten", "k9").cost(4)).peek();
    let results = client.check_many(questions).await;
    assert_eq!(results.len(), 2_000);
    for (i, result) in results.iter().enumerate() {
        match (i, result) {
            (7, Err(error)) => assert_eq!(error.kind(), ErrorKind::UnknownPolicy),
            (8, Err(error)) => assert_eq!(error.kind(), ErrorKind::Invalid),
            (_, Ok(decision)) => {
                fake.assert_true(decision);
                assert_eq!(decision.allowed, i % 20 <= 10);
                assert_eq!(decision.limits[0].key, format!("k{i}"));
            }
            (_, Err(error)) => panic!("{i}: {error}"),
        }
    }
    assert_eq!(fake.used("ten", "k9"), 0);
    assert!(fake.frames().len() <= 12, "2,000 checks took {} frames", fake.frames().len());

    assert!(client.check_many(Vec::<Question<'_>>::new()).await.is_empty());
    let too_many = client.check_many((0..20_000).map(|i| limit("ten", i.to_string()))).await;
    assert_eq!(too_many[0].as_ref().unwrap_err().kind(), ErrorKind::Invalid);
}

#[tokio::test(start_paused = true)]
async fn checks_of_many_tasks_travel_together() {
    let fake = Fake::new(1);
    let client = fake.connect().await;
    fake::works(&client, "warm").await.unwrap();
    let before = fake.frames().len();
    let tasks: Vec<_> = (0..3_000)
        .map(|i| {
            let client = client.clone();
            tokio::spawn(async move { client.check("ten", format!("k{}", i % 100)).await.unwrap().allowed })
        })
        .collect();
    let mut granted = 0;
    for task in tasks {
        granted += u32::from(task.await.unwrap());
    }
    assert_eq!(granted, 1_000);
    let frames = fake.frames().len() - before;
    assert!(frames <= 10, "3,000 checks took {frames} frames");
}

#[tokio::test(start_paused = true)]
async fn a_policy_applied_a_moment_later_is_found_and_a_wrong_name_waits_once() {
    let fake = Fake::new(3);
    let client = fake.connect().await;
    let mut more = policies();
    more[0].name = "other".into();
    let later = {
        let fake = fake.clone();
        async move {
            tokio::time::sleep(Duration::from_millis(100)).await;
            fake.install(more);
        }
    };
    let (decision, ()) = tokio::join!(client.check("other", "a").into_future(), later);
    assert!(decision.unwrap().allowed);

    let error = client.check("othre", "a").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnknownPolicy);
    assert!(error.to_string().contains("did you mean \"other\""), "{error}");
    let before = tokio::time::Instant::now();
    assert!(client.check("othre", "a").await.is_err());
    assert!(before.elapsed() <= Duration::from_millis(25), "it is known to be unknown: {:?}", before.elapsed());
}

use std::future::IntoFuture;

#[tokio::test(start_paused = true)]
async fn topology_and_policies_can_be_looked_at() {
    let fake = Fake::new(4);
    let client = fake.connect().await;
    let topology = client.topology();
    assert_eq!((topology.nodes.len(), topology.shards.len(), topology.cluster_name.as_str()), (3, 4, "fake"));
    assert_eq!(client.policies().policies.len(), policies().len());
    assert!(format!("{client:?}").contains("fake"));
}

#[tokio::test(start_paused = true)]
async fn closing_ends_the_sessions_and_refuses_what_comes_later() {
    let fake = Fake::new(3);
    let client = fake.connect().await;
    for i in 0..20 {
        fake::works(&client, &format!("k{i}")).await.unwrap();
    }
    assert_eq!(fake.sessions(), 3);
    let clone = client.clone();
    client.close().await;
    assert_eq!(fake.sessions(), 0);
    let error = clone.check("ten", "a").await.unwrap_err();
    assert_eq!((error.kind(), error.may_have_charged()), (ErrorKind::Closed, false));
    clone.close().await;

    let client = fake.connect().await;
    fake::works(&client, "k").await.unwrap();
    assert_eq!(fake.sessions(), 1);
    drop(client);
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(fake.sessions(), 0, "dropping it does the same");
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_connected_to_is_named() {
    let fake = Fake::new(1);
    fake.set_down(1, true);
    fake.set_hung(2);
    fake.set_down(3, true);
    let error = fake.builder().connect_over(fake.wire(), 5).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    for part in ["node-1:7600: connection refused", "node-2:7600: no topology within", "5s"] {
        assert!(error.to_string().contains(part), "{error}");
    }
    assert_eq!(Client::builder().connect().await.unwrap_err().kind(), ErrorKind::Invalid);

    fake.set_down(3, false);
    let client = fake.builder().connect_over(fake.wire(), 5).await.unwrap();
    assert_eq!(client.topology().nodes.len(), 3);
}
