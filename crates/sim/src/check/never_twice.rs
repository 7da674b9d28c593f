//! *Never twice*: a check is executed once, however often it was sent, and so is whatever gives its charge back; and where the
//! client says that nothing was charged, it was not executed, or it was given back.

use std::collections::{BTreeMap, HashMap};

use quorate_core::{Command, Fingerprint, Position, ShardId};

use super::replay::Replay;
use super::{Found, Secrets};
use crate::history::{Op, Outcome};
use crate::load::TAGS;

/// Finds the calls that bear a tag in the log.
pub fn check(ops: &[Op], replays: &BTreeMap<ShardId, Replay>, secrets: &Secrets) -> Found {
    let mut executed: HashMap<Fingerprint, Vec<(ShardId, Position)>> = HashMap::new();
    let mut corrected = HashMap::new();
    let tags = secrets.print(TAGS, "").map(|(id, _)| id);
    for (shard, replay) in replays {
        for (charge, times) in replay.corrections() {
            if times > 1 {
                return Err(format!("the charge {charge:?} on {shard} was given back {times} times"));
            }
            corrected.insert((*shard, charge.0, charge.2), times);
        }
        for (position, (_, command)) in &replay.executed {
            let Command::Check(check) = command else { continue };
            for limit in check.limits.iter().filter(|limit| Some(limit.policy) == tags && !check.peek) {
                executed.entry(limit.key).or_default().push((*shard, *position));
            }
        }
    }
    for (number, op) in ops.iter().enumerate() {
        let Some((_, print)) = op.tag.as_ref().and_then(|tag| secrets.print(TAGS, tag)) else { continue };
        let places = executed.get(&print).map(Vec::as_slice).unwrap_or_default();
        if places.len() > 1 {
            return Err(format!("call {number} was executed {} times: {places:?}", places.len()));
        }
        match &op.outcome {
            Outcome::Failed { may_have_charged: false, text, .. } => {
                let kept = |(shard, place): &&(ShardId, Position)| !corrected.contains_key(&(*shard, *place, print));
                let Some(_) = places.iter().find(kept) else { continue };
                return Err(format!("call {number} failed ({text}) as not charged, and was executed at {places:?}"));
            }
            Outcome::Decided(verdict) => {
                // The tag is the limit named last, and its policy is always in force.
                let Some(told) = verdict.limits.last() else {
                    return Err(format!("call {number} was answered without a word of its tag"));
                };
                let said = (told.receipt.shard, told.receipt.position());
                if places != [said] {
                    return Err(format!("call {number} was answered from {said:?}, and was executed at {places:?}"));
                }
            }
            _ => {}
        }
    }
    Ok(())
}
