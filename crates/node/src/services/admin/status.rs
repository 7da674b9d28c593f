//! What every node says of itself, put together.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use prost::Message;
use quorate_core::NodeId;
use quorate_proto::v1::{self, peer_request::Kind};

use super::Cluster;
use crate::caps;
use crate::control::ControlState;

/// Asks every node of the cluster, together; who does not answer in time is told with why.
pub(super) async fn gather(
    cluster: &impl Cluster,
    state: &ControlState,
    patience: Duration,
) -> Vec<(NodeId, Result<v1::NodeStatus, String>)> {
    let me = cluster.me();
    let asked = state.nodes.keys().map(|&node| async move {
        if Some(node) == me {
            return (node, Ok(cluster.status()));
        }
        let answer = match cluster.call(node, Kind::Status, Bytes::new(), patience).await {
            Ok(body) => v1::NodeStatus::decode(body).map_err(|error| format!("its status cannot be read: {error}")),
            Err(error) => Err(error.to_string()),
        };
        (node, answer)
    });
    join_all(asked).await
}

/// What was reported to the nodes, by policy, and the addresses of those that did not answer.
pub(super) async fn false_positives(
    cluster: &impl Cluster,
    state: &ControlState,
) -> (HashMap<String, u64>, Vec<String>) {
    let (mut counts, mut unheard) = (HashMap::new(), Vec::new());
    for (node, answer) in gather(cluster, state, caps::STATUS_PATIENCE).await {
        match answer {
            Ok(status) => {
                for (policy, count) in status.false_positives {
                    let sum: &mut u64 = counts.entry(policy).or_default();
                    *sum = sum.saturating_add(count);
                }
            }
            Err(_) => unheard.extend(state.nodes.get(&node).map(|known| known.address.clone())),
        }
    }
    counts.retain(|name, _| state.policies.policies.iter().any(|policy| policy.name == *name));
    (counts, unheard)
}

pub(super) async fn cluster_status(cluster: &impl Cluster) -> v1::ClusterStatusResponse {
    let Some(state) = cluster.state() else {
        // In no cluster yet, or not told about it yet: what the node itself says is all there is.
        let me = v1::NodeStatus { reachable: true, ..cluster.status() };
        return v1::ClusterStatusResponse { nodes: vec![me], ..v1::ClusterStatusResponse::default() };
    };
    let answers = gather(cluster, &state, caps::STATUS_PATIENCE).await;
    assemble(&state, answers)
}

/// Puts the nodes' answers together.
pub fn assemble(
    state: &ControlState,
    answers: Vec<(NodeId, Result<v1::NodeStatus, String>)>,
) -> v1::ClusterStatusResponse {
    let mut nodes: Vec<v1::NodeStatus> =
        answers.into_iter().map(|(node, answer)| node_status(state, node, answer)).collect();
    let shards: Vec<v1::ShardStatus> = state
        .shards
        .iter()
        .map(|shard| v1::ShardStatus {
            first: shard.arc.start,
            last: shard.arc.end_inclusive,
            ..group_status(shard.id.0, shard.replicas.iter().map(|node| (*node, true)), &nodes)
        })
        .collect();
    let voters = state.control_voters();
    let control = group_status(0, state.nodes.keys().map(|node| (*node, voters.contains(node))), &nodes);
    for node in &mut nodes {
        node.leads = shards.iter().filter(|shard| shard.leader == node.id).count() as u32;
    }
    v1::ClusterStatusResponse {
        cluster_id: Bytes::copy_from_slice(&state.cluster_id),
        name: state.name.clone(),
        epoch: state.epoch.0,
        policy_version: state.policies.version.0,
        shards,
        control: Some(control),
        nodes,
    }
}

fn node_status(state: &ControlState, node: NodeId, answer: Result<v1::NodeStatus, String>) -> v1::NodeStatus {
    let known = state.nodes.get(&node);
    let (address, zone) = known.map(|known| (known.address.clone(), known.zone.clone())).unwrap_or_default();
    match answer {
        Ok(status) => v1::NodeStatus { id: node.0, address, zone, reachable: true, ..status },
        Err(problem) => v1::NodeStatus { id: node.0, address, zone, problem, ..v1::NodeStatus::default() },
    }
}

/// One group's replicas, and its leader as the newest term has it: none where fewer than a majority of
/// the voters are heard, for then nobody decides anything, whatever is still believed of it. Of those `listed` (and whether they vote) that nothing was
/// heard of, it says so.
fn group_status(shard: u32, listed: impl Iterator<Item = (NodeId, bool)>, nodes: &[v1::NodeStatus]) -> v1::ShardStatus {
    let mut replicas = Vec::new();
    for node in nodes {
        let of_group = node.replicas.iter().filter(|replica| replica.shard == shard);
        replicas.extend(of_group.map(|replica| v1::ReplicaStatus { node: node.id, ..replica.clone() }));
    }
    let newest = replicas.iter().filter(|replica| replica.leader > 0).max_by_key(|replica| replica.term);
    let (leader, term) = newest.map_or((0, 0), |replica| (replica.leader, replica.term));
    let heard: BTreeSet<u64> = replicas.iter().map(|replica| replica.node).collect();
    let listed: Vec<(NodeId, bool)> = listed.collect();
    let voters = listed.iter().filter(|(_, voter)| *voter);
    let (all, live) =
        voters.fold((0, 0), |(all, live), (node, _)| (all + 1, live + usize::from(heard.contains(&node.0))));
    let leader = if live * 2 > all { leader } else { 0 };
    for (NodeId(node), voter) in listed.into_iter().filter(|(node, _)| !heard.contains(&node.0)) {
        let reached = nodes.iter().any(|one| one.id == node && one.reachable);
        let problem = if reached { "it does not run on its node" } else { "its node does not answer" }.to_owned();
        replicas.push(v1::ReplicaStatus { shard, node, voter, problem, ..v1::ReplicaStatus::default() });
    }
    v1::ShardStatus { id: shard, leader, term, replicas, ..v1::ShardStatus::default() }
}
