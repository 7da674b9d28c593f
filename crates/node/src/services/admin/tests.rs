//! The operator's calls before a cluster of three nodes that is played.

use std::collections::BTreeMap;
use std::sync::Mutex;

use admin_server::Admin as _;
use futures::FutureExt;
use prost::Message;
use quorate_core::{Algorithm, Arc as RingArc, Policy, Rate, ShardId, Span, Term};
use tonic::Code;

use super::*;
use crate::clock::{HandClock, Wall};
use crate::control::{Genesis, NodeInfo, ShardInfo};
use crate::services::peer_calls;

const ME: NodeId = NodeId(1);
const LEADER: NodeId = NodeId(2);

/// Nodes 1 to 3 and shards 1 and 2, which node 1 and node 3 lead. All nodes share one control state.
pub(in crate::services) struct Played {
    born: bool,
    me: Option<NodeId>,
    pub(in crate::services) state: Mutex<ControlState>,
    leadership: watch::Sender<Leadership>,
    /// The policy version that each shard's leader has applied; follows the control state unless it is held.
    held: Mutex<BTreeMap<u32, u64>>,
    unreachable: Mutex<Vec<NodeId>>,
    /// How many control commands are to be done without the asker hearing of it.
    lose: Mutex<usize>,
    proposed: Mutex<usize>,
}

fn led_by(leader: Option<NodeId>) -> Leadership {
    Leadership { term: Term(1), leader, is_self: leader == Some(ME) }
}

pub(in crate::services) fn played(leader: Option<NodeId>) -> Arc<Played> {
    let node = |id| NodeInfo { id: NodeId(id), address: format!("node-{id}:7600"), zone: String::new() };
    let half = u64::MAX / 2;
    let shard = |id, start, end_inclusive| ShardInfo {
        id: ShardId(id),
        arc: RingArc { start, end_inclusive },
        replicas: (1..=3).map(NodeId).collect(),
    };
    let mut state = ControlState::default();
    state.apply(ControlCommand::Genesis(Genesis {
        cluster_id: [5; 16],
        name: "quorate".into(),
        nodes: (1..=3).map(node).collect(),
        shards: vec![shard(1, 0, half), shard(2, half + 1, u64::MAX)],
        ring_secret: [1; 16],
        table_secret: [2; 16],
    }));
    Arc::new(Played {
        born: true,
        me: Some(ME),
        state: Mutex::new(state),
        leadership: watch::Sender::new(led_by(leader)),
        held: Mutex::default(),
        unreachable: Mutex::default(),
        lose: Mutex::default(),
        proposed: Mutex::default(),
    })
}

impl Played {
    fn status_of(&self, node: NodeId) -> v1::NodeStatus {
        let version = self.state.lock().unwrap().policies.version.0;
        let held = self.held.lock().unwrap();
        let replica = |(shard, leader)| v1::ReplicaStatus {
            shard,
            leader,
            term: 4,
            policy_version: held.get(&shard).copied().unwrap_or(version),
            ..v1::ReplicaStatus::default()
        };
        let replicas = [(0, 2), (1, 1), (2, 3)].map(replica).to_vec();
        v1::NodeStatus { id: node.0, version: "0.1.0".into(), replicas, ..v1::NodeStatus::default() }
    }

    fn apply(&self, command: ControlCommand) -> ControlAnswer {
        *self.proposed.lock().unwrap() += 1;
        self.state.lock().unwrap().apply(command)
    }

    fn answer(&self, node: NodeId, kind: Kind, body: &Bytes) -> Result<Bytes, CallError> {
        if self.unreachable.lock().unwrap().contains(&node) {
            return Err(CallError::Unreachable { node, problem: "connection refused".into() });
        }
        match kind {
            Kind::Status => Ok(self.status_of(node).encode_to_vec().into()),
            Kind::Control if node == LEADER => {
                let answer = Ok(self.apply(ControlCommand::decode(body).unwrap()));
                let mut lose = self.lose.lock().unwrap();
                if *lose > 0 {
                    *lose -= 1;
                    return Err(CallError::Lost { node, problem: "the stream broke".into() });
                }
                Ok(peer_calls::reply_to_wire(answer).encode_to_vec().into())
            }
            Kind::Control => {
                let refused = Err(ProposeError::NotLeader { leader: Some(LEADER) });
                Ok(peer_calls::reply_to_wire(refused).encode_to_vec().into())
            }
            _ => Err(CallError::Remote { node, problem: "not played".into() }),
        }
    }
}

#[tonic::async_trait]
impl Cluster for Played {
    fn me(&self) -> Option<NodeId> {
        self.me
    }

    fn state(&self) -> Option<Arc<ControlState>> {
        self.born.then(|| Arc::new(self.state.lock().unwrap().clone()))
    }

    fn leadership(&self) -> watch::Receiver<Leadership> {
        self.leadership.subscribe()
    }

    async fn propose(&self, command: ControlCommand) -> Result<ControlAnswer, ProposeError> {
        match *self.leadership.borrow() {
            Leadership { is_self: true, .. } => Ok(self.apply(command)),
            Leadership { leader, .. } => Err(ProposeError::NotLeader { leader }),
        }
    }

    fn call(&self, node: NodeId, kind: Kind, body: Bytes, _: Duration) -> BoxFuture<'static, Result<Bytes, CallError>> {
        std::future::ready(self.answer(node, kind, &body)).boxed()
    }

    fn status(&self) -> v1::NodeStatus {
        self.status_of(ME)
    }

    fn now(&self) -> Stamp {
        Stamp(77)
    }

    async fn found(&self, _: v1::ClusterInitRequest) -> Result<v1::ClusterInitResponse, Status> {
        Err(Status::unimplemented("not played"))
    }
}

fn window(name: &str, limit: u64) -> v1::Policy {
    policy_to_wire(&Policy::new(name, Algorithm::FixedWindow { limit, window: Span(1_000_000) }))
}

fn applying(policies: Vec<v1::Policy>) -> v1::PolicyApplyRequest {
    v1::PolicyApplyRequest { policies, ..v1::PolicyApplyRequest::default() }
}

async fn apply(cluster: &Arc<Played>, request: v1::PolicyApplyRequest) -> Result<v1::PolicyApplyResponse, Status> {
    Admin::new(Arc::clone(cluster)).policy_apply(Request::new(request)).await.map(Response::into_inner)
}

async fn remove(cluster: &Arc<Played>, names: &[&str]) -> Result<v1::PolicyApplyResponse, Status> {
    let names = names.iter().map(|&name| name.to_owned()).collect();
    let request = v1::PolicyRemoveRequest { names, expected_version: 0 };
    Admin::new(Arc::clone(cluster)).policy_remove(Request::new(request)).await.map(Response::into_inner)
}

#[tokio::test(start_paused = true)]
async fn policies_are_applied_wherever_the_control_groups_leader_is() {
    for leader in [ME, LEADER] {
        let cluster = played(Some(leader));
        let done = apply(&cluster, applying(vec![window("a", 1), window("b", 2)])).await.unwrap();
        assert_eq!((done.version, done.changes.len(), done.warnings.len()), (1, 2, 0));
        let mut changed = window("a", 1);
        let refill = Some(v1::Rate { units: 1, period_us: 1_000_000 });
        changed.algorithm = Some(v1::policy::Algorithm::TokenBucket(v1::TokenBucket { capacity: 5, refill }));
        let done = apply(&cluster, applying(vec![window("b", 2), changed])).await.unwrap();
        assert_eq!(done.version, 2);
        assert_eq!(done.changes.iter().map(|change| change.kind).collect::<Vec<_>>(), [0, 2]);
        assert!(done.warnings[0].contains("as good as new"), "{:?}", done.warnings);
        assert_eq!(remove(&cluster, &["a"]).await.unwrap().version, 3);
    }
}

#[tokio::test(start_paused = true)]
async fn all_mistakes_are_told_at_once_and_nothing_is_applied() {
    let cluster = played(Some(ME));
    let nameless = window("", 1);
    let algorithmless = v1::Policy { name: "x".into(), ..v1::Policy::default() };
    let slow = Policy::new("slow", Algorithm::TokenBucket { capacity: 1, refill: Rate { units: 0, period: Span(5) } });
    let refused =
        apply(&cluster, applying(vec![window("good", 1), nameless, algorithmless, policy_to_wire(&slow)])).await;
    let status = refused.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    for text in ["policies[1]", "policies[2]", "algorithm: it is missing", "policies[3]", "nothing was applied"] {
        assert!(status.message().contains(text), "{text}: {status:?}");
    }
    assert_eq!(*cluster.proposed.lock().unwrap(), 0);
    let many = apply(&cluster, applying(vec![window("", 1); 50])).await.unwrap_err();
    assert!(many.message().contains("and 30 more"), "{many:?}");
    let none = apply(&cluster, applying(vec![])).await.unwrap_err();
    assert_eq!(none.code(), Code::InvalidArgument);
    let hordes = apply(&cluster, applying(vec![window("a", 1); 4097])).await.unwrap_err();
    assert!(hordes.message().contains("at most 4096"), "{hordes:?}");
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_changes_nothing() {
    let cluster = played(Some(ME));
    let request = v1::PolicyApplyRequest { dry_run: true, ..applying(vec![window("a", 1)]) };
    let would = apply(&cluster, request).await.unwrap();
    assert_eq!((would.version, would.changes[0].kind), (0, 1));
    assert_eq!(*cluster.proposed.lock().unwrap(), 0);
}

#[tokio::test(start_paused = true)]
async fn refusals_keep_their_kind_over_the_way_to_the_leader() {
    for leader in [ME, LEADER] {
        let cluster = played(Some(leader));
        let request = v1::PolicyApplyRequest { expected_version: 9, ..applying(vec![window("a", 1)]) };
        assert_eq!(apply(&cluster, request).await.unwrap_err().code(), Code::Aborted);
        assert_eq!(remove(&cluster, &["nobody"]).await.unwrap_err().code(), Code::NotFound);
        assert_eq!(remove(&cluster, &[]).await.unwrap_err().code(), Code::InvalidArgument);
    }
}

#[tokio::test(start_paused = true)]
async fn it_returns_once_every_shard_enforces_or_names_those_that_do_not() {
    let cluster = played(Some(ME));
    cluster.held.lock().unwrap().extend([(1, 0), (2, 0)]);
    let waiting = tokio::spawn({
        let cluster = Arc::clone(&cluster);
        async move { apply(&cluster, applying(vec![window("a", 1)])).await }
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!waiting.is_finished());
    cluster.held.lock().unwrap().clear();
    assert_eq!(waiting.await.unwrap().unwrap().version, 1);

    cluster.held.lock().unwrap().insert(2, 1);
    cluster.unreachable.lock().unwrap().push(LEADER);
    let status = apply(&cluster, applying(vec![window("b", 1)])).await.unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded);
    assert!(status.message().contains("not enforce them yet: s2 (n2 cannot be reached)"), "{status:?}");
}

#[tokio::test(start_paused = true)]
async fn what_may_have_been_done_is_asked_again_only_where_that_is_safe() {
    let cluster = played(Some(LEADER));
    *cluster.lose.lock().unwrap() = 1;
    assert_eq!(apply(&cluster, applying(vec![window("a", 1)])).await.unwrap().version, 1);
    assert_eq!(*cluster.proposed.lock().unwrap(), 2);
    *cluster.lose.lock().unwrap() = 1;
    let status = remove(&cluster, &["a"]).await.unwrap_err();
    assert_eq!(status.code(), Code::Unknown);
    assert_eq!(*cluster.proposed.lock().unwrap(), 3);
}

#[tokio::test(start_paused = true)]
async fn without_a_leader_it_says_so_and_with_a_new_one_it_goes_on() {
    let cluster = played(None);
    let status = apply(&cluster, applying(vec![window("a", 1)])).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    cluster.leadership.send_replace(led_by(Some(NodeId(3))));
    let waiting = tokio::spawn({
        let cluster = Arc::clone(&cluster);
        async move { apply(&cluster, applying(vec![window("a", 1)])).await }
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!waiting.is_finished());
    cluster.leadership.send_replace(led_by(Some(LEADER)));
    assert_eq!(waiting.await.unwrap().unwrap().version, 1);
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_briefly_still_hears_why() {
    let admin = Admin::new(played(None));
    let mut request = Request::new(applying(vec![window("a", 1)]));
    request.set_timeout(Duration::from_secs(2));
    let answer = tokio::time::timeout(Duration::from_secs(2), admin.policy_apply(request)).await;
    let status = answer.expect("it is answered before its caller gives up").unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert!(status.message().contains("it has no leader that is known here"), "{status:?}");
}

#[tokio::test(start_paused = true)]
async fn policies_are_listed_and_got() {
    let cluster = played(Some(ME));
    apply(&cluster, applying(vec![window("a", 1)])).await.unwrap();
    let admin = Admin::new(cluster);
    let list =
        admin.policy_list(Request::new(v1::PolicyListRequest::default())).await.unwrap().into_inner().policies.unwrap();
    assert_eq!((list.version, list.policies.len()), (1, 1));
    let get = |name: &str| admin.policy_get(Request::new(v1::PolicyGetRequest { name: name.to_owned() }));
    assert_eq!(get("a").await.unwrap().into_inner().policy.unwrap().id, 1);
    assert_eq!(get("b").await.unwrap_err().code(), Code::NotFound);
}

#[tokio::test(start_paused = true)]
async fn the_status_names_who_does_not_answer() {
    let cluster = played(Some(ME));
    cluster.unreachable.lock().unwrap().push(NodeId(3));
    let admin = Admin::new(cluster);
    let status = admin.cluster_status(Request::new(v1::ClusterStatusRequest {})).await.unwrap().into_inner();
    let reached: Vec<_> = status.nodes.iter().map(|node| (node.id, node.reachable, node.leads)).collect();
    assert_eq!(reached, [(1, true, 1), (2, true, 0), (3, false, 1)]);
    assert!(status.nodes[2].problem.contains("connection refused"));
    assert_eq!(status.nodes[2].address, "node-3:7600");
    let shards: Vec<_> = status.shards.iter().map(|shard| (shard.id, shard.leader, shard.replicas.len())).collect();
    assert_eq!(shards, [(1, 1, 3), (2, 3, 3)]);
    let control = status.control.unwrap();
    assert_eq!((control.leader, control.replicas.len()), (2, 3));
    for replicas in status.shards.iter().map(|shard| &shard.replicas).chain([&control.replicas]) {
        let silent: Vec<_> =
            replicas.iter().filter(|replica| !replica.problem.is_empty()).map(|replica| replica.node).collect();
        assert_eq!(silent, [3], "{replicas:?}");
        assert_eq!(replicas[2].problem, "its node does not answer");
    }
}

#[tokio::test(start_paused = true)]
async fn where_no_majority_answers_nobody_is_said_to_lead() {
    let cluster = played(Some(ME));
    cluster.unreachable.lock().unwrap().extend([NodeId(2), NodeId(3)]);
    let status = Admin::new(cluster).cluster_status(Request::new(v1::ClusterStatusRequest {})).await.unwrap();
    let status = status.into_inner();
    let leaders: Vec<_> = status.shards.iter().map(|shard| shard.leader).collect();
    assert_eq!(leaders, [0, 0]);
    assert!(status.nodes.iter().all(|node| node.leads == 0));
}

#[tokio::test(start_paused = true)]
async fn the_status_names_replicas_that_do_not_run() {
    let cluster = played(Some(ME));
    cluster.state.lock().unwrap().shards[1].id = ShardId(7);
    let admin = Admin::new(cluster);
    let status = admin.cluster_status(Request::new(v1::ClusterStatusRequest {})).await.unwrap().into_inner();
    assert!(status.shards[0].replicas.iter().all(|replica| replica.problem.is_empty()));
    let missing = &status.shards[1].replicas;
    assert_eq!((status.shards[1].leader, missing.len()), (0, 3));
    assert!(missing.iter().all(|replica| replica.problem == "it does not run on its node"), "{missing:?}");
}

#[tokio::test(start_paused = true)]
async fn a_node_without_a_cluster_says_what_to_do() {
    for (me, code) in [(None, Code::FailedPrecondition), (Some(ME), Code::Unavailable)] {
        let unborn = Played { born: false, me, ..Arc::into_inner(played(None)).unwrap() };
        let admin = Admin::new(Arc::new(unborn));
        assert_eq!(admin.policy_list(Request::new(v1::PolicyListRequest::default())).await.unwrap_err().code(), code);
        let status = admin.cluster_status(Request::new(v1::ClusterStatusRequest {})).await.unwrap().into_inner();
        assert!(status.cluster_id.is_empty() && status.nodes[0].reachable);
    }
}

#[tokio::test(start_paused = true)]
async fn other_nodes_questions_are_answered() {
    let (cluster, clock) = (played(Some(ME)), HandClock::at(Wall(42)));
    let ask = |kind, body| peer_calls::answer(&cluster, &clock, kind, body);
    let wall = ask(Kind::Clock, Bytes::new()).await.unwrap();
    assert_eq!(crate::clock::clock_from_wire(&wall), Some(Wall(42)));
    let status = v1::NodeStatus::decode(ask(Kind::Status, Bytes::new()).await.unwrap()).unwrap();
    assert_eq!(status.id, 1);
    assert!(ask(Kind::Control, Bytes::from_static(b"\xff\xff")).await.is_err());
    assert!(ask(Kind::Append, Bytes::new()).await.is_err());
}
