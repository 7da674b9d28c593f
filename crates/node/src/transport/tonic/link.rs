//! One link to one node: what waits goes out in one message, answers are matched by number.
//!
//! ```text
//!            ┌──────────── nothing to say ◄─────────────┐
//!            ▼                                          │ broken: all pending fail as lost
//!  queue ─► connect ──failed──► fail what waits; pause ─┘
//!            │ ok
//!            └─► pump: queue ─► message ─► stream │ stream ─► answers
//! ```
//!
//! During the pause after a failure, calls fail at once instead of piling up.

use std::collections::HashMap;

use bytes::Bytes;
use futures::StreamExt;
use quorate_core::NodeId;
use quorate_proto::v1;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Duration, Instant};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use super::super::{Call, CallError, Directory};
use super::{client, connect, introduce, words};
use crate::caps;
use crate::identity::Identity;

/// A call that waits, and where its answer goes.
pub(super) struct Item {
    pub(super) call: Call,
    pub(super) answer: oneshot::Sender<Result<Bytes, CallError>>,
}

/// Calls that were sent and are not answered.
type Pending = HashMap<u64, oneshot::Sender<Result<Bytes, CallError>>>;

/// Serves the link until its queue is closed.
pub(super) async fn run(me: Identity, to: NodeId, directory: Directory, mut queue: mpsc::Receiver<Item>) {
    let mut pause = caps::RECONNECT_MIN;
    while let Some(first) = queue.recv().await {
        match open(me, to, &directory).await {
            Ok((outgoing, incoming)) => {
                tracing::info!(node = me.node.0, peer = to.0, "linked to a peer");
                pause = caps::RECONNECT_MIN;
                let mut pending = Pending::new();
                let problem = pump(to, first, &mut queue, outgoing, incoming, &mut pending).await;
                tracing::warn!(node = me.node.0, peer = to.0, problem, "the link to a peer broke");
                for answer in pending.into_values() {
                    let _ = answer.send(Err(CallError::Lost { node: to, problem: problem.clone() }));
                }
            }
            Err(error) => {
                tracing::debug!(node = me.node.0, peer = to.0, %error, "no link to a peer");
                let _ = first.answer.send(Err(error.clone()));
                refuse_for(pause, &error, &mut queue).await;
                pause = (pause * 2).min(caps::RECONNECT_MAX);
            }
        }
    }
}

/// Fails every call that comes within the pause.
async fn refuse_for(pause: Duration, error: &CallError, queue: &mut mpsc::Receiver<Item>) {
    let until = Instant::now() + pause;
    while let Ok(Some(item)) = tokio::time::timeout_at(until, queue.recv()).await {
        let _ = item.answer.send(Err(error.clone()));
    }
}

async fn open(
    me: Identity,
    to: NodeId,
    directory: &Directory,
) -> Result<(mpsc::Sender<v1::PeerRequests>, Streaming<v1::PeerResponses>), CallError> {
    let channel = connect(directory, to).await?;
    let (outgoing, requests) = mpsc::channel(caps::LINK_MESSAGES);
    let mut request = tonic::Request::new(ReceiverStream::new(requests));
    introduce(request.metadata_mut(), me, to);
    let unreachable = |problem: String| CallError::Unreachable { node: to, problem };
    let mut client = client(channel);
    let response = tokio::time::timeout(caps::CONNECT, client.exchange(request)).await;
    let response = response.map_err(|_| unreachable(format!("it opened no stream within {:?}", caps::CONNECT)))?;
    let response = response.map_err(|status| unreachable(words(&status)))?;
    Ok((outgoing, response.into_inner()))
}

/// Moves calls and answers until the stream breaks; says what broke it.
async fn pump(
    to: NodeId,
    first: Item,
    queue: &mut mpsc::Receiver<Item>,
    outgoing: mpsc::Sender<v1::PeerRequests>,
    mut incoming: Streaming<v1::PeerResponses>,
    pending: &mut Pending,
) -> String {
    let mut next_id = 0;
    let mut waiting = Some(first);
    loop {
        tokio::select! {
            biased;
            message = incoming.next() => match message {
                Some(Ok(message)) => answer(to, message, pending),
                Some(Err(status)) => return words(&status),
                None => return "the peer ended the stream".to_owned(),
            },
            permit = outgoing.reserve(), if waiting.is_some() => match permit {
                Ok(permit) => {
                    let first = waiting.take().expect("the branch is taken only while a call waits");
                    permit.send(gather(first, queue, pending, &mut next_id));
                }
                Err(_) => return "the stream to the peer was closed".to_owned(),
            },
            item = queue.recv(), if waiting.is_none() => match item {
                Some(item) => waiting = Some(item),
                None => return "this node is stopping".to_owned(),
            },
        }
    }
}

/// A message of all that waits, up to what a message may hold.
fn gather(first: Item, queue: &mut mpsc::Receiver<Item>, pending: &mut Pending, next_id: &mut u64) -> v1::PeerRequests {
    let mut requests = Vec::new();
    let mut bytes = 0;
    let mut next = Some(first);
    while let Some(Item { call, answer }) = next {
        *next_id += 1;
        bytes += call.body.len();
        pending.insert(*next_id, answer);
        requests.push(v1::PeerRequest { id: *next_id, group: call.group.0, kind: call.kind.into(), body: call.body });
        let room = bytes < caps::LINK_MESSAGE_BYTES && requests.len() < caps::LINK_MESSAGE_CALLS;
        next = if room { queue.try_recv().ok() } else { None };
    }
    v1::PeerRequests { requests }
}

fn answer(from: NodeId, message: v1::PeerResponses, pending: &mut Pending) {
    for response in message.responses {
        let Some(answer) = pending.remove(&response.id) else { continue };
        let result = match response.error.is_empty() {
            true => Ok(response.body),
            false => Err(response.error),
        };
        let _ = answer.send(result.map_err(|problem| CallError::Remote { node: from, problem }));
    }
}
