//! Taking charges back: refunds, settlements, resets.
//!
//! A charge made before its key was reset, or before its policy's algorithm, window or rate changed, is gone: a refund of it
//! does nothing, and a settlement only charges what was used beyond it.

use super::Shard;
use super::check::Wanted;
use crate::answer::{Answer, Refusal};
use crate::codec::answer::invalid;
use crate::command::Charge;
use crate::ids::{PolicyId, Position};
use crate::key::Fingerprint;
use crate::limit::{self, State};
use crate::policy::Policy;
use crate::resets::Reset;
use crate::table::{Had, Key};
use crate::units::{Cost, Span, Stamp};

impl Shard {
    pub(super) fn refund(&mut self, receipt: Position, at: Stamp, charges: &[Charge]) -> Answer {
        let (t, at) = (self.stamp, self.past(at));
        let mut undone = 0;
        for charge in charges {
            let changed = self.correct(charge, receipt, |policy, state, is_gone| {
                !is_gone && limit::refund(policy, state, t, receipt, at, charge.cost, charge.mark)
            });
            undone += u16::from(changed);
        }
        Answer::Undone(undone)
    }

    pub(super) fn settle(
        &mut self,
        receipt: Position,
        at: Stamp,
        ttl: Span,
        charges: &[Charge],
        actual: &[Cost],
    ) -> Answer {
        if charges.len() != actual.len() {
            return Answer::Refused(Refusal::Invalid(invalid::ACTUAL));
        }
        let (t, at) = (self.stamp, self.past(at));
        let expires = at.saturating_add(Span(ttl.0.clamp(0, crate::caps::RESERVATION.0)));
        if !charges.iter().all(|charge| self.has_room_for(charge)) {
            return Answer::Refused(Refusal::TableFull);
        }
        let mut undone = 0;
        for (charge, &actual) in charges.iter().zip(actual) {
            let changed = self.correct(charge, receipt, |policy, state, is_gone| match is_gone {
                false => limit::settle(policy, state, t, receipt, at, expires, charge.cost, actual),
                true => limit::overrun(policy, state, t, expires, charge.cost, actual),
            });
            undone += u16::from(changed);
        }
        Answer::Undone(undone)
    }

    pub(super) fn reset(&mut self, policy: PolicyId, print: Fingerprint, position: Position) -> Answer {
        let Some(at) = self.installed.find(policy) else {
            return Answer::Refused(Refusal::UnknownPolicy(policy));
        };
        let key = Key { print, policy };
        let Some((Had { generation, .. }, state)) = self.table.take(key) else { return Answer::Done };
        self.table.remove(key);
        // Brought up before it is counted out: the last key of a generation takes what is known of that generation with it.
        let state = self.installed.bring_up_owned(at, generation, state);
        self.installed.leave(policy, generation);
        let until = state.as_new_at(&self.installed.policy(at).algorithm);
        if until > self.stamp {
            self.resets.put(key, Reset { at: position, until });
            self.sweep.note_reset(until);
        }
        Answer::Done
    }

    /// A time that a client claims, which cannot lie ahead.
    fn past(&self, at: Stamp) -> Stamp {
        Stamp(at.0.clamp(0, self.stamp.0))
    }

    /// Whether what a settlement may charge on top has room.
    fn has_room_for(&self, charge: &Charge) -> bool {
        match self.table.get(Key::of(charge)) {
            None => self.table.len() + self.resets.len() < self.bounds.keys,
            Some(entry) => {
                !matches!(*entry.state, State::SlidingLog(_)) || self.table.log_bytes() < self.bounds.log_bytes
            }
        }
    }

    /// Corrects the state that a charge went to, the correction knowing whether the charge is gone; whether that changed anything.
    fn correct(
        &mut self,
        charge: &Charge,
        receipt: Position,
        correction: impl FnOnce(&Policy, &mut State, bool) -> bool,
    ) -> bool {
        let key = Key::of(charge);
        let Some(at) = self.installed.find(charge.policy) else { return false };
        let is_gone = self.installed.is_gone(at, receipt) || self.resets.is_gone(key, receipt);
        let wanted = Wanted { at, key, cost: charge.cost };
        let (mut state, had) = match self.table.take(key) {
            Some((had, state)) => (self.installed.bring_up_owned(at, had.generation, state), Some(had)),
            None => (State::new(&self.installed.policy(at).algorithm), None),
        };
        let changed = correction(self.installed.policy(at), &mut state, is_gone);
        if changed {
            self.store(&wanted, state, had);
        } else {
            self.put_back(&wanted, state, had);
        }
        changed
    }
}
