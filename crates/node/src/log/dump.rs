//! Reading a stopped node's log without changing it.

use bytes::Bytes;
use quorate_core::{Batch, GroupId};

use super::entry::{Entry, EntryId};
use super::error::LogError;
use super::handle::checked;
use super::marks::Marks;
use super::open::{Loaded, load};
use crate::disk::Disk;
use crate::identity::Identity;
use crate::raft::codec::from_log;
use crate::raft::{Membership, Payload, Proposal};

/// A log as its files have it. What an interrupted write left at its end is left alone, and not shown.
pub struct LogDump {
    disk: Disk,
    loaded: std::sync::Arc<Loaded>,
}

impl LogDump {
    /// Reads the log of a data directory that no node uses; none if there is no log.
    ///
    /// # Errors
    /// The log is damaged or of a newer version, or the disk fails.
    pub async fn open(disk: Disk) -> Result<Option<LogDump>, LogError> {
        let loaded = disk.run(|files| Ok(load(files, None))).await.map_err(LogError::disk("reading the log"))??;
        Ok(loaded.map(|loaded| LogDump { disk, loaded: loaded.into() }))
    }

    /// Whose log it is.
    pub fn identity(&self) -> Identity {
        self.loaded.identity
    }

    /// Every group of the log, with its marks.
    pub fn groups(&self) -> Vec<(GroupId, Marks)> {
        self.loaded.groups.iter().map(|(id, group)| (*id, group.marks)).collect()
    }

    /// Bytes that an interrupted write left after the last record.
    pub fn torn_bytes(&self) -> u64 {
        self.loaded.torn.map_or(0, |(from, upto)| upto - u64::from(from))
    }

    /// The entries of a group from an index on, at most `count` of them; none where there are no more.
    ///
    /// # Errors
    /// The disk fails.
    pub async fn entries(&self, group: GroupId, from: u64, count: usize) -> Result<Vec<Entry>, LogError> {
        let loaded = self.loaded.clone();
        let read = self.disk.run(move |_| {
            let Some(replayed) = loaded.groups.get(&group) else { return Ok(vec![]) };
            let mut entries = Vec::new();
            for (index, (term, place)) in replayed.entries.range(quorate_core::Index(from)..).take(count) {
                let Some(segment) = loaded.segments.iter().find(|segment| segment.id == place.segment) else { break };
                let bytes = segment.file.read_exact_at(u64::from(place.offset), place.len as usize)?;
                entries.push(checked(group, EntryId { term: *term, index: *index }, *place, bytes));
            }
            Ok(entries)
        });
        read.await.map_err(LogError::disk("reading entries"))?.into_iter().collect()
    }
}

/// What an entry of the log says.
#[derive(Clone, Debug)]
pub enum Dumped {
    /// Nothing: a leader's first entry.
    Blank,
    /// Voters and learners.
    Membership(Membership),
    /// A shard's commands.
    Batch(Batch),
    /// A command to the control group, encoded.
    Control(Bytes),
}

/// Decodes an entry of a group.
///
/// # Errors
/// What cannot be decoded, and why: it was written by a newer version.
pub fn decode(group: GroupId, entry: Entry) -> Result<Dumped, String> {
    let id = entry.id;
    let entry = from_log(entry).map_err(|error| format!("entry {id} of {group}: {error}"))?;
    match entry.payload {
        Payload::Blank => Ok(Dumped::Blank),
        Payload::Membership(membership) => Ok(Dumped::Membership(membership)),
        Payload::Normal(Proposal(bytes)) if group == GroupId::CONTROL => Ok(Dumped::Control(bytes)),
        Payload::Normal(Proposal(bytes)) => {
            Batch::decode(&bytes).map(Dumped::Batch).map_err(|error| format!("entry {id} of {group}: {error}"))
        }
    }
}
