//! What is known of a group besides its entries: vote, committed and purged marks, where its log begins and ends.
//!
//! Both the writer (so that each segment can begin with the state of every group) and the reader of a log (to find out
//! what it says) follow the records with [`Marks::enter`]: one rule for both.

use quorate_core::{Index, NodeId, Term};

use super::entry::{Ballot, EntryId};
use super::record::{Record, u64_at};

/// A group's marks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// The last vote.
    pub vote: Option<Ballot>,
    /// All up to here is known to be committed.
    pub committed: Option<EntryId>,
    /// All up to here is gone.
    pub purged: Option<EntryId>,
    /// The first entry that is there, if any is.
    pub first: Index,
    /// The last entry that is there; the last purged one if none is.
    pub last: Option<EntryId>,
}

impl Marks {
    /// Where the next entry goes; any place will do in a group that never had one.
    pub fn next(&self) -> Option<Index> {
        self.last.map(|last| Index(last.index.0 + 1))
    }

    /// Whether an entry of that index is there.
    pub fn holds(&self, index: Index) -> bool {
        self.first <= index && self.last.is_some_and(|last| index <= last.index)
    }

    /// How many entries are there.
    pub fn len(&self) -> u64 {
        self.last.map_or(0, |last| (last.index.0 + 1).saturating_sub(self.first.0))
    }

    /// Whether no entry is there.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Follows a record.
    ///
    /// # Errors
    /// The record cannot follow what came before it.
    pub(crate) fn enter(&mut self, record: &Record<'_>) -> Result<(), String> {
        match record {
            Record::Entry { id, .. } => return self.append(*id),
            Record::Vote(ballot) => self.vote = Some(*ballot),
            Record::Committed(id) => self.commit(*id),
            Record::Purged(id) => self.purge(*id),
            Record::Truncated(after) => self.truncate(*after),
            Record::State(marks) => *self = **marks,
            Record::Mark => {}
            Record::Cleared => *self = Marks { vote: self.vote, ..Marks::default() },
        }
        Ok(())
    }

    fn append(&mut self, id: EntryId) -> Result<(), String> {
        match self.next() {
            None => {
                self.first = id.index;
                self.last = Some(id);
            }
            Some(next) if next == id.index => self.last = Some(id),
            // Written again, to free an old segment.
            Some(next) if id.index < next => {}
            Some(next) => return Err(format!("entry {id} where {next} comes next")),
        }
        Ok(())
    }

    fn commit(&mut self, upto: EntryId) {
        if self.committed.is_none_or(|committed| committed.index < upto.index) {
            self.committed = Some(upto);
        }
    }

    pub(crate) fn purge(&mut self, upto: EntryId) {
        if self.purged.is_some_and(|purged| purged.index >= upto.index) {
            return;
        }
        self.purged = Some(upto);
        self.first = Index(upto.index.0 + 1);
        if self.last.is_none_or(|last| last.index <= upto.index) {
            self.last = Some(upto);
        }
    }

    pub(crate) fn truncate(&mut self, after: Option<EntryId>) {
        let after = match (after, self.purged) {
            (Some(after), Some(purged)) if after.index < purged.index => Some(purged),
            (None, purged) => purged,
            (after, _) => after,
        };
        let shortened = match (after, self.last) {
            (Some(after), Some(last)) => after.index < last.index,
            (None, Some(_)) => true,
            (_, None) => false,
        };
        if shortened {
            self.last = after;
        }
        if after.is_none() {
            self.first = Index(0);
        }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(ENCODED);
        let flags = [self.vote.is_some(), self.committed.is_some(), self.purged.is_some(), self.last.is_some()];
        bytes.extend(flags.map(u8::from));
        bytes.extend([self.vote.is_some_and(|vote| vote.committed).into(), 0, 0, 0]);
        let vote = self.vote.map_or((0, 0), |vote| (vote.term.0, vote.node.0));
        let numbers = [vote, pair(self.committed), pair(self.purged), pair(self.last)];
        for number in numbers.into_iter().flat_map(|(term, index)| [term, index]).chain([self.first.0]) {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        // Longer ones are of a later version, which adds at the end only.
        if bytes.len() < ENCODED {
            return None;
        }
        let number = |place: usize| u64_at(bytes, 8 + 8 * place);
        let id = |flag: usize, place| (bytes[flag] != 0).then(|| EntryId::new(number(place), number(place + 1)));
        Some(Marks {
            vote: (bytes[0] != 0).then(|| Ballot {
                term: Term(number(0)),
                node: NodeId(number(1)),
                committed: bytes[4] != 0,
            }),
            committed: id(1, 2),
            purged: id(2, 4),
            last: id(3, 6),
            first: Index(number(8)),
        })
    }
}

const ENCODED: usize = 8 + 9 * 8;

fn pair(id: Option<EntryId>) -> (u64, u64) {
    id.map_or((0, 0), |id| (id.term.0, id.index.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_come_back_from_their_bytes() {
        let id = |n| Some(EntryId::new(n, n + 1));
        let vote = Some(Ballot { term: Term(4), node: NodeId(2), committed: true });
        let full = Marks { vote, committed: id(1), purged: id(2), first: Index(4), last: id(3) };
        for marks in [full, Marks::default(), Marks { purged: None, ..full }, Marks { vote: None, ..full }] {
            assert_eq!(Marks::decode(&marks.encode()), Some(marks));
            assert_eq!(marks.encode().len(), ENCODED);
        }
        assert_eq!(Marks::decode(&full.encode()[1..]), None);
    }

    #[test]
    fn a_group_may_begin_anywhere_and_has_no_holes() {
        let entry = |term, index| Record::Entry {
            id: EntryId::new(term, index),
            kind: super::super::entry::EntryKind::Blank,
            payload: &[],
        };
        let mut marks = Marks::default();
        marks.enter(&entry(1, 5)).unwrap();
        marks.enter(&entry(1, 6)).unwrap();
        assert!(marks.enter(&entry(1, 8)).is_err());
        assert_eq!((marks.first, marks.last, marks.len()), (Index(5), Some(EntryId::new(1, 6)), 2));
        marks.enter(&Record::Truncated(Some(EntryId::new(1, 5)))).unwrap();
        assert_eq!(marks.last, Some(EntryId::new(1, 5)));
        marks.enter(&Record::Purged(EntryId::new(2, 9))).unwrap();
        assert_eq!((marks.first, marks.last, marks.len()), (Index(10), Some(EntryId::new(2, 9)), 0));
        marks.enter(&Record::Truncated(None)).unwrap();
        assert_eq!(marks.last, Some(EntryId::new(2, 9)));
        marks.enter(&entry(3, 10)).unwrap();
        assert!(marks.holds(Index(10)) && !marks.holds(Index(9)) && !marks.holds(Index(11)));
    }
}
