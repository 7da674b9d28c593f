//! Time of a check in the core, beside other limiters in one process, on one thread.
//!
//! `cargo bench -p quorate-bench --bench checks -- [filter]`. Ten million keys take minutes and gigabytes, and are left out
//! unless `QUORATE_LONG=1`.
#![allow(missing_docs, reason = "criterion makes the entry points")]

use std::hint::black_box;
use std::num::NonZeroU32;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use governor::{Quota, RateLimiter};
use quorate_bench::keys::{self, Spread};
use quorate_bench::load::{BATCH, Load, algorithms};
use quorate_bench::plain_map::PlainMap;

/// Texts that are asked before they are asked again: more than caches hold of a large table.
const DRAWS: u64 = 1 << 20;

fn sizes() -> Vec<u64> {
    let mut sizes = vec![10_000, 100_000, 1_000_000];
    if std::env::var_os("QUORATE_LONG").is_some() {
        sizes.push(10_000_000);
    }
    sizes
}

/// Measures batches of checks of texts that are drawn so.
fn measure(
    c: &mut Criterion,
    group: &str,
    name: &str,
    keys: u64,
    spread: Spread,
    mut batch: impl FnMut(&[String]) -> usize,
) {
    let texts = keys::drawn(keys, spread, DRAWS.min(keys * 16));
    let mut batches = texts.chunks_exact(BATCH).cycle();
    let mut group = c.benchmark_group(format!("{group}/{}", format!("{spread:?}").to_lowercase()));
    group.throughput(Throughput::Elements(BATCH as u64)).warm_up_time(Duration::from_secs(1));
    group.measurement_time(Duration::from_secs(3)).sample_size(20);
    group.bench_function(BenchmarkId::new(name, keys), |b| {
        b.iter(|| {
            let granted = batch(batches.next().unwrap_or_default());
            assert_eq!(black_box(granted), BATCH, "a check was denied: this is not what is to be measured");
        });
    });
}

fn core(c: &mut Criterion) {
    for algorithm in algorithms() {
        for keys in sizes() {
            // Every granted check of a sliding log stays for its window: memory bounds how many can be measured.
            if algorithm == "sliding_log" && keys > 100_000 {
                continue;
            }
            let mut load = Load::new(&algorithm, keys);
            for spread in [Spread::Hot, Spread::Cold] {
                measure(c, "core", &algorithm, keys, spread, |texts| load.check(&algorithm, texts));
            }
        }
    }
}

/// The same with every answer remembered, until the client has it.
fn session(c: &mut Criterion) {
    let mut load = Load::new("token_bucket", 100_000).with_session();
    measure(c, "core", "token_bucket through a session", 100_000, Spread::Cold, |texts| {
        load.check("token_bucket", texts)
    });
}

fn governor(c: &mut Criterion) {
    const PLENTY: NonZeroU32 = NonZeroU32::new(1_000_000_000).expect("it is not 0");
    for keys in sizes() {
        let limiter = RateLimiter::dashmap(Quota::per_hour(PLENTY));
        for number in 0..keys {
            let _ = limiter.check_key(&keys::text(number));
        }
        for spread in [Spread::Hot, Spread::Cold] {
            measure(c, "others", "governor", keys, spread, |texts| {
                texts.iter().filter(|text| limiter.check_key(text).is_ok()).count()
            });
        }
    }
}

fn plain_map(c: &mut Criterion) {
    for keys in sizes() {
        let mut map = PlainMap::new(1_000_000_000, 3_600);
        for number in 0..keys {
            let _ = map.check(&keys::text(number));
        }
        for spread in [Spread::Hot, Spread::Cold] {
            measure(c, "others", "hash map", keys, spread, |texts| texts.iter().filter(|text| map.check(text)).count());
        }
    }
}

criterion_group!(checks, core, session, governor, plain_map);
criterion_main!(checks);
