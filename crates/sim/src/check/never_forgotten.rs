//! *Never forgotten*: what was answered stands in the log of its shard, at the place and in the term that its receipt names,
//! and so in the log of every replica.

use std::collections::BTreeMap;

use quorate_core::{Command, Receipt, ShardId};

use super::replay::Replay;
use super::{Found, Logs};
use crate::history::{Call, Op, Outcome};

/// Looks every answered call up.
pub fn check(ops: &[Op], logs: &Logs, replays: &BTreeMap<ShardId, Replay>) -> Found {
    for (number, op) in ops.iter().enumerate() {
        let Outcome::Decided(verdict) = &op.outcome else { continue };
        for (receipt, _) in verdict.parts() {
            stands(number, op, receipt, logs, replays)?;
        }
    }
    Ok(())
}

/// One shard's part of an answer.
fn stands(number: usize, op: &Op, receipt: Receipt, logs: &Logs, replays: &BTreeMap<ShardId, Replay>) -> Found {
    let entry = logs.get(&receipt.shard).and_then(|log| log.get(&receipt.index.0));
    let Some(entry) = entry else {
        return Err(format!("call {number} was answered from {receipt:?}, and there is no such entry"));
    };
    if entry.term != receipt.term.0 {
        return Err(format!("call {number} was answered from {receipt:?}, and that entry is of term {}", entry.term));
    }
    let executed = replays.get(&receipt.shard).and_then(|replay| replay.executed.get(&receipt.position()));
    let is_it = match (&op.call, executed) {
        (Call::Check(_) | Call::Acquire(_), Some((_, Command::Check(check)))) => !check.peek,
        (Call::Peek(_), Some((_, Command::Check(check)))) => check.peek,
        (Call::Reserve(_), Some((_, Command::Reserve { .. }))) => true,
        _ => false,
    };
    if is_it {
        return Ok(());
    }
    Err(format!("call {number}, {:?}, was answered from {receipt:?}, and there stands {executed:?}", op.call))
}
