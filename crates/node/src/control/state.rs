//! What the control group holds, and how a command changes it.
//!
//! Pure: no I/O, no clock, no randomness. What a command does depends on the state and the command alone, so every node comes
//! to the same. Secrets and ids were drawn by whoever proposed.

use std::collections::{BTreeMap, VecDeque};
use std::sync;

use prost::Message;
use quorate_core::key::{RingSecret, TableSecret};
use quorate_core::ring::Ring;
use quorate_core::{Arc, Epoch, NodeId, PolicyId, PolicySet, PolicyVersion, ShardId, Stamp};
use quorate_proto::convert::{policy_from_wire, policy_to_wire};
use quorate_proto::v1;

use super::command::{COMMANDS_VERSION, ControlCommand, FIRST_EPOCH, Genesis, PutPolicies, sixteen};
use super::policies::{Change, PolicyRecord, next_set};
use crate::caps;

/// A node as the cluster knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeInfo {
    /// Its number.
    pub id: NodeId,
    /// `host:port`, for clients and nodes.
    pub address: String,
    /// Where it stands; empty: nowhere in particular.
    pub zone: String,
}

/// A shard as the cluster places it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardInfo {
    /// Its number.
    pub id: ShardId,
    /// What it owns.
    pub arc: Arc,
    /// Who holds it. The first initialises it at its birth, and leads it then.
    pub replicas: Vec<NodeId>,
}

/// Everything that the cluster has agreed on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ControlState {
    /// All zeros until the genesis.
    pub cluster_id: [u8; 16],
    /// For people.
    pub name: String,
    /// The topology's number; 0 until the genesis.
    pub epoch: Epoch,
    /// The members.
    pub nodes: BTreeMap<NodeId, NodeInfo>,
    /// By arc, ascending.
    pub shards: Vec<ShardInfo>,
    /// What is in force.
    pub policies: sync::Arc<PolicySet>,
    /// The last policy id that was given.
    pub last_policy: PolicyId,
    /// The latest changes of the policies, oldest first; at most [`caps::POLICY_HISTORY`].
    pub history: VecDeque<PolicyRecord>,
    /// The version of commands that every node knows.
    pub cluster_version: u32,
    ring_secret: [u8; 16],
    table_secret: [u8; 16],
}

/// Why the control group refused a command. Nothing changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ControlRefusal {
    /// The command itself is wrong.
    #[error("{0}")]
    Invalid(String),
    /// It names something that is not there.
    #[error("{0}")]
    NotFound(String),
    /// It does not fit what is there.
    #[error("{0}")]
    Conflict(String),
}

/// The control group's answer to a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ControlAnswer {
    /// It was done, or had been.
    Done,
    /// The policies are now at that version.
    Policies {
        /// The version in force.
        version: PolicyVersion,
        /// What became of each policy named.
        changes: Vec<Change>,
    },
    /// It was refused.
    Refused(ControlRefusal),
}

impl ControlState {
    /// Whether the cluster was born.
    pub fn is_born(&self) -> bool {
        self.epoch >= FIRST_EPOCH
    }

    /// Places keys on the ring.
    pub fn ring_secret(&self) -> RingSecret {
        RingSecret(self.ring_secret)
    }

    /// Places keys in tables.
    pub fn table_secret(&self) -> TableSecret {
        TableSecret(self.table_secret)
    }

    /// Who owns which arc; none before the genesis.
    pub fn ring(&self) -> Option<Ring> {
        Ring::new(self.shards.iter().map(|shard| (shard.arc, shard.id))).ok()
    }

    /// The shard of that number.
    pub fn shard(&self, id: ShardId) -> Option<&ShardInfo> {
        self.shards.iter().find(|shard| shard.id == id)
    }

    /// The shards that a node holds a replica of.
    pub fn shards_of(&self, node: NodeId) -> impl Iterator<Item = &ShardInfo> {
        self.shards.iter().filter(move |shard| shard.replicas.contains(&node))
    }

    /// Applies the next command. Cannot fail: a command that does not fit is refused, the same on every node.
    pub fn apply(&mut self, command: ControlCommand) -> ControlAnswer {
        match command {
            ControlCommand::Genesis(genesis) => self.be_born(genesis),
            ControlCommand::PutPolicies(put) => self.put_policies(&put),
        }
    }

    fn be_born(&mut self, genesis: Genesis) -> ControlAnswer {
        if self.is_born() {
            return ControlAnswer::Done;
        }
        if let Err(error) = Ring::new(genesis.shards.iter().map(|shard| (shard.arc, shard.id))) {
            return ControlAnswer::Refused(ControlRefusal::Invalid(format!("the shards do not make a ring: {error}")));
        }
        *self = ControlState {
            cluster_id: genesis.cluster_id,
            name: genesis.name,
            epoch: FIRST_EPOCH,
            nodes: genesis.nodes.into_iter().map(|node| (node.id, node)).collect(),
            shards: genesis.shards,
            cluster_version: COMMANDS_VERSION,
            ring_secret: genesis.ring_secret,
            table_secret: genesis.table_secret,
            ..ControlState::default()
        };
        ControlAnswer::Done
    }

    fn put_policies(&mut self, put: &PutPolicies) -> ControlAnswer {
        let (set, last_policy, changes) = match next_set(&self.policies, self.last_policy, put) {
            Ok(next) => next,
            Err(refusal) => return ControlAnswer::Refused(refusal),
        };
        let version = set.version;
        if version > self.policies.version {
            self.history.push_back(PolicyRecord::new(version, put.at, &changes));
            while self.history.len() > caps::POLICY_HISTORY {
                self.history.pop_front();
            }
            self.policies = sync::Arc::new(set);
            self.last_policy = last_policy;
        }
        ControlAnswer::Policies { version, changes }
    }

    /// What a change would do, without doing it.
    pub fn preview(&self, put: &PutPolicies) -> Result<Vec<Change>, ControlRefusal> {
        next_set(&self.policies, self.last_policy, put).map(|(_, _, changes)| changes)
    }

    /// The whole state as bytes: for the snapshot, and in parts for the store.
    pub fn encode(&self) -> Vec<u8> {
        v1::ControlImage {
            cluster_id: self.cluster_id.to_vec().into(),
            name: self.name.clone(),
            epoch: self.epoch.0,
            nodes: self.nodes.values().map(NodeInfo::to_wire).collect(),
            shards: self.shards.iter().map(ShardInfo::to_wire).collect(),
            ring_secret: self.ring_secret.to_vec().into(),
            table_secret: self.table_secret.to_vec().into(),
            policy_version: self.policies.version.0,
            policies: self.policies.policies.iter().map(policy_to_wire).collect(),
            last_policy: self.last_policy.0,
            cluster_version: self.cluster_version,
            history: self.history.iter().map(record_to_wire).collect(),
        }
        .encode_to_vec()
    }

    /// Reads what [`encode`](Self::encode) wrote. The error says what is wrong with it.
    pub fn decode(bytes: &[u8]) -> Result<ControlState, String> {
        let image = v1::ControlImage::decode(bytes).map_err(|error| error.to_string())?;
        if image.cluster_version > COMMANDS_VERSION {
            return Err(format!(
                "it is of cluster version {}, and this program knows up to {COMMANDS_VERSION}: run a newer version",
                image.cluster_version
            ));
        }
        let policies: Result<Vec<_>, _> = image.policies.iter().map(policy_from_wire).collect();
        let mut policies = policies.map_err(|error| error.to_string())?;
        policies.sort_by_key(|policy| policy.id);
        let sixteen = |bytes: &[u8]| sixteen(bytes).ok_or("an id or a secret of another length than 16 bytes");
        Ok(ControlState {
            cluster_id: sixteen(&image.cluster_id)?,
            name: image.name,
            epoch: Epoch(image.epoch),
            nodes: image.nodes.into_iter().map(NodeInfo::from_wire).map(|node| (node.id, node)).collect(),
            shards: image.shards.into_iter().map(ShardInfo::from_wire).collect(),
            policies: sync::Arc::new(PolicySet { version: PolicyVersion(image.policy_version), policies }),
            last_policy: PolicyId(image.last_policy),
            history: image.history.into_iter().map(record_from_wire).collect(),
            cluster_version: image.cluster_version,
            ring_secret: sixteen(&image.ring_secret)?,
            table_secret: sixteen(&image.table_secret)?,
        })
    }
}

fn record_to_wire(record: &PolicyRecord) -> v1::PolicyRecord {
    v1::PolicyRecord {
        version: record.version.0,
        at_us: record.at.0,
        added: record.added.clone(),
        changed: record.changed.clone(),
        removed: record.removed.clone(),
    }
}

fn record_from_wire(wire: v1::PolicyRecord) -> PolicyRecord {
    PolicyRecord {
        version: PolicyVersion(wire.version),
        at: Stamp(wire.at_us),
        added: wire.added,
        changed: wire.changed,
        removed: wire.removed,
    }
}
