//! Other nodes' questions, brought to the group that they are for.
//!
//! Appends of one group from one node have to be taken in the order in which they came: each is handed to Raft before
//! [`Dispatch::handle`] returns its future to be waited for. Everything else may overtake.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, PoisonError, RwLock};

use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt, ready};
use openraft::Raft;
use openraft::raft::{AppendEntriesRequest, TransferLeaderRequest, VoteRequest};
use openraft::storage::RaftStateMachine;
use quorate_core::{GroupId, Index, NodeId};
use quorate_proto::v1::peer_request::Kind;
use tokio::time::Instant;

use super::group::Group;
use super::messages::{Message, MessageError};
use super::types::{Snapshot, SnapshotMeta, TypeConfig, Vote};
use crate::snapshot_files::{SnapshotFiles, SnapshotHandle};
use crate::transport::{Call, Handler, SnapshotOut};

type Answer = BoxFuture<'static, Result<Bytes, String>>;

/// Answers what is not for Raft: status, clock, control commands.
pub trait NodeCalls: Send + Sync + 'static {
    /// Takes a question in; the future only waits.
    fn handle(&self, from: NodeId, kind: Kind, body: Bytes) -> Answer;
}

/// Knows the groups of this node.
#[derive(Default)]
pub struct Dispatch {
    groups: RwLock<BTreeMap<GroupId, Arc<dyn GroupCalls>>>,
    node: RwLock<Option<Arc<dyn NodeCalls>>>,
}

impl Dispatch {
    /// From now on, calls for this group come to it.
    pub fn add<M>(&self, group: &Group<M>, files: SnapshotFiles)
    where
        M: RaftStateMachine<TypeConfig, SnapshotData = SnapshotHandle>,
    {
        let calls = Arc::new(Member { raft: group.raft().clone(), files, silent_until: group.silent_until() });
        self.groups.write().unwrap_or_else(PoisonError::into_inner).insert(group.id(), calls);
    }

    /// From now on, calls for groups find none: they are about to stop.
    pub fn remove_all(&self) {
        self.groups.write().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// From now on, calls for the node itself come here.
    pub fn serve_node(&self, calls: Arc<dyn NodeCalls>) {
        *self.node.write().unwrap_or_else(PoisonError::into_inner) = Some(calls);
    }

    fn group(&self, group: GroupId) -> Option<Arc<dyn GroupCalls>> {
        self.groups.read().unwrap_or_else(PoisonError::into_inner).get(&group).cloned()
    }
}

impl Handler for Dispatch {
    fn handle(&self, from: NodeId, call: Call) -> Answer {
        match call.kind {
            Kind::Append | Kind::Vote | Kind::PreVote | Kind::TransferLeader => match self.group(call.group) {
                Some(group) => group.handle(call.kind, call.body),
                None => failed(format!("no replica of group {} is here", call.group)),
            },
            Kind::Control | Kind::Status | Kind::Clock => {
                let node = self.node.read().unwrap_or_else(PoisonError::into_inner).clone();
                match node {
                    Some(node) => node.handle(from, call.kind, call.body),
                    None => failed("the node is still starting".to_owned()),
                }
            }
            Kind::Unspecified => failed("a question of a kind that this release does not know".to_owned()),
        }
    }

    fn install(&self, _from: NodeId, snapshot: SnapshotOut) -> Answer {
        match self.group(snapshot.group) {
            Some(group) => group.install(snapshot),
            None => failed(format!("no replica of group {} is here", snapshot.group)),
        }
    }

    fn snapshot(
        &self,
        _from: NodeId,
        group: GroupId,
        at_least: Index,
    ) -> BoxFuture<'static, Result<Option<SnapshotOut>, String>> {
        match self.group(group) {
            Some(group) => group.snapshot(at_least),
            None => ready(Err(format!("no replica of group {group} is here"))).boxed(),
        }
    }
}

fn failed(problem: String) -> Answer {
    ready(Err(problem)).boxed()
}

/// A group's ear, whatever its state machine.
trait GroupCalls: Send + Sync {
    fn handle(&self, kind: Kind, body: Bytes) -> Answer;
    fn install(&self, snapshot: SnapshotOut) -> Answer;
    fn snapshot(&self, at_least: Index) -> BoxFuture<'static, Result<Option<SnapshotOut>, String>>;
}

struct Member<M: RaftStateMachine<TypeConfig>> {
    raft: Raft<TypeConfig, M>,
    files: SnapshotFiles,
    /// Until then no vote is granted: a leader may rely on what this node has forgotten.
    silent_until: Option<Instant>,
}

impl<M> GroupCalls for Member<M>
where
    M: RaftStateMachine<TypeConfig, SnapshotData = SnapshotHandle>,
{
    fn handle(&self, kind: Kind, body: Bytes) -> Answer {
        let raft = self.raft.clone();
        let is_silent = self.silent_until.is_some_and(|until| Instant::now() < until);
        match kind {
            Kind::Vote | Kind::PreVote if is_silent => {
                failed("this node has just started, and grants no vote yet".to_owned())
            }
            Kind::Append => started(async move {
                let request = read::<AppendEntriesRequest<TypeConfig>>(body)?;
                raft.append_entries(request).await.map(|answer| answer.encode()).map_err(words)
            }),
            Kind::Vote => answer(async move { raft.vote(read::<VoteRequest<TypeConfig>>(body)?).await.map_err(words) }),
            Kind::PreVote => {
                answer(async move { raft.pre_vote(read::<VoteRequest<TypeConfig>>(body)?).await.map_err(words) })
            }
            _ => answer(async move {
                let request = read::<TransferLeaderRequest<TypeConfig>>(body)?;
                raft.handle_transfer_leader(request).await.map(|taken| taken.is_ok()).map_err(words)
            }),
        }
    }

    fn install(&self, snapshot: SnapshotOut) -> Answer {
        let (raft, files) = (self.raft.clone(), self.files.clone());
        answer(async move {
            let (vote, meta) = (read::<Vote>(snapshot.vote)?, read::<SnapshotMeta>(snapshot.meta)?);
            let handle = files.receive(meta.clone(), snapshot.length, snapshot.blocks).await.map_err(words)?;
            raft.install_full_snapshot(vote, Snapshot { meta, snapshot: handle }).await.map_err(words)
        })
    }

    fn snapshot(&self, at_least: Index) -> BoxFuture<'static, Result<Option<SnapshotOut>, String>> {
        let (raft, files) = (self.raft.clone(), self.files.clone());
        async move {
            let covers = |handle: &SnapshotHandle| handle.meta().last_log_id.is_some_and(|id| id.index() >= at_least.0);
            let Some(handle) = files.latest().await.map_err(words)?.filter(covers) else {
                raft.trigger().snapshot().await.map_err(words)?;
                return Ok(None);
            };
            let meta = handle.meta().encode();
            let (group, length, blocks) = (files.group(), handle.len(), handle.blocks());
            Ok(Some(SnapshotOut { group, vote: Bytes::new(), meta, length, blocks }))
        }
        .boxed()
    }
}

fn answer<A: Message>(work: impl Future<Output = Result<A, String>> + Send + 'static) -> Answer {
    async move { work.await.map(|answer| answer.encode()) }.boxed()
}

/// Polls the work once, now, so that what it hands over at once is handed over in the order of the calls.
fn started(work: impl Future<Output = Result<Bytes, String>> + Send + 'static) -> Answer {
    let mut work = work.boxed();
    match (&mut work).now_or_never() {
        Some(done) => ready(done).boxed(),
        None => work,
    }
}

fn read<T: Message>(bytes: Bytes) -> Result<T, String> {
    T::decode(bytes).map_err(|error: MessageError| error.to_string())
}

fn words(error: impl std::fmt::Display) -> String {
    error.to_string()
}
