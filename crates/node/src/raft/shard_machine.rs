//! A shard's state machine as Raft drives it: committed batches in, answers out.
//!
//! Nothing is decided here; the core decides. This file decodes what was committed, keeps what Raft has to know (how far it
//! was applied, the membership), and captures and restores snapshots.
//!
//! ```text
//!  log ─► decode ─► Shard::apply under a short lock ─► answers, where somebody waits for them
//!                    │ captured in no time
//!                    └─► snapshot file, written aside while entries are applied
//! ```
//!
//! Invariant: a committed batch that cannot be read ends the group. To skip it would be to decide otherwise than the other
//! replicas.

use std::io;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::{Stream, StreamExt};
use openraft::storage::{EntryResponder, RaftSnapshotBuilder, RaftStateMachine};
use openraft::{EntryPayload, OptionalSend};
use quorate_core::{Batch, Image, Index, Shard, ShardId, Term};

use super::applied::Applied;
use super::types::{LogId, Snapshot, SnapshotMeta, StoredMembership, TypeConfig};
use crate::caps;
use crate::snapshot_files::{SnapshotFiles, SnapshotHandle};

/// A shard's state, to be looked at under a short lock. Clones see the same.
#[derive(Clone, Debug)]
pub struct SharedShard(Arc<Mutex<Replicated>>);

/// A shard, and the entry of its log that it was brought to.
#[derive(Debug)]
pub struct Replicated {
    shard: Shard,
    applied: Index,
}

impl Replicated {
    /// The last entry that it holds.
    pub fn applied(&self) -> Index {
        self.applied
    }
}

impl Deref for Replicated {
    type Target = Shard;

    fn deref(&self) -> &Shard {
        &self.shard
    }
}

impl SharedShard {
    fn new(shard: Shard, applied: Option<LogId>) -> Self {
        SharedShard(Arc::new(Mutex::new(Replicated { shard, applied: index(applied) })))
    }

    /// The state as it is now. Held for as long as it takes to look, never across an await.
    pub fn lock(&self) -> MutexGuard<'_, Replicated> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn index(id: Option<LogId>) -> Index {
    Index(id.map_or(0, |id| id.index()))
}

/// What Raft drives.
#[derive(Debug)]
pub struct ShardMachine {
    shard: SharedShard,
    files: SnapshotFiles,
    covered: SnapshotMeta,
    #[cfg(feature = "planted")]
    opened: tokio::time::Instant,
}

impl ShardMachine {
    /// The shard as its newest readable snapshot has it; a new one where there is none.
    ///
    /// # Errors
    ///
    /// The disk failed, or the snapshot is not of this shard.
    pub async fn open(id: ShardId, arc: quorate_core::Arc, files: SnapshotFiles) -> io::Result<Self> {
        let (shard, covered) = match files.latest().await? {
            None => (Shard::new(id, arc), SnapshotMeta::default()),
            Some(handle) => (restore(&handle).await?, handle.meta().clone()),
        };
        if shard.id() != id {
            return Err(io::Error::other(format!("the snapshot is of {} where {id} should be", shard.id())));
        }
        Ok(ShardMachine {
            shard: SharedShard::new(shard, covered.last_log_id),
            files,
            covered,
            #[cfg(feature = "planted")]
            opened: tokio::time::Instant::now(),
        })
    }

    /// How far it was applied.
    pub fn applied(&self) -> Option<LogId> {
        self.covered.last_log_id
    }

    /// The state, for those who look.
    pub fn shard(&self) -> SharedShard {
        self.shard.clone()
    }

    #[cfg(feature = "planted")]
    fn planted_clock(&self, mut batch: Batch) -> Batch {
        if quorate_core::planted::is(quorate_core::planted::Planted::ApplyReadsClock) {
            batch.stamp.0 += self.opened.elapsed().as_micros() as i64 % 50_000;
        }
        batch
    }

    /// Goes past an entry that is nothing to the shard.
    fn pass(&self, id: LogId) -> Applied {
        self.shard.lock().applied = Index(id.index());
        Applied::None
    }

    /// Applies one batch.
    fn apply_batch(&self, id: LogId, bytes: &[u8], want_answers: bool) -> io::Result<quorate_core::Applied> {
        let batch = Batch::decode(bytes).map_err(|error| {
            io::Error::new(io::ErrorKind::InvalidData, format!("the committed batch {id} cannot be applied: {error}"))
        })?;
        #[cfg(feature = "planted")]
        let batch = self.planted_clock(batch);
        let (term, index) = (Term(id.committed_leader_id().term), Index(id.index()));
        let mut state = self.shard.lock();
        state.applied = index;
        Ok(state.shard.apply(term, index, &batch, want_answers))
    }
}

async fn restore(handle: &SnapshotHandle) -> io::Result<Shard> {
    handle
        .read(|reader| Shard::restore(reader).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error)))
        .await
}

impl RaftStateMachine<TypeConfig> for ShardMachine {
    type SnapshotData = SnapshotHandle;
    type SnapshotBuilder = ShardSnapshot;

    async fn applied_state(&mut self) -> Result<(Option<LogId>, StoredMembership), io::Error> {
        Ok((self.covered.last_log_id, self.covered.last_membership.clone()))
    }

    async fn apply<Strm>(&mut self, mut entries: Strm) -> Result<(), io::Error>
    where
        Strm: Stream<Item = Result<EntryResponder<TypeConfig>, io::Error>> + Unpin + OptionalSend,
    {
        let mut run = 0;
        while let Some(entry) = entries.next().await {
            let (entry, responder) = entry?;
            let answer = match entry.payload {
                EntryPayload::Blank => self.pass(entry.log_id),
                EntryPayload::Normal(proposal) => {
                    Applied::Shard(self.apply_batch(entry.log_id, &proposal.0, responder.is_some())?)
                }
                EntryPayload::Membership(membership) => {
                    self.covered.last_membership = StoredMembership::new(Some(entry.log_id), membership);
                    self.pass(entry.log_id)
                }
            };
            self.covered.last_log_id = Some(entry.log_id);
            if let Some(responder) = responder {
                responder.send(answer);
            }
            run += 1;
            if run % caps::APPLY_RUN == 0 {
                tokio::task::yield_now().await;
            }
        }
        Ok(())
    }

    async fn try_create_snapshot_builder(&mut self, _force: bool) -> Option<ShardSnapshot> {
        Some(self.get_snapshot_builder().await)
    }

    async fn get_snapshot_builder(&mut self) -> ShardSnapshot {
        ShardSnapshot {
            image: Some(self.shard.lock().capture()),
            meta: self.covered.clone(),
            files: self.files.clone(),
        }
    }

    async fn install_snapshot(&mut self, meta: &SnapshotMeta, snapshot: SnapshotHandle) -> Result<(), io::Error> {
        let restored = restore(&snapshot).await?;
        let mut shard = self.shard.lock();
        if restored.id() != shard.id() {
            return Err(io::Error::other(format!("a snapshot of {} was sent to {}", restored.id(), shard.id())));
        }
        *shard = Replicated { shard: restored, applied: index(meta.last_log_id) };
        self.covered = meta.clone();
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot<SnapshotHandle>>, io::Error> {
        let latest = self.files.latest().await?;
        Ok(latest.map(|handle| Snapshot { meta: handle.meta().clone(), snapshot: handle }))
    }
}

/// A captured shard, to be written down.
#[derive(Debug)]
pub struct ShardSnapshot {
    image: Option<Image>,
    meta: SnapshotMeta,
    files: SnapshotFiles,
}

impl RaftSnapshotBuilder<TypeConfig> for ShardSnapshot {
    type SnapshotData = SnapshotHandle;

    async fn build_snapshot(&mut self) -> Result<Snapshot<SnapshotHandle>, io::Error> {
        let image = self.image.take().ok_or_else(|| io::Error::other("a snapshot is built once"))?;
        let handle = self.files.create(self.meta.clone(), move |to| image.write(to)).await?;
        Ok(Snapshot { meta: self.meta.clone(), snapshot: handle })
    }
}
