//! The control group's state machine as Raft drives it.
//!
//! Nothing is decided here; [`ControlState`] decides. Every applied run of entries is committed to the control store in one
//! transaction with its log id, and then told to those who watch: what is watched is durable on this node.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::sync::Arc;

use bytes::Bytes;
use futures::{Stream, StreamExt};
use openraft::storage::{EntryResponder, RaftSnapshotBuilder, RaftStateMachine};
use openraft::{EntryPayload, OptionalSend};
use tokio::sync::watch;

use super::applied::Applied;
use super::codec::{Reader, put_snapshot_meta};
use super::types::{LogId, Snapshot, SnapshotMeta, StoredMembership, TypeConfig};
use crate::control::parts::Parts;
use crate::control::{ControlCommand, ControlState, ControlStore};
use crate::snapshot_files::{SnapshotFiles, SnapshotHandle};

/// The part of the store that says how far it was applied.
const COVERED: &str = "covered";

/// What Raft drives.
#[derive(Debug)]
pub struct ControlMachine {
    state: watch::Sender<Arc<ControlState>>,
    covered: SnapshotMeta,
    store: Arc<dyn ControlStore>,
    /// As they are in the store, so that only what changes is written.
    stored: Parts,
    files: SnapshotFiles,
}

impl ControlMachine {
    /// The state as the store has it, or the newest snapshot if that covers more.
    ///
    /// # Errors
    ///
    /// The disk failed, or what it holds cannot be read.
    pub async fn open(store: Arc<dyn ControlStore>, files: SnapshotFiles) -> io::Result<Self> {
        let stored = store.load().await.map_err(io::Error::other)?;
        let (mut state, mut covered) = from_parts(&stored)?;
        if let Some(handle) = files.latest().await?.filter(|handle| handle.meta().last_log_id > covered.last_log_id) {
            (state, covered) = (restore(&handle).await?, handle.meta().clone());
        }
        let (state, _) = watch::channel(Arc::new(state));
        Ok(ControlMachine { state, covered, store, stored, files })
    }

    /// How far it was applied.
    pub fn applied(&self) -> Option<LogId> {
        self.covered.last_log_id
    }

    /// Follows the state.
    pub fn watch(&self) -> watch::Receiver<Arc<ControlState>> {
        self.state.subscribe()
    }

    /// Makes a new state durable, then known.
    async fn commit(&mut self, state: ControlState) -> io::Result<()> {
        let parts = to_parts(&state, &self.covered);
        let mut changes: BTreeMap<String, Option<Bytes>> = BTreeMap::new();
        for name in self.stored.keys().filter(|name| !parts.contains_key(*name)) {
            changes.insert(name.clone(), None);
        }
        for (name, part) in parts.iter().filter(|(name, part)| self.stored.get(*name) != Some(*part)) {
            changes.insert(name.clone(), Some(part.clone()));
        }
        self.store.commit(changes).await.map_err(io::Error::other)?;
        self.stored = parts;
        if **self.state.borrow() != state {
            self.state.send_replace(Arc::new(state));
        }
        Ok(())
    }
}

fn from_parts(parts: &Parts) -> io::Result<(ControlState, SnapshotMeta)> {
    let invalid = |what: String| io::Error::new(io::ErrorKind::InvalidData, format!("the control store: {what}"));
    let Some(covered) = parts.get(COVERED) else { return Ok((ControlState::default(), SnapshotMeta::default())) };
    let covered = Reader(covered).snapshot_meta();
    let covered = covered.ok_or_else(|| invalid("it does not say how far it was applied".to_owned()))?;
    Ok((ControlState::from_parts(parts).map_err(invalid)?, covered))
}

fn to_parts(state: &ControlState, covered: &SnapshotMeta) -> Parts {
    let mut meta = Vec::new();
    put_snapshot_meta(covered, &mut meta);
    let mut parts = state.to_parts();
    parts.insert(COVERED.to_owned(), meta.into());
    parts
}

async fn restore(handle: &SnapshotHandle) -> io::Result<ControlState> {
    let read = |reader: &mut dyn Read| {
        let mut bytes = Vec::new();
        reader.read_to_end(&mut bytes)?;
        ControlState::decode(&bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    };
    handle.read(read).await
}

impl RaftStateMachine<TypeConfig> for ControlMachine {
    type SnapshotData = SnapshotHandle;
    type SnapshotBuilder = ControlSnapshot;

    async fn applied_state(&mut self) -> Result<(Option<LogId>, StoredMembership), io::Error> {
        Ok((self.covered.last_log_id, self.covered.last_membership.clone()))
    }

    async fn apply<Strm>(&mut self, mut entries: Strm) -> Result<(), io::Error>
    where
        Strm: Stream<Item = Result<EntryResponder<TypeConfig>, io::Error>> + Unpin + OptionalSend,
    {
        while let Some(entry) = entries.next().await {
            let (entry, responder) = entry?;
            let mut state = ControlState::clone(&self.state.borrow());
            let answer = match entry.payload {
                EntryPayload::Blank => Applied::None,
                EntryPayload::Normal(proposal) => {
                    let command = ControlCommand::decode(&proposal.0);
                    let command = command.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
                    Applied::Control(state.apply(command))
                }
                EntryPayload::Membership(membership) => {
                    self.covered.last_membership = StoredMembership::new(Some(entry.log_id), membership);
                    Applied::None
                }
            };
            self.covered.last_log_id = Some(entry.log_id);
            self.commit(state).await?;
            if let Some(responder) = responder {
                responder.send(answer);
            }
        }
        Ok(())
    }

    async fn try_create_snapshot_builder(&mut self, _force: bool) -> Option<ControlSnapshot> {
        Some(self.get_snapshot_builder().await)
    }

    async fn get_snapshot_builder(&mut self) -> ControlSnapshot {
        ControlSnapshot { state: self.state.borrow().clone(), meta: self.covered.clone(), files: self.files.clone() }
    }

    async fn install_snapshot(&mut self, meta: &SnapshotMeta, snapshot: SnapshotHandle) -> Result<(), io::Error> {
        let state = restore(&snapshot).await?;
        self.covered = meta.clone();
        self.commit(state).await
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot<SnapshotHandle>>, io::Error> {
        let latest = self.files.latest().await?;
        Ok(latest.map(|handle| Snapshot { meta: handle.meta().clone(), snapshot: handle }))
    }
}

/// A captured control state, to be written down.
#[derive(Debug)]
pub struct ControlSnapshot {
    state: Arc<ControlState>,
    meta: SnapshotMeta,
    files: SnapshotFiles,
}

impl RaftSnapshotBuilder<TypeConfig> for ControlSnapshot {
    type SnapshotData = SnapshotHandle;

    async fn build_snapshot(&mut self) -> Result<Snapshot<SnapshotHandle>, io::Error> {
        let bytes = self.state.encode();
        let handle = self.files.create(self.meta.clone(), move |to| to.write_all(&bytes)).await?;
        Ok(Snapshot { meta: self.meta.clone(), snapshot: handle })
    }
}
