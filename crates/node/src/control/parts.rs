//! The control state as named parts: for the store, which writes only those that changed, and for snapshots, which hold all.
//!
//! Names are permanent. The part `head` says how many parts of each kind there are, so that a lost one is found.

use std::collections::BTreeMap;
use std::sync;

use bytes::Bytes;
use prost::Message;
use quorate_core::{Epoch, PolicyId, PolicySet, PolicyVersion, Stamp};
use quorate_proto::convert::{policy_from_wire, policy_to_wire};
use quorate_proto::v1;

use super::command::{COMMANDS_VERSION, sixteen};
use super::policies::PolicyRecord;
use super::state::{ControlState, NodeInfo, ShardInfo};

/// The parts of a state, by name.
pub type Parts = BTreeMap<String, Bytes>;

const HEAD: &str = "head";
const NODE: &str = "node/";
const SHARD: &str = "shard/";
const POLICY: &str = "policy/";
const HISTORY: &str = "history/";

impl ControlState {
    /// All parts of the state.
    pub fn to_parts(&self) -> Parts {
        let mut parts = Parts::new();
        let head = v1::ControlHead {
            cluster_id: self.cluster_id.to_vec().into(),
            name: self.name.clone(),
            epoch: self.epoch.0,
            ring_secret: self.ring_secret.to_vec().into(),
            table_secret: self.table_secret.to_vec().into(),
            policy_version: self.policies.version.0,
            last_policy: self.last_policy.0,
            cluster_version: self.cluster_version,
            nodes: self.nodes.len() as u32,
            shards: self.shards.len() as u32,
            policies: self.policies.policies.len() as u32,
            history: self.history.len() as u32,
        };
        parts.insert(HEAD.to_owned(), head.encode_to_vec().into());
        for node in self.nodes.values() {
            put(&mut parts, NODE, node.id.0, &node.to_wire());
        }
        for shard in &self.shards {
            put(&mut parts, SHARD, shard.id.0.into(), &shard.to_wire());
        }
        for policy in &self.policies.policies {
            put(&mut parts, POLICY, policy.id.0.into(), &policy_to_wire(policy));
        }
        for record in &self.history {
            put(&mut parts, HISTORY, record.version.0, &record_to_wire(record));
        }
        parts
    }

    /// The state that these parts are of; other parts are not looked at. Without any, the state before the genesis.
    ///
    /// # Errors
    /// What is wrong with them: they are damaged, or of a newer version.
    pub fn from_parts(parts: &Parts) -> Result<ControlState, String> {
        let Some(head) = parts.get(HEAD) else {
            return match list::<v1::Node>(parts, NODE)?.is_empty() {
                true => Ok(ControlState::default()),
                false => Err("its head is missing".to_owned()),
            };
        };
        let head = v1::ControlHead::decode(head.clone()).map_err(|error| format!("its head: {error}"))?;
        if head.cluster_version > COMMANDS_VERSION {
            return Err(format!(
                "it is of cluster version {}, and this program knows up to {COMMANDS_VERSION}: run a newer quorated here",
                head.cluster_version
            ));
        }
        let nodes = list::<v1::Node>(parts, NODE)?;
        let shards = list::<v1::Shard>(parts, SHARD)?;
        let policies = list::<v1::Policy>(parts, POLICY)?;
        let history = list::<v1::PolicyRecord>(parts, HISTORY)?;
        let counts = [nodes.len(), shards.len(), policies.len(), history.len()].map(|count| count as u32);
        if counts != [head.nodes, head.shards, head.policies, head.history] {
            return Err("parts of it are missing".to_owned());
        }
        let mut shards: Vec<ShardInfo> = shards.into_iter().map(ShardInfo::from_wire).collect();
        shards.sort_by_key(|shard| shard.arc.start);
        let policies: Result<Vec<_>, _> = policies.iter().map(policy_from_wire).collect();
        let policies = policies.map_err(|error| format!("a policy: {error}"))?;
        Ok(ControlState {
            cluster_id: sixteen(&head.cluster_id)?,
            name: head.name,
            epoch: Epoch(head.epoch),
            nodes: nodes.into_iter().map(NodeInfo::from_wire).map(|node| (node.id, node)).collect(),
            shards,
            policies: sync::Arc::new(PolicySet { version: PolicyVersion(head.policy_version), policies }),
            last_policy: PolicyId(head.last_policy),
            history: history.into_iter().map(record_from_wire).collect(),
            cluster_version: head.cluster_version,
            ring_secret: sixteen(&head.ring_secret)?,
            table_secret: sixteen(&head.table_secret)?,
        })
    }

    /// The whole state as bytes, for a snapshot.
    pub fn encode(&self) -> Vec<u8> {
        let part = |(name, value)| v1::ControlPart { name, value };
        v1::ControlParts { parts: self.to_parts().into_iter().map(part).collect() }.encode_to_vec()
    }

    /// Reads what [`encode`](Self::encode) wrote.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn decode(bytes: &[u8]) -> Result<ControlState, String> {
        let parts = v1::ControlParts::decode(bytes).map_err(|error| error.to_string())?.parts;
        ControlState::from_parts(&parts.into_iter().map(|part| (part.name, part.value)).collect())
    }
}

/// Numbers are padded, so that names go in the order of the numbers.
fn put(parts: &mut Parts, kind: &str, number: u64, value: &impl Message) {
    parts.insert(format!("{kind}{number:020}"), value.encode_to_vec().into());
}

fn list<T: Message + Default>(parts: &Parts, kind: &str) -> Result<Vec<T>, String> {
    let of_kind = parts.range(kind.to_owned()..).take_while(|(name, _)| name.starts_with(kind));
    of_kind.map(|(name, value)| T::decode(value.clone()).map_err(|error| format!("its part {name}: {error}"))).collect()
}

fn record_to_wire(record: &PolicyRecord) -> v1::PolicyRecord {
    v1::PolicyRecord {
        version: record.version.0,
        at_us: record.at.0,
        added: record.added.clone(),
        changed: record.changed.clone(),
        removed: record.removed.clone(),
        unlisted: record.unlisted,
    }
}

fn record_from_wire(wire: v1::PolicyRecord) -> PolicyRecord {
    PolicyRecord {
        version: PolicyVersion(wire.version),
        at: Stamp(wire.at_us),
        added: wire.added,
        changed: wire.changed,
        removed: wire.removed,
        unlisted: wire.unlisted,
    }
}

#[cfg(test)]
mod tests {
    use quorate_core::{Algorithm, Policy, Span};

    use super::super::command::{ControlCommand, PutPolicies};
    use super::super::state::tests::lived;
    use super::*;
    use crate::caps;

    #[test]
    fn states_come_back_from_their_parts() {
        for state in [ControlState::default(), lived()] {
            assert_eq!(ControlState::from_parts(&state.to_parts()).as_ref(), Ok(&state));
            assert_eq!(ControlState::decode(&state.encode()), Ok(state));
        }
        assert_eq!(ControlState::from_parts(&Parts::new()), Ok(ControlState::default()));
    }

    #[test]
    fn every_missing_part_is_found() {
        let whole = lived().to_parts();
        for name in whole.keys() {
            let mut parts = whole.clone();
            parts.remove(name);
            assert!(ControlState::from_parts(&parts).is_err(), "{name}");
        }
    }

    #[test]
    fn a_change_touches_few_parts() {
        let mut state = lived();
        let before = state.to_parts();
        let policy = Policy::new("p1", Algorithm::FixedWindow { limit: 99, window: Span(1_000_000) });
        state.apply(ControlCommand::PutPolicies(PutPolicies { policies: vec![policy], ..PutPolicies::default() }));
        let changed = state.to_parts().iter().filter(|(name, part)| before.get(*name) != Some(*part)).count();
        assert_eq!(changed, 3);
    }

    #[test]
    fn the_largest_part_is_one_that_the_store_takes() {
        let mut state = lived();
        let name = |i: usize| format!("{i:0width$}", width = quorate_core::caps::POLICY_NAME_BYTES);
        let policies = (0..4000).map(|i| Policy {
            description: "d".repeat(quorate_core::caps::DESCRIPTION_BYTES),
            ..Policy::new(name(i), Algorithm::FixedWindow { limit: 1, window: Span(1_000_000) })
        });
        let put = PutPolicies { policies: policies.collect(), ..PutPolicies::default() };
        state.apply(ControlCommand::PutPolicies(put));
        assert_eq!(state.policies.policies.len(), 4003);
        assert!(state.to_parts().values().all(|part| part.len() <= caps::CONTROL_PART));
    }

    #[test]
    fn a_newer_cluster_is_not_guessed_at() {
        let state = ControlState { cluster_version: COMMANDS_VERSION + 1, ..lived() };
        assert!(ControlState::decode(&state.encode()).unwrap_err().contains("newer"));
    }
}
