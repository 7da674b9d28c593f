//! What other nodes ask over the wire: members, each other; whoever makes a cluster, who is there.

use std::sync::Arc;

use futures::stream::BoxStream;
use quorate_proto::v1;
use tokio_stream::wrappers::ReceiverStream;
use tonic::metadata::MetadataMap;
use tonic::{Request, Response, Status, Streaming};

use super::{AssignError, Node};
use crate::identity::ClusterId;
use crate::services::NO_CLUSTER;
use crate::transport::tonic::{PeerService, cluster_of};

/// The service.
pub(super) struct Peers {
    node: Arc<Node>,
}

impl Peers {
    pub(super) fn new(node: Arc<Node>) -> Peers {
        Peers { node }
    }

    /// The ear for members; none before this node is one, which it becomes when its cluster speaks to it.
    async fn members(&self, caller: &MetadataMap) -> Result<PeerService, Status> {
        if self.node.member().is_none()
            && let Some(cluster) = ClusterId::parse(cluster_of(caller))
        {
            self.node.called_by_member_of(cluster).await;
        }
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
        self.members(request.metadata()).await?.exchange(request)
    }

    async fn install_snapshot(
        &self,
        request: Request<Streaming<v1::SnapshotPart>>,
    ) -> Result<Response<v1::PeerResponse>, Status> {
        self.members(request.metadata()).await?.install_snapshot(request).await
    }

    async fn fetch_snapshot(
        &self,
        request: Request<v1::FetchSnapshotRequest>,
    ) -> Result<Response<Self::FetchSnapshotStream>, Status> {
        self.members(request.metadata()).await?.fetch_snapshot(request).await
    }

    async fn identify(&self, _: Request<v1::IdentifyRequest>) -> Result<Response<v1::IdentifyResponse>, Status> {
        Ok(Response::new(self.node.identify()))
    }

    async fn assign(&self, request: Request<v1::AssignRequest>) -> Result<Response<v1::AssignResponse>, Status> {
        self.node.assign(request.into_inner()).await.map_err(|error| match error {
            AssignError::Invalid(problem) => Status::invalid_argument(problem),
            AssignError::Taken(problem) => Status::already_exists(problem),
        })?;
        Ok(Response::new(v1::AssignResponse {}))
    }
}
