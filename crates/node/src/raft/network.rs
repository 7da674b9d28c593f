//! Raft's way to the other nodes: every group's messages to one node go over that node's one link.
//!
//! Appends are pipelined: each is put on the link as soon as Raft hands it out, in order, and the answers come back in the
//! same order. Coalescing is the link's: what all groups have for a node at one time, heartbeats included, is one message.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt, ready};
use futures::stream::{BoxStream, Stream, StreamExt};
use openraft::errors::{NetworkError, RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::{Backoff, NetBackoff, NetSnapshot, NetStreamAppend, NetTransferLeader, NetVote, RPCOption};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, StreamAppendResult, TransferLeaderRequest,
    TransferLeaderResponse, VoteRequest, VoteResponse,
};
use openraft::{OptionalSend, RaftNetworkFactory};
use quorate_core::{GroupId, NodeId, Term};
use quorate_proto::v1::peer_request::Kind;

use super::lease::Lease;
use super::messages::{Message, MessageError};
use super::types::{LogId, Snapshot, TypeConfig, Vote};
use crate::caps;
use crate::snapshot_files::SnapshotHandle;
use crate::transport::{Call, CallError, SnapshotOut, Transport};

type RpcError = RPCError<TypeConfig>;
type AppendResult = Result<StreamAppendResult<TypeConfig>, RpcError>;

/// Makes one group's networks.
#[derive(Clone, Debug)]
pub struct Peers {
    group: GroupId,
    transport: Arc<dyn Transport>,
    lease: Lease,
}

/// One group's way to one node.
#[derive(Clone, Debug)]
pub struct Peer {
    group: GroupId,
    to: NodeId,
    transport: Arc<dyn Transport>,
    /// Learns which appends were accepted.
    lease: Lease,
}

impl Peers {
    /// The networks of that group, over that transport; the lease learns which appends were accepted.
    pub fn new(group: GroupId, transport: Arc<dyn Transport>, lease: Lease) -> Self {
        Peers { group, transport, lease }
    }
}

impl RaftNetworkFactory<TypeConfig> for Peers {
    type Network = Peer;

    async fn new_client(&mut self, target: NodeId, _node: &openraft::EmptyNode) -> Peer {
        Peer { group: self.group, to: target, transport: self.transport.clone(), lease: self.lease.clone() }
    }
}

impl Peer {
    /// Puts a question on the link; its answer comes later.
    fn call(&self, kind: Kind, body: Bytes, patience: Duration) -> BoxFuture<'static, Result<Bytes, CallError>> {
        self.transport.call(self.to, Call { group: self.group, kind, body }, patience)
    }

    async fn ask<Q: Message, A: Message>(&self, kind: Kind, question: &Q, option: &RPCOption) -> Result<A, RpcError> {
        let answer = self.call(kind, question.encode(), option.hard_ttl()).await.map_err(unreachable)?;
        A::decode(answer).map_err(unreadable)
    }

    /// Puts an append on the link.
    fn append(&self, request: AppendEntriesRequest<TypeConfig>) -> BoxFuture<'static, (AppendResult, bool)> {
        let prev = request.prev_log_id;
        let last = request.entries.last().map(|entry| entry.log_id).or(prev);
        let term = Term(request.vote.leader_id.term);
        let (lease, to, sent) = (self.lease.clone(), self.to, self.lease.now());
        let answer = self.call(Kind::Append, request.encode(), caps::APPEND_PATIENCE);
        async move {
            let result = match answer.await {
                Ok(answer) => AppendEntriesResponse::decode(answer).map_err(unreadable),
                Err(error) => Err(unreachable(error)),
            };
            if let Ok(AppendEntriesResponse::Success | AppendEntriesResponse::PartialSuccess(_)) = result {
                lease.accepted(term, to, sent);
            }
            conclude(result, prev, last)
        }
        .boxed()
    }
}

/// What an append's answer means, and whether the pipeline goes on after it.
fn conclude(
    response: Result<AppendEntriesResponse<TypeConfig>, RpcError>,
    prev: Option<LogId>,
    last: Option<LogId>,
) -> (AppendResult, bool) {
    match response {
        Err(error) => (Err(error), false),
        Ok(AppendEntriesResponse::Conflict) if prev.is_none() => {
            (Err(unreadable(MessageError::Malformed("a conflict before the first entry"))), false)
        }
        Ok(response) => {
            let whole = match &response {
                AppendEntriesResponse::Success => true,
                AppendEntriesResponse::PartialSuccess(upto) => *upto == last,
                _ => false,
            };
            (Ok(response.into_stream_result(prev, last)), whole)
        }
    }
}

impl NetStreamAppend<TypeConfig> for Peer {
    fn stream_append<'s, S>(
        &'s mut self,
        input: S,
        _option: RPCOption,
    ) -> BoxFuture<'s, Result<BoxStream<'s, AppendResult>, RpcError>>
    where
        S: Stream<Item = AppendEntriesRequest<TypeConfig>> + OptionalSend + Unpin + 'static,
    {
        let answers = input.map(|request| self.append(request)).buffered(caps::APPENDS_IN_FLIGHT);
        // The answer that ends the pipeline is still told; what follows it is not.
        let answers = answers.scan(true, |goes_on, (answer, whole)| {
            let told = goes_on.then_some(answer);
            *goes_on &= whole;
            ready(told)
        });
        ready(Ok(answers.boxed())).boxed()
    }
}

impl NetVote<TypeConfig> for Peer {
    async fn vote(
        &mut self,
        request: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RpcError> {
        self.ask(Kind::Vote, &request, &option).await
    }

    async fn pre_vote(
        &mut self,
        request: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RpcError> {
        self.ask(Kind::PreVote, &request, &option).await
    }
}

impl NetTransferLeader<TypeConfig> for Peer {
    async fn transfer_leader(
        &mut self,
        request: TransferLeaderRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<TransferLeaderResponse<TypeConfig>, RpcError> {
        let done: bool = self.ask(Kind::TransferLeader, &request, &option).await?;
        match done {
            true => Ok(Ok(())),
            false => Err(unreachable(CallError::Remote {
                node: self.to,
                problem: "it does not take the leadership".to_owned(),
            })),
        }
    }
}

impl NetBackoff<TypeConfig> for Peer {
    fn backoff(&self) -> Option<Backoff> {
        None
    }
}

impl NetSnapshot<TypeConfig> for Peer {
    type SnapshotData = SnapshotHandle;

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: Snapshot<SnapshotHandle>,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<TypeConfig>, StreamingError<TypeConfig>> {
        let handle = snapshot.snapshot;
        let out = SnapshotOut {
            group: self.group,
            vote: vote.encode(),
            meta: snapshot.meta.encode(),
            length: handle.len(),
            blocks: handle.blocks(),
        };
        let sent = self.transport.send_snapshot(self.to, out);
        tokio::select! {
            closed = cancel => Err(StreamingError::Closed(closed)),
            answer = sent => {
                let answer = answer.map_err(unreachable)?;
                SnapshotResponse::decode(answer).map_err(|error| unreadable(error).into())
            }
        }
    }
}

fn unreachable(error: CallError) -> RpcError {
    match error {
        CallError::Unreachable { .. } => RPCError::Unreachable(Unreachable::new(&error)),
        CallError::Lost { .. } | CallError::Remote { .. } => RPCError::Network(NetworkError::new(&error)),
    }
}

fn unreadable(error: MessageError) -> RpcError {
    RPCError::Network(NetworkError::new(&error))
}
