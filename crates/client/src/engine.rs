//! The one task that owns what the client knows: lanes, streams, topology.
//!
//! It turns whenever something happens: a caller rang, a node answered, a stream opened or broke, the topology changed, a
//! time came. A turn takes in everything that has happened, then sends whatever can be sent. It never waits for anything
//! but the next event, so no shard, node or caller holds up another.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use quorate_core::{Epoch, NodeId, ShardId};
use quorate_proto::v1;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use crate::backoff::Chance;
use crate::caps;
use crate::queue::{Closed, Queue};
use crate::routes::Routes;
use crate::time::ClusterTime;
use crate::wire::{Wire, WireError};

mod errand;
mod flight;
mod lane;
mod links;
mod replies;
mod trouble;
mod watch_task;

use lane::{Heard, Lane, Turn};
use links::{Generation, Links};
use watch_task::{MoveOn, Report, Watch};

pub(crate) use watch_task::Tried;

/// What streams report.
pub(crate) enum Event {
    Opened(NodeId, Generation),
    Answer(NodeId, Generation, Box<v1::FrameAnswer>),
    Broken(NodeId, Generation, WireError),
}

/// What the engine shares with callers.
pub(crate) struct Shared {
    /// Replaced by every report that says something new.
    pub(crate) routes: Arc<ArcSwapOption<Routes>>,
    /// Counts the replacements.
    pub(crate) changes: watch::Receiver<u64>,
    pub(crate) tried: Arc<Tried>,
    pub(crate) time: Arc<ClusterTime>,
    /// Closes the engine; so does dropping it.
    pub(crate) close: mpsc::Sender<oneshot::Sender<()>>,
}

pub(crate) struct Engine {
    routes: Arc<ArcSwapOption<Routes>>,
    changed: watch::Sender<u64>,
    tried: Arc<Tried>,
    lanes: BTreeMap<ShardId, Lane>,
    links: Links,
    events: mpsc::Receiver<Event>,
    bell: mpsc::UnboundedSender<ShardId>,
    bells: mpsc::UnboundedReceiver<ShardId>,
    reports: mpsc::Receiver<Report>,
    move_on: mpsc::Sender<MoveOn>,
    close: mpsc::Receiver<oneshot::Sender<()>>,
    closing: Option<Closing>,
    restless: Restless,
    chance: Chance,
    time: Arc<ClusterTime>,
    /// How long the client waits for a check.
    patience: Duration,
    tag: u64,
}

struct Closing {
    until: Instant,
    closed: Option<oneshot::Sender<()>>,
}

/// How often the topology watch is asked to go elsewhere: ever more rarely while that does not help, so that a cluster
/// that is merely slow is not asked for its topology all the time.
#[derive(Debug, Default)]
struct Restless {
    last: Option<Instant>,
    moves: u32,
}

impl Restless {
    fn may_move_on(&mut self, now: Instant) -> bool {
        let Some(last) = self.last else {
            self.last = Some(now);
            return true;
        };
        let calm = caps::PATIENCE * (1 << self.moves.min(4));
        if now < last + calm {
            return false;
        }
        self.moves = if now < last + 2 * calm { self.moves + 1 } else { 0 };
        self.last = Some(now);
        true
    }
}

/// Starts an engine and its topology watch. Both end soon after [`Shared`] is dropped. `patience` is how long the client waits
/// for a check, unless it says otherwise.
pub(crate) fn start(wire: Arc<dyn Wire>, endpoints: Vec<String>, seed: u64, patience: Duration) -> Shared {
    let mut chance = Chance::seeded(seed);
    let (event, events) = mpsc::channel(caps::EVENTS);
    let (bell, bells) = mpsc::unbounded_channel();
    let (report, reports) = mpsc::channel(1);
    let (move_on, asked) = mpsc::channel(1);
    let (close, closes) = mpsc::channel(1);
    let (changed, changes) = watch::channel(0);
    let routes = Arc::new(ArcSwapOption::empty());
    let tried = Arc::new(Tried::default());
    let time = Arc::new(ClusterTime::new());
    let watch = Watch {
        wire: wire.clone(),
        endpoints,
        routes: routes.clone(),
        reports: report,
        move_on: asked,
        tried: tried.clone(),
        chance: Chance::seeded(chance.seed()),
    };
    let engine = Engine {
        routes: routes.clone(),
        changed,
        tried: tried.clone(),
        lanes: BTreeMap::new(),
        links: Links::new(wire, event),
        events,
        bell,
        bells,
        reports,
        move_on,
        close: closes,
        closing: None,
        restless: Restless::default(),
        chance,
        time: time.clone(),
        patience,
        tag: 0,
    };
    tokio::spawn(watch.run());
    tokio::spawn(engine.run());
    Shared { routes, changes, tried, time, close }
}

impl Engine {
    async fn run(mut self) {
        let far = Duration::from_secs(24 * 3600);
        let timer = tokio::time::sleep(far);
        tokio::pin!(timer);
        while !self.is_over() {
            let wake = self.next_turn().unwrap_or_else(|| Instant::now() + far);
            if timer.deadline() != wake {
                timer.as_mut().reset(wake);
            }
            tokio::select! {
                biased;
                asked = self.close.recv(), if self.closing.is_none() => self.begin_to_close(asked),
                Some(event) = self.events.recv() => self.happened(event),
                Some(shard) = self.bells.recv() => self.rang(shard),
                Some(report) = self.reports.recv() => self.reported(report),
                () = &mut timer => {}
            }
            self.take_in();
            self.turn();
        }
        self.end();
    }

    /// What else has happened, up to a bound, so that it is answered by one turn.
    fn take_in(&mut self) {
        for _ in 0..caps::EVENTS_AT_ONCE {
            match self.events.try_recv() {
                Ok(event) => self.happened(event),
                Err(_) => break,
            }
        }
        while let Ok(shard) = self.bells.try_recv() {
            self.rang(shard);
        }
    }

    fn happened(&mut self, event: Event) {
        match event {
            Event::Opened(node, generation) => self.links.opened(node, generation),
            Event::Answer(node, generation, answer) => {
                self.links.heard(node, generation);
                let heard = Heard { node, answer: *answer };
                self.with_lane(ShardId(heard.answer.shard), |lane, turn| lane.hear(heard, turn));
            }
            Event::Broken(node, generation, why) => self.broken(node, generation, why),
        }
    }

    fn rang(&mut self, shard: ShardId) {
        if let Some(lane) = self.lanes.get_mut(&shard) {
            lane.ring();
        }
    }

    fn broken(&mut self, node: NodeId, generation: Generation, why: WireError) {
        let now = Instant::now();
        if !self.links.broken(node, generation, why.clone(), now, &mut self.chance) {
            return;
        }
        tracing::debug!(%node, address = self.links.address(node), %why, "the stream of frames to this node is gone");
        self.with_lanes(|lane, turn| lane.broken(node, generation, &why.0, turn));
    }

    fn reported(&mut self, report: Report) {
        let before = self.routes.load_full();
        let (bell, lanes, patience) = (&self.bell, &mut self.lanes, self.patience);
        let after = Routes::after(before.as_ref(), report.update, |shard| {
            let queue = Arc::new(Queue::new(shard, bell.clone()));
            lanes.insert(shard, Lane::new(queue.clone(), patience));
            queue
        });
        match after {
            Ok(after) => self.follow(after),
            Err(problem) => {
                tracing::warn!(address = report.address, problem, "the topology of this node cannot be used");
                self.tried.note(&report.address, &problem);
                // Full: it is about to move on.
                drop(self.move_on.try_send(MoveOn::Unusable));
            }
        }
    }

    fn follow(&mut self, routes: Arc<Routes>) {
        let ended = self.links.follow(&routes.topology, Instant::now());
        for info in &routes.topology.shards {
            if let Some(lane) = self.lanes.get_mut(&info.id) {
                lane.follow(info);
            }
        }
        // A shard that is gone: what was asked of it is asked again of whoever holds the key now.
        self.lanes.retain(|shard, lane| {
            let stays = routes.topology.shard(*shard).is_some();
            if !stays {
                lane.close(Closed::Shard);
                lane.abandon(Closed::Shard);
            }
            stays
        });
        self.routes.store(Some(routes));
        self.changed.send_modify(|changes| *changes += 1);
        for (node, generation) in ended {
            self.with_lanes(|lane, turn| lane.broken(node, generation, "it has moved", turn));
        }
    }

    /// Sends what can be sent, and asks around where nothing comes back.
    fn turn(&mut self) {
        let now = Instant::now();
        for (node, generation) in self.links.silent(now) {
            self.broken(node, generation, WireError::new(format!("it said nothing for {:?}", caps::SILENCE)));
        }
        let mut overdue = false;
        for lane in self.lanes.values_mut() {
            overdue |= lane.overdue(now).is_some();
        }
        if overdue && self.restless.may_move_on(now) {
            // Full: it is about to move on.
            drop(self.move_on.try_send(MoveOn::Stalled));
        }
        self.with_lanes(|lane, turn| lane.pump(turn));
    }

    fn next_turn(&self) -> Option<Instant> {
        let closing = self.closing.as_ref().map(|closing| closing.until);
        let lanes = self.lanes.values().filter_map(Lane::next_turn);
        lanes.chain(self.links.next_silence()).chain(closing).min()
    }

    fn begin_to_close(&mut self, closed: Option<oneshot::Sender<()>>) {
        self.closing = Some(Closing { until: Instant::now() + caps::CLOSE, closed });
        for lane in self.lanes.values_mut() {
            lane.close(Closed::Client);
        }
    }

    /// Whether the engine was closed, and nothing is left to wait for.
    fn is_over(&mut self) -> bool {
        let Some(until) = self.closing.as_ref().map(|closing| closing.until) else { return false };
        let mut done = true;
        self.with_lanes(|lane, turn| done &= lane.leave(turn));
        done || until <= Instant::now()
    }

    fn end(mut self) {
        for lane in self.lanes.values_mut() {
            lane.abandon(Closed::Client);
        }
        if let Some(closed) = self.closing.and_then(|closing| closing.closed) {
            // Whoever closed may have gone.
            let _ = closed.send(());
        }
    }

    fn with_lane(&mut self, shard: ShardId, f: impl FnOnce(&mut Lane, &mut Turn<'_>)) {
        let epoch = self.epoch();
        let Some(lane) = self.lanes.get_mut(&shard) else { return };
        let (links, chance, time, tag) = (&mut self.links, &mut self.chance, &*self.time, &mut self.tag);
        f(lane, &mut Turn { now: Instant::now(), epoch, links, chance, time, tag });
    }

    fn with_lanes(&mut self, mut f: impl FnMut(&mut Lane, &mut Turn<'_>)) {
        let epoch = self.epoch();
        let (links, chance, time, tag) = (&mut self.links, &mut self.chance, &*self.time, &mut self.tag);
        let mut turn = Turn { now: Instant::now(), epoch, links, chance, time, tag };
        self.lanes.values_mut().for_each(|lane| f(lane, &mut turn));
    }

    fn epoch(&self) -> Epoch {
        self.routes.load().as_ref().map_or(Epoch(0), |routes| routes.topology.epoch)
    }
}
