//! Sliding logs: every granted (time, cost) that may still count.
//!
//! Entries are kept oldest first. The oldest stands in the open; each later one is coded as the time since the one before it,
//! doubled, with 1 added if its cost is 1, and else followed by its cost: two or three bytes for a steady stream. Entries that
//! no longer count are dropped when something is charged, and passed over until then, so that a question changes nothing.
//!
//! Invariants: times never go down; no entry is of 0 units; `sum` is of all entries, counting or not. Entries of one time may
//! stand separately: only their sum can be told. The sum passes the limit only by debt from settling.

use super::exact::span;
use super::{Standing, Verdict};
use crate::digest::{Hash, Part, Sum};
use crate::units::{Cost, Span, Stamp};

/// The rule: at most `limit` in any window.
#[derive(Clone, Copy)]
pub(super) struct Rule {
    pub(super) limit: u64,
    pub(super) window: i64,
}

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
    sum: u64,
    /// The sum of a hash of each entry.
    digest: Sum,
    /// Where the second entry begins.
    head: usize,
    bytes: Vec<u8>,
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
        self.bytes.capacity()
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
            put_entry(&mut self.bytes, at.0 - self.newest.0, units);
        }
        self.newest = at;
        self.sum = self.sum.saturating_add(units);
        self.digest.add(entry_hash((at, units)));
    }

    /// Drops what is not later than `gone`.
    fn prune(&mut self, gone: Stamp) {
        if self.is_empty() || self.first.0 > gone {
            return;
        }
        if self.newest <= gone {
            *self = SlidingLog::default();
            return;
        }
        while self.first.0 <= gone {
            let mut rest = &self.bytes[self.head..];
            let Some(next) = take_entry(&mut rest, self.first.0) else { break };
            self.head = self.bytes.len() - rest.len();
            self.sum = self.sum.saturating_sub(self.first.1);
            self.digest.remove(entry_hash(self.first));
            self.first = next;
        }
        if self.head > self.bytes.len() / 2 {
            self.bytes.drain(..self.head);
            self.head = 0;
            if self.bytes.capacity() > 4 * self.bytes.len() + 64 {
                self.bytes.shrink_to(2 * self.bytes.len());
            }
        }
    }

    /// Takes up to `units` from the entries of that time; whether there were any.
    fn take(&mut self, at: Stamp, units: u64) -> bool {
        if units == 0 || self.is_empty() || at < self.first.0 || at > self.newest {
            return false;
        }
        let there: u64 =
            self.entries().skip_while(|entry| entry.0 < at).take_while(|entry| entry.0 == at).map(|e| e.1).sum();
        if there == 0 {
            return false;
        }
        let others = self.entries().filter(|entry| entry.0 != at);
        let (before, after) = (others.clone().take_while(|e| e.0 < at), others.skip_while(|e| e.0 < at));
        *self = Self::from_entries(before.chain([(at, there.saturating_sub(units))]).chain(after));
        true
    }
}

impl Clone for SlidingLog {
    fn clone(&self) -> Self {
        SlidingLog { head: 0, bytes: self.bytes[self.head..].to_vec(), ..*self }
    }
}

impl PartialEq for SlidingLog {
    fn eq(&self, other: &Self) -> bool {
        self.entries().eq(other.entries())
    }
}

impl Eq for SlidingLog {}

impl Rule {
    /// An entry counts while it is later than this.
    fn gone(self, t: Stamp) -> Stamp {
        Stamp(t.0 - self.window)
    }

    /// The sum of what counts at t.
    fn sum(self, log: &SlidingLog, t: Stamp) -> u64 {
        let gone = self.gone(t);
        if log.is_empty() || log.newest <= gone {
            return 0;
        }
        let past: u64 = log.entries().take_while(|entry| entry.0 <= gone).map(|entry| entry.1).sum();
        log.sum.saturating_sub(past)
    }

    pub(super) fn verdict(self, log: &SlidingLog, t: Stamp, cost: Cost) -> Verdict {
        if cost == Cost::ZERO {
            return Verdict::granted();
        }
        let sum = self.sum(log, t);
        if sum.saturating_add(cost.get()) <= self.limit {
            return Verdict::granted();
        }
        Verdict::denied(self.limit.checked_sub(cost.get()).map(|room| self.retry_after(log, t, sum, room)))
    }

    /// The wait until enough of the oldest have gone for what counts to be at most `room`.
    fn retry_after(self, log: &SlidingLog, t: Stamp, mut sum: u64, room: u64) -> Span {
        let gone = self.gone(t);
        let mut last = log.newest;
        for (at, units) in log.entries().skip_while(|entry| entry.0 <= gone) {
            sum = sum.saturating_sub(units);
            if sum <= room {
                last = at;
                break;
            }
        }
        span(i128::from(last.0) + i128::from(self.window) - i128::from(t.0))
    }

    pub(super) fn charge(self, log: &mut SlidingLog, t: Stamp, units: u64) {
        log.prune(self.gone(t));
        log.push(t, units);
    }

    pub(super) fn standing(self, log: &SlidingLog, t: Stamp) -> Standing {
        let sum = self.sum(log, t);
        let until = if sum == 0 { Span(0) } else { Span(log.newest.0 + self.window - t.0) };
        Standing { limit: self.limit, remaining: self.limit.saturating_sub(sum), reset_after: until }
    }

    /// Takes `units` of the entry of time `at` away, if it still counts; whether it did.
    pub(super) fn refund(self, log: &mut SlidingLog, t: Stamp, at: Stamp, units: u64) -> bool {
        at > self.gone(t) && log.take(at, units)
    }

    pub(super) fn as_new_at(self, log: &SlidingLog) -> Stamp {
        if log.is_empty() { Stamp(0) } else { Stamp(log.newest.0 + self.window) }
    }

    /// What still counts at t stays, and counts by the new window from then on.
    pub(super) fn migrate(self, log: &mut SlidingLog, t: Stamp) {
        log.prune(self.gone(t));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_what_was_put_in_it() {
        let entries: Vec<_> = (0..1000).map(|i| (Stamp(i * i * 977), 1 + (i as u64 % 3) * 1_000_000)).collect();
        let mut log = SlidingLog::from_entries(entries.clone());
        assert_eq!(log.entries().collect::<Vec<_>>(), entries);
        log.prune(entries[600].0);
        assert_eq!(log.entries().collect::<Vec<_>>(), entries[601..]);
        assert_eq!(log.sum, entries[601..].iter().map(|e| e.1).sum::<u64>());
        assert_eq!(log.clone(), log);
        assert!(log.take(entries[700].0, 1));
        assert_eq!(log.sum, entries[601..].iter().map(|e| e.1).sum::<u64>() - 1);
        log.prune(entries[999].0);
        assert_eq!(log, SlidingLog::default());
    }

    #[test]
    fn a_steady_stream_costs_about_two_bytes_an_entry() {
        let log = SlidingLog::from_entries((0..10_000).map(|i| (Stamp(i * 5_000), 1)));
        assert_eq!(log.bytes.len(), 2 * 9_999);
    }

    #[test]
    fn memory_is_given_back() {
        let mut log = SlidingLog::from_entries((0..10_000).map(|i| (Stamp(i * 5_000), 1)));
        log.prune(Stamp(9_990 * 5_000));
        assert!(log.heap_bytes() <= 128, "{}", log.heap_bytes());
        log.prune(Stamp(9_999 * 5_000));
        assert_eq!(log.heap_bytes(), 0);
    }
}
