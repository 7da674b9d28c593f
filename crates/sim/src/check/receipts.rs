//! *Order of receipts against real time*: what was asked after another answer had come was decided after it.

use std::collections::BTreeMap;

use quorate_core::{Position, ShardId};

use super::Found;
use crate::history::{Op, Outcome};

/// Compares every answer with those that were there before it was asked for.
pub fn check(ops: &[Op]) -> Found {
    enum Event {
        Answered(Position, usize),
        Asked(Position, usize),
    }
    let mut events: BTreeMap<ShardId, Vec<(i64, u8, Event)>> = BTreeMap::new();
    for (number, op) in ops.iter().enumerate() {
        let (Outcome::Decided(verdict), Some(answered)) = (&op.outcome, op.answered) else { continue };
        if verdict.remembered {
            continue; // It was decided before it was asked: see `remembered`.
        }
        for (receipt, _) in verdict.parts() {
            let (position, events) = (receipt.position(), events.entry(receipt.shard).or_default());
            // At one moment, what is asked comes first: the order of two things at one moment is not known.
            events.push((op.asked, 0, Event::Asked(position, number)));
            events.push((answered, 1, Event::Answered(position, number)));
        }
    }
    for (shard, mut events) in events {
        events.sort_by_key(|(at, kind, _)| (*at, *kind));
        let mut last = None;
        for (_, _, event) in events {
            match event {
                Event::Answered(position, number) => last = last.max(Some((position, number))),
                Event::Asked(position, number) => {
                    if let Some((before, other)) = last
                        && position <= before
                    {
                        return Err(format!(
                            "call {number} on {shard} was asked after call {other} was answered, and decided at {position:?}, \
                             before {before:?}"
                        ));
                    }
                }
            }
        }
    }
    Ok(())
}
