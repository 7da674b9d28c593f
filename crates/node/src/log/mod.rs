//! The write-ahead log: one a node, shared by all its groups, with their votes and marks, strictly in order.
//!
//! ```text
//!   GroupLog ─► memory of the group ─► queue ─► writer ─► segment files      one fdatasync for all groups that wait
//!      ▲              │  newest entries                       │
//!      └── reads ─────┴──────────── older entries ────────────┘
//! ```
//!
//! **Invariants.** What was acknowledged (an append whose callback was called, a vote whose call returned) is there after
//! any crash. What was not may be gone, but of each group only a suffix. A damaged record is found: before the point that
//! was known to be on disk it is rot, and the log does not open; after it, a tear, and is cut. Nothing is written after the
//! first error.
//!
//! One file a noun: `record` bytes, `marks` what they say, `segment` files, `scan` where a file ends, `replay`
//! and `open` reading it all, `group` and `segments` memory, `queue` and `writer` the way in, `clean` the way
//! out, `dump` for those who only look.

mod clean;
pub mod dump;
mod entry;
mod error;
mod group;
mod handle;
mod marks;
mod open;
mod queue;
mod record;
mod replay;
mod scan;
mod segment;
mod segments;
mod writer;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use quorate_core::GroupId;
use tokio::sync::{Semaphore, watch};

pub use entry::{Ballot, Entry, EntryId, EntryKind};
pub use error::LogError;
pub use handle::GroupLog;
pub use marks::Marks;
pub use queue::Done;
pub use record::SegmentId;
pub(crate) use segment::DIR;

use crate::caps;
use crate::disk::Disk;
use crate::identity::Identity;
use group::Group;
use queue::Queue;
use replay::ReplayedGroup;
use segments::{Segment, Segments};
use writer::{Head, Writer};

/// How a log is kept.
#[derive(Clone, Debug)]
pub struct LogSettings {
    /// Bytes of a segment; a single entry may be larger.
    pub segment_bytes: u32,
    /// Bytes of the newest entries that each group keeps in memory.
    pub tail_bytes: usize,
    /// Bytes of entries that may wait to be written; who comes then waits.
    pub queue_bytes: usize,
    /// How long the log is idle before it writes down how far it was synced.
    pub idle: Duration,
    /// Whether a new log may be begun where there is none. False for a node that has been a member of anything.
    pub may_create: bool,
}

impl Default for LogSettings {
    fn default() -> Self {
        LogSettings {
            segment_bytes: caps::SEGMENT_BYTES,
            tail_bytes: caps::LOG_TAIL_BYTES,
            queue_bytes: caps::LOG_QUEUE_BYTES,
            idle: caps::LOG_IDLE,
            may_create: true,
        }
    }
}

/// What the log has done, and what it takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogUsage {
    /// Segments that are there.
    pub segments: u64,
    /// Their bytes on disk.
    pub bytes: u64,
    /// Bytes of entries that a group still has.
    pub live_bytes: u64,
    /// Entries written since the log was opened.
    pub entries_written: u64,
    /// Bytes written since then.
    pub bytes_written: u64,
    /// Batches written and synced since then.
    pub syncs: u64,
}

/// A node's log. Clones are the same one; when the last one and the last [`GroupLog`] are gone, the writer ends.
#[derive(Clone, Debug)]
pub struct Log(Arc<Guard>);

#[derive(Debug)]
struct Guard(Arc<Shared>);

pub(crate) struct Shared {
    disk: Disk,
    identity: Identity,
    settings: LogSettings,
    groups: Mutex<BTreeMap<GroupId, Arc<Group>>>,
    segments: Segments,
    queue: Queue,
    /// Bytes that may still be queued.
    room: Semaphore,
    counters: Counters,
    failed: watch::Sender<Option<LogError>>,
    ended: watch::Sender<bool>,
}

#[derive(Default)]
struct Counters {
    entries: AtomicU64,
    bytes: AtomicU64,
    syncs: AtomicU64,
}

impl Log {
    /// Opens a node's log, and cuts off what an interrupted write left at its end. Has to be called within a tokio
    /// runtime, on which the writer then runs.
    ///
    /// # Errors
    /// The log is damaged, of another node, of a newer version, or not there and not to be created; or the disk fails.
    /// Each says what to do.
    pub async fn open(disk: Disk, identity: Identity, settings: LogSettings) -> Result<Log, LogError> {
        let loaded = disk.run(move |files| {
            let loaded = open::load(files, Some(identity));
            Ok(match loaded {
                Ok(Some(loaded)) => open::make_good(files, &loaded).map(|()| Some(loaded)),
                none_or_error => none_or_error,
            })
        });
        let loaded = loaded.await.map_err(LogError::disk("reading the log"))??;
        let segments = Segments::default();
        let (head, groups) = match loaded {
            Some(loaded) => resume(loaded, &segments)?,
            None if settings.may_create => (create(&disk, identity, &settings).await?, BTreeMap::new()),
            None => return Err(LogError::Missing),
        };
        let written = groups.iter().map(|(id, group)| (*id, group.marks)).collect();
        let head_segment = Segment { file: head.file.clone(), size: head.size, live: 0 };
        segments.insert(head.segment, head_segment);
        let groups: BTreeMap<_, _> = groups.into_iter().map(|(id, group)| (id, Group::new(id, group))).collect();
        for group in groups.values() {
            segments.need(&group.lock().runs());
        }
        let shared = Arc::new(Shared {
            disk,
            identity,
            groups: Mutex::new(groups.into_iter().map(|(id, group)| (id, Arc::new(group))).collect()),
            segments,
            queue: Queue::default(),
            room: Semaphore::new(settings.queue_bytes),
            counters: Counters::default(),
            failed: watch::Sender::new(None),
            ended: watch::Sender::new(false),
            settings,
        });
        let usage = shared.usage();
        tracing::info!(
            node = identity.node.0,
            segments = usage.segments,
            live_bytes = usage.live_bytes,
            groups = shared.all_groups().len(),
            "opened the log"
        );
        tokio::spawn(Writer::new(shared.clone(), head, written).run());
        Ok(Log(Arc::new(Guard(shared))))
    }

    /// The log of one group; empty if the group never wrote. One task may write to it, any number may read.
    pub fn group(&self, id: GroupId) -> GroupLog {
        let mut groups = self.0.0.groups.lock().unwrap_or_else(PoisonError::into_inner);
        let group = groups.entry(id).or_insert_with(|| Arc::new(Group::new(id, ReplayedGroup::default()))).clone();
        drop(groups);
        GroupLog::new(self.clone(), group)
    }

    /// The groups that the log knows of.
    pub fn groups(&self) -> Vec<GroupId> {
        self.0.0.all_groups().iter().map(|group| group.id).collect()
    }

    /// Whose log it is.
    pub fn identity(&self) -> Identity {
        self.0.0.identity
    }

    /// What it has done, and what it takes.
    pub fn usage(&self) -> LogUsage {
        self.0.0.usage()
    }

    /// Holds the first error, once there is one. From then on nothing is written, every call fails, and the node has to
    /// stop.
    pub fn failed(&self) -> watch::Receiver<Option<LogError>> {
        self.0.0.failed.subscribe()
    }

    /// Writes and syncs all that waits, and ends the writer. Calls made later fail.
    pub async fn close(&self) {
        self.0.0.queue.close();
        let mut ended = self.0.0.ended.subscribe();
        // The sender lives as long as this handle.
        let _ = ended.wait_for(|ended| *ended).await;
    }

    fn shared(&self) -> &Arc<Shared> {
        &self.0.0
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.queue.close();
    }
}

impl Shared {
    fn all_groups(&self) -> Vec<Arc<Group>> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    fn usage(&self) -> LogUsage {
        let (segments, bytes, live_bytes) = self.segments.totals();
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        LogUsage {
            segments,
            bytes,
            live_bytes,
            entries_written: count(&self.counters.entries),
            bytes_written: count(&self.counters.bytes),
            syncs: count(&self.counters.syncs),
        }
    }

    /// The log has failed: from now on everything does.
    fn fail(&self, error: LogError) {
        if !matches!(error, LogError::Closed) {
            let first = self.failed.send_if_modified(|failed| {
                let first = failed.is_none();
                failed.get_or_insert_with(|| error.clone());
                first
            });
            if first {
                tracing::error!(node = self.identity.node.0, %error, "the log has failed");
            }
        }
        self.queue.fail(&error);
        self.room.close();
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Log").field("identity", &self.identity).field("segments", &self.segments).finish()
    }
}

/// Takes up a log where its records end.
fn resume(mut loaded: open::Loaded, segments: &Segments) -> Result<(Head, BTreeMap<GroupId, ReplayedGroup>), LogError> {
    let Some(last) = loaded.segments.pop() else { return Err(LogError::Missing) };
    if let Some((from, upto)) = loaded.torn {
        tracing::warn!(
            node = loaded.identity.node.0,
            file = last.id.path(),
            from,
            upto,
            "cut what an interrupted write had left at the log's end; nothing of it was acknowledged"
        );
    }
    for segment in loaded.segments {
        segments.insert(segment.id, Segment { file: segment.file, size: segment.size, live: 0 });
    }
    let head = Head { segment: last.id, file: last.file, base: last.base, end: last.end, size: last.size };
    Ok((head, loaded.groups))
}

/// Begins a new log.
async fn create(disk: &Disk, identity: Identity, settings: &LogSettings) -> Result<Head, LogError> {
    let made = disk.run(|files| {
        files.make_dir(segment::DIR)?;
        files.sync_dir("")
    });
    made.await.map_err(LogError::disk("creating the log's directory"))?;
    let file = writer::new_spare(disk.clone(), settings.segment_bytes).await?;
    let first = SegmentId(1);
    writer::begin(disk, file, first, segment::beginning(identity, first, settings.segment_bytes, 0, std::iter::empty()))
        .await
}

#[cfg(test)]
mod tests;
