//! A node that is in a cluster: its log, its groups, and its way to the other members.
//!
//! ```text
//!  record ─► log ─► control group ─► state of the cluster ─┬► front: ingress, sequencers, clock, clients
//!                                                          ├► directory: where the other nodes are
//!                                                          └► a group for every shard that this node holds
//! ```
//!
//! Invariant: whatever stops any of it fails the whole node. A node that runs without one of its groups would answer for a
//! cluster that it no longer follows.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt, join_all};
use openraft::Config;
use openraft::storage::RaftStateMachine;
use quorate_core::{GroupId, NodeId, ShardId};
use quorate_proto::v1;
use quorate_proto::v1::peer_request::Kind;
use tokio::sync::watch;

use super::parts::Parts;
use super::record::Record;
use super::replica::{Replica, status_to_wire};
use crate::caps;
use crate::clock::{ClusterClock, Wall, clock_from_wire};
use crate::control::{ControlAnswer, ControlCommand, ControlState, ShardInfo};
use crate::identity::Identity;
use crate::log::{GroupLog, Log, LogSettings};
use crate::raft::dispatch::NodeCalls;
use crate::raft::messages::Message;
use crate::raft::types::{LogId, SnapshotMeta, TypeConfig};
use crate::raft::{Applied, ControlMachine, Dispatch, Group, Leadership, ProposeError, ShardMachine, config};
use crate::services::front::{Front, TopologySender};
use crate::services::ingress::Ingress;
use crate::settings::Settings;
use crate::snapshot_files::{SnapshotFiles, SnapshotHandle};
use crate::transport::{Call, CallError, Directory, SnapshotOut, Transport};

/// Holds why the node has failed, once it has.
pub(super) type Failed = watch::Sender<Option<String>>;

/// The running parts of a member.
pub(super) struct Member {
    record: Record,
    parts: Parts,
    settings: Settings,
    raft: Arc<Config>,
    log: Log,
    directory: Directory,
    transport: Arc<dyn Transport>,
    dispatch: Arc<Dispatch>,
    control: Group<ControlMachine>,
    state: watch::Receiver<Arc<ControlState>>,
    front: Front,
    replicas: Mutex<BTreeMap<ShardId, Replica>>,
    /// Replicas that look for the snapshot that they lost.
    mending: Mutex<BTreeSet<ShardId>>,
    failed: Failed,
}

impl Member {
    /// Starts everything that the record and the disk know of. What is learned of the cluster later is started then.
    ///
    /// # Errors
    ///
    /// The disk, or what is on it; in words that say what to do.
    pub(super) async fn start(
        mut record: Record,
        parts: Parts,
        settings: Settings,
        ingress: Arc<Ingress>,
        clients: TopologySender,
        calls: Arc<dyn NodeCalls>,
        failed: Failed,
    ) -> Result<Arc<Member>, String> {
        let me = record.identity;
        let raft = config::config(&me.cluster.to_string(), &settings.raft)?;
        let segment_bytes = u32::try_from(settings.log.segment_bytes).map_err(|_| "log.segment_bytes is too large")?;
        let log_settings = LogSettings { segment_bytes, may_create: !record.began, ..LogSettings::default() };
        let log = Log::open(parts.disk.clone(), me, log_settings).await.map_err(|error| error.to_string())?;
        if !record.began {
            record.began = true;
            record.save(&parts.disk).await.map_err(|error| error.to_string())?;
        }
        let directory = Directory::default();
        directory.set(record.numbered().map(|(node, address)| (node, address.clone())));
        let transport = (parts.transport)(me, directory.clone());
        let dispatch = Arc::new(Dispatch::default());
        dispatch.serve_node(calls);

        let files = SnapshotFiles::new(parts.disk.clone(), me.cluster, GroupId::CONTROL);
        let store = (parts.store)().await.map_err(|error| error.to_string())?;
        let group_log = log.group(GroupId::CONTROL);
        let open =
            async || ControlMachine::open(Arc::clone(&store), files.clone()).await.map_err(|error| error.to_string());
        let mut machine = open().await?;
        if lacks(machine.applied(), &group_log) {
            let members: Vec<NodeId> = record.numbered().map(|(node, _)| node).collect();
            mend(me.node, &members, &files, &group_log, &*transport).await?;
            machine = open().await?;
        }
        let state = machine.watch();
        // Before it may vote.
        at_its_address(me.node, &record, &state.borrow(), &settings.advertise)?;
        let (way, own_clock) = (Arc::clone(&transport), Arc::clone(&parts.clock));
        let control = Group::start(me.node, group_log, machine, way, own_clock, Arc::clone(&raft)).await?;
        dispatch.add(&control, files);

        let clock = ClusterClock::new(me.node, Arc::clone(&parts.clock));
        let ask = ask_clock(Arc::clone(&transport));
        let front = Front::start(ingress, clock, state.clone(), ask, clients, settings.checks.queue);
        let member = Arc::new(Member {
            record,
            parts,
            settings,
            raft,
            log,
            directory,
            transport,
            dispatch,
            control,
            state,
            front,
            replicas: Mutex::default(),
            mending: Mutex::default(),
            failed,
        });
        member.watch_log();
        let voters = member.record.numbered().map(|(node, _)| node).take(caps::CONTROL_VOTERS).collect();
        member.keep(&member.control, voters, || 0);
        member.start_replicas().await?;
        tokio::spawn(Arc::clone(&member).follow());
        tokio::spawn(Arc::clone(&member).keep_learners());
        Ok(member)
    }

    /// What the node was told when it became a member.
    pub(super) fn record(&self) -> &Record {
        &self.record
    }

    /// Which node it is.
    pub(super) fn identity(&self) -> Identity {
        self.record.identity
    }

    /// Its log.
    pub(super) fn log(&self) -> &Log {
        &self.log
    }

    /// Answers the other members.
    pub(super) fn dispatch(&self) -> Arc<Dispatch> {
        Arc::clone(&self.dispatch)
    }

    /// What the cluster has agreed on, as far as it is known here.
    pub(super) fn state(&self) -> Arc<ControlState> {
        Arc::clone(&self.state.borrow())
    }

    /// Follows it.
    pub(super) fn watch_state(&self) -> watch::Receiver<Arc<ControlState>> {
        self.state.clone()
    }

    /// Who leads the control group.
    pub(super) fn control_leadership(&self) -> watch::Receiver<Leadership> {
        self.control.leadership()
    }

    /// The cluster's clock as it is known here.
    pub(super) fn clock(&self) -> &ClusterClock {
        self.front.clock()
    }

    /// Proposes to the control group.
    ///
    /// # Errors
    ///
    /// This node does not lead it, or lost the leadership meanwhile.
    pub(super) async fn propose(&self, command: &ControlCommand) -> Result<ControlAnswer, ProposeError> {
        match self.control.propose(command.encode().into()).await?.await? {
            Applied::Control(answer) => Ok(answer),
            Applied::None | Applied::Shard(_) => Err(ProposeError::Unknown),
        }
    }

    /// Asks another member.
    pub(super) fn call(
        &self,
        node: NodeId,
        kind: Kind,
        body: Bytes,
        patience: std::time::Duration,
    ) -> BoxFuture<'static, Result<Bytes, CallError>> {
        self.transport.call(node, Call { group: GroupId::CONTROL, kind, body }, patience)
    }

    /// What it says of itself and of its replicas.
    pub(super) fn status(&self) -> v1::NodeStatus {
        let mut replicas = vec![status_to_wire(0, &self.control.status())];
        replicas.extend(self.replicas().values().map(Replica::status));
        v1::NodeStatus {
            id: self.identity().node.0,
            clock_offset_us: self.clock().status().own_offset_us,
            log_bytes: self.log.usage().bytes,
            replicas,
            ..v1::NodeStatus::default()
        }
    }

    /// Hands over every group that it leads, so that nobody has to wait for an election.
    pub(super) async fn hand_over(&self) {
        let replicas = self.replicas();
        let shards = join_all(replicas.values().map(|replica| replica.group().hand_over()));
        futures::join!(shards, self.control.hand_over());
    }

    /// Stops every group, then the log.
    pub(super) async fn shutdown(&self) {
        self.dispatch.remove_all();
        let replicas = self.replicas();
        join_all(replicas.values().map(|replica| replica.group().shutdown())).await;
        self.control.shutdown().await;
        self.log.close().await;
    }

    fn replicas(&self) -> BTreeMap<ShardId, Replica> {
        self.replicas.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The node has failed.
    fn fail(&self, why: String) {
        self.failed.send_if_modified(|failed| {
            let first = failed.is_none();
            failed.get_or_insert(why);
            first
        });
    }

    fn watch_log(self: &Arc<Self>) {
        let (member, mut failed) = (Arc::clone(self), self.log.failed());
        tokio::spawn(async move {
            if let Ok(error) = failed.wait_for(Option::is_some).await.map(|error| error.clone()) {
                member.fail(error.map(|error| error.to_string()).unwrap_or_default());
            }
        });
    }

    /// Looks after a group for as long as it runs: its birth, its snapshots, and that the node does not outlive it.
    fn keep<M>(self: &Arc<Self>, group: &Group<M>, voters: Vec<NodeId>, state_bytes: impl Fn() -> u64 + Send + 'static)
    where
        M: RaftStateMachine<TypeConfig, SnapshotData = SnapshotHandle>,
    {
        let (member, running) = (Arc::clone(self), group.clone());
        tokio::spawn(async move {
            if let Some(problem) = running.stopped().await {
                member.fail(format!("group {} has failed: {problem}", running.id()));
            }
        });
        let (member, born) = (Arc::clone(self), group.clone());
        tokio::spawn(async move {
            if voters.first() != Some(&member.identity().node) {
                tokio::time::sleep(caps::BIRTH).await;
            }
            if voters.contains(&member.identity().node)
                && let Err(problem) = born.initialize(&voters).await
            {
                tracing::debug!(group = born.id().0, problem, "a group was not begun here");
            }
        });
        let least = self.settings.snapshot.log_bytes;
        // Shards fill their logs at the same pace; a share of their own keeps their snapshots apart.
        let share = least / 16 * u64::from(group.id().0 % 8);
        tokio::spawn(group.clone().keep_compact(caps::SNAPSHOT_PERIOD, move || least.max(state_bytes()) + share));
    }

    /// Keeps up with what the cluster agrees on, until the control group stops.
    async fn follow(self: Arc<Self>) {
        let mut state = self.state.clone();
        while state.changed().await.is_ok() {
            if let Err(problem) = self.start_replicas().await {
                return self.fail(problem);
            }
        }
    }

    /// Starts a replica of every shard that this node holds and does not run.
    async fn start_replicas(self: &Arc<Self>) -> Result<(), String> {
        let state = self.state();
        if !state.is_born() {
            return Ok(());
        }
        self.directory.set(state.nodes.values().map(|node| (node.id, node.address.clone())));
        let me = self.identity().node;
        at_its_address(me, &self.record, &state, &self.settings.advertise)?;
        let running = self.replicas();
        for shard in state.shards_of(me).filter(|shard| !running.contains_key(&shard.id)) {
            let files = SnapshotFiles::new(self.parts.disk.clone(), self.identity().cluster, shard.id.into());
            let machine = open_machine(shard, &files).await?;
            if lacks(machine.applied(), &self.log.group(shard.id.into())) {
                self.mend_replica(shard, files);
            } else {
                self.start_replica(shard, machine, files).await?;
            }
        }
        Ok(())
    }

    /// Starts a replica once its lost snapshot was fetched from another: aside, so that this node meanwhile serves those that
    /// look for theirs here.
    fn mend_replica(self: &Arc<Self>, shard: &ShardInfo, files: SnapshotFiles) {
        if !self.mending.lock().unwrap_or_else(PoisonError::into_inner).insert(shard.id) {
            return;
        }
        let (member, shard) = (Arc::clone(self), shard.clone());
        tokio::spawn(async move {
            let log = member.log.group(shard.id.into());
            let mend = async {
                mend(member.identity().node, &shard.replicas, &files, &log, &*member.transport).await?;
                let machine = open_machine(&shard, &files).await?;
                member.start_replica(&shard, machine, files).await
            };
            if let Err(problem) = mend.await {
                member.fail(problem);
            }
        });
    }

    async fn start_replica(
        self: &Arc<Self>,
        shard: &ShardInfo,
        machine: ShardMachine,
        files: SnapshotFiles,
    ) -> Result<(), String> {
        let (me, group) = (self.identity(), GroupId::from(shard.id));
        let group_log = self.log.group(group);
        let state = machine.shard();
        let (way, own_clock) = (Arc::clone(&self.transport), Arc::clone(&self.parts.clock));
        let group = Group::start(me.node, group_log, machine, way, own_clock, Arc::clone(&self.raft)).await?;
        let replica = Replica::new(shard.id, state, group);
        self.dispatch.add(replica.group(), files);
        self.replicas.lock().unwrap_or_else(PoisonError::into_inner).insert(shard.id, replica.clone());
        let counted = replica.clone();
        self.front.add_shard(replica.clone(), shard.arc, move || counted.sessions());
        let measured = replica.clone();
        self.keep(replica.group(), shard.replicas.clone(), move || measured.state_bytes());
        Ok(())
    }

    /// While it leads the control group: nodes that do not vote in it follow it.
    async fn keep_learners(self: Arc<Self>) {
        let (mut state, mut leadership) = (self.state.clone(), self.control.leadership());
        loop {
            let nodes: Vec<NodeId> = self.record.numbered().map(|(node, _)| node).collect();
            let known: Vec<NodeId> = state.borrow_and_update().nodes.keys().copied().collect();
            if leadership.borrow_and_update().is_self {
                self.control.add_learners(nodes.into_iter().chain(known)).await;
            }
            tokio::select! {
                changed = state.changed() => if changed.is_err() { return },
                changed = leadership.changed() => if changed.is_err() { return },
            }
        }
    }
}

/// A node stays where the cluster knows it: whoever has its data directory and gives another address is a copy of it.
fn at_its_address(me: NodeId, record: &Record, state: &ControlState, advertise: &str) -> Result<(), String> {
    let told = record.numbered().find(|(node, _)| *node == me).map(|(_, address)| address);
    match state.nodes.get(&me).map(|node| &node.address).or(told) {
        Some(known) if known != advertise => Err(format!(
            "the cluster knows {me} at {known}, and `advertise` says {advertise} here: either this is a copy of that node's data \
             directory, and may not run beside it, or the setting was changed; set `advertise` to {known} again"
        )),
        _ => Ok(()),
    }
}

async fn open_machine(shard: &ShardInfo, files: &SnapshotFiles) -> Result<ShardMachine, String> {
    let machine = ShardMachine::open(shard.id, shard.arc, files.clone()).await;
    machine.map_err(|error| format!("{} cannot start: {error}", shard.id))
}

/// Whether what was purged from the log is in no state that this node has: its snapshot was lost or is rotten.
fn lacks(applied: Option<LogId>, log: &GroupLog) -> bool {
    log.marks().purged.is_some_and(|purged| applied.is_none_or(|applied| applied.index() < purged.index.0))
}

/// Fetches a snapshot that covers what was purged from the log here, from another replica.
async fn mend(
    me: NodeId,
    replicas: &[NodeId],
    files: &SnapshotFiles,
    log: &GroupLog,
    transport: &dyn Transport,
) -> Result<(), String> {
    let group = files.group();
    let at_least = log.marks().purged.map(|purged| purged.index).unwrap_or_default();
    tracing::error!(node = me.0, group = group.0, "this replica's snapshot is lost; another's is fetched");
    let deadline = tokio::time::Instant::now() + caps::MEND;
    let mut problem = "no other node holds a replica".to_owned();
    while tokio::time::Instant::now() < deadline {
        for &other in replicas.iter().filter(|other| **other != me) {
            match transport.fetch_snapshot(other, group, at_least).await {
                Ok(Some(SnapshotOut { meta, length, blocks, .. })) => {
                    let meta = SnapshotMeta::decode(meta).map_err(|error| error.to_string())?;
                    match files.receive(meta, length, blocks).await {
                        Ok(_) => {
                            tracing::info!(
                                node = me.0,
                                group = group.0,
                                from = other.0,
                                "a lost snapshot was replaced"
                            );
                            return Ok(());
                        }
                        Err(error) => problem = format!("{other}: {error}"),
                    }
                }
                Ok(None) => problem = format!("{other} has none that covers enough yet"),
                Err(error) => problem = error.to_string(),
            }
        }
        tokio::time::sleep(caps::MEND_RETRY).await;
    }
    Err(format!(
        "the snapshot of group {group} is lost, its log no longer holds what the snapshot did, and none could be fetched \
         ({problem}); start the other nodes that hold this group, then this one again"
    ))
}

/// Asks another node's clock, over the link to it.
fn ask_clock(
    transport: Arc<dyn Transport>,
) -> impl Fn(NodeId) -> BoxFuture<'static, Option<Wall>> + Send + Sync + 'static {
    move |node| {
        let call = Call { group: GroupId::CONTROL, kind: Kind::Clock, body: Bytes::new() };
        read_clock(transport.call(node, call, caps::STATUS_PATIENCE)).boxed()
    }
}

async fn read_clock(answer: impl Future<Output = Result<Bytes, CallError>>) -> Option<Wall> {
    clock_from_wire(&answer.await.ok()?)
}
