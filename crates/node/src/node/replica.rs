//! A shard's replica on this node: what the sequencer proposes to, and what it says of itself.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt};
use quorate_core::{Answer, Applied, PlaceAnswer, PolicyVersion, Receipt, ShardId, Stamp, Term};
use quorate_proto::v1;
use tokio::sync::watch;

use crate::raft::{self, Group, GroupStatus, Leadership, ProposeError, ShardMachine, SharedShard};
use crate::sequencer::{Proposer, Suspect};

/// A replica. Clones are the same one.
#[derive(Clone)]
pub(super) struct Replica {
    shard: ShardId,
    state: SharedShard,
    group: Group<ShardMachine>,
}

/// The answer to a proposal, to come.
pub(super) struct Ticket(BoxFuture<'static, Result<raft::Applied, ProposeError>>);

impl Future for Ticket {
    type Output = Result<Applied, ProposeError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(match ready!(self.0.poll_unpin(context)) {
            Ok(raft::Applied::Shard(applied)) => Ok(applied),
            // Only what a snapshot covered is committed without an answer.
            Ok(raft::Applied::None | raft::Applied::Control(_)) => Err(ProposeError::Unknown),
            Err(error) => Err(error),
        })
    }
}

impl Replica {
    /// The replica of a shard that this group replicates into that state.
    pub(super) fn new(shard: ShardId, state: SharedShard, group: Group<ShardMachine>) -> Replica {
        Replica { shard, state, group }
    }

    /// Its group.
    pub(super) fn group(&self) -> &Group<ShardMachine> {
        &self.group
    }

    /// Bytes of its state, about: what a snapshot of it takes.
    pub(super) fn state_bytes(&self) -> u64 {
        let usage = self.state.lock().usage();
        usage.keys * 48 + usage.log_bytes + usage.session_bytes
    }

    /// Sessions that it knows of: clients that are about, and those that crashed within the hour.
    pub(super) fn sessions(&self) -> u64 {
        self.state.lock().usage().sessions
    }

    /// What it says of itself.
    pub(super) fn status(&self) -> v1::ReplicaStatus {
        let state = self.state.lock();
        let usage = state.usage();
        v1::ReplicaStatus {
            keys: usage.keys,
            sessions: usage.sessions,
            policy_version: state.policies().version.0,
            stamp_us: state.stamp().0,
            digest: state.digest().0.to_be_bytes().to_vec().into(),
            // The one that the digest is of.
            applied_index: state.applied().0,
            ..status_to_wire(self.shard.0, &self.group.status())
        }
    }
}

impl Proposer for Replica {
    type Ticket = Ticket;

    fn id(&self) -> ShardId {
        self.shard
    }

    fn leadership(&self) -> watch::Receiver<Leadership> {
        self.group.leadership()
    }

    async fn propose(&self, batch: Bytes) -> Result<Ticket, ProposeError> {
        Ok(Ticket(self.group.propose(batch).await?.boxed()))
    }

    fn stamp(&self) -> Stamp {
        self.state.lock().stamp()
    }

    fn policy_version(&self) -> PolicyVersion {
        self.state.lock().policies().version
    }

    fn deny(&self, term: Term, stamp: Stamp, coming: u64, suspects: &[Suspect<'_>]) -> Vec<Option<PlaceAnswer>> {
        let state = self.state.lock();
        let index = state.applied();
        let receipt =
            Receipt { shard: self.shard, term, index, place: Receipt::UNLOGGED, stamp: stamp.max(state.stamp()) };
        let look = |suspect: &Suspect<'_>| {
            let decision = state.sure_denial(stamp, suspect.frame, suspect.check, coming)?;
            Some(PlaceAnswer { place: suspect.place, receipt, answer: Answer::Decision(decision) })
        };
        let answers: Vec<_> = suspects.iter().map(look).collect();
        drop(state);
        // After the look: had another been elected since, it might have answered something that this state lacks.
        if self.group.has_lease(term) { answers } else { vec![None; suspects.len()] }
    }

    fn expires_at(&self) -> Option<Stamp> {
        self.state.lock().expires_at()
    }
}

/// What a group says of itself, as it goes over the wire; 0 is the control group.
pub(super) fn status_to_wire(shard: u32, status: &GroupStatus) -> v1::ReplicaStatus {
    v1::ReplicaStatus {
        shard,
        leader: status.leadership.leader.map_or(0, |leader| leader.0),
        term: status.leadership.term.0,
        last_index: status.last.0,
        commit_index: status.committed.0,
        applied_index: status.applied.0,
        snapshot_index: status.snapshot.0,
        log_bytes: status.log_bytes,
        voter: status.voter,
        problem: status.problem.clone().unwrap_or_default(),
        ..v1::ReplicaStatus::default()
    }
}
