//! From a frame on the wire to the shard's sequencer: everything that is checked before, and the keys hashed.
//!
//! Below this nobody sees protobuf or key text. Nothing is logged by frame.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use arc_swap::{ArcSwap, ArcSwapOption};
use quorate_core::{Epoch, Fingerprint, Group, NodeId, PolicyVersion, RingSecret, ShardId, TableSecret};
use quorate_proto::convert::{UnpackError, unpack_frame, unpack_head};
use quorate_proto::v1::{self, ErrorCode};
use tokio::sync::mpsc;

use crate::caps;
use crate::clock::{Clock, Monotonic};
use crate::sequencer::{Failure, Reply, ReplySlot, Sequencer, Submission};

/// What ingress needs to know of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterView {
    /// The topology's number.
    pub epoch: Epoch,
    /// Places keys on the ring.
    pub ring_secret: RingSecret,
    /// Places keys in tables.
    pub table_secret: TableSecret,
    /// The shards that there are.
    pub shards: BTreeSet<ShardId>,
}

/// The way into a shard of which this node holds a replica.
pub struct Door {
    /// Its sequencer.
    pub sequencer: Sequencer,
    /// What it owns of the ring.
    pub arc: quorate_core::Arc,
    /// The policy set that it has applied.
    pub policy_version: Box<dyn Fn() -> PolicyVersion + Send + Sync>,
}

impl fmt::Debug for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Door").field("sequencer", &self.sequencer).field("arc", &self.arc).finish_non_exhaustive()
    }
}

/// Takes frames in.
#[derive(Debug)]
pub struct Ingress {
    view: ArcSwapOption<ClusterView>,
    doors: ArcSwap<BTreeMap<ShardId, Arc<Door>>>,
    clock: Arc<dyn Clock>,
}

/// Why a key of a frame is not taken.
struct Elsewhere;

impl Ingress {
    /// An ingress that knows of no cluster yet and takes nothing.
    pub fn new(clock: Arc<dyn Clock>) -> Ingress {
        Ingress { view: ArcSwapOption::empty(), doors: ArcSwap::default(), clock }
    }

    /// From now on this is the cluster.
    pub fn set_view(&self, view: ClusterView) {
        self.view.store(Some(Arc::new(view)));
    }

    /// From now on frames for the shard go through that door.
    pub fn add_door(&self, door: Door) {
        let door = Arc::new(door);
        self.doors.rcu(|doors| {
            let mut doors = BTreeMap::clone(doors);
            doors.insert(door.sequencer.shard(), Arc::clone(&door));
            doors
        });
    }

    /// Whether it knows its cluster.
    pub fn is_open(&self) -> bool {
        self.view.load().is_some()
    }

    /// Takes a frame in; exactly one reply comes out at `to`.
    ///
    /// # Errors
    /// Where the frame is not taken: the answer to it. Then no reply comes.
    pub fn take_in(&self, frame: &v1::Frame, to: &mpsc::UnboundedSender<Reply>) -> Result<(), Box<v1::FrameAnswer>> {
        self.admit(frame, to).map_err(|error| {
            Box::new(v1::FrameAnswer { tag: frame.tag, shard: frame.shard, error: Some(error), ..Default::default() })
        })
    }

    fn admit(&self, frame: &v1::Frame, to: &mpsc::UnboundedSender<Reply>) -> Result<(), v1::Error> {
        let view = self.view.load();
        let Some(view) = &*view else {
            return Err(error(ErrorCode::Unavailable, "this node is in no cluster yet; ask another, or initialise it"));
        };
        let told = |error: v1::Error| v1::Error { epoch: view.epoch.0, ..error };
        let head = unpack_head(frame).map_err(|problem| told(error(ErrorCode::Invalid, problem.to_string())))?;
        let doors = self.doors.load();
        let Some(door) = doors.get(&head.shard) else {
            return Err(told(if view.shards.contains(&head.shard) {
                not_leader(head.shard, None)
            } else {
                let text = format!("there is no shard {}; fetch the topology", head.shard);
                error(ErrorCode::WrongShard, text)
            }));
        };
        door.sequencer.leads().map_err(|leader| told(not_leader(head.shard, leader)))?;
        let has = (door.policy_version)();
        if head.policy_version > has {
            let text = format!(
                "the shard has the policies of {has}, not yet those of {}; send it again in a moment",
                head.policy_version
            );
            return Err(told(error(ErrorCode::PoliciesBehind, text)));
        }
        let commands = unpack_frame(frame, |policy, key| {
            let ring = view.ring_secret.hash(key);
            if !door.arc.contains(ring) {
                return Err(Elsewhere);
            }
            Ok(Fingerprint { ring, table: view.table_secret.hash(policy, key) })
        });
        let commands = commands.map_err(|refused| {
            told(match refused {
                UnpackError::Malformed(problem) => error(ErrorCode::Invalid, problem.to_string()),
                UnpackError::Key { place, error: Elsewhere } => {
                    let text = format!("the key at place {place} is not one of {}'s; fetch the topology", head.shard);
                    error(ErrorCode::WrongShard, text)
                }
            })
        })?;
        let patience = head.budget.map_or(caps::FRAME_PATIENCE, |budget| budget.min(caps::FRAME_PATIENCE));
        let deadline = Monotonic(self.clock.monotonic().0.saturating_add(patience.0));
        let reply = ReplySlot::new(head.tag, head.shard, to.clone());
        let (first, group) = (head.first || head.frame.is_none(), Group { frame: head.frame, commands });
        door.sequencer.submit(Submission { group, deadline, first, reply });
        Ok(())
    }

    /// A whole frame's failure, as it goes over the wire.
    pub(super) fn failure_to_wire(&self, shard: ShardId, failure: Failure) -> v1::Error {
        let epoch = self.view.load().as_ref().map_or(0, |view| view.epoch.0);
        let told = match failure {
            Failure::NotLeader { leader } => not_leader(shard, leader),
            Failure::Overloaded => error(
                ErrorCode::Overloaded,
                "the shard's queue is full; nothing was charged: ask less, or later, with growing pauses",
            ),
            Failure::Deadline => error(
                ErrorCode::Deadline,
                "the caller's time was over before it was proposed; nothing was charged: give it more, or ask less",
            ),
            Failure::Unknown => error(
                ErrorCode::Unknown,
                "whether it was charged is not known yet; send the same frame again to learn it",
            ),
            Failure::Stopped => error(ErrorCode::Unavailable, "the node is stopping; nothing was charged: ask another"),
        };
        v1::Error { epoch, ..told }
    }
}

fn error(code: ErrorCode, message: impl Into<String>) -> v1::Error {
    v1::Error { code: code.into(), message: message.into(), ..v1::Error::default() }
}

fn not_leader(shard: ShardId, leader: Option<NodeId>) -> v1::Error {
    let message = match leader {
        Some(leader) => format!("this node does not lead {shard}; ask {leader}"),
        None => format!("this node does not lead {shard}, and knows of nobody who does; try again in a moment"),
    };
    v1::Error { leader: leader.map_or(0, |leader| leader.0), ..error(ErrorCode::NotLeader, message) }
}
