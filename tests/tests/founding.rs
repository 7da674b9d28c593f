//! How a cluster is made, and what may never be made of it.

use std::fs;
use std::process::Stdio;
use std::time::Duration;

use futures::FutureExt as _;
use quorate_client::admin::{Admin, NewCluster};
use quorate_client::{Client, ErrorKind};
use quorate_tests::tool::run;
use quorate_tests::{Cluster, command, until};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;

/// Asks one node to make a cluster of all.
async fn init_at(cluster: &Cluster, node: usize) -> Result<Vec<u8>, String> {
    let endpoints = cluster.endpoints();
    let admin = Admin::new([endpoints[node].clone()]).expect("it is an address").deadline(Duration::from_secs(30));
    let new = NewCluster { nodes: endpoints, shards: Some(1), ..NewCluster::default() };
    admin.cluster_init(new).await.map(|made| made.cluster_id).map_err(|error| error.to_string())
}

async fn listening(cluster: &Cluster) {
    for endpoint in cluster.endpoints() {
        until("the node listens", || async { TcpStream::connect(&endpoint).await.ok() }).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_is_asked_at_once_makes_the_same_cluster() {
    let cluster = Cluster::start(3);
    listening(&cluster).await;
    let asked = (0..3).map(|node| {
        let cluster = &cluster;
        async move { until("the cluster is made", || async { init_at(cluster, node).await.ok() }).await }
    });
    let made = futures::future::join_all(asked).await;
    assert!(made.iter().all(|id| *id == made[0]), "{made:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_lost_its_memory_is_not_let_in_under_its_old_id() {
    let mut cluster = Cluster::start(3);
    listening(&cluster).await;
    until("the cluster is made", || async { init_at(&cluster, 0).await.ok() }).await;

    cluster.kill(2);
    fs::remove_dir_all(cluster.data_directory(2)).expect("a stopped node's directory can be removed");
    cluster.restart(2);
    listening(&cluster).await;
    let refused = until("the emptied node refuses", || async {
        let refused = init_at(&cluster, 2).await.expect_err("an emptied node was made a member again");
        refused.contains("holds no place").then_some(refused)
    })
    .await;
    assert!(refused.contains(&cluster.endpoints()[2]), "{refused}");

    // Nor while the others are there only in part, or start anew.
    for node in 0..2 {
        assert!(cluster.stop(node));
        cluster.restart(node);
    }
    listening(&cluster).await;
    until("the emptied node refuses again", || async {
        let refused = init_at(&cluster, 2).await.expect_err("an emptied node was made a member again");
        refused.contains("holds no place").then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_data_directory_is_nobodys_without_its_record_and_nobody_elses() {
    let mut cluster = Cluster::start(1);
    listening(&cluster).await;
    until("the cluster is made", || async { init_at(&cluster, 0).await.ok() }).await;
    let directory = cluster.data_directory(0);

    // A copy of it, at another address, beside the node itself.
    assert!(cluster.stop(0));
    let copy = tempfile::tempdir().expect("a temporary directory can be made");
    copy_tree(&directory, copy.path());
    cluster.restart(0);
    listening(&cluster).await;
    let ended = command("quorated")
        .arg("--data-dir")
        .arg(copy.path())
        .args(["--listen", "127.0.0.1:0", "--advertise", "127.0.0.1:1"])
        .stdin(Stdio::null())
        .output()
        .expect("quorated can be started");
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(!ended.status.success() && said.contains("a copy of that node's data directory"), "{said}");

    // Without the file that says whose it is.
    assert!(cluster.stop(0));
    fs::remove_file(directory.join("member")).expect("it is there");
    let listen = cluster.endpoints()[0].clone();
    let arguments = ["--data-dir", directory.to_str().expect("it is UTF-8"), "--listen", &listen];
    let ended = run("quorated", arguments);
    assert!(ended.code != 0 && ended.stderr.contains("\"member\"") && ended.stderr.contains("log/"), "{ended:?}");
}

fn copy_tree(from: &std::path::Path, to: &std::path::Path) {
    fs::create_dir_all(to).expect("a directory can be made");
    for entry in fs::read_dir(from).expect("it can be listed").flatten() {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_tree(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).expect("a file can be copied");
        }
    }
}

/// Connections that say nothing take neither the places of those who speak for long, nor files from the log.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_say_nothing_do_not_stop_a_node() {
    const PLACES: usize = 64;
    let cluster = Cluster::start_with(1, &["--connections", "64"]);
    listening(&cluster).await;
    until("the cluster is made", || async { init_at(&cluster, 0).await.ok() }).await;
    let endpoints = cluster.endpoints();
    let client =
        until("a client is served", || Client::builder().endpoints(&endpoints).connect().map(Result::ok)).await;
    let served = || async { client.check("no-such-policy", "key").await.err().map(|error| error.kind()) };

    let mut silent = Vec::new();
    for _ in 0..2 * PLACES {
        silent.push(TcpStream::connect(&endpoints[0]).await.expect("the system accepts"));
    }
    assert_eq!(served().await, Some(ErrorKind::UnknownPolicy), "who was there before is served");
    // Half of them find no place, the others lose theirs.
    for stream in &mut silent {
        // The server may have begun to speak before it hangs up.
        while stream.read(&mut [0; 64]).await.is_ok_and(|bytes| bytes > 0) {}
    }
    until("another client is served", || Client::builder().endpoints(&endpoints).connect().map(Result::ok)).await;
    assert_eq!(served().await, Some(ErrorKind::UnknownPolicy));
    assert!(cluster.log(0).contains("connections are turned away"), "{}", cluster.log(0));
}
