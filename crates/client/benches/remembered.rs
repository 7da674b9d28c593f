//! What a remembered denial costs at `client.check`, in nanoseconds: `cargo bench -p quorate-client`.
//!
//! The client is asked the same denied check over and over, alone and by several threads at once, and beside it what a check is
//! that goes to the cluster in memory and back.

#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::disallowed_methods, reason = "a measurement")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use quorate_client::testing::FakeCluster;
use quorate_client::{Client, limit};

const TIMES: u32 = 2_000_000;

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap();
    runtime.block_on(async {
        let policies = "[[policy]]\nname = \"per-user\"\nalgorithm = \"fixed_window\"\nlimit = 1\nwindow = \"1h\"\n";
        let cluster = FakeCluster::from_toml(policies).unwrap();
        let client =
            cluster.connect_with(Client::builder().remember_denials(Duration::from_secs(3_600))).await.unwrap();
        let key = "customer-4711/endpoint-12";
        let pair = [limit("per-user", "{acme}"), limit("per-user", "{acme}/7")];
        client.check("per-user", key).await.unwrap();
        client.check_all(pair.clone()).await.unwrap();
        assert!(!client.check("per-user", key).await.unwrap().allowed);
        assert!(!client.check_all(pair.clone()).await.unwrap().allowed);
        for _ in 0..3 {
            tell("remembered, one limit", TIMES, one(&client, key, TIMES).await);
            let began = Instant::now();
            for _ in 0..TIMES / 4 {
                assert!(black_box(client.check_all(pair.clone()).await.unwrap()).remembered);
            }
            tell("remembered, two limits", TIMES / 4, began.elapsed());
            let (a, b) = (client.clone(), client.clone());
            let began = Instant::now();
            let tasks = [a, b].map(|client| tokio::spawn(async move { one(&client, key, TIMES).await }));
            for task in tasks {
                task.await.unwrap();
            }
            tell("remembered, two threads on one key", TIMES, began.elapsed());
            let began = Instant::now();
            for _ in 0..TIMES / 100 {
                black_box(client.peek("per-user", key).await.unwrap());
            }
            tell("asked, in memory", TIMES / 100, began.elapsed());
        }
    });
}

async fn one(client: &Client, key: &str, times: u32) -> Duration {
    let began = Instant::now();
    for _ in 0..times {
        assert!(black_box(client.check("per-user", key).await.unwrap()).remembered);
    }
    began.elapsed()
}

fn tell(what: &str, times: u32, took: Duration) {
    println!("{what}: {} ns", took.as_nanos() / u128::from(times));
}
