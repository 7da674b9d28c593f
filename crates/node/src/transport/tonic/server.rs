//! The receiving end: a stream of calls from each peer, handled in the order they came, answered as they are done.

use std::sync::Arc;

use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt};
use futures::stream::{BoxStream, FuturesUnordered, StreamExt};
use quorate_core::{GroupId, Index, NodeId};
use quorate_proto::v1;
use quorate_proto::v1::peer_request::Kind;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::metadata::MetadataMap;
use tonic::{Request, Response, Status, Streaming};

use super::{FROM, TO, cluster_of, snapshot_from_wire, text};
use crate::caps;
use crate::identity::Identity;
use crate::transport::{Call, Handler};

/// A call's number and its answer to come.
type InFlight = BoxFuture<'static, v1::PeerResponse>;

/// Serves the two streams between members of a cluster. Who may join is served elsewhere.
pub struct PeerService {
    me: Identity,
    handler: Arc<dyn Handler>,
}

impl PeerService {
    /// Answers as that node, through that handler.
    pub fn new(me: Identity, handler: Arc<dyn Handler>) -> Self {
        PeerService { me, handler }
    }

    /// A stream of calls from another node.
    pub fn exchange(
        &self,
        request: Request<Streaming<v1::PeerRequests>>,
    ) -> Result<Response<ReceiverStream<Result<v1::PeerResponses, Status>>>, Status> {
        let from = self.admit(request.metadata())?;
        let (outgoing, responses) = mpsc::channel(caps::LINK_MESSAGES);
        tokio::spawn(serve(self.handler.clone(), from, request.into_inner(), outgoing));
        Ok(Response::new(ReceiverStream::new(responses)))
    }

    /// A snapshot from another node.
    pub async fn install_snapshot(
        &self,
        request: Request<Streaming<v1::SnapshotPart>>,
    ) -> Result<Response<v1::PeerResponse>, Status> {
        let from = self.admit(request.metadata())?;
        let mut parts = request.into_inner();
        let first = parts.message().await?.unwrap_or_default();
        let snapshot = snapshot_from_wire(first, parts)
            .ok_or_else(|| Status::invalid_argument("a snapshot begins with its head"))?;
        let answer = self.handler.install(from, snapshot).await;
        Ok(Response::new(response(0, answer)))
    }

    /// A snapshot for another node.
    pub async fn fetch_snapshot(
        &self,
        request: Request<v1::FetchSnapshotRequest>,
    ) -> Result<Response<BoxStream<'static, Result<v1::SnapshotPart, Status>>>, Status> {
        let from = self.admit(request.metadata())?;
        let v1::FetchSnapshotRequest { group, at_least } = request.into_inner();
        let snapshot =
            self.handler.snapshot(from, GroupId(group), Index(at_least)).await.map_err(Status::unavailable)?;
        let parts = snapshot.map(|snapshot| super::parts(snapshot).map(Ok).boxed());
        Ok(Response::new(parts.unwrap_or_else(|| futures::stream::empty().boxed())))
    }

    /// Who speaks, if it may: a member of this cluster that means this node.
    fn admit(&self, metadata: &MetadataMap) -> Result<NodeId, Status> {
        if cluster_of(metadata) != self.me.cluster.to_string() {
            return Err(Status::permission_denied(format!(
                "this is {}, and the caller is of cluster {}: one of them has the other's address by mistake",
                self.me,
                cluster_of(metadata)
            )));
        }
        if text(metadata, TO) != self.me.node.0.to_string() {
            return Err(Status::permission_denied(format!(
                "this is {}, and the caller takes it for node {}: its address has moved to another node",
                self.me,
                text(metadata, TO)
            )));
        }
        text(metadata, FROM)
            .parse()
            .map(NodeId)
            .map_err(|_| Status::invalid_argument("the caller does not say which node it is"))
    }
}

/// Handles what comes and sends what is done, until the peer goes away.
async fn serve(
    handler: Arc<dyn Handler>,
    from: NodeId,
    mut incoming: Streaming<v1::PeerRequests>,
    outgoing: mpsc::Sender<Result<v1::PeerResponses, Status>>,
) {
    let mut in_flight: FuturesUnordered<InFlight> = FuturesUnordered::new();
    loop {
        tokio::select! {
            biased;
            Some(done) = in_flight.next(), if !in_flight.is_empty() => {
                let mut responses = vec![done];
                while responses.len() < caps::LINK_MESSAGE_CALLS
                    && let Some(Some(done)) = in_flight.next().now_or_never()
                {
                    responses.push(done);
                }
                if outgoing.send(Ok(v1::PeerResponses { responses })).await.is_err() {
                    return;
                }
            }
            message = incoming.next(), if in_flight.len() < caps::LINK_IN_FLIGHT => match message {
                Some(Ok(message)) => message.requests.into_iter().for_each(|request| in_flight.push(take(&*handler, from, request))),
                Some(Err(_)) | None => return,
            },
        }
    }
}

fn take(handler: &dyn Handler, from: NodeId, request: v1::PeerRequest) -> InFlight {
    let id = request.id;
    let kind = Kind::try_from(request.kind).unwrap_or_default();
    let answer = handler.handle(from, Call { group: GroupId(request.group), kind, body: request.body });
    answer.map(move |answer| response(id, answer)).boxed()
}

fn response(id: u64, answer: Result<Bytes, String>) -> v1::PeerResponse {
    match answer {
        Ok(body) => v1::PeerResponse { id, body, error: String::new() },
        Err(error) if error.is_empty() => v1::PeerResponse { id, body: Bytes::new(), error: "it failed".to_owned() },
        Err(error) => v1::PeerResponse { id, body: Bytes::new(), error },
    }
}
