//! Dropping what is as good as new.
//!
//! The sweep goes round the table in the order of keys, a few keys for each command applied and more as logical time passes
//! (a round in [`ROUND`], as long as entries come), so that no entry waits for it. It rests while nothing can be due: a round
//! finds out when the first key will be, and every change since may only bring that forward. Cursor and due time are part of
//! the state: a replica restored from a snapshot sweeps as one that replayed.

use super::Shard;
use super::check::Wanted;
use crate::digest::Hash;
use crate::table::{Entry, Key};
use crate::units::{Cost, Span, Stamp};

/// How long a round takes at most, if entries keep coming.
const ROUND: Span = Span(20_000_000);
/// Keys looked at for each command.
const PER_COMMAND: u64 = 2;
/// So many are looked at together, to pay for finding the place once.
const AT_LEAST: u64 = 32;
/// So many are looked at for one entry at most.
const AT_MOST: u64 = 65_536;

/// Where a round stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Round {
    /// The next key to look at.
    pub(crate) cursor: Key,
    /// Nothing is due before.
    pub(crate) due: Stamp,
    /// Nothing that this round has passed is due before.
    pub(crate) passed: Stamp,
}

/// The sweep of a shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sweep {
    pub(crate) keys: Round,
    pub(crate) resets: Round,
    /// Keys that may be looked at.
    pub(crate) credit: u64,
    /// The most keys and resets that there were in this round: its pace does not slacken as they go.
    pub(crate) most: u64,
}

const NEVER: Stamp = Stamp(i64::MAX);

impl Default for Round {
    fn default() -> Self {
        Round { cursor: Key::default(), due: NEVER, passed: NEVER }
    }
}

impl Round {
    fn note(&mut self, due: Stamp) {
        self.due = self.due.min(due);
        self.passed = self.passed.min(due);
    }

    /// The round is over: what it passed is all there is.
    fn wrap(&mut self) {
        *self = Round { cursor: Key::default(), due: self.passed, passed: NEVER };
    }

    fn hash(&self, hash: Hash) -> Hash {
        let key = self.cursor;
        let hash = hash.word(key.print.table).word(key.print.ring).word(key.policy.0.into());
        hash.word(self.due.0 as u64).word(self.passed.0 as u64)
    }
}

impl Sweep {
    /// Says that a key will be as good as new then.
    pub(super) fn note(&mut self, due: Stamp) {
        self.keys.note(due);
    }

    /// Says that a reset may be forgotten then.
    pub(super) fn note_reset(&mut self, due: Stamp) {
        self.resets.note(due);
    }

    /// When the first key or reset may be due.
    pub(super) fn due(&self) -> Option<Stamp> {
        let due = self.keys.due.min(self.resets.due);
        (due != NEVER).then_some(due)
    }

    pub(super) fn hash(&self, hash: Hash) -> Hash {
        self.resets.hash(self.keys.hash(hash)).word(self.credit).word(self.most)
    }
}

impl Shard {
    /// Sweeps as far as an entry of so many commands pays for, the shard's time having been `before`.
    pub(super) fn sweep(&mut self, commands: u64, before: Stamp) {
        if self.stamp < self.sweep.keys.due.min(self.sweep.resets.due) {
            return;
        }
        let elapsed = (self.stamp.0 - before.0).clamp(0, ROUND.0) as u64;
        self.sweep.most = self.sweep.most.max(self.table.len() + self.resets.len());
        let earned = PER_COMMAND * commands + self.sweep.most.saturating_mul(elapsed) / ROUND.0 as u64 + 1;
        self.sweep.credit = self.sweep.credit.saturating_add(earned);
        if self.sweep.credit >= AT_LEAST {
            let credit = std::mem::take(&mut self.sweep.credit).min(AT_MOST);
            self.sweep_some(credit);
        }
    }

    /// Sweeps so many keys and resets.
    pub(super) fn sweep_some(&mut self, count: u64) {
        self.sweep_keys(count.min(self.table.len() + 1));
        self.sweep_resets(count.min(self.resets.len() + 1));
    }

    /// Sweeps every key, so that each is of its policy's last generation: first what is left of the round, then a whole one.
    pub(super) fn sweep_all(&mut self) {
        self.sweep_keys(self.table.len() + 1);
        self.sweep_keys(self.table.len() + 1);
    }

    fn sweep_keys(&mut self, count: u64) {
        let (mut seen, mut last) = (0, Key::default());
        let mut stale = Vec::new();
        let mut passed = NEVER;
        for (key, entry) in self.table.from(self.sweep.keys.cursor).take(count as usize) {
            (seen, last) = (seen + 1, key);
            match self.as_new_at(key, &entry) {
                Some(due) if due > self.stamp => passed = passed.min(due),
                _ => stale.push(key),
            }
        }
        self.sweep.keys.passed = self.sweep.keys.passed.min(passed);
        for key in stale {
            self.renew(key);
        }
        if seen < count {
            self.sweep.keys.wrap();
            self.sweep.most = self.table.len() + self.resets.len();
        } else {
            self.sweep.keys.cursor = last.next();
        }
    }

    /// When a key will be as good as new; none if it is of an older generation of its policy, or its policy was taken away.
    fn as_new_at(&self, key: Key, entry: &Entry<'_>) -> Option<Stamp> {
        let at = self.installed.find(key.policy)?;
        if entry.generation != self.installed.generation(at) {
            return None;
        }
        Some(entry.state.as_new_at(&self.installed.policy(at).algorithm))
    }

    /// Brings a key up to its policy's last generation, and drops it if it is as good as new.
    fn renew(&mut self, key: Key) {
        let Some((had, state)) = self.table.take(key) else { return };
        let generation = had.generation;
        match self.installed.find(key.policy) {
            Some(at) => {
                let state = self.installed.bring_up_owned(at, generation, state);
                self.store(&Wanted { at, key, cost: Cost::ZERO }, state, Some(had));
            }
            None => {
                self.table.remove(key);
                self.installed.leave(key.policy, generation);
            }
        }
    }

    fn sweep_resets(&mut self, count: u64) {
        let (mut seen, mut last) = (0, Key::default());
        let mut over = Vec::new();
        let mut passed = NEVER;
        for (key, reset) in self.resets.from(self.sweep.resets.cursor).take(count as usize) {
            (seen, last) = (seen + 1, key);
            if reset.until <= self.stamp {
                over.push(key);
            } else {
                passed = passed.min(reset.until);
            }
        }
        self.sweep.resets.passed = self.sweep.resets.passed.min(passed);
        for key in over {
            self.resets.remove(key);
        }
        if seen < count { self.sweep.resets.wrap() } else { self.sweep.resets.cursor = last.next() }
    }
}
