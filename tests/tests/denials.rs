//! A flood of denials costs the log nothing.

use std::time::Duration;

use quorate_client::admin::{Admin, Apply, ClusterStatus, NewCluster};
use quorate_client::{Client, limit};
use quorate_tests::{Cluster, until};

const POLICY: &str = "[[policy]]\nname = \"yearly\"\nalgorithm = \"fixed_window\"\nlimit = 10\nwindow = \"366d\"\n";

/// How far the replicas have applied the only shard's log.
fn applied(status: &ClusterStatus) -> Vec<quorate_client::Index> {
    status.shards.iter().flat_map(|shard| shard.replicas.iter().map(|replica| replica.applied_index)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_denials_writes_nothing_to_the_log() {
    let cluster = Cluster::start(3);
    let admin = Admin::new(cluster.endpoints()).expect("endpoints are addresses").deadline(Duration::from_secs(30));
    let new = NewCluster { nodes: cluster.endpoints(), shards: Some(1), ..NewCluster::default() };
    until("the cluster is made", || async { admin.cluster_init(new.clone()).await.ok() }).await;
    let policies = quorate_core::policy_file::parse(POLICY, "policies.toml").expect("the policy is right");
    admin.policy_apply(Apply { policies, ..Apply::default() }).await.expect("policies are applied");
    let client = Client::builder()
        .endpoints(cluster.endpoints())
        .deadline(Duration::from_secs(60))
        .remember_denials(Duration::ZERO)
        .connect()
        .await
        .expect("the cluster can be reached");

    let granted = client.check("yearly", "alice").cost(10).await.expect("a decision");
    assert!(granted.allowed && granted.receipt.is_logged());
    // The first denial tells the leader which key to look at; from then on the log is left alone while the lease holds.
    until("a denial is answered without the log", || async {
        let denied = client.check("yearly", "alice").await.expect("a decision");
        assert!(!denied.allowed && denied.retry_after.is_some());
        (!denied.receipt.is_logged()).then_some(())
    })
    .await;

    // A busy machine may starve the lease now and then; then the log is asked, and rightly. So: as long as it takes for one
    // whole flood that it was not.
    until("a flood goes by without the log", || async {
        let before = admin.status().await.ok()?;
        for decision in client.check_many((0..2_000).map(|_| limit("yearly", "alice"))).await {
            assert!(!decision.expect("a decision").allowed);
        }
        let after = admin.status().await.ok()?;
        let (before, after) = (applied(&before), applied(&after));
        (before.len() == 3 && before == after).then_some(())
    })
    .await;
    let others = client.check("yearly", "bob").await.expect("a decision");
    assert!(others.allowed && others.receipt.is_logged());
}
