//! Snapshots on real disks: the log is purged, a node that was away for long is sent one, one that lost its own fetches another's.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use quorate_client::admin::{Admin, Apply, ClusterStatus, NewCluster};
use quorate_client::{Client, limit};
use quorate_tests::{Cluster, until};

const KEYS: usize = 4_000;
const POLICY: &str =
    "[[policy]]\nname = \"yearly\"\nalgorithm = \"fixed_window\"\nlimit = 1000000\nwindow = \"366d\"\n";

/// Bytes of log that call for a snapshot: the least that can be set.
const FLAGS: [&str; 4] = ["--snapshot-log-bytes", "1048576", "--log-segment-bytes", "1048576"];

async fn charge(client: &Client, rounds: usize) {
    let keys: Vec<String> = (0..KEYS).map(|key| format!("key-{key}")).collect();
    for _ in 0..rounds {
        for keys in keys.chunks(500) {
            let asked = client.check_many(keys.iter().map(|key| limit("yearly", key.as_str())));
            for decision in asked.deadline(Duration::from_secs(60)).await {
                assert!(decision.expect("a decision").allowed);
            }
        }
    }
}

fn snapshots(cluster: &Cluster, node: usize) -> Vec<PathBuf> {
    let entries = fs::read_dir(cluster.data_directory(node).join("snapshots")).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> =
        entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|end| end == "snap")).collect();
    paths.sort();
    paths
}

/// Every replica has applied the same, and is equal.
async fn agree(admin: &Admin) -> ClusterStatus {
    until("all replicas have applied the same and are equal", || async {
        let status = admin.status().await.ok()?;
        let replicas = &status.shards.first()?.replicas;
        let same =
            replicas.len() == 3 && replicas.windows(2).all(|pair| pair[0].applied_index == pair[1].applied_index);
        if same {
            assert!(replicas.windows(2).all(|pair| pair[0].digest == pair[1].digest), "replicas differ: {replicas:?}");
        }
        same.then_some(status)
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_log_no_longer_holds_comes_from_a_snapshot() {
    let mut cluster = Cluster::start_with(3, &FLAGS);
    let admin = Admin::new(cluster.endpoints()).expect("endpoints are addresses").deadline(Duration::from_secs(30));
    let new = NewCluster { nodes: cluster.endpoints(), shards: Some(1), ..NewCluster::default() };
    until("the cluster is made", || async { admin.cluster_init(new.clone()).await.ok() }).await;
    let policies = quorate_core::policy_file::parse(POLICY, "policies.toml").expect("the policy is right");
    admin.policy_apply(Apply { policies, ..Apply::default() }).await.expect("policies are applied");
    let client = Client::builder().endpoints(cluster.endpoints()).connect().await.expect("the cluster is reached");

    // One is away while the others take snapshots and purge: what it missed is in no log any more.
    cluster.kill(2);
    // The log is purged up to the first of them before a third takes its place.
    let mut rounds = 0;
    let mut first = [None, None];
    let gone = |node: usize, first: &mut Option<PathBuf>| {
        let now = snapshots(&cluster, node);
        *first = first.take().or_else(|| now.first().cloned());
        first.as_ref().is_some_and(|first| !now.contains(first))
    };
    while !(gone(0, &mut first[0]) & gone(1, &mut first[1])) {
        charge(&client, 1).await;
        rounds += 1;
        assert!(rounds < 1_000, "no snapshot after {rounds} rounds of {KEYS} charges");
    }
    charge(&client, 1).await;
    rounds += 1;
    cluster.restart(2);
    let status = agree(&admin).await;
    assert_eq!(status.shards[0].replicas[2].keys, KEYS as u64);
    let bytes: u64 = status.shards[0].replicas.iter().map(|replica| replica.log_bytes).max().expect("three replicas");
    assert!(bytes < 8 << 20, "the log is purged: {bytes} bytes");

    // Its snapshots rot while it is down, all of them.
    let rotten = snapshots(&cluster, 0);
    cluster.kill(0);
    for path in &rotten {
        let mut bytes = fs::read(path).expect("a snapshot can be read");
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(path, bytes).expect("a snapshot can be written");
    }
    cluster.restart(0);
    agree(&admin).await;
    assert!(cluster.log(0).contains("a lost snapshot was replaced"), "{}", cluster.log(0));

    // All of them go on from their snapshots, and every charge is still counted.
    (0..3).for_each(|node| cluster.kill(node));
    (0..3).for_each(|node| cluster.restart(node));
    let seen = client.peek("yearly", "key-7").deadline(Duration::from_secs(60)).await.expect("a peek is answered");
    assert_eq!(seen.remaining, 1_000_000 - rounds as u64);
    agree(&admin).await;
}
