//! What a log's records, taken together, say of each group: its marks, and where its entries stand.

use std::collections::BTreeMap;

use quorate_core::{GroupId, Index, Term};

use super::error::LogError;
use super::marks::Marks;
use super::record::{Found, Record, SegmentId};

/// Where an entry stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) segment: SegmentId,
    pub(crate) offset: u32,
    /// Bytes of its record.
    pub(crate) len: u32,
}

/// A group as far as its records were read.
#[derive(Debug, Default)]
pub(crate) struct ReplayedGroup {
    pub(crate) marks: Marks,
    /// By index. May have holes while an old segment is gone and what it held was written again further on.
    pub(crate) entries: BTreeMap<Index, (Term, Place)>,
}

/// All groups as far as the records were read.
#[derive(Debug, Default)]
pub(crate) struct Replay {
    pub(crate) groups: BTreeMap<GroupId, ReplayedGroup>,
}

impl Replay {
    /// Follows a record.
    ///
    /// # Errors
    /// It cannot follow what came before it.
    pub(crate) fn enter(&mut self, segment: SegmentId, found: &Found<'_>) -> Result<(), String> {
        if found.record == Record::Mark {
            return Ok(());
        }
        let group = self.groups.entry(found.group).or_default();
        group.marks.enter(&found.record)?;
        match &found.record {
            Record::Entry { id, .. } if group.marks.holds(id.index) => {
                let place = Place { segment, offset: found.offset, len: found.len };
                let before = group.entries.insert(id.index, (id.term, place));
                if before.is_some_and(|(term, _)| term != id.term) {
                    return Err(format!("entry {id} of {} is there already, of another term", found.group));
                }
            }
            Record::Purged(_) | Record::Truncated(_) | Record::State(_) | Record::Cleared => {
                let marks = group.marks;
                group.entries.retain(|index, _| marks.holds(*index));
            }
            _ => {}
        }
        Ok(())
    }

    /// All groups, once every record was read.
    ///
    /// # Errors
    /// An entry that has to be there is not.
    pub(crate) fn finish(mut self) -> Result<BTreeMap<GroupId, ReplayedGroup>, LogError> {
        for (id, group) in &mut self.groups {
            let marks = &mut group.marks;
            let first = group.entries.first_key_value().map(|(index, _)| *index);
            if group.entries.len() as u64 != marks.len() || first.is_some_and(|first| first != marks.first) {
                let (from, upto) = (marks.first.0, marks.last.map_or(0, |last| last.index.0));
                let what =
                    format!("of group {id}, entries {from} to {upto} should be there, {} are", group.entries.len());
                return Err(LogError::Incomplete { what });
            }
            // A mark that covers what is not here would have other entries applied in its place.
            let within = |id: &super::entry::EntryId| {
                marks.purged.is_some_and(|purged| id.index <= purged.index)
                    || group.entries.get(&id.index).is_some_and(|(term, _)| *term == id.term)
            };
            marks.committed = marks.committed.filter(within);
        }
        Ok(self.groups)
    }
}
