//! A cluster: what it was made of, and how its nodes and shards are.

use quorate_client::admin::{ClusterStatus, MadeCluster, NodeStatus, ReplicaStatus, ShardStatus};
use serde::Serialize;

use crate::human::{bytes, count, span};
use crate::output::{View, columns};
use crate::views::{hex, or_dash};

/// A cluster that was made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct InitView {
    /// Its id, in hex.
    pub cluster_id: String,
    /// Its name.
    pub name: String,
    /// Its nodes' ids, in the order in which they were named.
    pub nodes: Vec<u64>,
    /// Its shards.
    pub shards: u32,
}

impl View for InitView {
    fn table(&self) -> String {
        format!(
            "cluster {} ({}) of {} nodes and {} shards\n",
            self.name,
            self.cluster_id,
            self.nodes.len(),
            self.shards
        )
    }
}

impl From<MadeCluster> for InitView {
    fn from(made: MadeCluster) -> Self {
        InitView { cluster_id: hex(&made.cluster_id), name: made.name, nodes: made.nodes, shards: made.shards }
    }
}

/// A cluster's state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StatusView {
    /// Whether every node was reached, and every shard has one leader and replicas that work.
    pub healthy: bool,
    /// Why not.
    pub problems: Vec<String>,
    /// Its id, in hex.
    pub cluster_id: String,
    /// Its name.
    pub name: String,
    /// The topology's number.
    pub epoch: u64,
    /// The policy set's number.
    pub policy_version: u64,
    /// By id.
    pub nodes: Vec<NodeView>,
    /// The control group, as shard 0.
    pub control: Option<ShardView>,
    /// By id.
    pub shards: Vec<ShardView>,
}

/// A node's state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[allow(missing_docs)]
pub struct NodeView {
    pub id: u64,
    pub address: String,
    pub zone: String,
    pub reachable: bool,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub problem: String,
    pub version: String,
    pub uptime_us: u64,
    pub leads: u32,
    pub clock_offset_us: i64,
    pub log_bytes: u64,
}

/// A shard's state, as its leader tells it; as the best-informed replica does where there is no leader.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[allow(missing_docs)]
pub struct ShardView {
    pub id: u32,
    /// 0: none.
    pub leader: u64,
    pub term: u64,
    pub commit_index: u64,
    pub applied_index: u64,
    pub log_bytes: u64,
    pub keys: u64,
    pub policy_version: u64,
    pub replicas: Vec<ReplicaView>,
}

/// One replica's state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[allow(missing_docs)]
pub struct ReplicaView {
    pub node: u64,
    pub voter: bool,
    pub term: u64,
    pub last_index: u64,
    pub commit_index: u64,
    pub applied_index: u64,
    pub snapshot_index: u64,
    pub log_bytes: u64,
    pub keys: u64,
    pub sessions: u64,
    pub policy_version: u64,
    pub stamp_us: i64,
    pub digest: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub problem: String,
}

impl From<&ReplicaStatus> for ReplicaView {
    fn from(replica: &ReplicaStatus) -> Self {
        ReplicaView {
            node: replica.node.0,
            voter: replica.voter,
            term: replica.term.0,
            last_index: replica.last_index.0,
            commit_index: replica.commit_index.0,
            applied_index: replica.applied_index.0,
            snapshot_index: replica.snapshot_index.0,
            log_bytes: replica.log_bytes,
            keys: replica.keys,
            sessions: replica.sessions,
            policy_version: replica.policy_version.0,
            stamp_us: replica.stamp.0,
            digest: hex(&replica.digest),
            problem: replica.problem.clone(),
        }
    }
}

impl From<&ShardStatus> for ShardView {
    fn from(shard: &ShardStatus) -> Self {
        let leader = shard.leader.map_or(0, |node| node.0);
        let mut replicas: Vec<ReplicaView> = shard.replicas.iter().map(ReplicaView::from).collect();
        replicas.sort_by_key(|replica| replica.node);
        let led = replicas.iter().find(|replica| leader != 0 && replica.node == leader);
        let told = led
            .or_else(|| replicas.iter().max_by_key(|replica| (replica.term, replica.applied_index)))
            .cloned()
            .unwrap_or_default();
        ShardView {
            id: shard.id.0,
            leader,
            term: shard.term.0,
            commit_index: told.commit_index,
            applied_index: told.applied_index,
            log_bytes: told.log_bytes,
            keys: told.keys,
            policy_version: told.policy_version,
            replicas,
        }
    }
}

impl From<&NodeStatus> for NodeView {
    fn from(node: &NodeStatus) -> Self {
        NodeView {
            id: node.id.0,
            address: node.address.clone(),
            zone: node.zone.clone(),
            reachable: node.reachable,
            problem: node.problem.clone(),
            version: node.version.clone(),
            uptime_us: u64::try_from(node.uptime.as_micros()).unwrap_or(u64::MAX),
            leads: node.leads,
            clock_offset_us: node.clock_offset_us,
            log_bytes: node.log_bytes,
        }
    }
}

impl From<ClusterStatus> for StatusView {
    fn from(status: ClusterStatus) -> Self {
        let mut view = StatusView {
            healthy: true,
            problems: Vec::new(),
            cluster_id: hex(&status.cluster_id),
            name: status.name,
            epoch: status.epoch.0,
            policy_version: status.policy_version.0,
            nodes: status.nodes.iter().map(NodeView::from).collect(),
            control: status.control.as_ref().map(ShardView::from),
            shards: status.shards.iter().map(ShardView::from).collect(),
        };
        view.nodes.sort_by_key(|node| node.id);
        view.shards.sort_by_key(|shard| shard.id);
        view.problems = view.find_problems();
        view.healthy = view.problems.is_empty();
        view
    }
}

impl StatusView {
    fn find_problems(&self) -> Vec<String> {
        let nodes = self.nodes.iter().filter(|node| !node.reachable || !node.problem.is_empty()).map(|node| {
            let what = if node.reachable { "has a problem" } else { "is unreachable" };
            let why = if node.problem.is_empty() { String::new() } else { format!(": {}", node.problem) };
            format!("node n{} ({}) {what}{why}", node.id, node.address)
        });
        let groups = self.control.iter().chain(&self.shards).flat_map(ShardView::problems);
        nodes.chain(groups).collect()
    }
}

impl ShardView {
    fn title(&self) -> String {
        if self.id == 0 { "the control group".into() } else { format!("shard {}", self.id) }
    }

    fn problems(&self) -> Vec<String> {
        let leaderless = (self.leader == 0).then(|| format!("{} has no leader", self.title()));
        let replicas = self.replicas.iter().filter(|replica| !replica.problem.is_empty());
        let broken = replicas.map(|replica| format!("{} on node n{}: {}", self.title(), replica.node, replica.problem));
        leaderless.into_iter().chain(broken).chain(self.forked()).collect()
    }

    /// Replicas that have applied as much must hold the same.
    fn forked(&self) -> Option<String> {
        let differ = |a: &ReplicaView, b: &ReplicaView| {
            a.applied_index == b.applied_index && !a.digest.is_empty() && !b.digest.is_empty() && a.digest != b.digest
        };
        let pairs =
            self.replicas.iter().enumerate().flat_map(|(at, a)| self.replicas[at + 1..].iter().map(move |b| (a, b)));
        let (a, b) = pairs.into_iter().find(|(a, b)| differ(a, b))?;
        Some(format!(
            "{}: nodes n{} and n{} hold different states at index {}",
            self.title(),
            a.node,
            b.node,
            a.applied_index
        ))
    }

    fn row(&self) -> [String; 8] {
        [
            if self.id == 0 { "control".into() } else { self.id.to_string() },
            if self.leader == 0 { "none".into() } else { format!("n{}", self.leader) },
            self.term.to_string(),
            count(self.commit_index),
            count(self.applied_index),
            bytes(self.log_bytes),
            if self.id == 0 { "-".into() } else { count(self.keys) },
            self.replicas.iter().map(ReplicaView::short).collect::<Vec<_>>().join(" "),
        ]
    }
}

impl ReplicaView {
    fn short(&self) -> String {
        let mark = match (self.problem.is_empty(), self.voter) {
            (false, _) => "!",
            (true, true) => "",
            (true, false) => " (learner)",
        };
        format!("n{}{mark}", self.node)
    }
}

impl NodeView {
    fn row(&self) -> [String; 9] {
        let known = |text: String| or_dash(self.reachable.then_some(text));
        let clock = match self.clock_offset_us {
            0 => "0s".into(),
            us => format!("{}{}", if us < 0 { "-" } else { "+" }, span(us.unsigned_abs())),
        };
        let state = match (self.reachable, self.problem.is_empty()) {
            (true, true) => "up",
            (true, false) => "problem",
            (false, _) => "unreachable",
        };
        [
            format!("n{}", self.id),
            self.address.clone(),
            or_dash((!self.zone.is_empty()).then(|| self.zone.clone())),
            state.into(),
            known(self.leads.to_string()),
            known(span(self.uptime_us / 1_000_000 * 1_000_000)),
            known(clock),
            known(bytes(self.log_bytes)),
            known(self.version.clone()),
        ]
    }
}

impl View for StatusView {
    fn table(&self) -> String {
        let nodes = columns(
            ["NODE", "ADDRESS", "ZONE", "STATE", "LEADS", "UP FOR", "CLOCK", "LOG", "VERSION"],
            &["LEADS", "UP FOR", "CLOCK", "LOG"],
            self.nodes.iter().map(NodeView::row).collect(),
        );
        let shards = columns(
            ["SHARD", "LEADER", "TERM", "COMMITTED", "APPLIED", "LOG", "KEYS", "REPLICAS"],
            &["SHARD", "TERM", "COMMITTED", "APPLIED", "LOG", "KEYS"],
            self.control.iter().chain(&self.shards).map(ShardView::row).collect(),
        );
        format!(
            "cluster {} ({})  topology {}  policy set {}  {}\n\n{nodes}\n{shards}",
            self.name,
            self.cluster_id,
            self.epoch,
            self.policy_version,
            if self.healthy { "healthy" } else { "UNHEALTHY" }
        )
    }
}

#[cfg(test)]
mod tests {
    use quorate_proto::v1;

    use super::*;

    fn replica(node: u64, applied: u64, digest: u8) -> v1::ReplicaStatus {
        v1::ReplicaStatus {
            node,
            applied_index: applied,
            commit_index: applied,
            digest: vec![digest; 2].into(),
            voter: true,
            keys: 1200,
            log_bytes: 2048,
            term: 2,
            ..Default::default()
        }
    }

    fn status() -> v1::ClusterStatusResponse {
        let node = |id: u64| v1::NodeStatus {
            id,
            address: format!("127.0.0.1:{}", 7599 + id),
            reachable: true,
            uptime_us: 65_400_000,
            leads: 1,
            clock_offset_us: -1500,
            version: "0.1.0".into(),
            log_bytes: 64 << 20,
            ..Default::default()
        };
        v1::ClusterStatusResponse {
            cluster_id: vec![0xab, 0x01].into(),
            name: "quorate".into(),
            epoch: 1,
            policy_version: 2,
            nodes: vec![node(2), node(1)],
            shards: vec![v1::ShardStatus {
                id: 1,
                leader: 1,
                term: 2,
                replicas: vec![replica(2, 9, 1), replica(1, 9, 1)],
                ..Default::default()
            }],
            control: Some(v1::ShardStatus {
                id: 0,
                leader: 2,
                term: 1,
                replicas: vec![replica(1, 4, 0)],
                ..Default::default()
            }),
        }
    }

    #[test]
    fn a_healthy_cluster() {
        let view = StatusView::from(ClusterStatus::from(status()));
        assert_eq!(
            view.table(),
            "\
cluster quorate (ab01)  topology 1  policy set 2  healthy

NODE  ADDRESS         ZONE  STATE  LEADS  UP FOR   CLOCK     LOG  VERSION
n1    127.0.0.1:7600  -     up         1    1m5s  -1.5ms  64 MiB  0.1.0
n2    127.0.0.1:7601  -     up         1    1m5s  -1.5ms  64 MiB  0.1.0

  SHARD  LEADER  TERM  COMMITTED  APPLIED    LOG   KEYS  REPLICAS
control  n2         1          4        4  2 KiB      -  n1
      1  n1         2          9        9  2 KiB  1,200  n1 n2
"
        );
    }

    #[test]
    fn every_problem_is_named() {
        let mut status = status();
        status.nodes[0].reachable = false;
        status.nodes[0].problem = "connection refused".into();
        status.shards[0].leader = 0;
        status.shards[0].replicas[0].digest = vec![9; 2].into();
        status.shards[0].replicas[1].problem = "its log is rotten".into();
        let view = StatusView::from(ClusterStatus::from(status));
        assert!(!view.healthy);
        assert_eq!(
            view.problems,
            [
                "node n2 (127.0.0.1:7601) is unreachable: connection refused",
                "shard 1 has no leader",
                "shard 1 on node n1: its log is rotten",
                "shard 1: nodes n1 and n2 hold different states at index 9",
            ]
        );
        assert!(view.table().contains("UNHEALTHY") && view.table().contains("n1! n2"));
    }
}
