//! *Given back*: what a check of several shards was charged on some of them, and is told as denied and not charged, was refunded.
//!
//! A client that dies in between may leave it charged. One that lives to tell has given it back, or says that it is still
//! charged.

use std::collections::BTreeMap;

use quorate_core::ShardId;

use super::replay::Replay;
use super::{Found, Secrets};
use crate::history::{Call, Op, Outcome};

/// Looks the refund of each such charge up.
pub fn check(ops: &[Op], replays: &BTreeMap<ShardId, Replay>, secrets: &Secrets) -> Found {
    let corrections: BTreeMap<_, _> = replays.iter().map(|(shard, replay)| (*shard, replay.corrections())).collect();
    for (number, op) in ops.iter().enumerate() {
        let (Call::Check(asked), Outcome::Decided(verdict)) = (&op.call, &op.outcome) else { continue };
        if verdict.allowed || verdict.remembered || verdict.parts().len() < 2 {
            continue;
        }
        // Every limit is reported, as no policy here is disabled.
        for (asked, told) in asked.iter().zip(&verdict.limits) {
            let denied_here =
                verdict.limits.iter().any(|limit| limit.receipt == told.receipt && !limit.allowed && !limit.shadow);
            let was_charged = told.allowed && !denied_here && asked.cost > 0;
            if !was_charged || told.charged {
                continue;
            }
            let Some((policy, key)) = secrets.print(asked.policy, &asked.key) else { continue };
            let place = told.receipt.position();
            let refunds = corrections.get(&told.receipt.shard).and_then(|all| all.get(&(place, policy, key)));
            if refunds.is_none() {
                return Err(format!(
                    "call {number} was denied, and its charge of {asked:?} was never given back: {verdict:?}"
                ));
            }
        }
    }
    Ok(())
}
