//! The policies in force, and what they were before.
//!
//! A changed policy concerns all of its keys at once, and there may be millions. So each key keeps the number of the policy's
//! generation that its state was written under, and is brought up when it is next touched or swept; until then the policies
//! that it missed are kept here, each with the time at which it was replaced. Nobody can tell the difference: a state that
//! nobody touches is the same at any later time.
//!
//! Invariants: a past generation is kept as long as a key of it, or of an older one, is; a generation changes only when the
//! algorithm does (a change of mode or description changes no state).

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync;

use crate::caps;
use crate::digest::Hash;
use crate::ids::{PolicyId, Position};
use crate::limit::{State, migrate};
use crate::policy::{Algorithm, Policy, PolicySet};
use crate::units::Stamp;

/// Generations that a policy may have keys of, at most: a key keeps 8 bits of the number.
pub(crate) const GENERATIONS: usize = 250;

/// What a policy was, until it was replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Past {
    pub(crate) policy: Policy,
    /// When it was replaced.
    pub(crate) until: Stamp,
    /// How many keys still have a state of its generation.
    pub(crate) keys: u64,
}

/// A policy in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rule {
    pub(crate) id: PolicyId,
    /// How often its algorithm changed.
    pub(crate) generation: u64,
    /// How many keys have a state of this generation.
    pub(crate) keys: u64,
    /// What it was before, oldest first; the last was replaced by what is in force.
    pub(crate) past: VecDeque<Past>,
    /// Charges made before this are gone: algorithm, window or rate changed since.
    pub(crate) gone_before: Position,
}

/// All policies in force.
#[derive(Clone, Debug)]
pub(crate) struct Installed {
    set: sync::Arc<PolicySet>,
    /// As `set.policies`, one for one.
    rules: Vec<Rule>,
    /// The highest id that ever was in force.
    highest: PolicyId,
}

impl Installed {
    pub(crate) fn new() -> Self {
        Installed { set: sync::Arc::new(PolicySet::default()), rules: Vec::new(), highest: PolicyId(0) }
    }

    /// As it was written to a snapshot; none where the parts do not fit.
    pub(crate) fn restored(set: PolicySet, rules: Vec<Rule>, highest: PolicyId) -> Option<Self> {
        let fits = is_valid(&set)
            && set.policies.len() == rules.len()
            && set.policies.iter().zip(&rules).all(|(policy, rule)| policy.id == rule.id)
            && rules.iter().all(|rule| rule.past.len() < GENERATIONS && rule.past.len() as u64 <= rule.generation);
        fits.then(|| Installed { set: sync::Arc::new(set), rules, highest })
    }

    pub(crate) fn set(&self) -> &sync::Arc<PolicySet> {
        &self.set
    }

    pub(crate) fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// The ordinal of a policy in the set.
    pub(crate) fn find(&self, id: PolicyId) -> Option<usize> {
        // Ids are given one after the other, so where none was taken away, a policy stands at its id.
        let guess = (id.0 as usize).wrapping_sub(1);
        match self.rules.get(guess) {
            Some(rule) if rule.id == id => Some(guess),
            _ => self.rules.binary_search_by_key(&id, |rule| rule.id).ok(),
        }
    }

    pub(crate) fn policy(&self, at: usize) -> &Policy {
        &self.set.policies[at]
    }

    /// What a key keeps of the generation in force.
    pub(crate) fn generation(&self, at: usize) -> u8 {
        self.rules[at].generation as u8
    }

    /// Whether a charge made there is gone, because the policy changed since.
    pub(crate) fn is_gone(&self, at: usize, receipt: Position) -> bool {
        receipt < self.rules[at].gone_before
    }

    /// A state to be looked at, as it is under the policy in force.
    pub(crate) fn bring_up<'a>(&self, at: usize, generation: u8, state: Cow<'a, State>) -> Cow<'a, State> {
        if generation == self.generation(at) {
            return state;
        }
        Cow::Owned(self.bring_up_owned(at, generation, state.into_owned()))
    }

    /// A state of whatever generation, as it is under the policy in force.
    pub(crate) fn bring_up_owned(&self, at: usize, generation: u8, mut state: State) -> State {
        let rule = &self.rules[at];
        let behind = (rule.generation as u8).wrapping_sub(generation) as usize;
        let missed = rule.past.len().saturating_sub(behind);
        for (older, past) in rule.past.iter().enumerate().skip(missed) {
            let newer = rule.past.get(older + 1).map_or(self.policy(at), |past| &past.policy);
            state = migrate(&past.policy, newer, state, past.until);
        }
        state
    }

    /// Counts a key in under a generation of its policy; false where there is no such generation.
    pub(crate) fn enter(&mut self, at: usize, generation: u8) -> bool {
        let count = self.count(at, generation);
        count.map(|count| *count += 1).is_some()
    }

    /// Counts a key out, and forgets the generations that no key is left of. Nothing, where its policy was taken away.
    pub(crate) fn leave(&mut self, policy: PolicyId, generation: u8) {
        let Some(at) = self.find(policy) else { return };
        if let Some(count) = self.count(at, generation) {
            *count = count.saturating_sub(1);
        }
        let past = &mut self.rules[at].past;
        while past.front().is_some_and(|past| past.keys == 0) {
            past.pop_front();
        }
    }

    fn count(&mut self, at: usize, generation: u8) -> Option<&mut u64> {
        let rule = &mut self.rules[at];
        let behind = (rule.generation as u8).wrapping_sub(generation) as usize;
        if behind == 0 {
            return Some(&mut rule.keys);
        }
        let at = rule.past.len().checked_sub(behind)?;
        Some(&mut rule.past[at].keys)
    }

    pub(crate) fn highest(&self) -> PolicyId {
        self.highest
    }

    /// Whether all keys have to be swept before a set can be put in force: a policy's generations are used up, or an id comes
    /// back that was taken away, which the control group never does.
    pub(crate) fn needs_sweep(&self, set: &PolicySet) -> bool {
        let comes_back = |policy: &Policy| policy.id <= self.highest && self.find(policy.id).is_none();
        self.rules.iter().any(|rule| rule.past.len() + 1 >= GENERATIONS) || set.policies.iter().any(comes_back)
    }

    /// Puts a set in force, at a place in the log and its time; whether any state is concerned.
    pub(crate) fn install(&mut self, set: PolicySet, position: Position, t: Stamp) -> bool {
        let mut concerned = false;
        let mut rules = Vec::with_capacity(set.policies.len());
        let mut old = std::mem::take(&mut self.rules).into_iter().zip(&self.set.policies).peekable();
        for policy in &set.policies {
            while let Some((rule, _)) = old.next_if(|(rule, _)| rule.id < policy.id) {
                concerned |= keys(&rule) > 0;
            }
            let kept = old.next_if(|(rule, _)| rule.id == policy.id);
            rules.push(match kept {
                None => Rule { id: policy.id, generation: 0, keys: 0, past: VecDeque::new(), gone_before: position },
                Some((rule, before)) if before.algorithm == policy.algorithm => rule,
                Some((mut rule, before)) => {
                    concerned |= keys(&rule) > 0;
                    replace(&mut rule, before, policy, position, t);
                    rule
                }
            });
        }
        for (rule, _) in old {
            concerned |= keys(&rule) > 0;
        }
        self.rules = rules;
        self.highest = self.highest.max(set.policies.last().map_or(PolicyId(0), |policy| policy.id));
        self.set = sync::Arc::new(set);
        concerned
    }

    /// Everything but the set itself, which is hashed by its encoding.
    pub(crate) fn hash(&self, hash: Hash) -> Hash {
        let mut hash = hash.word(self.highest.0.into());
        for rule in &self.rules {
            let gone = rule.gone_before;
            hash = hash.word(rule.id.0.into()).word(rule.generation).word(rule.keys);
            hash = hash.word(gone.index.0).word(gone.place.into()).word(rule.past.len() as u64);
            for past in &rule.past {
                hash = hash.word(past.until.0 as u64).word(past.keys);
            }
        }
        hash
    }
}

fn keys(rule: &Rule) -> u64 {
    rule.keys + rule.past.iter().map(|past| past.keys).sum::<u64>()
}

fn replace(rule: &mut Rule, before: &Policy, after: &Policy, position: Position, t: Stamp) {
    if keys(rule) > 0 {
        let past = Policy { description: String::new(), ..before.clone() };
        rule.past.push_back(Past { policy: past, until: t, keys: rule.keys });
    }
    // With no key of any generation, nothing has to be brought up, and the number alone goes on.
    rule.generation += 1;
    rule.keys = 0;
    if !same_pace(&before.algorithm, &after.algorithm) {
        rule.gone_before = position;
    }
}

/// Whether the algorithm, its window or rate stay, so that earlier charges can still be undone.
fn same_pace(before: &Algorithm, after: &Algorithm) -> bool {
    match (*before, *after) {
        (Algorithm::FixedWindow { window: a, .. }, Algorithm::FixedWindow { window: b, .. })
        | (Algorithm::SlidingLog { window: a, .. }, Algorithm::SlidingLog { window: b, .. })
        | (Algorithm::SlidingCounter { window: a, .. }, Algorithm::SlidingCounter { window: b, .. }) => a == b,
        (Algorithm::TokenBucket { refill: a, .. }, Algorithm::TokenBucket { refill: b, .. })
        | (Algorithm::LeakyBucket { rate: a, .. }, Algorithm::LeakyBucket { rate: b, .. }) => a == b,
        _ => false,
    }
}

/// Whether a set can be put in force: its ids ascend, every policy lies within the bounds of exact arithmetic.
pub(crate) fn is_valid(set: &PolicySet) -> bool {
    set.policies.len() <= caps::POLICIES
        && set.policies.is_sorted_by(|a, b| a.id < b.id)
        && set.policies.iter().all(|policy| policy.validate_up_to(caps::EXACT_UNITS).is_ok())
}
