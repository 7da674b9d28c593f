//! A whole cluster and its clients: made, driven through a time of faults, healed, and held to account.
//!
//! ```text
//!  boot ─► cluster is made ─► policies ─► clients ask, faults strike ─► all is healed ─► everything converges ─► checkers
//! ```
//!
//! Time goes in ticks: what has arrived is done, then every machine runs for a tick, one after the other in an order that is
//! drawn. A message takes at least until the next tick, so that no machine can learn of another's future.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt as _};
use quorate_core::GroupId;
use quorate_node::node::Node;
use quorate_node::services::{Admin, Cluster};
use quorate_proto::convert::policy_to_wire;
use quorate_proto::v1;
use quorate_proto::v1::admin_server::Admin as _;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use serde::{Deserialize, Serialize};
use tokio::runtime::Runtime;
use tokio::time::Instant;

use crate::check;
use crate::faults::{self, Action, Plan};
use crate::fired::{Fault, Fired};
use crate::history::{self, Asked, History, Op};
use crate::load::{self, Load, TAGS};
use crate::machine::{NodeMachine, Shared, runtime};
use crate::net::{Machine, Net, Weather};
use crate::peers::{Nodes, address};
use crate::tap::Tap;
use crate::trace::Trace;
use crate::wire::SimWire;

/// Machines that nodes run on.
pub const NODES: usize = 3;
/// The machine that all clients run on.
const CLIENTS: Machine = NODES;
/// How many clients there are.
const CLIENT_COUNT: usize = 5;
/// Shards of the cluster.
const SHARDS: u32 = 3;
/// A tick.
const TICK: Duration = Duration::from_millis(8);
/// Checks of 16 keys each that are asked at once to fill a cluster, how many others there are, and how often it is done: for
/// each shard some thousands of keys, and then several times as much log as a snapshot of them has bytes.
const FILL_CHECKS: usize = 50;
const FILL_ROUTES: usize = 700;
const FILL_ROUNDS: usize = 84;
/// How long a cluster may take to be made, and to converge once all is healed.
const PATIENCE: i64 = 60_000_000;

/// What is run.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Everything is drawn from it.
    pub seed: u64,
    /// Whether the story is kept.
    pub told: bool,
    /// A fault that is planted.
    #[cfg(feature = "planted")]
    pub planted: Option<quorate_core::planted::Planted>,
}

impl Options {
    /// That seed, and its story.
    pub fn told(seed: u64) -> Options {
        let mut options = Options { seed, ..Options::default() };
        options.told = true;
        options
    }
}

/// What came of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Outcome {
    /// The seed.
    pub seed: u64,
    /// Checks that were answered with a decision.
    pub decisions: u64,
    /// How long it was, in the world's time.
    pub lasted: Duration,
    /// What must not have happened.
    pub wrongs: Vec<String>,
    /// The hash of the story.
    pub hash: u64,
    /// The faults that struck.
    pub fired: Fired,
    /// The story, if it was kept.
    #[serde(skip)]
    pub story: Vec<String>,
}

impl Outcome {
    /// Of a seed that came to nothing.
    pub fn failed(seed: u64, problem: String) -> Outcome {
        Outcome {
            seed,
            decisions: 0,
            lasted: Duration::ZERO,
            wrongs: vec![problem],
            hash: 0,
            fired: Fired::default(),
            story: Vec::new(),
        }
    }
}

/// The world.
pub struct World {
    now: i64,
    random: SmallRng,
    machines: Vec<NodeMachine>,
    clients: Runtime,
    clients_began: Instant,
    shared: Shared,
    history: History,
    decided: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    plan: Plan,
    actions: BTreeMap<(i64, u64), Action>,
    number: u64,
    /// Machines that die within this tick, and how far into it.
    doomed: BTreeMap<Machine, (Duration, bool)>,
    policy_changes: u64,
}

/// Asks a node for a cluster of all nodes until there is one.
async fn ask_to_found(node: Arc<Node>, made: Arc<AtomicBool>) {
    let request = v1::ClusterInitRequest {
        nodes: (0..NODES).map(address).collect(),
        shards: SHARDS,
        replicas: NODES as u32,
        ..v1::ClusterInitRequest::default()
    };
    while Cluster::found(&*node, request.clone()).await.is_err() {
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    made.store(true, Ordering::Relaxed);
}

/// Asks a node to put the policies in force until they are.
async fn ask_to_apply(node: Arc<Node>, applied: Arc<AtomicBool>) {
    let policies: Vec<v1::Policy> = load::policies().iter().map(policy_to_wire).collect();
    let request = || v1::PolicyApplyRequest { policies: policies.clone(), ..Default::default() };
    let admin = Admin::new(node);
    while admin.policy_apply(tonic::Request::new(request())).await.is_err() {
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    applied.store(true, Ordering::Relaxed);
}

/// Runs a world from its seed.
pub fn run(options: &Options) -> Outcome {
    quorate_node::raft::runtime::seed_thread(Some(options.seed ^ 0x7a5e_ed00));
    #[cfg(feature = "planted")]
    quorate_core::planted::plant(options.planted);
    let mut world = World::new(options);
    world.live();
    let outcome = world.outcome(options.seed);
    world.end();
    #[cfg(feature = "planted")]
    quorate_core::planted::plant(None);
    quorate_node::raft::runtime::seed_thread(None);
    outcome
}

impl World {
    fn new(options: &Options) -> World {
        let mut random = SmallRng::seed_from_u64(options.seed);
        let (trace, fired) = (Trace::new(options.told), Fired::default());
        let shared = Shared {
            net: Net::new(random.random(), NODES + 1, fired.clone()),
            nodes: Nodes::default(),
            tap: Tap::new(trace.clone(), fired.clone()),
            trace: trace.clone(),
            fired,
        };
        let machines = (0..NODES).map(|here| NodeMachine::new(here, random.random(), shared.clone())).collect();
        let clients = runtime(random.random());
        let clients_began = {
            let _inside = clients.enter();
            Instant::now()
        };
        let plan = Plan::draw(&mut random);
        trace.line(format_args!("seed {}: {plan:?}", options.seed));
        World {
            now: 0,
            random,
            machines,
            clients,
            clients_began,
            history: History::new(trace),
            shared,
            decided: Arc::default(),
            stop: Arc::default(),
            plan,
            actions: BTreeMap::new(),
            number: 0,
            doomed: BTreeMap::new(),
            policy_changes: 0,
        }
    }

    fn live(&mut self) {
        self.shared.net.start(CLIENTS, None);
        for here in 0..NODES {
            self.machines[here].start(NodeMachine::settings(here));
        }
        if !self.make_cluster() {
            return self.wrong("liveness", "the cluster could not be made");
        }
        if !self.apply_policies() {
            return self.wrong("liveness", "the policies could not be applied");
        }
        self.start_clients();
        self.shared.trace.line(format_args!("now faults strike"));
        let end = self.now + self.plan.lasts;
        let mut next = self.now + 500_000;
        while self.now < end && !self.shared.trace.is_wrong() {
            if self.now >= next {
                self.strike();
                next = self.now + self.plan.pause(&mut self.random);
            }
            self.tick();
            let elected = std::mem::take(&mut self.shared.tap.seen().elected);
            for leader in elected {
                if self.plan.ambush && self.random.random_range(0..3) == 0 {
                    let actions = faults::ambush(leader.0 as usize - 1, &mut self.random);
                    actions.into_iter().for_each(|action| self.act(action));
                }
            }
        }
        self.heal();
        if self.shared.trace.is_wrong() {
            return;
        }
        self.converge();
        let seen = self.shared.tap.seen();
        check::all(&self.shared.trace, &self.shared.fired, &self.history.ops(), &seen, self.secrets());
    }

    /// Takes the world apart: what is on the network holds on to the network.
    fn end(mut self) {
        for machine in &mut self.machines {
            machine.stop(false);
        }
        self.shared.net.stop(CLIENTS);
        drop(self.clients);
        self.shared.net.clear();
    }

    fn outcome(&self, seed: u64) -> Outcome {
        let trace = &self.shared.trace;
        Outcome {
            seed,
            decisions: self.decided.load(Ordering::Relaxed),
            lasted: Duration::from_micros(self.now as u64),
            wrongs: trace.wrongs(),
            hash: trace.hash(),
            fired: self.shared.fired.clone(),
            story: trace.lines(),
        }
    }

    fn wrong(&self, checker: &str, what: &str) {
        self.shared.trace.wrong(checker, what);
    }

    /// What keys are hashed with in this cluster.
    fn secrets(&self) -> Option<check::Secrets> {
        let state = (0..NODES).find_map(|here| self.shared.nodes.get(here)?.state())?;
        Some(check::Secrets {
            ring: state.ring_secret(),
            table: state.table_secret(),
            shards: state.shards.iter().map(|shard| (shard.id, shard.arc)).collect(),
            policies: Arc::clone(&state.policies),
        })
    }

    /// Lets a tick pass.
    fn tick(&mut self) {
        while let Some(entry) = self.actions.first_entry().filter(|entry| entry.key().0 <= self.now) {
            let action = entry.remove();
            self.act(action);
        }
        for (machine, deed) in self.shared.net.pass(self.now) {
            if machine == CLIENTS {
                let _inside = self.clients.enter();
                deed();
            } else {
                self.machines[machine].take_in(deed);
            }
        }
        let mut order: Vec<Machine> = (0..=NODES).collect();
        order.shuffle(&mut self.random);
        for here in order {
            if here == CLIENTS {
                self.clients.block_on(async { tokio::time::sleep(TICK).await });
                continue;
            }
            match self.doomed.remove(&here) {
                Some((into, power)) => {
                    self.machines[here].pass(into);
                    self.machines[here].stop(power);
                }
                None => self.machines[here].pass(TICK),
            }
            self.look_after(here);
        }
        self.now += TICK.as_micros() as i64;
        self.shared.trace.set_now(self.now);
    }

    /// What a machine came to.
    fn look_after(&mut self, here: Machine) {
        if !self.machines[here].is_up() {
            return;
        }
        if self.machines[here].has_no_power() {
            self.machines[here].stop(true);
            let down = self.random.random_range(50_000..3_000_000);
            self.later(down, Action::Start(here));
        } else if let Some(problem) = self.machines[here].problem() {
            self.shared.trace.wrong("liveness", format!("machine {here}: {problem}"));
        }
    }

    fn later(&mut self, after: i64, action: Action) {
        self.number += 1;
        self.actions.insert((self.now + after, self.number), action);
    }

    /// Ticks until something is so; whether it became so in time.
    fn until(&mut self, patience: i64, so: impl Fn(&World) -> bool) -> bool {
        let end = self.now + patience;
        while self.now < end {
            if so(self) {
                return true;
            }
            self.tick();
        }
        so(self)
    }

    /// Some of the nodes, one or all at once, are asked for the same cluster, and some die on the way.
    fn make_cluster(&mut self) -> bool {
        let mut askers: Vec<Machine> = (0..NODES).collect();
        askers.shuffle(&mut self.random);
        askers.truncate(self.random.random_range(1..=NODES));
        for _ in 0..self.random.random_range(0..4) {
            let (at, victim) = (self.random.random_range(0..1_500_000), self.random.random_range(0..NODES));
            let (down, power) = (self.random.random_range(50_000..1_500_000), self.random.random());
            self.later(at, Action::Kill(vec![victim], down, power));
        }
        if !self.insist(&askers, |node, made| ask_to_found(node, made).boxed()) {
            return false;
        }
        let all_belong = |world: &World| {
            let clusters = (0..NODES).map(|here| world.shared.nodes.get(here).map(|node| node.identify()));
            let clusters: Option<Vec<_>> = clusters.collect();
            clusters.is_some_and(|nodes| nodes.iter().all(|node| node.began && node.cluster_id == nodes[0].cluster_id))
        };
        self.until(PATIENCE, all_belong)
    }

    fn apply_policies(&mut self) -> bool {
        self.insist(&[0], |node, applied| ask_to_apply(node, applied).boxed())
    }

    /// Has these nodes asked for something until one has it done, again whenever one starts anew; whether it was done in time.
    fn insist(
        &mut self,
        askers: &[Machine],
        ask: impl Fn(Arc<Node>, Arc<AtomicBool>) -> BoxFuture<'static, ()>,
    ) -> bool {
        let done: Arc<AtomicBool> = Arc::default();
        let mut asked = [0; NODES];
        let end = self.now + PATIENCE;
        while !done.load(Ordering::Relaxed) {
            if self.now >= end {
                return false;
            }
            for &here in askers {
                let boot = self.machines[here].boots();
                if let Some(node) = self.shared.nodes.get(here).filter(|_| asked[here] != boot) {
                    asked[here] = boot;
                    self.machines[here].spawn(ask(node, Arc::clone(&done)));
                }
            }
            self.tick();
        }
        true
    }

    fn client(&self, number: usize) -> Load {
        Load {
            number,
            floods: number == 0,
            calm: self.plan.calm,
            nodes: NODES,
            wire: SimWire {
                here: CLIENTS,
                net: self.shared.net.clone(),
                nodes: self.shared.nodes.clone(),
                dead: Arc::default(),
            },
            fired: self.shared.fired.clone(),
            history: self.history.clone(),
            stop: Arc::clone(&self.stop),
            began: (0, self.clients_began),
            decided: Arc::clone(&self.decided),
        }
    }

    fn start_clients(&mut self) {
        for number in 0..CLIENT_COUNT {
            let (load, seed) = (self.client(number), self.random.random());
            let lives = self.plan.lives(&mut self.random);
            let _inside = self.clients.enter();
            tokio::spawn(async move { load.run(seed, lives).await });
        }
        if self.plan.large {
            self.fill();
        }
    }

    /// Many keys, so that snapshots are large; and while one machine is down for long, more than its log holds.
    fn fill(&mut self) {
        let (load, seed) = (self.client(CLIENT_COUNT), self.random.random());
        let done: Arc<AtomicUsize> = Arc::default();
        let rounds = Arc::clone(&done);
        {
            let _inside = self.clients.enter();
            tokio::spawn(async move {
                let Some(client) = load.connect(seed).await else { return };
                for round in 0..FILL_ROUNDS {
                    let limits = |route: usize| {
                        let key = move |i: usize| format!("{{p{}}}/{i}", (round * FILL_CHECKS + route) % FILL_ROUTES);
                        (0..16).map(|i| Asked { policy: TAGS, key: key(i), cost: 1 }).collect()
                    };
                    load.ask_many(&client, (0..FILL_CHECKS).map(limits).collect(), Duration::from_secs(5)).await;
                    rounds.store(round + 1, Ordering::Relaxed);
                    // So slowly that the log is looked at again and again meanwhile.
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            });
        }
        self.until(PATIENCE, |_| done.load(Ordering::Relaxed) * FILL_CHECKS >= FILL_ROUTES);
        let victim = self.random.random_range(0..NODES);
        self.machines[victim].stop(false);
        self.until(PATIENCE, |_| done.load(Ordering::Relaxed) == FILL_ROUNDS);
        // Two more looks at the log, so that it is purged.
        let purged = self.now + 2_500_000;
        self.until(PATIENCE, |world| world.now > purged);
        self.machines[victim].start(NodeMachine::settings(victim));
    }

    fn strike(&mut self) {
        let mut drawn = self.plan.strike(&mut self.random);
        // Of the wall clocks only a minority is ever wrong; one that was put right counts until nobody remembers it.
        if let Action::Step(here, ..) = drawn {
            let others = self.machines.iter().enumerate().filter(|(other, _)| *other != here);
            if others.into_iter().any(|(_, machine)| machine.clock.is_remembered(self.now)) {
                drawn = Action::ChangePolicy;
            }
        }
        self.act(drawn);
    }

    fn act(&mut self, action: Action) {
        let fired = self.shared.fired.clone();
        let trace = self.shared.trace.clone();
        match action {
            Action::Start(here) => {
                if !self.machines[here].is_up() {
                    self.machines[here].start(NodeMachine::settings(here));
                }
            }
            Action::Kill(set, down, power) => {
                let up: Vec<Machine> = set.into_iter().filter(|here| self.machines[*here].is_up()).collect();
                if up.len() == NODES {
                    fired.count(Fault::AllKilled);
                }
                for here in up {
                    self.machines[here].wake();
                    let into = Duration::from_micros(self.random.random_range(0..TICK.as_micros() as u64));
                    if power && self.random.random_range(0..3) > 0 {
                        // Between any two things that are done to the disk.
                        let changes = self.random.random_range(0..60);
                        self.machines[here].set_disk(Some(changes));
                    } else {
                        self.doomed.insert(here, (into, power));
                        let extra = self.random.random_range(0..=down / 2);
                        self.later(down + extra, Action::Start(here));
                    }
                    fired.count(if power { Fault::PowerLost } else { Fault::Killed });
                }
            }
            Action::Usurp(leader) => {
                let (now, after, then) = faults::usurp(leader, &mut self.random);
                self.act(now);
                then.into_iter().for_each(|action| self.later(after, action));
            }
            Action::Pause(here, span) => {
                if self.machines[here].is_up() && !self.machines[here].is_asleep() {
                    fired.count(Fault::Paused);
                    self.machines[here].sleep();
                    self.later(span, Action::Wake(here));
                }
            }
            Action::Wake(here) => self.machines[here].wake(),
            Action::Cut(pairs, span) => {
                let both = pairs.iter().any(|(from, to)| pairs.contains(&(*to, *from)));
                fired.count(if both { Fault::CutTwoWay } else { Fault::CutOneWay });
                trace.line(format_args!("cut {pairs:?}"));
                for (from, to) in &pairs {
                    self.shared.net.cut(*from, *to);
                }
                if self.random.random_range(0..3) == 0 {
                    // What the others agree on meanwhile arrives the moment that it is healed.
                    let before = self.random.random_range(50_000..400_000);
                    self.later((span - before).max(0), Action::ChangePolicy);
                }
                self.later(span, Action::Heal(pairs));
            }
            Action::Heal(pairs) => {
                trace.line(format_args!("healed {pairs:?}"));
                for (from, to) in pairs {
                    self.shared.net.heal(from, to);
                }
            }
            Action::Step(here, us, span) => {
                fired.count(Fault::ClockStepped);
                trace.line(format_args!("the clock of machine {here} steps by {us} us"));
                self.machines[here].clock.set(us, self.now);
                self.later(span, Action::Right(here));
            }
            Action::Right(here) => {
                trace.line(format_args!("the clock of machine {here} is right again"));
                self.machines[here].clock.set(0, self.now);
            }
            Action::Weather(weather, span) => {
                trace.line(format_args!("the network is now {weather:?}"));
                self.shared.net.set_weather(weather);
                if span > 0 {
                    self.later(span, Action::Weather(Weather::FAIR, 0));
                }
            }
            Action::Disk(here, most, span) => {
                trace.line(format_args!("the disk of machine {here} takes up to {most:?}"));
                self.machines[here].set_latency(Duration::from_micros(200), most);
                if span > 0 {
                    fired.count(Fault::SlowDisk);
                    self.later(span, Action::Disk(here, Duration::from_millis(3), 0));
                }
            }
            Action::ChangePolicy => self.change_policy(),
        }
    }

    fn change_policy(&mut self) {
        let here = self.random.random_range(0..NODES);
        let Some(node) = self.shared.nodes.get(here) else { return };
        self.policy_changes += 1;
        let policies = vec![policy_to_wire(&load::bucket(self.policy_changes))];
        let fired = self.shared.fired.clone();
        self.machines[here].spawn(async move {
            let request = v1::PolicyApplyRequest { policies, ..Default::default() };
            if Admin::new(node).policy_apply(tonic::Request::new(request)).await.is_ok() {
                fired.count(Fault::PolicyChanged);
            }
        });
    }

    /// From now on nothing goes wrong any more.
    fn heal(&mut self) {
        self.shared.trace.line(format_args!("all is healed"));
        self.actions.clear();
        self.doomed.clear();
        self.shared.net.heal_all();
        self.shared.net.set_weather(Weather::FAIR);
        for here in 0..NODES {
            let machine = &mut self.machines[here];
            machine.clock.set(0, self.now);
            machine.wake();
            machine.set_latency(Duration::from_micros(200), Duration::from_millis(3));
            if !machine.is_up() {
                machine.start(NodeMachine::settings(here));
            }
        }
    }

    /// Everybody is served, and all replicas are the same.
    fn converge(&mut self) {
        // Clients that lived through the faults ask a little longer.
        let end = self.now + 3_000_000;
        while self.now < end {
            self.tick();
        }
        self.stop.store(true, Ordering::Relaxed);
        let answered = |op: &Op| op.outcome != history::Outcome::Pending;
        if !self.until(PATIENCE, |world| world.history.ops().iter().all(answered)) {
            self.wrong("liveness", "a call has no answer long after its deadline");
        }
        let (load, seed) = (self.client(CLIENT_COUNT + 1), self.random.random());
        let served: Arc<AtomicBool> = Arc::default();
        let done = Arc::clone(&served);
        {
            let _inside = self.clients.enter();
            tokio::spawn(async move {
                let Some(client) = load.connect(seed).await else { return };
                let keys = (0..24).map(|i| vec![Asked { policy: TAGS, key: format!("last {i}"), cost: 1 }]).collect();
                load.ask_many(&client, keys, Duration::from_secs(20)).await;
                done.store(true, Ordering::Relaxed);
            });
        }
        if !self.until(PATIENCE, |_| served.load(Ordering::Relaxed)) {
            return self.wrong("liveness", "a client gets no answers although all is healed");
        }
        // What was applied a moment ago has been seen by then.
        let settled = self.now + 500_000;
        if !self.until(PATIENCE, |world| world.now > settled && world.agrees()) {
            let seen = self.shared.tap.seen();
            let applied = format!("the replicas do not come together: {:?}, led {:?}", seen.applied, seen.led);
            drop(seen);
            self.wrong("liveness", &applied);
        }
    }

    fn agrees(&self) -> bool {
        check::liveness::agrees(&self.shared.tap.seen(), NODES, (0..=SHARDS).map(GroupId))
    }
}
