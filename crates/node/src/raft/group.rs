//! One Raft group on this node: proposing to it, and knowing who leads it.
//!
//! Leadership is told once it is worth something: a new leader counts as leading from when it has applied an entry of its own
//! term, since before that its state may lack what an earlier leader answered.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use openraft::async_runtime::WatchReceiver;
use openraft::errors::{ClientWriteError, Fatal};
use openraft::impls::ProgressResponder;
use openraft::storage::RaftStateMachine;
use openraft::{Config, EmptyNode, Raft, ServerState};
use quorate_core::{GroupId, Index, NodeId, Term};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::applied::Applied;
use super::lease::Lease;
use super::log_storage::LogStorage;
use super::network::Peers;
use super::types::{LogId, Proposal, TypeConfig};
use crate::caps;
use crate::clock::Clock;
use crate::log::GroupLog;
use crate::snapshot_files::SnapshotHandle;
use crate::transport::Transport;

/// Who leads a group, as this node knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Leadership {
    /// The term.
    pub term: Term,
    /// The leader of that term, if it has one that is known here.
    pub leader: Option<NodeId>,
    /// Whether that is this node, and it has applied an entry of the term: so its state holds all that was ever answered.
    pub is_self: bool,
}

/// Why a proposal has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProposeError {
    /// It was not proposed: this node does not lead.
    #[error("this node does not lead the group")]
    NotLeader {
        /// Who does, if it is known.
        leader: Option<NodeId>,
    },
    /// It was proposed, and the leadership was lost before it was known to be committed.
    #[error("the leadership was lost; whether it was committed is not known here")]
    Unknown,
    /// The group has stopped on this node.
    #[error("the group has stopped on this node: {0}")]
    Stopped(String),
}

/// What a group says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupStatus {
    /// Who leads.
    pub leadership: Leadership,
    /// The last entry of the log.
    pub last: Index,
    /// The last that is known to be committed.
    pub committed: Index,
    /// The last that was applied.
    pub applied: Index,
    /// The last that a snapshot holds.
    pub snapshot: Index,
    /// Bytes of its log.
    pub log_bytes: u64,
    /// Whether this node votes in it.
    pub voter: bool,
    /// Why it does not work, if it does not.
    pub problem: Option<String>,
}

/// A group on this node. Cheap to clone.
pub struct Group<M: RaftStateMachine<TypeConfig>> {
    id: GroupId,
    me: NodeId,
    raft: Raft<TypeConfig, M>,
    log: GroupLog,
    leadership: watch::Receiver<Leadership>,
    lease: Lease,
    /// Until then this node grants no vote: it may have forgotten a lease.
    silent_until: Option<Instant>,
}

impl<M: RaftStateMachine<TypeConfig>> Clone for Group<M> {
    fn clone(&self) -> Self {
        Group {
            id: self.id,
            me: self.me,
            raft: self.raft.clone(),
            log: self.log.clone(),
            leadership: self.leadership.clone(),
            lease: self.lease.clone(),
            silent_until: self.silent_until,
        }
    }
}

impl<M> Group<M>
where
    M: RaftStateMachine<TypeConfig, SnapshotData = SnapshotHandle>,
{
    /// Starts the group on what its log and its state machine hold.
    ///
    /// One that may have taken part before first grants no vote and stands for no election for the longest election timeout: it
    /// has forgotten whom it has heard from, who may rely on that.
    ///
    /// # Errors
    ///
    /// Log and state do not join, or the disk failed; in words.
    pub async fn start(
        me: NodeId,
        log: GroupLog,
        machine: M,
        transport: Arc<dyn Transport>,
        clock: Arc<dyn Clock>,
        config: Arc<Config>,
    ) -> Result<Self, String> {
        let id = log.id();
        let marks = log.marks();
        let forgets = marks.vote.is_some() || marks.last.is_some();
        // A vote that was not synced is hidden by a node that grants none for so long, too.
        #[cfg(feature = "planted")]
        let forgets = forgets
            && !quorate_core::planted::is(quorate_core::planted::Planted::VotesAtOnce)
            && !quorate_core::planted::is(quorate_core::planted::Planted::VoteNotSynced);
        let election_max = Duration::from_millis(config.election_timeout_max);
        let silent_until = forgets.then(|| Instant::now() + election_max);
        let lease = Lease::new(clock, election_max);
        let peers = Peers::new(id, transport, lease.clone());
        let config = Arc::new(Config { enable_elect: !forgets, ..Config::clone(&config) });
        let raft = Raft::new(me, config, peers, LogStorage::new(log.clone()), machine).await;
        let raft = raft.map_err(|error| format!("group {id} cannot start: {error}"))?;
        let (sender, leadership) = watch::channel(Leadership::default());
        tokio::spawn(follow(me, raft.clone(), sender));
        if let Some(until) = silent_until {
            let raft = raft.clone();
            tokio::spawn(async move {
                sleep_until(until).await;
                raft.runtime_config().elect(true);
            });
        }
        Ok(Group { id, me, raft, log, leadership, lease, silent_until })
    }

    /// The group's number.
    pub fn id(&self) -> GroupId {
        self.id
    }

    /// openraft's handle.
    pub fn raft(&self) -> &Raft<TypeConfig, M> {
        &self.raft
    }

    /// Until when this node grants no vote in it.
    pub fn silent_until(&self) -> Option<Instant> {
        self.silent_until
    }

    /// Whether this node, which leads in that term, is the only one that can: now, after all that was done before the call.
    pub fn has_lease(&self, term: Term) -> bool {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        self.lease.holds(term, self.me, metrics.membership_config.membership().get_joint_config())
    }

    /// Follows who leads.
    pub fn leadership(&self) -> watch::Receiver<Leadership> {
        self.leadership.clone()
    }

    /// Proposes, and gives back the answer to come. Proposals are committed in the order of the calls.
    ///
    /// # Errors
    ///
    /// The group has stopped. That this node does not lead is told by the answer.
    pub async fn propose(
        &self,
        proposal: Bytes,
    ) -> Result<impl Future<Output = Result<Applied, ProposeError>> + Send + use<M>, ProposeError> {
        let (responder, answered) = ProgressResponder::complete_only();
        self.raft.client_write_ff(Proposal(proposal), Some(responder)).await.map_err(|error| stopped(&error))?;
        Ok(async move {
            match answered.await {
                Ok(Ok(response)) => Ok(response.data),
                Ok(Err(ClientWriteError::ForwardToLeader(forward))) => {
                    Err(ProposeError::NotLeader { leader: forward.leader_id })
                }
                // Of proposals only these two are possible; both say that it may yet be committed.
                Ok(Err(_)) | Err(_) => Err(ProposeError::Unknown),
            }
        })
    }

    /// Gives the group its first members, if it has none and nothing in its log. All who call it give the same ones.
    ///
    /// # Errors
    ///
    /// The group has stopped.
    pub async fn initialize(&self, voters: &[NodeId]) -> Result<(), String> {
        match self.raft.is_initialized().await {
            Ok(false) => {}
            Ok(true) => return Ok(()),
            Err(error) => return Err(error.to_string()),
        }
        let members: BTreeMap<NodeId, EmptyNode> = voters.iter().map(|node| (*node, EmptyNode::new())).collect();
        match self.raft.initialize(members).await {
            Ok(()) => tracing::info!(node = self.me.0, group = self.id.0, ?voters, "a group is born"),
            // Another member was faster: its first entry came between the look and the call.
            Err(error) if error.api_error().is_some() => {}
            Err(error) => return Err(error.to_string()),
        }
        Ok(())
    }

    /// Lets these nodes follow the group, if this node leads it and they do not yet.
    pub async fn add_learners(&self, nodes: impl Iterator<Item = NodeId>) {
        for node in nodes {
            let known = self.raft.metrics().borrow_watched().membership_config.membership().get_node(&node).is_some();
            if known {
                continue;
            }
            match self.raft.add_learner(node, EmptyNode::new(), false).await {
                Ok(_) => {
                    tracing::info!(node = self.me.0, group = self.id.0, learner = node.0, "a node follows the group")
                }
                Err(error) => {
                    tracing::debug!(node = self.me.0, group = self.id.0, learner = node.0, %error, "no learner was added");
                    return;
                }
            }
        }
    }

    /// What it says of itself.
    pub fn status(&self) -> GroupStatus {
        let metrics = self.raft.metrics().borrow_watched().clone();
        let index = |id: Option<LogId>| Index(id.map_or(0, |id| id.index()));
        GroupStatus {
            leadership: *self.leadership.borrow(),
            last: Index(metrics.last_log_index.unwrap_or(0)),
            committed: index(metrics.local_committed.max(metrics.cluster_committed)),
            applied: index(metrics.last_applied),
            snapshot: index(metrics.snapshot),
            log_bytes: self.log.bytes(),
            voter: metrics.membership_config.voter_ids().any(|voter| voter == self.me),
            problem: metrics.running_state.err().map(|error| error.to_string()),
        }
    }

    /// Hands the leadership to the follower that has most of the log, if this node has it. Returns when somebody else leads,
    /// or after a bound.
    pub async fn hand_over(&self) {
        let mut leadership = self.leadership.clone();
        if !leadership.borrow().is_self {
            return;
        }
        let heir = {
            let metrics = self.raft.metrics();
            let metrics = metrics.borrow_watched();
            let voters: Vec<NodeId> = metrics.membership_config.voter_ids().collect();
            let matched =
                metrics.replication.iter().flatten().filter(|(node, _)| **node != self.me && voters.contains(node));
            matched.max_by_key(|(_, matched)| **matched).map(|(node, _)| *node)
        };
        let Some(heir) = heir else { return };
        tracing::info!(node = self.me.0, group = self.id.0, heir = heir.0, "handing the leadership over");
        self.lease.give_up(leadership.borrow().term);
        if self.raft.trigger().transfer_leader(heir).await.is_ok() {
            let lost = leadership.wait_for(|now| !now.is_self && now.leader.is_some());
            let _ = tokio::time::timeout(caps::HAND_OVER, lost).await;
        }
    }

    /// Resolves when the group has stopped, with the reason; an ordered stop has none.
    pub async fn stopped(&self) -> Option<String> {
        let mut metrics = self.raft.server_metrics();
        while metrics.changed().await.is_ok() {}
        match self.raft.metrics().borrow_watched().running_state.clone() {
            Err(error) if !matches!(error, Fatal::Stopped) => Some(error.to_string()),
            _ => None,
        }
    }

    /// Stops the group on this node.
    pub async fn shutdown(&self) {
        if let Err(error) = self.raft.shutdown().await {
            tracing::error!(node = self.me.0, group = self.id.0, %error, "a group did not stop as it should");
        }
    }

    /// Takes a snapshot whenever the log has grown by what `threshold` says since the last one, looking every `period`, and
    /// purges what the snapshot before it covers: so the log never has much more than twice that, and a follower that is sent a
    /// snapshot still finds what comes after it when it has arrived. Ends with the group.
    pub async fn keep_compact(self, period: Duration, threshold: impl Fn() -> u64) {
        let covered = || self.raft.metrics().borrow_watched().snapshot.map(|id| id.index());
        let (mut last, mut after_last) = (covered(), 0);
        loop {
            tokio::time::sleep(period).await;
            let now = covered();
            if now > last {
                if let Some(upto) = last
                    && self.raft.trigger().purge_log(upto).await.is_err()
                {
                    return;
                }
                last = now;
            }
            let bytes = self.log.bytes();
            after_last = after_last.min(bytes);
            if bytes - after_last < threshold() {
                continue;
            }
            if self.raft.trigger().snapshot().await.is_err() {
                return;
            }
            after_last = bytes;
        }
    }
}

fn stopped(error: &Fatal<TypeConfig>) -> ProposeError {
    ProposeError::Stopped(error.to_string())
}

/// Tells who leads, until the group stops.
async fn follow<M: RaftStateMachine<TypeConfig>>(
    me: NodeId,
    raft: Raft<TypeConfig, M>,
    sender: watch::Sender<Leadership>,
) {
    let mut server = raft.server_metrics();
    let mut data = raft.data_metrics();
    loop {
        let (term, leader, leads) = {
            let now = server.borrow_watched();
            (now.vote.leader_id().term, now.current_leader, now.state == ServerState::Leader)
        };
        let applied = data.borrow_watched().last_applied.map(|id| id.committed_leader_id().term);
        let is_self = leads && leader == Some(me) && applied == Some(term);
        let now = Leadership { term: Term(term), leader, is_self };
        sender.send_if_modified(|before| std::mem::replace(before, now) != now);
        // Data change with every entry: they are looked at only while a new leader waits for its first.
        let changed = if leads && !is_self {
            tokio::select! {
                changed = server.changed() => changed,
                changed = data.changed() => changed,
            }
        } else {
            server.changed().await
        };
        if changed.is_err() {
            sender.send_replace(Leadership::default());
            return;
        }
    }
}
