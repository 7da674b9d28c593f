//! Waiting one's turn: in time, or not at all, and given back by who goes away.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::future::IntoFuture as _;
use std::time::Duration;

use quorate_client::testing::FakeCluster;
use quorate_client::{Client, ErrorKind};
use tokio::time::{Instant, timeout};

const POLICIES: &str = r#"
    [[policy]]
    name = "paced"
    algorithm = "leaky_bucket"
    queue = 4
    rate = "1/s"

    [[policy]]
    name = "bucket"
    algorithm = "token_bucket"
    capacity = 2
    refill = "1/s"
"#;

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

async fn start() -> (FakeCluster, Client) {
    let cluster = FakeCluster::builder().toml(POLICIES).follow_tokio_time().build().unwrap();
    let client = cluster.connect_with(Client::builder().deadline(secs(1))).await.unwrap();
    (cluster, client)
}

/// Milliseconds since then.
fn ms_since(then: Instant) -> u128 {
    (then.elapsed().as_micros() + 500) / 1_000
}

#[tokio::test(start_paused = true)]
async fn turns_come_one_after_the_other() {
    let (_cluster, client) = start().await;
    let began = Instant::now();
    let turns: Vec<_> = (0..5)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move {
                assert!(client.acquire("paced", "a").await.unwrap().allowed);
                ms_since(began)
            })
        })
        .collect();
    let mut came = Vec::new();
    for turn in turns {
        came.push(turn.await.unwrap());
    }
    came.sort_unstable();
    for (nth, at) in came.iter().enumerate() {
        assert!((nth as u128 * 1_000..nth as u128 * 1_000 + 50).contains(at), "{came:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_cannot_come_in_time_is_denied_at_once() {
    let (cluster, client) = start().await;
    client.check("paced", "a").cost(3).await.unwrap();
    let began = Instant::now();
    let denied = client.acquire("paced", "a").deadline(secs(2)).await.unwrap();
    assert!(!denied.allowed && ms_since(began) < 50);
    let needed = denied.retry_after.unwrap();
    assert!(needed > secs(2) && needed <= secs(3), "{needed:?}");
    assert_eq!(cluster.granted("paced", "a"), 3, "no place was taken");
    assert!(client.acquire("paced", "a").deadline(needed).await.unwrap().allowed, "it was the deadline that it takes");
    assert!((2_900..3_100).contains(&ms_since(began)), "{}", ms_since(began));

    let never = client.acquire("paced", "b").cost(6).await.unwrap();
    assert_eq!((never.allowed, never.retry_after), (false, None));
}

#[tokio::test(start_paused = true)]
async fn where_the_queue_is_full_it_waits_to_get_in() {
    let (_cluster, client) = start().await;
    client.check("paced", "a").cost(5).await.unwrap();
    let began = Instant::now();
    assert!(client.acquire("paced", "a").cost(2).await.unwrap().allowed);
    assert!((5_000..5_100).contains(&ms_since(began)), "{}", ms_since(began));
}

#[tokio::test(start_paused = true)]
async fn under_another_algorithm_it_asks_again() {
    let (cluster, client) = start().await;
    client.check("bucket", "a").cost(2).await.unwrap();
    let began = Instant::now();
    let denied = client.acquire("bucket", "a").cost(2).deadline(Duration::from_millis(1_500)).await.unwrap();
    assert!(!denied.allowed && ms_since(began) < 50);
    assert!(client.acquire("bucket", "a").cost(2).deadline(denied.retry_after.unwrap()).await.unwrap().allowed);
    assert!((2_000..2_100).contains(&ms_since(began)), "{}", ms_since(began));
    assert_eq!(cluster.asked("bucket", "a"), 4);
}

#[tokio::test(start_paused = true)]
async fn who_goes_away_gives_the_place_back() {
    let (cluster, client) = start().await;
    client.check("paced", "a").await.unwrap();
    assert!(timeout(Duration::from_millis(500), client.acquire("paced", "a").into_future()).await.is_err());
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert_eq!((cluster.granted("paced", "a"), cluster.corrected("paced", "a")), (2, 1));
    let next = client.check("paced", "a").await.unwrap();
    assert!(next.delay.unwrap() < Duration::from_millis(500), "nobody waits behind who has gone: {next:?}");

    // Before its answer has come.
    client.check("paced", "b").await.unwrap();
    cluster.set_slow(secs(1) / 2);
    assert!(timeout(Duration::from_millis(100), client.acquire("paced", "b").into_future()).await.is_err());
    tokio::time::sleep(secs(2)).await;
    assert_eq!((cluster.granted("paced", "b"), cluster.corrected("paced", "b")), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn errors_come_through() {
    let (cluster, client) = start().await;
    cluster.set_unavailable(true);
    let began = Instant::now();
    let error = client.acquire("paced", "a").await.unwrap_err();
    assert_eq!((error.kind(), error.may_have_charged()), (ErrorKind::Unavailable, false));
    assert!(ms_since(began) <= 1_001, "it does not wait its whole deadline for a cluster that is not there");
    assert_eq!(client.acquire("paced", "").await.unwrap_err().kind(), ErrorKind::Invalid);
}
