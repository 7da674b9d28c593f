//! What other nodes ask over the wire: members, each other; whoever makes a cluster, who is there.

use std::sync::Arc;

use futures::stream::BoxStream;
use quorate_proto::v1;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use super::Node;
use super::found::assign_from_wire;
use crate::services::NO_CLUSTER;
use crate::transport::tonic::PeerService;

/// The service.
pub(super) struct Peers {
    node: Arc<Node>,
}

impl Peers {
    pub(super) fn new(node: Arc<Node>) -> Peers {
        Peers { node }
    }

    /// The ear for members; none before this node is one.
    fn members(&self) -> Result<PeerService, Status> {
        let member = self.node.member().ok_or_else(|| Status::failed_precondition(NO_CLUSTER))?;
        Ok(PeerService::new(member.identity(), member.dispatch()))
    }
}

#[tonic::async_trait]
impl v1::peer_server::Peer for Peers {
    type ExchangeStream = ReceiverStream<Result<v1::PeerResponses, Status>>;
    type FetchSnapshotStream = BoxStream<'static, Result<v1::SnapshotPart, Status>>;

    async fn exchange(
        &self,
        request: Request<Streaming<v1::PeerRequests>>,
    ) -> Result<Response<Self::ExchangeStream>, Status> {
        self.members()?.exchange(request)
    }

    async fn install_snapshot(
        &self,
        request: Request<Streaming<v1::SnapshotPart>>,
    ) -> Result<Response<v1::PeerResponse>, Status> {
        self.members()?.install_snapshot(request).await
    }

    async fn fetch_snapshot(
        &self,
        request: Request<v1::FetchSnapshotRequest>,
    ) -> Result<Response<Self::FetchSnapshotStream>, Status> {
        self.members()?.fetch_snapshot(request).await
    }

    async fn identify(&self, _: Request<v1::IdentifyRequest>) -> Result<Response<v1::IdentifyResponse>, Status> {
        Ok(Response::new(self.node.identify()))
    }

    async fn assign(&self, request: Request<v1::AssignRequest>) -> Result<Response<v1::AssignResponse>, Status> {
        let record = assign_from_wire(request.into_inner()).map_err(Status::invalid_argument)?;
        let own = self.node.advertise();
        let meant =
            record.numbered().find(|(node, _)| *node == record.identity.node).map(|(_, address)| address.clone());
        if meant.as_ref() != Some(&own) {
            let meant = meant.unwrap_or_default();
            return Err(Status::invalid_argument(format!("this node is {own}, and {meant} is to become a member")));
        }
        self.node.join(record).await.map_err(Status::already_exists)?;
        Ok(Response::new(v1::AssignResponse {}))
    }
}
