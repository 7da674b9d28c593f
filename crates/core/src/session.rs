//! Sessions: what makes a frame's retry safe.
//!
//! A client numbers its frames in a session, and the shard keeps the answers of those places that it has decided and the
//! client has not acknowledged. A frame sent again, to whichever leader, gets its first answers for the places that were
//! decided, and the others are decided now. What the client acknowledges (all frames below its lowest unanswered one) is
//! forgotten.
//!
//! Bounded: a session spans at most [`caps::SESSION_SPAN`] frames; over the bound on sessions or on bytes the idlest session
//! goes; one that sent nothing for [`caps::SESSION_IDLE`] of logical time goes. A session's life depends on the log alone.
//!
//! Invariants: frames are kept ascending, none below the lowest unanswered one; `bytes` is what all sessions cost;
//! `idle` holds every session once, under a place at or before its last use.

use std::collections::{BTreeSet, VecDeque};
use std::sync;

use smallvec::SmallVec;

use crate::answer::{PlaceAnswer, Refusal};
use crate::caps;
use crate::codec::answer::RunReader;
use crate::command::{Bounds, FrameId};
use crate::digest::{Hash, Part, Sum};
use crate::ids::{Index, PolicyId, Sequence, SessionId, ShardId};
use crate::key::Fingerprint;
use crate::table::Key;
use crate::table::pages::{Pages, Slot};
use crate::units::Stamp;

/// What a session costs besides its frames, in bytes.
const SESSION_COST: u64 = 192;
/// What a remembered frame costs besides its answers.
const FRAME_COST: u64 = 64;

/// A frame of which some places were decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) sequence: Sequence,
    /// The answers, encoded: a run for each log entry that decided some.
    pub(crate) runs: SmallVec<[sync::Arc<[u8]>; 1]>,
}

/// One client's numbering.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Session {
    pub(crate) id: SessionId,
    pub(crate) lowest: Sequence,
    /// The last entry that carried a frame of it, and that entry's stamp.
    pub(crate) used: Index,
    pub(crate) used_at: Stamp,
    pub(crate) frames: VecDeque<Frame>,
    /// Where it stands in the order of idleness: at or before its last use. No part of the state.
    pub(crate) filed: Index,
}

/// A session where it is kept, by its number.
#[derive(Clone, Debug)]
struct Kept {
    id: SessionId,
    /// None where nothing stands.
    session: Option<sync::Arc<Session>>,
}

impl Slot for Kept {
    fn key(&self) -> Key {
        key(self.id)
    }

    fn unused() -> Self {
        Kept { id: SessionId(0), session: None }
    }
}

fn key(id: SessionId) -> Key {
    Key { print: Fingerprint { table: id.0, ring: 0 }, policy: PolicyId(0) }
}

/// All sessions of a shard.
#[derive(Debug)]
pub(crate) struct Sessions {
    shard: ShardId,
    next: u64,
    all: Pages<Kept>,
    /// The order of idleness. No part of the state, and not of a capture.
    idle: BTreeSet<(Index, SessionId)>,
    bytes: u64,
    sum: Sum,
}

/// How a frame is to be taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Admitted {
    /// No place of it was decided before.
    Fresh,
    /// Some places may have been.
    Again,
    /// None of it is to be decided.
    Refused(Refusal),
}

impl Session {
    fn hash(&self) -> u128 {
        let words = [self.id.0, self.lowest.0, self.used.0, self.used_at.0 as u64];
        words.into_iter().fold(Hash::of(Part::Session), Hash::word).end()
    }

    fn cost(&self) -> u64 {
        SESSION_COST + self.frames.iter().map(Frame::cost).sum::<u64>()
    }

    /// Where the frame is, or would be.
    fn find(&self, sequence: Sequence) -> Result<usize, usize> {
        match self.frames.back() {
            Some(last) if last.sequence < sequence => Err(self.frames.len()),
            _ => self.frames.binary_search_by_key(&sequence, |frame| frame.sequence),
        }
    }
}

impl Frame {
    fn cost(&self) -> u64 {
        FRAME_COST + self.runs.iter().map(|run| run_cost(run)).sum::<u64>()
    }
}

fn run_cost(run: &[u8]) -> u64 {
    run.len() as u64 + 32
}

fn run_hash(session: SessionId, sequence: Sequence, run: &[u8]) -> u128 {
    Hash::of(Part::Frame).word(session.0).word(sequence.0).bytes(run).end()
}

impl Sessions {
    pub(crate) fn new(shard: ShardId) -> Self {
        Self::restored(shard, 1)
    }

    /// None yet, the next to be given that number.
    pub(crate) fn restored(shard: ShardId, next: u64) -> Self {
        Sessions { shard, next, all: Pages::default(), idle: BTreeSet::new(), bytes: 0, sum: Sum::default() }
    }

    /// Puts back a session that a snapshot holds; false where it cannot be one.
    pub(crate) fn restore(&mut self, session: Session) -> bool {
        let ascending = session.frames.iter().is_sorted_by(|a, b| a.sequence < b.sequence);
        let in_span = session.frames.iter().all(|frame| spans(session.lowest, frame.sequence));
        if !ascending || !in_span || session.id.0 >= self.next || self.get(session.id).is_some() {
            return false;
        }
        self.bytes += session.cost();
        self.sum.add(session.hash());
        for frame in &session.frames {
            frame.runs.iter().for_each(|run| self.sum.add(run_hash(session.id, frame.sequence, run)));
        }
        let session = Session { filed: session.used, ..session };
        self.idle.insert((session.filed, session.id));
        self.keep(session);
        true
    }

    pub(crate) fn len(&self) -> u64 {
        self.all.len()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    pub(crate) fn sum(&self) -> Sum {
        self.sum
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Session> {
        self.all.from(key(SessionId(0))).filter_map(|kept| kept.session.as_deref())
    }

    /// The same sessions, to be looked at only.
    pub(crate) fn fork(&self) -> Self {
        Sessions { all: self.all.clone(), idle: BTreeSet::new(), ..*self }
    }

    fn get(&self, id: SessionId) -> Option<&Session> {
        self.all.get(key(id))?.session.as_deref()
    }

    fn keep(&mut self, session: Session) {
        self.all.put(Kept { id: session.id, session: Some(sync::Arc::new(session)) });
    }

    /// Opens a session; at the bound the idlest makes room.
    pub(crate) fn open(&mut self, index: Index, t: Stamp, bounds: &Bounds) -> SessionId {
        while self.len() >= bounds.sessions.max(1) && self.expire_idlest(None) {}
        let id = SessionId(self.next);
        self.next += 1;
        let session =
            Session { id, lowest: Sequence(1), used: index, used_at: t, frames: VecDeque::new(), filed: index };
        self.bytes += session.cost();
        self.sum.add(session.hash());
        self.idle.insert((index, id));
        self.keep(session);
        self.keep_bounds(bounds, Some(id));
        id
    }

    /// Ends a session, if it is there.
    pub(crate) fn close(&mut self, id: SessionId) {
        let Some(session) = self.all.remove(key(id)).and_then(|kept| kept.session) else { return };
        self.idle.remove(&(session.filed, id));
        self.bytes -= session.cost();
        self.sum.remove(session.hash());
        for frame in &session.frames {
            frame.runs.iter().for_each(|run| self.sum.remove(run_hash(id, frame.sequence, run)));
        }
    }

    /// Takes a frame in: marks its session used, forgets what it acknowledges, and says how its places are to be answered.
    pub(crate) fn admit(&mut self, frame: FrameId, index: Index, t: Stamp) -> Admitted {
        let Some(session) = get_mut(&mut self.all, frame.session) else {
            return Admitted::Refused(Refusal::UnknownSession(frame.session));
        };
        self.sum.remove(session.hash());
        (session.used, session.used_at) = (index, t);
        session.lowest = session.lowest.max(frame.lowest_unanswered);
        while let Some(first) = session.frames.pop_front_if(|first| first.sequence < session.lowest) {
            self.bytes -= first.cost();
            first.runs.iter().for_each(|run| self.sum.remove(run_hash(session.id, first.sequence, run)));
        }
        self.sum.add(session.hash());
        if frame.sequence < session.lowest {
            return Admitted::Refused(Refusal::Acknowledged);
        }
        if !spans(session.lowest, frame.sequence) {
            return Admitted::Refused(Refusal::SessionSpan);
        }
        #[cfg(feature = "planted")]
        if crate::planted::is(crate::planted::Planted::RetryChargesAgain) {
            return Admitted::Fresh;
        }
        if session.find(frame.sequence).is_ok() { Admitted::Again } else { Admitted::Fresh }
    }

    /// Remembers a run of answers of a frame, if its session is still there.
    pub(crate) fn record(&mut self, frame: FrameId, run: &[u8], bounds: &Bounds) {
        let Some(session) = get_mut(&mut self.all, frame.session) else { return };
        let at = match session.find(frame.sequence) {
            Ok(at) => at,
            Err(at) => {
                session.frames.insert(at, Frame { sequence: frame.sequence, runs: SmallVec::new() });
                self.bytes += FRAME_COST;
                at
            }
        };
        session.frames[at].runs.push(run.into());
        self.bytes += run_cost(run);
        self.sum.add(run_hash(frame.session, frame.sequence, run));
        self.keep_bounds(bounds, Some(frame.session));
    }

    /// The answer that a place of a frame was given, if it is remembered.
    pub(crate) fn recorded(&self, frame: FrameId, place: u32) -> Option<PlaceAnswer> {
        let session = self.get(frame.session)?;
        let at = session.find(frame.sequence).ok()?;
        session.frames[at].runs.iter().find_map(|run| find_in_run(self.shard, run, place))
    }

    /// Whether a frame is new to its session, which can do without it: no place of it was decided, it may yet be sent, and the
    /// session stays for long although this frame is not logged.
    pub(crate) fn is_new(&self, frame: FrameId, t: Stamp) -> bool {
        self.get(frame.session).is_some_and(|session| {
            frame.sequence >= frame.lowest_unanswered
                && spans(session.lowest.max(frame.lowest_unanswered), frame.sequence)
                && session.find(frame.sequence).is_err()
                && session.used_at.saturating_add(crate::units::Span(caps::SESSION_IDLE.0 / 2)) > t
        })
    }

    /// Expires what is idle too long by time t.
    pub(crate) fn expire(&mut self, t: Stamp) {
        while let Some(used_at) = self.idlest(None).and_then(|id| self.get(id)).map(|session| session.used_at) {
            if used_at.saturating_add(caps::SESSION_IDLE) > t {
                return;
            }
            self.expire_idlest(None);
        }
    }

    /// When the first session will have been idle too long; a lower bound.
    pub(crate) fn expires_at(&self) -> Option<Stamp> {
        let (_, id) = self.idle.first()?;
        Some(self.get(*id)?.used_at.saturating_add(caps::SESSION_IDLE))
    }

    /// Expires the idlest sessions until the bounds are kept; `active` is the last to go.
    pub(crate) fn keep_bounds(&mut self, bounds: &Bounds, active: Option<SessionId>) {
        let over = |sessions: &Self| sessions.len() > bounds.sessions || sessions.bytes > bounds.session_bytes;
        while over(self) && (self.expire_idlest(active) || self.expire_idlest(None)) {}
    }

    fn expire_idlest(&mut self, but: Option<SessionId>) -> bool {
        let Some(id) = self.idlest(but) else { return false };
        self.close(id);
        true
    }

    /// The session whose last use is longest ago; the lowest id among equals.
    fn idlest(&mut self, but: Option<SessionId>) -> Option<SessionId> {
        loop {
            let &(filed, id) = self.idle.iter().find(|(_, id)| but != Some(*id))?;
            let used = self.get(id)?.used;
            if used == filed {
                return Some(id);
            }
            // It was used since: it is filed anew, and the next one looked at.
            self.idle.remove(&(filed, id));
            self.idle.insert((used, id));
            get_mut(&mut self.all, id)?.filed = used;
        }
    }
}

fn get_mut(all: &mut Pages<Kept>, id: SessionId) -> Option<&mut Session> {
    all.get_mut(key(id))?.session.as_mut().map(sync::Arc::make_mut)
}

fn spans(lowest: Sequence, sequence: Sequence) -> bool {
    sequence >= lowest && sequence.0 - lowest.0 < caps::SESSION_SPAN
}

/// The answer to a place in a run of answers.
pub(crate) fn find_in_run(shard: ShardId, run: &[u8], place: u32) -> Option<PlaceAnswer> {
    let mut reader = RunReader::new(shard, run).ok()?;
    while let Some(answer) = reader.next().ok()? {
        if answer.place == place {
            return Some(answer);
        }
    }
    None
}
