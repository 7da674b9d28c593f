//! What can be seen of the nodes from outside: their logs as far as they were applied, their states, who leads.
//!
//! A watcher runs beside each node, on its machine, and looks again and again. What it sees of the log is kept once for each
//! group: an entry that was applied anywhere is the entry of its index for ever.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use quorate_core::{GroupId, NodeId};
use quorate_node::log::Entry;
use quorate_node::node::Node;
use quorate_node::services::Cluster;

use crate::check::{log_matching, one_leader};
use crate::fired::{Fault, Fired};
use crate::net::Machine;
use crate::peers::author;
use crate::trace::Trace;

/// How often a watcher looks.
const PERIOD: Duration = Duration::from_millis(50);
/// Bytes of entries read at once.
const READ: usize = 4 << 20;

/// An applied entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// The term.
    pub term: u64,
    /// Blank, proposal, membership.
    pub kind: u8,
    /// What it carries.
    pub payload: Bytes,
    /// When it was first seen applied, in the world's time.
    pub seen: i64,
}

impl Applied {
    /// Whether it is the same entry, whenever it was seen.
    pub fn same(&self, other: &Applied) -> bool {
        (self.term, self.kind, &self.payload) == (other.term, other.kind, &other.payload)
    }
}

/// A replica's state at an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sighting {
    /// Where.
    pub machine: Machine,
    /// The digest of its state then.
    pub digest: u128,
}

/// What was seen.
#[derive(Default)]
pub struct Seen {
    /// Of each group, the entries that were applied.
    pub logs: BTreeMap<GroupId, BTreeMap<u64, Applied>>,
    /// Of each shard, digests at indices, as they were seen.
    pub digests: BTreeMap<(GroupId, u64), Vec<Sighting>>,
    /// Who sent appends in which term of which group.
    pub leaders: BTreeMap<(GroupId, u64), NodeId>,
    /// Who began to lead since somebody looked.
    pub elected: Vec<NodeId>,
    /// How far each machine's replica was applied when it was last seen.
    pub applied: BTreeMap<(GroupId, Machine), u64>,
    /// The group's leaders as each machine says, now.
    pub led: BTreeMap<(GroupId, Machine), (u64, u64)>,
    /// How many keys each machine's replica had when it was last seen.
    pub keys: BTreeMap<(GroupId, Machine), u64>,
}

/// Sees. Clones share it.
#[derive(Clone)]
pub struct Tap {
    seen: Arc<Mutex<Seen>>,
    trace: Trace,
    fired: Fired,
}

impl Tap {
    /// Has seen nothing.
    pub fn new(trace: Trace, fired: Fired) -> Tap {
        Tap { seen: Arc::default(), trace, fired }
    }

    /// What was seen.
    pub fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An append went over the network.
    pub fn append(&self, group: GroupId, body: &Bytes) {
        let Some((term, node)) = author(body) else { return };
        let found = one_leader::append(&mut self.seen(), group, term, node);
        match found {
            Ok(true) => {
                self.trace.line(format_args!("{node} leads {group} in term {term}"));
                self.seen().elected.push(node);
            }
            Ok(false) => {}
            Err(what) => self.trace.wrong("one leader a term", what),
        }
    }

    /// Looks at a node again and again, for as long as it runs.
    pub async fn watch(self, machine: Machine, node: Arc<Node>) {
        let mut cursors: BTreeMap<GroupId, u64> = BTreeMap::new();
        let mut covered: BTreeMap<GroupId, (u64, u64)> = BTreeMap::new();
        loop {
            tokio::time::sleep(PERIOD).await;
            let Some(log) = node.log() else { continue };
            for replica in Cluster::status(&*node).replicas {
                let group = GroupId(replica.shard);
                let applied = replica.applied_index;
                self.state(machine, group, &replica);
                let log = log.group(group);
                self.compaction(
                    &mut covered,
                    group,
                    replica.snapshot_index,
                    log.marks().purged.map_or(0, |p| p.index.0),
                );
                let from = cursors.get(&group).copied().unwrap_or(0);
                if applied < from {
                    continue;
                }
                if let Ok(entries) = log.read(from..applied + 1, READ).await {
                    for entry in entries {
                        cursors.insert(group, entry.id.index.0 + 1);
                        self.entry(machine, group, entry);
                    }
                }
            }
        }
    }

    fn compaction(&self, covered: &mut BTreeMap<GroupId, (u64, u64)>, group: GroupId, snapshot: u64, purged: u64) {
        let before = covered.insert(group, (snapshot, purged)).unwrap_or((snapshot, purged));
        if snapshot > before.0 {
            self.fired.count(Fault::SnapshotTaken);
        }
        if purged > before.1 {
            self.fired.count(Fault::LogPurged);
        }
    }

    fn state(&self, machine: Machine, group: GroupId, replica: &quorate_proto::v1::ReplicaStatus) {
        let mut seen = self.seen();
        seen.keys.insert((group, machine), replica.keys);
        seen.led.insert((group, machine), (replica.term, replica.leader));
        let before = seen.applied.insert((group, machine), replica.applied_index);
        if group == GroupId::CONTROL || before == Some(replica.applied_index) || replica.applied_index == 0 {
            return;
        }
        let digest = replica.digest[..].try_into().map_or(0, u128::from_be_bytes);
        seen.digests.entry((group, replica.applied_index)).or_default().push(Sighting { machine, digest });
    }

    fn entry(&self, machine: Machine, group: GroupId, entry: Entry) {
        let (index, term, bytes) = (entry.id.index.0, entry.id.term.0, entry.payload.len());
        let applied = Applied { term, kind: entry.kind as u8, payload: entry.payload, seen: self.trace.now() };
        let found = log_matching::applied(&mut self.seen(), machine, group, index, applied);
        match found {
            Ok(true) => {
                self.trace.line(format_args!("{group}: entry {index} of term {term} is applied, {bytes} bytes"));
            }
            Ok(false) => {}
            Err(what) => self.trace.wrong("log matching", what),
        }
    }
}
