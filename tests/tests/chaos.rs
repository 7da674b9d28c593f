//! Nodes killed again and again with charges in flight, then all at once: nothing is granted twice, beyond a limit, or forgotten.
//!
//! The short form runs with the other tests; `just chaos` runs the long one. `QUORATE_SEED` chooses who is killed and when.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures::stream::{self, StreamExt};
use quorate_client::Client;
use quorate_client::admin::{Admin, Apply, NewCluster};
use quorate_tests::health::{agree, has_recovered};
use quorate_tests::ledger::Ledger;
use quorate_tests::{Cluster, until};

/// How much of it: kills, keys, and what each key is granted.
struct Form {
    kills: u64,
    keys: usize,
    limit: u64,
}

const SHORT: Form = Form { kills: 4, keys: 1_000, limit: 25 };
const LONG: Form = Form { kills: 24, keys: 1_200, limit: 100 };
const CLIENTS: usize = 8;
const PATIENCE: Duration = Duration::from_secs(60);

/// What one client was told.
#[derive(Default)]
struct Told {
    granted: Vec<((u32, u64, u64, u32), usize)>,
    asked: BTreeMap<usize, u64>,
    failed: Vec<String>,
}

/// A generator that anyone can follow: splitmix64.
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}

fn name(key: usize) -> String {
    format!("key-{key}")
}

/// Asks all keys, round after round, until it is over and everything was asked more often than it is granted.
async fn ask(client: Client, form: &Form, first: usize, over: &AtomicBool, answered: &AtomicU64) -> Told {
    let mut told = Told::default();
    let rounds = form.limit / CLIENTS as u64 + 2;
    let mut round = 0;
    while round < rounds || !over.load(Ordering::Relaxed) {
        round += 1;
        let keys = (0..form.keys).map(|key| (key + first) % form.keys);
        let answers = stream::iter(keys).map(|key| {
            let client = &client;
            async move { (key, client.check("yearly", name(key)).deadline(PATIENCE).await) }
        });
        let mut answers = answers.buffer_unordered(32);
        while let Some((key, answer)) = answers.next().await {
            answered.fetch_add(1, Ordering::Relaxed);
            *told.asked.entry(key).or_default() += 1;
            match answer {
                Ok(decision) if decision.allowed => {
                    let receipt = decision.receipt;
                    told.granted.push(((receipt.shard.0, receipt.term.0, receipt.index.0, receipt.place), key));
                }
                Ok(_) => {}
                Err(error) => told.failed.push(format!("{}: {error}", name(key))),
            }
        }
    }
    told
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_again_and_again_it_neither_forgets_nor_grants_twice() {
    let form = if std::env::var_os("QUORATE_LONG").is_some() { &LONG } else { &SHORT };
    let seed = std::env::var("QUORATE_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let mut draw = Draw(seed);
    let mut cluster = Cluster::start(3);
    let admin = Admin::new(cluster.endpoints()).expect("endpoints are addresses").deadline(Duration::from_secs(30));
    let new = NewCluster { nodes: cluster.endpoints(), ..NewCluster::default() };
    until("the cluster is made", || async { admin.cluster_init(new.clone()).await.ok() }).await;
    let policy = format!(
        "[[policy]]\nname = \"yearly\"\nalgorithm = \"fixed_window\"\nlimit = {}\nwindow = \"366d\"\n",
        form.limit
    );
    let policies = quorate_core::policy_file::parse(&policy, "policies.toml").expect("the policy is right");
    admin.policy_apply(Apply { policies, ..Apply::default() }).await.expect("policies are applied");

    let (over, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let mut clients = tokio::task::JoinSet::new();
    for number in 0..CLIENTS {
        let client = Client::builder().endpoints(cluster.endpoints()).connect().await.expect("the cluster is reached");
        let (over, answered) = (Arc::clone(&over), Arc::clone(&answered));
        let form = if std::ptr::eq(form, &LONG) { &LONG } else { &SHORT };
        clients.spawn(async move { ask(client, form, number * form.keys / CLIENTS, &over, &answered).await });
    }
    let more = |than: u64| {
        let answered = Arc::clone(&answered);
        async move {
            until("checks are answered", || async { (answered.load(Ordering::Relaxed) > than).then_some(()) }).await;
        }
    };
    for _ in 0..form.kills {
        let victim = draw.below(3) as usize;
        more(answered.load(Ordering::Relaxed) + draw.below(2_000)).await;
        cluster.kill(victim);
        more(answered.load(Ordering::Relaxed) + draw.below(2_000)).await;
        cluster.restart(victim);
        has_recovered(&admin).await;
    }
    (0..3).for_each(|node| cluster.kill(node));
    (0..3).for_each(|node| cluster.restart(node));
    has_recovered(&admin).await;
    over.store(true, Ordering::Relaxed);

    let (mut ledger, mut granted, mut asked) =
        (Ledger::default(), BTreeMap::<usize, u64>::new(), BTreeMap::<usize, u64>::new());
    while let Some(told) = clients.join_next().await {
        let told = told.expect("a client does not panic");
        assert!(
            told.failed.is_empty(),
            "seed {seed}: {} without a decision: {:?}",
            told.failed.len(),
            told.failed.first()
        );
        for (place, key) in told.granted {
            ledger.add(place, name(key));
            *granted.entry(key).or_default() += 1;
        }
        for (key, count) in told.asked {
            *asked.entry(key).or_default() += count;
        }
    }
    for key in 0..form.keys {
        assert!(asked[&key] > form.limit, "{} was asked {} times only", name(key), asked[&key]);
        assert_eq!(granted.get(&key), Some(&form.limit), "granted to {} with seed {seed}", name(key));
    }
    agree(&admin).await;
    for node in 0..3 {
        assert!(cluster.stop(node), "a node ends in order");
        ledger.is_in_log_of(&cluster.data_directory(node));
    }
}
