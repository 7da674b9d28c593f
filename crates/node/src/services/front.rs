//! Everything between the network and the shards of a node that is in a cluster, kept in step with what the cluster agrees on.
//!
//! ```text
//! control state ─┬► ingress: secrets, epoch, shards         leadership of each shard ─┐
//!                ├► sequencers: newer policy sets            sessions of each replica ├► topology for clients
//!                └► clock: who has a say                     control state ───────────┘
//! ```
//!
//! Invariant: one task follows the control state; whoever needs a part of it is told by that task, in this order: ingress
//! before clients, so that no client knows of a topology that its node does not know of.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use quorate_core::{NodeId, PolicySet, ShardId};
use quorate_proto::convert::policy_set_to_wire;
use quorate_proto::v1;
use tokio::sync::watch;

use super::census::{Census, keep_counting};
use super::ingress::{ClusterView, Door, Ingress};
use super::topology::keep_telling;
use crate::caps;
use crate::clock::{AskClock, ClusterClock, keep_sampling};
use crate::control::{ControlState, NodeInfo, ShardInfo};
use crate::raft::Leadership;
use crate::sequencer::{Proposer, QueueCaps, Sequencer};

/// What clients are told; none as long as there is nothing to tell.
pub type TopologySender = watch::Sender<Option<Arc<v1::TopologyUpdate>>>;

type Leaders = Arc<Mutex<BTreeMap<ShardId, watch::Receiver<Leadership>>>>;

/// The parts between network and shards.
#[derive(Debug)]
pub struct Front {
    ingress: Arc<Ingress>,
    clock: ClusterClock,
    policies: watch::Receiver<Arc<PolicySet>>,
    leaders: Leaders,
    census: Arc<Census>,
    changes: watch::Sender<u64>,
    queue: QueueCaps,
}

impl Front {
    /// Starts to follow the control state, to sample the voters' clocks, and to tell clients. All of it ends with `control`.
    pub fn start(
        ingress: Arc<Ingress>,
        clock: ClusterClock,
        control: watch::Receiver<Arc<ControlState>>,
        ask: impl AskClock,
        clients: TopologySender,
        queue_commands: usize,
    ) -> Front {
        let (policies, policies_seen) = watch::channel(Arc::default());
        let (voters, voters_seen) = watch::channel(Vec::new());
        let (changes, changes_seen) = watch::channel(0);
        let (leaders, census) = (Leaders::default(), Arc::<Census>::default());
        let build = {
            // Weak, or the count would keep alive whom it tells, and be kept alive by them.
            let (control, leaders, census) = (control.clone(), Arc::clone(&leaders), Arc::downgrade(&census));
            move || {
                let state = Arc::clone(&control.borrow());
                state.is_born().then(|| topology(&state, &leaders, census.upgrade().map_or(0, |census| census.told())))
            }
        };
        tokio::spawn(follow(control, Arc::clone(&ingress), policies, voters, changes.clone()));
        tokio::spawn(keep_sampling(clock.clone(), ask, voters_seen));
        tokio::spawn(keep_telling(changes_seen, build, clients));
        tokio::spawn(keep_counting(Arc::downgrade(&census), changes.clone()));
        let queue = QueueCaps { commands: queue_commands, bytes: caps::QUEUE_BYTES };
        Front { ingress, clock, policies: policies_seen, leaders, census, changes, queue }
    }

    /// Opens the way into a shard of which this node holds a replica; `sessions` counts those that the replica has.
    pub fn add_shard<S: Proposer + Clone>(
        &self,
        shard: S,
        arc: quorate_core::Arc,
        sessions: impl Fn() -> u64 + Send + Sync + 'static,
    ) {
        let (id, leadership) = (shard.id(), shard.leadership());
        self.leaders.lock().unwrap_or_else(PoisonError::into_inner).insert(id, leadership.clone());
        self.census.add(id, sessions);
        let (sequencer, _) = Sequencer::start(shard.clone(), self.clock.clone(), self.policies.clone(), self.queue);
        let policy_version = Box::new(move || shard.policy_version());
        self.ingress.add_door(Door { sequencer, arc, policy_version });
        tokio::spawn(tell_of(leadership, self.changes.clone()));
    }

    /// The cluster's clock as it is known here.
    pub fn clock(&self) -> &ClusterClock {
        &self.clock
    }
}

/// The nodes whose clocks have a say: those that vote in the control group.
pub fn control_voters(state: &ControlState) -> Vec<NodeId> {
    state.nodes.keys().copied().take(caps::CONTROL_VOTERS).collect()
}

/// Brings what the cluster agrees on to whoever needs it.
async fn follow(
    mut control: watch::Receiver<Arc<ControlState>>,
    ingress: Arc<Ingress>,
    policies: watch::Sender<Arc<PolicySet>>,
    voters: watch::Sender<Vec<NodeId>>,
    changes: watch::Sender<u64>,
) {
    loop {
        let state = Arc::clone(&control.borrow_and_update());
        if state.is_born() {
            ingress.set_view(ClusterView {
                epoch: state.epoch,
                ring_secret: state.ring_secret(),
                table_secret: state.table_secret(),
                shards: state.shards.iter().map(|shard| shard.id).collect(),
            });
            policies.send_if_modified(|set| set_if_other(set, Arc::clone(&state.policies)));
            voters.send_if_modified(|known| set_if_other(known, control_voters(&state)));
            changes.send_modify(|change| *change += 1);
        }
        if control.changed().await.is_err() {
            return;
        }
    }
}

fn set_if_other<T: PartialEq>(place: &mut T, value: T) -> bool {
    let other = *place != value;
    if other {
        *place = value;
    }
    other
}

/// Counts each change of a shard's leader as a change of the topology.
async fn tell_of(mut leadership: watch::Receiver<Leadership>, changes: watch::Sender<u64>) {
    loop {
        changes.send_modify(|change| *change += 1);
        if leadership.changed().await.is_err() {
            return;
        }
    }
}

fn topology(state: &ControlState, leaders: &Leaders, live_clients: u64) -> v1::TopologyUpdate {
    let leaders = leaders.lock().unwrap_or_else(PoisonError::into_inner);
    let shard = |shard: &ShardInfo| {
        let known = leaders.get(&shard.id).map(|leadership| *leadership.borrow()).unwrap_or_default();
        v1::Shard { leader: known.leader.map_or(0, |node| node.0), term: known.term.0, ..shard.to_wire() }
    };
    v1::TopologyUpdate {
        cluster_id: Bytes::copy_from_slice(&state.cluster_id),
        cluster_name: state.name.clone(),
        epoch: state.epoch.0,
        nodes: state.nodes.values().map(NodeInfo::to_wire).collect(),
        shards: state.shards.iter().map(shard).collect(),
        ring_secret: Bytes::copy_from_slice(&state.ring_secret().0),
        policies: Some(policy_set_to_wire(&state.policies)),
        live_clients,
    }
}
