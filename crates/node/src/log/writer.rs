//! The one task that writes the log.
//!
//! ```text
//!   requests of all groups that wait ──► one batch ──► one write, one fdatasync ──► places, votes, callbacks, in order
//! ```
//!
//! While a batch is being synced the next one gathers: nothing lingers, no timer is involved. The first error ends it for
//! good: everyone who waits is told, a failed sync is never tried again, and the node has to stop.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use quorate_core::GroupId;
use tokio::task::JoinHandle;

use super::Shared;
use super::entry::{Ballot, EntryId};
use super::error::LogError;
use super::group::{Group, Runs};
use super::marks::Marks;
use super::queue::{Done, Request, Work};
use super::record::{Record, SegmentId, record_len};
use super::replay::Place;
use super::segment::{DIR, SPARE, beginning};
use super::segments::Segment;
use crate::caps;
use crate::disk::{Disk, File};

/// The end of the log, where the next record goes.
pub(crate) struct Head {
    pub(crate) segment: SegmentId,
    pub(crate) file: Arc<dyn File>,
    /// Where the first appended record stands.
    pub(crate) base: u32,
    pub(crate) end: u32,
    pub(crate) size: u64,
}

pub(crate) struct Writer {
    pub(super) shared: Arc<Shared>,
    pub(super) head: Head,
    /// What the records so far say, those of the batch in hand included.
    pub(super) written: BTreeMap<GroupId, Marks>,
    pub(super) batch: Batch,
    /// All that is written is vouched for by a later record, or is a mark.
    vouched: bool,
    spare: Option<JoinHandle<Result<Arc<dyn File>, LogError>>>,
    pub(super) unlinking: Option<JoinHandle<Result<(), LogError>>>,
}

/// What the next write and sync will carry.
#[derive(Default)]
pub(super) struct Batch {
    bytes: Vec<u8>,
    moves: Vec<Move>,
    votes: Vec<(Arc<Group>, Ballot)>,
    done: Vec<Done>,
    cost: usize,
    entries: u64,
    /// It holds more than marks.
    counts: bool,
}

/// Entries of a group that have a new place once the batch is synced.
struct Move {
    group: Arc<Group>,
    entries: Vec<(EntryId, Option<Place>, Place)>,
}

impl Writer {
    pub(crate) fn new(shared: Arc<Shared>, head: Head, written: BTreeMap<GroupId, Marks>) -> Self {
        let batch = Batch::default();
        Writer { shared, head, written, batch, vouched: false, spare: None, unlinking: None }
    }

    /// Serves requests until the log is closed, or fails.
    pub(crate) async fn run(mut self) {
        self.prepare_spare();
        if let Err(error) = self.serve().await {
            self.shared.fail(error.clone());
            self.batch.done.drain(..).for_each(|done| done(Err(error.clone())));
            self.shared.queue.fail(&error);
        }
        if let Some(spare) = self.spare {
            spare.abort();
        }
        self.shared.ended.send_replace(true);
    }

    async fn serve(&mut self) -> Result<(), LogError> {
        loop {
            let cleaning = self.plan_cleaning();
            self.write_again(cleaning.moves).await?;
            // While an old segment is being freed there is no waiting: all that changed memory before the plan was made
            // is taken now, and durable when the segment goes.
            let (mut work, idle) = if cleaning.busy {
                (self.shared.queue.take(), false)
            } else {
                self.shared.queue.next(!self.vouched || self.unlinking.is_some(), self.shared.settings.idle).await
            };
            self.write_work(&mut work).await?;
            if (idle || work.closed) && self.batch.bytes.is_empty() && !self.vouched {
                self.put(GroupId::CONTROL, Record::Mark).await?;
            }
            self.flush().await?;
            self.release(cleaning.free).await?;
            if work.closed && self.vouched && !cleaning.busy {
                self.shared.queue.fail(&LogError::Closed);
                return Ok(());
            }
        }
    }

    async fn write_work(&mut self, work: &mut Work) -> Result<(), LogError> {
        let mut requests = std::mem::take(&mut work.requests).into_iter();
        while let Some(request) = requests.next() {
            if let Err(error) = self.write_request(request).await {
                requests.for_each(|request| request.fail(&error));
                return Err(error);
            }
        }
        for (group, upto) in std::mem::take(&mut work.committed) {
            self.put(group, Record::Committed(upto)).await?;
        }
        Ok(())
    }

    async fn write_request(&mut self, request: Request) -> Result<(), LogError> {
        match request {
            Request::Append { group, entries, cost, done } => {
                // Whatever fails from here on, whoever waits for this is told.
                let mut done = Some(done);
                for entry in &entries {
                    let record = Record::Entry { id: entry.id, kind: entry.kind, payload: &entry.payload };
                    let place = match self.put(group.id, record).await {
                        Ok(place) => place,
                        Err(error) => {
                            self.batch.done.extend(done.take());
                            return Err(error);
                        }
                    };
                    self.batch.moved(&group, (entry.id, None, place));
                    self.batch.entries += 1;
                }
                self.batch.cost += cost;
                self.batch.done.extend(done);
            }
            Request::Vote { group, ballot, done } => {
                let put = self.put(group.id, Record::Vote(ballot)).await;
                self.batch.done.push(done);
                put?;
                self.batch.votes.push((group, ballot));
            }
            Request::Purge { group, upto } => drop(self.put(group, Record::Purged(upto)).await?),
            Request::Truncate { group, after } => drop(self.put(group, Record::Truncated(after)).await?),
            Request::Clear { group } => drop(self.put(group, Record::Cleared).await?),
            Request::Flush { done } => self.batch.done.push(done),
        }
        Ok(())
    }

    /// Adds a record to the batch; writes what there is first if the batch or the segment is full.
    pub(super) async fn put(&mut self, group: GroupId, record: Record<'_>) -> Result<Place, LogError> {
        let payload = if let Record::Entry { payload, .. } = &record { payload.len() } else { 0 };
        if self.batch.bytes.len() > caps::LOG_BATCH_BYTES {
            self.flush().await?;
        }
        let at = u64::from(self.head.end) + self.batch.bytes.len() as u64;
        // A record larger than a whole segment gets one of its own, which grows.
        if at + record_len(payload) as u64 > self.head.size && at > u64::from(self.head.base) {
            self.flush().await?;
            self.roll().await?;
        }
        let offset = self.head.end + self.batch.bytes.len() as u32;
        let before = self.batch.bytes.len();
        record.encode(group, self.head.segment, offset, self.head.end, &mut self.batch.bytes);
        if record != Record::Mark {
            self.batch.counts = true;
            let marks = self.written.entry(group).or_default();
            marks.enter(&record).map_err(|what| LogError::Invalid { group, what })?;
        }
        let len = (self.batch.bytes.len() - before) as u32;
        Ok(Place { segment: self.head.segment, offset, len })
    }

    /// Writes and syncs the batch, then tells everyone.
    pub(super) async fn flush(&mut self) -> Result<(), LogError> {
        #[cfg(feature = "planted")]
        if self.only_votes_wait() {
            // They go to disk with the next entries.
            self.settle();
            return Ok(());
        }
        if !self.batch.bytes.is_empty() {
            let bytes = std::mem::take(&mut self.batch.bytes);
            let (file, at) = (self.head.file.clone(), u64::from(self.head.end));
            let written = self.shared.disk.run(move |_| {
                file.write_at(at, &bytes)?;
                file.sync()?;
                Ok(bytes)
            });
            let mut bytes = written.await.map_err(LogError::disk("writing and syncing a batch"))?;
            let counters = &self.shared.counters;
            counters.syncs.fetch_add(1, Ordering::Relaxed);
            counters.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            counters.entries.fetch_add(self.batch.entries, Ordering::Relaxed);
            self.head.end += bytes.len() as u32;
            self.vouched = !self.batch.counts;
            bytes.clear();
            bytes.shrink_to(caps::LOG_BATCH_BYTES);
            self.batch.bytes = bytes;
        }
        self.settle();
        Ok(())
    }

    #[cfg(feature = "planted")]
    fn only_votes_wait(&self) -> bool {
        let room = u64::from(self.head.end) + (64 << 10) < self.head.size;
        quorate_core::planted::is(quorate_core::planted::Planted::VoteNotSynced) && self.batch.entries == 0 && room
    }

    /// The batch is durable: entries are where they are, votes are known, callbacks are called.
    fn settle(&mut self) {
        let batch = &mut self.batch;
        for moved in batch.moves.drain(..) {
            let (mut needed, mut freed) = (Runs::default(), Runs::default());
            let mut state = moved.group.lock();
            for (id, from, place) in moved.entries {
                if state.settle(id, from, place) {
                    needed.add(place);
                    from.into_iter().for_each(|from| freed.add(from));
                }
            }
            state.trim_tail(self.shared.settings.tail_bytes);
            self.shared.segments.need(&needed);
            self.shared.segments.free(&freed);
        }
        for (group, ballot) in batch.votes.drain(..) {
            group.lock().marks.vote = Some(ballot);
        }
        batch.done.drain(..).for_each(|done| done(Ok(())));
        self.shared.room.add_permits(std::mem::take(&mut batch.cost));
        batch.entries = 0;
        batch.counts = false;
    }

    /// Goes on in a new segment. All of the old one is synced.
    async fn roll(&mut self) -> Result<(), LogError> {
        let spare = match self.spare.take() {
            Some(spare) => spare.await.ok().and_then(Result::ok),
            None => None,
        };
        let spare = match spare {
            Some(spare) => spare,
            // There was no room, perhaps; there may be by now.
            None => new_spare(self.shared.disk.clone(), self.shared.settings.segment_bytes).await?,
        };
        let segment = self.head.segment.next();
        let groups = self.written.iter().map(|(group, marks)| (*group, marks));
        let bytes = beginning(self.shared.identity, segment, self.shared.settings.segment_bytes, self.head.end, groups);
        self.head = begin(&self.shared.disk, spare, segment, bytes).await?;
        tracing::debug!(node = self.shared.identity.node.0, segment = segment.0, "the log goes on in a new segment");
        let entry = Segment { file: self.head.file.clone(), size: self.head.size, live: 0 };
        self.shared.segments.insert(segment, entry);
        self.prepare_spare();
        Ok(())
    }

    fn prepare_spare(&mut self) {
        let (disk, size) = (self.shared.disk.clone(), self.shared.settings.segment_bytes);
        let node = self.shared.identity.node.0;
        self.spare = Some(tokio::spawn(async move {
            let spare = new_spare(disk, size).await;
            if let Err(error) = &spare {
                tracing::warn!(node, %error, "the log's next segment cannot be prepared; it is tried again when it is needed");
            }
            spare
        }));
    }
}

impl Batch {
    pub(super) fn moved(&mut self, group: &Arc<Group>, entry: (EntryId, Option<Place>, Place)) {
        match self.moves.last_mut() {
            Some(last) if Arc::ptr_eq(&last.group, group) => last.entries.push(entry),
            _ => self.moves.push(Move { group: group.clone(), entries: vec![entry] }),
        }
    }
}

/// Makes the file of a future segment: all zeros, and durable.
pub(crate) async fn new_spare(disk: Disk, size: u32) -> Result<Arc<dyn File>, LogError> {
    let spare = disk.run(move |files| {
        if files.list(DIR)?.iter().any(|name| SPARE.ends_with(name)) {
            files.remove(SPARE)?;
        }
        let file = files.create(SPARE)?;
        file.fill(u64::from(size))?;
        Ok(Arc::from(file))
    });
    spare.await.map_err(LogError::disk("preparing a segment"))
}

/// Makes a spare file the segment that begins with `bytes`; durable, name and all.
pub(crate) async fn begin(
    disk: &Disk,
    file: Arc<dyn File>,
    segment: SegmentId,
    bytes: Vec<u8>,
) -> Result<Head, LogError> {
    let base = bytes.len() as u32;
    let begun = disk.run(move |files| {
        file.write_at(0, &bytes)?;
        file.sync()?;
        files.rename(SPARE, &segment.path())?;
        files.sync_dir(DIR)?;
        Ok(Head { segment, base, end: base, size: file.len()?, file })
    });
    begun.await.map_err(LogError::disk("beginning a segment"))
}
