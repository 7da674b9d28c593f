//! *Liveness after healing*: once nothing goes wrong any more, all replicas come together and every client is served.

use quorate_core::GroupId;

use super::Found;
use crate::history::{Op, Outcome};
use crate::tap::Seen;

/// Whether all replicas of each group are applied as far as any of them.
pub fn agrees(seen: &Seen, machines: usize, groups: impl Iterator<Item = GroupId>) -> bool {
    let mut groups = groups;
    groups.all(|group| {
        let last = seen.logs.get(&group).and_then(|log| log.keys().next_back()).copied();
        (0..machines).all(|here| last.is_some() && seen.applied.get(&(group, here)).copied() == last)
    })
}

/// The last client, which asks when all is healed, was answered every time.
pub fn served(ops: &[Op]) -> Found {
    let last = ops.iter().map(|op| op.client).max();
    let failed = ops.iter().find(|op| Some(op.client) == last && !matches!(op.outcome, Outcome::Decided(_)));
    match failed {
        Some(op) => Err(format!("all is healed, and {:?} came to {:?}", op.call, op.outcome)),
        None => Ok(()),
    }
}
