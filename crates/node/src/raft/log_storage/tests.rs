//! openraft's own suite of what a log has to do, on ours; and what the suite does not look at.

use std::sync::{Arc, Mutex};

use futures::TryStreamExt;
use openraft::storage::{EntryResponder, RaftLogStorageExt, RaftSnapshotBuilder, RaftStateMachine};
use openraft::testing::log::{StoreBuilder, Suite};
use openraft::{RaftLogReader, StorageError};
use quorate_core::GroupId;

use super::*;
use crate::disk::MemoryDisk;
use crate::identity::{ClusterId, Identity};
use crate::log::{Log, LogSettings};
use crate::raft::codec::{from_log, to_log};
use crate::raft::types::{Payload, Proposal, Snapshot, SnapshotMeta, StoredMembership, log_id};

/// The least that is a state machine: what was applied last.
#[derive(Clone, Default)]
struct Machine(Arc<Mutex<(SnapshotMeta, Option<SnapshotMeta>)>>);

impl RaftStateMachine<TypeConfig> for Machine {
    type SnapshotData = ();
    type SnapshotBuilder = Self;

    async fn applied_state(&mut self) -> Result<(Option<LogId>, StoredMembership), io::Error> {
        let meta = self.0.lock().unwrap().0.clone();
        Ok((meta.last_log_id, meta.last_membership))
    }

    async fn apply<S>(&mut self, entries: S) -> Result<(), io::Error>
    where
        S: Stream<Item = Result<EntryResponder<TypeConfig>, io::Error>> + Unpin + OptionalSend,
    {
        let apply = |(entry, responder): EntryResponder<TypeConfig>| {
            assert!(responder.is_none());
            let mut state = self.0.lock().unwrap();
            state.0.last_log_id = Some(entry.log_id);
            if let Payload::Membership(membership) = entry.payload {
                state.0.last_membership = StoredMembership::new(Some(entry.log_id), membership);
            }
            futures::future::ready(Ok(()))
        };
        entries.try_for_each(apply).await
    }

    async fn get_snapshot_builder(&mut self) -> Self {
        self.clone()
    }

    async fn install_snapshot(&mut self, meta: &SnapshotMeta, (): ()) -> Result<(), io::Error> {
        *self.0.lock().unwrap() = (meta.clone(), Some(meta.clone()));
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot<()>>, io::Error> {
        Ok(self.0.lock().unwrap().1.clone().map(|meta| Snapshot { meta, snapshot: () }))
    }
}

impl RaftSnapshotBuilder<TypeConfig> for Machine {
    type SnapshotData = ();

    async fn build_snapshot(&mut self) -> Result<Snapshot<()>, io::Error> {
        let mut state = self.0.lock().unwrap();
        state.1 = Some(state.0.clone());
        Ok(Snapshot { meta: state.0.clone(), snapshot: () })
    }
}

struct Builder {
    tail_bytes: usize,
}

impl Builder {
    async fn open(&self, memory: &MemoryDisk) -> Log {
        let identity = Identity { cluster: ClusterId(5), node: NodeId(1) };
        let settings = LogSettings { segment_bytes: 4096, tail_bytes: self.tail_bytes, ..LogSettings::default() };
        Log::open(memory.mount().unwrap(), identity, settings).await.unwrap()
    }
}

impl StoreBuilder<TypeConfig, LogStorage, Machine, Log> for Builder {
    async fn build(&self) -> Result<(Log, LogStorage, Machine), StorageError<TypeConfig>> {
        let log = self.open(&MemoryDisk::new(1)).await;
        let storage = LogStorage::new(log.group(GroupId(3)));
        Ok((log, storage, Machine::default()))
    }
}

#[tokio::test(start_paused = true)]
async fn openrafts_suite_on_the_tail_in_memory() {
    Suite::test_all(Builder { tail_bytes: 1 << 20 }).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn openrafts_suite_on_the_segments() {
    Suite::test_all(Builder { tail_bytes: 0 }).await.unwrap();
}

fn proposal(index: u64, len: usize) -> Entry {
    Entry { log_id: log_id(1, index), payload: Payload::Normal(Proposal(vec![index as u8; len].into())) }
}

#[tokio::test(start_paused = true)]
async fn reads_are_bounded_by_bytes() {
    let builder = Builder { tail_bytes: 0 };
    let log = builder.open(&MemoryDisk::new(1)).await;
    let mut storage = LogStorage::new(log.group(GroupId(3)));
    let entries: Vec<Entry> = (0..10).map(|index| proposal(index, caps::LOG_READ_BYTES / 4)).collect();
    storage.blocking_append(entries.clone()).await.unwrap();
    let read = storage.limited_get_log_entries(0, 10).await.unwrap();
    assert_eq!(read, entries[..3]);
    assert_eq!(storage.try_get_log_entries(..).await.unwrap(), entries);
    let streamed: Vec<Entry> = storage.entries_stream(2..9).await.try_collect().await.unwrap();
    assert_eq!(streamed, entries[2..9]);
}

#[tokio::test(start_paused = true)]
async fn a_stream_ends_with_its_leader() {
    let log = Builder { tail_bytes: 0 }.open(&MemoryDisk::new(1)).await;
    let mut storage = LogStorage::new(log.group(GroupId(3)));
    storage.blocking_append((0..10).map(|index| proposal(index, caps::LOG_READ_BYTES))).await.unwrap();
    let leader = LeaderId { term: 1, voted_for: NodeId(1) };
    storage.save_vote(&Vote { leader_id: leader, committed: true }).await.unwrap();
    let mut reader = storage.clone();
    let mut stream = reader.leader_bounded_stream(leader, 0..10).await;
    assert_eq!(stream.next().await.unwrap().unwrap().log_id, log_id(1, 0));
    let next = LeaderId { term: 2, voted_for: NodeId(2) };
    storage.save_vote(&Vote { leader_id: next, committed: false }).await.unwrap();
    let changed = stream.next().await.unwrap();
    assert!(matches!(changed, Err(LeaderBoundedStreamError::LeaderChanged(_))), "{changed:?}");
}

#[tokio::test(start_paused = true)]
async fn everything_is_there_after_a_crash() {
    let builder = Builder { tail_bytes: 0 };
    let memory = MemoryDisk::new(3);
    let log = builder.open(&memory).await;
    let mut storage = LogStorage::new(log.group(GroupId(3)));
    let members = [NodeId(1), NodeId(2)].into();
    let membership = crate::raft::Membership::new_with_defaults(vec![members], [NodeId(9)]);
    let first = Entry { log_id: log_id(0, 0), payload: Payload::Membership(membership) };
    let entries = vec![first, Entry { log_id: log_id(1, 1), payload: Payload::Blank }, proposal(2, 50)];
    for entry in &entries {
        assert_eq!(from_log(to_log(entry.clone())).as_ref(), Ok(entry));
    }
    storage.blocking_append(entries.clone()).await.unwrap();
    let vote = Vote { leader_id: LeaderId { term: 4, voted_for: NodeId(2) }, committed: true };
    storage.save_vote(&vote).await.unwrap();
    memory.crash();
    let log = builder.open(&memory).await;
    let mut storage = LogStorage::new(log.group(GroupId(3)));
    assert_eq!(storage.try_get_log_entries(..).await.unwrap(), entries);
    assert_eq!(storage.read_vote().await.unwrap(), Some(vote));
    let state = storage.get_log_state().await.unwrap();
    assert_eq!((state.last_purged_log_id, state.last_log_id), (None, Some(log_id(1, 2))));
}
