//! What is granted is never forgotten and never exceeded, whoever is killed.

use std::time::Duration;

use quorate_client::Client;
use quorate_client::admin::{Admin, Apply, NewCluster};
use quorate_tests::load::{Tally, ask};
use quorate_tests::{Cluster, until};

const LIMIT: u64 = 300;
/// Windows of a year: none ends while the test runs, unless it runs across one of the few edges in a lifetime.
const POLICIES: &str = r#"
    [[policy]]
    name = "yearly"
    algorithm = "fixed_window"
    limit = 300
    window = "366d"

    [[policy]]
    name = "drip"
    algorithm = "token_bucket"
    capacity = 300
    refill = "1/366d"
"#;

async fn cluster_with_policies() -> (Cluster, Admin) {
    let cluster = Cluster::start(3);
    let admin = Admin::new(cluster.endpoints()).expect("endpoints are addresses").deadline(Duration::from_secs(30));
    let new = NewCluster { nodes: cluster.endpoints(), ..NewCluster::default() };
    until("the cluster is made", || async { admin.cluster_init(new.clone()).await.ok() }).await;
    let policies = quorate_core::policy_file::parse(POLICIES, "policies.toml").expect("the policies are right");
    admin.policy_apply(Apply { policies, ..Apply::default() }).await.expect("policies are applied");
    (cluster, admin)
}

async fn connect(cluster: &Cluster) -> Client {
    Client::builder().endpoints(cluster.endpoints()).connect().await.expect("the cluster can be reached")
}

fn keys(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|number| format!("{prefix}-{number}")).collect()
}

/// Exactly the limit was granted to each key, and everything else was denied.
fn assert_exact(tally: &Tally, keys: &[String], asked: u64) {
    assert!(tally.failed.is_empty(), "checks without a decision: {:?}", &tally.failed[..tally.failed.len().min(5)]);
    for key in keys {
        assert_eq!(tally.granted.get(key).copied(), Some(LIMIT), "granted to {key}");
        assert_eq!(tally.denied.get(key).copied().unwrap_or(0), asked - LIMIT, "denied to {key}");
    }
}

/// The node that leads the shard of a key, found as a client would.
async fn leader_of(client: &Client, cluster: &Cluster, policy: &str, key: &str) -> usize {
    let shard =
        client.peek(policy, key).deadline(Duration::from_secs(30)).await.expect("a peek is answered").receipt.shard;
    let address = || async {
        let topology = client.topology();
        Some(topology.node(topology.shard(shard)?.leader?)?.address.clone())
    };
    let address = until("the shard has a leader", address).await;
    cluster.endpoints().iter().position(|endpoint| *endpoint == address).expect("a node of this cluster leads")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_leader_takes_nothing_with_it() {
    let (mut cluster, _admin) = cluster_with_policies().await;
    let keys = keys("leader", 8);
    let client = connect(&cluster).await;
    let leader = leader_of(&client, &cluster, "yearly", &keys[0]).await;

    let mut callers = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let (client, keys) = (connect(&cluster).await, keys.clone());
        callers.spawn(async move { ask(&client, "yearly", &keys, 120, 32).await });
    }
    let granted = || async {
        client
            .peek("yearly", &keys[0])
            .deadline(Duration::from_secs(1))
            .await
            .ok()
            .filter(|seen| seen.remaining < LIMIT - 20)
    };
    until("charges are in flight", granted).await;
    cluster.kill(leader);

    let mut tally = Tally::default();
    while let Some(part) = callers.join_next().await {
        tally.merge(part.expect("a caller does not panic"));
    }
    assert_exact(&tally, &keys, 480);

    cluster.restart(leader);
    let after = ask(&client, "yearly", &keys, 1, 8).await;
    assert_eq!(after.total_granted(), 0, "the node that came back grants nothing more");
    assert!(after.failed.is_empty(), "{:?}", after.failed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_nodes_killed_at_once_remember_every_charge() {
    let (mut cluster, _admin) = cluster_with_policies().await;
    let keys = keys("all", 12);
    let client = connect(&cluster).await;
    let before = ask(&client, "drip", &keys, 100, 64).await;
    assert!(before.failed.is_empty(), "{:?}", before.failed);
    assert_eq!(before.total_granted(), 1200);

    (0..3).for_each(|node| cluster.kill(node));
    (0..3).for_each(|node| cluster.restart(node));

    let mut tally = before;
    tally.merge(ask(&client, "drip", &keys, 260, 64).await);
    assert_exact(&tally, &keys, 360);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_agree_after_a_node_was_away() {
    let (mut cluster, admin) = cluster_with_policies().await;
    let client = connect(&cluster).await;
    cluster.kill(2);
    let away = ask(&client, "yearly", &keys("away", 200), 5, 64).await;
    assert_eq!((away.total_granted(), away.failed.len()), (1000, 0), "{:?}", away.failed);
    cluster.restart(2);
    let agreed = until("all replicas have applied the same and are equal", || async {
        let status = admin.status().await.ok()?;
        let equal = status.shards.iter().all(|shard| {
            shard.replicas.len() == 3
                && shard
                    .replicas
                    .windows(2)
                    .all(|pair| pair[0].applied_index == pair[1].applied_index && pair[0].digest == pair[1].digest)
        });
        equal.then_some(status)
    });
    let status = agreed.await;
    assert_eq!(status.shards.iter().map(|shard| shard.replicas[0].keys).sum::<u64>(), 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_asked_to_stop_ends_well() {
    let (mut cluster, _admin) = cluster_with_policies().await;
    let client = connect(&cluster).await;
    assert!(client.check("yearly", "x").deadline(Duration::from_secs(30)).await.expect("a decision").allowed);
    assert!(cluster.stop(0), "SIGTERM ends a node with exit code 0; it printed:\n{}", cluster.log(0));
    let decision = client.check("yearly", "x").deadline(Duration::from_secs(30)).await.expect("two nodes go on");
    assert_eq!(decision.remaining, LIMIT - 2);
}
