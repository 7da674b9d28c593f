//! One check whose keys fall to several shards: charged on all of them at once, given back where one denies.
//!
//! ```text
//!            ┌─► shard 1: {a, b} together ─► granted ─┐                        all granted ─► granted
//!  question ─┤                                        ├─► every verdict there ─┤
//!            └─► shard 2: {c} ─────────────► denied ──┘                        else ─► refund what was charged
//! ```
//!
//! Within a shard it is one command, all or nothing. Across shards it is not atomic: between the charge and its refund others
//! may be denied for it, and a caller that dies meanwhile leaves it charged. Nothing is ever granted over a limit.
//!
//! Invariant: at every await, what is or may be charged is held by something that gives it back when it is dropped.

use std::sync::Arc;

use quorate_core::ShardId;
use tokio::time::Instant;

use crate::charge::Charge;
use crate::client::{Inner, decision};
use crate::decision::{Decision, LimitDecision};
use crate::error::Error;
use crate::giveback::{Held, Pending};
use crate::question::Question;
use crate::queue::Failure;

/// What one shard is asked.
struct Part<'a> {
    question: Question<'a>,
    /// Or why it was refused at once.
    pending: Result<Pending, Failure>,
}

/// Asks a validated question of every shard that it concerns.
pub(crate) async fn ask(inner: &Arc<Inner>, question: &mut Question<'_>, deadline: Instant) -> Result<Decision, Error> {
    loop {
        let seen = inner.changes();
        let moved = match attempt(inner, question, deadline).await {
            Ok(decision) => return Ok(decision),
            Err(Failure::Final(error)) => return Err(error),
            Err(Failure::Moved(error)) if error.may_have_charged() => return Err(error),
            Err(Failure::Moved(error)) => error,
        };
        inner.changed_since(seen, deadline, moved).await?;
    }
}

async fn attempt(inner: &Arc<Inner>, question: &mut Question<'_>, deadline: Instant) -> Result<Decision, Failure> {
    let groups = inner.by_shard(question)?;
    let parts: Vec<Part<'_>> = groups.into_iter().map(|(_, group)| send(inner, group, deadline)).collect();
    let mut held = Held::new(inner, None);
    let (mut decisions, mut failed) = (Vec::with_capacity(parts.len()), None::<Failure>);
    // All were sent before the first is awaited.
    for mut part in parts {
        let outcome = match part.pending {
            Ok(mut pending) => pending.outcome().await,
            Err(failure) => Err(failure),
        };
        match outcome.and_then(|answer| decision(answer, &mut part.question).map_err(Failure::Final)) {
            Ok(decision) => {
                held.add(Charge::of(&decision));
                decisions.push(decision);
            }
            Err(failure) => failed = Some(worse(failed, failure)),
        }
    }
    if let Some(failure) = failed {
        let clean = given_back(held, deadline).await;
        return Err(if clean { failure } else { failure.map(|error| error.charged(true)) });
    }
    let mut whole = merge(question, decisions);
    if whole.allowed {
        held.keep();
    } else {
        let clean = given_back(held, deadline).await;
        whole.gave_back(clean);
    }
    Ok(whole)
}

fn send<'a>(inner: &Arc<Inner>, mut question: Question<'a>, deadline: Instant) -> Part<'a> {
    let pending = inner.submit(&mut question, deadline).map(|outcome| Pending::new(inner, &question, outcome));
    Part { question, pending }
}

/// Whether nothing stays charged as far as is known by then.
async fn given_back(held: Held, deadline: Instant) -> bool {
    #[cfg(feature = "planted")]
    if quorate_core::planted::is(quorate_core::planted::Planted::DenialKeepsCharge) {
        held.keep();
        return true;
    }
    held.give_back(deadline).await
}

/// The failure that says more: that something may have been charged, then that it is final.
fn worse(one: Option<Failure>, other: Failure) -> Failure {
    let rank = |failure: &Failure| match failure {
        Failure::Final(error) | Failure::Moved(error) if error.may_have_charged() => 2,
        Failure::Final(_) => 1,
        Failure::Moved(_) => 0,
    };
    match one {
        Some(one) if rank(&one) >= rank(&other) => one,
        _ => other,
    }
}

/// The check as a whole, every limit in the order named.
fn merge(question: &Question<'_>, parts: Vec<Decision>) -> Decision {
    let allowed = parts.iter().all(|part| part.allowed);
    let denials = || parts.iter().filter(|part| !part.allowed);
    // One that never grants outlasts any wait.
    let wait = |part: &&Decision| (part.retry_after.is_none(), part.retry_after);
    let deciding = denials().max_by_key(wait).or(parts.first());
    let mut whole = Decision {
        allowed,
        retry_after: deciding.filter(|_| !allowed).and_then(|part| part.retry_after),
        delay: parts.iter().filter_map(|part| part.delay).max().filter(|_| allowed),
        degraded: parts.iter().any(|part| part.degraded),
        policy_version: deciding.map(|part| part.policy_version).unwrap_or_default(),
        receipt: deciding.map(|part| part.receipt).unwrap_or_default(),
        ..Decision::default()
    };
    let mut limits: Vec<LimitDecision> = parts.into_iter().flat_map(|part| part.limits).collect();
    for asked in &question.limits {
        let is_it = |one: &LimitDecision| *one.policy == *asked.policy && one.key == asked.key;
        if let Some(at) = limits.iter().position(is_it) {
            whole.limits.push(limits.swap_remove(at));
        }
    }
    whole.tighten();
    whole
}

impl Decision {
    /// A denial whose granted limits were charged, and given back; or are being, if that is not known to be `done`.
    fn gave_back(&mut self, done: bool) {
        for limit in self.limits.iter_mut().filter(|limit| limit.charged) {
            limit.charged = !done;
            limit.remaining = limit.remaining.saturating_add(limit.cost).min(limit.limit);
            limit.delay = None;
        }
        // Whatever is still charged is given back by whom it was taken.
        self.taken = true;
        self.tighten();
    }
}

impl Inner {
    /// The question cut by shard, in the order first named.
    fn by_shard<'a>(&self, question: &mut Question<'a>) -> Result<Vec<(ShardId, Question<'a>)>, Failure> {
        let mut groups: Vec<(ShardId, Question<'a>)> = Vec::new();
        for (shard, limit) in self.shards_of(question)?.into_iter().zip(&question.limits) {
            match groups.iter_mut().find(|(other, _)| *other == shard) {
                Some((_, group)) => group.limits.push(limit.clone()),
                None => {
                    let limits = smallvec::smallvec![limit.clone()];
                    groups.push((shard, Question { limits, peek: question.peek, max_delay: question.max_delay }));
                }
            }
        }
        Ok(groups)
    }
}
