//! A client that begins while its cluster cannot be reached.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use quorate_client::testing::FakeCluster;
use quorate_client::{Client, ClientBuilder, DecidedBy, ErrorKind, Fallback, OnUnavailable, limit};
use tokio::time::{Instant, advance};

const POLICIES: &str = "\
[[policy]]\nname = \"one\"\nalgorithm = \"fixed_window\"\nlimit = 1\nwindow = \"1h\"\n
[[policy]]\nname = \"two\"\nalgorithm = \"fixed_window\"\nlimit = 5\nwindow = \"1h\"\non_unavailable = \"fail_open\"\n";
const DEADLINE: Duration = Duration::from_millis(50);
const PATIENCE: Duration = Duration::from_secs(5);

fn away() -> FakeCluster {
    let cluster = FakeCluster::from_toml(POLICIES).unwrap();
    cluster.set_unavailable(true);
    cluster
}

fn builder() -> ClientBuilder {
    Client::builder().deadline(DEADLINE).connect_timeout(PATIENCE)
}

#[tokio::test(start_paused = true)]
async fn a_call_waits_no_longer_than_its_deadline_and_later_not_at_all() {
    let cluster = away();
    let client = cluster.connect_lazily_with(builder()).unwrap();
    let begun = Instant::now();
    let error = client.check("one", "alice").await.unwrap_err();
    assert_eq!((error.kind(), error.may_have_charged()), (ErrorKind::Unavailable, false));
    assert!(error.to_string().contains("connection refused"), "{error}");
    assert!(begun.elapsed() >= DEADLINE && begun.elapsed() < DEADLINE * 2, "{:?}", begun.elapsed());
    advance(PATIENCE).await;
    let begun = Instant::now();
    for _ in 0..100 {
        assert_eq!(client.check("one", "alice").await.unwrap_err().kind(), ErrorKind::Unavailable);
        assert_eq!(client.reset("one", "alice").await.unwrap_err().kind(), ErrorKind::Unavailable);
    }
    assert_eq!(begun.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn what_code_says_is_done_and_nothing_else() {
    let cluster = away();
    let open = builder().on_unavailable("one", OnUnavailable::FailOpen);
    let client =
        cluster.connect_lazily_with(open.on_unavailable("mine", OnUnavailable::Local { share_ppm: None })).unwrap();
    advance(PATIENCE).await;
    let granted = client.check("one", "alice").await.unwrap();
    assert!(granted.allowed && granted.degraded);
    assert_eq!((granted.decided_by, granted.cause().unwrap().kind()), (DecidedBy::FailOpen, ErrorKind::Unavailable));
    // Nobody here knows what the policy in the cluster says, nor what a part of it would be.
    assert_eq!(client.check("two", "alice").await.unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(client.check("mine", "alice").await.unwrap_err().kind(), ErrorKind::Unavailable);
    let both = [limit("one", "alice"), limit("two", "alice")];
    assert_eq!(client.check_all(both).await.unwrap_err().kind(), ErrorKind::Unavailable);
    assert!(client.check("two", "alice").on_unavailable(Fallback::FailOpen).await.unwrap().allowed);
}

#[tokio::test(start_paused = true)]
async fn the_first_topology_is_waited_for_and_ends_it() {
    let cluster = away();
    let client = cluster.connect_lazily_with(builder()).unwrap();
    // Keys of several shards, so that the way is only known once the topology is.
    let key = (0..).map(|n| format!("bob{n}")).find(|key| !cluster.on_one_shard("alice", key)).unwrap();
    let both = client.check_all([limit("one", "alice"), limit("two", key.as_str())]).deadline(Duration::from_secs(60));
    let back = async {
        tokio::time::sleep(Duration::from_secs(2)).await;
        cluster.set_unavailable(false);
    };
    let (decided, ()) = tokio::join!(both, back);
    assert_eq!(decided.unwrap().decided_by, DecidedBy::Cluster);
    assert!(!client.check("one", "alice").deadline(PATIENCE).await.unwrap().allowed, "the first one was charged");
}

#[tokio::test(start_paused = true)]
async fn after_its_patience_it_still_finds_the_cluster() {
    let cluster = away();
    let client = cluster.connect_lazily_with(builder()).unwrap();
    advance(PATIENCE * 10).await;
    assert!(client.check("one", "alice").await.is_err());
    cluster.set_unavailable(false);
    let begun = Instant::now();
    while client.check("one", "alice").await.is_err() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(begun.elapsed() <= Duration::from_secs(2), "{:?}", begun.elapsed());
    assert_eq!(cluster.asked("one", "alice"), 1);
}

#[tokio::test]
async fn a_setting_that_cannot_be_is_refused_at_once() {
    let error = Client::builder().endpoints(["no address"]).connect_lazily().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
}
