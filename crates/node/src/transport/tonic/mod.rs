//! The real transport: gRPC between nodes.
//!
//! Each node keeps one connection and one stream to every other, opened when there is something to say. Connections are kept
//! alive by pings, so that a peer that vanished without a word is noticed within seconds.

mod link;
mod newcomers;
mod server;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt, ready};
use futures::stream::StreamExt;
use quorate_core::{GroupId, Index, NodeId};
use quorate_proto::v1;
use quorate_proto::v1::peer_client::PeerClient;
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::ReceiverStream;
use tonic::metadata::{AsciiMetadataValue, MetadataMap};
use tonic::transport::{Channel, Endpoint};

use super::{Call, CallError, Directory, SnapshotOut, Transport};
use crate::caps;
use crate::identity::Identity;

pub use newcomers::TonicNewcomers;
pub use server::PeerService;

/// Metadata of every stream between nodes: which cluster, who speaks, and whom it takes the other for.
const CLUSTER: &str = "quorate-cluster";
const FROM: &str = "quorate-from";
const TO: &str = "quorate-to";

/// All links of a node to the others.
pub struct TonicPeers {
    me: Identity,
    directory: Directory,
    links: Mutex<BTreeMap<NodeId, mpsc::Sender<link::Item>>>,
}

impl fmt::Debug for TonicPeers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TonicPeers of {}", self.me)
    }
}

impl TonicPeers {
    /// Links of that node, to the addresses in the directory. Nothing is connected yet.
    pub fn new(me: Identity, directory: Directory) -> Self {
        TonicPeers { me, directory, links: Mutex::default() }
    }

    /// The queue to a node; its link is made when it is first asked for.
    fn queue(&self, to: NodeId) -> mpsc::Sender<link::Item> {
        let mut links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        let queue = links.entry(to).or_insert_with(|| {
            let (sender, receiver) = mpsc::channel(caps::LINK_QUEUE);
            tokio::spawn(link::run(self.me, to, self.directory.clone(), receiver));
            sender
        });
        queue.clone()
    }
}

#[async_trait]
impl Transport for TonicPeers {
    fn call(&self, to: NodeId, call: Call, patience: Duration) -> BoxFuture<'static, Result<Bytes, CallError>> {
        let (answer, answered) = oneshot::channel();
        if let Err(error) = self.queue(to).try_send(link::Item { call, answer }) {
            let problem = match error {
                mpsc::error::TrySendError::Full(_) => "too many calls wait for it already",
                mpsc::error::TrySendError::Closed(_) => "this node is stopping",
            };
            return ready(Err(CallError::Unreachable { node: to, problem: problem.to_owned() })).boxed();
        }
        async move {
            match tokio::time::timeout(patience, answered).await {
                Ok(Ok(answer)) => answer,
                Ok(Err(_)) => Err(CallError::Lost { node: to, problem: "this node is stopping".to_owned() }),
                Err(_) => Err(CallError::Lost { node: to, problem: format!("none within {patience:?}") }),
            }
        }
        .boxed()
    }

    async fn send_snapshot(&self, to: NodeId, snapshot: SnapshotOut) -> Result<Bytes, CallError> {
        let channel = connect(&self.directory, to).await?;
        let mut request = tonic::Request::new(parts(snapshot));
        introduce(request.metadata_mut(), self.me, to);
        let lost = |problem: String| CallError::Lost { node: to, problem };
        let response = tokio::time::timeout(caps::SNAPSHOT_TRANSFER, client(channel).install_snapshot(request)).await;
        let response =
            response.map_err(|_| lost(format!("the snapshot took longer than {:?}", caps::SNAPSHOT_TRANSFER)))?;
        let response = response.map_err(|status| lost(words(&status)))?.into_inner();
        match response.error.is_empty() {
            true => Ok(response.body),
            false => Err(CallError::Remote { node: to, problem: response.error }),
        }
    }

    async fn fetch_snapshot(
        &self,
        from: NodeId,
        group: GroupId,
        at_least: Index,
    ) -> Result<Option<SnapshotOut>, CallError> {
        let channel = connect(&self.directory, from).await?;
        let mut request = tonic::Request::new(v1::FetchSnapshotRequest { group: group.0, at_least: at_least.0 });
        introduce(request.metadata_mut(), self.me, from);
        let lost = |status: tonic::Status| CallError::Remote { node: from, problem: words(&status) };
        let mut parts = client(channel).fetch_snapshot(request).await.map_err(lost)?.into_inner();
        match parts.message().await.map_err(lost)? {
            None => Ok(None),
            Some(first) => match snapshot_from_wire(first, parts) {
                Some(snapshot) => Ok(Some(snapshot)),
                None => Err(CallError::Remote { node: from, problem: "a snapshot begins with its head".to_owned() }),
            },
        }
    }
}

/// A snapshot that comes over the wire; none where its first part is not its head.
fn snapshot_from_wire(first: v1::SnapshotPart, parts: tonic::Streaming<v1::SnapshotPart>) -> Option<SnapshotOut> {
    let Some(v1::snapshot_part::Part::Head(head)) = first.part else { return None };
    let block = |part: Result<v1::SnapshotPart, tonic::Status>| match part {
        Ok(v1::SnapshotPart { part: Some(v1::snapshot_part::Part::Block(block)) }) => Ok(block),
        Ok(_) => Err(std::io::Error::other("a snapshot's head is followed by blocks only")),
        Err(status) => Err(std::io::Error::other(words(&status))),
    };
    Some(SnapshotOut {
        group: GroupId(head.group),
        vote: head.vote,
        meta: head.meta,
        length: head.length,
        blocks: parts.map(block).boxed(),
    })
}

/// A snapshot as it goes over the wire. A block that cannot be read ends it early, and the receiver finds it too short.
fn parts(snapshot: SnapshotOut) -> ReceiverStream<v1::SnapshotPart> {
    let SnapshotOut { group, vote, meta, length, mut blocks } = snapshot;
    let head = v1::SnapshotHead { group: group.0, vote, meta, length };
    let (sender, receiver) = mpsc::channel(caps::LINK_MESSAGES);
    let feed = async move {
        let mut next = Some(v1::snapshot_part::Part::Head(head));
        while let Some(part) = next {
            if sender.send(v1::SnapshotPart { part: Some(part) }).await.is_err() {
                return;
            }
            next = match blocks.next().await {
                Some(Ok(block)) => Some(v1::snapshot_part::Part::Block(block)),
                Some(Err(error)) => {
                    tracing::warn!(%error, "a snapshot on its way to another node cannot be read on");
                    None
                }
                None => None,
            };
        }
    };
    tokio::spawn(feed);
    ReceiverStream::new(receiver)
}

/// Opens a connection of its own to a node.
async fn connect(directory: &Directory, to: NodeId) -> Result<Channel, CallError> {
    let unreachable = |problem: String| CallError::Unreachable { node: to, problem };
    let address = directory.address(to).ok_or_else(|| unreachable("its address is not known".to_owned()))?;
    dial(&address).await.map_err(unreachable)
}

/// Opens a connection to whoever listens at an address, tuned as all connections between nodes are.
async fn dial(address: &str) -> Result<Channel, String> {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).map_err(|error| format!("{address}: {error}"))?;
    let endpoint = endpoint
        .tcp_nodelay(true)
        .connect_timeout(caps::CONNECT)
        .http2_keep_alive_interval(caps::LINK_PING)
        .keep_alive_timeout(caps::LINK_PATIENCE)
        .keep_alive_while_idle(true)
        .initial_stream_window_size(caps::STREAM_WINDOW)
        .initial_connection_window_size(caps::CONNECTION_WINDOW);
    endpoint.connect().await.map_err(|error| format!("{address}: {}", chain(&error)))
}

/// The peer service over a connection.
fn client(channel: Channel) -> PeerClient<Channel> {
    PeerClient::new(channel).max_decoding_message_size(caps::PEER_MESSAGE).max_encoding_message_size(caps::PEER_MESSAGE)
}

fn introduce(metadata: &mut MetadataMap, me: Identity, to: NodeId) {
    let text = |value: String| AsciiMetadataValue::try_from(value).expect("digits are ASCII");
    metadata.insert(CLUSTER, text(me.cluster.to_string()));
    metadata.insert(FROM, text(me.node.0.to_string()));
    metadata.insert(TO, text(to.0.to_string()));
}

/// The cluster that a caller says it is a member of.
pub(crate) fn cluster_of(metadata: &MetadataMap) -> &str {
    text(metadata, CLUSTER)
}

fn text<'m>(metadata: &'m MetadataMap, name: &str) -> &'m str {
    metadata.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// What a status says, in words.
fn words(status: &tonic::Status) -> String {
    match status.message() {
        "" => status.code().description().to_owned(),
        message => message.to_owned(),
    }
}

/// An error with its causes: tonic's own say nothing without them.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
