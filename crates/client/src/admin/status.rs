//! What the nodes say of themselves, in plain words.

use std::time::Duration;

use quorate_core::{Epoch, Index, NodeId, PolicyVersion, ShardId, Stamp, Term};
use quorate_proto::v1;

/// The cluster's status.
///
/// ```no_run
/// # async fn f(admin: quorate_client::admin::Admin) -> Result<(), quorate_client::Error> {
/// let status = admin.status().await?;
/// let without: Vec<_> = status.shards.iter().filter(|shard| shard.leader.is_none()).collect();
/// println!("{} shards, {} without a leader", status.shards.len(), without.len());
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClusterStatus {
    /// 16 bytes.
    pub cluster_id: Vec<u8>,
    /// Its name.
    pub name: String,
    /// The topology's number.
    pub epoch: Epoch,
    /// The policy set's number, as the control group has it.
    pub policy_version: PolicyVersion,
    /// Every node.
    pub nodes: Vec<NodeStatus>,
    /// Every shard.
    pub shards: Vec<ShardStatus>,
    /// The control group; its id is 0.
    pub control: Option<ShardStatus>,
}

/// A node's status.
///
/// ```no_run
/// # fn f(status: quorate_client::admin::ClusterStatus) {
/// for node in status.nodes.iter().filter(|node| !node.reachable) {
///     println!("{} is down: {}", node.id, node.problem);
/// }
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeStatus {
    /// Its number.
    pub id: NodeId,
    /// host:port.
    pub address: String,
    /// Its zone; empty if none was set.
    pub zone: String,
    /// Whether it answered just now; if not, what follows is empty.
    pub reachable: bool,
    /// Why it does not answer; empty if it does.
    pub problem: String,
    /// The version that it runs.
    pub version: String,
    /// Since it was started.
    pub uptime: Duration,
    /// How many shards it leads.
    pub leads: u32,
    /// Its own clock less the cluster's, in microseconds.
    pub clock_offset_us: i64,
    /// Bytes of its log, of all groups together.
    pub log_bytes: u64,
    /// Every replica on it.
    pub replicas: Vec<ReplicaStatus>,
}

/// A shard's status.
///
/// ```no_run
/// # fn f(status: quorate_client::admin::ClusterStatus) {
/// for shard in &status.shards {
///     println!("{}: {:?} leads in {}", shard.id, shard.leader, shard.term);
/// }
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShardStatus {
    /// Its number.
    pub id: ShardId,
    /// The first place on the ring that it owns.
    pub first: u64,
    /// The last one; included.
    pub last: u64,
    /// Who leads it.
    pub leader: Option<NodeId>,
    /// In that term.
    pub term: Term,
    /// Every replica of it.
    pub replicas: Vec<ReplicaStatus>,
}

/// A replica's status.
///
/// ```no_run
/// # fn f(replica: quorate_client::admin::ReplicaStatus) {
/// println!("{} entries behind", replica.last_index.0 - replica.applied_index.0);
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReplicaStatus {
    /// The shard; 0 for the control group.
    pub shard: ShardId,
    /// The node that it is on.
    pub node: NodeId,
    /// Whom it takes for the leader.
    pub leader: Option<NodeId>,
    /// In that term.
    pub term: Term,
    /// The last entry of its log.
    pub last_index: Index,
    /// The last that it knows to be committed.
    pub commit_index: Index,
    /// The last that it has applied.
    pub applied_index: Index,
    /// The last that its newest snapshot holds.
    pub snapshot_index: Index,
    /// Bytes of its log.
    pub log_bytes: u64,
    /// Keys that it holds a state of.
    pub keys: u64,
    /// The policy set in force in it.
    pub policy_version: PolicyVersion,
    /// Its logical time.
    pub stamp: Stamp,
    /// Of its state: 16 bytes, equal on all replicas at equal applied index.
    pub digest: Vec<u8>,
    /// Open sessions.
    pub sessions: u64,
    /// Whether it votes.
    pub voter: bool,
    /// Why it does not work; empty if it does.
    pub problem: String,
}

fn node(id: u64) -> Option<NodeId> {
    (id != 0).then_some(NodeId(id))
}

impl From<v1::ClusterStatusResponse> for ClusterStatus {
    fn from(status: v1::ClusterStatusResponse) -> Self {
        ClusterStatus {
            cluster_id: status.cluster_id.to_vec(),
            name: status.name,
            epoch: Epoch(status.epoch),
            policy_version: PolicyVersion(status.policy_version),
            nodes: status.nodes.into_iter().map(Into::into).collect(),
            shards: status.shards.into_iter().map(Into::into).collect(),
            control: status.control.map(Into::into),
        }
    }
}

impl From<v1::NodeStatus> for NodeStatus {
    fn from(status: v1::NodeStatus) -> Self {
        NodeStatus {
            id: NodeId(status.id),
            address: status.address,
            zone: status.zone,
            reachable: status.reachable,
            problem: status.problem,
            version: status.version,
            uptime: Duration::from_micros(status.uptime_us),
            leads: status.leads,
            clock_offset_us: status.clock_offset_us,
            log_bytes: status.log_bytes,
            replicas: status.replicas.into_iter().map(Into::into).collect(),
        }
    }
}

impl From<v1::ShardStatus> for ShardStatus {
    fn from(status: v1::ShardStatus) -> Self {
        ShardStatus {
            id: ShardId(status.id),
            first: status.first,
            last: status.last,
            leader: node(status.leader),
            term: Term(status.term),
            replicas: status.replicas.into_iter().map(Into::into).collect(),
        }
    }
}

impl From<v1::ReplicaStatus> for ReplicaStatus {
    fn from(status: v1::ReplicaStatus) -> Self {
        ReplicaStatus {
            shard: ShardId(status.shard),
            node: NodeId(status.node),
            leader: node(status.leader),
            term: Term(status.term),
            last_index: Index(status.last_index),
            commit_index: Index(status.commit_index),
            applied_index: Index(status.applied_index),
            snapshot_index: Index(status.snapshot_index),
            log_bytes: status.log_bytes,
            keys: status.keys,
            policy_version: PolicyVersion(status.policy_version),
            stamp: Stamp(status.stamp_us),
            digest: status.digest.to_vec(),
            sessions: status.sessions,
            voter: status.voter,
            problem: status.problem,
        }
    }
}
