//! Random histories under every fault at once: nothing is charged twice, and every answer is the state machine's.
//!
//! Each call has a key of its own, so that what it charged can be read off afterwards and held against what it was told.
//! `SEED=7 cargo test -p quorate-client --test histories` repeats one seed; `SEEDS=1000` runs more.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test")]

mod fake;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use fake::Fake;
use quorate_client::{Client, Decision, Error, limit};
use quorate_proto::v1;
use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};
use tokio::time::{sleep, timeout};

const SHARDS: u32 = 3;
const CALLERS: u64 = 12;
const CALLS: u64 = 40;

/// What may have been charged to a key.
#[derive(Debug)]
struct Told {
    key: String,
    least: u64,
    most: u64,
}

#[derive(Debug, Default)]
struct Tally {
    granted: u64,
    denied: u64,
    failed: u64,
    unsure: u64,
    dropped: u64,
    refunded: u64,
}

type Book = Arc<Mutex<(Vec<Told>, Tally)>>;

#[test]
fn nothing_is_charged_twice_and_every_answer_is_true() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let seeds = match number("SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("SEEDS").unwrap_or(60),
    };
    let mut all = Tally::default();
    for seed in seeds.clone() {
        println!("repeat with SEED={seed}");
        let (tally, _) = run(seed);
        println!("{tally:?}");
        all.granted += tally.granted;
        all.denied += tally.denied;
        all.failed += tally.failed;
        all.unsure += tally.unsure;
        all.dropped += tally.dropped;
        all.refunded += tally.refunded;
    }
    println!("{all:?}");
    if seeds.end - seeds.start >= 20 {
        let calls = CALLERS * CALLS * (seeds.end - seeds.start);
        assert!(all.granted > calls / 3 && all.denied > calls / 20, "{all:?}");
        assert!(all.unsure > 20 && all.failed > 20 && all.dropped > 20 && all.refunded > 20, "{all:?}");
    }
}

#[test]
fn the_same_seed_sends_the_same_bytes() {
    for seed in [3, 4] {
        let (first, second) = (run(seed).1, run(seed).1);
        assert_eq!(first.len(), second.len(), "SEED={seed}");
        let differs = first.iter().zip(&second).position(|(one, other)| one != other);
        assert_eq!(differs, None, "SEED={seed}: that frame differs");
    }
}

/// A history and every frame that came in it.
fn run(seed: u64) -> (Tally, Vec<v1::Frame>) {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_time().start_paused(true).rng_seed(tokio::runtime::RngSeed::from_bytes(&seed.to_le_bytes()));
    builder.build().unwrap().block_on(history(seed))
}

async fn history(seed: u64) -> (Tally, Vec<v1::Frame>) {
    let fake = Fake::new(SHARDS);
    let client = fake.builder().connect_over(fake.wire(), seed).await.unwrap();
    fake.chaos(Some(seed));
    let book = Book::default();
    let troubles = tokio::spawn(trouble(fake.clone(), seed));
    let callers: Vec<_> = (0..CALLERS)
        .map(|caller| {
            let rng = SmallRng::seed_from_u64(seed * 1_000 + caller);
            tokio::spawn(call(fake.clone(), client.clone(), book.clone(), caller, rng))
        })
        .collect();
    for caller in callers {
        caller.await.unwrap();
    }
    troubles.abort();
    heal(&fake).await;
    for shard_key in ["a", "b", "c", "d", "e", "f", "g", "h"] {
        let served = client.check("plenty", shard_key).deadline(Duration::from_secs(10)).await;
        assert!(served.unwrap().allowed, "it serves once the faults have stopped");
    }
    client.close().await;
    let (told, tally) = std::mem::take(&mut *book.lock().unwrap());
    for one in told {
        let used = fake.used("ten", &one.key);
        assert!((one.least..=one.most).contains(&used), "{one:?}: {used} was charged");
    }
    (tally, fake.frames())
}

/// Lets everything that is under way come to its end.
async fn heal(fake: &Fake) {
    fake.chaos(None);
    for node in 1..=3 {
        fake.set_down(node, false);
    }
    for shard in 1..=SHARDS {
        fake.elect(shard, u64::from(shard));
    }
    fake.publish();
    sleep(Duration::from_secs(10)).await;
}

/// Leaders move, nodes fall, streams break, sessions expire, news comes late.
async fn trouble(fake: Fake, seed: u64) {
    let mut rng = SmallRng::seed_from_u64(seed ^ 0xdead);
    loop {
        sleep(Duration::from_millis(rng.random_range(1..150))).await;
        let (node, shard) = (rng.random_range(1..=3), rng.random_range(1..=SHARDS));
        match rng.random_range(0..10) {
            0..3 => fake.elect(shard, rng.random_range(0..=3)),
            3..6 => fake.publish(),
            6 => fake.cut(node),
            7 => {
                fake.set_down(node, true);
                sleep(Duration::from_millis(rng.random_range(1..400))).await;
                fake.set_down(node, false);
            }
            8 => fake.expire_sessions(shard),
            _ => fake.install(fake::policies()),
        }
    }
}

async fn call(fake: Fake, client: Client, book: Book, caller: u64, mut rng: SmallRng) {
    for n in 0..CALLS {
        let key = format!("{caller}/{n}");
        let cost = rng.random_range(1..=12);
        sleep(Duration::from_micros(rng.random_range(0..30_000))).await;
        match rng.random_range(0..10) {
            0 => many(&fake, &client, &book, &key, &mut rng).await,
            1 => {
                let patience = Duration::from_micros(rng.random_range(0..30_000));
                let check = client.check("ten", key.as_str()).cost(cost);
                match timeout(patience, check.into_future()).await {
                    Ok(result) => note(&fake, &book, &key, cost, &result),
                    Err(_) => tell(&book, key, 0, cost, |tally| &mut tally.dropped),
                }
            }
            2 => {
                let deadline = Duration::from_millis(rng.random_range(1..200));
                let result = client.check("ten", key.as_str()).cost(cost).deadline(deadline).await;
                note(&fake, &book, &key, cost, &result);
            }
            3 => refunded(&fake, &client, &book, &key, cost).await,
            _ => {
                let result = client.check("ten", key.as_str()).cost(cost).await;
                note(&fake, &book, &key, cost, &result);
            }
        }
    }
}

use std::future::IntoFuture as _;

async fn many(fake: &Fake, client: &Client, book: &Book, key: &str, rng: &mut SmallRng) {
    let asked: Vec<_> =
        (0..rng.random_range(1..50)).map(|i| (format!("{key}/{i}"), rng.random_range(1..=12))).collect();
    let questions = asked.iter().map(|(key, cost)| limit("ten", key.as_str()).cost(*cost));
    for ((key, cost), result) in asked.iter().zip(client.check_many(questions).await) {
        note(fake, book, key, *cost, &result);
    }
}

async fn refunded(fake: &Fake, client: &Client, book: &Book, key: &str, cost: u64) {
    let decision = match client.check("ten", key).cost(cost).await {
        Ok(decision) if decision.allowed => decision,
        other => return note(fake, book, key, cost, &other),
    };
    match client.refund(decision).await {
        Ok(changed) => {
            assert_eq!(changed, 1);
            tell(book, key.to_owned(), 0, 0, |tally| &mut tally.refunded);
        }
        Err(error) if error.may_have_charged() => tell(book, key.to_owned(), 0, cost, |tally| &mut tally.unsure),
        Err(_) => tell(book, key.to_owned(), cost, cost, |tally| &mut tally.failed),
    }
}

fn note(fake: &Fake, book: &Book, key: &str, cost: u64, result: &Result<Decision, Error>) {
    let key = key.to_owned();
    match result {
        Ok(decision) => {
            fake.assert_true(decision);
            assert_eq!(decision.allowed, cost <= 10);
            assert_eq!(decision.limits[0].key, key);
            let charged = if decision.allowed { cost } else { 0 };
            tell(book, key, charged, charged, |tally| if charged > 0 { &mut tally.granted } else { &mut tally.denied });
        }
        Err(error) if error.may_have_charged() => tell(book, key, 0, cost, |tally| &mut tally.unsure),
        Err(_) => tell(book, key, 0, 0, |tally| &mut tally.failed),
    }
}

fn tell(book: &Book, key: String, least: u64, most: u64, counter: impl FnOnce(&mut Tally) -> &mut u64) {
    let mut book = book.lock().unwrap();
    // A cost above the limit is never charged.
    let (least, most) = if most > 10 { (0, 0) } else { (least, most) };
    book.0.push(Told { key, least, most });
    *counter(&mut book.1) += 1;
}
