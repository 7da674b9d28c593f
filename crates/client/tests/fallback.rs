//! What a check comes to when the cluster is dead, slow, or back again: as its policies want it.

#![allow(clippy::unwrap_used, reason = "a test")]

mod fake;

use std::future::IntoFuture as _;
use std::time::Duration;

use fake::{Fake, Fate, works};
use quorate_client::{Client, DecidedBy, Decision, Error, ErrorKind, Fallback, OnUnavailable, limit};
use quorate_core::{Algorithm, Mode, Policy, PolicyId, Rate, ShardId, Span};
use quorate_proto::v1::ErrorCode;
use tokio::time::{Instant, sleep};

const YEAR: Span = Span(366 * 24 * 3_600 * 1_000_000);
const TENTH: OnUnavailable = OnUnavailable::Local { share_ppm: Some(100_000) };
const PART: OnUnavailable = OnUnavailable::Local { share_ppm: None };

/// One policy for each wish, and what else the tests name.
fn wishes() -> Vec<Policy> {
    let window = |name: &str, limit, wish| Policy {
        on_unavailable: wish,
        ..Policy::new(name, Algorithm::FixedWindow { limit, window: YEAR })
    };
    let shadow = |policy| Policy { mode: Mode::Shadow, ..policy };
    let rate = Rate { units: 1, period: Span(100_000) };
    let mut all = fake::policies();
    all.extend([
        window("open", 10, OnUnavailable::FailOpen),
        window("closed", 10, OnUnavailable::FailClosed),
        window("tenth", 40, TENTH),
        window("part", 40, PART),
        window("low", 9, TENTH),
        shadow(window("closed-shadow", 10, OnUnavailable::FailClosed)),
        Policy { mode: Mode::Disabled, ..window("closed-off", 10, OnUnavailable::FailClosed) },
        shadow(window("tenth-shadow", 10, TENTH)),
        Policy { on_unavailable: TENTH, ..Policy::new("queue", Algorithm::LeakyBucket { queue: 29, rate }) },
        Policy { on_unavailable: TENTH, ..Policy::new("short-queue", Algorithm::LeakyBucket { queue: 5, rate }) },
        Policy { max_cost: quorate_core::Cost::new(2), ..window("dear", 40, TENTH) },
    ]);
    for (at, policy) in all.iter_mut().enumerate() {
        policy.id = PolicyId(at as u32 + 1);
    }
    all
}

async fn start() -> (Fake, Client) {
    let fake = Fake::new(1);
    fake.install(wishes());
    let client = connect(&fake, |builder| builder).await;
    works(&client, "warm").await.unwrap();
    (fake, client)
}

/// With the deadline that a service has.
async fn connect(
    fake: &Fake,
    with: impl FnOnce(quorate_client::ClientBuilder) -> quorate_client::ClientBuilder,
) -> Client {
    let builder = with(fake.builder().deadline(Duration::from_millis(50)));
    builder.connect_over(fake.wire(), 1).await.unwrap()
}

/// Takes every node down, or all of them up again.
fn set_dead(fake: &Fake, dead: bool) {
    for node in 1..=3 {
        fake.set_down(node, dead);
    }
}

async fn ask(client: &Client, policy: &str, key: &str) -> Result<Decision, Error> {
    client.check(policy, key).await
}

#[tokio::test(start_paused = true)]
async fn each_policy_has_its_way_with_a_cluster_that_is_dead() {
    let (fake, client) = start().await;
    set_dead(&fake, true);

    let before = Instant::now();
    let closed = ask(&client, "closed", "a").await.unwrap_err();
    assert_eq!((closed.kind(), closed.may_have_charged()), (ErrorKind::Unavailable, false), "{closed}");
    assert!(closed.kind().is_unavailable());
    assert!(before.elapsed() < Duration::from_millis(52), "{:?}", before.elapsed());

    let open = ask(&client, "open", "a").await.unwrap();
    assert!(open.allowed && open.degraded && open.limits.is_empty());
    assert_eq!((open.decided_by, open.remaining, open.limit), (DecidedBy::FailOpen, u64::MAX, u64::MAX));
    assert_eq!(open.cause().unwrap().kind(), ErrorKind::Unavailable);
    assert_eq!(open.policy_version, client.policies().version);
    assert_eq!(client.refund(open).await.unwrap(), 0, "nothing was charged");

    for left in (0..4).rev() {
        let local = ask(&client, "tenth", "a").await.unwrap();
        assert!(local.allowed && local.degraded);
        assert_eq!((local.decided_by, local.limit, local.remaining), (DecidedBy::Local, 4, left));
        assert_eq!((local.receipt.shard, local.limits[0].key.as_str()), (ShardId(u32::MAX), "a"));
        assert_eq!(local.policy_version, client.policies().version);
    }
    let denied = ask(&client, "tenth", "a").await.unwrap();
    assert!(!denied.allowed && denied.degraded && denied.retry_after.is_some());
    assert!(ask(&client, "tenth", "b").await.unwrap().allowed, "each key has its own");
    assert_eq!(fake.used("tenth", "a"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_is_slow_is_as_good_as_dead_and_may_have_charged() {
    let (fake, client) = start().await;
    fake.script([Fate::AnsweredLate(Duration::from_millis(80))]);
    let before = Instant::now();
    let open = ask(&client, "open", "a").await.unwrap();
    assert_eq!(before.elapsed(), Duration::from_millis(50));
    assert_eq!(open.decided_by, DecidedBy::FailOpen);
    let cause = open.cause().unwrap();
    assert_eq!((cause.kind(), cause.may_have_charged()), (ErrorKind::Deadline, true));
    assert_eq!(fake.used("open", "a"), 1);
    sleep(Duration::from_secs(1)).await;
    let back = ask(&client, "open", "a").await.unwrap();
    assert_eq!((back.decided_by, back.degraded, back.remaining), (DecidedBy::Cluster, false, 8));
    assert!(back.cause().is_none());
}

#[tokio::test(start_paused = true)]
async fn what_the_cluster_did_answer_is_never_replaced() {
    let (fake, client) = start().await;
    for _ in 0..10 {
        assert!(ask(&client, "open", "a").await.unwrap().allowed);
    }
    assert!(!ask(&client, "open", "a").await.unwrap().allowed, "a denial is an answer");
    fake.script([Fate::Refused(ErrorCode::TableFull)]);
    assert_eq!(ask(&client, "open", "b").await.unwrap_err().kind(), ErrorKind::TableFull);
    assert_eq!(ask(&client, "nonesuch", "b").await.unwrap_err().kind(), ErrorKind::UnknownPolicy);
    assert_eq!(ask(&client, "open", "").await.unwrap_err().kind(), ErrorKind::Invalid);
    client.clone().close().await;
    assert_eq!(ask(&client, "open", "b").await.unwrap_err().kind(), ErrorKind::Closed);
}

#[tokio::test(start_paused = true)]
async fn the_strictest_of_several_limits_rules_and_all_or_none_is_charged() {
    let (fake, client) = start().await;
    set_dead(&fake, true);
    let closed = client.check_all([limit("open", "{a}"), limit("tenth", "{a}"), limit("closed", "{a}")]).await;
    assert!(closed.unwrap_err().kind().is_unavailable());

    let both = client.check_all([limit("open", "{a}"), limit("tenth", "{a}").cost(3)]).await.unwrap();
    assert_eq!((both.allowed, both.decided_by, both.limits.len()), (true, DecidedBy::Local, 1));
    assert_eq!((&*both.limits[0].policy, both.limits[0].cost, both.remaining), ("tenth", 3, 1));

    let denied = client.check_all([limit("part", "{a}"), limit("tenth", "{a}").cost(2)]).await.unwrap();
    assert_eq!((denied.allowed, denied.limits.len()), (false, 2));
    assert!(denied.limits[0].allowed && !denied.limits[0].charged);
    assert_eq!(client.peek("part", "{a}").await.unwrap().remaining, 40, "none was charged");
}

#[tokio::test(start_paused = true)]
async fn shadow_and_disabled_policies_are_no_reason_to_refuse() {
    let (fake, client) = start().await;
    set_dead(&fake, true);
    for policy in ["closed-shadow", "closed-off", "tenth-shadow"] {
        for _ in 0..3 {
            let decision = ask(&client, policy, "a").await.unwrap();
            assert_eq!((decision.allowed, decision.decided_by), (true, DecidedBy::FailOpen), "{policy}");
        }
    }
    let three = [limit("closed-shadow", "{a}"), limit("tenth-shadow", "{a}").cost(5), limit("tenth", "{a}")];
    let decision = client.check_all(three).await.unwrap();
    assert_eq!((decision.allowed, decision.decided_by, decision.limits.len()), (true, DecidedBy::Local, 2));
    assert!(decision.limits[0].shadow && !decision.limits[0].allowed && !decision.limits[0].charged);
    assert_eq!((&*decision.limits[1].policy, decision.remaining), ("tenth", 3));
}

#[tokio::test(start_paused = true)]
async fn a_share_of_less_than_one_unit_grants_nothing() {
    let (fake, client) = start().await;
    set_dead(&fake, true);
    for policy in ["low", "short-queue"] {
        let denied = ask(&client, policy, "a").await.unwrap();
        assert!(!denied.allowed && denied.degraded, "{policy}");
        assert_eq!((denied.limit, denied.remaining, denied.retry_after), (0, 0, None), "{policy}");
        assert!(client.check(policy, "a").cost(0).await.unwrap().allowed, "{policy}: it only reports");
    }
    let with_other = client.check_all([limit("tenth", "{a}"), limit("short-queue", "{a}")]).await.unwrap();
    assert!(!with_other.allowed && with_other.retry_after.is_none());
    assert!(with_other.limits[0].allowed && !with_other.limits[0].charged && !with_other.limits[1].allowed);
    assert_eq!(client.peek("tenth", "{a}").await.unwrap().remaining, 4);
}

#[tokio::test(start_paused = true)]
async fn each_live_client_has_one_part() {
    let (fake, client) = start().await;
    let remaining = async |key| client.peek("part", key).await.unwrap().remaining;
    fake.set_live_clients(5);
    sleep(Duration::from_millis(10)).await;
    assert_eq!(client.topology().live_clients, 5);
    set_dead(&fake, true);
    assert_eq!(remaining("a").await, 8);
    assert!(client.check("part", "a").cost(6).await.unwrap().allowed);

    set_dead(&fake, false);
    fake.set_live_clients(10);
    sleep(Duration::from_secs(2)).await;
    assert_eq!(remaining("a").await, 40, "the cluster is back, and knows nothing of it");
    set_dead(&fake, true);
    assert_eq!(remaining("b").await, 4);
    assert_eq!(remaining("a").await, 0, "what was used is not forgotten");
}

#[tokio::test(start_paused = true)]
async fn code_has_the_last_word() {
    let fake = Fake::new(1);
    fake.install(wishes());
    let fifth = OnUnavailable::Local { share_ppm: Some(200_000) };
    let client =
        connect(&fake, |b| b.on_unavailable("closed", fifth).on_unavailable("open", OnUnavailable::FailClosed)).await;
    works(&client, "warm").await.unwrap();
    set_dead(&fake, true);
    assert_eq!(ask(&client, "closed", "a").await.unwrap().limit, 2, "the builder before the policy");
    assert!(ask(&client, "open", "a").await.is_err());
    let open = client.check("open", "a").on_unavailable(Fallback::FailOpen).await.unwrap();
    assert_eq!(open.decided_by, DecidedBy::FailOpen, "the check before the builder");
    assert!(client.check("closed", "a").on_unavailable(Fallback::FailClosed).await.is_err());
    let many = [limit("open", "a"), limit("closed", "a")];
    for result in client.check_many(many).on_unavailable(Fallback::Local).await {
        assert_eq!(result.unwrap().decided_by, DecidedBy::Local);
    }
    let builder = fake.builder().on_unavailable("p", OnUnavailable::Local { share_ppm: Some(0) });
    assert_eq!(builder.connect_over(fake.wire(), 1).await.unwrap_err().kind(), ErrorKind::Invalid);
}

#[tokio::test(start_paused = true)]
async fn many_are_each_answered_as_their_policy_wants() {
    let (fake, client) = start().await;
    set_dead(&fake, true);
    let questions = (0..30).map(|i| limit(["open", "closed", "tenth"][i % 3], "same"));
    for (i, result) in client.check_many(questions).await.into_iter().enumerate() {
        match (i % 3, result) {
            (0, Ok(decision)) => assert_eq!(decision.decided_by, DecidedBy::FailOpen),
            (1, Err(error)) => assert!(error.kind().is_unavailable()),
            (2, Ok(decision)) => assert_eq!((decision.decided_by, decision.allowed), (DecidedBy::Local, i / 3 < 4)),
            (_, other) => panic!("{i}: {other:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_this_process_granted_is_given_back_and_settled_here() {
    let (fake, client) = start().await;
    set_dead(&fake, true);
    let remaining = async || client.peek("tenth", "a").await.unwrap().remaining;
    let decision = client.check("tenth", "a").cost(3).await.unwrap();
    let reservation = client.reserve("tenth", "b").cost(4).await.unwrap();
    assert!(reservation.allowed() && reservation.decision().degraded);
    let open = client.reserve_all([limit("open", "{c}"), limit("open", "{c}/2")]).cost(9).await.unwrap();
    assert_eq!((open.allowed(), open.decision().decided_by), (true, DecidedBy::FailOpen));
    assert!(client.reserve("closed", "a").await.unwrap_err().kind().is_unavailable());
    assert_eq!(client.reserve("queue", "a").await.unwrap_err().kind(), ErrorKind::Invalid, "a leaky bucket");

    // It goes on while the cluster is away, and when it is back.
    assert_eq!(client.refund(decision).await.unwrap(), 1);
    assert_eq!(remaining().await, 4);
    assert_eq!(open.settle_each(&[1, 2]).await.unwrap(), 0, "it held nothing");
    set_dead(&fake, false);
    sleep(Duration::from_secs(2)).await;
    assert_eq!(reservation.settle(1).await.unwrap(), 1);
    assert_eq!((fake.used("tenth", "a"), fake.used("tenth", "b")), (0, 0), "the cluster hears nothing of it");
    set_dead(&fake, true);
    assert_eq!(client.peek("tenth", "b").await.unwrap().remaining, 3);
}

#[tokio::test(start_paused = true)]
async fn calls_that_a_policy_refuses_are_refused_here_too() {
    let (fake, client) = start().await;
    set_dead(&fake, true);
    let error = client.check("dear", "a").cost(3).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let paced = client.check("queue", "a").cost(2).await.unwrap();
    assert_eq!((paced.allowed, paced.limit, paced.delay), (true, 3, Some(Duration::ZERO)));
    let later = client.check("queue", "a").await.unwrap();
    assert_eq!(later.delay, Some(Duration::from_secs(2) - Duration::from_millis(50)), "a tenth of the pace");
    assert!(!client.check("queue", "a").max_delay(Duration::from_millis(1)).await.unwrap().allowed);
}

#[tokio::test(start_paused = true)]
async fn windows_end_with_the_clusters() {
    let (fake, client) = start().await;
    let cluster = client.peek("tenth", "a").await.unwrap();
    client.check("tenth", "a").await.unwrap();
    let before = client.check("tenth", "a").await.unwrap();
    let at = Instant::now();
    set_dead(&fake, true);
    let local = ask(&client, "tenth", "a").await.unwrap();
    assert_eq!(local.decided_by, DecidedBy::Local);
    assert_eq!(local.reset_after + at.elapsed(), before.reset_after, "no later and no sooner");
    assert_eq!(local.receipt.stamp.0 - cluster.receipt.stamp.0, at.elapsed().as_micros() as i64);
}

#[tokio::test(start_paused = true)]
async fn who_waits_gets_the_cluster_when_it_returns() {
    let (fake, client) = start().await;
    set_dead(&fake, true);
    for i in 0..20 {
        assert!(ask(&client, "closed", &i.to_string()).await.is_err());
    }
    let patient = client.check("closed", "patient").deadline(Duration::from_secs(30)).into_future();
    let back = async {
        sleep(Duration::from_secs(5)).await;
        set_dead(&fake, false);
        Instant::now()
    };
    let (decision, back) = tokio::join!(patient, back);
    assert_eq!(decision.unwrap().decided_by, DecidedBy::Cluster);
    assert!(back.elapsed() < Duration::from_secs(2), "{:?}", back.elapsed());
}
