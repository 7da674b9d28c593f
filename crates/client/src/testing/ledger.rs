//! One shard of the fake cluster: the real state machine behind a log of its own, and an account of what was asked of it.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use quorate_core::{
    Answer, Batch, Command, Decision, Fingerprint, FrameId, Group, Index, Limit, PlaceAnswer, PolicyId, Receipt,
    Refusal, SessionId, Shard, ShardId, Span, Stamp, Term,
};

/// What was asked of a key under a policy, and what it was granted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) asked: u64,
    pub(super) denied: u64,
    pub(super) granted: u64,
    pub(super) corrected: u64,
}

/// What checks of a policy are answered with, instead of what the state says.
#[derive(Clone, Copy, Debug)]
pub(super) enum Forced {
    /// A denial with that wait.
    Denial(Option<Span>),
    /// The key table has no room.
    TableFull,
}

/// What the client's own tests want to know besides: everything that was ever decided and sent.
#[derive(Debug, Default)]
pub(super) struct Audit {
    /// What was decided, by its place in the log.
    pub(super) decided: HashMap<(u64, u32), Answer>,
    /// What each place of each numbered frame carried.
    numbered: HashMap<(u64, u64, u32), Command>,
    /// What broke the protocol.
    pub(super) violations: Vec<String>,
}

pub(super) struct Ledger {
    pub(super) shard: Shard,
    index: u64,
    pub(super) term: u64,
    pub(super) leader: u64,
    sessions: Vec<SessionId>,
    tallies: HashMap<Fingerprint, Tally>,
    pub(super) audit: Option<Audit>,
}

type Commands = Vec<(u32, Command)>;

impl Ledger {
    pub(super) fn new(id: ShardId, arc: quorate_core::Arc, leader: u64, audited: bool) -> Ledger {
        Ledger {
            shard: Shard::new(id, arc),
            index: 0,
            term: 1,
            leader,
            sessions: Vec::new(),
            tallies: HashMap::new(),
            audit: audited.then(Audit::default),
        }
    }

    pub(super) fn tally(&self, key: &Fingerprint) -> Tally {
        self.tallies.get(key).copied().unwrap_or_default()
    }

    /// Ends every session behind its client's back.
    pub(super) fn expire_sessions(&mut self, stamp: Stamp) {
        for session in std::mem::take(&mut self.sessions) {
            self.apply(stamp, None, vec![(0, Command::CloseSession(session))]);
        }
    }

    /// Holds a numbered frame against what came under its number before.
    pub(super) fn note_numbered(&mut self, id: FrameId, commands: &Commands) {
        let Some(audit) = &mut self.audit else { return };
        for (place, command) in commands {
            let number = (id.session.0, id.sequence.0, *place);
            let before = audit.numbered.entry(number).or_insert_with(|| command.clone());
            if before != command {
                audit.violations.push(format!("{number:?} carried {before:?}, and now carries {command:?}"));
            }
        }
    }

    /// Executes the commands, but for those whose answer is forced.
    pub(super) fn execute(
        &mut self,
        stamp: Stamp,
        frame: Option<FrameId>,
        commands: Commands,
        forced: &BTreeMap<PolicyId, Forced>,
    ) -> Vec<PlaceAnswer> {
        if forced.is_empty() {
            return self.apply(stamp, frame, commands);
        }
        let force = |command: &Command| limits(command).iter().find_map(|limit| forced.get(&limit.policy)).copied();
        let (aside, free): (Commands, Commands) = commands.into_iter().partition(|(_, one)| force(one).is_some());
        let mut answers = if free.is_empty() { Vec::new() } else { self.apply(stamp, frame, free) };
        for (place, command) in aside {
            // A place of its own in the log, so that its receipt is nobody else's.
            let Some(ticked) = self.apply(stamp, None, vec![(place, Command::Tick)]).pop() else { continue };
            let answer = match force(&command) {
                Some(Forced::TableFull) | None => Answer::Refused(Refusal::TableFull),
                Some(Forced::Denial(_)) => self.deny(stamp, &command, forced),
            };
            self.count(&ticked.receipt, &command, &answer);
            answers.push(PlaceAnswer { answer, ..ticked });
        }
        answers
    }

    /// The denial that a check is forced to; in shadow mode it denies nothing.
    fn deny(&self, stamp: Stamp, command: &Command, forced: &BTreeMap<PolicyId, Forced>) -> Answer {
        let (Command::Check(check) | Command::Reserve { check, .. }) = command else { return Answer::Done };
        let mut answer = self.shard.evaluate(stamp, check);
        let Answer::Decision(decision) = &mut answer else { return answer };
        for limit in &mut decision.limits {
            if let Some(Forced::Denial(wait)) = forced.get(&limit.policy) {
                (limit.allowed, limit.remaining, limit.retry_after) = (false, 0, *wait);
            }
            (limit.charged, limit.delay, limit.mark) = (false, None, None);
        }
        overall(decision);
        answer
    }

    pub(super) fn apply(&mut self, stamp: Stamp, frame: Option<FrameId>, commands: Commands) -> Vec<PlaceAnswer> {
        self.index += 1;
        let batch = Batch { stamp, groups: vec![Group { frame, commands }] };
        let mut applied = self.shard.apply(Term(self.term), Index(self.index), &batch, true);
        let answers = applied.groups.pop().unwrap_or_default();
        for (answer, (_, command)) in answers.iter().zip(batch.groups.iter().flat_map(|group| &group.commands)) {
            if let Answer::SessionOpened(session) = answer.answer {
                self.sessions.push(session);
            }
            // What was decided before is answered as it was then.
            if answer.receipt.index.0 == self.index {
                self.count(&answer.receipt, command, &answer.answer);
            }
        }
        self.audit_answers(&answers);
        answers
    }

    fn audit_answers(&mut self, answers: &[PlaceAnswer]) {
        let Some(audit) = &mut self.audit else { return };
        for answer in answers {
            let place = (answer.receipt.index.0, answer.receipt.place);
            let first = audit.decided.entry(place).or_insert_with(|| answer.answer.clone());
            if *first != answer.answer {
                audit.violations.push(format!("{place:?} was answered {first:?}, then {:?}", answer.answer));
            }
        }
    }

    fn count(&mut self, receipt: &Receipt, command: &Command, answer: &Answer) {
        if let (Some(audit), Answer::Decision(_)) = (&mut self.audit, answer) {
            audit.decided.insert((receipt.index.0, receipt.place), answer.clone());
        }
        match (command, answer) {
            (Command::Check(check) | Command::Reserve { check, .. }, Answer::Decision(decision)) if !check.peek => {
                for told in &decision.limits {
                    let Some(limit) = check.limits.get(usize::from(told.ordinal)) else { continue };
                    let tally = self.tallies.entry(limit.key).or_default();
                    tally.asked += 1;
                    tally.denied += u64::from(!told.allowed);
                    tally.granted += if told.charged { told.cost.get() } else { 0 };
                }
            }
            (Command::Refund { charges, .. } | Command::Settle { charges, .. }, Answer::Undone(_)) => {
                for charge in charges {
                    self.tallies.entry(charge.key).or_default().corrected += 1;
                }
            }
            _ => {}
        }
    }
}

fn limits(command: &Command) -> &[Limit] {
    match command {
        Command::Check(check) | Command::Reserve { check, .. } => &check.limits,
        _ => &[],
    }
}

/// The overall verdict that follows from the limits' own.
fn overall(decision: &mut Decision) {
    let denied = || decision.limits.iter().filter(|limit| !limit.allowed && !limit.shadow);
    let mut waits = denied().map(|limit| limit.retry_after);
    let longest = waits.try_fold(Span(0), |longest, wait| Some(longest.max(wait?)));
    let allowed = denied().next().is_none();
    decision.allowed = allowed;
    decision.retry_after = longest.filter(|_| !allowed);
    decision.shadow_denied = matches!(&decision.limits[..], [only] if only.shadow && !only.allowed);
    decision.delay = None;
}

/// Whole microseconds.
pub(super) fn span(wait: Duration) -> Span {
    crate::pack::span(wait)
}
