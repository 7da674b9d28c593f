//! What the log holds for a group, in the log's own words: bytes with a term and an index, votes, marks.
//!
//! Nothing here knows openraft or the core's commands.

use std::fmt;

use bytes::Bytes;
use quorate_core::{Index, NodeId, Term};

/// Where an entry stands and who proposed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EntryId {
    /// The term of the leader that proposed it.
    pub term: Term,
    /// Its place in the group's log.
    pub index: Index,
}

/// What an entry's payload is. The numbers are permanent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum EntryKind {
    /// Nothing: a leader's first entry.
    Blank = 0,
    /// A proposal's bytes.
    Proposal = 1,
    /// An encoded membership.
    Membership = 2,
}

/// One entry of a group's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its term and index.
    pub id: EntryId,
    /// What the payload is.
    pub kind: EntryKind,
    /// The payload.
    pub payload: Bytes,
}

/// A vote: whom this node took for the leader of a term.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ballot {
    /// The term.
    pub term: Term,
    /// The candidate, or the leader.
    pub node: NodeId,
    /// Whether a quorum has granted it.
    pub committed: bool,
}

impl EntryId {
    /// The entry of that term and index.
    pub fn new(term: u64, index: u64) -> Self {
        EntryId { term: Term(term), index: Index(index) }
    }
}

impl EntryKind {
    pub(crate) fn from_number(number: u8) -> Option<Self> {
        [EntryKind::Blank, EntryKind::Proposal, EntryKind::Membership].into_iter().find(|kind| *kind as u8 == number)
    }
}

impl fmt::Display for EntryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.term.0, self.index.0)
    }
}
