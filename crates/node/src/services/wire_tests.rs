//! The services over a real port, asked by the real client; the shards behind them are played.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use quorate_client::{Client, ErrorKind, limit};
use quorate_core::{Algorithm, NodeId, Policy, Span};
use quorate_proto::v1::{self, peer_server};
use tokio::net::TcpListener;
use tokio::sync::{oneshot, watch};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Request, Response, Status, Streaming};
use tonic_health::pb::health_check_response::ServingStatus;

use super::admin::tests::played;
use super::tests::Instant;
use super::*;
use crate::clock::{Clock, ClusterClock, SystemClock, Wall};
use crate::control::{ControlCommand, ControlState, PutPolicies};
use crate::raft::Leadership;

/// Other nodes are not played.
struct NoPeers;

#[tonic::async_trait]
impl peer_server::Peer for NoPeers {
    type ExchangeStream = ReceiverStream<Result<v1::PeerResponses, Status>>;
    type FetchSnapshotStream = ReceiverStream<Result<v1::SnapshotPart, Status>>;

    async fn fetch_snapshot(
        &self,
        _: Request<v1::FetchSnapshotRequest>,
    ) -> Result<Response<Self::FetchSnapshotStream>, Status> {
        Err(Status::unimplemented("not played"))
    }

    async fn exchange(
        &self,
        _: Request<Streaming<v1::PeerRequests>>,
    ) -> Result<Response<Self::ExchangeStream>, Status> {
        Err(Status::unimplemented("not played"))
    }

    async fn install_snapshot(
        &self,
        _: Request<Streaming<v1::SnapshotPart>>,
    ) -> Result<Response<v1::PeerResponse>, Status> {
        Err(Status::unimplemented("not played"))
    }

    async fn identify(&self, _: Request<v1::IdentifyRequest>) -> Result<Response<v1::IdentifyResponse>, Status> {
        Ok(Response::new(v1::IdentifyResponse::default()))
    }

    async fn assign(&self, _: Request<v1::AssignRequest>) -> Result<Response<v1::AssignResponse>, Status> {
        Err(Status::unimplemented("not played"))
    }
}

struct Served {
    address: String,
    health: Health,
    ingress: Arc<Ingress>,
    clients: super::front::TopologySender,
    stop: Option<oneshot::Sender<()>>,
    server: tokio::task::JoinHandle<Result<(), tonic::transport::Error>>,
    /// What the parts follow: they go on for as long as these live.
    alive: Vec<watch::Sender<Leadership>>,
    control: Option<(watch::Sender<Arc<ControlState>>, Front)>,
}

/// A node in no cluster yet.
async fn served() -> Served {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let ingress = Arc::new(Ingress::new(Arc::new(SystemClock)));
    let (clients, newest) = watch::channel(None);
    let health = Health::default();
    health.set_serving(false).await;
    let checks = Checks::new(Arc::clone(&ingress), address.clone(), Arc::default(), watch::channel(None).1);
    let routes = routes(checks, Topology::new(newest), Admin::new(played(Some(NodeId(1)))), NoPeers, &health);
    let (stop, stopped) = oneshot::channel();
    let server = tokio::spawn(serve(listener, crate::caps::CONNECTIONS_MIN, routes, stopped.map(drop)));
    Served { address, health, ingress, clients, stop: Some(stop), server, alive: Vec::new(), control: None }
}

impl Served {
    /// Makes it node 1 of a cluster whose shards it leads, with one policy.
    async fn join(&mut self) {
        let mut state = played(None).state.lock().unwrap().clone();
        let window = Algorithm::FixedWindow { limit: 3, window: Span(366 * 86_400_000_000) };
        let put = PutPolicies { policies: vec![Policy::new("per-user", window)], ..PutPolicies::default() };
        state.apply(ControlCommand::PutPolicies(put));
        state.nodes.values_mut().for_each(|node| node.address.clone_from(&self.address));
        let shards = state.shards.clone();
        let (control, follow) = watch::channel(Arc::new(state));
        let clock = ClusterClock::new(NodeId(1), Arc::new(SystemClock));
        let ask = |_| -> BoxFuture<'static, Option<Wall>> { Box::pin(async { Some(SystemClock.wall()) }) };
        let front = Front::start(Arc::clone(&self.ingress), clock, follow, ask, self.clients.clone(), 4096);
        for shard in shards {
            let (instant, leadership) = Instant::new(shard.id, shard.arc);
            front.add_shard(instant, shard.arc, || 0);
            self.alive.push(leadership);
        }
        self.control = Some((control, front));
        self.health.set_serving(true).await;
    }

    async fn channel(&self) -> Channel {
        Channel::from_shared(format!("http://{}", self.address)).unwrap().connect().await.unwrap()
    }
}

async fn health(served: &Served, service: &str) -> ServingStatus {
    let mut client = tonic_health::pb::health_client::HealthClient::new(served.channel().await);
    let request = tonic_health::pb::HealthCheckRequest { service: service.to_owned() };
    client.check(request).await.unwrap().into_inner().status()
}

#[tokio::test]
async fn a_client_checks_and_is_denied_over_the_wire() {
    let mut served = served().await;
    served.join().await;
    let client = Client::builder()
        .endpoints([&served.address])
        .deadline(Duration::from_secs(20))
        .connect_timeout(Duration::from_secs(20))
        .connect()
        .await
        .unwrap();
    let mut allowed = Vec::new();
    for _ in 0..4 {
        allowed.push(client.check("per-user", "alice").await.unwrap().allowed);
    }
    assert_eq!(allowed, [true, true, true, false]);
    let questions = (0..500).map(|i| limit("per-user", format!("user-{i}")));
    let decisions = client.check_many(questions.collect::<Vec<_>>()).await;
    assert!(decisions.iter().all(|decision| decision.as_ref().unwrap().allowed));
    assert!(client.peek("per-user", "bob").await.unwrap().allowed);
    client.reset("per-user", "alice").await.unwrap();
    assert!(client.check("per-user", "alice").await.unwrap().allowed);
    assert_eq!(client.check("nobody", "alice").await.unwrap_err().kind(), ErrorKind::UnknownPolicy);
}

#[tokio::test]
async fn a_plain_check_is_routed_by_the_node() {
    let mut served = served().await;
    let mut checks = v1::checks_client::ChecksClient::new(served.channel().await);
    let named = |policy: &str, key: &str| v1::NamedLimit { policy: policy.into(), key: key.into(), cost: Some(2) };
    let asking = |limits: Vec<v1::NamedLimit>| v1::CheckRequest { limits, ..v1::CheckRequest::default() };
    let refused = checks.check(asking(vec![named("per-user", "alice")])).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::FailedPrecondition);
    served.join().await;
    while served.clients.borrow().is_none() {
        tokio::task::yield_now().await;
    }
    let first = checks.check(asking(vec![named("per-user", "alice")])).await.unwrap().into_inner();
    assert_eq!((first.allowed, first.limits[0].remaining, first.limits[0].limit), (true, 1, 3));
    assert!(first.receipt.unwrap().index > 0);
    let second = checks.check(asking(vec![named("per-user", "alice")])).await.unwrap().into_inner();
    assert!(!second.allowed && second.retry_after_us.is_some());
    assert_eq!(checks.check(asking(vec![])).await.unwrap_err().code(), tonic::Code::InvalidArgument);
    let unknown = checks.check(asking(vec![named("nobody", "alice")])).await.unwrap_err();
    assert_eq!(unknown.code(), tonic::Code::NotFound);
    // Two of these fall to different shards: charged together, or given back.
    let spread = |first, others| {
        let cost = move |i| Some(if i == 0 { first } else { others });
        let named = |i| v1::NamedLimit { cost: cost(i), ..named("per-user", &format!("user-{i}")) };
        asking((0..16).map(named).collect())
    };
    assert!(checks.check(spread(2, 2)).await.unwrap().into_inner().allowed);
    let denied = checks.check(spread(2, 1)).await.unwrap().into_inner();
    assert!(!denied.allowed && denied.limits.iter().all(|limit| !limit.charged && limit.remaining == 1));
    assert!(checks.check(spread(1, 1)).await.unwrap().into_inner().allowed);
}

#[tokio::test]
async fn health_and_reflection_are_served() {
    let mut served = served().await;
    assert_eq!(health(&served, "").await, ServingStatus::NotServing);
    assert_eq!(health(&served, "quorate.v1.Admin").await, ServingStatus::Serving);
    served.join().await;
    assert_eq!(health(&served, "").await, ServingStatus::Serving);
    assert_eq!(health(&served, "quorate.v1.Checks").await, ServingStatus::Serving);

    use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
    use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
    let mut client =
        tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient::new(served.channel().await);
    let request = tonic_reflection::pb::v1::ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    let mut answers = client.server_reflection_info(futures::stream::iter([request])).await.unwrap().into_inner();
    let Some(MessageResponse::ListServicesResponse(list)) = answers.message().await.unwrap().unwrap().message_response
    else {
        panic!("not a list");
    };
    let names: Vec<_> = list.service.iter().map(|service| service.name.as_str()).collect();
    for wanted in ["quorate.v1.Checks", "quorate.v1.Admin", "quorate.v1.Topology", "grpc.health.v1.Health"] {
        assert!(names.contains(&wanted), "{wanted} is not among {names:?}");
    }
}

#[tokio::test]
async fn it_stops_although_streams_are_open() {
    let mut served = served().await;
    served.join().await;
    let mut topology = v1::topology_client::TopologyClient::new(served.channel().await);
    while served.clients.borrow().is_none() {
        tokio::task::yield_now().await;
    }
    let mut updates = topology.watch(v1::WatchTopologyRequest {}).await.unwrap().into_inner();
    let first = updates.message().await.unwrap().unwrap();
    assert_eq!((first.nodes.len(), first.shards.len(), first.shards[0].leader), (3, 2, 1));
    drop(served.stop.take());
    (&mut served.server).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_message_that_is_too_large_ends_the_stream_and_says_why() {
    let mut served = served().await;
    served.join().await;
    let mut checks = v1::checks_client::ChecksClient::new(served.channel().await);
    let large = v1::Frame { tag: 2, keys: vec![0; crate::caps::CLIENT_MESSAGE + 1].into(), ..v1::Frame::default() };
    let frames = futures::stream::iter([v1::Frame { tag: 1, ..v1::Frame::default() }, large]);
    let mut answers = checks.frames(frames).await.unwrap().into_inner();
    let first = answers.message().await.unwrap().unwrap();
    assert_eq!((first.tag, first.error.unwrap().code()), (1, v1::ErrorCode::Invalid));
    assert_eq!(answers.message().await.unwrap_err().code(), tonic::Code::OutOfRange);
}
