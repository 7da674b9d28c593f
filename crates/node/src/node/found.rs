//! Making a cluster of nodes that are in none.
//!
//! ```text
//!  asked ─► who is there? ─► each holds its place ─► this node begins ─► the others begin ─► genesis ─► shards begin
//!             all answer,      a lower cluster's                           its control group    once       by themselves
//!             none is another's  displaces a higher's                      by itself
//! ```
//!
//! Every step may be done again: a cluster whose making was interrupted is finished by asking any of its nodes for the same.
//! The genesis comes last, when every node knows that it is a member; so a cluster that was born is whole.
//!
//! A place that is only held has no log and no vote, and may be given up. Once one node has begun, all have held their
//! places; a node that holds none then was emptied since, and may have voted: it is never given its place again.
//!
//! Two operators may ask different nodes at once. The cluster with the lower id displaces the other wherever that is only
//! held, and whoever made the other goes on with this one: a node begins only what all were seen to hold, so never both.

use futures::future::join_all;
use quorate_client::address::is_same;
use quorate_core::{Arc, NodeId, PolicyVersion, Ring, ShardId};
use quorate_proto::v1;
use quorate_proto::v1::control_reply::Reply;
use tokio::time::{Instant, sleep};
use tonic::Status;

use super::Node;
use crate::caps;
use crate::control::{ControlCommand, Genesis, NodeInfo, ShardInfo};
use crate::identity::{ClusterId, Identity};
use crate::services::admin::change::{propose, until_none_lags};
use crate::settings::is_advertisable;

use super::record::{Record, same_nodes};

/// What was asked, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Plan {
    nodes: Vec<String>,
    name: String,
    shards: u32,
    replicas: u32,
}

/// A node that answered.
#[derive(Clone, Debug)]
struct Candidate {
    address: String,
    zone: String,
    cluster: Option<ClusterId>,
    members: Vec<String>,
    cluster_name: String,
    /// It has taken its place up.
    began: bool,
}

/// Makes the cluster, or finishes making it.
pub(super) async fn found(node: &Node, request: v1::ClusterInitRequest) -> Result<v1::ClusterInitResponse, Status> {
    let deadline = Instant::now() + caps::FOUND_PATIENCE;
    let plan = plan(request).map_err(Status::invalid_argument)?;
    let own = node.advertise();
    match node.member() {
        Some(member) => same_members(&own, member.identity().cluster, &member.record().members, &plan)?,
        None if !plan.nodes.contains(&own) => {
            return Err(Status::invalid_argument(format!(
                "this node is {own}, and it is not among the nodes named; name it so, or ask one of them"
            )));
        }
        None => {}
    }
    if !node.member().is_some_and(|member| member.state().is_born()) {
        assemble(node, &plan, deadline).await?;
    }
    until_born(node, deadline).await?;
    until_none_lags(node, PolicyVersion(0), deadline).await.map_err(|lagging| {
        Status::deadline_exceeded(format!(
            "the cluster is made, and these shards have no leader yet: {lagging}; look at the cluster's status, or ask for the \
             same again to wait for them"
        ))
    })?;
    let Some(member) = node.member() else { return Err(Status::unavailable(crate::services::JOINING)) };
    let state = member.state();
    let number =
        |address: &String| member.record().numbered().find(|(_, known)| *known == address).map(|(node, _)| node.0);
    Ok(v1::ClusterInitResponse {
        cluster_id: state.cluster_id.to_vec().into(),
        name: state.name.clone(),
        nodes: plan.nodes.iter().filter_map(number).collect(),
        shards: state.shards.len() as u32,
    })
}

fn plan(request: v1::ClusterInitRequest) -> Result<Plan, String> {
    let nodes = request.nodes;
    if !(1..=caps::NODES).contains(&nodes.len()) {
        return Err(format!("{} nodes; a cluster is made of 1 to {}", nodes.len(), caps::NODES));
    }
    for (at, node) in nodes.iter().enumerate() {
        if !is_advertisable(node) {
            let shown: String = node.chars().take(64).collect();
            return Err(format!(
                "nodes[{at}] is {shown:?}; it must be a host and a port, such as node-1.example.com:7600"
            ));
        }
        if nodes[..at].iter().any(|other| is_same(other, node)) {
            return Err(format!("nodes[{at}] is {node:?}, which is named before; name each node once"));
        }
    }
    let name = if request.name.is_empty() { "quorate".to_owned() } else { request.name };
    let letters = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    if !letters || name.len() > caps::CLUSTER_NAME_BYTES {
        return Err(format!("the name must be at most {} letters, digits and -", caps::CLUSTER_NAME_BYTES));
    }
    let shards = if request.shards == 0 { caps::SHARDS_DEFAULT } else { request.shards };
    if shards > caps::SHARDS {
        return Err(format!("{shards} shards; a cluster is made with 1 to {}", caps::SHARDS));
    }
    let replicas = if request.replicas == 0 { nodes.len().min(3) as u32 } else { request.replicas };
    if ![1, 3, 5].contains(&replicas) && request.replicas != 0 {
        return Err(format!(
            "{replicas} replicas; a shard has 1, 3 or 5: an even number outlives no more losses than one less"
        ));
    }
    if replicas as usize > nodes.len() {
        return Err(format!("{replicas} replicas of each shard need as many nodes, and {} are named", nodes.len()));
    }
    Ok(Plan { nodes, name, shards, replicas })
}

/// Makes every node a member, and the cluster be born.
async fn assemble(node: &Node, plan: &Plan, deadline: Instant) -> Result<(), Status> {
    let (candidates, records) = loop {
        match gather(node, plan).await? {
            Gathered::Begun { candidates, records } => break (candidates, records),
            // Another cluster is being made of the same nodes: one of the two gets ahead.
            Gathered::Displaced(problem) if Instant::now() >= deadline => return Err(Status::aborted(problem)),
            Gathered::Displaced(_) => sleep(caps::ADMIN_RETRY).await,
        }
    };
    let Some(Record { identity: Identity { cluster, .. }, cluster_name: name, members, .. }) =
        records.into_iter().next()
    else {
        return Err(Status::internal("a cluster of no node was made"));
    };
    let genesis = genesis(node, plan, cluster, name, &members, &candidates);
    loop {
        let problem = match propose(node, &genesis).await {
            Ok(Reply::Done(_)) => return Ok(()),
            Ok(Reply::Refused(refusal)) => return Err(Status::invalid_argument(refusal.message)),
            other => format!("{other:?}"),
        };
        if Instant::now() >= deadline {
            return Err(Status::unavailable(format!(
                "the nodes are members, and their control group does not work yet ({problem}); ask for the same again"
            )));
        }
        sleep(caps::ADMIN_RETRY).await;
    }
}

/// How far the nodes were brought.
enum Gathered {
    /// All have taken up their places.
    Begun { candidates: Vec<Candidate>, records: Vec<Record> },
    /// A place was given to another cluster that is being made; in words.
    Displaced(String),
}

/// Gives every node its place, and lets them take it up.
async fn gather(node: &Node, plan: &Plan) -> Result<Gathered, Status> {
    let mut candidates = Vec::new();
    for answer in join_all(plan.nodes.iter().map(|address| identify(node, address))).await {
        candidates.push(answer?);
    }
    let records = records(node, plan, &candidates)?;
    let own = node.advertise();
    let (mine, others): (Vec<_>, Vec<_>) = records.iter().zip(&records[0].members).partition(|(_, at)| **at == own);
    let began = candidates.iter().any(|candidate| candidate.began);
    let tell = async |record: &Record, address: &String, begin: bool| {
        if *address == own {
            node.assign(assign_to_wire(record, begin)).await.map_err(|error| error.to_string())
        } else {
            node.parts().newcomers.assign(address, assign_to_wire(record, begin)).await
        }
    };
    if !began {
        // In order: of two who make a cluster at once, the same node tells both who is ahead.
        for (record, address) in records.iter().zip(&records[0].members) {
            if let Err(problem) = tell(record, address, false).await {
                return Ok(Gathered::Displaced(problem));
            }
        }
        for (record, _) in mine {
            if let Err(problem) = node.begin(record).await {
                return Ok(Gathered::Displaced(problem));
            }
        }
    }
    let told = if began { records.iter().zip(&records[0].members).collect() } else { others };
    for told in join_all(told.into_iter().map(|(record, address)| tell(record, address, true))).await {
        told.map_err(Status::unavailable)?;
    }
    Ok(Gathered::Begun { candidates, records })
}

/// The places of all nodes: in the cluster that has begun, in the one with the lowest id of those that are being made, or in a
/// new one.
fn records(node: &Node, plan: &Plan, candidates: &[Candidate]) -> Result<Vec<Record>, Status> {
    let placed = candidates.iter().filter_map(|found| Some((found, found.cluster?)));
    let first = placed.clone().min_by_key(|(found, cluster)| (!found.began, *cluster));
    let (cluster, name, members) = match first {
        Some((found, cluster)) => (cluster, found.cluster_name.clone(), found.members.clone()),
        None => (draw_cluster(node), plan.name.clone(), in_order(&node.advertise(), &plan.nodes)),
    };
    for (candidate, other) in placed {
        same_members(&candidate.address, other, &candidate.members, plan)?;
        if other != cluster && candidate.began {
            return Err(Status::already_exists(format!(
                "{} belongs to cluster {other}, and another of the nodes to cluster {cluster}; empty the data directories of \
                 those that are to begin anew",
                candidate.address
            )));
        }
    }
    if first.is_some_and(|(found, _)| found.began)
        && let Some(blank) = candidates.iter().find(|candidate| candidate.cluster.is_none())
    {
        return Err(Status::failed_precondition(lost_its_memory(&blank.address, cluster)));
    }
    let record = |(id, _)| Record {
        identity: Identity { cluster, node: NodeId(id) },
        cluster_name: name.clone(),
        members: members.clone(),
        began: false,
    };
    Ok((1..).zip(&members).map(record).collect())
}

/// Why a node without a place is not given one in a cluster that was made with it.
pub(super) fn lost_its_memory(address: &str, cluster: ClusterId) -> String {
    format!(
        "{address} holds no place in cluster {cluster}, which was made with a node there and has begun: its data directory was \
         emptied, or is another's. What that node voted and acknowledged is forgotten, so nothing may take its place under its \
         id; the cluster goes on without it as long as a majority of each shard's replicas runs. Put its data directory back if \
         there is one"
    )
}

async fn identify(node: &Node, address: &String) -> Result<Candidate, Status> {
    let answer = if *address == node.advertise() {
        node.identify()
    } else {
        node.parts().newcomers.identify(address).await.map_err(Status::unavailable)?
    };
    if answer.address != *address {
        return Err(Status::invalid_argument(format!(
            "the node at {address} calls itself {}; name it so, or set its `advertise` to {address}",
            answer.address
        )));
    }
    let cluster: Option<[u8; 16]> = answer.cluster_id[..].try_into().ok();
    Ok(Candidate {
        address: address.clone(),
        zone: answer.zone,
        cluster: cluster.map(|id| ClusterId(u128::from_be_bytes(id))),
        members: answer.members,
        cluster_name: answer.cluster_name,
        began: answer.began,
    })
}

/// The node that was asked is the first: it votes in the control group, however many nodes there are.
fn in_order(own: &str, nodes: &[String]) -> Vec<String> {
    let others = nodes.iter().filter(|node| *node != own);
    std::iter::once(own.to_owned()).chain(others.cloned()).collect()
}

fn same_members(address: &str, cluster: ClusterId, members: &[String], plan: &Plan) -> Result<(), Status> {
    if same_nodes(members, &plan.nodes) {
        return Ok(());
    }
    Err(Status::already_exists(format!(
        "{address} belongs to cluster {cluster} already, which was made of {}; name the same nodes to finish making it, or \
         others to make another",
        members.join(", ")
    )))
}

fn draw_cluster(node: &Node) -> ClusterId {
    let mut id = [0; 16];
    node.parts().random.fill(&mut id);
    ClusterId(u128::from_be_bytes(id))
}

pub(super) fn assign_to_wire(record: &Record, begin: bool) -> v1::AssignRequest {
    v1::AssignRequest {
        cluster_id: record.identity.cluster.0.to_be_bytes().to_vec().into(),
        cluster_name: record.cluster_name.clone(),
        node_id: record.identity.node.0,
        nodes: record.members.clone(),
        begin,
    }
}

pub(super) fn assign_from_wire(request: v1::AssignRequest) -> Result<Record, &'static str> {
    let cluster: [u8; 16] = request.cluster_id[..].try_into().map_err(|_| "a cluster's id has 16 bytes")?;
    let members = request.nodes.len() as u64;
    if !(1..=members).contains(&request.node_id) || request.nodes.len() > caps::NODES {
        return Err("the node's number is not one of the nodes named");
    }
    if !request.nodes.iter().all(|node| is_advertisable(node)) || request.cluster_name.len() > caps::CLUSTER_NAME_BYTES
    {
        return Err("the nodes named, or the cluster's name, cannot be");
    }
    Ok(Record {
        identity: Identity { cluster: ClusterId(u128::from_be_bytes(cluster)), node: NodeId(request.node_id) },
        cluster_name: request.cluster_name,
        members: request.nodes,
        began: false,
    })
}

fn genesis(
    node: &Node,
    plan: &Plan,
    cluster: ClusterId,
    name: String,
    members: &[String],
    candidates: &[Candidate],
) -> ControlCommand {
    let zone = |address: &String| {
        let candidate = candidates.iter().find(|candidate| candidate.address == *address);
        candidate.map(|candidate| candidate.zone.clone()).unwrap_or_default()
    };
    let nodes: Vec<NodeInfo> = (1..)
        .map(NodeId)
        .zip(members)
        .map(|(id, address)| NodeInfo { id, address: address.clone(), zone: zone(address) })
        .collect();
    let ring = Ring::even(plan.shards);
    let shards = ring.arcs().iter().map(|&(arc, id)| shard(arc, id, &nodes, plan.replicas as usize)).collect();
    let (mut ring_secret, mut table_secret) = ([0; 16], [0; 16]);
    node.parts().random.fill(&mut ring_secret);
    node.parts().random.fill(&mut table_secret);
    let cluster_id = cluster.0.to_be_bytes();
    ControlCommand::Genesis(Genesis { cluster_id, name, nodes, shards, ring_secret, table_secret })
}

/// Places a shard: it starts at the node whose turn it is, and goes round, to zones that it is not in yet first.
fn shard(arc: Arc, id: ShardId, nodes: &[NodeInfo], replicas: usize) -> ShardInfo {
    let turn = (id.0 as usize - 1) % nodes.len();
    let mut round: Vec<&NodeInfo> = nodes[turn..].iter().chain(&nodes[..turn]).collect();
    let mut chosen: Vec<&NodeInfo> = Vec::new();
    while chosen.len() < replicas && !round.is_empty() {
        let fresh = |node: &&NodeInfo| node.zone.is_empty() || chosen.iter().all(|other| other.zone != node.zone);
        let next = round.iter().position(fresh).unwrap_or(0);
        chosen.push(round.remove(next));
    }
    ShardInfo { id, arc, replicas: chosen.into_iter().map(|node| node.id).collect() }
}

/// Returns once this node knows that the cluster was born.
async fn until_born(node: &Node, deadline: Instant) -> Result<(), Status> {
    let Some(member) = node.member() else { return Err(Status::unavailable(crate::services::JOINING)) };
    let mut state = member.watch_state();
    let born = tokio::time::timeout_at(deadline, state.wait_for(|state| state.is_born()));
    match born.await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(_)) => Err(Status::unavailable("this node is stopping")),
        Err(_) => Err(Status::unavailable(crate::services::JOINING)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(nodes: &[&str]) -> v1::ClusterInitRequest {
        v1::ClusterInitRequest { nodes: nodes.iter().map(|node| node.to_string()).collect(), ..Default::default() }
    }

    #[test]
    fn what_cannot_be_made_is_refused() {
        assert!(plan(request(&[])).unwrap_err().contains("1 to 64"));
        for twice in [["a:1", "a:1"], ["a:1", "A:01"]] {
            assert!(plan(request(&twice)).unwrap_err().contains("name each node once"), "{twice:?}");
        }
        assert!(plan(request(&["a"])).unwrap_err().contains("a host and a port"));
        let with = |shards, replicas| v1::ClusterInitRequest { shards, replicas, ..request(&["a:1", "b:1", "c:1"]) };
        assert!(plan(with(1025, 0)).unwrap_err().contains("1 to 1024"));
        assert!(plan(with(0, 2)).unwrap_err().contains("1, 3 or 5"));
        assert!(plan(with(0, 5)).unwrap_err().contains("need as many nodes"));
        let named = v1::ClusterInitRequest { name: "a b".into(), ..request(&["a:1"]) };
        assert!(plan(named).unwrap_err().contains("letters, digits and -"));
        assert_eq!(plan(with(0, 0)).unwrap().shards, 12);
        assert_eq!(plan(request(&["a:1", "b:1"])).unwrap().replicas, 2);
    }

    #[test]
    fn replicas_go_round_and_spread_over_zones() {
        let node = |id, zone: &str| NodeInfo { id: NodeId(id), address: format!("n{id}:1"), zone: zone.into() };
        let nodes = [node(1, "a"), node(2, "a"), node(3, "b"), node(4, "c")];
        let ring = Ring::even(4);
        let placed: Vec<Vec<u64>> = ring
            .arcs()
            .iter()
            .map(|&(arc, id)| shard(arc, id, &nodes, 3).replicas.iter().map(|node| node.0).collect())
            .collect();
        assert_eq!(placed, [vec![1, 3, 4], vec![2, 3, 4], vec![3, 4, 1], vec![4, 1, 3]]);
        let two = [node(1, "a"), node(2, "a")];
        assert_eq!(shard(Arc { start: 0, end_inclusive: 1 }, ShardId(2), &two, 2).replicas, [NodeId(2), NodeId(1)]);
    }
}
