//! One port for clients, operators and other nodes: the gRPC server and its bounds.

use std::future::Future;

use quorate_proto::v1::admin_server::{Admin, AdminServer};
use quorate_proto::v1::checks_server::ChecksServer;
use quorate_proto::v1::peer_server::{Peer, PeerServer};
use quorate_proto::v1::topology_server::TopologyServer;
use tokio::net::TcpListener;
use tonic::service::Routes;
use tonic::transport::Server;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

use super::connections::Connections;
use super::{Checks, Topology};
use crate::caps;

/// The services whose health is told, besides "" for the whole node.
const NAMES: [&str; 3] = ["quorate.v1.Checks", "quorate.v1.Topology", "quorate.v1.Admin"];

/// The node's health, as `grpc.health.v1` tells it. Clones share it.
#[derive(Clone)]
pub struct Health(HealthReporter);

impl std::fmt::Debug for Health {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Health")
    }
}

impl Default for Health {
    fn default() -> Self {
        Health(HealthReporter::new())
    }
}

impl Health {
    /// Tells whether the node serves: it is a member of a cluster, and its groups run. The operator's calls always are.
    pub async fn set_serving(&self, serving: bool) {
        let status = if serving { ServingStatus::Serving } else { ServingStatus::NotServing };
        for name in NAMES {
            let always = name == "quorate.v1.Admin";
            self.0.set_service_status(name, if always { ServingStatus::Serving } else { status }).await;
        }
        self.0.set_service_status("", status).await;
    }
}

/// All services of a node, with health and reflection.
///
/// # Panics
/// Never: the descriptors are those that the code was generated from.
pub fn routes(checks: Checks, topology: Topology, admin: impl Admin, peer: impl Peer, health: &Health) -> Routes {
    let health = tonic_health::server::HealthService::from_health_reporter(health.0.clone());
    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(quorate_proto::DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    const VALID: &str = "the descriptors are those that the code was generated from";
    Routes::new(
        ChecksServer::new(checks)
            .max_decoding_message_size(caps::CLIENT_MESSAGE)
            .max_encoding_message_size(caps::CLIENT_MESSAGE),
    )
    .add_service(TopologyServer::new(topology).max_decoding_message_size(caps::CLIENT_MESSAGE))
    .add_service(AdminServer::new(admin).max_decoding_message_size(caps::ADMIN_MESSAGE))
    .add_service(
        PeerServer::new(peer)
            .max_decoding_message_size(caps::PEER_MESSAGE)
            .max_encoding_message_size(caps::PEER_MESSAGE),
    )
    .add_service(tonic_health::pb::health_server::HealthServer::new(health))
    .add_service(reflection().build_v1().expect(VALID))
    .add_service(reflection().build_v1alpha().expect(VALID))
}

/// Serves up to `room` connections at once on that listener until `stop` resolves; then takes no more calls, and gives those that are under way
/// [`caps::STOP_GRACE`] to end. Streams that clients keep open end with that.
///
/// # Errors
/// Where the server cannot go on.
pub async fn serve(
    listener: TcpListener,
    room: usize,
    routes: Routes,
    stop: impl Future<Output = ()>,
) -> Result<(), tonic::transport::Error> {
    let (stopping, stopped) = tokio::sync::oneshot::channel::<()>();
    let signal = async {
        // A sender that is gone stops the server, too.
        let _ = stopped.await;
    };
    let serving = Server::builder()
        .http2_keepalive_interval(Some(caps::KEEPALIVE_INTERVAL))
        .http2_keepalive_timeout(Some(caps::KEEPALIVE_TIMEOUT))
        .max_concurrent_streams(caps::STREAMS_PER_CONNECTION)
        .initial_stream_window_size(caps::STREAM_WINDOW)
        .initial_connection_window_size(caps::CONNECTION_WINDOW)
        .http2_max_header_list_size(caps::HEADERS)
        .add_routes(routes)
        .serve_with_incoming_shutdown(Connections::new(listener, room), signal);
    let mut serving = std::pin::pin!(serving);
    tokio::select! {
        ended = &mut serving => return ended,
        () = stop => drop(stopping),
    }
    match tokio::time::timeout(caps::STOP_GRACE, serving).await {
        Ok(ended) => ended,
        Err(_) => Ok(()),
    }
}
