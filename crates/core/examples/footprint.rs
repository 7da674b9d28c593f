//! Memory and time of one shard's table: bytes a key by the growth of the process (RSS), nanoseconds a check through
//! [`Shard::apply`], the time of a capture.
//!
//! `cargo run --release -p quorate-core --example footprint -- [keys] [checks a batch] [checks]` (default 10,000,000, 1 and 1,000,000). Linux only.
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a measurement: it prints, and reads the clock itself"
)]

use std::time::Instant;

use quorate_core::*;

fn rss() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

fn mix(i: u64) -> u64 {
    let z = (i ^ i >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

fn policies() -> PolicySet {
    let rate = Rate { units: 100, period: Span(60_000_000) };
    let algorithms = [
        Algorithm::TokenBucket { capacity: 200, refill: rate },
        Algorithm::FixedWindow { limit: 100, window: Span(3_600_000_000) },
        Algorithm::SlidingCounter { limit: 100, window: Span(3_600_000_000) },
    ];
    let policies = (1..).zip(algorithms).map(|(id, algorithm)| {
        let mut policy = Policy::new(format!("p{id}"), algorithm);
        policy.id = PolicyId(id);
        policy
    });
    PolicySet { version: PolicyVersion(1), policies: policies.collect() }
}

fn check(i: u64, policies: u64) -> Command {
    let policy = PolicyId((i % policies) as u32 + 1);
    let key = Fingerprint { table: mix(i), ring: mix(!i) };
    let limits = [Limit { policy, key, cost: Cost::ONE }].into_iter().collect();
    Command::Check(Check { limits, ..Check::default() })
}

struct Load {
    shard: Shard,
    index: u64,
    stamp: i64,
}

impl Load {
    fn apply(&mut self, commands: Vec<(u32, Command)>) {
        self.index += 1;
        self.stamp += 10;
        let batch = Batch { stamp: Stamp(self.stamp), groups: vec![Group { frame: None, commands }] };
        self.shard.apply(Term(1), Index(self.index), &batch, false);
    }
}

/// Nanoseconds a check of `count` checks in batches of `per`, drawn by `key`, the making of the batches taken off.
fn time(load: &mut Load, count: u64, per: u64, key: impl Fn(u64) -> Command) -> f64 {
    let mut spent = 0;
    let mut done = 0;
    while done < count {
        let batches: Vec<Batch> = (0..1024_u64.div_ceil(per))
            .map(|_| {
                let commands = (0..per).map(|place| (place as u32, key(done + place))).collect();
                done += per;
                load.stamp += 10;
                Batch { stamp: Stamp(load.stamp), groups: vec![Group { frame: None, commands }] }
            })
            .collect();
        let start = Instant::now();
        for batch in &batches {
            load.index += 1;
            load.shard.apply(Term(1), Index(load.index), batch, false);
        }
        spent += start.elapsed().as_nanos() as u64;
    }
    spent as f64 / done as f64
}

fn main() {
    let mut args = std::env::args().skip(1).map(|arg| arg.replace('_', "").parse::<u64>().unwrap());
    let (keys, per) = (args.next().unwrap_or(10_000_000), args.next().unwrap_or(1));
    let checks = args.next().unwrap_or(1_000_000);
    let mut load = Load { shard: Shard::new(ShardId(1), Arc::WHOLE), index: 0, stamp: 1_700_000_000_000_000 };
    load.apply(vec![(0, Command::Install(policies()))]);
    let before = rss();
    let start = Instant::now();
    for at in (0..keys).step_by(1000) {
        load.apply((at..keys.min(at + 1000)).map(|i| ((i - at) as u32, check(i, 3))).collect());
    }
    let held = load.shard.keys();
    println!("keys             {held}, entered in {:.0} ns each", start.elapsed().as_nanos() as f64 / keys as f64);
    println!("bytes a key      {:.1}", (rss() - before) as f64 / held as f64);

    let cold = time(&mut load, checks, per, |i| check(mix(i + 7) % keys, 3));
    println!("check, any key   {cold:.0} ns");
    let token = time(&mut load, checks, per, |i| check(mix(i + 9) % keys / 3 * 3, 3));
    println!("token bucket     {token:.0} ns");
    let hot = time(&mut load, checks, per, |i| check(i % 100 * 3, 3));
    println!("hot token bucket {hot:.0} ns");

    let start = Instant::now();
    let image = load.shard.capture();
    println!("capture          {:.1} us", start.elapsed().as_nanos() as f64 / 1e3);
    let copying = time(&mut load, checks / 3, per, |i| check(mix(i + 11) % keys, 3));
    println!("check, copying   {copying:.0} ns");
    let (start, mut bytes) = (Instant::now(), Count(0));
    image.write(&mut bytes).unwrap();
    println!("written          {:.1} MB in {:.2} s", bytes.0 as f64 / 1e6, start.elapsed().as_secs_f64());
    drop(image);

    let start = Instant::now();
    let mut ticks = 0;
    load.stamp += 7_200_000_000;
    while load.shard.keys() > 0 && ticks < 10_000 {
        load.stamp += 100_000;
        load.apply(vec![(0, Command::Tick)]);
        ticks += 1;
    }
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "swept            in {ticks} ticks of 100 ms, {seconds:.2} s, {:.1} MB left",
        (rss() - before) as f64 / 1e6
    );

    // What the allocator keeps for itself is used again: the same keys come back at no cost in memory.
    let emptied = rss();
    for at in (0..keys).step_by(1000) {
        load.apply((at..keys.min(at + 1000)).map(|i| ((i - at) as u32, check(i, 3))).collect());
    }
    let more = (rss() as f64 - emptied as f64) / 1e6;
    println!("entered again    {} keys, {more:.1} MB more than when empty", load.shard.keys());
}

struct Count(u64);

impl std::io::Write for Count {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
