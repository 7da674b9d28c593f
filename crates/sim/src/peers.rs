//! How nodes reach each other here: the twin of the streams between real nodes, on the simulated network.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt, ready};
use futures::stream::{self, StreamExt, TryStreamExt};
use quorate_core::{GroupId, Index, NodeId};
use quorate_node::identity::Identity;
use quorate_node::node::Node;
use quorate_node::raft::messages::Message;
use quorate_node::raft::types::Vote;
use quorate_node::services::NO_CLUSTER;
use quorate_node::transport::{Call, CallError, Directory, Handler, Newcomers, SnapshotOut, Transport};
use quorate_proto::v1;
use quorate_proto::v1::peer_request::Kind;
use tokio::sync::oneshot;

use crate::fired::{Fault, Fired};
use crate::net::{Deed, Machine, Net};
use crate::tap::Tap;

/// Snapshots of so many keys count as large.
const LARGE: u64 = 3_000;
/// How long a snapshot may take.
const SNAPSHOT: Duration = Duration::from_secs(20);
/// How long a node that is in no cluster yet is waited for.
const NEWCOMER: Duration = Duration::from_secs(5);

/// Which node runs on which machine.
#[derive(Clone, Default)]
pub struct Nodes(Arc<Mutex<Vec<Option<Arc<Node>>>>>);

impl Nodes {
    /// That node runs there now, or none does.
    pub fn set(&self, machine: Machine, node: Option<Arc<Node>>) {
        let mut nodes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if nodes.len() <= machine {
            nodes.resize(machine + 1, None);
        }
        let before = std::mem::replace(&mut nodes[machine], node);
        drop(nodes);
        drop(before);
    }

    /// The node that runs there.
    pub fn get(&self, machine: Machine) -> Option<Arc<Node>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(machine).cloned().flatten()
    }

    fn handler(&self, machine: Machine) -> Option<Arc<dyn Handler>> {
        self.get(machine)?.handler()
    }
}

/// The address of the node on that machine.
pub fn address(machine: Machine) -> String {
    format!("n{}:7600", machine + 1)
}

/// The machine of that address.
pub fn machine_of(address: &str) -> Option<Machine> {
    address.strip_prefix('n')?.strip_suffix(":7600")?.parse::<usize>().ok()?.checked_sub(1)
}

/// What a node needs to reach others.
#[derive(Clone)]
pub struct Peers {
    /// The machine that it runs on.
    pub here: Machine,
    /// The network.
    pub net: Net,
    /// Who is where.
    pub nodes: Nodes,
    /// What is seen of it.
    pub tap: Tap,
    /// What is counted.
    pub fired: Fired,
}

/// The way to the members that a directory names.
#[derive(Clone)]
pub struct Links {
    me: Identity,
    directory: Directory,
    peers: Peers,
}

impl std::fmt::Debug for Links {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Links of {}", self.me.node)
    }
}

impl std::fmt::Debug for Peers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Peers of machine {}", self.here)
    }
}

type Work<T> = BoxFuture<'static, Result<T, String>>;
type Answer<T> = oneshot::Receiver<Result<T, String>>;

fn nothing<T: Send + 'static>(problem: &str) -> Work<T> {
    ready(Err(problem.to_owned())).boxed()
}

impl Peers {
    /// As the transport of that node.
    pub fn links(self, me: Identity, directory: Directory) -> Links {
        Links { me, directory, peers: self }
    }

    /// Puts work for another machine on the network, so that it keeps its order; its answer is to come. None where nobody is
    /// there.
    fn begin<T: Send + 'static>(
        &self,
        there: Machine,
        work: impl FnOnce(&Nodes) -> Work<T> + Send + 'static,
        copy: impl FnOnce() -> Option<Deed>,
    ) -> Option<Answer<T>> {
        let (answer, answered) = oneshot::channel();
        let deed = self.deed(there, work, Some(answer));
        self.net.send(self.here, there, deed, copy).then_some(answered)
    }

    /// What is done at the other end: the work, begun in order; its answer is sent back when it is there.
    fn deed<T: Send + 'static>(
        &self,
        there: Machine,
        work: impl FnOnce(&Nodes) -> Work<T> + Send + 'static,
        answer: Option<oneshot::Sender<Result<T, String>>>,
    ) -> Deed {
        let peers = self.clone();
        Box::new(move || {
            let work = work(&peers.nodes);
            tokio::spawn(async move {
                let done = work.await;
                let Some(answer) = answer else { return };
                peers.net.send(there, peers.here, Box::new(move || _ = answer.send(done)), || None);
            });
        })
    }

    async fn newcomer<T: Send + 'static>(
        &self,
        address: &str,
        work: impl FnOnce(Arc<Node>) -> Work<T> + Send + 'static,
    ) -> Result<T, String> {
        let there = machine_of(address).ok_or_else(|| format!("{address}: nobody knows where"))?;
        let work = move |nodes: &Nodes| match nodes.get(there) {
            Some(node) => work(node),
            None => nothing("the node is still starting"),
        };
        let begun = self.begin(there, work, || None).ok_or_else(|| format!("{address}: nobody listens there"))?;
        let answer = tokio::time::timeout(NEWCOMER, begun).await;
        answer.ok().and_then(Result::ok).ok_or_else(|| format!("{address}: no answer"))?
    }
}

impl Links {
    fn machine(&self, node: NodeId) -> Result<Machine, CallError> {
        let there = self.directory.address(node).and_then(|address| machine_of(&address));
        there.ok_or_else(|| CallError::Unreachable { node, problem: "nobody knows where".to_owned() })
    }
}

/// Waits for the answer of that node.
async fn answer<T>(node: NodeId, begun: Option<Answer<T>>, patience: Duration) -> Result<T, CallError> {
    let Some(begun) = begun else {
        return Err(CallError::Unreachable { node, problem: "nobody listens there".to_owned() });
    };
    match tokio::time::timeout(patience, begun).await {
        Ok(Ok(Ok(answer))) => Ok(answer),
        Ok(Ok(Err(problem))) => Err(CallError::Remote { node, problem }),
        Ok(Err(_)) => Err(CallError::Lost { node, problem: "the stream broke".to_owned() }),
        Err(_) => Err(CallError::Lost { node, problem: "no answer in time".to_owned() }),
    }
}

fn handle(nodes: &Nodes, there: Machine, from: Identity, call: Call) -> Work<Bytes> {
    match (nodes.handler(there), nodes.get(there)) {
        (Some(handler), _) => handler.handle(from.node, call),
        (None, Some(node)) => async move {
            node.called_by_member_of(from.cluster).await;
            Err(NO_CLUSTER.to_owned())
        }
        .boxed(),
        (None, None) => nothing(NO_CLUSTER),
    }
}

#[async_trait]
impl Transport for Links {
    fn call(&self, to: NodeId, call: Call, patience: Duration) -> BoxFuture<'static, Result<Bytes, CallError>> {
        let there = match self.machine(to) {
            Ok(there) => there,
            Err(error) => return ready(Err(error)).boxed(),
        };
        if call.kind == Kind::Append {
            self.peers.tap.append(call.group, &call.body);
        }
        let (from, copied) = (self.me, call.clone());
        let copy = || Some(self.peers.deed(there, move |nodes| handle(nodes, there, from, copied), None));
        let begun = self.peers.begin(there, move |nodes| handle(nodes, there, from, call), copy);
        answer(to, begun, patience).boxed()
    }

    async fn send_snapshot(&self, to: NodeId, snapshot: SnapshotOut) -> Result<Bytes, CallError> {
        let there = self.machine(to)?;
        let SnapshotOut { group, vote, meta, length, blocks } = snapshot;
        let lost = |error: std::io::Error| CallError::Lost { node: to, problem: error.to_string() };
        let blocks: Vec<Bytes> = blocks.try_collect().await.map_err(lost)?;
        let keys = self.peers.tap.seen().keys.get(&(group, self.peers.here)).copied().unwrap_or(0);
        let (from, fired) = (self.me.node, self.peers.fired.clone());
        let work = move |nodes: &Nodes| -> Work<Bytes> {
            let Some(handler) = nodes.handler(there) else { return nothing(NO_CLUSTER) };
            let blocks = stream::iter(blocks.into_iter().map(Ok)).boxed();
            let installed = handler.install(from, SnapshotOut { group, vote, meta, length, blocks });
            let count = move |installed: Result<Bytes, String>| {
                if installed.is_ok() && group != GroupId::CONTROL {
                    fired.count(Fault::SnapshotInstalled);
                    fired.add(Fault::LargeSnapshotInstalled, u64::from(keys >= LARGE));
                }
                installed
            };
            installed.map(count).boxed()
        };
        answer(to, self.peers.begin(there, work, || None), SNAPSHOT).await
    }

    async fn fetch_snapshot(
        &self,
        from: NodeId,
        group: GroupId,
        at_least: Index,
    ) -> Result<Option<SnapshotOut>, CallError> {
        let (there, me) = (self.machine(from)?, self.me.node);
        let work = move |nodes: &Nodes| -> Work<Option<(Bytes, u64, Vec<Bytes>)>> {
            let Some(handler) = nodes.handler(there) else { return nothing(NO_CLUSTER) };
            let found = handler.snapshot(me, group, at_least);
            async move {
                let Some(SnapshotOut { meta, length, blocks, .. }) = found.await? else { return Ok(None) };
                let blocks = blocks.try_collect().await.map_err(|error: std::io::Error| error.to_string())?;
                Ok(Some((meta, length, blocks)))
            }
            .boxed()
        };
        let found = answer(from, self.peers.begin(there, work, || None), SNAPSHOT).await?;
        Ok(found.map(|(meta, length, blocks)| {
            let blocks = stream::iter(blocks.into_iter().map(Ok)).boxed();
            SnapshotOut { group, vote: Bytes::new(), meta, length, blocks }
        }))
    }
}

#[async_trait]
impl Newcomers for Peers {
    async fn identify(&self, address: &str) -> Result<v1::IdentifyResponse, String> {
        self.newcomer(address, |node| ready(Ok(node.identify())).boxed()).await
    }

    async fn assign(&self, address: &str, request: v1::AssignRequest) -> Result<(), String> {
        let assign =
            |node: Arc<Node>| async move { node.assign(request).await.map_err(|error| error.to_string()) }.boxed();
        self.newcomer(address, assign).await
    }
}

/// The term and the leader that an append says it comes from.
pub fn author(append: &Bytes) -> Option<(u64, NodeId)> {
    // Behind the version's byte stands the vote.
    let mut body = append.slice(1..);
    let vote = Vote::read(&mut body).ok()?;
    Some((vote.leader_id.term, vote.leader_id.voted_for))
}
