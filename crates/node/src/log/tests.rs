//! The log under everything that disks do.

mod cleaning;
mod damage;
mod flow;
mod history;

use std::sync::{Arc, Mutex};

use quorate_core::{GroupId, NodeId, Term};

use super::*;
use crate::disk::{MemoryDisk, memory::Faults};
use crate::identity::ClusterId;

pub(super) const GROUP: GroupId = GroupId(1);

pub(super) fn identity() -> Identity {
    Identity { cluster: ClusterId(77), node: NodeId(3) }
}

/// Small segments, and next to nothing in memory, so that everything is read back from the files.
pub(super) fn small() -> LogSettings {
    LogSettings { segment_bytes: 2048, tail_bytes: 200, queue_bytes: 1 << 20, ..LogSettings::default() }
}

pub(super) async fn open(memory: &MemoryDisk) -> Result<Log, LogError> {
    let disk = memory.mount().map_err(LogError::disk("mounting"))?;
    Log::open(disk, identity(), small()).await
}

/// The entry that always is there: its payload follows from its term, index and length.
pub(super) fn entry(term: u64, index: u64, len: usize) -> Entry {
    let payload: Vec<u8> = (0..len).map(|at| (term * 31 + index * 7 + at as u64) as u8).collect();
    Entry { id: EntryId::new(term, index), kind: EntryKind::Proposal, payload: payload.into() }
}

pub(super) fn ballot(term: u64, node: u64) -> Ballot {
    Ballot { term: Term(term), node: NodeId(node), committed: node.is_multiple_of(2) }
}

/// Appends, and waits until it is durable.
pub(super) async fn append(group: &GroupLog, entries: Vec<Entry>) -> Result<(), LogError> {
    let (sender, receiver) = tokio::sync::oneshot::channel();
    let done = Box::new(move |result| drop(sender.send(result)));
    group.append(entries, done).await?;
    receiver.await.unwrap_or(Err(LogError::Closed))
}

pub(super) async fn all(group: &GroupLog) -> Vec<Entry> {
    group.read(0..u64::MAX, usize::MAX).await.unwrap()
}

/// Everything that a log says of its groups.
pub(super) async fn contents(log: &Log) -> Vec<(GroupId, Marks, Vec<Entry>)> {
    let mut contents = vec![];
    for id in log.groups() {
        let group = log.group(id);
        contents.push((id, group.marks(), all(&group).await));
    }
    contents
}

#[tokio::test(start_paused = true)]
async fn what_was_written_is_read_again() {
    let memory = MemoryDisk::new(1);
    let log = open(&memory).await.unwrap();
    let group = log.group(GROUP);
    assert_eq!(group.marks(), Marks::default());
    let entries: Vec<Entry> = (0..200).map(|index| entry(1, index, 30)).collect();
    for some in entries.chunks(7) {
        append(&group, some.to_vec()).await.unwrap();
    }
    group.save_vote(ballot(2, 2)).await.unwrap();
    group.save_committed(EntryId::new(1, 150)).unwrap();
    assert_eq!(all(&group).await, entries);
    assert_eq!(group.read(10..20, usize::MAX).await.unwrap(), entries[10..20]);
    assert_eq!(group.read(10..20, 1).await.unwrap(), entries[10..11]);
    assert_eq!(group.read(10..100, 300).await.unwrap().len(), 4);
    assert_eq!(group.read(195..400, usize::MAX).await.unwrap(), entries[195..]);
    assert_eq!(group.read(200..400, usize::MAX).await.unwrap(), []);
    let before = contents(&log).await;
    assert!(log.usage().segments > 3);
    log.close().await;
    assert!(matches!(append(&group, vec![entry(1, 200, 1)]).await, Err(LogError::Closed)));
    drop((log, group));
    let log = open(&memory).await.unwrap();
    assert_eq!(contents(&log).await, before);
    assert_eq!(log.group(GROUP).marks().committed, Some(EntryId::new(1, 150)));
}

#[tokio::test(start_paused = true)]
async fn truncating_and_replacing() {
    let memory = MemoryDisk::new(1);
    let log = open(&memory).await.unwrap();
    let group = log.group(GROUP);
    append(&group, (5..25).map(|index| entry(1, index, 40)).collect()).await.unwrap();
    assert!(append(&group, vec![entry(1, 26, 1)]).await.is_err(), "that would be a hole");
    assert!(append(&group, vec![entry(1, 25, 1), entry(1, 27, 1)]).await.is_err());
    group.truncate_after(Some(EntryId::new(1, 14))).unwrap();
    append(&group, (15..18).map(|index| entry(2, index, 9)).collect()).await.unwrap();
    // What is there from the first index on is replaced.
    append(&group, (16..20).map(|index| entry(3, index, 9)).collect()).await.unwrap();
    let terms = |entries: &[Entry]| entries.iter().map(|entry| entry.id.term.0).collect::<Vec<_>>();
    let expected = [vec![1; 10], vec![2], vec![3; 4]].concat();
    assert_eq!(terms(&all(&group).await), expected);
    drop((log, group));
    memory.crash();
    let log = open(&memory).await.unwrap();
    let group = log.group(GROUP);
    assert_eq!(terms(&all(&group).await), expected);
    group.truncate_after(None).unwrap();
    assert_eq!((all(&group).await, group.marks().last), (vec![], None));
    append(&group, vec![entry(9, 0, 3)]).await.unwrap();
    assert_eq!(all(&group).await, [entry(9, 0, 3)]);
}

#[tokio::test(start_paused = true)]
async fn who_may_open_it() {
    let memory = MemoryDisk::new(1);
    let never = LogSettings { may_create: false, ..small() };
    let refused = Log::open(memory.mount().unwrap(), identity(), never.clone()).await.unwrap_err();
    assert!(matches!(refused, LogError::Missing), "{refused}");
    drop(open(&memory).await.unwrap());
    memory.kill();
    let other = Identity { cluster: ClusterId(78), ..identity() };
    let refused = Log::open(memory.mount().unwrap(), other, never).await.unwrap_err();
    assert!(matches!(refused, LogError::Foreign { .. }), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn a_committed_mark_covers_what_is_there() {
    let memory = MemoryDisk::new(1);
    let log = open(&memory).await.unwrap();
    let group = log.group(GROUP);
    append(&group, (0..5).map(|index| entry(1, index, 4)).collect()).await.unwrap();
    for (id, expected) in
        [((1, 3), Some((1, 3))), ((1, 9), Some((1, 3))), ((2, 4), Some((1, 3))), ((1, 2), Some((1, 3)))]
    {
        group.save_committed(EntryId::new(id.0, id.1)).unwrap();
        assert_eq!(group.marks().committed, expected.map(|(term, index)| EntryId::new(term, index)));
    }
    group.purge(EntryId::new(2, 50)).unwrap();
    group.save_committed(EntryId::new(2, 50)).unwrap();
    group.flush().await.unwrap();
    drop((log, group));
    memory.kill();
    let marks = open(&memory).await.unwrap().group(GROUP).marks();
    assert_eq!((marks.last, marks.purged), (Some(EntryId::new(2, 50)), Some(EntryId::new(2, 50))));
    assert_eq!(marks.committed, Some(EntryId::new(2, 50)));
}

#[tokio::test(start_paused = true)]
async fn a_group_that_left_keeps_its_vote() {
    let memory = MemoryDisk::new(1);
    let log = open(&memory).await.unwrap();
    let group = log.group(GROUP);
    append(&group, (0..5).map(|index| entry(1, index, 4)).collect()).await.unwrap();
    group.save_vote(ballot(4, 1)).await.unwrap();
    group.clear().unwrap();
    group.flush().await.unwrap();
    let left = Marks { vote: Some(ballot(4, 1)), ..Marks::default() };
    assert_eq!((group.marks(), group.bytes()), (left, 0));
    drop((log, group));
    memory.crash();
    assert_eq!(open(&memory).await.unwrap().group(GROUP).marks(), left);
}

#[tokio::test(start_paused = true)]
async fn a_stopped_nodes_log_can_be_looked_at() {
    let memory = MemoryDisk::new(1);
    assert!(dump::LogDump::open(memory.mount().unwrap()).await.unwrap().is_none());
    memory.kill();
    let log = open(&memory).await.unwrap();
    let group = log.group(GROUP);
    let batch = quorate_core::Batch { stamp: quorate_core::Stamp(5), groups: vec![] };
    let mut encoded = vec![];
    batch.encode(&mut encoded);
    let proposal = Entry { payload: encoded.into(), ..entry(1, 1, 0) };
    let blank = Entry { kind: EntryKind::Blank, ..entry(1, 0, 0) };
    append(&group, vec![blank.clone(), proposal.clone()]).await.unwrap();
    drop((log, group));
    memory.kill();
    let changes = memory.changes();
    let dumped = dump::LogDump::open(memory.mount().unwrap()).await.unwrap().unwrap();
    assert_eq!(dumped.identity(), identity());
    assert_eq!(dumped.groups().len(), 1);
    let entries = dumped.entries(GROUP, 0, 10).await.unwrap();
    assert_eq!(entries, [blank, proposal]);
    assert!(matches!(dump::decode(GROUP, entries[0].clone()), Ok(dump::Dumped::Blank)));
    let decoded = dump::decode(GROUP, entries[1].clone()).unwrap();
    assert!(matches!(decoded, dump::Dumped::Batch(found) if found == batch));
    assert_eq!(dumped.entries(GROUP, 1, 1).await.unwrap().len(), 1);
    assert_eq!(dumped.entries(GroupId(9), 0, 10).await.unwrap(), []);
    assert_eq!(memory.changes(), changes, "nothing was changed");
}
