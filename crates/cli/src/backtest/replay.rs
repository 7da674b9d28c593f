//! Runs a trace's events through the core, one after the other, as a shard would.
//!
//! Invariants: logical time never goes back; the answers come from `quorate_core` alone; nothing depends on the order of a map.

use std::collections::{BTreeMap, HashMap};

use quorate_core::{
    Algorithm, Asked, Cost, Decision, Index, Mode, Policy, PolicyId, Position, Span, Stamp, State, decide, migrate,
    refund,
};

use super::trace::NamedLimit;

/// The policies in force, and the states of their keys.
#[derive(Debug, Default)]
pub(super) struct Replay {
    now: Stamp,
    /// How many events there were; the next one's index.
    events: u64,
    policies: BTreeMap<String, InForce>,
    states: HashMap<(PolicyId, String), State>,
    ids: u32,
}

#[derive(Debug)]
struct InForce {
    policy: Policy,
    /// A charge made before this event is gone: the policy's algorithm, window or rate changed there.
    charges_from: Index,
}

/// What a granted check charged: enough to undo it.
#[derive(Clone, Debug)]
pub(super) struct Receipt {
    position: Position,
    at: Stamp,
    charges: Vec<(PolicyId, String, Cost, Option<i128>)>,
}

/// A check that cannot be asked, and why.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unasked {
    UnknownPolicy(String),
    CostTooLarge,
    CostAboveMax(Cost, Cost),
}

/// A decision, and which limit each of its answers is about.
#[derive(Debug)]
pub(super) struct Answered {
    pub(super) decision: Decision,
    /// The joined limits; an answer's ordinal is the place here.
    pub(super) limits: Vec<NamedLimit>,
    /// What there is to refund, if anything was charged.
    pub(super) receipt: Option<Receipt>,
}

impl Replay {
    fn step(&mut self, at: Stamp) -> Index {
        self.now = self.now.max(at);
        self.events += 1;
        Index(self.events)
    }

    /// The policies in force, in order of their names.
    pub(super) fn policies(&self) -> impl Iterator<Item = &Policy> {
        self.policies.values().map(|in_force| &in_force.policy)
    }

    /// Puts a policy in force; its keys' states come along, as far as the law lets them.
    pub(super) fn apply(&mut self, at: Stamp, mut policy: Policy) {
        let index = self.step(at);
        let Some(old) = self.policies.get(&policy.name) else {
            self.ids += 1;
            policy.id = PolicyId(self.ids);
            self.policies.insert(policy.name.clone(), InForce { policy, charges_from: index });
            return;
        };
        policy.id = old.policy.id;
        let charges_from = if same_course(&old.policy.algorithm, &policy.algorithm) { old.charges_from } else { index };
        for (_, state) in self.states.iter_mut().filter(|((id, _), _)| *id == policy.id) {
            let before = std::mem::replace(state, State::new(&policy.algorithm));
            *state = migrate(&old.policy, &policy, before, self.now);
        }
        self.policies.insert(policy.name.clone(), InForce { policy, charges_from });
    }

    /// Asks a check.
    pub(super) fn check(
        &mut self,
        at: Stamp,
        limits: Vec<NamedLimit>,
        peek: bool,
        max_delay: Option<Span>,
    ) -> Result<Answered, Unasked> {
        let index = self.step(at);
        let limits = self.join(limits)?;
        // Each state is taken out of the map for as long as it is asked, and put back.
        let keys: Vec<(PolicyId, String)> =
            limits.iter().map(|limit| (self.policies[&limit.policy].policy.id, limit.key.clone())).collect();
        let mut states: Vec<State> = keys
            .iter()
            .zip(&limits)
            .map(|(key, limit)| {
                let fresh = || State::new(&self.policies[&limit.policy].policy.algorithm);
                self.states.remove(key).unwrap_or_else(fresh)
            })
            .collect();
        let mut asked: Vec<Asked<'_>> = limits
            .iter()
            .zip(&mut states)
            .enumerate()
            .map(|(i, (limit, state))| {
                let policy = &self.policies[&limit.policy].policy;
                Asked { policy, state, cost: limit.cost, ordinal: i as u16 }
            })
            .collect();
        let decision = decide(&mut asked, self.now, peek, max_delay, None);
        let charged = decision.limits.iter().filter(|answer| answer.charged);
        let charges: Vec<_> = charged
            .map(|answer| {
                let (id, key) = &keys[usize::from(answer.ordinal)];
                (*id, key.clone(), answer.cost, answer.mark)
            })
            .collect();
        for ((key, state), limit) in keys.into_iter().zip(states).zip(&limits) {
            if !state.is_new(&self.policies[&limit.policy].policy.algorithm, self.now) {
                self.states.insert(key, state);
            }
        }
        let position = Position { index, place: 0 };
        let receipt = (!charges.is_empty()).then_some(Receipt { position, at: self.now, charges });
        Ok(Answered { decision, limits, receipt })
    }

    /// Undoes what a check charged, as far as it is still there.
    pub(super) fn refund(&mut self, at: Stamp, receipt: Option<Receipt>) {
        self.step(at);
        let Some(receipt) = receipt else { return };
        for (id, key, cost, mark) in receipt.charges {
            let Some(in_force) = self.policies.values().find(|in_force| in_force.policy.id == id) else { continue };
            if receipt.position.index < in_force.charges_from {
                continue;
            }
            if let Some(state) = self.states.get_mut(&(id, key)) {
                refund(&in_force.policy, state, self.now, receipt.position, receipt.at, cost, mark);
            }
        }
    }

    /// The same (policy, key) named twice is one limit, with the costs added, at its first place.
    fn join(&self, limits: Vec<NamedLimit>) -> Result<Vec<NamedLimit>, Unasked> {
        let mut joined: Vec<NamedLimit> = Vec::with_capacity(limits.len());
        for limit in limits {
            let Some(in_force) = self.policies.get(&limit.policy) else {
                return Err(Unasked::UnknownPolicy(limit.policy));
            };
            let cost = match joined.iter_mut().find(|other| (&other.policy, &other.key) == (&limit.policy, &limit.key))
            {
                Some(other) => {
                    other.cost = other.cost.checked_add(limit.cost).ok_or(Unasked::CostTooLarge)?;
                    other.cost
                }
                None => {
                    let cost = limit.cost;
                    joined.push(limit);
                    cost
                }
            };
            if let Some(max) =
                in_force.policy.max_cost.filter(|max| cost > *max && in_force.policy.mode != Mode::Disabled)
            {
                return Err(Unasked::CostAboveMax(cost, max));
            }
        }
        Ok(joined)
    }
}

/// Whether a charge made under `old` can still be undone under `new`: the algorithm, and its window or rate, are the same.
fn same_course(old: &Algorithm, new: &Algorithm) -> bool {
    match (old, new) {
        (Algorithm::FixedWindow { window: a, .. }, Algorithm::FixedWindow { window: b, .. })
        | (Algorithm::SlidingLog { window: a, .. }, Algorithm::SlidingLog { window: b, .. })
        | (Algorithm::SlidingCounter { window: a, .. }, Algorithm::SlidingCounter { window: b, .. }) => a == b,
        (Algorithm::TokenBucket { refill: a, .. }, Algorithm::TokenBucket { refill: b, .. })
        | (Algorithm::LeakyBucket { rate: a, .. }, Algorithm::LeakyBucket { rate: b, .. }) => a == b,
        _ => false,
    }
}
