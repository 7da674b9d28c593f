//! Denials remembered: for as long as they are true and no longer, and never where something was given back.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::time::Duration;

use quorate_client::testing::FakeCluster;
use quorate_client::{Client, Decision, limit};

const POLICIES: &str = r#"
    [[policy]]
    name = "bucket"
    algorithm = "token_bucket"
    capacity = 10
    refill = "4/s"

    [[policy]]
    name = "hour"
    algorithm = "fixed_window"
    limit = 10
    window = "1h"

    [[policy]]
    name = "paced"
    algorithm = "leaky_bucket"
    queue = 5
    rate = "1/s"

    [[policy]]
    name = "watched"
    algorithm = "fixed_window"
    limit = 1
    window = "1h"
    mode = "shadow"
"#;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

async fn start() -> (FakeCluster, Client) {
    start_with(Client::builder().deadline(ms(1_000))).await
}

async fn start_with(builder: quorate_client::ClientBuilder) -> (FakeCluster, Client) {
    let cluster = FakeCluster::from_toml(POLICIES).unwrap();
    let client = cluster.connect_with(builder.deadline(ms(1_000))).await.unwrap();
    (cluster, client)
}

/// Takes all that the key has, and is denied once by the cluster.
async fn used_up(client: &Client, policy: &str, key: &str) -> Decision {
    assert!(client.check(policy, key).cost(10).await.unwrap().allowed);
    let denied = client.check(policy, key).await.unwrap();
    assert!(!denied.allowed && !denied.remembered);
    denied
}

#[tokio::test(start_paused = true)]
async fn a_denial_is_told_again_with_what_is_left_of_its_wait() {
    let (cluster, client) = start().await;
    let first = used_up(&client, "bucket", "alice").await;
    assert_eq!(first.retry_after, Some(ms(250)));
    cluster.advance(ms(100));
    let again = client.check("bucket", "alice").await.unwrap();
    assert!(!again.allowed && again.remembered);
    assert_eq!((again.retry_after, again.reset_after), (Some(ms(150)), ms(2_400)));
    assert_eq!((again.limits[0].retry_after, again.limits[0].reset_after), (Some(ms(150)), ms(2_400)));
    assert_eq!((again.receipt, again.policy_version), (first.receipt, first.policy_version));
    assert_eq!((&*again.limits[0].policy, &*again.limits[0].key, again.limits[0].cost), ("bucket", "alice", 1));
    assert_eq!(client.refund(again).await.unwrap(), 0, "it has no charge");
    assert_eq!(cluster.asked("bucket", "alice"), 2);

    cluster.advance(ms(149));
    assert!(client.check("bucket", "alice").await.unwrap().remembered);
    cluster.advance(ms(1));
    assert!(client.check("bucket", "alice").await.unwrap().allowed, "granted exactly then");
    assert_eq!(cluster.asked("bucket", "alice"), 3);
}

#[tokio::test(start_paused = true)]
async fn it_is_remembered_a_second_unless_set() {
    let (cluster, client) = start().await;
    used_up(&client, "hour", "alice").await;
    let never = client.check("hour", "alice").cost(11).await.unwrap();
    assert_eq!((never.retry_after, never.remembered), (None, false));
    cluster.advance(ms(999));
    assert!(client.check("hour", "alice").await.unwrap().remembered);
    let never = client.check("hour", "alice").cost(11).await.unwrap();
    assert_eq!((never.retry_after, never.remembered), (None, true));
    cluster.advance(ms(1));
    assert!(!client.check("hour", "alice").await.unwrap().remembered);
    assert!(!client.check("hour", "alice").cost(11).await.unwrap().remembered);

    let (cluster, client) = start_with(Client::builder().remember_denials(ms(5_000))).await;
    used_up(&client, "hour", "alice").await;
    cluster.advance(ms(4_999));
    assert!(client.check("hour", "alice").await.unwrap().remembered);
    cluster.advance(ms(1));
    assert!(!client.check("hour", "alice").await.unwrap().remembered);

    let (cluster, client) = start_with(Client::builder().remember_denials(Duration::ZERO)).await;
    used_up(&client, "hour", "alice").await;
    assert!(!client.check("hour", "alice").await.unwrap().remembered);
    assert_eq!(cluster.asked("hour", "alice"), 3);
}

#[tokio::test(start_paused = true)]
async fn another_question_is_asked() {
    let (_cluster, client) = start().await;
    used_up(&client, "hour", "alice").await;
    assert!(client.check("hour", "alice").await.unwrap().remembered);
    assert!(client.check("hour", "alice").cost(0).await.unwrap().allowed);
    assert!(!client.check("hour", "alice").cost(2).await.unwrap().remembered);
    assert!(client.check("bucket", "alice").await.unwrap().allowed);
    assert!(client.check("hour", "bob").await.unwrap().allowed);
    let peeked = client.peek("hour", "alice").await.unwrap();
    assert!(!peeked.allowed && !peeked.remembered);

    let patience = |wait| client.check("paced", "a").max_delay(wait);
    assert!(client.check("paced", "a").cost(3).await.unwrap().allowed);
    assert!(!patience(ms(1_000)).await.unwrap().allowed);
    assert!(patience(ms(1_000)).await.unwrap().remembered);
    assert!(patience(ms(3_000)).await.unwrap().allowed, "the more patient one gets a place");
}

#[tokio::test(start_paused = true)]
async fn it_is_gone_with_the_policies() {
    let (cluster, client) = start().await;
    used_up(&client, "hour", "alice").await;
    let raised = POLICIES.replacen("limit = 10", "limit = 11", 1);
    cluster.apply_toml(&raised).unwrap();
    let version = client.policies().version;
    while client.policies().version == version {
        tokio::task::yield_now().await;
    }
    assert!(client.check("hour", "alice").await.unwrap().allowed, "the higher limit helps at once");
}

#[tokio::test(start_paused = true)]
async fn what_this_client_gives_back_is_seen_at_once() {
    let (_cluster, client) = start().await;
    let ask = async |key: &'static str| client.check("hour", key).cost(5).await.unwrap();
    let full = async |key: &'static str| {
        let (taken, last) = (ask(key).await, ask(key).await);
        assert!(last.allowed && !ask(key).await.allowed && ask(key).await.remembered);
        taken
    };
    let taken = full("refunded").await;
    client.refund(taken).await.unwrap();
    assert!(ask("refunded").await.allowed);

    full("reset").await;
    client.reset("hour", "reset").await.unwrap();
    assert!(ask("reset").await.allowed);

    let reserved = client.reserve("hour", "settled").cost(10).await.unwrap();
    assert!(!ask("settled").await.allowed && ask("settled").await.remembered);
    reserved.settle(3).await.unwrap();
    assert!(ask("settled").await.allowed);
}

#[tokio::test(start_paused = true)]
async fn a_denial_from_before_a_refund_is_not_remembered_after_it() {
    let (cluster, client) = start().await;
    let taken = client.check("hour", "alice").cost(10).await.unwrap();
    cluster.set_slow(ms(50));
    let late = tokio::spawn({
        let client = client.clone();
        async move { client.check("hour", "alice").await.unwrap() }
    });
    tokio::time::sleep(ms(10)).await;
    cluster.set_slow(Duration::ZERO);
    client.refund(taken).await.unwrap();
    assert!(!late.await.unwrap().allowed, "it was decided before");
    assert!(client.check("hour", "alice").await.unwrap().allowed);
}

#[tokio::test(start_paused = true)]
async fn several_limits_are_remembered_together_and_shadow_never() {
    let (cluster, client) = start().await;
    used_up(&client, "bucket", "{a}").await;
    used_up(&client, "hour", "{a}").await;
    let both = || client.check_all([limit("bucket", "{a}"), limit("hour", "{a}")]);
    assert!(!both().await.unwrap().remembered);
    let again = both().await.unwrap();
    assert!(again.remembered && again.retry_after == Some(Duration::from_secs(3_600)));
    cluster.advance(ms(250));
    let changed = both().await.unwrap();
    assert!(!changed.remembered && changed.limits[0].allowed, "one limit's verdict has changed");

    for _ in 0..3 {
        let watched = client.check_all([limit("hour", "{a}"), limit("watched", "{a}")]).await.unwrap();
        assert!(!watched.allowed && !watched.remembered);
    }
    let many = client.check_many([limit("hour", "{a}"), limit("hour", "b"), limit("hour", "{a}")]).await;
    let many: Vec<_> =
        many.into_iter().map(|result| result.unwrap()).map(|one| (one.allowed, one.remembered)).collect();
    assert_eq!(many, [(false, true), (true, false), (false, true)]);
}

#[tokio::test(start_paused = true)]
async fn a_flood_costs_the_cluster_nothing_and_outlives_it() {
    let (cluster, client) = start().await;
    used_up(&client, "hour", "alice").await;
    cluster.set_unavailable(true);
    for _ in 0..10_000 {
        assert!(client.check("hour", "alice").await.unwrap().remembered);
    }
    assert_eq!(cluster.asked("hour", "alice"), 2);
    let clone = client.clone();
    client.close().await;
    assert!(clone.check("hour", "alice").await.is_err(), "a closed client knows nothing");
}

/// Random questions of few keys, with every way to give back: no remembered denial says what the cluster would not.
#[tokio::test(start_paused = true)]
async fn what_is_remembered_is_what_the_cluster_would_say() {
    use rand::{RngExt as _, SeedableRng as _};
    let mut remembered = 0;
    for seed in 0..20 {
        let (cluster, client) = start().await;
        let mut rng = rand::rngs::SmallRng::seed_from_u64(seed);
        let mut charges = Vec::new();
        for step in 0..300 {
            cluster.advance(Duration::from_micros(rng.random_range(0..400_000)));
            let policy = ["bucket", "hour", "paced"][rng.random_range(0..3)];
            let (key, cost) = (["a", "b"][rng.random_range(0..2)], [1, 4, 7][rng.random_range(0..3)]);
            match rng.random_range(0..12) {
                0 if !charges.is_empty() => {
                    let charge = charges.swap_remove(rng.random_range(0..charges.len()));
                    client.refund(charge).await.unwrap();
                }
                1 => client.reset(policy, key).await.unwrap(),
                _ => {
                    // The truth first: a peek is never remembered.
                    let truth = client.peek(policy, key).cost(cost).await.unwrap();
                    let mut told = client.check(policy, key).cost(cost).await.unwrap();
                    let what =
                        format!("seed {seed}, step {step}: {policy} {key} {cost}: {told:?}, and it is {truth:?}");
                    assert_eq!(told.allowed, truth.allowed, "{what}");
                    // What was granted since to cheaper checks may have made the wait longer; never shorter.
                    let forever = Duration::MAX;
                    let (said, is) = (told.retry_after.unwrap_or(forever), truth.retry_after.unwrap_or(forever));
                    assert!(if told.remembered { said <= is } else { said == is }, "{what}");
                    remembered += u32::from(told.remembered);
                    charges.extend(told.take_charge());
                }
            }
        }
    }
    assert!(remembered > 200, "{remembered}");
}
