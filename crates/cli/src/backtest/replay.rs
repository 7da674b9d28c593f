//! Runs a trace's events through a shard of the core, one log entry each.
//!
//! Invariants: the answers are the shard's, unaltered; an event's index is its number. The hashing secrets are fixed, as nobody
//! here has an interest in collisions; key text is not kept.

use std::collections::HashMap;

use quorate_core::{
    Answer, Arc, Batch, Bounds, Charge, Check, Command, Cost, Decision, Fingerprint, Group, Index, Limit, Policy,
    PolicyId, PolicySet, Position, Receipt, RingSecret, Shard, ShardId, Span, Stamp, TableSecret, Term,
};

use super::trace::NamedLimit;

const RING: RingSecret = RingSecret(*b"a backtest: ring");
const TABLE: TableSecret = TableSecret(*b"a backtest: keys");

/// A shard, and the names of its policies.
#[derive(Debug)]
pub(super) struct Replay {
    shard: Shard,
    events: u64,
    set: PolicySet,
    /// Where each policy stands in the set.
    places: HashMap<String, usize>,
}

/// A granted check that can be undone.
#[derive(Debug)]
pub(super) struct Granted {
    receipt: Position,
    at: Stamp,
    charges: Vec<Charge>,
}

/// A decision, and which limit each of its answers is about.
#[derive(Debug)]
pub(super) struct Answered {
    pub(super) decision: Decision,
    /// The limits in the order first named, equal ones joined; an answer's ordinal is the place here.
    pub(super) limits: Vec<NamedLimit>,
    /// What there is to refund, if anything was charged.
    pub(super) granted: Option<Granted>,
}

impl Replay {
    /// A shard with these policies in force.
    pub(super) fn new(policies: Vec<Policy>) -> Result<Replay, String> {
        let (shard, set, places) = (Shard::new(ShardId(1), Arc::WHOLE), PolicySet::default(), HashMap::new());
        let mut replay = Replay { shard, events: 0, set, places };
        // The machine's memory is the only bound here.
        let bounds = Bounds { keys: u64::MAX, log_bytes: u64::MAX, ..Bounds::default() };
        replay.apply(Stamp(0), Command::Bounds(bounds))?;
        replay.install(Stamp(0), policies)?;
        Ok(replay)
    }

    /// The policies in force.
    pub(super) fn policies(&self) -> &[Policy] {
        &self.set.policies
    }

    fn find(&self, name: &str) -> Option<&Policy> {
        self.places.get(name).map(|place| &self.set.policies[*place])
    }

    /// Hands the shard its next entry.
    fn apply(&mut self, at: Stamp, command: Command) -> Result<(Receipt, Answer), String> {
        self.events += 1;
        let batch = Batch { stamp: at, groups: vec![Group { frame: None, commands: vec![(0, command)] }] };
        let applied = self.shard.apply(Term(1), Index(self.events), &batch, true);
        let answer = applied.groups.into_iter().flatten().next().ok_or("the shard gave no answer")?;
        match answer.answer {
            Answer::Refused(refusal) => Err(refusal.to_string()),
            done => Ok((answer.receipt, done)),
        }
    }

    /// Puts policies in force, each in place of the one of its name; warns of what is lost by it.
    pub(super) fn install(&mut self, at: Stamp, policies: Vec<Policy>) -> Result<Vec<String>, String> {
        self.set.version.0 += 1;
        let mut warnings = Vec::new();
        for mut policy in policies {
            match self.places.get(&policy.name) {
                Some(place) => {
                    let old = &mut self.set.policies[*place];
                    policy.id = old.id;
                    warnings.extend(policy.warning_over(old));
                    *old = policy;
                }
                None => {
                    self.places.insert(policy.name.clone(), self.set.policies.len());
                    policy.id = PolicyId(self.set.policies.len() as u32 + 1);
                    self.set.policies.push(policy);
                }
            }
        }
        self.apply(at, Command::Install(self.set.clone())).map(|_| warnings)
    }

    /// Asks a check; why it cannot be asked, if it cannot.
    pub(super) fn check(
        &mut self,
        at: Stamp,
        named: Vec<NamedLimit>,
        peek: bool,
        max_delay: Option<Span>,
    ) -> Result<Answered, String> {
        let limits = named.iter().map(|limit| self.limit(limit)).collect::<Result<_, _>>()?;
        let (receipt, answer) = self.apply(at, Command::Check(Check { limits, peek, max_delay }))?;
        let Answer::Decision(decision) = answer else { return Err("the shard did not decide".into()) };
        let limits = join(named);
        let charged = decision.limits.iter().filter(|answer| answer.charged);
        let charges: Vec<Charge> = charged
            .map(|answer| {
                let limit = &limits[usize::from(answer.ordinal)];
                let key = Fingerprint::new(&RING, &TABLE, answer.policy, limit.key.as_bytes());
                Charge { policy: answer.policy, key, cost: answer.cost, mark: answer.mark }
            })
            .collect();
        let granted =
            (!charges.is_empty()).then_some(Granted { receipt: receipt.position(), at: receipt.stamp, charges });
        Ok(Answered { decision, limits, granted })
    }

    fn limit(&self, named: &NamedLimit) -> Result<Limit, String> {
        let Some(policy) = self.find(&named.policy) else {
            let names: Vec<&str> = self.set.policies.iter().map(|policy| policy.name.as_str()).take(20).collect();
            let name: String = named.policy.chars().take(128).collect();
            return Err(format!("there is no policy {name:?} in force here; there are {}", names.join(", ")));
        };
        let key = Fingerprint::new(&RING, &TABLE, policy.id, named.key.as_bytes());
        Ok(Limit { policy: policy.id, key, cost: named.cost })
    }

    /// Undoes what a check charged, as far as it is still there; without one, lets time pass.
    pub(super) fn refund(&mut self, at: Stamp, granted: Option<Granted>) -> Result<(), String> {
        let command = granted.map_or(Command::Tick, |Granted { receipt, at, charges }| Command::Refund {
            receipt,
            at,
            charges: charges.into(),
        });
        self.apply(at, command).map(|_| ())
    }
}

/// As the shard joins them: the same (policy, key) named twice is one limit, at its first place, with the costs added.
fn join(named: Vec<NamedLimit>) -> Vec<NamedLimit> {
    let mut joined: Vec<NamedLimit> = Vec::with_capacity(named.len());
    for limit in named {
        match joined.iter_mut().find(|other| (&other.policy, &other.key) == (&limit.policy, &limit.key)) {
            Some(other) => other.cost = other.cost.checked_add(limit.cost).unwrap_or(Cost::MAX),
            None => joined.push(limit),
        }
    }
    joined
}
