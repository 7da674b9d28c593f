//! The way to one shard: its session, the frames under way, and what to do when they do not come back.
//!
//! ```text
//!  queue ──take──► flight: no number ──session──► numbered ──send──► sent ──answers──► gone
//!                     ▲                              ▲                │
//!                     │ session unknown,             └── refused, or the stream broke
//!                     └ certainly not executed           (then it may have run)
//! ```
//!
//! Invariants:
//! - A frame keeps its number once it may have been executed: sent again, it gets its first answers. It gets another one
//!   only where every attempt was refused. So nothing is charged twice.
//! - A command whose fate cannot be learned is answered as one that may have been charged, never asked anew.
//! - `lowest_unanswered` is not above any frame of the session whose answers are still awaited.
//! - At most [`caps::FRAMES_IN_FLIGHT`] frames are under way, within [`caps::SESSION_SPAN`].
//! - What nobody waits for is not sent (again).
//!
//! No I/O and no clock: the engine calls, and `Turn` is all that a lane can reach.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use quorate_core::{Epoch, NodeId, Sequence, SessionId, ShardId, Term};
use quorate_proto::v1;
use tokio::time::Instant;

use super::errand::Errand;
use super::flight::{Flight, Sent};
use super::links::{Generation, Links, Reach};
use super::trouble::{Trouble, late, tripped, unknown};
use crate::backoff::Chance;
use crate::breaker::Breaker;
use crate::caps;
use crate::error::{Error, ErrorKind};
use crate::queue::{Closed, Failure, Queue};
use crate::time::ClusterTime;
use crate::topology::ShardInfo;

/// What a lane can reach during one turn of the engine.
pub(crate) struct Turn<'a> {
    pub(crate) now: Instant,
    pub(crate) epoch: Epoch,
    pub(crate) links: &'a mut Links,
    pub(crate) chance: &'a mut Chance,
    pub(crate) time: &'a ClusterTime,
    /// The last tag given; unique in this client.
    pub(crate) tag: &'a mut u64,
}

impl Turn<'_> {
    pub(super) fn next_tag(&mut self) -> u64 {
        *self.tag += 1;
        *self.tag
    }
}

pub(crate) struct Lane {
    pub(super) shard: ShardId,
    queue: Arc<Queue>,
    replicas: Vec<NodeId>,
    /// As the topology says.
    leader: Option<NodeId>,
    term: Term,
    /// Whom to ask next.
    pub(super) target: Option<NodeId>,
    pub(super) session: Option<SessionId>,
    /// A session was asked for, or the end of one.
    pub(super) errand: Option<Errand>,
    next_sequence: u64,
    pub(super) flights: Vec<Flight>,
    /// Nothing is sent before that moment.
    pub(super) pause: Option<Instant>,
    /// In a row.
    pub(super) failures: u32,
    pub(super) trouble: Option<Trouble>,
    breaker: Breaker,
    /// The queue may hold something, and something may become late at that time.
    queued: bool,
    queue_deadline: Option<Instant>,
}

impl Lane {
    /// `patience` is how long the client waits for a check, unless it says otherwise.
    pub(crate) fn new(queue: Arc<Queue>, patience: Duration) -> Lane {
        Lane {
            shard: queue.shard,
            queue,
            replicas: Vec::new(),
            leader: None,
            term: Term(0),
            target: None,
            session: None,
            errand: None,
            next_sequence: 1,
            flights: Vec::new(),
            pause: None,
            failures: 0,
            trouble: None,
            breaker: Breaker::new(patience),
            queued: false,
            queue_deadline: None,
        }
    }

    /// The bell rang: something waits.
    pub(crate) fn ring(&mut self) {
        self.queued = true;
        self.queue_deadline = self.queue.heard();
    }

    /// Takes in what the topology says of the shard. Frames at a node that does not lead any more go to the one that does.
    pub(crate) fn follow(&mut self, info: &ShardInfo) {
        self.replicas.clone_from(&info.replicas);
        if (info.term, info.leader) == (self.term, self.leader) {
            return;
        }
        (self.term, self.leader) = (info.term, info.leader);
        let Some(leader) = info.leader else { return };
        self.target = Some(leader);
        self.pause = None;
        self.failures = 0;
        for flight in &mut self.flights {
            if flight.sent.is_some_and(|sent| sent.node != leader) {
                flight.lost();
            }
        }
        if self.errand.as_ref().is_some_and(|errand| errand.sent.node != leader) {
            self.errand = None;
        }
    }

    /// The stream is over: nobody says any more what became of the frames on it.
    pub(crate) fn broken(&mut self, node: NodeId, generation: Generation, why: &str, turn: &mut Turn<'_>) {
        for flight in &mut self.flights {
            if flight.sent.is_some_and(|sent| sent.is_on(node, generation)) {
                flight.lost();
            }
        }
        if self.errand.as_ref().is_some_and(|errand| errand.sent.is_on(node, generation)) {
            self.errand = None;
        }
        if self.target() == Some(node) && self.has_work() {
            self.unreachable(node, why, turn);
        }
    }

    pub(super) fn unreachable(&mut self, node: NodeId, why: &str, turn: &mut Turn<'_>) {
        let text = format!("node {node} at {} cannot be reached: {why}", turn.links.address(node));
        self.trouble = Some(Trouble::new(ErrorKind::Unavailable, text));
        self.turn_away(node);
        self.back_off(turn);
    }

    /// Sends whatever can be sent now.
    pub(crate) fn pump(&mut self, turn: &mut Turn<'_>) {
        self.expire(turn);
        if !self.has_to_send() || self.pause.is_some_and(|until| turn.now < until) {
            return;
        }
        self.pause = None;
        let Some(node) = self.target() else {
            let text = format!("shard {} has no replica in the topology", self.shard);
            self.trouble = Some(Trouble::new(ErrorKind::Unavailable, text));
            return self.back_off(turn);
        };
        match turn.links.reach(node, turn.now) {
            Reach::Connecting => {}
            Reach::Down(why) => self.unreachable(node, &why.0, turn),
            Reach::Up(generation) => self.send(node, generation, turn),
        }
    }

    fn send(&mut self, node: NodeId, generation: Generation, turn: &mut Turn<'_>) {
        if self.session.is_none() && self.errand.is_none() && !self.open_session(node, generation, turn) {
            return self.congested(node, turn);
        }
        // Where a session is being opened, that is the probe.
        if self.breaker.is_open() && self.errand.is_none() && !self.probe(node, generation, turn) {
            return self.congested(node, turn);
        }
        let mut at = 0;
        while at < self.flights.len() || self.take_next() {
            match self.send_flight(at, node, generation, turn) {
                Handed::Over | Handed::NotYet => at += 1,
                Handed::Dropped => drop(self.flights.remove(at)),
                Handed::Congested => return self.congested(node, turn),
            }
        }
    }

    /// Makes the oldest pack a flight, if there is room for one and a session for it.
    fn take_next(&mut self) -> bool {
        let Some(session) = self.session.filter(|_| self.queued && self.flights.len() < caps::FRAMES_IN_FLIGHT) else {
            return false;
        };
        let next = Sequence(self.next_sequence);
        if next.0 - self.lowest_unanswered(session, next).0 >= caps::SESSION_SPAN {
            return false;
        }
        match self.queue.take() {
            Some(pack) => {
                self.flights.push(Flight::new(pack.seal()));
                true
            }
            None => {
                self.queued = false;
                self.queue_deadline = None;
                false
            }
        }
    }

    fn send_flight(&mut self, at: usize, node: NodeId, generation: Generation, turn: &mut Turn<'_>) -> Handed {
        let Some(flight) = self.flights.get_mut(at) else { return Handed::NotYet };
        if flight.sent.is_some() {
            return Handed::NotYet;
        }
        let Some((session, sequence)) = flight.number.or_else(|| {
            let number = (self.session?, Sequence(self.next_sequence));
            self.next_sequence += 1;
            Some(number)
        }) else {
            return Handed::NotYet;
        };
        flight.number = Some((session, sequence));
        let is_first = flight.is_unsent();
        let Some(mut frame) = flight.sealed.frame() else { return Handed::Dropped };
        frame.tag = turn.next_tag();
        frame.shard = self.shard.0;
        frame.epoch = turn.epoch.0;
        frame.session = session.0;
        frame.sequence = sequence.0;
        frame.budget_us = flight.sealed.latest().map_or(1, |latest| budget(latest, turn.now));
        frame.lowest_unanswered = self.lowest_unanswered(session, sequence).0;
        frame.first = is_first;
        let sent = Sent::new(node, generation, frame.tag, turn.now);
        if !turn.links.send(node, generation, frame, turn.now) {
            return Handed::Congested;
        }
        if let Some(flight) = self.flights.get_mut(at) {
            flight.sent(sent);
        }
        Handed::Over
    }

    fn lowest_unanswered(&self, session: SessionId, own: Sequence) -> Sequence {
        let of_session = self.flights.iter().filter_map(|flight| flight.number).filter(|(one, _)| *one == session);
        of_session.map(|(_, sequence)| sequence).min().unwrap_or(own)
    }

    pub(super) fn restart_numbers(&mut self) {
        self.next_sequence = 1;
    }

    /// Answers what is too late, and forgets what nobody waits for.
    fn expire(&mut self, turn: &mut Turn<'_>) {
        let (now, missed) = (turn.now, Cell::new(0));
        let late = |charged| {
            missed.set(missed.get() + 1);
            late(self.shard, self.trouble.as_ref(), charged)
        };
        if self.queue_deadline.is_some_and(|deadline| deadline <= now) {
            self.queue_deadline = self.queue.expire(now, || late(false));
        }
        if self.flights.iter().any(|flight| flight.earliest.is_some_and(|earliest| earliest <= now)) {
            for flight in &mut self.flights {
                let charged = flight.may_have_charged();
                flight.earliest = flight.sealed.expire(now, || late(charged));
            }
            self.flights.retain(|flight| flight.sealed.is_awaited());
        }
        if missed.get() > 0 && self.breaker.missed(missed.get(), now) {
            self.queue.gate.shut(tripped(self.shard, self.trouble.as_ref()));
        }
        if self.errand.take_if(|errand| errand.until <= now).is_some() && self.breaker.is_open() {
            self.back_off(turn);
        }
    }

    /// That attempt was answered. In time, it shows that the shard can be asked again; too late, it does not.
    pub(super) fn proved(&mut self, attempt: Sent, turn: &mut Turn<'_>) {
        if self.breaker.answered(turn.now.saturating_duration_since(attempt.at)) {
            self.queue.gate.open();
            self.worked();
        } else if self.breaker.is_open() && self.pause.is_none() {
            self.back_off(turn);
        }
    }

    /// The nodes that have not answered for a while.
    pub(crate) fn overdue(&mut self, now: Instant) -> Option<NodeId> {
        let flights = self.flights.iter_mut().filter_map(|flight| flight.sent.as_mut());
        let sent = flights.chain(self.errand.as_mut().map(|errand| &mut errand.sent));
        sent.fold(None, |due, sent| if sent.is_due(now) { Some(sent.node) } else { due })
    }

    /// When the lane wants a turn even if nothing happens.
    pub(crate) fn next_turn(&self) -> Option<Instant> {
        let flights = self.flights.iter().flat_map(|f| [f.earliest, f.sent.map(|sent| sent.nudge)]);
        let errand = self.errand.iter().flat_map(|errand| [Some(errand.until), Some(errand.sent.nudge)]);
        let rest = [self.queue_deadline, self.pause.filter(|_| self.has_to_send())];
        flights.chain(errand).chain(rest).flatten().min()
    }

    fn has_work(&self) -> bool {
        self.queued || self.errand.is_some() || !self.flights.is_empty() || self.breaker.is_open()
    }

    fn has_to_send(&self) -> bool {
        let room = self.flights.len() < caps::FRAMES_IN_FLIGHT;
        (self.breaker.is_open() && self.errand.is_none())
            || (self.queued && room && (self.session.is_some() || self.errand.is_none()))
            || self.flights.iter().any(|flight| {
                flight.sent.is_none() && (flight.number.is_some() || self.session.is_some() || self.errand.is_none())
            })
    }

    /// Whom to ask: who is known to lead, else one replica after another.
    pub(super) fn target(&self) -> Option<NodeId> {
        self.target.or(self.leader).or_else(|| self.replicas.first().copied())
    }

    /// Asks another replica next.
    pub(super) fn turn_away(&mut self, from: NodeId) {
        let at = self.replicas.iter().position(|node| *node == from).map_or(0, |at| at + 1);
        self.target = self.replicas.get(at).or_else(|| self.replicas.first()).copied();
    }

    pub(super) fn back_off(&mut self, turn: &mut Turn<'_>) {
        self.failures = self.failures.saturating_add(1);
        self.pause = Some(turn.now + turn.chance.wait(self.failures));
    }

    fn congested(&mut self, node: NodeId, turn: &mut Turn<'_>) {
        let text = format!("the connection to node {node} at {} takes no more", turn.links.address(node));
        self.trouble = Some(Trouble::new(ErrorKind::Overloaded, text));
        self.back_off(turn);
    }

    /// Takes nothing more. What waits was not sent; what is under way is still awaited.
    pub(crate) fn close(&mut self, why: Closed) {
        for pack in self.queue.close(why) {
            pack.seal().fail(|| why.failure());
        }
        // Nothing is worth a probe any more.
        self.breaker.reset();
        self.queue.gate.open();
        self.queued = false;
        self.queue_deadline = None;
    }

    /// Gives up what is still under way.
    pub(crate) fn abandon(&mut self, why: Closed) {
        for flight in &mut self.flights {
            let charged = flight.may_have_charged();
            flight.sealed.fail(|| match why {
                Closed::Client if charged => Failure::Final(Error::abandoned()),
                Closed::Shard if charged => {
                    Failure::Final(unknown(self.shard, "the shard is not part of the topology any more"))
                }
                _ => why.failure(),
            });
        }
        self.flights.clear();
    }
}

/// What became of handing a flight over.
enum Handed {
    Over,
    /// Nothing to do, or not possible yet.
    NotYet,
    /// Nobody waits for it any more.
    Dropped,
    Congested,
}

/// The time that is left, in microseconds; at least one: 0 would be no bound.
fn budget(until: Instant, now: Instant) -> u64 {
    u64::try_from(until.saturating_duration_since(now).as_micros()).unwrap_or(u64::MAX).max(1)
}

/// A frame's answer, with where it came from.
pub(crate) struct Heard {
    pub(crate) node: NodeId,
    pub(crate) answer: v1::FrameAnswer,
}
