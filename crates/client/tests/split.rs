//! Checks over several shards: granted by all, or given back; also where the caller goes away, or an answer never comes.

#![allow(clippy::unwrap_used, reason = "a test")]

mod fake;

use std::future::IntoFuture as _;
use std::time::Duration;

use fake::{Fake, Fate};
use quorate_client::{Client, ErrorKind, Question, limit};
use quorate_proto::v1::ErrorCode;
use tokio::time::{sleep, timeout};

const SHORT: Duration = Duration::from_millis(100);

/// A cluster, its client with a session on both shards, and two keys of different shards.
async fn start() -> (Fake, Client, String, String) {
    let fake = Fake::new(12);
    let client = fake.connect().await;
    let (one, other) = fake.keys_apart();
    for key in [&one, &other] {
        fake::works(&client, key).await.unwrap();
    }
    (fake, client, one, other)
}

#[tokio::test(start_paused = true)]
async fn all_of_them_grant_or_nothing_stays_charged() {
    let (fake, client, one, other) = start().await;
    let ask = |cost| client.check_all([limit("bucket", &one), limit("ten", &other).cost(cost), limit("plenty", &one)]);
    let granted = ask(4).await.unwrap();
    assert!(granted.allowed && granted.limits.iter().all(|limit| limit.charged));
    let named: Vec<_> = granted.limits.iter().map(|limit| (&*limit.policy, &*limit.key)).collect();
    assert_eq!(named, [("bucket", &*one), ("ten", &*other), ("plenty", &*one)], "in the order named");
    assert_eq!((granted.limit, granted.remaining), (10, 6), "those of the tightest");
    let shards: Vec<_> = granted.receipts().map(|receipt| receipt.shard.0).collect();
    assert_eq!(shards, [fake.shard_of(&one), fake.shard_of(&other)]);
    assert_eq!(granted.receipt.shard.0, fake.shard_of(&one));
    assert_eq!(granted.limits[0].receipt, granted.limits[2].receipt, "one command a shard");
    assert_ne!(granted.limits[0].receipt, granted.limits[1].receipt);
    assert_eq!(client.refund(granted).await.unwrap(), 3, "a refund gives all of it back");
    assert_eq!((fake.used("ten", &other), fake.used("bucket", &one), fake.used("plenty", &one)), (0, 0, 1));

    let denied = ask(11).await.unwrap();
    assert!(!denied.allowed && denied.retry_after.is_none());
    assert_eq!(denied.receipt.shard.0, fake.shard_of(&other), "that of the shard that denied");
    let told: Vec<_> = denied.limits.iter().map(|limit| (limit.allowed, limit.charged, limit.remaining)).collect();
    assert_eq!(told, [(true, false, 10), (false, false, 10), (true, false, 999_999_999)]);
    assert_eq!((fake.used("bucket", &one), fake.used("plenty", &one)), (0, 1), "given back before it is told");
    assert_eq!(client.refund(denied).await.unwrap(), 0);
}

#[tokio::test(start_paused = true)]
async fn shadow_limits_deny_nothing_and_disabled_ones_say_nothing() {
    let (fake, client, one, other) = start().await;
    let ask = |cost| client.check_all([limit("ten", &one).cost(cost), limit("shadowed", &other), limit("off", &other)]);
    let first = ask(1).await.unwrap();
    assert!(first.allowed && first.limits.len() == 2);
    let second = ask(1).await.unwrap();
    assert!(second.allowed && !second.shadow_denied && second.limits[1].shadow && !second.limits[1].allowed);
    client.reset("shadowed", &other).await.unwrap();
    assert!(!ask(11).await.unwrap().allowed);
    assert_eq!((fake.used("ten", &one), fake.used("shadowed", &other)), (2, 0), "denied, it is not charged either");
}

#[tokio::test(start_paused = true)]
async fn the_longest_wait_is_the_checks() {
    let (_fake, client, one, other) = start().await;
    client.check("bucket", &one).cost(10).await.unwrap();
    client.check("paced", &other).cost(6).await.unwrap();
    let denied = client.check_all([limit("bucket", &one).cost(3), limit("paced", &other)]).await.unwrap();
    let waits: Vec<_> = denied.limits.iter().map(|limit| limit.retry_after.unwrap()).collect();
    assert_eq!(denied.retry_after, Some(waits[0]));
    assert!(waits[0] > waits[1]);
    let paced =
        client.check_all([limit("bucket", "fresh"), limit("paced", "other"), limit("paced", &one)]).await.unwrap();
    assert_eq!(paced.delay, Some(Duration::ZERO));
}

#[tokio::test(start_paused = true)]
async fn many_and_peeks_may_be_of_several_shards() {
    let (fake, client, one, other) = start().await;
    let both = |cost| [limit("ten", &*one).cost(cost), limit("ten", &*other).cost(cost)];
    let questions = [
        Question::from(both(6)),
        Question::from(limit("ten", "alone")),
        Question::from(both(6)).peek(),
        Question::from(both(11)),
    ];
    let results: Vec<_> = client.check_many(questions).await.into_iter().map(|result| result.unwrap()).collect();
    assert_eq!(results[0].limits.len(), 2);
    assert!(results[0].allowed && results[1].allowed && !results[3].allowed);
    assert!(results[2].limits.iter().all(|limit| !limit.charged));
    assert_eq!((fake.used("ten", &one), fake.used("ten", &other)), (6, 6));
    let denied = client.check_all(both(6)).await.unwrap();
    let again = client.check_all(both(6)).await.unwrap();
    assert!(!denied.remembered && again.remembered && again.limits.len() == 2);
}

#[tokio::test(start_paused = true)]
async fn who_goes_away_leaves_nothing_charged() {
    let (fake, client, one, other) = start().await;
    for wait in 0..8 {
        // Each answer comes 30 ms after its decision: so it goes away before any came, between them, and while it refunds.
        fake.set_slow(Duration::from_millis(30));
        let check = client.check_all([limit("ten", &one).cost(3), limit("ten", &other).cost(11)]);
        let gone = timeout(Duration::from_millis(10 * wait), check.into_future()).await;
        assert_eq!(gone.is_err(), wait <= 6, "{wait}");
        fake.set_slow(Duration::ZERO);
        sleep(Duration::from_secs(3)).await;
        assert_eq!((fake.used("ten", &one), fake.used("ten", &other)), (0, 0), "after {wait}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_denial_is_told_in_time_also_where_giving_back_takes_longer() {
    let (fake, client, one, other) = start().await;
    fake.set_slow(Duration::from_millis(60));
    let check = client.check_all([limit("ten", &one).cost(3), limit("ten", &other).cost(11)]).deadline(SHORT);
    let mut denied = check.await.unwrap();
    assert!(!denied.allowed && denied.limits[0].charged, "it is not known to be given back yet");
    assert!(denied.take_charge().is_none(), "and is no charge of the caller's");
    sleep(Duration::from_secs(1)).await;
    assert_eq!(fake.used("ten", &one), 0);
}

#[tokio::test(start_paused = true)]
async fn where_one_has_no_answer_the_others_are_given_back() {
    let (fake, client, one, other) = start().await;
    let both = || client.check_all([limit("ten", &*one).cost(3), limit("ten", &*other).cost(3)]).deadline(SHORT);
    // One shard without a leader: nothing was charged there, and what the other took is back.
    fake.elect(fake.shard_of(&other), 0);
    let error = both().await.unwrap_err();
    assert!(error.kind().is_transient());
    sleep(Duration::from_secs(2)).await;
    assert_eq!((fake.used("ten", &one), fake.used("ten", &other)), (0, 0));

    fake.elect(fake.shard_of(&other), u64::from(fake.shard_of(&other) - 1) % 3 + 1);
    fake.publish();
    fake::works(&client, &other).await.unwrap();
    fake.script([Fate::Swallowed, Fate::Served]);
    let error = both().await.unwrap_err();
    assert_eq!((error.kind(), error.may_have_charged()), (ErrorKind::Deadline, true));
    sleep(Duration::from_secs(2)).await;
    let used = [fake.used("ten", &one), fake.used("ten", &other)];
    assert_eq!(used.iter().sum::<u64>(), 3, "only what nobody can know of stays: {used:?}");
}

#[tokio::test(start_paused = true)]
async fn retries_of_parts_and_refunds_charge_and_give_back_once() {
    let fates = [
        Fate::BrokenAfter,
        Fate::BrokenBefore,
        Fate::Twice,
        Fate::Denounced(ErrorCode::Unknown),
        Fate::Refused(ErrorCode::Overloaded),
        Fate::AnsweredLate(Duration::from_millis(300)),
    ];
    for fate in fates {
        let (fake, client, one, other) = start().await;
        client.check("ten", &one).cost(2).await.unwrap();
        fake.script([fate; 4]);
        let ask = |cost| client.check_all([limit("ten", &*one).cost(3), limit("ten", &*other).cost(cost)]);
        let denied = ask(11).deadline(Duration::from_secs(20)).await.unwrap();
        assert!(!denied.allowed, "{fate:?}");
        assert_eq!((fake.used("ten", &one), fake.used("ten", &other)), (2, 0), "{fate:?}");
        fake.script([fate; 4]);
        assert!(ask(3).deadline(Duration::from_secs(20)).await.unwrap().allowed, "{fate:?}");
        assert_eq!((fake.used("ten", &one), fake.used("ten", &other)), (5, 3), "{fate:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_unknown_policy_charges_nothing() {
    let (fake, client, one, other) = start().await;
    let error = client.check_all([limit("ten", &one), limit("nonesuch", &other)]).await.unwrap_err();
    assert_eq!((error.kind(), error.may_have_charged()), (ErrorKind::UnknownPolicy, false));
    assert_eq!(fake.used("ten", &one), 0);
}
