//! From a policy's name to its id, and from a key to the queue of the shard that holds it.
//!
//! Invariants: a [`Routes`] is never changed, only replaced by a newer one; what a node reports never takes it back to an
//! older epoch, policy set or leader's term; every shard of it has a queue.

use std::collections::HashMap;
use std::sync::Arc;

use quorate_core::{Epoch, NodeId, PolicyId, PolicySet, Ring, RingSecret, ShardId, Term};
use quorate_proto::{convert, v1};

use crate::caps;
use crate::queue::Queue;
use crate::topology::{NodeInfo, ShardInfo, Topology};

/// The policies in force, by name.
#[derive(Debug, Default)]
pub(crate) struct Policies {
    pub(crate) set: PolicySet,
    by_name: HashMap<Arc<str>, PolicyId>,
}

impl Policies {
    pub(crate) fn new(set: PolicySet) -> Self {
        let by_name = set.policies.iter().map(|policy| (policy.name.as_str().into(), policy.id)).collect();
        Policies { set, by_name }
    }

    pub(crate) fn find(&self, name: &str) -> Option<(PolicyId, Arc<str>)> {
        self.by_name.get_key_value(name).map(|(name, id)| (*id, name.clone()))
    }
}

pub(crate) struct Routes {
    pub(crate) topology: Arc<Topology>,
    pub(crate) policies: Arc<Policies>,
    ring: Ring,
    secret: RingSecret,
    /// By shard, ascending.
    queues: Vec<(ShardId, Arc<Queue>)>,
}

impl Routes {
    /// The shard that a key's route falls to.
    pub(crate) fn shard_of(&self, key: &[u8]) -> ShardId {
        self.ring.shard_of(self.secret.hash(key))
    }

    pub(crate) fn queue(&self, shard: ShardId) -> Option<&Arc<Queue>> {
        let at = self.queues.binary_search_by_key(&shard, |(id, _)| *id).ok()?;
        Some(&self.queues.get(at)?.1)
    }

    /// What is known after a node's report: `before` if the report says nothing new. `queue` makes the queue of a shard
    /// that is met for the first time. A report that cannot be used is refused with what is wrong with it.
    pub(crate) fn after(
        before: Option<&Arc<Routes>>,
        update: v1::TopologyUpdate,
        mut queue: impl FnMut(ShardId) -> Arc<Queue>,
    ) -> Result<Arc<Routes>, String> {
        let secret: [u8; 16] =
            update.ring_secret.as_ref().try_into().map_err(|_| "its ring secret is not 16 bytes long")?;
        let policies = update.policies.clone().unwrap_or_default();
        let mut topology = picture(update)?;
        if let Some(before) = before {
            if before.topology.cluster_id != topology.cluster_id {
                return Err(format!(
                    "it belongs to another cluster ({}) than the one this client is connected to ({}); fix the endpoints",
                    topology.cluster_name, before.topology.cluster_name
                ));
            }
            topology = merge(&before.topology, topology);
        }
        let policies = match before {
            Some(before) if policies.version <= before.policies.set.version.0 => before.policies.clone(),
            _ => {
                let set = convert::policy_set_from_wire(&policies)
                    .map_err(|e| format!("a policy of it cannot be used: {e}"))?;
                Arc::new(Policies::new(set))
            }
        };
        let arcs = topology.shards.iter().map(|s| (quorate_core::Arc { start: s.first, end_inclusive: s.last }, s.id));
        let ring = Ring::new(arcs).map_err(|e| format!("its ring is not whole: {e}"))?;
        let mut queues: Vec<_> = topology
            .shards
            .iter()
            .map(|s| (s.id, before.and_then(|b| b.queue(s.id).cloned()).unwrap_or_else(|| queue(s.id))))
            .collect();
        queues.sort_by_key(|(id, _)| *id);
        Ok(Arc::new(Routes { topology: Arc::new(topology), policies, ring, secret: RingSecret(secret), queues }))
    }
}

/// The report in the public words.
fn picture(update: v1::TopologyUpdate) -> Result<Topology, String> {
    if update.shards.is_empty() || update.shards.len() > caps::SHARDS || update.nodes.len() > caps::NODES {
        return Err(format!("it names {} shards and {} nodes", update.shards.len(), update.nodes.len()));
    }
    let node = |n: v1::Node| NodeInfo { id: NodeId(n.id), address: n.address, zone: n.zone };
    let shard = |s: v1::Shard| ShardInfo {
        id: ShardId(s.id),
        first: s.first,
        last: s.last,
        replicas: s.replicas.into_iter().map(NodeId).collect(),
        leader: (s.leader != 0).then_some(NodeId(s.leader)),
        term: Term(s.term),
    };
    let mut shards: Vec<_> = update.shards.into_iter().map(shard).collect();
    shards.sort_by_key(|s| s.first);
    Ok(Topology {
        cluster_id: update.cluster_id.to_vec(),
        cluster_name: update.cluster_name,
        epoch: Epoch(update.epoch),
        nodes: update.nodes.into_iter().map(node).collect(),
        shards,
        live_clients: update.live_clients,
    })
}

/// The newer of two pictures, shard by shard where they are of the same epoch: a leader is as new as its term.
fn merge(before: &Topology, report: Topology) -> Topology {
    let live_clients = report.live_clients;
    let (mut base, other) = if report.epoch >= before.epoch { (report, before) } else { (before.clone(), &report) };
    for shard in &mut base.shards {
        let Some(known) = other.shard(shard.id) else { continue };
        if known.term > shard.term || (known.term == shard.term && shard.leader.is_none()) {
            (shard.term, shard.leader) = (known.term, known.leader);
        }
    }
    base.live_clients = live_clients;
    base
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topology(epoch: u64, term: u64, leader: Option<u64>) -> Topology {
        let shard = ShardInfo {
            id: ShardId(1),
            first: 0,
            last: u64::MAX,
            replicas: vec![NodeId(1), NodeId(2)],
            leader: leader.map(NodeId),
            term: Term(term),
        };
        Topology { epoch: Epoch(epoch), shards: vec![shard], ..Default::default() }
    }

    fn merged(before: Topology, report: Topology) -> (u64, u64, Option<u64>) {
        let after = merge(&before, report);
        (after.epoch.0, after.shards[0].term.0, after.shards[0].leader.map(|n| n.0))
    }

    #[test]
    fn nothing_known_goes_back() {
        assert_eq!(merged(topology(1, 2, Some(1)), topology(1, 1, Some(2))), (1, 2, Some(1)), "an older term");
        assert_eq!(
            merged(topology(1, 2, Some(1)), topology(2, 1, Some(2))),
            (2, 2, Some(1)),
            "even with a newer epoch"
        );
        assert_eq!(merged(topology(2, 2, Some(1)), topology(1, 3, Some(2))), (2, 3, Some(2)), "or the other way round");
        assert_eq!(merged(topology(1, 2, Some(1)), topology(1, 3, None)), (1, 3, None), "an election is news");
        assert_eq!(merged(topology(1, 2, Some(1)), topology(1, 2, None)), (1, 2, Some(1)), "not knowing is none");
    }
}
