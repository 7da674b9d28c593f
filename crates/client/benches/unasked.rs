//! What a check costs that is not sent, in nanoseconds of CPU time: `cargo bench -p quorate-client --bench unasked`.
//!
//! A denial that is remembered, of one limit and of two; and a check while its shard's breaker is open, under a policy of each
//! kind. Beside them, what a check takes that goes to the cluster in memory and back. The least and the median of the rounds are
//! told, for one thread.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a measurement")]

mod cpu;

use std::hint::black_box;
use std::time::Duration;

use quorate_client::testing::FakeCluster;
use quorate_client::{Client, DecidedBy, limit};
use tokio::time::Instant;

const ROUNDS: usize = 9;
const TIMES: u32 = 200_000;
const KEY: &str = "customer-4711/endpoint-12";
const POLICIES: &str = r#"
[[policy]]
name = "per-user"
algorithm = "fixed_window"
limit = 1
window = "1h"
[[policy]]
name = "closed"
algorithm = "token_bucket"
capacity = 1000000
refill = "1000000/s"
on_unavailable = "fail_closed"
[[policy]]
name = "open"
algorithm = "token_bucket"
capacity = 1000000
refill = "1000000/s"
on_unavailable = "fail_open"
[[policy]]
name = "local"
algorithm = "token_bucket"
capacity = 1000000000
refill = "1000000/s"
on_unavailable = "local"
share = 0.5
"#;

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let cluster = FakeCluster::builder().toml(POLICIES).shards(1).build().unwrap();
        let remembering = Client::builder().remember_denials(Duration::from_secs(3_600));
        let client = cluster.connect_with(remembering).await.unwrap();
        let pair = [limit("per-user", "{acme}"), limit("per-user", "{acme}/7")];
        client.check("per-user", KEY).await.unwrap();
        client.check_all(pair.clone()).await.unwrap();
        assert!(!client.check("per-user", KEY).await.unwrap().allowed);
        assert!(!client.check_all(pair.clone()).await.unwrap().allowed);
        tell("asked, in memory", TIMES / 50, || async {
            black_box(client.peek("per-user", KEY).await.unwrap());
        })
        .await;
        tell("remembered, one limit", TIMES, || async {
            assert!(black_box(client.check("per-user", KEY).await.unwrap()).remembered);
        })
        .await;
        tell("remembered, two limits", TIMES, || async {
            assert!(black_box(client.check_all(pair.clone()).await.unwrap()).remembered);
        })
        .await;

        cluster.hang();
        breaker_opens(&client).await;
        tell("breaker open, fail_closed", TIMES, || async {
            assert!(black_box(client.check("closed", KEY).await).unwrap_err().kind().is_unavailable());
        })
        .await;
        for (policy, by) in [("open", DecidedBy::FailOpen), ("local", DecidedBy::Local)] {
            let what = format!("breaker open, {by}");
            tell(&what, TIMES, || async {
                assert_eq!(black_box(client.check(policy, KEY).await.unwrap()).decided_by, by);
            })
            .await;
        }
    });
}

/// Asks until an answer comes without any wait.
async fn breaker_opens(client: &Client) {
    loop {
        let asked = Instant::now();
        let refused = client.check("closed", KEY).await.unwrap_err();
        if refused.kind().is_unavailable() && asked.elapsed() < Duration::from_micros(100) {
            return;
        }
    }
}

async fn tell<F: Future<Output = ()>>(what: &str, times: u32, mut once: impl FnMut() -> F) {
    let mut all = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        all.push(cpu::each(times, &mut once).await);
    }
    all.sort_unstable();
    println!("{what}: {} ns, median {}", all[0], all[ROUNDS / 2]);
}
