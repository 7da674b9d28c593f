//! A cluster: what it was made of, and how its nodes and shards are.

use std::collections::{BTreeMap, BTreeSet};

use quorate_client::admin::{ClusterStatus, MadeCluster, NodeStatus, ReplicaStatus, ShardStatus};
use quorate_core::visible;
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
            visible::line(&self.name),
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
    /// Whether every node was reached, and every shard has one leader and all its replicas, which work.
    pub healthy: bool,
    /// Whether the node that was asked belongs to a cluster and has heard from it; if not, there is only that node.
    pub in_cluster: bool,
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
            in_cluster: !status.cluster_id.is_empty(),
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
        if !self.in_cluster {
            return self.nodes.iter().map(NodeView::homeless).collect();
        }
        let nodes = self.nodes.iter().filter(|node| !node.reachable || !node.problem.is_empty()).map(|node| {
            let what = if node.reachable { "has a problem" } else { "is unreachable" };
            let why = if node.problem.is_empty() { String::new() } else { format!(": {}", node.problem) };
            format!("node n{} ({}) {what}{why}", node.id, node.address)
        });
        let unreachable = self.unreachable();
        let groups = self.groups().flat_map(|group| group.problems(&unreachable));
        nodes.chain(groups).chain(self.short_of_replicas(&unreachable)).collect()
    }

    fn groups(&self) -> impl Iterator<Item = &ShardView> {
        self.control.iter().chain(&self.shards)
    }

    fn unreachable(&self) -> BTreeSet<u64> {
        self.nodes.iter().filter(|node| !node.reachable).map(|node| node.id).collect()
    }

    /// Groups with fewer live replicas than they should have, those that miss the same ones together.
    fn short_of_replicas(&self, unreachable: &BTreeSet<u64>) -> Vec<String> {
        let mut alike: BTreeMap<(Vec<u64>, usize), Vec<&ShardView>> = BTreeMap::new();
        for group in self.groups() {
            let lives = |replica: &ReplicaView| replica.problem.is_empty() && !unreachable.contains(&replica.node);
            let missing: Vec<u64> =
                group.replicas.iter().filter(|replica| !lives(replica)).map(|replica| replica.node).collect();
            if !missing.is_empty() || group.replicas.is_empty() {
                alike.entry((missing, group.replicas.len())).or_default().push(group);
            }
        }
        let line = |((missing, all), groups): ((Vec<u64>, usize), Vec<&ShardView>)| {
            let live = all - missing.len();
            let without: Vec<String> = missing.iter().map(|node| format!("n{node}")).collect();
            let without = if without.is_empty() { String::new() } else { format!(", not {}", without.join(", ")) };
            let decides = if live * 2 > all { "" } else { "; that is no majority, so nothing can be decided there" };
            format!("{}: {live} of {all} replicas live{without}{decides}", titles(&groups))
        };
        alike.into_iter().map(line).collect()
    }
}

/// `the control group and shards 1, 2`.
fn titles(groups: &[&ShardView]) -> String {
    let shards: Vec<String> = groups.iter().filter(|group| group.id != 0).map(|group| group.id.to_string()).collect();
    let control = groups.iter().find(|group| group.id == 0).map(|group| group.title());
    let shards = match shards.as_slice() {
        [] => None,
        [one] => Some(format!("shard {one}")),
        more => Some(format!("shards {}", more.join(", "))),
    };
    control.into_iter().chain(shards).collect::<Vec<_>>().join(" and ")
}

impl ShardView {
    fn title(&self) -> String {
        if self.id == 0 { "the control group".into() } else { format!("shard {}", self.id) }
    }

    /// What is wrong with it, but for replicas on nodes that cannot be reached: that is told of the nodes.
    fn problems(&self, unreachable: &BTreeSet<u64>) -> Vec<String> {
        let leaderless = (self.leader == 0).then(|| format!("{} has no leader", self.title()));
        let broken =
            self.replicas.iter().filter(|replica| !replica.problem.is_empty() && !unreachable.contains(&replica.node));
        let broken = broken.map(|replica| format!("{} on node n{}: {}", self.title(), replica.node, replica.problem));
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
    /// What to do about a node that is in no cluster, or knows nothing of it.
    fn homeless(&self) -> String {
        let address = &self.address;
        if self.id == 0 {
            format!(
                "node {address} is in no cluster yet; make one of it and the others: quorate cluster init --nodes {address},…"
            )
        } else {
            format!(
                "node n{} ({address}) has yet to hear from its cluster; try again in a moment, or ask another",
                self.id
            )
        }
    }

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
            if self.id == 0 { "-".into() } else { format!("n{}", self.id) },
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
        if !self.in_cluster {
            return format!("no cluster\n\n{nodes}");
        }
        let shards = columns(
            ["SHARD", "LEADER", "TERM", "COMMITTED", "APPLIED", "LOG", "KEYS", "REPLICAS"],
            &["SHARD", "TERM", "COMMITTED", "APPLIED", "LOG", "KEYS"],
            self.groups().map(ShardView::row).collect(),
        );
        format!(
            "cluster {} ({})  topology {}  policy set {}  {}\n\n{nodes}\n{shards}",
            visible::line(&self.name),
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
                "shard 1: 0 of 2 replicas live, not n1, n2; that is no majority, so nothing can be decided there",
            ]
        );
        assert!(view.table().contains("UNHEALTHY") && view.table().contains("n1! n2"));
    }

    #[test]
    fn a_group_with_too_few_live_replicas_is_named_with_who_is_missing() {
        let mut status = status();
        let control = status.control.as_mut().unwrap();
        control.replicas.push(v1::ReplicaStatus {
            node: 2,
            problem: "its node does not answer".into(),
            ..Default::default()
        });
        let mut second = status.shards[0].clone();
        second.id = 2;
        second.replicas[0].problem = "its node does not answer".into();
        let mut third = v1::ShardStatus { id: 3, ..second.clone() };
        third.leader = 0;
        status.shards.extend([second, third]);
        status.nodes[0].reachable = false;
        status.nodes[0].problem = "connection refused".into();
        let view = StatusView::from(ClusterStatus::from(status));
        assert_eq!(
            view.problems,
            [
                "node n2 (127.0.0.1:7601) is unreachable: connection refused",
                "shard 3 has no leader",
                "the control group and shards 1, 2, 3: 1 of 2 replicas live, not n2; that is no majority, so nothing can be decided there",
            ]
        );
        assert!(!view.healthy);
    }

    #[test]
    fn a_replica_that_does_not_run_on_a_node_that_does_is_a_problem() {
        let mut status = status();
        status.shards[0].replicas[1].problem = "it does not run on its node".into();
        let view = StatusView::from(ClusterStatus::from(status));
        assert_eq!(
            view.problems,
            [
                "shard 1 on node n1: it does not run on its node",
                "shard 1: 1 of 2 replicas live, not n1; that is no majority, so nothing can be decided there"
            ]
        );
    }

    #[test]
    fn a_node_in_no_cluster_is_not_healthy_and_says_what_to_do() {
        let me = v1::NodeStatus { address: "10.0.0.1:7600".into(), reachable: true, ..Default::default() };
        let alone =
            |id| v1::ClusterStatusResponse { nodes: vec![v1::NodeStatus { id, ..me.clone() }], ..Default::default() };
        let view = StatusView::from(ClusterStatus::from(alone(0)));
        assert_eq!(
            view.problems,
            [
                "node 10.0.0.1:7600 is in no cluster yet; make one of it and the others: quorate cluster init --nodes 10.0.0.1:7600,…"
            ]
        );
        assert!(!view.healthy && view.table().starts_with("no cluster\n\nNODE"), "{}", view.table());
        let json = serde_json::to_string(&view).unwrap();
        assert!(
            json.starts_with(r#"{"healthy":false,"in_cluster":false,"problems":["node 10.0.0.1:7600 is in no"#),
            "{json}"
        );
        let joining = StatusView::from(ClusterStatus::from(alone(3)));
        assert_eq!(
            joining.problems,
            ["node n3 (10.0.0.1:7600) has yet to hear from its cluster; try again in a moment, or ask another"]
        );
    }

    #[test]
    fn names_from_the_cluster_cannot_command_a_terminal() {
        let mut status = status();
        status.name = "q\u{1b}]0;x\u{7}\n".into();
        status.nodes[0].zone = "\u{1b}[2J\nroot".into();
        let table = StatusView::from(ClusterStatus::from(status)).table();
        assert!(table.starts_with("cluster q\\u001b]0;x\\u0007\\n (ab01)"), "{table}");
        assert!(table.contains("\\u001b[2J\\nroot") && !table.contains('\u{1b}'), "{table}");
    }
}
