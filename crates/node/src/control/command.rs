//! What the control group can be told, and how that stands in its log.
//!
//! A command says which version of the cluster's commands it needs. A node that does not know it must not guess: applying
//! stops, loudly, until the node runs a newer version.

use std::fmt;

use prost::Message;
use quorate_core::{Arc, Epoch, NodeId, Policy, PolicyVersion, ShardId, Stamp};
use quorate_proto::convert::{policy_from_wire, policy_to_wire};
use quorate_proto::v1::{self, control_command::Command};

use super::state::{NodeInfo, ShardInfo};

/// The version of the commands that this program knows.
pub const COMMANDS_VERSION: u32 = 1;

/// The first epoch of a topology.
pub(crate) const FIRST_EPOCH: Epoch = Epoch(1);

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
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ControlDecodeError {
    /// A newer program wrote it.
    #[error(
        "a control command needs version {0}, and this program knows up to {COMMANDS_VERSION}: run a newer quorated here"
    )]
    Newer(u32),
    /// It is not what any program writes.
    #[error("a control command cannot be read ({0}): it is damaged, or was written by a newer quorated")]
    Malformed(String),
}

impl fmt::Debug for Genesis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The secrets stay out of logs.
        f.debug_struct("Genesis").field("name", &self.name).field("nodes", &self.nodes).finish_non_exhaustive()
    }
}

fn malformed(problem: impl fmt::Display) -> ControlDecodeError {
    ControlDecodeError::Malformed(problem.to_string())
}

/// Sixteen bytes, if they are.
pub(crate) fn sixteen(bytes: &[u8]) -> Result<[u8; 16], &'static str> {
    bytes.try_into().map_err(|_| "an id or a secret that does not have 16 bytes")
}

impl ControlCommand {
    /// As it stands in the log.
    pub fn encode(&self) -> Vec<u8> {
        let command = match self {
            ControlCommand::Genesis(genesis) => Command::Genesis(genesis.to_wire()),
            ControlCommand::PutPolicies(put) => Command::PutPolicies(put.to_wire()),
        };
        v1::ControlCommand { needs: COMMANDS_VERSION, command: Some(command) }.encode_to_vec()
    }

    /// Reads what [`encode`](Self::encode) wrote, here or on another node.
    ///
    /// # Errors
    /// It needs a newer program, or is damaged.
    pub fn decode(bytes: &[u8]) -> Result<ControlCommand, ControlDecodeError> {
        let wire = v1::ControlCommand::decode(bytes).map_err(malformed)?;
        if wire.needs > COMMANDS_VERSION {
            return Err(ControlDecodeError::Newer(wire.needs));
        }
        match wire.command {
            None => Err(malformed("it names no command")),
            Some(Command::Genesis(genesis)) => Genesis::from_wire(genesis).map(ControlCommand::Genesis),
            Some(Command::PutPolicies(put)) => PutPolicies::from_wire(put).map(ControlCommand::PutPolicies),
        }
    }
}

impl Genesis {
    fn to_wire(&self) -> v1::Genesis {
        v1::Genesis {
            cluster_id: self.cluster_id.to_vec().into(),
            name: self.name.clone(),
            nodes: self.nodes.iter().map(NodeInfo::to_wire).collect(),
            shards: self.shards.iter().map(ShardInfo::to_wire).collect(),
            ring_secret: self.ring_secret.to_vec().into(),
            table_secret: self.table_secret.to_vec().into(),
        }
    }

    fn from_wire(wire: v1::Genesis) -> Result<Genesis, ControlDecodeError> {
        Ok(Genesis {
            cluster_id: sixteen(&wire.cluster_id).map_err(malformed)?,
            name: wire.name,
            nodes: wire.nodes.into_iter().map(NodeInfo::from_wire).collect(),
            shards: wire.shards.into_iter().map(ShardInfo::from_wire).collect(),
            ring_secret: sixteen(&wire.ring_secret).map_err(malformed)?,
            table_secret: sixteen(&wire.table_secret).map_err(malformed)?,
        })
    }
}

impl PutPolicies {
    fn to_wire(&self) -> v1::PutPolicies {
        v1::PutPolicies {
            policies: self.policies.iter().map(policy_to_wire).collect(),
            prune: self.prune,
            remove: self.remove.clone(),
            // Before the first change there is nothing that could be expected.
            expected_version: self.expected_version.map_or(0, |version| version.0),
            at_us: self.at.0,
        }
    }

    fn from_wire(wire: v1::PutPolicies) -> Result<PutPolicies, ControlDecodeError> {
        let policies: Result<Vec<Policy>, _> = wire.policies.iter().map(policy_from_wire).collect();
        Ok(PutPolicies {
            policies: policies.map_err(malformed)?,
            prune: wire.prune,
            remove: wire.remove,
            expected_version: (wire.expected_version > 0).then_some(PolicyVersion(wire.expected_version)),
            at: Stamp(wire.at_us),
        })
    }
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

#[cfg(test)]
mod tests {
    use quorate_core::{Algorithm, Span};

    use super::super::state::tests::genesis;
    use super::*;

    fn commands() -> [ControlCommand; 2] {
        let policy = Policy::new("a", Algorithm::FixedWindow { limit: 5, window: Span(1_000_000) });
        let put = PutPolicies {
            policies: vec![policy],
            prune: true,
            remove: vec!["b".into()],
            expected_version: Some(PolicyVersion(3)),
            at: Stamp(9),
        };
        [ControlCommand::Genesis(genesis()), ControlCommand::PutPolicies(put)]
    }

    #[test]
    fn commands_come_back() {
        for command in commands() {
            assert_eq!(ControlCommand::decode(&command.encode()), Ok(command));
        }
    }

    #[test]
    fn what_is_newer_is_not_guessed_at() {
        let newer = v1::ControlCommand { needs: COMMANDS_VERSION + 1, command: None }.encode_to_vec();
        assert_eq!(ControlCommand::decode(&newer), Err(ControlDecodeError::Newer(COMMANDS_VERSION + 1)));
        let unknown = v1::ControlCommand { needs: COMMANDS_VERSION, command: None }.encode_to_vec();
        assert!(matches!(ControlCommand::decode(&unknown), Err(ControlDecodeError::Malformed(_))));
    }

    #[test]
    fn cut_commands_do_not_panic() {
        for command in commands() {
            let bytes = command.encode();
            for len in 0..bytes.len() {
                assert_ne!(ControlCommand::decode(&bytes[..len]).as_ref(), Ok(&command));
            }
        }
    }

    #[test]
    fn secrets_do_not_print() {
        let shown = format!("{:?}", ControlCommand::Genesis(genesis()));
        assert!(!shown.contains("77, 77") && !shown.contains("88, 88"), "{shown}");
    }
}
