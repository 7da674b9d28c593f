//! What can be wrong with the log, and what to do about each.

use std::io;
use std::sync::Arc;

use quorate_core::GroupId;

use crate::identity::Identity;

/// Why the log cannot be opened, or cannot go on. Clones are cheap: the same error goes to everyone who waits.
#[derive(Clone, Debug, thiserror::Error)]
pub enum LogError {
    /// The disk refused. After a failed write or sync nothing more is written: the node has to stop.
    #[error(
        "the log's disk failed ({what}): {source}; the node stops: {}, then start it again",
        crate::disk::remedy(source)
    )]
    Disk {
        /// What was tried.
        what: &'static str,
        /// What the operating system said.
        source: Arc<io::Error>,
    },
    /// A record is bad that is known to have been on disk.
    #[error(
        "{file} is damaged at byte {offset} ({why}), in a part that had reached the disk: this node may have forgotten \
         what it acknowledged, so it does not start. Do not repair the file: replace the node under a new id, \
         the other replicas have what it held"
    )]
    Rotten {
        /// The segment, relative to the data directory.
        file: String,
        /// Where in it.
        offset: u64,
        /// What is wrong there.
        why: String,
    },
    /// A file that should be there is not, or the records of a group do not fit together.
    #[error(
        "the log is incomplete: {what}. This node may have forgotten what it acknowledged, so it does not start: replace \
         it under a new id, the other replicas have what it held"
    )]
    Incomplete {
        /// What is missing.
        what: String,
    },
    /// The file is of another node or another cluster.
    #[error("{file} belongs to {found}, not to {expected}; give this node its own data directory")]
    Foreign {
        /// The file, relative to the data directory.
        file: String,
        /// Whose it is.
        found: Identity,
        /// Who asked.
        expected: Identity,
    },
    /// The file was written by a newer version.
    #[error("{file} has format {found}, this version reads up to {known}; run a newer version of quorated")]
    Newer {
        /// The file, relative to the data directory.
        file: String,
        /// Its format.
        found: u32,
        /// The newest format that is known here.
        known: u32,
    },
    /// There is no log where there has to be one.
    #[error(
        "the data directory holds no log, but this node has been a member: it may have forgotten what it acknowledged. \
         Give it back its data directory, or replace it under a new id"
    )]
    Missing,
    /// The caller asked for what no log can hold.
    #[error("group {group}: {what}")]
    Invalid {
        /// The group.
        group: GroupId,
        /// What is wrong with the call.
        what: String,
    },
    /// The log was closed.
    #[error("the log is closed: the node is stopping")]
    Closed,
}

impl LogError {
    pub(crate) fn disk(what: &'static str) -> impl Fn(io::Error) -> LogError {
        move |source| LogError::Disk { what, source: Arc::new(source) }
    }
}

impl From<LogError> for io::Error {
    fn from(error: LogError) -> Self {
        io::Error::other(error)
    }
}
