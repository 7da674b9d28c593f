//! Three nodes in memory behind a wire that can lose, delay and repeat: what [`FakeCluster`](super::FakeCluster) is made of.
//!
//! Each shard is one state machine with one log, as if every entry were replicated at once; who leads it can be changed. What
//! a frame meets is scripted, frame by frame, or drawn from a seed. Audited, the nodes hold the client to the protocol: a
//! number of a session always carries the same commands, a retry gets the first answers, tags are never used twice.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::future::ready;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _};
use quorate_core::{
    Answer, Check, Command, Cost, Decision, Fingerprint, FrameId, Limit, Policy, PolicyId, PolicySet, PolicyVersion,
    Receipt, Ring, RingSecret, ShardId, Stamp, TableSecret,
};
use quorate_proto::v1::ErrorCode;
use quorate_proto::{convert, v1};
use rand::SeedableRng as _;
use rand::rngs::SmallRng;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep};
use tokio_stream::wrappers::{ReceiverStream, WatchStream};

use super::clock::Clock;
use super::ledger::{Forced, Ledger, Tally};
use crate::wire::{Incoming, ReportError, Wire, WireError};

pub use super::fate::Fate;

const RING: RingSecret = RingSecret([3; 16]);
const TABLE: TableSecret = TableSecret([4; 16]);
/// Nodes of every fake cluster.
const NODES: u64 = 3;
/// Answers that wait on one stream.
const ANSWERS: usize = 64;

struct World {
    shards: BTreeMap<u32, Ledger>,
    ring: Ring,
    policies: PolicySet,
    last_id: PolicyId,
    epoch: u64,
    clock: Clock,
    down: HashSet<u64>,
    hung: HashSet<u64>,
    script: VecDeque<Fate>,
    chaos: Option<SmallRng>,
    slow: Duration,
    /// What came since everything was held up; none where nothing is.
    held: Option<Vec<Held>>,
    forced: BTreeMap<PolicyId, Forced>,
    /// Every frame, where it is audited.
    frames: Option<Vec<v1::Frame>>,
    violations: Vec<String>,
    /// Ends every stream to a node when it is changed.
    cuts: BTreeMap<u64, watch::Sender<u64>>,
    cluster_id: u8,
    /// As nodes tell it.
    live_clients: u64,
    /// Reported denials, by policy.
    false_positives: HashMap<String, u64>,
    /// Where nodes really listen, if they do.
    addresses: BTreeMap<u64, String>,
}

/// A frame that waits to be served.
struct Held {
    frame: v1::Frame,
    id: Option<FrameId>,
    commands: Commands,
    answers: Answers,
}

/// How nodes are made.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Shards, at least 1.
    pub shards: u32,
    /// Whether time passes with tokio's.
    pub follows_tokio: bool,
    /// Whether everything is kept and held against the protocol.
    pub audited: bool,
}

/// The nodes. Clones are the same ones.
#[derive(Clone)]
pub struct Nodes {
    world: Arc<Mutex<World>>,
    topology: Arc<watch::Sender<v1::TopologyUpdate>>,
}

/// Where the clients find a node.
pub fn address(node: u64) -> String {
    format!("node-{node}:7600")
}

impl Nodes {
    /// Three nodes, whose shards are led by one after another.
    pub fn new(setup: Setup) -> Nodes {
        let ring = Ring::even(setup.shards.max(1));
        let ledger =
            |(arc, id): &(quorate_core::Arc, ShardId)| (id.0, Ledger::new(*id, *arc, home(id.0), setup.audited));
        let world = World {
            shards: ring.arcs().iter().map(ledger).collect(),
            ring,
            policies: PolicySet::default(),
            last_id: PolicyId(0),
            epoch: 1,
            clock: Clock::new(setup.follows_tokio),
            down: HashSet::new(),
            hung: HashSet::new(),
            script: VecDeque::new(),
            chaos: None,
            slow: Duration::ZERO,
            held: None,
            forced: BTreeMap::new(),
            frames: setup.audited.then(Vec::new),
            violations: Vec::new(),
            cuts: (1..=NODES).map(|node| (node, watch::channel(0).0)).collect(),
            cluster_id: 9,
            live_clients: 0,
            false_positives: HashMap::new(),
            addresses: BTreeMap::new(),
        };
        Nodes { topology: Arc::new(watch::channel(world.update()).0), world: Arc::new(Mutex::new(world)) }
    }

    fn lock(&self) -> MutexGuard<'_, World> {
        // Nothing that can panic runs under the lock.
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The endpoints of all nodes.
    pub fn endpoints() -> impl Iterator<Item = String> {
        (1..=NODES).map(address)
    }

    /// Puts that set of policies in force everywhere, as they are, and tells the clients.
    pub fn install(&self, policies: Vec<Policy>) {
        let mut world = self.lock();
        world.install(policies);
        drop(world);
        self.publish();
    }

    /// As [`install`](Self::install), with the ids that a cluster would give: a name keeps its own, no id is used twice.
    pub fn apply(&self, mut policies: Vec<Policy>) {
        let mut world = self.lock();
        for policy in &mut policies {
            policy.id = match world.policy(&policy.name) {
                Some(known) => known.id,
                None => {
                    world.last_id = PolicyId(world.last_id.0 + 1);
                    world.last_id
                }
            };
        }
        world.install(policies);
        drop(world);
        self.publish();
    }

    /// The policies in force.
    pub fn policies(&self) -> Vec<Policy> {
        self.lock().policies.policies.clone()
    }

    /// A newer topology, the same for every key.
    pub fn renew_topology(&self) {
        self.lock().epoch += 1;
        self.publish();
    }

    /// Tells the clients how things are.
    pub fn publish(&self) {
        let update = self.lock().update();
        self.topology.send_replace(update);
    }

    /// Gives a shard another leader, 0 for none; clients hear of it when it is published.
    pub fn elect(&self, shard: u32, leader: u64) {
        if let Some(ledger) = self.lock().shards.get_mut(&shard) {
            ledger.term += 1;
            ledger.leader = leader;
        }
    }

    /// Takes every shard its leader, or gives it back, and tells the clients.
    pub fn set_leaderless(&self, leaderless: bool) {
        for (id, ledger) in &mut self.lock().shards {
            ledger.term += 1;
            ledger.leader = if leaderless { 0 } else { home(*id) };
        }
        self.publish();
    }

    /// Turns the clock.
    pub fn advance(&self, by: Duration) {
        self.lock().clock.advance(by);
    }

    /// The time on the clock.
    pub fn now(&self) -> Stamp {
        self.lock().clock.stamp()
    }

    /// What the next frames meet, one after another; then all are served.
    pub fn script(&self, fates: impl IntoIterator<Item = Fate>) {
        self.lock().script = fates.into_iter().collect();
    }

    /// What the frame after those meets.
    pub fn script_another(&self, fate: Fate) {
        self.lock().script.push_back(fate);
    }

    /// From now on, what frames meet is drawn.
    pub fn chaos(&self, seed: Option<u64>) {
        self.lock().chaos = seed.map(SmallRng::seed_from_u64);
    }

    /// From now on every answer comes that much later, by tokio's time.
    pub fn set_slow(&self, by: Duration) {
        self.lock().slow = by;
    }

    /// Holds up every frame that comes from now on.
    pub fn hold(&self) {
        self.lock().held.get_or_insert_default();
    }

    /// Serves what was held up, in the order that it came, and everything after it.
    pub fn release(&self) {
        let held = self.lock().held.take().unwrap_or_default();
        for one in held {
            // Whoever asked may have gone.
            say(&one.answers, self.execute(&one.frame, one.id, one.commands));
        }
    }

    /// Has checks of a policy answered like that; false where there is no such policy.
    pub(super) fn force(&self, policy: &str, how: Option<Forced>) -> bool {
        let mut world = self.lock();
        let Some(id) = world.policy(policy).map(|policy| policy.id) else { return false };
        match how {
            Some(how) => world.forced.insert(id, how),
            None => world.forced.remove(&id),
        };
        true
    }

    /// Breaks every stream to the node.
    pub fn cut(&self, node: u64) {
        if let Some(cuts) = self.lock().cuts.get(&node) {
            cuts.send_modify(|cuts| *cuts += 1);
        }
    }

    /// Takes the node down, or up again.
    pub fn set_down(&self, node: u64, down: bool) {
        let mut world = self.lock();
        if down {
            world.down.insert(node)
        } else {
            world.down.remove(&node)
        };
        drop(world);
        if down {
            self.cut(node);
        }
    }

    /// Takes all nodes down, or up again.
    pub fn set_all_down(&self, down: bool) {
        (1..=NODES).for_each(|node| self.set_down(node, down));
    }

    /// Lets the node accept streams and say nothing.
    pub fn set_hung(&self, node: u64) {
        self.lock().hung.insert(node);
    }

    /// Tells the clients that the node listens there.
    pub fn set_address(&self, node: u64, address: String) {
        self.lock().addresses.insert(node, address);
        self.publish();
    }

    /// Denials by that policy that were reported as wrong.
    pub fn false_positives(&self, policy: &str) -> u64 {
        self.lock().false_positives.get(policy).copied().unwrap_or(0)
    }

    /// Tells the clients that so many of them are about.
    pub fn set_live_clients(&self, live_clients: u64) {
        self.lock().live_clients = live_clients;
        self.publish();
    }

    /// Makes it another cluster.
    pub fn set_cluster(&self, id: u8) {
        self.lock().cluster_id = id;
        self.publish();
    }

    /// Ends every session of a shard behind its clients' backs.
    pub fn expire_sessions(&self, shard: u32) {
        let mut world = self.lock();
        let stamp = world.clock.stamp();
        if let Some(ledger) = world.shards.get_mut(&shard) {
            ledger.expire_sessions(stamp);
        }
    }

    /// Sessions of all shards together.
    pub fn sessions(&self) -> u64 {
        self.lock().shards.values().map(|ledger| ledger.shard.usage().sessions).sum()
    }

    /// Every frame that has come so far, where it is audited.
    pub fn frames(&self) -> Vec<v1::Frame> {
        self.lock().frames.clone().unwrap_or_default()
    }

    /// What broke the protocol so far, where it is audited.
    pub fn violations(&self) -> Vec<String> {
        let world = self.lock();
        let audits = world.shards.values().filter_map(|ledger| ledger.audit.as_ref());
        world.violations.iter().chain(audits.flat_map(|audit| &audit.violations)).cloned().collect()
    }

    /// What was decided at a place of a log, where it is audited.
    pub fn decided(&self, receipt: &Receipt) -> Option<Answer> {
        let world = self.lock();
        let audit = world.shards.get(&receipt.shard.0)?.audit.as_ref()?;
        audit.decided.get(&(receipt.index.0, receipt.place)).cloned()
    }

    /// The shard that a key falls to.
    pub fn shard_of(&self, key: &str) -> u32 {
        self.lock().ring.shard_of(RING.hash(key.as_bytes())).0
    }

    /// What a check of one unit would be told now; none where there is no such policy.
    pub fn look(&self, policy: &str, key: &str) -> Option<Decision> {
        let world = self.lock();
        let (policy, key) = world.place(policy, key)?;
        let limits = [Limit { policy, key, cost: Cost::ONE }].into_iter().collect();
        let check = Check { limits, peek: true, max_delay: None };
        match world.ledger(&key)?.shard.evaluate(world.clock.stamp(), &check) {
            Answer::Decision(decision) => Some(decision),
            _ => None,
        }
    }

    pub(super) fn tally(&self, policy: &str, key: &str) -> Tally {
        let world = self.lock();
        let tally = || Some(world.place(policy, key)?.1).and_then(|key| Some(world.ledger(&key)?.tally(&key)));
        tally().unwrap_or_default()
    }
}

/// The node that leads a shard at first.
fn home(shard: u32) -> u64 {
    u64::from(shard.saturating_sub(1)) % NODES + 1
}

impl World {
    fn policy(&self, name: &str) -> Option<&Policy> {
        self.policies.policies.iter().find(|one| one.name == name)
    }

    fn place(&self, policy: &str, key: &str) -> Option<(PolicyId, Fingerprint)> {
        let id = self.policy(policy)?.id;
        Some((id, Fingerprint::new(&RING, &TABLE, id, key.as_bytes())))
    }

    fn ledger(&self, key: &Fingerprint) -> Option<&Ledger> {
        self.shards.get(&self.ring.shard_of(key.ring).0)
    }

    fn install(&mut self, mut policies: Vec<Policy>) {
        policies.sort_by_key(|policy| policy.id);
        self.last_id = policies.iter().map(|policy| policy.id).max().unwrap_or_default().max(self.last_id);
        self.policies = PolicySet { version: PolicyVersion(self.policies.version.0 + 1), policies };
        let install = Command::Install(self.policies.clone());
        let stamp = self.clock.stamp();
        for ledger in self.shards.values_mut() {
            ledger.apply(stamp, None, vec![(0, install.clone())]);
        }
    }

    fn update(&self) -> v1::TopologyUpdate {
        let address = |id| self.addresses.get(&id).cloned().unwrap_or_else(|| address(id));
        let node = |id| v1::Node { id, address: address(id), zone: String::new() };
        let shard = |(arc, id): &(quorate_core::Arc, ShardId)| {
            let (leader, term) = self.shards.get(&id.0).map_or((0, 0), |ledger| (ledger.leader, ledger.term));
            let (first, last) = (arc.start, arc.end_inclusive);
            v1::Shard { id: id.0, first, last, replicas: (1..=NODES).collect(), leader, term }
        };
        v1::TopologyUpdate {
            cluster_id: vec![self.cluster_id; 16].into(),
            cluster_name: "fake".into(),
            epoch: self.epoch,
            nodes: (1..=NODES).map(node).collect(),
            shards: self.ring.arcs().iter().map(shard).collect(),
            ring_secret: RING.0.to_vec().into(),
            policies: Some(convert::policy_set_to_wire(&self.policies)),
            live_clients: self.live_clients,
        }
    }

    fn take_report(&mut self, report: &v1::FalsePositiveReport) -> Result<(), ReportError> {
        if let Some(unknown) = report.policies.iter().find(|name| self.policy(name).is_none()) {
            return Err(ReportError::Refused(WireError::new(format!("no policy is named {unknown:?}"))));
        }
        for name in &report.policies {
            *self.false_positives.entry(name.clone()).or_default() += 1;
        }
        Ok(())
    }

    fn fate(&mut self, in_session: bool) -> Fate {
        if let Some(rng) = &mut self.chaos {
            return Fate::draw(rng);
        }
        match if in_session { self.script.pop_front() } else { None } {
            Some(fate) => fate,
            None if self.slow > Duration::ZERO => Fate::AnsweredLate(self.slow),
            None => Fate::Served,
        }
    }

    /// The frame's commands, held to the protocol; or what is wrong with it.
    fn unpack(&mut self, frame: &v1::Frame) -> Result<(Option<FrameId>, Commands), String> {
        let head = convert::unpack_head(frame).map_err(|problem| problem.to_string())?;
        let hash = |policy, key: &[u8]| Ok::<_, String>(Fingerprint::new(&RING, &TABLE, policy, key));
        let commands = convert::unpack_frame(frame, hash).map_err(|problem| format!("{problem:?}"))?;
        let Some(ledger) = self.shards.get_mut(&frame.shard) else {
            return Err(format!("there is no shard {}", frame.shard));
        };
        if let Some(id) = head.frame {
            ledger.note_numbered(id, &commands);
        }
        if frame.budget_us == 0 {
            self.violations.push("a frame does not say how long it is waited for".to_owned());
        }
        if frame.policy_version > self.policies.version.0 {
            self.violations.push(format!("a frame is of policy set {}, which there is not", frame.policy_version));
        }
        Ok((head.frame, commands))
    }
}

type Answers = mpsc::Sender<Result<v1::FrameAnswer, WireError>>;
type Commands = Vec<(u32, Command)>;

impl Wire for Nodes {
    fn watch(&self, address: &str) -> BoxFuture<'static, Result<Incoming<v1::TopologyUpdate>, WireError>> {
        let (nodes, address) = (self.clone(), address.to_owned());
        async move {
            let (node, cut) = nodes.reach(&address)?;
            if nodes.lock().hung.contains(&node) {
                return Ok(futures::stream::pending().boxed());
            }
            let updates = WatchStream::new(nodes.topology.subscribe()).map(Ok);
            Ok(updates.take_until(cut).boxed())
        }
        .boxed()
    }

    fn frames(
        &self,
        address: &str,
        mut frames: mpsc::Receiver<v1::Frame>,
    ) -> BoxFuture<'static, Result<Incoming<v1::FrameAnswer>, WireError>> {
        let (nodes, address) = (self.clone(), address.to_owned());
        async move {
            let (node, cut) = nodes.reach(&address)?;
            let (answers, received) = mpsc::channel(ANSWERS);
            tokio::spawn(async move {
                let serve = async {
                    let mut tags = HashSet::new();
                    while let Some(frame) = frames.recv().await {
                        if !tags.insert(frame.tag) {
                            nodes.lock().violations.push(format!("tag {} is used twice on a stream", frame.tag));
                            break;
                        }
                        if !nodes.meet(node, frame, &answers) {
                            break;
                        }
                    }
                };
                // Executions that are under way go on when the stream is cut, as they do on a node.
                tokio::select! { () = serve => {}, () = cut => {} }
                drop(answers.try_send(Err(WireError::new("the stream was cut"))));
            });
            Ok(ReceiverStream::new(received).boxed())
        }
        .boxed()
    }

    fn report(&self, address: &str, report: v1::FalsePositiveReport) -> BoxFuture<'static, Result<(), ReportError>> {
        let told = self.reach(address).map(|_| self.lock().take_report(&report));
        ready(told.map_err(ReportError::from).flatten()).boxed()
    }

    fn at(&self, now: Instant) -> Instant {
        self.lock().clock.at(now)
    }
}

impl Nodes {
    /// The node of that address, and what ends when it is cut.
    fn reach(&self, address: &str) -> Result<(u64, impl Future<Output = ()> + Send + 'static), WireError> {
        let number = address.strip_prefix("node-").and_then(|rest| rest.strip_suffix(":7600"));
        let node = number.and_then(|number| number.parse().ok()).unwrap_or(0);
        let world = self.lock();
        match world.cuts.get(&node).filter(|_| !world.down.contains(&node)) {
            Some(cuts) => {
                let mut cuts = cuts.subscribe();
                Ok((node, async move { drop(cuts.changed().await) }))
            }
            None => Err(WireError::new("connection refused")),
        }
    }

    /// Whether the stream goes on.
    fn meet(&self, node: u64, frame: v1::Frame, answers: &Answers) -> bool {
        let mut world = self.lock();
        if let Some(frames) = &mut world.frames {
            frames.push(frame.clone());
        }
        let (id, commands) = match world.unpack(&frame) {
            Ok(unpacked) => unpacked,
            Err(problem) => {
                world.violations.push(problem);
                return false;
            }
        };
        if world.hung.contains(&node) {
            return true;
        }
        let leader = world.shards.get(&frame.shard).map_or(0, |ledger| ledger.leader);
        if leader != node {
            let error = v1::Error { code: ErrorCode::NotLeader.into(), leader, ..Default::default() };
            return say(answers, vec![failed(&frame, error)]);
        }
        if let Some(held) = &mut world.held {
            held.push(Held { frame, id, commands, answers: answers.clone() });
            return true;
        }
        let fate = world.fate(id.is_some());
        drop(world);
        self.serve(fate, frame, id, commands, answers)
    }

    fn serve(&self, fate: Fate, frame: v1::Frame, id: Option<FrameId>, commands: Commands, answers: &Answers) -> bool {
        let run = |commands: Commands| self.execute(&frame, id, commands);
        let refusal = |code: ErrorCode| {
            let error = v1::Error { code: code.into(), message: format!("scripted {code:?}"), ..Default::default() };
            vec![failed(&frame, error)]
        };
        match fate {
            Fate::Served => say(answers, run(commands)),
            Fate::BrokenBefore => false,
            Fate::BrokenAfter => {
                run(commands);
                false
            }
            Fate::Refused(code) => say(answers, refusal(code)),
            Fate::Denounced(code) => {
                run(commands);
                say(answers, refusal(code))
            }
            Fate::Delayed(wait) => {
                let (nodes, answers) = (self.clone(), answers.clone());
                tokio::spawn(async move {
                    sleep(wait).await;
                    say(&answers, nodes.execute(&frame, id, commands));
                });
                true
            }
            Fate::AnsweredLate(wait) => {
                say_late(answers, run(commands), wait);
                true
            }
            Fate::Swallowed => {
                run(commands);
                true
            }
            Fate::Lost => true,
            Fate::Twice => {
                let first = run(commands.clone());
                say(answers, first) && say(answers, run(commands))
            }
            Fate::Halves(wait) => {
                let (first, second) = halves(commands);
                let goes_on = first.is_empty() || say(answers, run(first));
                say_late(answers, run(second), wait);
                goes_on
            }
            Fate::HalfThenBroken => {
                let (first, _) = halves(commands);
                if !first.is_empty() {
                    say(answers, run(first));
                }
                false
            }
        }
    }

    fn execute(&self, frame: &v1::Frame, id: Option<FrameId>, commands: Commands) -> Vec<v1::FrameAnswer> {
        let mut world = self.lock();
        let World { shards, forced, clock, .. } = &mut *world;
        let Some(ledger) = shards.get_mut(&frame.shard) else { return Vec::new() };
        let answers = ledger.execute(clock.stamp(), id, commands, forced);
        convert::pack_answers(frame.tag, ShardId(frame.shard), &answers).into_vec()
    }
}

fn halves(mut commands: Commands) -> (Commands, Commands) {
    let second = commands.split_off(commands.len() / 2);
    (commands, second)
}

fn failed(frame: &v1::Frame, error: v1::Error) -> v1::FrameAnswer {
    v1::FrameAnswer { tag: frame.tag, shard: frame.shard, error: Some(error), ..Default::default() }
}

fn say(answers: &Answers, all: Vec<v1::FrameAnswer>) -> bool {
    all.into_iter().all(|answer| answers.try_send(Ok(answer)).is_ok())
}

fn say_late(answers: &Answers, all: Vec<v1::FrameAnswer>, wait: Duration) {
    let answers = answers.clone();
    tokio::spawn(async move {
        sleep(wait).await;
        say(&answers, all);
    });
}
