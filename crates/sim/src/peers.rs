//! How nodes reach each other here: the twin of the streams between real nodes, on the simulated network.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::{self, StreamExt};
use futures::{FutureExt, TryStreamExt};
use quorate_core::{GroupId, Index, NodeId};
use quorate_node::node::Node;
use quorate_node::raft::messages::Message;
use quorate_node::raft::types::Vote;
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
    me: NodeId,
    directory: Directory,
    peers: Peers,
}

impl std::fmt::Debug for Links {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Links of {}", self.me)
    }
}

impl std::fmt::Debug for Peers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Peers of machine {}", self.here)
    }
}

type Work<T> = BoxFuture<'static, Result<T, String>>;

impl Peers {
    /// As the transport of that node.
    pub fn links(self, me: NodeId, directory: Directory) -> Links {
        Links { me, directory, peers: self }
    }

    /// Sends work to a machine and waits for what comes of it: an outer error where no answer came.
    async fn ask<T: Send + 'static>(
        self,
        to: Machine,
        patience: Duration,
        sent: impl FnOnce(&Peers, oneshot::Sender<Result<T, String>>) -> bool,
    ) -> Result<Result<T, String>, bool> {
        let (answer, answered) = oneshot::channel();
        let _ = to;
        if !sent(&self, answer) {
            return Err(false);
        }
        match tokio::time::timeout(patience, answered).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(_)) | Err(_) => Err(true),
        }
    }

    /// What is done at the other end: the work, begun in order; its answer is sent back when it is there.
    fn deed<T: Send + 'static>(
        &self,
        to: Machine,
        work: impl FnOnce(&Nodes) -> Work<T> + Send + 'static,
        answer: Option<oneshot::Sender<Result<T, String>>>,
    ) -> Deed {
        let peers = self.clone();
        Box::new(move || {
            let work = work(&peers.nodes);
            tokio::spawn(async move {
                let done = work.await;
                let Some(answer) = answer else { return };
                peers.net.send(to, peers.here, Box::new(move || drop(answer.send(done))), || None);
            });
        })
    }
}

fn handle(nodes: &Nodes, to: Machine, from: NodeId, call: Call) -> Work<Bytes> {
    match nodes.handler(to) {
        Some(handler) => handler.handle(from, call),
        None => futures::future::ready(Err("it is in no cluster yet".to_owned())).boxed(),
    }
}

#[async_trait]
impl Transport for Links {
    fn call(&self, to: NodeId, call: Call, patience: Duration) -> BoxFuture<'static, Result<Bytes, CallError>> {
        let unreachable = CallError::Unreachable { node: to, problem: "nobody listens there".to_owned() };
        let Some(there) = self.directory.address(to).and_then(|address| machine_of(&address)) else {
            return futures::future::ready(Err(unreachable)).boxed();
        };
        if call.kind == Kind::Append {
            self.peers.tap.append(call.group, &call.body);
        }
        let (peers, from) = (self.peers.clone(), self.me);
        let copied = call.clone();
        // It is on the network when this returns, so that calls keep their order.
        let (answer, answered) = oneshot::channel();
        let deed = peers.deed(there, move |nodes| handle(nodes, there, from, call), Some(answer));
        let copy = || Some(peers.deed(there, move |nodes| handle(nodes, there, from, copied), None));
        if !peers.net.send(peers.here, there, deed, copy) {
            return futures::future::ready(Err(unreachable)).boxed();
        }
        async move {
            match tokio::time::timeout(patience, answered).await {
                Ok(Ok(Ok(answer))) => Ok(answer),
                Ok(Ok(Err(problem))) => Err(CallError::Remote { node: to, problem }),
                Ok(Err(_)) => Err(CallError::Lost { node: to, problem: "the stream broke".to_owned() }),
                Err(_) => Err(CallError::Lost { node: to, problem: "no answer in time".to_owned() }),
            }
        }
        .boxed()
    }

    async fn send_snapshot(&self, to: NodeId, snapshot: SnapshotOut) -> Result<Bytes, CallError> {
        let lost = |problem: String| CallError::Lost { node: to, problem };
        let Some(there) = self.directory.address(to).and_then(|address| machine_of(&address)) else {
            return Err(lost("nobody knows where".to_owned()));
        };
        let SnapshotOut { group, vote, meta, length, blocks } = snapshot;
        let blocks: Vec<Bytes> = blocks.try_collect().await.map_err(|error| lost(error.to_string()))?;
        let keys = self.peers.tap.seen().keys.get(&(group, self.peers.here)).copied().unwrap_or(0);
        let (from, fired) = (self.me, self.peers.fired.clone());
        let work = move |nodes: &Nodes| -> Work<Bytes> {
            let Some(handler) = nodes.handler(there) else {
                return futures::future::ready(Err("it is in no cluster yet".to_owned())).boxed();
            };
            let blocks = stream::iter(blocks.into_iter().map(Ok)).boxed();
            let installed = handler.install(from, SnapshotOut { group, vote, meta, length, blocks });
            async move {
                let installed = installed.await;
                if installed.is_ok() && group != GroupId::CONTROL {
                    fired.count(Fault::SnapshotInstalled);
                    if keys >= LARGE {
                        fired.count(Fault::LargeSnapshotInstalled);
                    }
                }
                installed
            }
            .boxed()
        };
        let asked = self.peers.clone().ask(there, SNAPSHOT, |peers, answer| {
            peers.net.send(peers.here, there, peers.deed(there, work, Some(answer)), || None)
        });
        match asked.await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(problem)) => Err(CallError::Remote { node: to, problem }),
            Err(_) => Err(lost("no answer".to_owned())),
        }
    }

    async fn fetch_snapshot(
        &self,
        from: NodeId,
        group: GroupId,
        at_least: Index,
    ) -> Result<Option<SnapshotOut>, CallError> {
        let lost = |problem: &str| CallError::Lost { node: from, problem: problem.to_owned() };
        let Some(there) = self.directory.address(from).and_then(|address| machine_of(&address)) else {
            return Err(lost("nobody knows where"));
        };
        let me = self.me;
        let work = move |nodes: &Nodes| -> Work<Option<(Bytes, u64, Vec<Bytes>)>> {
            let Some(handler) = nodes.handler(there) else {
                return futures::future::ready(Err("it is in no cluster yet".to_owned())).boxed();
            };
            let found = handler.snapshot(me, group, at_least);
            async move {
                let Some(SnapshotOut { meta, length, blocks, .. }) = found.await? else { return Ok(None) };
                let blocks = blocks.try_collect().await.map_err(|error: std::io::Error| error.to_string())?;
                Ok(Some((meta, length, blocks)))
            }
            .boxed()
        };
        let asked = self.peers.clone().ask(there, SNAPSHOT, |peers, answer| {
            peers.net.send(peers.here, there, peers.deed(there, work, Some(answer)), || None)
        });
        match asked.await {
            Ok(Ok(found)) => Ok(found.map(|(meta, length, blocks)| {
                let blocks = stream::iter(blocks.into_iter().map(Ok)).boxed();
                SnapshotOut { group, vote: Bytes::new(), meta, length, blocks }
            })),
            Ok(Err(problem)) => Err(CallError::Remote { node: from, problem }),
            Err(_) => Err(lost("no answer")),
        }
    }
}

#[async_trait]
impl Newcomers for Peers {
    async fn identify(&self, address: &str) -> Result<v1::IdentifyResponse, String> {
        self.newcomer(address, |node| async move { Ok(node.identify()) }.boxed()).await
    }

    async fn assign(&self, address: &str, request: v1::AssignRequest) -> Result<(), String> {
        let assign =
            |node: Arc<Node>| async move { node.assign(request).await.map_err(|error| error.to_string()) }.boxed();
        self.newcomer(address, assign).await
    }
}

impl Peers {
    async fn newcomer<T: Send + 'static>(
        &self,
        address: &str,
        work: impl FnOnce(Arc<Node>) -> Work<T> + Send + 'static,
    ) -> Result<T, String> {
        let there = machine_of(address).ok_or_else(|| format!("{address}: nobody knows where"))?;
        let work = move |nodes: &Nodes| match nodes.get(there) {
            Some(node) => work(node),
            None => futures::future::ready(Err("the node is still starting".to_owned())).boxed(),
        };
        let asked = self.clone().ask(there, NEWCOMER, |peers, answer| {
            peers.net.send(peers.here, there, peers.deed(there, work, Some(answer)), || None)
        });
        asked.await.map_err(|_| format!("{address}: no answer"))?
    }
}

/// The term and the leader that an append says it comes from.
pub fn author(append: &Bytes) -> Option<(u64, NodeId)> {
    // Behind the version's byte stands the vote.
    let mut body = append.slice(1..);
    let vote = Vote::read(&mut body).ok()?;
    Some((vote.leader_id.term, vote.leader_id.voted_for))
}
