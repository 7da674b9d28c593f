//! *Time forward*: a shard's time never goes back, and keeps pace with the majority's clocks, whatever one node's says.

use super::{Found, Logs};
use crate::clock::EPOCH;
use crate::history::{Op, Outcome};

/// How far a decision's time may be from the callers' own, in microseconds. Clocks are read over the network, on a way of up
/// to a quarter of a second.
const SLACK: i64 = 700_000;
/// How late time may be where a clock was wrong and a node lost besides: as long as a shard stood still.
const LATE: i64 = 30_000_000;

/// Looks at every entry's stamp, and at every answer's.
pub fn check(ops: &[Op], logs: &Logs, clocks_were_right: bool) -> Found {
    let late = if clocks_were_right { SLACK } else { LATE };
    for (shard, log) in logs {
        let mut last = i64::MIN;
        for (index, entry) in log {
            let Some(batch) = &entry.batch else { continue };
            if batch.stamp.0 < last {
                return Err(format!("the time of {shard} goes back at {index}: from {last} to {}", batch.stamp.0));
            }
            last = batch.stamp.0;
            let ahead = last - EPOCH - entry.seen;
            if ahead > SLACK {
                return Err(format!("the time of {shard} is {ahead} us ahead at {index}"));
            }
        }
    }
    for (number, op) in ops.iter().enumerate() {
        let (Outcome::Decided(verdict), Some(answered)) = (&op.outcome, op.answered) else { continue };
        if verdict.remembered {
            continue; // It was decided before it was asked: see `remembered`.
        }
        for (receipt, _) in verdict.parts() {
            let at = receipt.stamp.0 - EPOCH;
            if at < op.asked - late || at > answered + SLACK {
                return Err(format!(
                    "call {number} was asked at {}, answered at {answered}, and decided at {at}",
                    op.asked
                ));
            }
        }
    }
    Ok(())
}
