//! *Denials remembered*: what a client answers from memory is a denial that it was given before, told with exactly what is left
//! of its wait, within that wait, and not after it gave something back itself.

use std::collections::HashMap;

use quorate_core::{Position, ShardId};

use super::Found;
use crate::history::{Op, Outcome, Told, Verdict};

/// How long a client remembers, in microseconds.
const MOST: i64 = 1_000_000;

/// Holds every remembered denial against the one that it repeats. How many there were.
pub fn check(ops: &[Op]) -> Result<u64, String> {
    let mut firsts: HashMap<(ShardId, Position), usize> = HashMap::new();
    for (number, op) in ops.iter().enumerate() {
        if let Outcome::Decided(verdict) = &op.outcome
            && !verdict.remembered
        {
            firsts.insert((verdict.receipt.shard, verdict.receipt.position()), number);
        }
    }
    let mut count = 0;
    for (number, op) in ops.iter().enumerate() {
        let Outcome::Decided(verdict) = &op.outcome else { continue };
        if !verdict.remembered {
            continue;
        }
        count += 1;
        let first = firsts.get(&(verdict.receipt.shard, verdict.receipt.position()));
        let Some((at, first)) = first.map(|at| (*at, &ops[*at])) else {
            return Err(format!("call {number} was told a denial that nobody was given: {verdict:?}"));
        };
        repeats(ops, op, verdict, first)
            .map_err(|what| format!("call {number}, {op:?}, was told again what call {at}, {first:?}, was: {what}"))?;
    }
    Ok(count)
}

fn repeats(ops: &[Op], op: &Op, verdict: &Verdict, first: &Op) -> Found {
    let wrong = |what: &str| Err(what.to_owned());
    let (Outcome::Decided(denial), Some(received)) = (&first.outcome, first.answered) else {
        return wrong("that has no answer");
    };
    if first.client != op.client || first.call != op.call {
        return wrong("that is another's, or another question");
    }
    if denial.allowed || verdict.allowed || denial.limits.iter().any(|limit| limit.shadow) {
        return wrong("that is no denial by enforced limits");
    }
    let (Some(now), true) = (op.answered, received <= op.asked) else { return wrong("that came later") };
    let wait = denial.limits.iter().filter(|limit| !limit.allowed).filter_map(|limit| limit.retry_after).min();
    if now - first.asked >= wait.unwrap_or(MOST).min(MOST) {
        return wrong("its wait is over");
    }
    let left = |wait: i64| (wait - (now - received)).max(0);
    let same = |told: &Told, was: &Told| {
        let aged = Told { retry_after: was.retry_after.map(left), reset_after: left(was.reset_after), ..was.clone() };
        *told == aged
    };
    if verdict.retry_after != denial.retry_after.map(left)
        || verdict.limits.len() != denial.limits.len()
        || !verdict.limits.iter().zip(&denial.limits).all(|(told, was)| same(told, was))
    {
        return wrong("it is not the same, less the time that has passed");
    }
    // Of its own doings a client knows when they are done.
    let between = ops.iter().filter(|other| {
        let done = other.answered.is_some_and(|done| done > first.asked && done < op.asked);
        other.client == op.client && done && other.call.gives_back()
    });
    let touches = |other: &&Op| {
        let keys = op.call.asked().iter().map(|asked| &asked.key);
        other.call.asked().iter().any(|asked| keys.clone().any(|key| *key == asked.key))
    };
    match between.into_iter().find(touches) {
        Some(other) => Err(format!("it had itself given back meanwhile: {other:?}")),
        None => Ok(()),
    }
}
