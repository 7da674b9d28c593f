//! What the control group holds, and how a command changes it.
//!
//! Pure: no I/O, no clock, no randomness. What a command does depends on the state and the command alone, so every node comes
//! to the same. Secrets and ids were drawn by whoever proposed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync;

use quorate_core::{Arc, Epoch, NodeId, PolicyId, PolicySet, PolicyVersion, Ring, RingSecret, ShardId, TableSecret};

use super::command::{COMMANDS_VERSION, ControlCommand, FIRST_EPOCH, Genesis, PutPolicies};
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
#[derive(Clone, Default, PartialEq, Eq)]
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
    pub(super) ring_secret: [u8; 16],
    pub(super) table_secret: [u8; 16],
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

impl fmt::Debug for ControlState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The secrets stay out of logs.
        f.debug_struct("ControlState")
            .field("name", &self.name)
            .field("epoch", &self.epoch)
            .field("nodes", &self.nodes)
            .field("shards", &self.shards)
            .field("policies", &self.policies.version)
            .finish_non_exhaustive()
    }
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

    /// The members that vote in the control group; the others learn.
    pub fn control_voters(&self) -> BTreeSet<NodeId> {
        self.nodes.keys().copied().take(caps::CONTROL_VOTERS).collect()
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
        if let Err(problem) = check_genesis(&genesis) {
            return ControlAnswer::Refused(ControlRefusal::Invalid(problem));
        }
        let mut shards = genesis.shards;
        shards.sort_by_key(|shard| shard.arc.start);
        *self = ControlState {
            cluster_id: genesis.cluster_id,
            name: genesis.name,
            epoch: FIRST_EPOCH,
            nodes: genesis.nodes.into_iter().map(|node| (node.id, node)).collect(),
            shards,
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
    ///
    /// # Errors
    /// Why it would be refused.
    pub fn preview(&self, put: &PutPolicies) -> Result<Vec<Change>, ControlRefusal> {
        next_set(&self.policies, self.last_policy, put).map(|(_, _, changes)| changes)
    }
}

/// What is wrong with a genesis, if anything is.
fn check_genesis(genesis: &Genesis) -> Result<(), String> {
    let nodes: BTreeSet<NodeId> = genesis.nodes.iter().map(|node| node.id).collect();
    if nodes.is_empty() || nodes.len() != genesis.nodes.len() || nodes.contains(&NodeId(0)) {
        return Err("the nodes of a new cluster are numbered from 1, each once".to_owned());
    }
    Ring::new(genesis.shards.iter().map(|shard| (shard.arc, shard.id)))
        .map_err(|error| format!("the shards do not make a ring: {error}"))?;
    let ids: BTreeSet<ShardId> = genesis.shards.iter().map(|shard| shard.id).collect();
    if ids.len() != genesis.shards.len() || ids.contains(&ShardId(0)) {
        return Err("the shards of a new cluster are numbered from 1, each once".to_owned());
    }
    for shard in &genesis.shards {
        let replicas: BTreeSet<NodeId> = shard.replicas.iter().copied().collect();
        if replicas.is_empty() || replicas.len() != shard.replicas.len() || !replicas.is_subset(&nodes) {
            return Err(format!("the replicas of {} are not nodes of the cluster, each once", shard.id));
        }
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests {
    use quorate_core::{Algorithm, Policy, Span};

    use super::*;

    /// Three nodes and two shards.
    pub(crate) fn genesis() -> Genesis {
        let node = |id| NodeInfo { id: NodeId(id), address: format!("node-{id}:7600"), zone: format!("z{id}") };
        let half = u64::MAX / 2;
        let shard = |id, start, end_inclusive| ShardInfo {
            id: ShardId(id),
            arc: Arc { start, end_inclusive },
            replicas: (1..=3).map(NodeId).collect(),
        };
        Genesis {
            cluster_id: [5; 16],
            name: "quorate".into(),
            nodes: (1..=3).map(node).collect(),
            shards: vec![shard(1, 0, half), shard(2, half + 1, u64::MAX)],
            ring_secret: [77; 16],
            table_secret: [88; 16],
        }
    }

    /// A born state with a few policies and their history.
    pub(crate) fn lived() -> ControlState {
        let mut state = ControlState::default();
        assert_eq!(state.apply(ControlCommand::Genesis(genesis())), ControlAnswer::Done);
        for i in 0..3 {
            let policy = Policy::new(format!("p{i}"), Algorithm::FixedWindow { limit: i, window: Span(1_000_000) });
            let put = PutPolicies { policies: vec![policy], ..PutPolicies::default() };
            assert!(matches!(state.apply(ControlCommand::PutPolicies(put)), ControlAnswer::Policies { .. }));
        }
        state
    }

    #[test]
    fn a_cluster_is_born_once() {
        let mut state = ControlState::default();
        assert!(!state.is_born() && state.ring().is_none());
        state.apply(ControlCommand::Genesis(genesis()));
        assert!(state.is_born() && state.ring().is_some());
        let other = Genesis { name: "other".into(), ring_secret: [1; 16], ..genesis() };
        let before = state.clone();
        assert_eq!(state.apply(ControlCommand::Genesis(other)), ControlAnswer::Done);
        assert_eq!(state, before);
    }

    #[test]
    fn a_genesis_that_cannot_be_is_refused() {
        let mut bad = vec![Genesis { nodes: vec![], ..genesis() }, Genesis { shards: vec![], ..genesis() }];
        let mut twins = genesis();
        twins.nodes[1].id = NodeId(1);
        let mut stranger = genesis();
        stranger.shards[0].replicas.push(NodeId(9));
        let mut twice = genesis();
        twice.shards[0].replicas.push(NodeId(1));
        let mut same = genesis();
        same.shards[1].id = ShardId(1);
        bad.extend([twins, stranger, twice, same]);
        for genesis in bad {
            let mut state = ControlState::default();
            let answer = state.apply(ControlCommand::Genesis(genesis));
            assert!(matches!(answer, ControlAnswer::Refused(ControlRefusal::Invalid(_))), "{answer:?}");
            assert!(!state.is_born());
        }
    }

    #[test]
    fn the_history_is_bounded() {
        let mut state = lived();
        for i in 0..2 * caps::POLICY_HISTORY as u64 {
            let policy = Policy::new("p", Algorithm::FixedWindow { limit: i, window: Span(1_000_000) });
            let put = PutPolicies { policies: vec![policy], ..PutPolicies::default() };
            state.apply(ControlCommand::PutPolicies(put));
        }
        assert_eq!(state.history.len(), caps::POLICY_HISTORY);
        assert_eq!(state.history.back().unwrap().version, state.policies.version);
    }

    #[test]
    fn secrets_do_not_print() {
        assert!(!format!("{:?}", lived()).contains("77, 77"));
    }
}
