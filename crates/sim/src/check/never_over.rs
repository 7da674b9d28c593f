//! *Never over*: every answer is the one that the law gives, and no key is granted more than its limit.
//!
//! An independent model, exact rationals and nothing of the implementation, executes each shard's log; each answer that a
//! caller got is held against it at the place that its receipt names: the verdict, every number of every limit, and that
//! the waits are true, not a microsecond too short or too long.

use std::collections::{BTreeMap, HashMap};

use quorate_core::{
    Algorithm, Charge, Check, Command, Cost, Fingerprint, Mode, Policy, PolicyId, PolicySet, Position, Receipt,
    ShardId, Span,
};
use quorate_law::{self as law, Limiter, Rule, Time};

use super::Found;
use super::replay::Replay;
use crate::history::{Op, Outcome, Told, Verdict};

/// Executes all logs, and holds the answers against them.
pub fn check(ops: &[Op], replays: &BTreeMap<ShardId, Replay>) -> Found {
    let mut answers: HashMap<(ShardId, Position), (usize, &Op, Part<'_>)> = HashMap::new();
    for (number, op) in ops.iter().enumerate() {
        // A remembered denial is not decided again: see `remembered`.
        let Outcome::Decided(verdict) = &op.outcome else { continue };
        if verdict.remembered {
            continue;
        }
        for part in Part::all(verdict) {
            let place = (part.receipt.shard, part.receipt.position());
            if let Some((other, ..)) = answers.insert(place, (number, op, part)) {
                return Err(format!("calls {other} and {number} bear one receipt: {place:?}"));
            }
        }
        waits(verdict).map_err(|what| format!("call {number}, {:?}: {what}: {verdict:?}", op.call))?;
    }
    for (shard, replay) in replays {
        let mut model = Model::default();
        for (position, (now, command)) in &replay.executed {
            let answer = answers.get(&(*shard, *position));
            let part = answer.map(|(_, _, part)| part);
            model.execute(*position, Time::from(*now), command, part).map_err(|what| {
                let call = answer.map(|(number, op, _)| format!("call {number}, {:?}", op.call)).unwrap_or_default();
                format!("{shard} {position:?}: {what}; {call}: {part:?}")
            })?;
        }
    }
    Ok(())
}

/// What one shard was asked of a check, as it was answered.
#[derive(Debug)]
struct Part<'a> {
    receipt: Receipt,
    allowed: bool,
    limits: Vec<&'a Told>,
    /// Another shard denied the check, so that what this one granted was given back, or is being.
    taken_back: bool,
}

impl Part<'_> {
    fn all(verdict: &Verdict) -> impl Iterator<Item = Part<'_>> {
        verdict.parts().into_iter().map(|(receipt, limits)| {
            let allowed = limits.iter().all(|limit| limit.allowed || limit.shadow);
            let taken_back = allowed && !verdict.allowed;
            Part { receipt, allowed, limits, taken_back }
        })
    }
}

/// A key under a policy.
struct Key {
    law: Limiter,
    era: u64,
}

/// A charge that may still be corrected.
struct Open {
    law: law::Charge,
    era: (u64, u64),
}

/// A shard, by the law.
#[derive(Default)]
struct Model {
    set: PolicySet,
    /// How often each policy changed its course.
    courses: HashMap<PolicyId, u64>,
    keys: HashMap<(PolicyId, Fingerprint), Key>,
    open: HashMap<(Position, PolicyId, Fingerprint), Open>,
    events: u64,
}

fn rule(algorithm: &Algorithm) -> Rule {
    match *algorithm {
        Algorithm::FixedWindow { limit, window } => Rule::FixedWindow { limit, window: window.0.into() },
        Algorithm::SlidingLog { limit, window } => Rule::SlidingLog { limit, window: window.0.into() },
        Algorithm::SlidingCounter { limit, window } => Rule::SlidingCounter { limit, window: window.0.into() },
        Algorithm::TokenBucket { capacity, refill } => {
            Rule::TokenBucket { capacity, units: refill.units, period: refill.period.0.into() }
        }
        Algorithm::LeakyBucket { queue, rate } => {
            Rule::LeakyBucket { queue, units: rate.units, period: rate.period.0.into() }
        }
    }
}

/// Whether what was charged under the one is still there under the other.
fn same_course(old: &Algorithm, new: &Algorithm) -> bool {
    match (rule(old), rule(new)) {
        (Rule::FixedWindow { window: a, .. }, Rule::FixedWindow { window: b, .. })
        | (Rule::SlidingLog { window: a, .. }, Rule::SlidingLog { window: b, .. })
        | (Rule::SlidingCounter { window: a, .. }, Rule::SlidingCounter { window: b, .. }) => a == b,
        (Rule::TokenBucket { units: a, period: b, .. }, Rule::TokenBucket { units: c, period: d, .. })
        | (Rule::LeakyBucket { units: a, period: b, .. }, Rule::LeakyBucket { units: c, period: d, .. }) => {
            (a, b) == (c, d)
        }
        _ => false,
    }
}

/// What the law says of one limit of a check.
struct Ruling<'p> {
    policy: &'p Policy,
    key: Fingerprint,
    cost: Cost,
    granted: bool,
    delay: Option<i64>,
}

impl Model {
    fn execute(&mut self, at: Position, now: Time, command: &Command, part: Option<&Part<'_>>) -> Found {
        match command {
            Command::Check(check) => self.check(at, now, check, None, part),
            Command::Reserve { check, ttl } => self.check(at, now, check, Some(*ttl), part),
            Command::Refund { receipt, charges, .. } => {
                for charge in charges {
                    let Some((open, gone)) = self.take(*receipt, charge) else { continue };
                    if !gone && let Some(key) = self.key(charge.policy, charge.key, now) {
                        key.law.refund(&open.law);
                    }
                }
                Ok(())
            }
            Command::Settle { receipt, charges, actual, .. } => {
                for (charge, actual) in charges.iter().zip(actual) {
                    let Some((open, gone)) = self.take(*receipt, charge) else { continue };
                    if let Some(key) = self.key(charge.policy, charge.key, now) {
                        key.law.settle(now, &open.law, actual.get(), gone);
                    }
                }
                Ok(())
            }
            Command::Reset { policy, key } => {
                let Some(rule) = self.policy(*policy).map(|policy| rule(&policy.algorithm)) else { return Ok(()) };
                if let Some(key) = self.key(*policy, *key, now) {
                    key.law = Limiter::new(rule);
                    key.law.pass(now);
                    key.era += 1;
                }
                Ok(())
            }
            Command::Install(set) => {
                self.install(set, now);
                Ok(())
            }
            Command::Tick | Command::OpenSession | Command::CloseSession(_) | Command::Bounds(_) => Ok(()),
        }
    }

    fn policy(&self, id: PolicyId) -> Option<&Policy> {
        self.set.get(id)
    }

    fn key(&mut self, policy: PolicyId, key: Fingerprint, now: Time) -> Option<&mut Key> {
        let rule = rule(&self.set.get(policy)?.algorithm);
        let key = self.keys.entry((policy, key)).or_insert_with(|| Key { law: Limiter::new(rule), era: 0 });
        key.law.pass(now);
        Some(key)
    }

    /// The charge, and whether it is gone: its key was reset, or its policy changed its course.
    fn take(&mut self, receipt: Position, charge: &Charge) -> Option<(Open, bool)> {
        let open = self.open.remove(&(receipt, charge.policy, charge.key))?;
        let gone = open.era != self.era(charge.policy, charge.key);
        Some((open, gone))
    }

    fn era(&self, policy: PolicyId, key: Fingerprint) -> (u64, u64) {
        let course = self.courses.get(&policy).copied().unwrap_or(0);
        (course, self.keys.get(&(policy, key)).map_or(0, |key| key.era))
    }

    fn install(&mut self, set: &PolicySet, now: Time) {
        if set.version <= self.set.version {
            return;
        }
        let old = std::mem::replace(&mut self.set, set.clone());
        for policy in &set.policies {
            let Some(before) = old.get(policy.id).filter(|before| before.algorithm != policy.algorithm) else {
                continue;
            };
            if !same_course(&before.algorithm, &policy.algorithm) {
                *self.courses.entry(policy.id).or_default() += 1;
            }
            for ((_, _), key) in self.keys.iter_mut().filter(|((id, _), _)| *id == policy.id) {
                key.law.pass(now);
                key.law = key.law.clone().change(now, rule(&policy.algorithm));
            }
        }
        self.keys.retain(|(id, _), _| set.get(*id).is_some());
    }

    fn check(&mut self, at: Position, now: Time, check: &Check, ttl: Option<Span>, part: Option<&Part<'_>>) -> Found {
        let late = check.max_delay.map(|span| Time::from(span.0));
        let known = check.limits.iter().all(|limit| self.policy(limit.policy).is_some());
        if !known {
            return if part.is_some() { Err("a policy that is not in force decided".to_owned()) } else { Ok(()) };
        }
        let set = self.set.clone();
        let mut rulings = Vec::new();
        for limit in &check.limits {
            let (Some(policy), Some(key)) = (set.get(limit.policy), self.key(limit.policy, limit.key, now)) else {
                continue;
            };
            let granted = key.law.grants(limit.cost.get(), late);
            let delay = key.law.delay(limit.cost.get()).and_then(|delay| i64::try_from(delay).ok());
            rulings.push(Ruling { policy, key: limit.key, cost: limit.cost, granted, delay });
        }
        let allowed = rulings.iter().all(|ruling| ruling.granted || ruling.policy.mode != Mode::Enforce);
        let told = |problem: &str, law: &dyn std::fmt::Debug| Err(format!("{problem}: the law says {law:?}"));
        if let Some(part) = part
            && part.allowed != allowed
        {
            return told("the check as a whole", &allowed);
        }
        let mut answers = part.map(|part| part.limits.iter());
        for ruling in &rulings {
            if ruling.policy.mode == Mode::Disabled {
                continue;
            }
            let place = (ruling.policy.id, ruling.key);
            let charges = allowed && ruling.granted && !check.peek && (ruling.cost > Cost::ZERO || ttl.is_some());
            if charges {
                self.events += 1;
                let expires = ttl.map(|ttl| now + Time::from(ttl.0));
                let era = self.era(place.0, place.1);
                if let Some(key) = self.keys.get_mut(&place) {
                    let law = key.law.charge(now, self.events, ruling.cost.get(), expires);
                    self.open.insert((at, place.0, place.1), Open { law, era });
                }
            }
            let (Some(answers), Some(part)) = (&mut answers, part) else { continue };
            let (Some(answer), Some(key)) = (answers.next(), self.keys.get(&place)) else {
                return told("a limit has no answer", &ruling.policy.name);
            };
            let situation = Situation { allowed, charged: charges, taken_back: part.taken_back, now, late };
            stands(ruling, &key.law, answer, &situation)?;
        }
        Ok(())
    }
}

/// What is so as a limit answers.
struct Situation {
    allowed: bool,
    charged: bool,
    taken_back: bool,
    now: Time,
    late: Option<Time>,
}

/// What a limit says of itself, against the law.
fn stands(ruling: &Ruling<'_>, law: &Limiter, answer: &Told, situation: &Situation) -> Found {
    let Situation { allowed, charged, taken_back, now, late } = *situation;
    let differs = |what: &str, law: &dyn std::fmt::Debug| {
        Err(format!("{what} of {}: the law says {law:?}, and it was {answer:?}", ruling.policy.name))
    };
    if answer.allowed != ruling.granted {
        return differs("the verdict", &ruling.granted);
    }
    // What is taken back is told as not charged once that is done.
    if answer.charged != charged && !(taken_back && !answer.charged) {
        return differs("the charge", &charged);
    }
    if law.limit() != answer.limit.into() {
        return differs("limit", &law.limit());
    }
    let back = if taken_back && charged { ruling.cost.get() } else { 0 };
    let remaining = (law.remaining() + Time::from(back)).min(law.limit());
    if remaining != answer.remaining.into() {
        return differs("remaining", &remaining);
    }
    let allowed = allowed && !taken_back;
    let delay = ruling.delay.filter(|_| ruling.granted && allowed);
    if answer.delay != delay {
        return differs("delay", &delay);
    }
    let reset = Time::from(answer.reset_after);
    let is_new = |wait: Time| law.idle_until(now + wait).is_new();
    if !is_new(reset) || (reset > 0 && is_new(reset - 1)) {
        return differs("reset_after", &"another wait");
    }
    if ruling.granted {
        return if answer.retry_after.is_some() { differs("retry_after", &"none") } else { Ok(()) };
    }
    let grants = |wait: Time| law.idle_until(now + wait).grants(ruling.cost.get(), late);
    match answer.retry_after.map(Time::from) {
        Some(wait) if wait > 0 && grants(wait) && !grants(wait - 1) => Ok(()),
        Some(_) => differs("retry_after", &"another wait"),
        None => {
            let mut idle = Limiter::new(rule(&ruling.policy.algorithm));
            idle.pass(now);
            if idle.grants(ruling.cost.get(), late) { differs("retry_after", &"a wait") } else { Ok(()) }
        }
    }
}

/// A denial's wait is the longest of the enforced limits that denied, on whatever shard.
fn waits(verdict: &Verdict) -> Found {
    let denied = verdict.limits.iter().filter(|limit| !limit.allowed && !limit.shadow);
    let longest = denied.map(|limit| limit.retry_after).try_fold(0, |longest: i64, wait| Some(longest.max(wait?)));
    let enforced = verdict.limits.iter().any(|limit| !limit.allowed && !limit.shadow);
    if verdict.allowed == enforced {
        return Err("the check as a whole is not what its limits say".to_owned());
    }
    if verdict.allowed || verdict.retry_after == longest {
        return Ok(());
    }
    Err(format!("the wait as a whole is not {longest:?}"))
}
