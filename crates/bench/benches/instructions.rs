//! Instructions of a check in the core, counted by callgrind: the same on a busy machine as on an idle one.
//!
//! `cargo bench -p quorate-bench --bench instructions`. Each count is of [`CHECKS`] checks in batches, of any of so many
//! keys. Ten million keys take many minutes to be entered under valgrind, and are left out unless `QUORATE_LONG=1`.

#![allow(clippy::print_stderr, reason = "it speaks to whoever runs it")]
#![allow(missing_docs, reason = "gungraun makes the entry points")]

use std::hint::black_box;
use std::num::NonZeroU32;
use std::process::{Command, ExitCode, Stdio};

use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use gungraun::{library_benchmark, library_benchmark_group};
use quorate_bench::keys::{self, Spread};
use quorate_bench::load::{BATCH, Load};
use quorate_bench::plain_map::PlainMap;

/// Checks of one count.
const CHECKS: usize = 80 * BATCH;

/// The release of gungraun that `Cargo.toml` names; the runner has to be of the same.
const RUNNER: &str = "0.20.0";

/// A limiter that holds its keys, and what it will be asked.
struct Ready<L> {
    limiter: L,
    texts: Vec<String>,
}

fn ready<L>(limiter: L, keys: u64) -> Ready<L> {
    Ready { limiter, texts: keys::drawn(keys, Spread::Cold, CHECKS as u64) }
}

fn held(policy: &'static str, keys: u64) -> Ready<(Load, &'static str)> {
    ready((Load::new(policy, keys), policy), keys)
}

fn held_in_session(policy: &'static str, keys: u64) -> Ready<(Load, &'static str)> {
    ready((Load::new(policy, keys).with_session(), policy), keys)
}

fn governed(keys: u64) -> Ready<DefaultKeyedRateLimiter<String>> {
    const PLENTY: NonZeroU32 = NonZeroU32::new(1_000_000_000).expect("it is not 0");
    let limiter = RateLimiter::dashmap(Quota::per_hour(PLENTY));
    for number in 0..keys {
        let _ = limiter.check_key(&keys::text(number));
    }
    ready(limiter, keys)
}

fn mapped(keys: u64) -> Ready<PlainMap> {
    let mut map = PlainMap::new(1_000_000_000, 3_600);
    for number in 0..keys {
        let _ = map.check(&keys::text(number));
    }
    ready(map, keys)
}

#[library_benchmark]
#[bench::token_bucket_10k(args = ("token_bucket", 10_000), setup = held)]
#[bench::token_bucket_100k(args = ("token_bucket", 100_000), setup = held)]
#[bench::token_bucket_1m(args = ("token_bucket", 1_000_000), setup = held)]
#[bench::token_bucket_100k_session(args = ("token_bucket", 100_000), setup = held_in_session)]
#[bench::fixed_window_100k(args = ("fixed_window", 100_000), setup = held)]
#[bench::sliding_counter_100k(args = ("sliding_counter", 100_000), setup = held)]
#[bench::leaky_bucket_100k(args = ("leaky_bucket", 100_000), setup = held)]
#[bench::sliding_log_10k(args = ("sliding_log", 10_000), setup = held)]
fn in_core(mut ready: Ready<(Load, &'static str)>) -> Ready<(Load, &'static str)> {
    let (load, policy) = &mut ready.limiter;
    let granted: usize = ready.texts.chunks(BATCH).map(|texts| load.check(policy, texts)).sum();
    assert_eq!(black_box(granted), CHECKS);
    // It is given back so that its end is not counted.
    ready
}

#[library_benchmark]
#[bench::governor_100k(args = (100_000), setup = governed)]
fn in_governor(ready: Ready<DefaultKeyedRateLimiter<String>>) -> Ready<DefaultKeyedRateLimiter<String>> {
    let granted = ready.texts.iter().filter(|text| ready.limiter.check_key(text).is_ok()).count();
    assert_eq!(black_box(granted), CHECKS);
    ready
}

#[library_benchmark]
#[bench::hash_map_100k(args = (100_000), setup = mapped)]
fn in_hash_map(mut ready: Ready<PlainMap>) -> Ready<PlainMap> {
    let granted = ready.texts.iter().filter(|text| ready.limiter.check(text)).count();
    assert_eq!(black_box(granted), CHECKS);
    ready
}

#[library_benchmark]
#[bench::token_bucket_10m(args = ("token_bucket", 10_000_000), setup = held)]
fn many_keys(mut ready: Ready<(Load, &'static str)>) -> Ready<(Load, &'static str)> {
    let (load, policy) = &mut ready.limiter;
    let granted: usize = ready.texts.chunks(BATCH).map(|texts| load.check(policy, texts)).sum();
    assert_eq!(black_box(granted), CHECKS);
    ready
}

library_benchmark_group!(name = checks, benchmarks = [in_core, in_governor, in_hash_map]);
library_benchmark_group!(name = long, benchmarks = [many_keys]);

mod usual {
    use super::checks;
    gungraun::main!(library_benchmark_groups = checks);

    pub(super) fn run() {
        main();
    }
}

mod all {
    use super::{checks, long};
    gungraun::main!(library_benchmark_groups = checks, long);

    pub(super) fn run() {
        main();
    }
}

fn main() -> ExitCode {
    // The runner calls this program again, under valgrind and with no environment, for each count.
    if std::env::args().any(|arg| arg == "--gungraun-run") {
        all::run();
        return ExitCode::SUCCESS;
    }
    let mut missing = Vec::new();
    if !runs("valgrind") {
        missing.push("valgrind (Debian: apt-get install valgrind)".to_owned());
    }
    if std::env::var_os("GUNGRAUN_RUNNER").is_none() && !runs("gungraun-runner") {
        missing.push(format!("gungraun-runner (cargo install gungraun-runner --locked --version {RUNNER})"));
    }
    if !missing.is_empty() {
        eprintln!("instructions: counting them needs {}; install it and try again", missing.join(" and "));
        return ExitCode::from(2);
    }
    if std::env::var_os("QUORATE_LONG").is_some() {
        all::run()
    } else {
        usual::run()
    }
    ExitCode::SUCCESS
}

/// Whether there is a program of that name that can be run.
fn runs(program: &str) -> bool {
    Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}
