//! Room for new keys in a full table, and for logs in a spent budget.
//!
//! A policy says what happens: `refuse` answers [`Refusal::TableFull`], `evict` throws a key out, the one nearest to
//! good-as-new among a few sampled ones, and marks the answer degraded. Only keys whose own policy says `evict` are thrown
//! out (for they may then be granted more than their limit), and never one that holds units. The sample begins at a hash of
//! the log's position, and goes in the order of keys: all replicas throw out the same. A policy in shadow mode denies nothing,
//! so where it has no room its charge is left out.

use std::borrow::Cow;

use super::Shard;
use super::check::Wanted;
use crate::answer::{Decision, Refusal};
use crate::digest::{Hash, Part};
use crate::ids::Position;
use crate::key::Fingerprint;
use crate::limit::State;
use crate::policy::{Algorithm, Mode, OnFull};
use crate::table::Key;
use crate::units::{Cost, Span, Stamp};

/// Keys that a sample looks at, at most.
const LOOKED_AT: usize = 64;
/// Keys that it chooses from.
const CHOSEN_FROM: usize = 8;
/// Keys that are swept before a check is refused or a key thrown out.
const SWEPT_FIRST: u64 = 64;

/// Bytes that a charge adds to a log, far more than it does.
const GROWTH: u64 = 1 << 10;

/// Whether a check's charges have room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Room {
    /// They have.
    Enough,
    /// They have since something was thrown out, or those limits left out (by ordinal, as bits).
    Degraded {
        /// Limits that are not charged.
        skipped: u32,
    },
    /// The check is denied, so none is needed.
    NotNeeded(Decision),
}

impl Room {
    /// Whether that limit is to be left uncharged.
    pub(super) fn skips(&self, ordinal: usize) -> bool {
        matches!(self, Room::Degraded { skipped } if skipped & 1 << ordinal != 0)
    }

    pub(super) fn is_degraded(&self) -> bool {
        matches!(self, Room::Degraded { .. })
    }
}

/// What there may be too much of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Keys,
    Logs,
}

impl Shard {
    /// Whether a check's charges could pass a bound: quick, and true rather too often.
    pub(super) fn may_lack_room(&self, wanted: &[Wanted], reserve: bool) -> bool {
        self.table.len() + self.resets.len() + wanted.len() as u64 > self.bounds.keys
            || (self.table.log_bytes() >= self.bounds.log_bytes
                && wanted.iter().any(|wanted| self.grows_log(wanted, reserve)))
    }

    /// Whether so many more charges could make a key be thrown out: true rather too often.
    pub(super) fn may_throw_out(&self, coming: u64) -> bool {
        let keys = self.table.len() + self.resets.len() + coming > self.bounds.keys;
        let logs = self.table.log_bytes() + coming * GROWTH > self.bounds.log_bytes;
        (keys || logs) && self.policies().policies.iter().any(|policy| policy.on_full == OnFull::Evict)
    }

    fn grows_log(&self, wanted: &Wanted, reserve: bool) -> bool {
        match self.installed.policy(wanted.at).algorithm {
            Algorithm::SlidingLog { .. } => true,
            Algorithm::TokenBucket { .. } => reserve,
            _ => false,
        }
    }

    /// Makes room for what a granted check would add.
    pub(super) fn make_room(
        &mut self,
        wanted: &[Wanted],
        max_delay: Option<Span>,
        reserve: bool,
        position: Position,
    ) -> Result<Room, Refusal> {
        let decision = self.peek(wanted, self.stamp, max_delay);
        if !decision.allowed {
            return Ok(Room::NotNeeded(decision));
        }
        let charged: Vec<usize> = decision
            .limits
            .iter()
            .filter(|answer| answer.allowed && answer.cost > Cost::ZERO)
            .map(|answer| usize::from(answer.ordinal))
            .collect();
        self.sweep_some(SWEPT_FIRST);
        let (mut skipped, mut evicted) = (0, false);
        for kind in [Kind::Keys, Kind::Logs] {
            let adds = |&&at: &&usize| match kind {
                Kind::Keys => !self.table.has(wanted[at].key),
                Kind::Logs => self.grows_log(&wanted[at], reserve),
            };
            let mut needing: Vec<usize> = charged.iter().filter(adds).copied().collect();
            // Those that refuse come first, so that what room there is goes to them.
            needing.sort_by_key(|&at| self.installed.policy(wanted[at].at).on_full == OnFull::Evict);
            let mut coming = 0;
            for at in needing {
                if skipped & 1 << at != 0 {
                    continue;
                }
                if self.has_room(kind, coming) {
                    coming += 1;
                    continue;
                }
                let policy = self.installed.policy(wanted[at].at);
                let (evicts, shadow) = (policy.on_full == OnFull::Evict, policy.mode == Mode::Shadow);
                if evicts && self.evict(kind, wanted, position, at) {
                    evicted = true;
                    coming += 1;
                } else if shadow {
                    skipped |= 1 << at;
                } else {
                    return Err(Refusal::TableFull);
                }
            }
        }
        Ok(if evicted || skipped != 0 { Room::Degraded { skipped } } else { Room::Enough })
    }

    /// Whether there is room for one more, `coming` others being about to come.
    fn has_room(&self, kind: Kind, coming: u64) -> bool {
        match kind {
            Kind::Keys => self.table.len() + self.resets.len() + coming < self.bounds.keys,
            Kind::Logs => self.table.log_bytes() < self.bounds.log_bytes,
        }
    }

    /// Throws out the key nearest to good-as-new among a few; false where none may go.
    fn evict(&mut self, kind: Kind, wanted: &[Wanted], position: Position, at: usize) -> bool {
        let seed = Hash::of(Part::Head).word(position.index.0).word(position.place.into()).word(at as u64).end();
        let from = Key { print: Fingerprint { table: seed as u64, ring: 0 }, ..Key::default() };
        let sample = self.table.from(from).chain(self.table.from(Key::default()));
        let victim = sample
            .take(LOOKED_AT)
            .filter(|(key, _)| wanted.iter().all(|wanted| wanted.key != *key))
            .filter(|(_, entry)| kind == Kind::Keys || matches!(*entry.state, State::SlidingLog(_)))
            .filter_map(|(key, entry)| Some((self.may_go(key, entry.generation, entry.state)?, key, entry.generation)))
            .take(CHOSEN_FROM)
            .min();
        let Some((_, key, generation)) = victim else { return false };
        self.table.remove(key);
        self.installed.leave(key.policy, generation);
        self.evicted += 1;
        true
    }

    /// When a key will be as good as new, if it may be thrown out.
    fn may_go(&self, key: Key, generation: u8, state: Cow<'_, State>) -> Option<Stamp> {
        let Some(at) = self.installed.find(key.policy) else { return Some(Stamp(0)) };
        let policy = self.installed.policy(at);
        let state = self.installed.bring_up(at, generation, state);
        (policy.on_full == OnFull::Evict && state.holds(self.stamp) == 0).then(|| state.as_new_at(&policy.algorithm))
    }
}
