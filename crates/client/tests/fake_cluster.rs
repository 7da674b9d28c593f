//! What a service's own tests get: the cluster without nodes, its clock, and every fault it can be given.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::time::Duration;

use quorate_client::testing::FakeCluster;
use quorate_client::{Client, ErrorKind, limit};

const POLICIES: &str = r#"
    [[policy]]
    name = "login"
    algorithm = "fixed_window"
    limit = 3
    window = "1m"

    [[policy]]
    name = "watched"
    algorithm = "fixed_window"
    limit = 3
    window = "1m"
    mode = "shadow"
"#;

const SHORT: Duration = Duration::from_millis(50);

async fn start() -> (FakeCluster, Client) {
    let cluster = FakeCluster::from_toml(POLICIES).unwrap();
    let client = cluster.connect_with(Client::builder().deadline(SHORT * 20)).await.unwrap();
    (cluster, client)
}

#[tokio::test]
async fn its_clock_stands_still_until_it_is_turned() {
    let (cluster, client) = start().await;
    for left in [2, 1, 0] {
        assert_eq!(client.check("login", "alice").await.unwrap().remaining, left);
    }
    for _ in 0..3 {
        let denied = client.check("login", "alice").await.unwrap();
        assert_eq!((denied.allowed, denied.retry_after), (false, Some(Duration::from_secs(60))));
    }
    cluster.advance(Duration::from_micros(59_999_999));
    let denied = client.check("login", "alice").await.unwrap();
    assert_eq!((denied.allowed, denied.retry_after), (false, Some(Duration::from_micros(1))));
    cluster.advance(Duration::from_micros(1));
    assert!(client.check("login", "alice").await.unwrap().allowed);
    assert_eq!((cluster.granted("login", "alice"), cluster.remaining("login", "alice")), (4, Some(2)));
}

#[tokio::test(start_paused = true)]
async fn what_it_was_asked_is_told() {
    let (cluster, client) = start().await;
    let taken = client.check("login", "alice").cost(2).await.unwrap();
    client.peek("login", "alice").await.unwrap();
    client.check("login", "alice").cost(2).await.unwrap();
    assert_eq!((cluster.asked("login", "alice"), cluster.denied("login", "alice")), (2, 1));
    assert_eq!(cluster.granted("login", "alice"), 2);
    client.refund(taken).await.unwrap();
    assert_eq!((cluster.corrected("login", "alice"), cluster.remaining("login", "alice")), (1, Some(3)));
    assert_eq!((cluster.asked("login", "bob"), cluster.asked("nonesuch", "bob")), (0, 0));
    assert_eq!(cluster.remaining("nonesuch", "bob"), None);
}

#[tokio::test(start_paused = true)]
async fn faults_come_and_go() {
    let (cluster, client) = start().await;
    let ask = async |key: &'static str| client.check("login", key).deadline(SHORT).await;
    assert!(ask("alice").await.unwrap().allowed);

    cluster.set_unavailable(true);
    let error = ask("alice").await.unwrap_err();
    assert_eq!((error.kind(), error.may_have_charged()), (ErrorKind::Unavailable, false));
    assert_eq!(cluster.connect().await.unwrap_err().kind(), ErrorKind::Unavailable);
    cluster.set_unavailable(false);
    assert!(client.check("login", "alice").await.unwrap().allowed);

    cluster.set_leaderless(true);
    let error = ask("alice").await.unwrap_err();
    assert!(!error.may_have_charged() && error.kind().is_transient(), "{error}");
    cluster.set_leaderless(false);
    assert!(client.check("login", "alice").await.unwrap().allowed);
    assert_eq!(cluster.granted("login", "alice"), 3);

    cluster.set_slow(SHORT * 2);
    let error = ask("{alice}/b").await.unwrap_err();
    assert_eq!((error.kind(), error.may_have_charged()), (ErrorKind::Deadline, true));
    cluster.set_slow(Duration::ZERO);
    assert_eq!(cluster.granted("login", "{alice}/b"), 1);
}

#[tokio::test(start_paused = true)]
async fn what_is_held_up_is_decided_when_it_is_released() {
    let (cluster, client) = start().await;
    client.check("login", "warm").await.unwrap();
    cluster.hang();
    let asked = tokio::spawn({
        let client = client.clone();
        async move { client.check("login", "alice").await }
    });
    tokio::time::sleep(SHORT).await;
    assert!(!asked.is_finished() && cluster.asked("login", "alice") == 0);
    cluster.release();
    assert!(asked.await.unwrap().unwrap().allowed);
    assert!(client.check("login", "alice").await.unwrap().allowed);
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_is_charged_once() {
    let (cluster, client) = start().await;
    client.check("login", "alice").await.unwrap();
    cluster.break_next_connection();
    assert_eq!(client.check("login", "alice").await.unwrap().remaining, 1, "it was told what was decided first");
    cluster.lose_next_answer();
    let error = client.check("login", "alice").deadline(SHORT).await.unwrap_err();
    assert!(error.may_have_charged());
    assert_eq!(cluster.granted("login", "alice"), 3);
}

#[tokio::test(start_paused = true)]
async fn answers_can_be_forced() {
    let (cluster, client) = start().await;
    cluster.deny("login", None).unwrap();
    let both = [limit("login", "{a}"), limit("watched", "{a}")];
    let denied = client.check_all(both.clone()).await.unwrap();
    assert_eq!((denied.allowed, denied.retry_after), (false, None));
    assert!(denied.limits[1].allowed && !denied.limits[1].charged);
    cluster.decide("login").unwrap();
    cluster.deny("watched", Some(SHORT)).unwrap();
    let watched = client.check("watched", "b").await.unwrap();
    assert!(watched.allowed && watched.shadow_denied, "shadow mode denies nothing");
    cluster.fail("login").unwrap();
    assert_eq!(client.check("login", "c").await.unwrap_err().kind(), ErrorKind::TableFull);
    assert_eq!(cluster.deny("nonesuch", None).unwrap_err().kind(), ErrorKind::UnknownPolicy);
    assert_eq!(cluster.granted("login", "{a}"), 0);
}

#[tokio::test(start_paused = true)]
async fn policies_are_checked_and_changed_as_a_cluster_does() {
    let bad = FakeCluster::from_toml("[[policy]]\nname = \"p\"\n").unwrap_err();
    assert_eq!(bad.kind(), ErrorKind::Invalid);
    assert!(bad.to_string().contains("policies:1"), "{bad}");
    assert!(FakeCluster::builder().toml(POLICIES).toml(POLICIES).build().is_err(), "names are used once");
    assert!(FakeCluster::builder().shards(0).build().is_err());

    let (cluster, client) = start().await;
    client.check("login", "alice").cost(3).await.unwrap();
    cluster
        .apply_toml("[[policy]]\nname = \"login\"\nalgorithm = \"fixed_window\"\nlimit = 5\nwindow = \"1m\"\n")
        .unwrap();
    assert_eq!(cluster.remaining("login", "alice"), Some(2), "what was charged stays charged");
    cluster
        .apply_toml("[[policy]]\nname = \"new\"\nalgorithm = \"fixed_window\"\nlimit = 1\nwindow = \"1m\"\n")
        .unwrap();
    assert!(client.check("new", "alice").await.unwrap().allowed, "and the others are still there");
    assert!(client.check("watched", "alice").await.unwrap().allowed);
}
