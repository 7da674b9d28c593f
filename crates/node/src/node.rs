//! A whole node: what it serves from its first moment, and what it runs once it is in a cluster.
//!
//! ```text
//!  Node ─ services: ingress, clients' topology, health, operator's calls, other nodes' calls
//!    │ assigned to a cluster: held until that has begun
//!    └► Member ─ log, control group, shards' groups, links to the other members
//! ```
//!
//! One file a noun: `parts` what it takes from its machine, `record` whose the data directory is, `member` what runs in a
//! cluster, `replica` a shard of it, `found` the making of a cluster, `peer` what other nodes ask.

mod found;
mod member;
mod parts;
mod peer;
mod record;
mod replica;

use std::future::Future;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt, ready};
use quorate_core::{NodeId, Stamp};
use quorate_proto::v1;
use quorate_proto::v1::peer_request::Kind;
use tokio::sync::{Mutex, watch};
use tonic::Status;
use tonic::service::Routes;

pub use parts::{MakeTransport, OpenStore, Parts};

use crate::clock::Monotonic;
use crate::control::{ControlAnswer, ControlCommand, ControlState};
use crate::identity::ClusterId;
use crate::log::Log;
use crate::raft::dispatch::NodeCalls;
use crate::raft::{Leadership, ProposeError};
use crate::services::admin::Cluster;
use crate::services::front::TopologySender;
use crate::services::ingress::Ingress;
use crate::services::topology::Newest;
use crate::services::{Admin, Checks, Health, Reports, Topology, peer_calls, routes};
use crate::settings::Settings;
use crate::transport::{CallError, Handler};
use found::assign_from_wire;
use member::{Failed, Member};
use peer::Peers;
use record::Record;

/// Why a node did not become a member.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AssignError {
    /// The request says what cannot be.
    #[error("{0}")]
    Invalid(String),
    /// It is another member, or its disk failed.
    #[error("{0}")]
    Taken(String),
}

/// A node. It runs on the tokio runtime that it was started on.
pub struct Node {
    settings: Settings,
    parts: Parts,
    ingress: Arc<Ingress>,
    clients: TopologySender,
    health: Health,
    member: OnceLock<Arc<Member>>,
    /// What this node was assigned and has not taken up.
    held: watch::Sender<Option<Record>>,
    /// One at a time changes what this node is.
    joining: Mutex<()>,
    /// One at a time makes a cluster.
    founding: Mutex<()>,
    failed: Failed,
    /// What is told of the control group before there is one.
    leaderless: watch::Sender<Leadership>,
    started: Monotonic,
    reports: Arc<Reports>,
    me: Weak<Node>,
}

impl Node {
    /// Starts a node on what its data directory holds.
    ///
    /// # Errors
    ///
    /// The disk, or what is on it; in words that say what to do.
    pub async fn start(settings: Settings, parts: Parts) -> Result<Arc<Node>, String> {
        let record = Record::load(&parts.disk).await.map_err(|error| error.to_string())?;
        let node = Arc::new_cyclic(|me| Node {
            ingress: Arc::new(Ingress::new(Arc::clone(&parts.clock))),
            clients: watch::channel(None).0,
            health: Health::default(),
            member: OnceLock::new(),
            held: watch::channel(None).0,
            joining: Mutex::default(),
            founding: Mutex::default(),
            failed: watch::channel(None).0,
            leaderless: watch::channel(Leadership::default()).0,
            started: parts.clock.monotonic(),
            reports: Arc::default(),
            me: me.clone(),
            settings,
            parts,
        });
        node.health.set_serving(false).await;
        match record {
            Some(record) if record.began => node.become_member(record).await?,
            Some(record) => {
                tracing::info!(address = node.advertise(), "the cluster that this node is meant for has not begun yet");
                node.held.send_replace(Some(record));
            }
            None => tracing::info!(address = node.advertise(), "this node is in no cluster yet"),
        }
        Ok(node)
    }

    /// Its services, for a server.
    pub fn routes(&self) -> Routes {
        let newest = self.clients.subscribe();
        let checks = Checks::new(Arc::clone(&self.ingress), self.advertise(), Arc::clone(&self.reports), newest);
        let topology = Topology::new(self.clients.subscribe());
        // Whoever has the node has it alive.
        let node = self.me.upgrade().expect("a node outlives the calls on it");
        routes(checks, topology, Admin::new(Arc::clone(&node)), Peers::new(node), &self.health)
    }

    /// Where its clients' frames are taken in.
    pub fn ingress(&self) -> &Arc<Ingress> {
        &self.ingress
    }

    /// What its clients are told of the cluster.
    pub fn topology(&self) -> Newest {
        self.clients.subscribe()
    }

    /// What answers other members; none before it is one.
    pub fn handler(&self) -> Option<Arc<dyn Handler>> {
        self.member().map(|member| member.dispatch() as Arc<dyn Handler>)
    }

    /// Its log; none before it is a member.
    pub fn log(&self) -> Option<Log> {
        self.member().map(|member| member.log().clone())
    }

    /// Resolves when the node has failed and has to be stopped, with the reason.
    pub fn failed(&self) -> impl Future<Output = String> + Send + 'static {
        let mut failed = self.failed.subscribe();
        async move {
            match failed.wait_for(Option::is_some).await.map(|failed| failed.clone()) {
                Ok(why) => why.unwrap_or_default(),
                Err(_) => std::future::pending().await,
            }
        }
    }

    /// Takes no more new clients, and hands over every group that it leads. Answers go on until [`shutdown`](Self::shutdown).
    pub async fn hand_over(&self) {
        self.health.set_serving(false).await;
        if let Some(member) = self.member() {
            member.hand_over().await;
        }
    }

    /// Stops every group, then the log: when this returns, all that was logged is durable.
    pub async fn shutdown(&self) {
        if let Some(member) = self.member() {
            member.shutdown().await;
        }
    }

    fn member(&self) -> Option<Arc<Member>> {
        self.member.get().cloned()
    }

    fn parts(&self) -> &Parts {
        &self.parts
    }

    fn advertise(&self) -> String {
        self.settings.advertise.clone()
    }

    /// Who it is.
    pub fn identify(&self) -> v1::IdentifyResponse {
        let mut answer = v1::IdentifyResponse {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            address: self.advertise(),
            zone: self.settings.zone.clone(),
            ..v1::IdentifyResponse::default()
        };
        if let Some(record) = self.record() {
            answer.cluster_id = record.identity.cluster.0.to_be_bytes().to_vec().into();
            answer.node_id = record.identity.node.0;
            answer.members = record.members;
            answer.cluster_name = record.cluster_name;
            answer.began = record.began;
        }
        answer
    }

    /// What this node was assigned, whether it has taken that up or not.
    fn record(&self) -> Option<Record> {
        match self.member() {
            Some(member) => Some(member.record().clone()),
            None => self.held.borrow().clone(),
        }
    }

    /// Holds what whoever makes a cluster assigns to this node, or takes it up.
    ///
    /// # Errors
    ///
    /// Another node is meant, it is another already, or the request says what cannot be.
    pub async fn assign(&self, request: v1::AssignRequest) -> Result<(), AssignError> {
        let begin = request.begin;
        let record = assign_from_wire(request).map_err(|problem| AssignError::Invalid(problem.to_owned()))?;
        let own = self.advertise();
        let meant = record.numbered().find(|(node, _)| *node == record.identity.node).map(|(_, address)| address);
        if meant != Some(&own) {
            let meant = meant.cloned().unwrap_or_default();
            return Err(AssignError::Invalid(format!("this node is {own}, and {meant} is to become a member")));
        }
        let done = if begin { self.follow(record).await } else { self.hold(record).await };
        done.map_err(AssignError::Taken)
    }

    /// Holds an assignment, until it is begun or gives way to one of a cluster with a lower id, made of the same nodes: so
    /// that of two clusters that are made at once, one is. Done twice it is the same as done once.
    ///
    /// # Errors
    ///
    /// It is or holds another, or its disk failed.
    async fn hold(&self, record: Record) -> Result<(), String> {
        let _one = self.joining.lock().await;
        match self.record() {
            Some(is) if is.is_same_as(&record) => return Ok(()),
            Some(is) if is.began || !is.has_members_of(&record) || is.identity.cluster < record.identity.cluster => {
                return Err(self.is_another(&is, &record));
            }
            _ => {}
        }
        record.save(&self.parts.disk).await.map_err(|error| error.to_string())?;
        self.held.send_replace(Some(record));
        Ok(())
    }

    /// Takes up what this node holds, as the first of its cluster or after it: all members were seen to hold theirs.
    ///
    /// # Errors
    ///
    /// It holds something else by now, or its disk failed.
    async fn begin(&self, record: &Record) -> Result<(), String> {
        let _one = self.joining.lock().await;
        match self.record() {
            Some(is) if !is.is_same_as(record) => Err(self.is_another(&is, record)),
            None => Err(self.is_blank(record)),
            Some(is) if is.began => Ok(()),
            Some(is) => self.become_member(is).await,
        }
    }

    /// Takes up a place in a cluster that has begun, whatever else of the same nodes this node held. A node that holds
    /// nothing is not the one that the place was given to: that one may have voted, and has lost its memory.
    ///
    /// # Errors
    ///
    /// It is another, or none, or its disk failed.
    async fn follow(&self, record: Record) -> Result<(), String> {
        let _one = self.joining.lock().await;
        match self.record() {
            None => Err(self.is_blank(&record)),
            Some(is) if is.began && is.is_same_as(&record) => Ok(()),
            Some(is) if is.began || !is.has_members_of(&record) => Err(self.is_another(&is, &record)),
            Some(_) => self.become_member(record).await,
        }
    }

    /// A member of that cluster calls this node: takes up the place in it that this node holds, if it does. Only who has begun
    /// calls.
    pub async fn called_by_member_of(&self, cluster: ClusterId) {
        let held = self.held.borrow().clone();
        if let Some(record) = held.filter(|held| held.identity.cluster == cluster)
            && let Err(problem) = self.follow(record).await
        {
            tracing::warn!(problem, "the place in the cluster that this node holds cannot be taken up");
        }
    }

    fn is_another(&self, is: &Record, meant: &Record) -> String {
        let how = if is.began { "is" } else { "is held to become" };
        format!("{} {how} {} already, and cannot become {}", self.advertise(), is.identity, meant.identity)
    }

    fn is_blank(&self, meant: &Record) -> String {
        found::lost_its_memory(&self.advertise(), meant.identity.cluster)
    }

    async fn become_member(&self, record: Record) -> Result<(), String> {
        let identity = record.identity;
        let (parts, settings, ingress) = (self.parts.clone(), self.settings.clone(), Arc::clone(&self.ingress));
        let calls = Arc::new(Calls(self.me.clone()));
        let clients = self.clients.clone();
        let member = Member::start(record, parts, settings, ingress, clients, calls, self.failed.clone()).await?;
        let _ = self.member.set(member);
        self.held.send_replace(None);
        self.health.set_serving(true).await;
        tracing::info!(node = identity.node.0, cluster = %identity.cluster, "this node is a member");
        Ok(())
    }
}

/// Answers other members' questions to the node itself.
struct Calls(Weak<Node>);

impl NodeCalls for Calls {
    fn handle(&self, _from: NodeId, kind: Kind, body: Bytes) -> BoxFuture<'static, Result<Bytes, String>> {
        match self.0.upgrade() {
            Some(node) => peer_calls::answer(&node, &*node.parts.clock, kind, body),
            None => ready(Err("the node is stopping".to_owned())).boxed(),
        }
    }
}

#[tonic::async_trait]
impl Cluster for Node {
    fn me(&self) -> Option<NodeId> {
        self.member().map(|member| member.identity().node)
    }

    fn state(&self) -> Option<Arc<ControlState>> {
        self.member().map(|member| member.state()).filter(|state| state.is_born())
    }

    fn leadership(&self) -> watch::Receiver<Leadership> {
        self.member().map_or_else(|| self.leaderless.subscribe(), |member| member.control_leadership())
    }

    async fn propose(&self, command: ControlCommand) -> Result<ControlAnswer, ProposeError> {
        match self.member() {
            Some(member) => member.propose(&command).await,
            None => Err(ProposeError::NotLeader { leader: None }),
        }
    }

    fn call(
        &self,
        node: NodeId,
        kind: Kind,
        body: Bytes,
        patience: Duration,
    ) -> BoxFuture<'static, Result<Bytes, CallError>> {
        match self.member() {
            Some(member) => member.call(node, kind, body, patience),
            None => {
                let problem = "this node is in no cluster".to_owned();
                ready(Err(CallError::Unreachable { node, problem })).boxed()
            }
        }
    }

    fn status(&self) -> v1::NodeStatus {
        v1::NodeStatus {
            address: self.advertise(),
            zone: self.settings.zone.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime_us: self.parts.clock.monotonic().since(self.started).0 as u64,
            false_positives: self.reports.counts().into_iter().collect(),
            ..self.member().map(|member| member.status()).unwrap_or_default()
        }
    }

    fn now(&self) -> Stamp {
        match self.member() {
            Some(member) => member.clock().now(),
            None => Stamp(self.parts.clock.wall().0),
        }
    }

    async fn found(&self, request: v1::ClusterInitRequest) -> Result<v1::ClusterInitResponse, Status> {
        let _one = self.founding.lock().await;
        found::found(self, request).await
    }
}
