//! A whole node: what it serves from its first moment, and what it runs once it is in a cluster.
//!
//! ```text
//!  Node ─ services: ingress, clients' topology, health, operator's calls, other nodes' calls
//!    │ assigned to a cluster, or found to be in one
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
use crate::log::Log;
use crate::raft::dispatch::NodeCalls;
use crate::raft::{Leadership, ProposeError};
use crate::services::admin::Cluster;
use crate::services::front::TopologySender;
use crate::services::ingress::Ingress;
use crate::services::topology::Newest;
use crate::services::{Admin, Checks, Health, Topology, peer_calls, routes};
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
    /// One at a time makes this node a member.
    joining: Mutex<()>,
    /// One at a time makes a cluster.
    founding: Mutex<()>,
    failed: Failed,
    /// What is told of the control group before there is one.
    leaderless: watch::Sender<Leadership>,
    started: Monotonic,
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
            joining: Mutex::default(),
            founding: Mutex::default(),
            failed: watch::channel(None).0,
            leaderless: watch::channel(Leadership::default()).0,
            started: parts.clock.monotonic(),
            me: me.clone(),
            settings,
            parts,
        });
        node.health.set_serving(false).await;
        match record {
            Some(record) => node.become_member(record).await?,
            None => tracing::info!(address = node.advertise(), "this node is in no cluster yet"),
        }
        Ok(node)
    }

    /// Its services, for a server.
    pub fn routes(&self) -> Routes {
        let checks = Checks::new(Arc::clone(&self.ingress), self.advertise());
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
        if let Some(member) = self.member() {
            let record = member.record();
            answer.cluster_id = record.identity.cluster.0.to_be_bytes().to_vec().into();
            answer.node_id = record.identity.node.0;
            answer.members = record.members.clone();
            answer.cluster_name = record.cluster_name.clone();
        }
        answer
    }

    /// Becomes a member, as whoever makes a cluster says.
    ///
    /// # Errors
    ///
    /// Another node is meant, it is a member already, or the request says what cannot be.
    pub async fn assign(&self, request: v1::AssignRequest) -> Result<(), AssignError> {
        let record = assign_from_wire(request).map_err(|problem| AssignError::Invalid(problem.to_owned()))?;
        let own = self.advertise();
        let meant = record.numbered().find(|(node, _)| *node == record.identity.node).map(|(_, address)| address);
        if meant != Some(&own) {
            let meant = meant.cloned().unwrap_or_default();
            return Err(AssignError::Invalid(format!("this node is {own}, and {meant} is to become a member")));
        }
        self.join(record).await.map_err(AssignError::Taken)
    }

    /// Becomes the member that the record says, for good; done twice it is the same as done once.
    ///
    /// # Errors
    ///
    /// It is another already, or its disk failed.
    async fn join(&self, record: Record) -> Result<(), String> {
        let _one = self.joining.lock().await;
        if let Some(member) = self.member() {
            let is = member.record();
            if (is.identity, &is.members) == (record.identity, &record.members) {
                return Ok(());
            }
            return Err(format!(
                "{} is {} already, and cannot become {}",
                self.advertise(),
                is.identity,
                record.identity
            ));
        }
        record.save(&self.parts.disk).await.map_err(|error| error.to_string())?;
        self.become_member(record).await
    }

    async fn become_member(&self, record: Record) -> Result<(), String> {
        let identity = record.identity;
        let (parts, settings, ingress) = (self.parts.clone(), self.settings.clone(), Arc::clone(&self.ingress));
        let calls = Arc::new(Calls(self.me.clone()));
        let clients = self.clients.clone();
        let member = Member::start(record, parts, settings, ingress, clients, calls, self.failed.clone()).await?;
        let _ = self.member.set(member);
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
