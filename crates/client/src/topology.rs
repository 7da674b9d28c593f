//! Who holds which arc, who leads, and which policies are in force: the public picture of it.

use quorate_core::{Epoch, NodeId, ShardId, Term};

/// The cluster as the client knows it now.
///
/// ```no_run
/// # async fn f(client: quorate_client::Client) {
/// let topology = client.topology();
/// println!("{} ({}): {} nodes, {} shards", topology.cluster_name, topology.epoch, topology.nodes.len(), topology.shards.len());
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Topology {
    /// The cluster's id: 16 bytes, drawn when it was made.
    pub cluster_id: Vec<u8>,
    /// The cluster's name, for people.
    pub cluster_name: String,
    /// The number of this topology; leaders change without a new one.
    pub epoch: Epoch,
    /// Every node.
    pub nodes: Vec<NodeInfo>,
    /// Every shard, by its arc, ascending; together they cover the ring.
    pub shards: Vec<ShardInfo>,
    /// How many clients are about, this one included once it has asked something, as far as the nodes know: at least that
    /// many, for one that crashed counts for an hour more, and large numbers are rounded up. 0 where none is known of.
    pub live_clients: u64,
}

/// A node of the cluster.
///
/// ```no_run
/// # fn f(topology: quorate_client::Topology) {
/// let node = &topology.nodes[0];
/// println!("{} at {} in {}", node.id, node.address, node.zone);
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeInfo {
    /// Its number.
    pub id: NodeId,
    /// host:port.
    pub address: String,
    /// Its zone; empty if none was set.
    pub zone: String,
}

/// A shard of the cluster.
///
/// ```no_run
/// # fn f(topology: quorate_client::Topology) {
/// for shard in &topology.shards {
///     println!("{} is led by {:?}", shard.id, shard.leader);
/// }
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShardInfo {
    /// Its number.
    pub id: ShardId,
    /// The first place on the ring that it owns.
    pub first: u64,
    /// The last one; included.
    pub last: u64,
    /// The nodes that hold a replica.
    pub replicas: Vec<NodeId>,
    /// The node that leads it, as far as the client knows.
    pub leader: Option<NodeId>,
    /// The term of that leader.
    pub term: Term,
}

impl Topology {
    /// The shard of that number.
    pub fn shard(&self, id: ShardId) -> Option<&ShardInfo> {
        self.shards.iter().find(|shard| shard.id == id)
    }

    /// The node of that number.
    pub fn node(&self, id: NodeId) -> Option<&NodeInfo> {
        self.nodes.iter().find(|node| node.id == id)
    }
}
