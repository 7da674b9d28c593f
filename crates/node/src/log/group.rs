//! One group's part of the log in memory: its marks, where each of its entries stands, and the newest ones themselves.
//!
//! ```text
//!   purged │ slots ────────────────────────────────► last      one for each entry that is there
//!          │                     tail ─────────────► last      the newest entries, for reads
//!          │                            not written ► last     in the tail until they are in a segment
//! ```
//!
//! Memory is ahead of the segments: a call changes it at once and queues the record. An entry leaves the tail only once it
//! is in a segment and synced.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use quorate_core::{GroupId, Index, Term};

use super::entry::{Entry, EntryId};
use super::marks::Marks;
use super::record::{SegmentId, record_len};
use super::replay::{Place, ReplayedGroup};

/// A group and its state.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) id: GroupId,
    state: Mutex<GroupState>,
}

#[derive(Debug, Default)]
pub(crate) struct GroupState {
    pub(crate) marks: Marks,
    /// From `marks.first` to `marks.last`.
    slots: VecDeque<Slot>,
    /// The last few of them.
    tail: VecDeque<Entry>,
    tail_bytes: usize,
    bytes: u64,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    term: Term,
    /// Bytes of its record.
    len: u32,
    /// No segment while it is not written.
    segment: Option<SegmentId>,
    offset: u32,
}

/// Bytes of records in segments: one sum for each run of records of one segment.
#[derive(Debug, Default)]
pub(crate) struct Runs(pub(crate) Vec<(SegmentId, u64)>);

/// How to get an entry.
#[derive(Debug)]
pub(crate) enum Source {
    /// Here it is.
    Tail(Entry),
    /// It stands in a segment.
    Segment(EntryId, Place),
}

impl Group {
    pub(crate) fn new(id: GroupId, replayed: ReplayedGroup) -> Self {
        let slots = replayed.entries.values().map(|(term, place)| Slot {
            term: *term,
            len: place.len,
            segment: Some(place.segment),
            offset: place.offset,
        });
        let slots: VecDeque<Slot> = slots.collect();
        let bytes = slots.iter().map(|slot| u64::from(slot.len)).sum();
        let state = GroupState { marks: replayed.marks, slots, bytes, ..GroupState::default() };
        Group { id, state: Mutex::new(state) }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, GroupState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Slot {
    fn place(&self) -> Option<Place> {
        self.segment.map(|segment| Place { segment, offset: self.offset, len: self.len })
    }
}

impl Runs {
    pub(crate) fn add(&mut self, place: Place) {
        match self.0.last_mut() {
            Some((last, bytes)) if *last == place.segment => *bytes += u64::from(place.len),
            _ => self.0.push((place.segment, u64::from(place.len))),
        }
    }
}

impl GroupState {
    /// Bytes of all entries that are there, as they stand in the log.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Where its entries stand.
    pub(crate) fn runs(&self) -> Runs {
        let mut runs = Runs::default();
        self.slots.iter().filter_map(Slot::place).for_each(|place| runs.add(place));
        runs
    }

    /// Checks that these entries can follow what is there.
    pub(crate) fn check_append(&self, entries: &[Entry]) -> Result<(), String> {
        let mut next = self.marks.next();
        for (place, entry) in entries.iter().enumerate() {
            let index = entry.id.index;
            match next {
                Some(next) if index > next => return Err(format!("entry {} where {next} comes next", entry.id)),
                Some(next) if place > 0 && index != next => {
                    return Err(format!("entry {} where {next} comes next", entry.id));
                }
                Some(_) if self.marks.purged.is_some_and(|purged| index <= purged.index) => {
                    return Err(format!("entry {} was purged", entry.id));
                }
                _ => next = Some(Index(index.0 + 1)),
            }
        }
        Ok(())
    }

    /// Adds entries that [`GroupState::check_append`] let pass, after what they replace was truncated.
    pub(crate) fn append(&mut self, entries: &[Entry]) {
        for entry in entries {
            if self.marks.next().is_none() {
                self.marks.first = entry.id.index;
            }
            self.marks.last = Some(entry.id);
            let len = record_len(entry.payload.len()) as u32;
            self.slots.push_back(Slot { term: entry.id.term, len, segment: None, offset: 0 });
            self.bytes += u64::from(len);
            self.tail_bytes += entry.payload.len();
            self.tail.push_back(entry.clone());
        }
    }

    /// Takes back all entries after that one.
    pub(crate) fn truncate(&mut self, after: Option<EntryId>) -> Runs {
        self.marks.truncate(after);
        let mut freed = Runs::default();
        while self.slots.len() as u64 > self.marks.len() {
            let Some(slot) = self.slots.pop_back() else { break };
            self.bytes -= u64::from(slot.len);
            slot.place().into_iter().for_each(|place| freed.add(place));
            self.drop_tail(VecDeque::pop_back);
        }
        freed
    }

    /// Forgets all entries up to that one.
    pub(crate) fn purge(&mut self, upto: EntryId) -> Runs {
        self.marks.purge(upto);
        let mut freed = Runs::default();
        while self.slots.len() as u64 > self.marks.len() {
            let Some(slot) = self.slots.pop_front() else { break };
            self.bytes -= u64::from(slot.len);
            slot.place().into_iter().for_each(|place| freed.add(place));
            if self.tail.len() > self.slots.len() {
                self.drop_tail(VecDeque::pop_front);
            }
        }
        freed
    }

    /// Keeps the vote only.
    pub(crate) fn clear(&mut self) -> Runs {
        let freed = self.runs();
        *self = GroupState { marks: Marks { vote: self.marks.vote, ..Marks::default() }, ..GroupState::default() };
        freed
    }

    fn drop_tail(&mut self, pop: impl Fn(&mut VecDeque<Entry>) -> Option<Entry>) {
        if let Some(entry) = pop(&mut self.tail) {
            self.tail_bytes -= entry.payload.len();
        }
    }

    /// Whether that entry is there, or was before it was purged.
    pub(crate) fn knows(&self, id: EntryId) -> bool {
        self.marks.purged.is_some_and(|purged| id.index <= purged.index) || self.term_at(id.index) == Some(id.term)
    }

    /// The term of the entry of that index, if it is there.
    pub(crate) fn term_at(&self, index: Index) -> Option<Term> {
        self.slot(index).and_then(|place| self.slots.get(place)).map(|slot| slot.term)
    }

    fn slot(&self, index: Index) -> Option<usize> {
        self.marks.holds(index).then(|| (index.0 - self.marks.first.0) as usize)
    }

    /// The entry now stands at `place` instead of `from`; false if it is no longer there.
    pub(crate) fn settle(&mut self, id: EntryId, from: Option<Place>, place: Place) -> bool {
        let slot = self.slot(id.index).and_then(|at| self.slots.get_mut(at));
        let same = |slot: &&mut Slot| slot.term == id.term && slot.len == place.len && slot.place() == from;
        let Some(slot) = slot.filter(same) else { return false };
        slot.segment = Some(place.segment);
        slot.offset = place.offset;
        true
    }

    /// Lets the oldest entries of the tail go, down to so many bytes; those that are in no segment stay.
    pub(crate) fn trim_tail(&mut self, budget: usize) {
        while self.tail_bytes > budget {
            let oldest = self.slots.len() - self.tail.len();
            if self.slots.get(oldest).is_none_or(|slot| slot.segment.is_none()) {
                return;
            }
            self.drop_tail(VecDeque::pop_front);
        }
    }

    /// Where to get the entries of that range that are there, up to so many bytes of payload but at least one.
    pub(crate) fn find(&self, range: Range<u64>, budget: usize) -> Vec<Source> {
        let first = range.start.max(self.marks.first.0);
        let end = range.end.min(self.marks.next().map_or(0, |next| next.0));
        let tail_first = self.slots.len() - self.tail.len();
        let mut found = Vec::new();
        let mut bytes = 0;
        for index in first..end {
            let at = (index - self.marks.first.0) as usize;
            let Some(slot) = self.slots.get(at) else { break };
            bytes += slot.len as usize;
            if bytes > budget && !found.is_empty() {
                break;
            }
            let id = EntryId { term: slot.term, index: Index(index) };
            match (at.checked_sub(tail_first).and_then(|at| self.tail.get(at)), slot.place()) {
                (Some(entry), _) => found.push(Source::Tail(entry.clone())),
                (None, Some(place)) => found.push(Source::Segment(id, place)),
                (None, None) => break,
            }
        }
        found
    }

    /// The first entries that stand in that segment, up to so many bytes but at least one.
    pub(crate) fn in_segment(&self, segment: SegmentId, budget: usize) -> Vec<(EntryId, Place)> {
        let mut found = Vec::new();
        let mut bytes = 0;
        for (at, slot) in self.slots.iter().enumerate().filter(|(_, slot)| slot.segment == Some(segment)) {
            bytes += slot.len as usize;
            if bytes > budget && !found.is_empty() {
                break;
            }
            let id = EntryId { term: slot.term, index: Index(self.marks.first.0 + at as u64) };
            found.extend(slot.place().map(|place| (id, place)));
        }
        found
    }
}
