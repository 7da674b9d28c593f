//! One shard's whole state, and what each command does to it.
//!
//! [`Shard::apply`] takes one log entry after the other, in the log's order, and cannot fail: whatever the entry says, every
//! replica comes to the same state, and a command that is not valid here is answered with a [`Refusal`]. Time is the entry's
//! stamp, never a clock's; it does not go back.
//!
//! ```text
//! entry ─► stamp ─► sessions idle too long expire ─► groups, in order ─► sweep
//!                                                     │
//!                             frame seen before? ◄────┤ the answers it was given
//!                             else each command  ◄────┘ check, undo, reset, install, … ─► answer, recorded by its session
//! ```
//!
//! One file for each thing that is done: `check` asks and charges, `undo` refunds, settles and resets, `room` makes room in a
//! full table, `sweep` drops what is as good as new.

mod check;
mod room;
mod sweep;
mod undo;

use std::sync;

use crate::answer::{Answer, Applied, Decision, PlaceAnswer, Receipt, Refusal};
use crate::caps;
use crate::codec::answer::{Run, invalid};
use crate::codec::state::{put_bounds, put_policy_set};
use crate::command::{Batch, Bounds, Check, Command, FrameId, Group};
use crate::digest::{Digest, Hash, Part, Sum};
use crate::ids::{Index, ShardId, Term};
use crate::installed::{self, Installed};
use crate::policy::PolicySet;
use crate::resets::Resets;
use crate::ring::Arc;
use crate::session::{Admitted, Sessions, find_in_run};
use crate::table::Table;
use crate::units::Stamp;
pub(crate) use sweep::{Round, Sweep};

/// One shard's whole state.
///
/// ```
/// use quorate_core::*;
/// let mut shard = Shard::new(ShardId(1), Arc::WHOLE);
/// let mut policy = Policy::new("per-user", Algorithm::FixedWindow { limit: 1, window: Span(1_000_000) });
/// policy.id = PolicyId(1);
/// let set = PolicySet { version: PolicyVersion(1), policies: vec![policy] };
/// let limit = Limit { policy: PolicyId(1), key: Fingerprint { table: 7, ring: 7 }, cost: Cost::ONE };
/// let check = Check { limits: [limit].into_iter().collect(), ..Check::default() };
/// let commands = vec![(0, Command::Install(set)), (1, Command::Check(check.clone())), (2, Command::Check(check))];
/// let batch = Batch { stamp: Stamp(5_000_000), groups: vec![Group { frame: None, commands }] };
///
/// let applied = shard.apply(Term(1), Index(1), &batch, true);
/// let allowed = |at: usize| matches!(&applied.groups[0][at].answer, Answer::Decision(decision) if decision.allowed);
/// assert!(allowed(1) && !allowed(2));
/// assert_eq!(shard.keys(), 1);
/// ```
#[derive(Debug)]
pub struct Shard {
    pub(crate) shard: ShardId,
    pub(crate) arc: Arc,
    pub(crate) stamp: Stamp,
    pub(crate) bounds: Bounds,
    pub(crate) installed: Installed,
    pub(crate) table: Table,
    pub(crate) resets: Resets,
    pub(crate) sessions: Sessions,
    pub(crate) sweep: Sweep,
    pub(crate) evicted: u64,
    /// Where a frame's answers are encoded; no part of the state.
    run: Vec<u8>,
}

/// What a shard holds.
///
/// ```
/// use quorate_core::{Arc, Shard, ShardId, Usage};
/// assert_eq!(Shard::new(ShardId(1), Arc::WHOLE).usage(), Usage::default());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Keys that are not as good as new, or not yet swept.
    pub keys: u64,
    /// Remembered resets; they count against the bound on keys.
    pub resets: u64,
    /// Bytes of sliding logs and held buckets.
    pub log_bytes: u64,
    /// Sessions.
    pub sessions: u64,
    /// Bytes of sessions and the answers that they remember.
    pub session_bytes: u64,
    /// Keys that were ever evicted from the full table.
    pub evicted: u64,
}

impl Shard {
    /// A shard as it is born: no policy, no key, time 0.
    pub fn new(shard: ShardId, arc: Arc) -> Shard {
        Shard {
            shard,
            arc,
            stamp: Stamp(0),
            bounds: Bounds::default(),
            installed: Installed::new(),
            table: Table::default(),
            resets: Resets::default(),
            sessions: Sessions::new(shard),
            sweep: Sweep::default(),
            evicted: 0,
            run: Vec::new(),
        }
    }

    /// The same state, to be looked at only: what this shard changes from then on, it copies first.
    pub(crate) fn fork(&self) -> Shard {
        Shard {
            installed: self.installed.clone(),
            table: self.table.clone(),
            resets: self.resets.clone(),
            sessions: self.sessions.fork(),
            run: Vec::new(),
            ..*self
        }
    }

    /// Applies the next entry of the shard's log. With `want_answers` the answers come back, group by group and in the order
    /// of the commands; without, as on a follower, nothing is put together.
    pub fn apply(&mut self, term: Term, index: Index, batch: &Batch, want_answers: bool) -> Applied {
        let before = self.stamp;
        self.stamp = before.max(Stamp(batch.stamp.0.clamp(0, caps::LONGEST_US)));
        self.sessions.expire(self.stamp);
        let mut receipt = Receipt { shard: self.shard, term, index, place: 0, stamp: self.stamp };
        let mut groups = Vec::with_capacity(if want_answers { batch.groups.len() } else { 0 });
        for group in &batch.groups {
            let mut answers = want_answers.then(|| Vec::with_capacity(group.commands.len()));
            match group.frame {
                None => self.apply_loose(group, &mut receipt, &mut answers),
                Some(frame) => self.apply_frame(frame, group, &mut receipt, &mut answers),
            }
            groups.extend(answers);
        }
        self.sweep(batch.commands() as u64, before);
        Applied { stamp: self.stamp, groups }
    }

    /// Commands that no session numbers.
    fn apply_loose(&mut self, group: &Group, receipt: &mut Receipt, answers: &mut Option<Vec<PlaceAnswer>>) {
        for (place, command) in &group.commands {
            let answer = self.execute(command, receipt);
            if let Some(answers) = answers {
                answers.push(PlaceAnswer { place: *place, receipt: *receipt, answer });
            }
            receipt.place += 1;
        }
    }

    /// A session's frame: what was decided before is answered as it was, the rest is decided and recorded.
    fn apply_frame(
        &mut self,
        frame: FrameId,
        group: &Group,
        receipt: &mut Receipt,
        answers: &mut Option<Vec<PlaceAnswer>>,
    ) {
        let admitted = self.sessions.admit(frame, receipt.index, receipt.stamp);
        let mut bytes = std::mem::take(&mut self.run);
        bytes.clear();
        let mut run = Run::begin(&mut bytes, receipt);
        let empty = bytes.len();
        // Places come ascending; one that does not may have been decided a moment ago in this very group.
        let mut fresh_from = 0;
        for (place, command) in &group.commands {
            let seen = *place < fresh_from;
            fresh_from = fresh_from.max(place.saturating_add(1));
            let known = match &admitted {
                Admitted::Refused(refusal) => {
                    Some(PlaceAnswer { place: *place, receipt: *receipt, answer: Answer::Refused(refusal.clone()) })
                }
                Admitted::Again => self.sessions.recorded(frame, *place),
                Admitted::Fresh => None,
            };
            let known = known.or_else(|| if seen { find_in_run(self.shard, &bytes, *place) } else { None });
            let answer = known.unwrap_or_else(|| {
                let answer = self.execute(command, receipt);
                run.add(&mut bytes, *place, receipt.place, &answer);
                PlaceAnswer { place: *place, receipt: *receipt, answer }
            });
            if let Some(answers) = answers {
                answers.push(answer);
            }
            receipt.place += 1;
        }
        if bytes.len() > empty {
            self.sessions.record(frame, &bytes, &self.bounds);
        }
        self.run = bytes;
    }

    fn execute(&mut self, command: &Command, receipt: &Receipt) -> Answer {
        match command {
            Command::Tick => Answer::Done,
            Command::Check(check) => self.check(check, receipt.position()),
            Command::Reserve { check, ttl } => self.reserve(check, *ttl, receipt.position()),
            Command::Refund { receipt: of, at, charges } => self.refund(*of, *at, charges),
            Command::Settle { receipt: of, at, ttl, charges, actual } => self.settle(*of, *at, *ttl, charges, actual),
            Command::Reset { policy, key } => self.reset(*policy, *key, receipt.position()),
            Command::Install(set) => self.install(set, receipt),
            Command::OpenSession => {
                Answer::SessionOpened(self.sessions.open(receipt.index, receipt.stamp, &self.bounds))
            }
            Command::CloseSession(session) => {
                self.sessions.close(*session);
                Answer::Done
            }
            Command::Bounds(bounds) => {
                self.bounds = *bounds;
                self.sessions.keep_bounds(bounds, None);
                Answer::Done
            }
        }
    }

    /// Puts a policy set in force, for all keys at once. States are brought up when they are next touched or swept, as they
    /// would have been here: so the cost is that of the set, not of the keys.
    fn install(&mut self, set: &PolicySet, receipt: &Receipt) -> Answer {
        if set.version <= self.policies().version {
            return Answer::Done;
        }
        if !installed::is_valid(set) {
            return Answer::Refused(Refusal::Invalid(invalid::POLICIES));
        }
        if self.installed.needs_sweep(set) {
            self.sweep_all();
        }
        if self.installed.install(set.clone(), receipt.position(), receipt.stamp) {
            self.sweep.note(Stamp(0));
        }
        Answer::Done
    }

    /// Which shard it is.
    pub fn id(&self) -> ShardId {
        self.shard
    }

    /// The part of the ring that it owns.
    pub fn arc(&self) -> Arc {
        self.arc
    }

    /// Its logical time: the latest stamp applied.
    pub fn stamp(&self) -> Stamp {
        self.stamp
    }

    /// The policies in force.
    pub fn policies(&self) -> &sync::Arc<PolicySet> {
        self.installed.set()
    }

    /// The bounds in force.
    pub fn bounds(&self) -> &Bounds {
        &self.bounds
    }

    /// How many keys it holds.
    pub fn keys(&self) -> u64 {
        self.table.len()
    }

    /// What it holds.
    pub fn usage(&self) -> Usage {
        Usage {
            keys: self.table.len(),
            resets: self.resets.len(),
            log_bytes: self.table.log_bytes(),
            sessions: self.sessions.len(),
            session_bytes: self.sessions.bytes(),
            evicted: self.evicted,
        }
    }

    /// The digest of its state, kept up as it changes.
    pub fn digest(&self) -> Digest {
        let mut sum = Sum::default();
        for part in [self.table.sum(), self.resets.sum(), self.sessions.sum()] {
            sum.add(part.0);
        }
        sum.add(self.head_hash());
        Digest(sum.0)
    }

    /// The hash of all that is neither key, reset nor session.
    fn head_hash(&self) -> u128 {
        let mut bytes = Vec::new();
        put_bounds(&mut bytes, &self.bounds);
        put_policy_set(&mut bytes, self.policies());
        let hash = Hash::of(Part::Head).bytes(&bytes).word(self.stamp.0 as u64);
        let hash = hash.word(self.shard.0.into()).word(self.arc.start).word(self.arc.end_inclusive);
        let hash = hash.word(self.sessions.next()).word(self.evicted);
        self.sweep.hash(self.installed.hash(hash)).end()
    }

    /// Answers a check as a peek at `stamp` (or at the shard's time, if that is later) would be answered, without the log and
    /// without a change. As time only brings allowance back, a denial holds for any check at that time that has nothing in
    /// flight before it that gives allowance back.
    pub fn evaluate(&self, stamp: Stamp, check: &Check) -> Answer {
        self.look(stamp.max(self.stamp), check)
    }

    /// The denial of a check that is sure without the log: nothing that is on its way to this state can turn it into a grant.
    ///
    /// Time only brings allowance back, and charges only take it; so a denial at `stamp` by the state as it is holds, provided
    /// that `stamp` is no earlier than that of anything proposed, and that nothing that gives allowance back (a refund, a
    /// settlement, a reset, a policy set) is on its way, which is for the caller to know. A check that is part of a session's
    /// frame is answered only if the session has never seen that frame. `coming` limits may yet be charged by what is on its way:
    /// where they could throw a key out of a full table, nothing is sure.
    pub fn sure_denial(&self, stamp: Stamp, frame: Option<FrameId>, check: &Check, coming: u64) -> Option<Decision> {
        let stamp = stamp.max(self.stamp);
        if check.peek || self.may_throw_out(coming) || frame.is_some_and(|frame| !self.sessions.is_new(frame, stamp)) {
            return None;
        }
        match self.look(stamp, check) {
            Answer::Decision(decision) if !decision.allowed => Some(decision),
            _ => None,
        }
    }

    /// The answer that a place of a session's frame was given, if the session still remembers it.
    pub fn recorded(&self, frame: FrameId, place: u32) -> Option<PlaceAnswer> {
        self.sessions.recorded(frame, place)
    }

    /// Whether time alone has anything to do here, so that an idle shard's leader should propose a [`Command::Tick`] now and
    /// then: every 100 ms from [`Shard::expires_at`] on gives everything back within a minute.
    pub fn awaits_expiry(&self) -> bool {
        self.expires_at().is_some()
    }

    /// The first logical time at which something may expire; none if nothing ever will. Never too late.
    pub fn expires_at(&self) -> Option<Stamp> {
        let sessions = self.sessions.expires_at();
        sessions.into_iter().chain(self.sweep.due()).min()
    }
}
