//! The log as one group uses it.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use quorate_core::GroupId;
use tokio::sync::oneshot;

use super::entry::{Ballot, Entry, EntryId};
use super::error::LogError;
use super::group::{Group, GroupState, Source};
use super::marks::Marks;
use super::queue::{Done, Request};
use super::record::{Record, decode, record_len};
use super::replay::Place;
use super::{Log, Shared};

/// One group's log. Clones are the same one.
///
/// One task at a time may change it, as Raft does; calls of several would be ordered as they come. Changes are visible to
/// reads at once; they are durable when the call says so.
#[derive(Clone, Debug)]
pub struct GroupLog {
    log: Log,
    group: Arc<Group>,
}

impl GroupLog {
    pub(crate) fn new(log: Log, group: Arc<Group>) -> Self {
        GroupLog { log, group }
    }

    /// The group.
    pub fn id(&self) -> GroupId {
        self.group.id
    }

    /// The whole node's log.
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// Vote, marks, and where the log begins and ends.
    pub fn marks(&self) -> Marks {
        self.group.lock().marks
    }

    /// Bytes that the group's entries take in the log; what a snapshot could free.
    pub fn bytes(&self) -> u64 {
        self.group.lock().bytes()
    }

    /// Appends entries, and calls `done` once they are durable, in the order of the calls. Entries that are there already
    /// from the first one's index on are replaced. Returns when there is room for them in the queue, not when they are
    /// written.
    ///
    /// # Errors
    /// The entries cannot follow what is there, or the log has failed; then `done` is never called.
    pub async fn append(&self, entries: Vec<Entry>, done: Done) -> Result<(), LogError> {
        let cost: usize = entries.iter().map(|entry| record_len(entry.payload.len())).sum();
        let cost = cost.min(self.shared().settings.queue_bytes);
        match self.shared().room.acquire_many(cost as u32).await {
            Ok(room) => room.forget(),
            Err(_) => return Err(self.why_closed()),
        }
        let mut state = self.group.lock();
        if let Err(what) = state.check_append(&entries) {
            self.shared().room.add_permits(cost);
            return Err(LogError::Invalid { group: self.id(), what });
        }
        let replaced =
            entries.first().filter(|first| state.marks.last.is_some_and(|last| first.id.index <= last.index));
        if let Some(first) = replaced {
            let after = first.id.index.0.checked_sub(1).map(quorate_core::Index);
            let after = after.and_then(|index| state.term_at(index).map(|term| EntryId { term, index }));
            self.truncate(&mut state, after)?;
        }
        let queue = self.shared().queue.lock();
        queue.open()?;
        state.append(&entries);
        self.shared().queue.push(queue, Request::Append { group: self.group.clone(), entries, cost, done });
        Ok(())
    }

    /// Saves a vote; it is durable, and seen by [`GroupLog::marks`], when this returns.
    ///
    /// # Errors
    /// The log has failed.
    pub async fn save_vote(&self, ballot: Ballot) -> Result<(), LogError> {
        let (sender, receiver) = oneshot::channel();
        {
            let queue = self.shared().queue.lock();
            queue.open()?;
            self.shared().queue.push(queue, Request::Vote { group: self.group.clone(), ballot, done: tell(sender) });
        }
        receiver.await.unwrap_or(Err(LogError::Closed))
    }

    /// Notes that all up to there is committed. Durable before long, not at once: after a crash it may be an older mark. A
    /// mark that covers what is not in this log is ignored.
    ///
    /// # Errors
    /// The log has failed.
    pub fn save_committed(&self, upto: EntryId) -> Result<(), LogError> {
        let mut state = self.group.lock();
        if !state.knows(upto) || state.marks.committed.is_some_and(|committed| committed.index >= upto.index) {
            return Ok(());
        }
        let queue = self.shared().queue.lock();
        queue.open()?;
        state.marks.committed = Some(upto);
        self.shared().queue.commit(queue, self.id(), upto);
        Ok(())
    }

    /// Takes back all entries after that one; all there are, if none is given.
    ///
    /// # Errors
    /// The log has failed.
    pub fn truncate_after(&self, after: Option<EntryId>) -> Result<(), LogError> {
        self.truncate(&mut self.group.lock(), after)
    }

    fn truncate(&self, state: &mut GroupState, after: Option<EntryId>) -> Result<(), LogError> {
        let queue = self.shared().queue.lock();
        queue.open()?;
        let freed = state.truncate(after);
        self.shared().queue.push(queue, Request::Truncate { group: self.id(), after });
        self.shared().segments.free(&freed);
        Ok(())
    }

    /// Forgets all entries up to that one, which may lie beyond the last. Their disk space is freed before long.
    ///
    /// # Errors
    /// The log has failed.
    pub fn purge(&self, upto: EntryId) -> Result<(), LogError> {
        let mut state = self.group.lock();
        let queue = self.shared().queue.lock();
        queue.open()?;
        let freed = state.purge(upto);
        self.shared().queue.push(queue, Request::Purge { group: self.id(), upto });
        self.shared().segments.free(&freed);
        Ok(())
    }

    /// Forgets everything but the vote: the group's replica has left this node. A vote is never forgotten, since the
    /// replica may come back in the same term.
    ///
    /// # Errors
    /// The log has failed.
    pub fn clear(&self) -> Result<(), LogError> {
        let mut state = self.group.lock();
        let queue = self.shared().queue.lock();
        queue.open()?;
        let freed = state.clear();
        self.shared().queue.push(queue, Request::Clear { group: self.id() });
        self.shared().segments.free(&freed);
        Ok(())
    }

    /// Returns once all that was asked of this log before is durable.
    ///
    /// # Errors
    /// The log has failed.
    pub async fn flush(&self) -> Result<(), LogError> {
        let (sender, receiver) = oneshot::channel();
        {
            let queue = self.shared().queue.lock();
            queue.open()?;
            self.shared().queue.push(queue, Request::Flush { done: tell(sender) });
        }
        receiver.await.unwrap_or(Err(LogError::Closed))
    }

    /// The entries of that range of indexes that are there, in order and without a gap; as many as take `budget` bytes,
    /// but one at least.
    ///
    /// # Errors
    /// The disk failed, or gave something else than was written: then the log has failed.
    pub async fn read(&self, range: Range<u64>, budget: usize) -> Result<Vec<Entry>, LogError> {
        loop {
            let found = self.group.lock().find(range.clone(), budget);
            let places: Vec<(EntryId, Place)> = found.iter().filter_map(Source::place).collect();
            if places.is_empty() {
                return Ok(found.into_iter().filter_map(Source::entry).collect());
            }
            match self.shared().read_places(self.id(), places).await {
                Ok(read) => {
                    let mut read = read.into_iter();
                    return Ok(found.into_iter().filter_map(|source| source.entry().or_else(|| read.next())).collect());
                }
                // It was purged while we were looking: look again.
                Err(LogError::Invalid { .. }) => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn shared(&self) -> &Arc<Shared> {
        self.log.shared()
    }

    fn why_closed(&self) -> LogError {
        self.shared().queue.lock().open().err().unwrap_or(LogError::Closed)
    }
}

fn tell(sender: oneshot::Sender<Result<(), LogError>>) -> Done {
    Box::new(move |result| {
        // Whoever asked may have gone away.
        let _ = sender.send(result);
    })
}

impl Source {
    fn place(&self) -> Option<(EntryId, Place)> {
        if let Source::Segment(id, place) = self { Some((*id, *place)) } else { None }
    }

    fn entry(self) -> Option<Entry> {
        if let Source::Tail(entry) = self { Some(entry) } else { None }
    }
}

impl Shared {
    /// Reads entries from the segments, and checks them.
    pub(crate) async fn read_places(
        self: &Arc<Self>,
        group: GroupId,
        places: Vec<(EntryId, Place)>,
    ) -> Result<Vec<Entry>, LogError> {
        let mut files = std::collections::BTreeMap::new();
        for (_, place) in &places {
            if let std::collections::btree_map::Entry::Vacant(vacant) = files.entry(place.segment) {
                let file = self.segments.file(place.segment);
                let gone = || LogError::Invalid { group, what: "these entries were purged".into() };
                vacant.insert(file.ok_or_else(gone)?);
            }
        }
        let read = self.disk.run(move |_| {
            let mut entries = Vec::with_capacity(places.len());
            for (id, place) in places {
                let bytes = files[&place.segment].read_exact_at(u64::from(place.offset), place.len as usize)?;
                entries.push(checked(group, id, place, bytes));
            }
            Ok(entries)
        });
        let read = read.await.map_err(LogError::disk("reading entries"));
        let entries = read.and_then(|entries| entries.into_iter().collect::<Result<Vec<_>, _>>());
        if let Err(error) = &entries {
            self.fail(error.clone());
        }
        entries
    }
}

/// The entry that stands there, if it is the one that was written there.
pub(crate) fn checked(group: GroupId, id: EntryId, place: Place, bytes: Vec<u8>) -> Result<Entry, LogError> {
    let rotten = |why: &str| LogError::Rotten {
        file: place.segment.path(),
        offset: u64::from(place.offset),
        why: why.to_string(),
    };
    let found = decode(&bytes, place.segment, place.offset).map_err(rotten)?;
    match found.record {
        Record::Entry { id: there, kind, payload } if there == id && found.group == group => {
            let from = payload.as_ptr() as usize - bytes.as_ptr() as usize;
            let upto = from + payload.len();
            Ok(Entry { id, kind, payload: Bytes::from(bytes).slice(from..upto) })
        }
        _ => Err(rotten("another record stands there")),
    }
}
