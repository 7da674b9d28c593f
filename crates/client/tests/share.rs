//! What this process grants by itself is never more than its share, by any burst and over any span: held against the law, in
//! exact rationals, on the exact share of every number.
//!
//! `SEED=7 cargo test -p quorate-client --test share` repeats one seed; `SEEDS=1000` runs more.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test")]

mod fake;

use std::collections::BTreeMap;
use std::time::Duration;

use fake::{Fake, works};
use quorate_client::{Algorithm, Client, DecidedBy, OnUnavailable, Policy, PolicyId, Rate, Span};
use quorate_law::{Limiter, Rule, Time};
use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};
use tokio::time::sleep;

const CHECKS: usize = 200;

/// The share as a fraction.
#[derive(Clone, Copy, Debug)]
struct Share {
    part: u64,
    whole: u64,
}

impl Share {
    fn of(self, units: u64) -> u64 {
        (u128::from(units) * u128::from(self.part) / u128::from(self.whole)) as u64
    }

    /// The exact share of a rule; none where that is less than one place in a queue.
    fn rule(self, algorithm: Algorithm) -> Option<Rule> {
        let period = |rate: Rate| Time::from(rate.period.0) * Time::from(self.whole);
        Some(match algorithm {
            Algorithm::FixedWindow { limit, window } => {
                Rule::FixedWindow { limit: self.of(limit), window: window.0.into() }
            }
            Algorithm::SlidingLog { limit, window } => {
                Rule::SlidingLog { limit: self.of(limit), window: window.0.into() }
            }
            Algorithm::SlidingCounter { limit, window } => {
                Rule::SlidingCounter { limit: self.of(limit), window: window.0.into() }
            }
            Algorithm::TokenBucket { capacity, refill } => {
                let units = refill.units * self.part;
                Rule::TokenBucket { capacity: self.of(capacity), units, period: period(refill) }
            }
            Algorithm::LeakyBucket { queue, rate } => {
                let queue = self.of(queue + 1).checked_sub(1)?;
                Rule::LeakyBucket { queue, units: rate.units * self.part, period: period(rate) }
            }
        })
    }
}

fn policies(random: &mut SmallRng, wish: OnUnavailable) -> Vec<Policy> {
    let limit = |random: &mut SmallRng| [1, 4, 9, 30, 100][random.random_range(0..5)] + random.random_range(0..3);
    let window = Span([1_000_000, 7_000_000, 60_000_000][random.random_range(0..3)]);
    let rate = Rate { units: random.random_range(1..20), period: Span(random.random_range(100_000..2_000_000)) };
    let algorithms = [
        Algorithm::FixedWindow { limit: limit(random), window },
        Algorithm::SlidingLog { limit: limit(random), window },
        Algorithm::SlidingCounter { limit: limit(random), window },
        Algorithm::TokenBucket { capacity: limit(random), refill: rate },
        Algorithm::LeakyBucket { queue: limit(random), rate },
    ];
    let mut all = fake::policies();
    for algorithm in algorithms {
        all.push(Policy { on_unavailable: wish, ..Policy::new(algorithm.name(), algorithm) });
    }
    for (at, policy) in all.iter_mut().enumerate() {
        policy.id = PolicyId(at as u32 + 1);
    }
    all
}

/// The models of all keys, under the shares in force.
struct Models {
    algorithms: Vec<(String, Algorithm)>,
    share: Share,
    keys: BTreeMap<(usize, u8), Limiter>,
}

impl Models {
    /// What is taken as the rule where there is no share: the pace stays, so that what was used before is still known.
    fn rule(&self, policy: usize) -> Rule {
        let algorithm = self.algorithms[policy].1;
        self.share.rule(algorithm).unwrap_or_else(|| match algorithm {
            Algorithm::LeakyBucket { rate, .. } => {
                Rule::LeakyBucket { queue: 0, units: rate.units, period: rate.period.0.into() }
            }
            other => panic!("{other:?} has a share"),
        })
    }

    fn key(&mut self, policy: usize, key: u8) -> &mut Limiter {
        let rule = self.rule(policy);
        self.keys.entry((policy, key)).or_insert_with(|| Limiter::new(rule))
    }

    fn change(&mut self, now: Time, share: Share) {
        self.share = share;
        for (key, model) in std::mem::take(&mut self.keys) {
            let mut model = model;
            model.pass(now);
            let rule = self.rule(key.0);
            self.keys.insert(key, model.change(now, rule));
        }
    }
}

#[derive(Debug, Default)]
struct Tally {
    granted: u64,
    denied: u64,
    refunded: u64,
    stricter: u64,
}

#[test]
fn what_is_granted_here_is_within_the_share() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let seeds = match number("SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("SEEDS").unwrap_or(30),
    };
    let mut tally = Tally::default();
    for seed in seeds.clone() {
        println!("repeat with SEED={seed}");
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_time().start_paused(true).build().unwrap();
        runtime.block_on(history(seed, &mut tally));
    }
    println!("{tally:?}");
    if seeds.end - seeds.start >= 20 {
        assert!(tally.granted > 500 && tally.denied > 500 && tally.refunded > 50, "{tally:?}");
    }
}

async fn history(seed: u64, tally: &mut Tally) {
    let mut random = SmallRng::seed_from_u64(seed);
    let ppm = [None, None, Some(1_000_000), Some(100_000), Some(333_333), Some(random.random_range(1..=1_000_000))]
        [random.random_range(0..6)];
    let fake = Fake::new(1);
    let policies = policies(&mut random, OnUnavailable::Local { share_ppm: ppm });
    let algorithms = policies[policies.len() - 5..].iter().map(|one| (one.name.clone(), one.algorithm)).collect();
    fake.install(policies);
    let builder = fake.builder().deadline(Duration::from_millis(50));
    let client: Client = builder.connect_over(fake.wire(), seed).await.unwrap();
    works(&client, "warm").await.unwrap();
    // The shard has lost its leader for good; the node that is left still tells of the topology.
    fake.set_down(1, true);
    fake.set_down(2, true);
    let first = Share { part: u64::from(ppm.unwrap_or(1)), whole: ppm.map_or(1, |_| 1_000_000) };
    let mut models = Models { algorithms, share: first, keys: BTreeMap::new() };
    let mut changed = None;
    let mut charges = Vec::new();
    for id in 0..CHECKS as u64 {
        if ppm.is_none() && random.random_range(0..20) == 0 {
            let clients = random.random_range(1..=12);
            fake.set_live_clients(clients);
            while client.topology().live_clients != clients {
                sleep(Duration::from_millis(1)).await;
            }
            changed = Some(Share { part: 1, whole: clients });
        }
        let (policy, key) = (random.random_range(0..5), random.random_range(0..3_u8));
        let cost = [1, 1, 1, 2, 3, 7][random.random_range(0..6)];
        let name = models.algorithms[policy].0.clone();
        let decision = client.check(&name, format!("k{key}")).cost(cost).await.unwrap();
        assert_eq!(decision.decided_by, DecidedBy::Local);
        let now = Time::from(decision.receipt.stamp.0);
        if let Some(share) = changed.take() {
            models.change(now, share);
        }
        let (share, algorithm) = (models.share, models.algorithms[policy].1);
        let has_share = share.rule(algorithm).is_some();
        let model = models.key(policy, key);
        model.pass(now);
        let grants = model.grants(cost, None) && has_share;
        let what = || format!("seed {seed}, check {id}: {cost} of {name} k{key} on {share:?}: {decision:?}");
        assert!(!decision.allowed || grants, "over: {}", what());
        // Only periods are rounded, and not where the share is a whole part of them.
        if share.part == 1 || share.whole == 1 {
            assert_eq!(decision.allowed, grants, "{}", what());
            if has_share {
                assert_eq!(decision.limits[0].limit.to_string(), model.limit().to_string(), "{}", what());
            }
        }
        tally.stricter += u64::from(grants && !decision.allowed);
        if decision.allowed {
            tally.granted += 1;
            let charge = model.charge(now, id, cost, None);
            charges.push((policy, key, charge, decision, share.whole));
        } else {
            tally.denied += 1;
        }
        if random.random_range(0..12) == 0
            && let Some((policy, key, charge, decision, whole)) = charges.pop()
            // A charge of before its rate changed is gone.
            && whole == models.share.whole
        {
            let changed = client.refund(decision).await.unwrap();
            tally.refunded += changed as u64;
            let model = models.key(policy, key);
            model.pass(Time::from(decision_time(&client, &name).await));
            model.refund(&charge);
        }
        let wait = [0, 0, 50, 300, 2_000, 20_000][random.random_range(0..6)];
        sleep(Duration::from_millis(random.random_range(0..=wait))).await;
    }
}

/// What this process takes the time for.
async fn decision_time(client: &Client, policy: &str) -> i64 {
    client.check(policy, "time").cost(0).await.unwrap().receipt.stamp.0
}
