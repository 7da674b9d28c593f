//! What is tested: the core's functions on bare states, or a whole shard that is told the same by its log.

use quorate_core::{
    Answer, Arc, Asked, Batch, Charge, Check, Command, Cost, Decision, Fingerprint, Group, Index, Limit, Mode, Peeked,
    Policy, PolicySet, PolicyVersion, Position, Shard, ShardId, Span, Stamp, State, Term, decide, migrate, overrun,
    peek, refund, settle,
};

/// A limit by its policy's place, its key's place, and what is asked.
pub type Named = (usize, usize, Cost);

/// A charge that is to be undone.
#[derive(Clone, Copy, Debug)]
pub struct Undo {
    pub policy: usize,
    pub key: usize,
    pub receipt: Position,
    pub at: Stamp,
    pub cost: Cost,
    pub mark: Option<i128>,
    /// The law says that the charge is gone: reset, or its policy changed course.
    pub gone: bool,
}

pub trait Subject {
    fn new(policies: &[Policy], keys: usize) -> Self;
    /// Asks at `t`; `stamp` is what the clock said, which may be earlier. With a time to live, it reserves.
    fn check(
        &mut self,
        policies: &[Policy],
        stamp: Stamp,
        t: Stamp,
        limits: &[Named],
        peek: bool,
        max_delay: Option<Span>,
        ttl: Option<Span>,
    ) -> (Position, Decision);
    /// Answers as at `t`, which is not before now, and changes nothing.
    fn look(&self, policies: &[Policy], t: Stamp, limits: &[Named], max_delay: Option<Span>) -> Decision;
    /// Undoes a charge; whether that changed anything.
    fn refund(&mut self, policies: &[Policy], t: Stamp, undo: &Undo) -> bool;
    fn settle(&mut self, policies: &[Policy], t: Stamp, undo: &Undo, ttl: Span, actual: Cost);
    fn change(&mut self, policies: &[Policy], place: usize, old: &Policy, t: Stamp);
    fn reset(&mut self, policies: &[Policy], t: Stamp, policy: usize, key: usize);
    /// The law says whether the key is as good as new; `drop` it, if it can be dropped.
    fn is_new(&mut self, policies: &[Policy], t: Stamp, policy: usize, key: usize, is_new: bool, drop: bool);
}

/// Bare states, and the core's functions.
pub struct Functions {
    states: Vec<Vec<State>>,
    events: u64,
}

impl Subject for Functions {
    fn new(policies: &[Policy], keys: usize) -> Self {
        let states = policies.iter().map(|policy| vec![State::new(&policy.algorithm); keys]).collect();
        Functions { states, events: 0 }
    }

    fn check(
        &mut self,
        policies: &[Policy],
        _: Stamp,
        t: Stamp,
        limits: &[Named],
        peek: bool,
        max_delay: Option<Span>,
        ttl: Option<Span>,
    ) -> (Position, Decision) {
        self.events += 1;
        let receipt = Position { index: Index(self.events), place: 0 };
        let mut states: Vec<State> = limits.iter().map(|limit| self.states[limit.0][limit.1].clone()).collect();
        let before = states.clone();
        let mut asked: Vec<Asked<'_>> = limits
            .iter()
            .zip(&mut states)
            .enumerate()
            .map(|(i, (limit, state))| Asked { policy: &policies[limit.0], state, cost: limit.2, ordinal: i as u16 })
            .collect();
        let hold = ttl.map(|ttl| (receipt, t.saturating_add(ttl)));
        let decision = decide(&mut asked, t, peek, max_delay, hold);
        for (i, ((before, after), limit)) in before.into_iter().zip(states).zip(limits).enumerate() {
            let charged = decision.limits.iter().any(|answer| usize::from(answer.ordinal) == i && answer.charged);
            assert!(charged || before == after, "a state is touched only where a limit is charged");
            self.states[limit.0][limit.1] = after;
        }
        (receipt, decision)
    }

    fn look(&self, policies: &[Policy], t: Stamp, limits: &[Named], max_delay: Option<Span>) -> Decision {
        let limits = limits.iter().enumerate().map(|(i, limit)| Peeked {
            policy: &policies[limit.0],
            state: &self.states[limit.0][limit.1],
            cost: limit.2,
            ordinal: i as u16,
        });
        peek(&limits.collect::<Vec<_>>(), t, max_delay)
    }

    fn refund(&mut self, policies: &[Policy], t: Stamp, undo: &Undo) -> bool {
        let state = &mut self.states[undo.policy][undo.key];
        // Who calls the function sees to it that the charge is still there.
        !undo.gone && refund(&policies[undo.policy], state, t, undo.receipt, undo.at, undo.cost, undo.mark)
    }

    fn settle(&mut self, policies: &[Policy], t: Stamp, undo: &Undo, ttl: Span, actual: Cost) {
        let state = &mut self.states[undo.policy][undo.key];
        let (policy, expires) = (&policies[undo.policy], undo.at.saturating_add(ttl));
        if undo.gone {
            overrun(policy, state, t, expires, undo.cost, actual);
        } else {
            settle(policy, state, t, undo.receipt, undo.at, expires, undo.cost, actual);
        }
    }

    fn change(&mut self, policies: &[Policy], place: usize, old: &Policy, t: Stamp) {
        for state in &mut self.states[place] {
            *state = migrate(old, &policies[place], state.clone(), t);
        }
    }

    fn reset(&mut self, policies: &[Policy], _: Stamp, policy: usize, key: usize) {
        self.states[policy][key] = State::new(&policies[policy].algorithm);
    }

    fn is_new(&mut self, policies: &[Policy], t: Stamp, policy: usize, key: usize, is_new: bool, drop: bool) {
        let (state, algorithm) = (&mut self.states[policy][key], &policies[policy].algorithm);
        assert_eq!(state.is_new(algorithm, t), is_new, "as good as new: {state:?}");
        assert_eq!(state.as_new_at(algorithm) <= t, is_new);
        if is_new && drop {
            *state = State::new(algorithm);
        }
    }
}

/// A shard, told everything by its log.
pub struct Whole {
    shard: Shard,
    index: u64,
    version: u64,
    keys: usize,
}

fn print(policy: usize, key: usize) -> Fingerprint {
    let mix = |n: u64| (n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    Fingerprint { table: mix((policy * 100 + key) as u64), ring: mix(key as u64) }
}

impl Whole {
    fn apply(&mut self, stamp: Stamp, command: Command) -> (Position, Answer) {
        self.index += 1;
        let batch = Batch { stamp, groups: vec![Group { frame: None, commands: vec![(0, command)] }] };
        let applied = self.shard.apply(Term(1), Index(self.index), &batch, true);
        let place = applied.groups.into_iter().flatten().next().expect("every command has an answer");
        (place.receipt.position(), place.answer)
    }

    fn install(&mut self, policies: &[Policy], t: Stamp) {
        self.version += 1;
        let set = PolicySet { version: PolicyVersion(self.version), policies: policies.to_vec() };
        assert_eq!(self.apply(t, Command::Install(set)).1, Answer::Done);
    }

    /// Goes on from a snapshot.
    fn restart(&mut self) {
        let mut bytes = Vec::new();
        self.shard.capture().write(&mut bytes).unwrap();
        let restored = Shard::restore(&mut bytes.as_slice()).unwrap();
        assert_eq!(restored.digest(), self.shard.digest());
        self.shard = restored;
    }

    /// A limit may be named in two parts: they are one.
    fn named(&self, policies: &[Policy], limits: &[Named], apart: bool) -> Check {
        let mut check = Check::default();
        for (policy, key, cost) in limits {
            let half = Cost::new(cost.get() / 2).unwrap();
            let rest = cost.saturating_sub(half);
            let parts = if apart { vec![half, rest] } else { vec![*cost] };
            for cost in parts {
                check.limits.push(Limit { policy: policies[*policy].id, key: print(*policy, *key), cost });
            }
        }
        check
    }
}

fn charge(policies: &[Policy], undo: &Undo) -> Charge {
    Charge { policy: policies[undo.policy].id, key: print(undo.policy, undo.key), cost: undo.cost, mark: undo.mark }
}

fn decision(answer: Answer) -> Decision {
    match answer {
        Answer::Decision(decision) => decision,
        other => panic!("not decided: {other:?}"),
    }
}

impl Subject for Whole {
    fn new(policies: &[Policy], keys: usize) -> Self {
        let mut whole = Whole { shard: Shard::new(ShardId(1), Arc::WHOLE), index: 0, version: 0, keys };
        whole.install(policies, Stamp(0));
        whole
    }

    fn check(
        &mut self,
        policies: &[Policy],
        stamp: Stamp,
        t: Stamp,
        limits: &[Named],
        peek: bool,
        max_delay: Option<Span>,
        ttl: Option<Span>,
    ) -> (Position, Decision) {
        // A stamp that steps back is taken for the shard's time only where the shard has been told that time.
        let stamp = if self.shard.stamp() < t { t } else { stamp };
        let check = Check { peek, max_delay, ..self.named(policies, limits, self.index.is_multiple_of(3)) };
        let command = match ttl {
            None => Command::Check(check),
            Some(ttl) => Command::Reserve { check, ttl },
        };
        let (position, answer) = self.apply(stamp, command);
        (position, Decision { version: PolicyVersion(0), ..decision(answer) })
    }

    fn look(&self, policies: &[Policy], t: Stamp, limits: &[Named], max_delay: Option<Span>) -> Decision {
        let check = Check { peek: true, max_delay, ..self.named(policies, limits, false) };
        Decision { version: PolicyVersion(0), ..decision(self.shard.evaluate(t, &check)) }
    }

    fn refund(&mut self, policies: &[Policy], t: Stamp, undo: &Undo) -> bool {
        let charges = [charge(policies, undo)].into_iter().collect();
        let (_, answer) = self.apply(t, Command::Refund { receipt: undo.receipt, at: undo.at, charges });
        assert!(!undo.gone || answer == Answer::Undone(0), "a charge that is gone stays gone");
        answer == Answer::Undone(1)
    }

    fn settle(&mut self, policies: &[Policy], t: Stamp, undo: &Undo, ttl: Span, actual: Cost) {
        let (charges, actual) = ([charge(policies, undo)].into_iter().collect(), [actual].into_iter().collect());
        let (_, answer) = self.apply(t, Command::Settle { receipt: undo.receipt, at: undo.at, ttl, charges, actual });
        assert!(matches!(answer, Answer::Undone(_)), "{answer:?}");
    }

    fn change(&mut self, policies: &[Policy], _: usize, _: &Policy, t: Stamp) {
        self.install(policies, t);
    }

    fn reset(&mut self, policies: &[Policy], t: Stamp, policy: usize, key: usize) {
        let (policy, key) = (policies[policy].id, print(policy, key));
        assert_eq!(self.apply(t, Command::Reset { policy, key }).1, Answer::Done);
    }

    fn is_new(&mut self, policies: &[Policy], t: Stamp, policy: usize, key: usize, is_new: bool, drop: bool) {
        assert!(self.shard.keys() <= (policies.len() * self.keys) as u64);
        if policies[policy].mode != Mode::Disabled {
            let looked = self.look(policies, t, &[(policy, key, Cost::ZERO)], None);
            assert_eq!(
                looked.limits[0].reset_after == Span(0),
                is_new,
                "{policy} {key} at {t:?}, the shard at {:?}: {:?}",
                self.shard.stamp(),
                self.shard.usage()
            );
        }
        if drop {
            self.apply(t, Command::Tick);
        }
        if self.index.is_multiple_of(50) {
            self.restart();
        }
    }
}
