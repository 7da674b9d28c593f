//! A cluster in memory: nodes that run the real state machine behind a wire that loses, delays and repeats.
//!
//! Each shard is one [`Shard`] with one log, as if every entry were replicated at once; who leads it can be changed. What a
//! frame meets is scripted, frame by frame, or drawn from a seed. The fake holds the client to the protocol: a number of a
//! session always carries the same commands, a frame acknowledges nothing that is not answered, tags are never used twice.

#![allow(dead_code, unreachable_pub, clippy::unwrap_used, reason = "test support; each test file uses a part of it")]

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _};
use quorate_client::wire::{Incoming, Wire, WireError};
use quorate_client::{Client, Error, limit};
use quorate_core::{
    Algorithm, Answer, Batch, Check, Command, Cost, Fingerprint, FrameId, Group, Index, Limit, PlaceAnswer, Policy,
    PolicyId, PolicySet, PolicyVersion, Rate, Ring, RingSecret, SessionId, Shard, ShardId, Span, Stamp, TableSecret,
    Term,
};
use quorate_proto::v1::ErrorCode;
use quorate_proto::{convert, v1};
use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep};
use tokio_stream::wrappers::{ReceiverStream, WatchStream};

pub const RING: RingSecret = RingSecret([3; 16]);
pub const TABLE: TableSecret = TableSecret([4; 16]);

/// What a frame meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Served,
    /// The stream breaks; nothing was executed.
    BrokenBefore,
    /// The stream breaks; it was executed.
    BrokenAfter,
    /// Not executed, and answered with that code.
    Refused(ErrorCode),
    /// Executed, and answered with that code.
    Denounced(ErrorCode),
    /// Executed that much later, whoever leads then; then answered.
    Delayed(Duration),
    /// Executed; answered that much later.
    AnsweredLate(Duration),
    /// Executed; never answered.
    Swallowed,
    /// Neither executed nor answered.
    Lost,
    /// Executed twice, answered twice.
    Twice,
    /// Executed in two entries and answered in two messages, the second that much later.
    Halves(Duration),
    /// The first half executed and answered, the second not; then the stream breaks.
    HalfThenBroken,
}

/// One shard, with everything that was ever decided in it.
struct Truth {
    shard: Shard,
    index: u64,
    term: u64,
    leader: u64,
    sessions: Vec<SessionId>,
    /// What was decided, by its place in the log.
    decided: HashMap<(u64, u32), Answer>,
    /// What each place of each numbered frame carried.
    numbered: HashMap<(u64, u64, u32), Command>,
}

struct World {
    shards: BTreeMap<u32, Truth>,
    ring: Ring,
    policies: PolicySet,
    epoch: u64,
    down: HashSet<u64>,
    hung: HashSet<u64>,
    script: VecDeque<Fate>,
    /// How late frames in no session are answered.
    slow_probes: Option<Duration>,
    chaos: Option<SmallRng>,
    frames: Vec<v1::Frame>,
    born: Instant,
    /// Ends every stream to a node when it is changed.
    cuts: BTreeMap<u64, watch::Sender<u64>>,
    cluster_id: u8,
    /// As nodes tell it.
    live_clients: u64,
    /// Where nodes really listen, if they do.
    addresses: BTreeMap<u64, String>,
}

/// The cluster. Clones are the same one.
#[derive(Clone)]
pub struct Fake {
    world: Arc<Mutex<World>>,
    topology: Arc<watch::Sender<v1::TopologyUpdate>>,
}

pub fn address(node: u64) -> String {
    format!("node-{node}:7600")
}

/// One for each algorithm and mode that the tests use; ids are given here.
pub fn policies() -> Vec<Policy> {
    let year = Span(366 * 24 * 3_600 * 1_000_000);
    let mut all = vec![
        Policy::new("ten", Algorithm::FixedWindow { limit: 10, window: year }),
        Policy::new("plenty", Algorithm::FixedWindow { limit: 1_000_000_000, window: year }),
        Policy::new(
            "bucket",
            Algorithm::TokenBucket { capacity: 10, refill: Rate { units: 1, period: Span(1_000_000) } },
        ),
        Policy::new("paced", Algorithm::LeakyBucket { queue: 5, rate: Rate { units: 1, period: Span(1_000_000) } }),
        Policy::new("shadowed", Algorithm::FixedWindow { limit: 1, window: year }),
        Policy::new("off", Algorithm::FixedWindow { limit: 1, window: year }),
    ];
    all[4].mode = quorate_core::Mode::Shadow;
    all[5].mode = quorate_core::Mode::Disabled;
    for (at, policy) in all.iter_mut().enumerate() {
        policy.id = PolicyId(at as u32 + 1);
    }
    all
}

impl Fake {
    /// Three nodes and that many shards, led by one node after another.
    pub fn new(shards: u32) -> Fake {
        let ring = Ring::even(shards);
        let truth = |(arc, id): &(quorate_core::Arc, ShardId)| {
            let truth = Truth {
                shard: Shard::new(*id, *arc),
                index: 0,
                term: 1,
                leader: u64::from(id.0 - 1) % 3 + 1,
                sessions: Vec::new(),
                decided: HashMap::new(),
                numbered: HashMap::new(),
            };
            (id.0, truth)
        };
        let world = World {
            shards: ring.arcs().iter().map(truth).collect(),
            ring,
            policies: PolicySet::default(),
            epoch: 1,
            down: HashSet::new(),
            hung: HashSet::new(),
            script: VecDeque::new(),
            slow_probes: None,
            chaos: None,
            frames: Vec::new(),
            born: Instant::now(),
            cuts: (1..=3).map(|node| (node, watch::channel(0).0)).collect(),
            cluster_id: 9,
            live_clients: 0,
            addresses: BTreeMap::new(),
        };
        let fake = Fake { topology: Arc::new(watch::channel(world.update()).0), world: Arc::new(Mutex::new(world)) };
        fake.install(policies());
        fake
    }

    fn lock(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap()
    }

    pub async fn connect(&self) -> Client {
        self.builder().connect_over(Arc::new(self.clone()), 1).await.unwrap()
    }

    pub fn builder(&self) -> quorate_client::ClientBuilder {
        Client::builder().endpoints((1..=3).map(address)).deadline(Duration::from_secs(1))
    }

    /// Puts policies in force everywhere and tells the clients.
    pub fn install(&self, policies: Vec<Policy>) {
        let mut world = self.lock();
        world.policies = PolicySet { version: PolicyVersion(world.policies.version.0 + 1), policies };
        let install = Command::Install(world.policies.clone());
        let stamp = world.stamp();
        for truth in world.shards.values_mut() {
            truth.apply(stamp, None, vec![(0, install.clone())]);
        }
        drop(world);
        self.publish();
    }

    /// A newer topology, the same for every key.
    pub fn renew_topology(&self) {
        self.lock().epoch += 1;
        self.publish();
    }

    pub fn publish(&self) {
        let update = self.lock().update();
        self.topology.send_replace(update);
    }

    /// Gives a shard another leader; clients hear of it when it is published.
    pub fn elect(&self, shard: u32, leader: u64) {
        let mut world = self.lock();
        let truth = world.shards.get_mut(&shard).unwrap();
        truth.term += 1;
        truth.leader = leader;
    }

    /// What the next frames meet, one after another; then all are served.
    pub fn script(&self, fates: impl IntoIterator<Item = Fate>) {
        self.lock().script = fates.into_iter().collect();
    }

    /// From now on, frames in no session are answered so late.
    pub fn slow_probes(&self, wait: Option<Duration>) {
        self.lock().slow_probes = wait;
    }

    /// From now on, what frames meet is drawn.
    pub fn chaos(&self, seed: Option<u64>) {
        self.lock().chaos = seed.map(SmallRng::seed_from_u64);
    }

    /// Breaks every stream to the node.
    pub fn cut(&self, node: u64) {
        self.lock().cuts[&node].send_modify(|cuts| *cuts += 1);
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

    /// Lets the node accept streams and say nothing.
    pub fn set_hung(&self, node: u64) {
        self.lock().hung.insert(node);
    }

    /// Tells the clients that the node listens there.
    pub fn set_address(&self, node: u64, address: String) {
        self.lock().addresses.insert(node, address);
        self.publish();
    }

    /// Tells the clients that so many of them are about.
    pub fn set_live_clients(&self, live_clients: u64) {
        self.lock().live_clients = live_clients;
        self.publish();
    }

    pub fn set_cluster(&self, id: u8) {
        self.lock().cluster_id = id;
        self.publish();
    }

    /// Ends every session of a shard behind its clients' backs.
    pub fn expire_sessions(&self, shard: u32) {
        let mut world = self.lock();
        let stamp = world.stamp();
        let truth = world.shards.get_mut(&shard).unwrap();
        for session in std::mem::take(&mut truth.sessions) {
            truth.apply(stamp, None, vec![(0, Command::CloseSession(session))]);
        }
    }

    pub fn sessions(&self) -> u64 {
        self.lock().shards.values().map(|truth| truth.shard.usage().sessions).sum()
    }

    /// Every frame that has come so far.
    pub fn frames(&self) -> Vec<v1::Frame> {
        self.lock().frames.clone()
    }

    pub fn shard_of(&self, key: &str) -> u32 {
        self.lock().ring.shard_of(RING.hash(key.as_bytes())).0
    }

    /// What the shard holds as charged under a fixed window.
    pub fn used(&self, policy: &str, key: &str) -> u64 {
        let world = self.lock();
        let policy = world.policies.policies.iter().find(|one| one.name == policy).unwrap();
        let key = Fingerprint::new(&RING, &TABLE, policy.id, key.as_bytes());
        let limits = [Limit { policy: policy.id, key, cost: Cost::ONE }].into_iter().collect();
        let check = Check { limits, peek: true, max_delay: None };
        let truth = &world.shards[&world.ring.shard_of(key.ring).0];
        match truth.shard.evaluate(world.stamp(), &check) {
            Answer::Decision(decision) => decision.limits[0].limit - decision.limits[0].remaining,
            other => panic!("{other:?}"),
        }
    }

    /// Holds a decision against what the state machine decided at that place of its log.
    pub fn assert_true(&self, decision: &quorate_client::Decision) {
        let world = self.lock();
        let receipt = decision.receipt;
        let answer = &world.shards[&receipt.shard.0].decided[&(receipt.index.0, receipt.place)];
        let Answer::Decision(core) = answer else { panic!("{answer:?}") };
        assert_eq!((decision.allowed, decision.policy_version), (core.allowed, core.version));
        assert_eq!(decision.retry_after, core.retry_after.map(micros));
        assert_eq!(decision.delay, core.delay.map(micros));
        assert_eq!(decision.limits.len(), core.limits.len());
        for (ours, theirs) in decision.limits.iter().zip(&core.limits) {
            assert_eq!((ours.allowed, ours.charged, ours.shadow), (theirs.allowed, theirs.charged, theirs.shadow));
            assert_eq!((ours.limit, ours.remaining, ours.cost), (theirs.limit, theirs.remaining, theirs.cost.get()));
            assert_eq!(
                (ours.retry_after, ours.reset_after),
                (theirs.retry_after.map(micros), micros(theirs.reset_after))
            );
        }
    }
}

fn micros(span: Span) -> Duration {
    Duration::from_micros(span.0 as u64)
}

impl World {
    fn stamp(&self) -> Stamp {
        Stamp(1_700_000_000_000_000 + self.born.elapsed().as_micros() as i64)
    }

    fn update(&self) -> v1::TopologyUpdate {
        let address = |id| self.addresses.get(&id).cloned().unwrap_or_else(|| address(id));
        let node = |id| v1::Node { id, address: address(id), zone: String::new() };
        let shard = |(arc, id): &(quorate_core::Arc, ShardId)| {
            let truth = &self.shards[&id.0];
            let (first, last) = (arc.start, arc.end_inclusive);
            v1::Shard { id: id.0, first, last, replicas: vec![1, 2, 3], leader: truth.leader, term: truth.term }
        };
        v1::TopologyUpdate {
            cluster_id: vec![self.cluster_id; 16].into(),
            cluster_name: "fake".into(),
            epoch: self.epoch,
            nodes: (1..=3).map(node).collect(),
            shards: self.ring.arcs().iter().map(shard).collect(),
            ring_secret: RING.0.to_vec().into(),
            policies: Some(convert::policy_set_to_wire(&self.policies)),
            live_clients: self.live_clients,
        }
    }

    fn fate(&mut self, in_session: bool) -> Fate {
        if let Some(rng) = &mut self.chaos {
            return draw(rng);
        }
        match self.slow_probes {
            _ if in_session => self.script.pop_front().unwrap_or(Fate::Served),
            Some(wait) => Fate::AnsweredLate(wait),
            None => Fate::Served,
        }
    }

    /// The frame's commands, held to the protocol.
    fn unpack(&mut self, frame: &v1::Frame) -> (Option<FrameId>, Vec<(u32, Command)>) {
        let head = convert::unpack_head(frame).unwrap();
        let hash = |policy, key: &[u8]| Ok::<_, ()>(Fingerprint::new(&RING, &TABLE, policy, key));
        let commands = convert::unpack_frame(frame, hash).unwrap();
        assert!(frame.budget_us > 0, "every frame says how long it is waited for");
        assert!(frame.policy_version <= self.policies.version.0);
        let truth = self.shards.get_mut(&frame.shard).unwrap();
        if let Some(id) = head.frame {
            for (place, command) in &commands {
                let number = (id.session.0, id.sequence.0, *place);
                let before = truth.numbered.entry(number).or_insert_with(|| command.clone());
                assert_eq!(before, command, "a number of a session always carries the same command");
            }
        }
        (head.frame, commands)
    }
}

impl Truth {
    fn apply(&mut self, stamp: Stamp, frame: Option<FrameId>, commands: Vec<(u32, Command)>) -> Vec<PlaceAnswer> {
        self.index += 1;
        let batch = Batch { stamp, groups: vec![Group { frame, commands }] };
        let mut applied = self.shard.apply(Term(self.term), Index(self.index), &batch, true);
        let answers = applied.groups.pop().unwrap();
        for answer in &answers {
            if let Answer::SessionOpened(session) = answer.answer {
                self.sessions.push(session);
            }
            let place = (answer.receipt.index.0, answer.receipt.place);
            let first = self.decided.entry(place).or_insert_with(|| answer.answer.clone());
            assert_eq!(*first, answer.answer, "a retry gets the first answer");
        }
        answers
    }
}

fn draw(rng: &mut SmallRng) -> Fate {
    let mut wait = |most: u64| Duration::from_micros(rng.random_range(0..most));
    let (short, long) = (wait(20_000), wait(2_000_000));
    match rng.random_range(0..40) {
        0 => Fate::BrokenBefore,
        1 => Fate::BrokenAfter,
        2 => Fate::Refused(ErrorCode::Overloaded),
        3 => Fate::Refused(ErrorCode::PoliciesBehind),
        4 => Fate::Refused(ErrorCode::Unavailable),
        5 => Fate::Refused(ErrorCode::Unknown),
        6 => Fate::Denounced(ErrorCode::Unknown),
        7 => Fate::Delayed(long),
        8 => Fate::AnsweredLate(long),
        9 => Fate::Swallowed,
        10 => Fate::Lost,
        11 => Fate::Twice,
        12 => Fate::Halves(short),
        13 => Fate::HalfThenBroken,
        14 => Fate::Refused(ErrorCode::Deadline),
        15..20 => Fate::Delayed(short),
        20..25 => Fate::AnsweredLate(short),
        _ => Fate::Served,
    }
}

type Answers = mpsc::Sender<Result<v1::FrameAnswer, WireError>>;

impl Wire for Fake {
    fn watch(&self, address: &str) -> BoxFuture<'static, Result<Incoming<v1::TopologyUpdate>, WireError>> {
        let (fake, node) = (self.clone(), number(address));
        async move {
            let cut = fake.reach(node)?;
            if fake.lock().hung.contains(&node) {
                return Ok(futures::stream::pending().boxed());
            }
            let updates = WatchStream::new(fake.topology.subscribe()).map(Ok);
            Ok(updates.take_until(cut).boxed())
        }
        .boxed()
    }

    fn frames(
        &self,
        address: &str,
        mut frames: mpsc::Receiver<v1::Frame>,
    ) -> BoxFuture<'static, Result<Incoming<v1::FrameAnswer>, WireError>> {
        let (fake, node) = (self.clone(), number(address));
        async move {
            let cut = fake.reach(node)?;
            let (answers, received) = mpsc::channel(64);
            tokio::spawn(async move {
                let serve = async {
                    let mut tags = HashSet::new();
                    while let Some(frame) = frames.recv().await {
                        let new = tags.insert(frame.tag);
                        if new && fake.meet(node, frame, &answers) {
                            continue;
                        }
                        // Under the lock, so that every test that looks at the cluster fails with it.
                        let _world = fake.lock();
                        assert!(new, "a tag is used once on a stream");
                        break;
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
}

fn number(address: &str) -> u64 {
    address.strip_prefix("node-").and_then(|rest| rest.strip_suffix(":7600")).unwrap().parse().unwrap()
}

impl Fake {
    /// What ends when the node is cut.
    fn reach(&self, node: u64) -> Result<impl Future<Output = ()> + Send + 'static, WireError> {
        let world = self.lock();
        if world.down.contains(&node) {
            return Err(WireError::new("connection refused"));
        }
        let mut cuts = world.cuts[&node].subscribe();
        Ok(async move { drop(cuts.changed().await) })
    }

    /// Whether the stream goes on.
    fn meet(&self, node: u64, frame: v1::Frame, answers: &Answers) -> bool {
        let mut world = self.lock();
        world.frames.push(frame.clone());
        let (id, commands) = world.unpack(&frame);
        if world.hung.contains(&node) {
            return true;
        }
        let truth = &world.shards[&frame.shard];
        if truth.leader != node {
            let leader = truth.leader;
            let error = v1::Error { code: ErrorCode::NotLeader.into(), leader, ..Default::default() };
            return say(answers, vec![failed(&frame, error)]);
        }
        let fate = world.fate(id.is_some());
        drop(world);
        let run = |commands: Vec<(u32, Command)>| self.execute(&frame, id, commands);
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
                let (fake, answers) = (self.clone(), answers.clone());
                tokio::spawn(async move {
                    sleep(wait).await;
                    say(&answers, fake.execute(&frame, id, commands));
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

    fn execute(&self, frame: &v1::Frame, id: Option<FrameId>, commands: Vec<(u32, Command)>) -> Vec<v1::FrameAnswer> {
        let mut world = self.lock();
        let stamp = world.stamp();
        let truth = world.shards.get_mut(&frame.shard).unwrap();
        let answers = truth.apply(stamp, id, commands);
        convert::pack_answers(frame.tag, ShardId(frame.shard), &answers).into_vec()
    }
}

type Commands = Vec<(u32, Command)>;

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

/// Whether the check of one unit under `plenty` is granted now.
pub async fn works(client: &Client, key: &str) -> Result<bool, Error> {
    client.check_all([limit("plenty", key)]).await.map(|decision| decision.allowed)
}
