//! What is held against a world: one promise a file.
//!
//! The checkers know what callers were told ([`History`](crate::history::History)), and what was applied anywhere
//! ([`Tap`](crate::tap::Tap)); of the nodes they know nothing else. Two look while the world runs
//! ([`one_leader`], [`log_matching`]), the others once it is over.

pub mod digests;
pub mod given_back;
pub mod liveness;
pub mod log_matching;
pub mod never_forgotten;
pub mod never_over;
pub mod never_twice;
pub mod one_leader;
pub mod receipts;
pub mod remembered;
pub mod replay;
pub mod time_forward;

use std::collections::BTreeMap;
use std::sync::Arc;

use quorate_core::{Batch, Fingerprint, GroupId, PolicySet, RingSecret, ShardId, TableSecret};
use quorate_node::log::EntryKind;

use crate::fired::{Fault, Fired};
use crate::history::Op;
use crate::tap::Seen;
use crate::trace::Trace;

/// What keys are hashed with, and where they fall.
#[derive(Clone)]
pub struct Secrets {
    /// Places keys on the ring.
    pub ring: RingSecret,
    /// Places keys in tables.
    pub table: TableSecret,
    /// The shards and what they hold.
    pub shards: Vec<(ShardId, quorate_core::Arc)>,
    /// The policies as they are at the end: their names and ids are for good.
    pub policies: Arc<PolicySet>,
}

impl Secrets {
    /// The fingerprint of a key under a policy.
    pub fn print(&self, policy: &str, key: &str) -> Option<(quorate_core::PolicyId, Fingerprint)> {
        let id = self.policies.policies.iter().find(|known| known.name == policy)?.id;
        Some((id, Fingerprint::new(&self.ring, &self.table, id, key.as_bytes())))
    }
}

/// An entry of a shard's log.
pub struct Entry {
    /// Its term.
    pub term: u64,
    /// What it carries; none where it is nothing to the shard.
    pub batch: Option<Batch>,
    /// When it was first seen applied.
    pub seen: i64,
}

/// The logs of all shards, as they were applied, from their first entry on.
pub type Logs = BTreeMap<ShardId, BTreeMap<u64, Entry>>;

/// What a checker has found.
pub type Found = Result<(), String>;

/// Everything that is looked at once the world is over.
pub fn all(trace: &Trace, fired: &Fired, ops: &[Op], seen: &Seen, secrets: Option<Secrets>) {
    let Some(secrets) = secrets else { return trace.wrong("liveness", "no node knows its cluster") };
    let logs = match logs(seen) {
        Ok(logs) => logs,
        Err(problem) => return trace.wrong("never forgotten", problem),
    };
    let replays = replay::all(&logs);
    fired.add(Fault::CheckRetried, replays.values().map(|replay| replay.retried).sum());
    let told = |checker: &str, found: Found| {
        if let Err(what) = found {
            trace.wrong(checker, what);
        }
    };
    told("never forgotten", never_forgotten::check(ops, &logs, &replays));
    told("never twice", never_twice::check(ops, &replays, &secrets));
    told("never over", never_over::check(ops, &replays));
    told("given back", given_back::check(ops, &replays, &secrets));
    told("remembered", remembered::check(ops).map(|count| fired.add(Fault::DenialRemembered, count)));
    told("digests", digests::check(seen, &logs, &secrets));
    told("time forward", time_forward::check(ops, &logs, fired.times(Fault::ClockStepped) == 0));
    told("receipts", receipts::check(ops));
    told("liveness", liveness::served(ops));
}

fn logs(seen: &Seen) -> Result<Logs, String> {
    let mut logs = Logs::new();
    for (group, entries) in &seen.logs {
        let Some(shard) = GroupId::shard(*group) else { continue };
        let log = logs.entry(shard).or_default();
        let first = *entries.keys().next().unwrap_or(&0);
        if first > 1 {
            return Err(format!("nobody saw the first entries of {shard}; the first seen is {first}"));
        }
        for (next, (index, applied)) in (first..).zip(entries) {
            if *index != next {
                return Err(format!("entry {next} of {shard} was applied nowhere, and {index} was"));
            }
            let is_batch = applied.kind == EntryKind::Proposal as u8;
            let batch = is_batch.then(|| Batch::decode(&applied.payload)).transpose();
            let batch = batch.map_err(|error| format!("entry {index} of {shard} cannot be read: {error}"))?;
            log.insert(*index, Entry { term: applied.term, batch, seen: applied.seen });
        }
    }
    Ok(logs)
}
