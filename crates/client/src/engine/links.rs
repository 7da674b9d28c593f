//! One stream of frames to each node that leads something, opened when it is needed.
//!
//! Invariants: a frame is handed over only to a stream that is up, so one that was never handed over was never seen; what
//! waits for a connection is bounded (a full stream takes nothing); a stream that owes an answer and says nothing for
//! [`caps::SILENCE`] is broken off, so that a node that hangs does not hold what it was sent for ever.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::StreamExt as _;
use quorate_core::NodeId;
use quorate_proto::v1;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout};

use super::Event;
use crate::backoff::Chance;
use crate::caps;
use crate::topology::Topology;
use crate::wire::{Incoming, Wire, WireError};

/// Which of the streams to a node, one after another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Generation(u64);

pub(crate) struct Links {
    wire: Arc<dyn Wire>,
    events: mpsc::Sender<Event>,
    links: BTreeMap<NodeId, Link>,
    next: u64,
}

struct Link {
    address: String,
    state: State,
    failures: u32,
}

enum State {
    /// Not before that moment again, because of that.
    Idle(Instant, WireError),
    Connecting(Stream),
    Up(Stream, Owing),
}

struct Stream {
    generation: Generation,
    frames: mpsc::Sender<v1::Frame>,
    task: AbortHandle,
}

/// Since when a stream that owes an answer has said nothing.
type Owing = Option<Instant>;

/// How a node can be reached now.
pub(crate) enum Reach {
    Up(Generation),
    /// An event will tell.
    Connecting,
    /// Not for now, because of that.
    Down(WireError),
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Links {
    pub(crate) fn new(wire: Arc<dyn Wire>, events: mpsc::Sender<Event>) -> Self {
        Links { wire, events, links: BTreeMap::new(), next: 1 }
    }

    /// Takes in the nodes' addresses. Gives the streams that were ended because their node has moved or gone.
    pub(crate) fn follow(&mut self, topology: &Topology, now: Instant) -> Vec<(NodeId, Generation)> {
        let mut ended = Vec::new();
        self.links.retain(|id, link| {
            let stays = topology.node(*id).is_some_and(|node| node.address == link.address);
            if let (false, State::Up(stream, _) | State::Connecting(stream)) = (stays, &link.state) {
                ended.push((*id, stream.generation));
            }
            stays
        });
        for node in &topology.nodes {
            let idle = || State::Idle(now, WireError::new("not connected yet"));
            self.links.entry(node.id).or_insert_with(|| Link {
                address: node.address.clone(),
                state: idle(),
                failures: 0,
            });
        }
        ended
    }

    pub(crate) fn address(&self, node: NodeId) -> &str {
        self.links.get(&node).map_or("an address that is not known", |link| &link.address)
    }

    /// Whether frames can go to that node; connects if that may help.
    pub(crate) fn reach(&mut self, node: NodeId, now: Instant) -> Reach {
        let Some(link) = self.links.get_mut(&node) else {
            return Reach::Down(WireError::new("the topology has no such node"));
        };
        match &link.state {
            State::Up(stream, _) => return Reach::Up(stream.generation),
            State::Connecting(_) => return Reach::Connecting,
            State::Idle(until, why) if now < *until => return Reach::Down(why.clone()),
            State::Idle(..) => {}
        }
        let generation = Generation(self.next);
        self.next += 1;
        let (frames, taken) = mpsc::channel(caps::STREAM_FRAMES);
        let run = run(self.wire.clone(), node, link.address.clone(), generation, taken, self.events.clone());
        let task = tokio::spawn(run).abort_handle();
        link.state = State::Connecting(Stream { generation, frames, task });
        Reach::Connecting
    }

    pub(crate) fn opened(&mut self, node: NodeId, generation: Generation) {
        let Some(link) = self.links.get_mut(&node) else { return };
        let idle = State::Idle(Instant::now(), WireError::new("closed"));
        link.state = match std::mem::replace(&mut link.state, idle) {
            State::Connecting(stream) if stream.generation == generation => State::Up(stream, None),
            other => other,
        };
    }

    /// The stream is gone; the next comes after a backoff. False where that stream was not the current one.
    pub(crate) fn broken(
        &mut self,
        node: NodeId,
        generation: Generation,
        why: WireError,
        now: Instant,
        chance: &mut Chance,
    ) -> bool {
        let Some(link) = self.links.get_mut(&node) else { return false };
        match &link.state {
            State::Connecting(stream) | State::Up(stream, _) if stream.generation == generation => {}
            _ => return false,
        }
        link.failures = link.failures.saturating_add(1);
        link.state = State::Idle(now + chance.wait(link.failures), why);
        true
    }

    /// Hands a frame over; false where the stream is full or no longer that one.
    pub(crate) fn send(&mut self, node: NodeId, generation: Generation, frame: v1::Frame, now: Instant) -> bool {
        let Some(Link { state: State::Up(stream, owing), .. }) = self.links.get_mut(&node) else { return false };
        if stream.generation != generation || stream.frames.try_send(frame).is_err() {
            return false;
        }
        owing.get_or_insert(now);
        true
    }

    /// A node said something.
    pub(crate) fn heard(&mut self, node: NodeId, generation: Generation) {
        let Some(link) = self.links.get_mut(&node) else { return };
        if let State::Up(stream, owing) = &mut link.state
            && stream.generation == generation
        {
            *owing = None;
            link.failures = 0;
        }
    }

    /// The streams that have owed an answer for too long.
    pub(crate) fn silent(&self, now: Instant) -> Vec<(NodeId, Generation)> {
        let silent = |(id, link): (&NodeId, &Link)| match &link.state {
            State::Up(stream, Some(since)) if *since + caps::SILENCE <= now => Some((*id, stream.generation)),
            _ => None,
        };
        self.links.iter().filter_map(silent).collect()
    }

    /// When the next stream will have been silent for too long.
    pub(crate) fn next_silence(&self) -> Option<Instant> {
        let until = |link: &Link| match &link.state {
            State::Up(_, Some(since)) => Some(*since + caps::SILENCE),
            _ => None,
        };
        self.links.values().filter_map(until).min()
    }
}

/// A stream's life: connect, pass on every answer, say that it is over. Ends when the engine drops its end.
async fn run(
    wire: Arc<dyn Wire>,
    node: NodeId,
    address: String,
    generation: Generation,
    frames: mpsc::Receiver<v1::Frame>,
    events: mpsc::Sender<Event>,
) {
    let opened = match timeout(caps::DIAL, wire.frames(&address, frames)).await {
        Ok(opened) => opened,
        Err(_) => Err(WireError::new(format!("no answer within {:?}", caps::DIAL))),
    };
    let why = match opened {
        Ok(answers) => {
            if events.send(Event::Opened(node, generation)).await.is_err() {
                return;
            }
            pass_on(node, generation, answers, &events).await
        }
        Err(why) => why,
    };
    // The engine is gone: nobody is left to tell.
    drop(events.send(Event::Broken(node, generation, why)).await);
}

async fn pass_on(
    node: NodeId,
    generation: Generation,
    mut answers: Incoming<v1::FrameAnswer>,
    events: &mpsc::Sender<Event>,
) -> WireError {
    loop {
        match answers.next().await {
            Some(Ok(answer)) => {
                if events.send(Event::Answer(node, generation, Box::new(answer))).await.is_err() {
                    return WireError::new("the client was closed");
                }
            }
            Some(Err(why)) => return why,
            None => return WireError::new("the node ended the stream"),
        }
    }
}
