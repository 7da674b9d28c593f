//! The memory of a sliding log: entries of (time, units), oldest first, small and quick to search.
//!
//! The oldest entry stands in the open; each later one is coded as the time since the one before it, doubled, with 1 added if
//! it is of 1 unit, and else followed by its units: two or three bytes for a steady stream. Every [`MARK_BYTES`] a mark is set
//! beside the bytes, with the sum of all that came before, so that a log of 100,000 entries is searched in its marks and then
//! read for a few hundred bytes only: a flood of large costs on a long log must not hold up the others of its shard.
//!
//! Invariants:
//! - Times never go down; no entry is of 0 units. Entries of one time may stand separately.
//! - `sum` is of all entries kept; `passed` of all that were dropped since the log was last empty. 128 bits, so that no debt
//!   passes them.
//! - What is kept, and what [`SlidingLog::coded_len`] and [`SlidingLog::digest`] say, follows from the entries alone: the marks
//!   are an index, and differ between a log that grew and the same log restored.

use std::collections::VecDeque;

use crate::digest::{Hash, Part, Sum};
use crate::units::Stamp;

/// The distance between marks.
const MARK_BYTES: usize = 512;

/// What was granted, and when.
///
/// ```
/// use quorate_core::{SlidingLog, Stamp};
/// let log = SlidingLog::from_entries([(Stamp(5), 1), (Stamp(9), 20)]);
/// assert_eq!(log.entries().collect::<Vec<_>>(), [(Stamp(5), 1), (Stamp(9), 20)]);
/// ```
#[derive(Debug, Default)]
pub struct SlidingLog {
    /// The oldest entry; of 0 units if there is none.
    first: (Stamp, u64),
    newest: Stamp,
    sum: u128,
    passed: u128,
    /// The sum of a hash of each entry.
    digest: Sum,
    /// Where the second entry begins.
    head: usize,
    bytes: Vec<u8>,
    marks: VecDeque<Mark>,
}

/// A place in the bytes where an entry begins.
#[derive(Clone, Copy, Debug)]
struct Mark {
    offset: usize,
    /// The time of the entry before it.
    before: Stamp,
    /// The sum of all entries before it, dropped ones included.
    passed: u128,
}

/// The entries of a [`SlidingLog`], oldest first.
///
/// ```
/// assert_eq!(quorate_core::SlidingLog::default().entries().count(), 0);
/// ```
#[derive(Clone, Debug)]
pub struct Entries<'a> {
    next: Option<(Stamp, u64)>,
    rest: &'a [u8],
}

impl Iterator for Entries<'_> {
    type Item = (Stamp, u64);

    #[inline]
    fn next(&mut self) -> Option<(Stamp, u64)> {
        let entry = self.next?;
        self.next = take_entry(&mut self.rest, entry.0);
        Some(entry)
    }
}

/// The entry at the head of `bytes`, the one before it being of time `before`; none at the end.
#[inline]
fn take_entry(bytes: &mut &[u8], before: Stamp) -> Option<(Stamp, u64)> {
    let word = take_varint(bytes)?;
    let units = if word & 1 == 1 { 1 } else { take_varint(bytes)? };
    Some((Stamp(before.0 + (word >> 1) as i64), units))
}

#[inline]
fn take_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

fn put_varint(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

fn put_entry(bytes: &mut Vec<u8>, since: i64, units: u64) {
    put_varint(bytes, (since as u64) << 1 | u64::from(units == 1));
    if units != 1 {
        put_varint(bytes, units);
    }
}

fn entry_hash(entry: (Stamp, u64)) -> u128 {
    Hash::of(Part::LogEntry).word(entry.0.0 as u64).word(entry.1).end()
}

impl SlidingLog {
    /// A log of these entries, which have to come in order of time. Entries of 0 units are left out.
    pub fn from_entries(entries: impl IntoIterator<Item = (Stamp, u64)>) -> SlidingLog {
        let mut log = SlidingLog::default();
        for (at, units) in entries {
            log.push(at, units);
        }
        log
    }

    /// Every entry kept, oldest first, also those that count no longer.
    pub fn entries(&self) -> Entries<'_> {
        Entries { next: (self.first.1 > 0).then_some(self.first), rest: &self.bytes[self.head..] }
    }

    /// The time of the newest entry; of no meaning where there is none.
    pub fn newest(&self) -> Stamp {
        self.newest
    }

    /// Whether there is no entry at all.
    pub fn is_empty(&self) -> bool {
        self.first.1 == 0
    }

    /// Bytes that the entries take; the same for the same entries, however they came.
    pub(crate) fn coded_len(&self) -> usize {
        self.bytes.len() - self.head
    }

    /// A digest of the entries, kept up as they come and go.
    pub(crate) fn digest(&self) -> u128 {
        self.digest.0
    }

    /// Bytes of memory on the heap, besides the log itself.
    pub fn heap_bytes(&self) -> usize {
        self.bytes.capacity() + self.marks.capacity() * size_of::<Mark>()
    }

    /// Adds an entry after all others.
    pub(crate) fn push(&mut self, at: Stamp, units: u64) {
        if units == 0 {
            return;
        }
        let at = at.max(self.newest);
        if self.is_empty() {
            self.first = (at, units);
        } else {
            let last = self.marks.back().map_or(self.head, |mark| mark.offset);
            if self.bytes.len() >= last + MARK_BYTES {
                let passed = self.passed + self.sum;
                self.marks.push_back(Mark { offset: self.bytes.len(), before: self.newest, passed });
            }
            put_entry(&mut self.bytes, at.0 - self.newest.0, units);
        }
        self.newest = at;
        self.sum += u128::from(units);
        self.digest.add(entry_hash((at, units)));
    }

    /// Drops what is not later than `gone`.
    pub(super) fn prune(&mut self, gone: Stamp) {
        if self.is_empty() || self.first.0 > gone {
            return;
        }
        if self.newest <= gone {
            *self = SlidingLog::default();
            return;
        }
        while self.first.0 <= gone && self.drop_first() {}
        if self.head > self.bytes.len() / 2 {
            self.bytes.drain(..self.head);
            for mark in &mut self.marks {
                mark.offset -= self.head;
            }
            self.head = 0;
            if self.bytes.capacity() > 4 * self.bytes.len() + 64 {
                self.bytes.shrink_to(2 * self.bytes.len());
                self.marks.shrink_to(2 * self.marks.len());
            }
        }
    }

    /// Drops the oldest entry; whether there is another.
    fn drop_first(&mut self) -> bool {
        let mut rest = &self.bytes[self.head..];
        let Some(next) = take_entry(&mut rest, self.first.0) else {
            *self = SlidingLog::default();
            return false;
        };
        self.head = self.bytes.len() - rest.len();
        self.sum -= u128::from(self.first.1);
        self.passed += u128::from(self.first.1);
        self.digest.remove(entry_hash(self.first));
        self.first = next;
        while self.marks.front().is_some_and(|mark| mark.offset < self.head) {
            self.marks.pop_front();
        }
        true
    }

    /// The entries from the last mark on that `is_before` what is sought, with the sum of those kept that come before, and the
    /// time of the one just before.
    fn seek(&self, is_before: impl Fn(&Mark) -> bool) -> (Entries<'_>, u128, Stamp) {
        match self.marks.partition_point(is_before).checked_sub(1).and_then(|place| self.marks.get(place)) {
            None => (self.entries(), 0, self.first.0),
            Some(mark) => {
                let mut rest = &self.bytes[mark.offset..];
                let next = take_entry(&mut rest, mark.before);
                (Entries { next, rest }, mark.passed - self.passed, mark.before)
            }
        }
    }

    /// The sum of the entries that are later than `gone`.
    pub(super) fn sum_after(&self, gone: Stamp) -> u128 {
        if self.is_empty() || self.newest <= gone {
            return 0;
        }
        if self.first.0 > gone {
            return self.sum;
        }
        let (entries, before, _) = self.seek(|mark| mark.before <= gone);
        let past: u128 = entries.take_while(|entry| entry.0 <= gone).map(|entry| u128::from(entry.1)).sum();
        self.sum - before - past
    }

    /// The time of the first entry with at most `room` units after it. (The newest has none after it.)
    pub(super) fn leaves(&self, room: u64) -> Stamp {
        let enough = self.sum.saturating_sub(room.into());
        let (entries, mut sum, _) = self.seek(|mark| mark.passed - self.passed < enough);
        for (at, units) in entries {
            sum += u128::from(units);
            if sum >= enough {
                return at;
            }
        }
        self.newest
    }

    /// Takes up to `units` from the entries of that time; whether there were any.
    pub(super) fn take(&mut self, at: Stamp, mut units: u64) -> bool {
        let mut taken = false;
        while units > 0 && !self.is_empty() && (self.first.0..=self.newest).contains(&at) {
            let part = if self.first.0 == at { self.take_from_first(units) } else { self.take_from_coded(at, units) };
            if part == 0 {
                break;
            }
            units -= part;
            taken = true;
        }
        taken
    }

    fn take_from_first(&mut self, units: u64) -> u64 {
        let part = units.min(self.first.1);
        if part == self.first.1 {
            self.drop_first();
            return part;
        }
        self.digest.remove(entry_hash(self.first));
        self.first.1 -= part;
        self.digest.add(entry_hash(self.first));
        self.sum -= u128::from(part);
        for mark in &mut self.marks {
            mark.passed -= u128::from(part);
        }
        part
    }

    /// Takes from the first coded entry of that time; how much.
    fn take_from_coded(&mut self, at: Stamp, units: u64) -> u64 {
        let (mut entries, _, mut before) = self.seek(|mark| mark.before < at);
        let (start, entry) = loop {
            let Some(entry) = entries.next.filter(|entry| entry.0 <= at) else { return 0 };
            if entry.0 == at {
                let since = at.0 - before.0;
                let mut coded = Vec::with_capacity(20);
                put_entry(&mut coded, since, entry.1);
                break (self.bytes.len() - entries.rest.len() - coded.len(), entry);
            }
            before = entry.0;
            entries.next();
        };
        self.edit(start, before, entry, entry.1 - units.min(entry.1))
    }

    /// Leaves `left` of the coded entry that begins at `start`, after one of time `before`; how much that took.
    fn edit(&mut self, start: usize, before: Stamp, entry: (Stamp, u64), left: u64) -> u64 {
        let mut rest = &self.bytes[start..];
        take_entry(&mut rest, before);
        let mut end = self.bytes.len() - rest.len();
        let (gap, mut coded) = (end, Vec::with_capacity(20));
        if left > 0 {
            put_entry(&mut coded, entry.0.0 - before.0, left);
            self.digest.add(entry_hash((entry.0, left)));
        } else if let Some(next) = take_entry(&mut rest, entry.0) {
            // The one after it is coded anew, as it now follows on the one before.
            end = self.bytes.len() - rest.len();
            put_entry(&mut coded, next.0.0 - before.0, next.1);
        } else {
            self.newest = before;
        }
        let (old_len, taken) = (end - start, entry.1 - left);
        self.digest.remove(entry_hash(entry));
        self.sum -= u128::from(taken);
        for mark in self.marks.iter_mut().filter(|mark| mark.offset > start) {
            mark.passed -= u128::from(taken);
            if left == 0 && mark.offset == gap {
                (mark.offset, mark.before) = (start, before);
            } else {
                mark.offset = mark.offset - old_len + coded.len();
            }
        }
        self.bytes.splice(start..end, coded);
        taken
    }
}

impl Clone for SlidingLog {
    fn clone(&self) -> Self {
        let mark = |mark: &Mark| Mark { offset: mark.offset - self.head, ..*mark };
        let (bytes, marks) = (self.bytes[self.head..].to_vec(), self.marks.iter().map(mark).collect());
        SlidingLog { head: 0, bytes, marks, ..*self }
    }
}

impl PartialEq for SlidingLog {
    fn eq(&self, other: &Self) -> bool {
        self.entries().eq(other.entries())
    }
}

impl Eq for SlidingLog {}

#[cfg(test)]
mod tests {
    use super::*;

    /// Everything that is kept beside the entries is what the entries alone say.
    fn check(log: &SlidingLog, entries: &[(Stamp, u64)]) {
        assert_eq!(log.entries().collect::<Vec<_>>(), entries);
        let again = SlidingLog::from_entries(entries.iter().copied());
        assert_eq!((log.sum, log.digest(), log.coded_len()), (again.sum, again.digest(), again.coded_len()));
        assert_eq!(log.sum, entries.iter().map(|e| u128::from(e.1)).sum());
        assert!(entries.is_empty() || log.newest == entries[entries.len() - 1].0);
        for mark in &log.marks {
            let kept: u128 = mark.passed - log.passed;
            let mut sum = 0;
            let after = entries.iter().position(|entry| {
                let found = sum == kept;
                sum += u128::from(entry.1);
                found
            });
            let after = after.unwrap_or(entries.len());
            assert_eq!(mark.before, entries[after - 1].0);
            let mut rest = &log.bytes[mark.offset..];
            assert_eq!(take_entry(&mut rest, mark.before), entries.get(after).copied());
        }
    }

    fn take(entries: &mut Vec<(Stamp, u64)>, at: Stamp, mut units: u64) {
        for entry in entries.iter_mut().filter(|entry| entry.0 == at) {
            let part = units.min(entry.1);
            entry.1 -= part;
            units -= part;
        }
        entries.retain(|entry| entry.1 > 0);
    }

    #[test]
    fn a_log_is_what_was_put_in_it_and_not_taken_out() {
        let mut seed = 7_u64;
        let mut random = |below: u64| {
            seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            (seed >> 33) % below
        };
        let (mut log, mut entries, mut now) = (SlidingLog::default(), Vec::<(Stamp, u64)>::new(), 0);
        for step in 0..20_000 {
            now += [0, 1, 70, 5_000, 1 << 30][random(5) as usize];
            let units = [1, 1, 1, 2, 500, 1 << 39][random(6) as usize];
            log.push(Stamp(now), units);
            entries.push((Stamp(now), units));
            if random(3) == 0 {
                let (at, _) = entries[random(entries.len() as u64) as usize];
                let (at, units) = (Stamp(at.0 + random(2) as i64), [1, 2, 700, u64::MAX][random(4) as usize]);
                let there = entries.iter().any(|entry| entry.0 == at);
                assert_eq!(log.take(at, units), there);
                take(&mut entries, at, units);
            }
            if random(200) == 0 && !entries.is_empty() {
                let (gone, _) = entries[random(entries.len() as u64) as usize];
                log.prune(gone);
                entries.retain(|entry| entry.0 > gone);
            }
            if step % 97 == 0 {
                check(&log, &entries);
                check(&log.clone(), &entries);
                let (at, _) = entries.get(random(1 + entries.len() as u64) as usize).copied().unwrap_or_default();
                let after = entries.iter().filter(|entry| entry.0 > at).map(|e| u128::from(e.1)).sum::<u128>();
                assert_eq!(log.sum_after(at), after);
                let room = random(1 << 31) << random(10);
                let mut left = log.sum;
                let first = entries.iter().find(|entry| {
                    left -= u128::from(entry.1);
                    left <= room.into()
                });
                assert_eq!(first.map(|e| e.0), first.map(|_| log.leaves(room)));
            }
        }
    }

    #[test]
    fn a_steady_stream_costs_about_two_bytes_an_entry() {
        let log = SlidingLog::from_entries((0..10_000).map(|i| (Stamp(i * 5_000), 1)));
        assert_eq!(log.bytes.len(), 2 * 9_999);
        assert!(log.marks.len() <= 2 * 9_999 / MARK_BYTES);
    }

    #[test]
    fn memory_is_given_back() {
        let mut log = SlidingLog::from_entries((0..10_000).map(|i| (Stamp(i * 5_000), 1)));
        log.prune(Stamp(9_990 * 5_000));
        assert!(log.heap_bytes() <= 256, "{}", log.heap_bytes());
        log.prune(Stamp(9_999 * 5_000));
        assert_eq!(log.heap_bytes(), 0);
    }
}
