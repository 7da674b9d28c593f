//! The wire that ships: the same fake nodes behind real gRPC servers on loopback.

#![allow(clippy::unwrap_used, reason = "a test")]

mod fake;

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use fake::Fake;
use futures::{Stream, StreamExt as _};
use quorate_client::admin::{Admin, Apply, Change, NewCluster};
use quorate_client::wire::{Wire, WireError};
use quorate_client::{Client, ErrorKind, PolicyVersion, limit};
use quorate_proto::v1;
use quorate_proto::v1::admin_server::AdminServer;
use quorate_proto::v1::checks_server::ChecksServer;
use quorate_proto::v1::topology_server::TopologyServer;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::{JoinHandle, JoinSet};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status, Streaming};

/// A fake node behind a socket.
#[derive(Clone)]
struct Node {
    fake: Fake,
    id: u64,
    /// Told when it was asked to remove policies.
    removing: Arc<Notify>,
    /// How often it was asked for a policy.
    got: Arc<AtomicUsize>,
}

type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

fn unavailable(error: &WireError) -> Status {
    Status::unavailable(error.to_string())
}

#[tonic::async_trait]
impl v1::topology_server::Topology for Node {
    type WatchStream = Answers<v1::TopologyUpdate>;

    async fn watch(&self, _: Request<v1::WatchTopologyRequest>) -> Result<Response<Self::WatchStream>, Status> {
        let updates = self.fake.watch(&fake::address(self.id)).await.map_err(|e| unavailable(&e))?;
        Ok(Response::new(Box::pin(updates.map(|update| update.map_err(|e| unavailable(&e))))))
    }
}

#[tonic::async_trait]
impl v1::checks_server::Checks for Node {
    type FramesStream = Answers<v1::FrameAnswer>;

    async fn frames(&self, request: Request<Streaming<v1::Frame>>) -> Result<Response<Self::FramesStream>, Status> {
        let (frames, taken) = mpsc::channel(16);
        let mut input = request.into_inner();
        tokio::spawn(async move {
            while let Some(Ok(frame)) = input.next().await {
                if frames.send(frame).await.is_err() {
                    break;
                }
            }
        });
        let answers = Wire::frames(&*self.fake, &fake::address(self.id), taken).await.map_err(|e| unavailable(&e))?;
        Ok(Response::new(Box::pin(answers.map(|answer| answer.map_err(|e| unavailable(&e))))))
    }

    async fn report_false_positive(
        &self,
        _: Request<v1::FalsePositiveReport>,
    ) -> Result<Response<v1::FalsePositiveReported>, Status> {
        Err(Status::unimplemented("nobody here asks for it"))
    }

    async fn check(&self, _: Request<v1::CheckRequest>) -> Result<Response<v1::CheckResponse>, Status> {
        Err(Status::unimplemented("not asked by this client"))
    }
}

/// An operator's service that answers from a script.
#[tonic::async_trait]
impl v1::admin_server::Admin for Node {
    async fn cluster_init(
        &self,
        request: Request<v1::ClusterInitRequest>,
    ) -> Result<Response<v1::ClusterInitResponse>, Status> {
        let nodes = (1..=request.into_inner().nodes.len() as u64).collect();
        let made =
            v1::ClusterInitResponse { cluster_id: vec![9; 16].into(), name: "quorate".into(), nodes, shards: 12 };
        Ok(Response::new(made))
    }

    async fn cluster_status(
        &self,
        _: Request<v1::ClusterStatusRequest>,
    ) -> Result<Response<v1::ClusterStatusResponse>, Status> {
        Err(Status::unavailable("no majority of the control group"))
    }

    async fn policy_apply(
        &self,
        request: Request<v1::PolicyApplyRequest>,
    ) -> Result<Response<v1::PolicyApplyResponse>, Status> {
        let request = request.into_inner();
        if request.expected_version == 4 {
            return Err(Status::aborted("version 5 is in force, not 4"));
        }
        let added = |policy: v1::Policy| v1::PolicyChange { name: policy.name, kind: 1 };
        let changes = request.policies.into_iter().map(added).collect();
        Ok(Response::new(v1::PolicyApplyResponse { version: 6, changes, warnings: vec!["mind".into()] }))
    }

    async fn policy_list(&self, _: Request<v1::PolicyListRequest>) -> Result<Response<v1::PolicyListResponse>, Status> {
        let set = quorate_client::PolicySet { version: PolicyVersion(6), policies: fake::policies() };
        Ok(Response::new(v1::PolicyListResponse {
            policies: Some(quorate_proto::convert::policy_set_to_wire(&set)),
            ..Default::default()
        }))
    }

    async fn policy_get(
        &self,
        request: Request<v1::PolicyGetRequest>,
    ) -> Result<Response<v1::PolicyGetResponse>, Status> {
        let name = request.into_inner().name;
        match (name.as_str(), self.got.fetch_add(1, Ordering::Relaxed)) {
            ("unled", 0) => Err(Status::unavailable("no majority of the control group")),
            ("unled", _) => std::future::pending().await,
            _ => Err(Status::not_found(format!("no policy {name:?}"))),
        }
    }

    async fn policy_remove(
        &self,
        _: Request<v1::PolicyRemoveRequest>,
    ) -> Result<Response<v1::PolicyApplyResponse>, Status> {
        self.removing.notify_one();
        std::future::pending().await
    }
}

/// A server that can be stopped.
async fn serve(fake: &Fake, id: u64) -> (String, oneshot::Sender<()>) {
    let (address, stop, _) = serve_node(fake, id).await;
    (address, stop)
}

/// The same, and what it was asked.
async fn serve_node(fake: &Fake, id: u64) -> (String, oneshot::Sender<()>, Node) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    fake.set_address(id, address.clone());
    let (stop, stopped) = oneshot::channel::<()>();
    let node = Node { fake: fake.clone(), id, removing: Arc::default(), got: Arc::default() };
    let server = tonic::transport::Server::builder()
        .add_service(TopologyServer::new(node.clone()))
        .add_service(ChecksServer::new(node.clone()))
        .add_service(AdminServer::new(node.clone()))
        .serve_with_incoming(TcpListenerStream::new(listener));
    tokio::spawn(async move {
        tokio::select! { served = server => served.unwrap(), _ = stopped => {} }
    });
    (address, stop, node)
}

/// Passes on what goes to that address and what comes from it, until it is aborted: then its connections break.
async fn pass_on(to: String) -> (String, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let task = tokio::spawn(async move {
        let mut passing = JoinSet::new();
        while let Ok((mut near, _)) = listener.accept().await {
            let mut far = TcpStream::connect(&to).await.unwrap();
            passing.spawn(async move { tokio::io::copy_bidirectional(&mut near, &mut far).await });
        }
    });
    (address, task)
}

#[tokio::test]
async fn a_node_that_dies_in_a_call_is_named_with_what_happened() {
    let fake = Fake::new(1);
    let (behind, _stop, node) = serve_node(&fake, 1).await;
    let (address, passing) = pass_on(behind).await;
    let admin = Admin::new([&address]).unwrap().deadline(Duration::from_secs(60));
    let call = tokio::spawn(async move { admin.policy_remove(&["ten"], None).await });
    node.removing.notified().await;
    passing.abort();
    let error = call.await.unwrap().unwrap_err();
    assert_eq!((error.kind(), error.may_have_charged()), (ErrorKind::Unavailable, true), "{error}");
    let text = error.to_string();
    assert!(text.starts_with(&format!("{address}: it was lost during the call (")), "{text}");
    assert!(text.contains("it may have been done") && !text.contains("transport error"), "{text}");
}

#[tokio::test]
async fn a_deadline_in_the_middle_of_a_try_keeps_the_reason() {
    let fake = Fake::new(1);
    let (address, _stop, node) = serve_node(&fake, 1).await;
    // Time enough for the first answer on the slowest machine; the second never comes.
    let admin = Admin::new([address]).unwrap().deadline(Duration::from_secs(4));
    let error = admin.policy_get("unled").await.unwrap_err();
    assert_eq!((error.kind(), node.got.load(Ordering::Relaxed)), (ErrorKind::NoLeader, 2), "{error}");
    assert!(error.to_string().contains("no majority of the control group"), "{error}");
    assert!(error.to_string().contains("deadline of 4s"), "{error}");
}

#[tokio::test]
async fn a_cluster_is_not_made_of_one_node_twice() {
    let admin = Admin::new(["127.0.0.1:1", "127.0.0.1:1"]).unwrap();
    let nodes = vec!["a:1".to_owned(), "b:1".to_owned(), "http://A:1".to_owned()];
    let error = admin.cluster_init(NewCluster { nodes, ..NewCluster::default() }).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert_eq!(error.to_string(), "node A:1 is named twice; name each node once");
}

#[tokio::test]
async fn checks_go_over_real_connections_and_outlive_a_node() {
    let fake = Fake::new(3);
    let mut nodes = Vec::new();
    for id in 1..=3 {
        nodes.push(serve(&fake, id).await);
    }
    let endpoints: Vec<_> = nodes.iter().map(|(address, _)| format!("http://{address}")).collect();
    let patient = Duration::from_secs(20);
    let client = Client::builder().endpoints(endpoints).deadline(patient).connect().await.unwrap();
    let results = client.check_many((0..300).map(|i| limit("ten", format!("k{i}")).cost(4))).await;
    for result in results {
        fake.assert_true(&result.unwrap());
    }
    let keys: Vec<_> = (0..20).map(|i| format!("k{i}")).collect();

    // Node 1 goes away, connections and all, and its shard is led by another.
    let (_, stop) = nodes.remove(0);
    fake.set_down(1, true);
    drop(stop);
    fake.elect(1, 2);
    fake.publish();
    for key in &keys {
        let decision = client.check("ten", key.as_str()).cost(4).await.unwrap();
        assert!(decision.allowed);
        fake.assert_true(&decision);
        assert_eq!(fake.used("ten", key), 8);
    }
    client.close().await;
    assert_eq!(fake.sessions(), 0);
}

#[tokio::test]
async fn nobody_listening_is_an_error_that_says_so() {
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().to_string();
    let connect = Client::builder().endpoints([&free]).connect_timeout(Duration::from_millis(200)).connect();
    let error = connect.await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("refused"), "{error}");
    let error = Admin::new([&free]).unwrap().policy_list().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("refused"), "{error}");
}

#[tokio::test]
async fn the_operator_calls_pass_on_what_the_node_says() {
    let fake = Fake::new(1);
    let (address, _stop) = serve(&fake, 1).await;
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().to_string();
    let admin = Admin::new([free, address]).unwrap();

    let nodes = vec!["a:1".to_owned(), "b:1".to_owned()];
    let made = admin.cluster_init(NewCluster { nodes, ..NewCluster::default() }).await.unwrap();
    assert_eq!((made.nodes, made.shards), (vec![1, 2], 12));
    let policies = fake::policies();
    let applied = admin.policy_apply(Apply { policies: policies.clone(), ..Apply::default() }).await.unwrap();
    assert_eq!((applied.version, applied.changes[0].1, applied.warnings.len()), (PolicyVersion(6), Change::Added, 1));
    assert_eq!(admin.policy_list().await.unwrap().policies, policies);

    let stale = Apply { expected_version: Some(PolicyVersion(4)), ..Apply::default() };
    let error = admin.policy_apply(stale).await.unwrap_err();
    assert_eq!((error.kind(), error.to_string().as_str()), (ErrorKind::Conflict, "version 5 is in force, not 4"));
    let error = admin.policy_get("nonesuch").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    // The node never answers that; it has to be reached before the time is over, however slow this machine is.
    let hasty = admin.clone().deadline(Duration::from_secs(2));
    let error = hasty.policy_remove(&["ten"], None).await.unwrap_err();
    assert_eq!((error.kind(), error.may_have_charged()), (ErrorKind::Deadline, true), "{error}");
    // On a busy machine the time may be over in the middle of a try, which then says less.
    let brief = admin.clone().deadline(Duration::from_secs(1));
    let error = loop {
        let error = brief.status().await.unwrap_err();
        if error.kind() != ErrorKind::Deadline && error.to_string().contains("no majority of the control group") {
            break error;
        }
    };
    assert_eq!(error.kind(), ErrorKind::NoLeader);
    assert_eq!(Admin::new(["nonsense"]).unwrap_err().kind(), ErrorKind::Invalid);
}
