//! Denials that were reported as wrong are seen by whoever runs the cluster, whichever nodes were told.

use std::time::Duration;

use quorate_client::admin::{Admin, Apply, NewCluster};
use quorate_client::{Client, Decision, ErrorKind};
use quorate_tests::{Cluster, until};

const POLICIES: &str = "\
[[policy]]\nname = \"yearly\"\nalgorithm = \"fixed_window\"\nlimit = 1\nwindow = \"366d\"\n
[[policy]]\nname = \"idle\"\nalgorithm = \"fixed_window\"\nlimit = 1\nwindow = \"366d\"\n";

async fn denial(client: &Client, key: &str) -> Decision {
    until("the key is denied", || async { client.check("yearly", key).await.ok().filter(|decision| !decision.allowed) })
        .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reports_are_summed_over_the_nodes() {
    let cluster = Cluster::start(3);
    let admin = Admin::new(cluster.endpoints()).expect("endpoints are addresses").deadline(Duration::from_secs(30));
    let new = NewCluster { nodes: cluster.endpoints(), shards: Some(6), ..NewCluster::default() };
    until("the cluster is made", || async { admin.cluster_init(new.clone()).await.ok() }).await;
    let policies = quorate_core::policy_file::parse(POLICIES, "policies.toml").expect("the policies are right");
    admin.policy_apply(Apply { policies, ..Apply::default() }).await.expect("policies are applied");
    let builder = Client::builder().endpoints(cluster.endpoints()).deadline(Duration::from_secs(60));
    let client = builder.connect().await.expect("the cluster can be reached");

    // Keys of all shards, so that several leaders are told.
    for key in 0..12 {
        let denied = denial(&client, &format!("key{key}")).await;
        client.report_false_positive(&denied, "a test\n\u{1b}[31mwith escapes").await.expect("a leader takes it");
    }
    let reports = admin.policy_reports().await.expect("a node answers");
    assert_eq!(reports.false_positives.into_iter().collect::<Vec<_>>(), [("yearly".to_owned(), 12)]);
    assert_eq!(reports.unheard, Vec::<String>::new());

    let denied = denial(&client, "last").await;
    admin.policy_remove(&["yearly"], None).await.expect("the policy is removed");
    let gone = client.report_false_positive(&denied, "").await.expect_err("it is no policy any more");
    assert_eq!(gone.kind(), ErrorKind::Invalid);
    assert!(admin.policy_reports().await.expect("a node answers").false_positives.is_empty());
}
