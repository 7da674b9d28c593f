//! What the control group can be told, and how that stands in its log.
//!
//! A command says which version of the cluster's commands it needs. A node that does not know it must not guess: applying
//! stops, loudly, until the node runs a newer version.

use prost::Message;
use quorate_core::{Arc, Epoch, NodeId, Policy, PolicyVersion, ShardId, Stamp};
use quorate_proto::convert::{policy_from_wire, policy_to_wire};
use quorate_proto::v1;

use super::state::{NodeInfo, ShardInfo};

/// The version of the commands that this program knows.
pub const COMMANDS_VERSION: u32 = 1;

/// A command to the control group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ControlCommand {
    /// The cluster is born; ignored where it is already.
    Genesis(Genesis),
    /// Policies are put in force, or taken away.
    PutPolicies(PutPolicies),
}

/// What a cluster is born with.
#[derive(Clone, PartialEq, Eq)]
pub struct Genesis {
    /// Never used twice.
    pub cluster_id: [u8; 16],
    /// For people.
    pub name: String,
    /// The first members.
    pub nodes: Vec<NodeInfo>,
    /// The first shards; their arcs cover the ring.
    pub shards: Vec<ShardInfo>,
    /// Places keys on the ring; clients get it.
    pub ring_secret: [u8; 16],
    /// Places keys in the tables; never leaves the nodes.
    pub table_secret: [u8; 16],
}

impl std::fmt::Debug for Genesis {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The secrets stay out of logs.
        f.debug_struct("Genesis").field("name", &self.name).field("nodes", &self.nodes).finish_non_exhaustive()
    }
}

/// A change of the policies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PutPolicies {
    /// Put in place of those of their names, or added. Their ids are not looked at.
    pub policies: Vec<Policy>,
    /// Also take away every policy that is not among them.
    pub prune: bool,
    /// Names to take away.
    pub remove: Vec<String>,
    /// Refused if the set in force has another version.
    pub expected_version: Option<PolicyVersion>,
    /// When it was asked, for the history.
    pub at: Stamp,
}

/// Why the bytes of a command cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ControlDecodeError {
    /// A newer program wrote it.
    #[error("the control group's log holds a command of version {0}, and this program knows up to {COMMANDS_VERSION}: run a newer version of quorated on this node")]
    Newer(u32),
    /// It is not what any program writes.
    #[error("the control group's log holds a command that cannot be read: {0}")]
    Malformed(String),
}

impl ControlCommand {
    /// As it stands in the log.
    pub fn encode(&self) -> Vec<u8> {
        let command = match self {
            ControlCommand::Genesis(genesis) => v1::control_command::Command::Genesis(v1::Genesis {
                cluster_id: genesis.cluster_id.to_vec().into(),
                name: genesis.name.clone(),
                nodes: genesis.nodes.iter().map(NodeInfo::to_wire).collect(),
                shards: genesis.shards.iter().map(ShardInfo::to_wire).collect(),
                ring_secret: genesis.ring_secret.to_vec().into(),
                table_secret: genesis.table_secret.to_vec().into(),
            }),
            ControlCommand::PutPolicies(put) => v1::control_command::Command::PutPolicies(v1::PutPolicies {
                policies: put.policies.iter().map(policy_to_wire).collect(),
                prune: put.prune,
                remove: put.remove.clone(),
                expected_version: put.expected_version.map_or(0, |version| version.0),
                at_us: put.at.0,
            }),
        };
        v1::ControlCommand { needs: COMMANDS_VERSION, command: Some(command) }.encode_to_vec()
    }

    /// Reads what [`encode`](Self::encode) wrote, here or on another node.
    pub fn decode(bytes: &[u8]) -> Result<ControlCommand, ControlDecodeError> {
        let malformed = |problem: &dyn std::fmt::Display| ControlDecodeError::Malformed(problem.to_string());
        let wire = v1::ControlCommand::decode(bytes).map_err(|error| malformed(&error))?;
        if wire.needs > COMMANDS_VERSION {
            return Err(ControlDecodeError::Newer(wire.needs));
        }
        match wire.command {
            None => Err(malformed(&"it names no command")),
            Some(v1::control_command::Command::Genesis(genesis)) => Ok(ControlCommand::Genesis(Genesis {
                cluster_id: sixteen(&genesis.cluster_id).ok_or_else(|| malformed(&"a cluster id of another length"))?,
                name: genesis.name,
                nodes: genesis.nodes.into_iter().map(NodeInfo::from_wire).collect(),
                shards: genesis.shards.into_iter().map(ShardInfo::from_wire).collect(),
                ring_secret: sixteen(&genesis.ring_secret).ok_or_else(|| malformed(&"a secret of another length"))?,
                table_secret: sixteen(&genesis.table_secret).ok_or_else(|| malformed(&"a secret of another length"))?,
            })),
            Some(v1::control_command::Command::PutPolicies(put)) => {
                let policies: Result<Vec<Policy>, _> = put.policies.iter().map(policy_from_wire).collect();
                Ok(ControlCommand::PutPolicies(PutPolicies {
                    policies: policies.map_err(|error| malformed(&error))?,
                    prune: put.prune,
                    remove: put.remove,
                    expected_version: (put.expected_version > 0).then_some(PolicyVersion(put.expected_version)),
                    at: Stamp(put.at_us),
                }))
            }
        }
    }
}

/// Sixteen bytes, if they are.
pub(crate) fn sixteen(bytes: &[u8]) -> Option<[u8; 16]> {
    bytes.try_into().ok()
}

impl NodeInfo {
    pub(crate) fn to_wire(&self) -> v1::Node {
        v1::Node { id: self.id.0, address: self.address.clone(), zone: self.zone.clone() }
    }

    pub(crate) fn from_wire(wire: v1::Node) -> Self {
        NodeInfo { id: NodeId(wire.id), address: wire.address, zone: wire.zone }
    }
}

impl ShardInfo {
    pub(crate) fn to_wire(&self) -> v1::Shard {
        v1::Shard {
            id: self.id.0,
            first: self.arc.start,
            last: self.arc.end_inclusive,
            replicas: self.replicas.iter().map(|node| node.0).collect(),
            leader: 0,
            term: 0,
        }
    }

    pub(crate) fn from_wire(wire: v1::Shard) -> Self {
        ShardInfo {
            id: ShardId(wire.id),
            arc: Arc { start: wire.first, end_inclusive: wire.last },
            replicas: wire.replicas.into_iter().map(NodeId).collect(),
        }
    }
}

/// The first epoch of a topology.
pub(crate) const FIRST_EPOCH: Epoch = Epoch(1);
