//! Clients that ask, each for itself, until they are told to stop.

use std::future::IntoFuture as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use quorate_client::{Charge, Client, Decision, Error, Question, limit};
use quorate_core::{Algorithm, Mode, Policy, Rate, Span};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use tokio::time::Instant;

use crate::fired::{Fault, Fired};
use crate::history::{Asked, Call, History, Outcome};
use crate::net::Machine;
use crate::peers::address;
use crate::wire::SimWire;

/// The policy that tells calls from each other.
pub const TAGS: &str = "tags";
/// The policies that keys are asked about, one for each algorithm and one that only watches.
const POLICIES: [&str; 6] = ["window", "log", "counter", "bucket", "leaky", "shadow"];
/// Keys under each of them that all clients ask about.
const KEYS: usize = 16;
/// Keys that a client floods, which the others ask about and reset too.
const HOT: usize = 4;
/// Calls that one client has under way at most.
const UNDER_WAY: usize = 24;

/// A charge, and what was asked for it.
type Kept = (Charge, Vec<Asked>);

/// The policies of a world.
pub fn policies() -> Vec<Policy> {
    let second = |seconds: i64| Span(seconds * 1_000_000);
    let rate = |units, seconds| Rate { units, period: second(seconds) };
    let mut shadow = Policy::new("shadow", Algorithm::TokenBucket { capacity: 5, refill: rate(3, 1) });
    shadow.mode = Mode::Shadow;
    vec![
        Policy::new("window", Algorithm::FixedWindow { limit: 12, window: second(4) }),
        Policy::new("log", Algorithm::SlidingLog { limit: 9, window: second(3) }),
        Policy::new("counter", Algorithm::SlidingCounter { limit: 12, window: second(4) }),
        bucket(0),
        Policy::new("leaky", Algorithm::LeakyBucket { queue: 5, rate: rate(3, 1) }),
        shadow,
        Policy::new(TAGS, Algorithm::FixedWindow { limit: 1_000, window: second(366 * 24 * 3600) }),
    ]
}

/// The policy that is changed while it is asked, as it is after so many changes.
pub fn bucket(changes: u64) -> Policy {
    let capacity = [8, 14, 5, 20][changes as usize % 4];
    Policy::new("bucket", Algorithm::TokenBucket { capacity, refill: Rate { units: 4, period: Span(1_000_000) } })
}

/// One client of the load.
#[derive(Clone)]
pub struct Load {
    /// Its number.
    pub number: usize,
    /// Whether it does nothing but ask what is denied.
    pub floods: bool,
    /// Whether all the others do little, and give nothing back.
    pub calm: bool,
    /// The machines that nodes run on.
    pub nodes: usize,
    /// Its way to them.
    pub wire: SimWire,
    /// Where it is counted what went wrong.
    pub fired: Fired,
    /// Where everything is written down.
    pub history: History,
    /// Stops it.
    pub stop: Arc<AtomicBool>,
    /// The world's time when its machine was started, and the machine's then.
    pub began: (i64, Instant),
    /// Calls that were answered with a decision.
    pub decided: Arc<std::sync::atomic::AtomicU64>,
}

impl Load {
    fn now(&self) -> i64 {
        self.began.0 + self.began.1.elapsed().as_micros() as i64
    }

    /// A client of the cluster.
    pub async fn connect(&self, seed: u64) -> Option<Client> {
        let endpoints = (0..self.nodes).map(address as fn(Machine) -> String);
        // Some of the calls have less time than this, and some more: those with less are refused by an open breaker.
        let builder = Client::builder().endpoints(endpoints).deadline(Duration::from_secs(1));
        let builder = builder.connect_timeout(Duration::from_secs(60));
        // Who floods asks the nodes themselves, as many clients would together.
        let builder = if self.floods || self.calm { builder.remember_denials(Duration::ZERO) } else { builder };
        builder.connect_over(Arc::new(self.wire.clone()), seed).await.ok()
    }

    /// Asks until it is stopped, a while with each client that it makes. One goes in peace, so that what it leaves is still looked
    /// after, the next dies on the spot.
    pub async fn run(mut self, seed: u64, lives: Vec<Duration>) {
        let mut random = SmallRng::seed_from_u64(seed);
        for life in lives {
            self.wire = self.wire.anew();
            let Some(client) = self.connect(random.random()).await else { return };
            let (until, dies) = (Instant::now() + life, random.random_range(0..2) == 0);
            self.ask_until(&client, until, dies, &mut random).await;
            if self.stop.load(Ordering::Relaxed) {
                return;
            }
            self.fired.count(if dies { Fault::ClientDied } else { Fault::ClientGone });
        }
    }

    async fn ask_until(&self, client: &Client, until: Instant, dies: bool, random: &mut SmallRng) {
        let room = Arc::new(tokio::sync::Semaphore::new(UNDER_WAY));
        let charges: Arc<Mutex<Vec<Kept>>> = Arc::default();
        let mut calls = tokio::task::JoinSet::new();
        while Instant::now() < until && !self.stop.load(Ordering::Relaxed) {
            tokio::time::sleep(Duration::from_millis(random.random_range(10..180))).await;
            while calls.try_join_next().is_some() {}
            let Ok(permit) = Arc::clone(&room).try_acquire_owned() else { continue };
            let (load, client, charges) = (self.clone(), client.clone(), Arc::clone(&charges));
            let mut random = SmallRng::seed_from_u64(random.random());
            calls.spawn(async move {
                load.one(&client, &charges, &mut random).await;
                drop(permit);
            });
        }
        if self.stop.load(Ordering::Relaxed) {
            while calls.join_next().await.is_some() {}
        } else {
            self.wire.dead.store(dies, Ordering::Relaxed);
            calls.shutdown().await;
            self.history.abandon(self.number);
        }
    }

    fn limit(random: &mut SmallRng) -> Asked {
        let policy = POLICIES[random.random_range(0..POLICIES.len())];
        let key = match random.random_range(0..12) {
            0 => format!("{{hot{}}}", random.random_range(0..HOT)),
            _ => format!("{{k{}}}", random.random_range(0..KEYS)),
        };
        Asked { policy, key, cost: [1, 1, 1, 2, 3][random.random_range(0..5)] }
    }

    fn tag(&self, random: &mut SmallRng, route: &str) -> String {
        format!("{route}/{}-{:x}", self.number, random.random::<u64>())
    }

    /// Limits whose keys differ, so that most fall to several shards.
    fn apart(random: &mut SmallRng) -> Vec<Asked> {
        let mut limits: Vec<Asked> = Vec::new();
        for _ in 0..random.random_range(2..4) {
            let one = Self::limit(random);
            if limits.iter().all(|other| (other.policy, &other.key) != (one.policy, &one.key)) {
                limits.push(one);
            }
        }
        limits
    }

    async fn one(&self, client: &Client, charges: &Mutex<Vec<Kept>>, random: &mut SmallRng) {
        if self.floods {
            return self.flood(client, charges, random).await;
        }
        if self.calm {
            let key = format!("{{hot{}}}", random.random_range(0..HOT));
            let one = Asked { policy: "window", key, cost: 1 };
            let deadline = Duration::from_millis(random.random_range(60..250));
            return self.check(client, charges, vec![one], None, (deadline, Duration::MAX)).await;
        }
        let deadline = Duration::from_millis(random.random_range(300..4_000));
        let first = Self::limit(random);
        match random.random_range(0..100) {
            0..=14 => {
                let limits = Self::apart(random);
                let tag = self.tag(random, &limits[0].key);
                // Every fourth caller goes away, at any step of it.
                let patience = (random.random_range(0..4) == 0).then(|| random.random_range(0..400));
                let patience = patience.map_or(Duration::MAX, Duration::from_millis);
                self.check(client, charges, limits, Some(tag), (deadline, patience)).await;
            }
            15..=46 => {
                let tag = self.tag(random, &first.key);
                let mut limits = vec![first];
                if random.random_range(0..4) == 0 {
                    let other = Asked { key: limits[0].key.clone(), ..Self::limit(random) };
                    if other.policy != limits[0].policy {
                        limits.push(other);
                    }
                }
                self.check(client, charges, limits, Some(tag), (deadline, Duration::MAX)).await;
            }
            47..=54 => self.insist(client, charges, random, deadline).await,
            55..=65 => self.check(client, charges, vec![first], None, (deadline, Duration::MAX)).await,
            66..=69 => self.acquire(client, charges, random, deadline).await,
            70..=79 => self.many(client, random, deadline).await,
            80..=84 => {
                let op = self.history.begin(self.number, Call::Peek(first.clone()), None, self.now());
                let answer = client.peek(first.policy, &first.key).cost(first.cost).deadline(deadline).await;
                self.end(op, answer);
            }
            85..=91 => {
                let charge = {
                    let mut charges = charges.lock().unwrap_or_else(PoisonError::into_inner);
                    let count = charges.len();
                    (count > 0).then(|| charges.swap_remove(random.random_range(0..count)))
                };
                let Some((charge, asked)) = charge else { return };
                let op = self.history.begin(self.number, Call::Refund(asked), None, self.now());
                let outcome = match client.refund(charge).deadline(deadline).await {
                    Ok(changed) => Outcome::Undone(changed),
                    Err(error) => Outcome::from(&error),
                };
                self.history.end(op, outcome, self.now());
            }
            92..=93 => {
                let op = self.history.begin(self.number, Call::Reset(first.clone()), None, self.now());
                let outcome = match client.reset(first.policy, &first.key).deadline(deadline).await {
                    Ok(()) => Outcome::Done,
                    Err(error) => Outcome::from(&error),
                };
                self.history.end(op, outcome, self.now());
            }
            _ => self.reserve(client, first, random, deadline).await,
        }
    }

    fn end(&self, op: usize, answer: Result<Decision, Error>) {
        let outcome = match answer {
            Ok(decision) => {
                self.decided.fetch_add(1, Ordering::Relaxed);
                Outcome::of(&decision)
            }
            Err(error) => Outcome::from(&error),
        };
        self.history.end(op, outcome, self.now());
    }

    async fn check(
        &self,
        client: &Client,
        charges: &Mutex<Vec<Kept>>,
        limits: Vec<Asked>,
        tag: Option<String>,
        (deadline, patience): (Duration, Duration),
    ) {
        let mut asked = limits;
        asked.extend(tag.iter().map(|key| Asked { policy: TAGS, key: key.clone(), cost: 1 }));
        let op = self.history.begin(self.number, Call::Check(asked.clone()), tag, self.now());
        let named = asked.iter().map(|one| limit(one.policy, one.key.as_str()).cost(one.cost));
        let check = client.check_all(named).deadline(deadline).into_future();
        match tokio::time::timeout(patience, check).await {
            Ok(mut answer) => {
                self.keep(charges, &mut answer, asked);
                self.end(op, answer);
            }
            Err(_) => self.leave(op),
        }
    }

    /// Keeps a charge now and then, to give it back later.
    fn keep(&self, charges: &Mutex<Vec<Kept>>, answer: &mut Result<Decision, Error>, asked: Vec<Asked>) {
        let Ok(decision) = answer else { return };
        let elsewhere = decision.limits.iter().any(|limit| limit.receipt != decision.receipt);
        if elsewhere && !decision.allowed && !decision.remembered {
            self.fired.count(Fault::DeniedElsewhere);
        }
        if decision.receipt.index.0 % 3 == 0
            && let Some(charge) = decision.take_charge()
        {
            charges.lock().unwrap_or_else(PoisonError::into_inner).push((charge, asked));
        }
    }

    /// The caller goes away before the answer.
    fn leave(&self, op: usize) {
        self.fired.count(Fault::CallerGone);
        self.history.end(op, Outcome::Abandoned, self.now());
    }

    /// Asks one limit again and again, whatever it says.
    async fn insist(&self, client: &Client, charges: &Mutex<Vec<Kept>>, random: &mut SmallRng, deadline: Duration) {
        let one = Asked { cost: 3, ..Self::limit(random) };
        for _ in 0..random.random_range(4..12) {
            if self.stop.load(Ordering::Relaxed) {
                return;
            }
            self.check(client, charges, vec![one.clone()], None, (deadline, Duration::MAX)).await;
            tokio::time::sleep(Duration::from_millis(random.random_range(0..200))).await;
        }
    }

    /// Asks for more than a key has left, as long as it is denied.
    async fn flood(&self, client: &Client, charges: &Mutex<Vec<Kept>>, random: &mut SmallRng) {
        let key = format!("{{hot{}}}", random.random_range(0..HOT));
        let one = Asked { policy: "window", key, cost: random.random_range(1..9) };
        for _ in 0..random.random_range(5..30) {
            if self.stop.load(Ordering::Relaxed) {
                return;
            }
            let deadline = Duration::from_millis(random.random_range(60..250));
            self.check(client, charges, vec![one.clone()], None, (deadline, Duration::MAX)).await;
            tokio::time::sleep(Duration::from_millis(random.random_range(5..40))).await;
        }
    }

    /// Waits for a turn, or goes away before it comes.
    async fn acquire(&self, client: &Client, charges: &Mutex<Vec<Kept>>, random: &mut SmallRng, deadline: Duration) {
        let policy = ["leaky", "leaky", "bucket"][random.random_range(0..3)];
        let one = Asked { policy, ..Self::limit(random) };
        let op = self.history.begin(self.number, Call::Acquire(one.clone()), None, self.now());
        let patience = Duration::from_millis(random.random_range(0..2_500));
        let turn = client.acquire(one.policy, &one.key).cost(one.cost).deadline(deadline).into_future();
        match tokio::time::timeout(patience, turn).await {
            // What it was told is about the deadline, and not about the key.
            Ok(Ok(denied)) if !denied.allowed => self.history.end(op, Outcome::Done, self.now()),
            Ok(mut answer) => {
                self.keep(charges, &mut answer, vec![one]);
                self.end(op, answer);
            }
            Err(_) => self.leave(op),
        }
    }

    async fn many(&self, client: &Client, random: &mut SmallRng, deadline: Duration) {
        let count = random.random_range(4..16);
        let checks = (0..count).map(|_| {
            let route = Self::limit(random).key;
            vec![Asked { policy: TAGS, key: self.tag(random, &route), cost: 1 }]
        });
        self.ask_many(client, checks.collect(), deadline).await;
    }

    /// Asks many checks at once. One of a single key under [`TAGS`] bears that as its tag.
    pub async fn ask_many(&self, client: &Client, checks: Vec<Vec<Asked>>, deadline: Duration) {
        let begin = |check: &Vec<Asked>| {
            let tag = if let [one] = &check[..] { Some(one.key.clone()) } else { None };
            self.history.begin(self.number, Call::Check(check.clone()), tag, self.now())
        };
        let ops: Vec<usize> = checks.iter().map(begin).collect();
        let questions: Vec<Question<'_>> = checks
            .iter()
            .map(|check| check.iter().map(|one| limit(one.policy, one.key.as_str()).cost(one.cost)).collect())
            .collect();
        let answers = client.check_many(questions).deadline(deadline).await;
        for (op, answer) in ops.into_iter().zip(answers) {
            self.end(op, answer);
        }
    }

    async fn reserve(&self, client: &Client, first: Asked, random: &mut SmallRng, deadline: Duration) {
        let first = if first.policy == "leaky" { Asked { policy: "bucket", ..first } } else { first };
        let op = self.history.begin(self.number, Call::Reserve(first.clone()), None, self.now());
        let reserve = client.reserve(first.policy, &first.key).cost(first.cost).deadline(deadline);
        let reserved = match reserve.ttl(Duration::from_secs(random.random_range(1..20))).await {
            Ok(reserved) => reserved,
            Err(error) => return self.history.end(op, Outcome::from(&error), self.now()),
        };
        self.decided.fetch_add(1, Ordering::Relaxed);
        self.history.end(op, Outcome::of(reserved.decision()), self.now());
        tokio::time::sleep(Duration::from_millis(random.random_range(1..3_000))).await;
        if !reserved.allowed() {
            return;
        }
        let actual = random.random_range(0..=first.cost + 2);
        let op = self.history.begin(self.number, Call::Settle(first, actual), None, self.now());
        let outcome = match reserved.settle(actual).await {
            Ok(changed) => Outcome::Undone(changed),
            Err(error) => Outcome::from(&error),
        };
        self.history.end(op, outcome, self.now());
    }
}
