//! Asking and charging.

use std::borrow::Cow;

use smallvec::SmallVec;

use super::Shard;
use super::room::Room;
use crate::answer::{Answer, Decision, Refusal};
use crate::caps;
use crate::check::{Asked, Peeked, decide, peek};
use crate::codec::answer::invalid;
use crate::command::Check;
use crate::ids::Position;
use crate::limit::State;
use crate::policy::{Algorithm, Mode};
use crate::table::{Had, Key};
use crate::units::{Cost, Span, Stamp};

/// A limit that a check names, equal ones joined.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    /// Its policy's ordinal in the set.
    pub(super) at: usize,
    pub(super) key: Key,
    pub(super) cost: Cost,
}

pub(super) type AllWanted = SmallVec<[Wanted; 2]>;

/// A limit's state, brought up to the policy in force.
struct Loaded {
    state: State,
    /// What it came from; none where there was nothing.
    had: Option<Had>,
}

impl Shard {
    pub(super) fn check(&mut self, check: &Check, position: Position) -> Answer {
        answer(self.try_check(check, position, None))
    }

    pub(super) fn reserve(&mut self, check: &Check, ttl: Span, position: Position) -> Answer {
        answer(self.try_reserve(check, ttl, position))
    }

    /// Answers as a check would at t, without a change.
    pub(super) fn look(&self, t: Stamp, check: &Check) -> Answer {
        answer(self.join(check).map(|wanted| self.peek(&wanted, t, check.max_delay)))
    }

    fn try_reserve(&mut self, check: &Check, ttl: Span, position: Position) -> Result<Decision, Refusal> {
        if check.peek {
            return Err(Refusal::Invalid(invalid::PEEK));
        }
        if ttl.0 <= 0 || ttl > caps::RESERVATION {
            return Err(Refusal::Invalid(invalid::TTL));
        }
        self.try_check(check, position, Some(self.stamp.saturating_add(ttl)))
    }

    fn try_check(&mut self, check: &Check, position: Position, expires: Option<Stamp>) -> Result<Decision, Refusal> {
        let wanted = self.join(check)?;
        if expires.is_some() {
            self.is_reservable(&wanted)?;
        }
        if check.peek {
            return Ok(self.peek(&wanted, self.stamp, check.max_delay));
        }
        let room = if self.may_lack_room(&wanted, expires.is_some()) {
            self.make_room(&wanted, check.max_delay, expires.is_some(), position)?
        } else {
            Room::Enough
        };
        if let Room::NotNeeded(denied) = room {
            return Ok(denied);
        }
        let mut loaded: SmallVec<[Loaded; 1]> = SmallVec::new();
        for (ordinal, wanted) in wanted.iter().enumerate() {
            // What is left out is looked at only.
            let left_out = room.skips(ordinal);
            loaded.push(match left_out {
                true => Loaded { state: self.glance(wanted).into_owned(), had: None },
                false => self.load(wanted),
            });
        }
        let mut asked: SmallVec<[Asked<'_>; 1]> = (0..)
            .zip(wanted.iter().zip(&mut loaded))
            .map(|(ordinal, (wanted, loaded))| Asked {
                policy: self.installed.policy(wanted.at),
                state: &mut loaded.state,
                cost: wanted.cost,
                ordinal,
            })
            .collect();
        let hold = expires.map(|expires| (position, expires));
        let mut decision = decide(&mut asked, self.stamp, false, check.max_delay, hold);
        drop(asked);
        decision.version = self.policies().version;
        let mut answers = decision.limits.iter_mut().peekable();
        for (ordinal, (wanted, loaded)) in wanted.iter().zip(loaded).enumerate() {
            let answer = answers.next_if(|answer| usize::from(answer.ordinal) == ordinal);
            match answer {
                Some(answer) if answer.charged && room.skips(ordinal) => answer.charged = false,
                Some(answer) if answer.charged => self.store(wanted, loaded.state, loaded.had),
                _ => self.put_back(wanted, loaded.state, loaded.had),
            }
        }
        decision.degraded = room.is_degraded();
        Ok(decision)
    }

    /// The limits that a check names, equal ones joined with their costs added.
    fn join(&self, check: &Check) -> Result<AllWanted, Refusal> {
        if check.limits.is_empty() {
            return Err(Refusal::Invalid(invalid::NO_LIMITS));
        }
        if check.limits.len() > caps::LIMITS_PER_CHECK {
            return Err(Refusal::Invalid(invalid::TOO_MANY_LIMITS));
        }
        let mut wanted = AllWanted::new();
        for limit in &check.limits {
            let at = self.installed.find(limit.policy).ok_or(Refusal::UnknownPolicy(limit.policy))?;
            let key = Key { print: limit.key, policy: limit.policy };
            match wanted.iter_mut().find(|wanted| wanted.key == key) {
                None => wanted.push(Wanted { at, key, cost: limit.cost }),
                Some(wanted) => {
                    wanted.cost = Cost::new(wanted.cost.get() + limit.cost.get()).ok_or(Refusal::CostTooLarge)?;
                }
            }
        }
        for wanted in &wanted {
            let policy = self.installed.policy(wanted.at);
            match policy.max_cost {
                Some(max) if wanted.cost > max && policy.mode != Mode::Disabled => {
                    return Err(Refusal::CostAboveMax { cost: wanted.cost, max });
                }
                _ => {}
            }
        }
        Ok(wanted)
    }

    fn is_reservable(&self, wanted: &[Wanted]) -> Result<(), Refusal> {
        for wanted in wanted.iter().filter(|wanted| !self.is_disabled(wanted)) {
            match self.installed.policy(wanted.at).algorithm {
                Algorithm::LeakyBucket { .. } => return Err(Refusal::NotReservable),
                Algorithm::TokenBucket { .. } => {
                    let held = self.table.get(wanted.key).map_or(0, |entry| entry.state.holds(self.stamp));
                    if held >= caps::HOLDS_PER_KEY {
                        return Err(Refusal::Invalid(invalid::HOLDS));
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    pub(super) fn is_disabled(&self, wanted: &Wanted) -> bool {
        self.installed.policy(wanted.at).mode == Mode::Disabled
    }

    /// Answers for the states as they are at t.
    pub(super) fn peek(&self, wanted: &[Wanted], t: Stamp, max_delay: Option<Span>) -> Decision {
        let states: SmallVec<[Cow<'_, State>; 1]> = wanted.iter().map(|wanted| self.glance(wanted)).collect();
        let peeked: SmallVec<[Peeked<'_>; 1]> = (0..)
            .zip(wanted.iter().zip(&states))
            .map(|(ordinal, (wanted, state))| Peeked {
                policy: self.installed.policy(wanted.at),
                state,
                cost: wanted.cost,
                ordinal,
            })
            .collect();
        Decision { version: self.policies().version, ..peek(&peeked, t, max_delay) }
    }

    /// A limit's state under the policy in force, to be looked at.
    fn glance(&self, wanted: &Wanted) -> Cow<'_, State> {
        let entry = if self.is_disabled(wanted) { None } else { self.table.get(wanted.key) };
        match entry {
            None => Cow::Owned(NEW),
            Some(entry) => self.installed.bring_up(wanted.at, entry.generation, entry.state),
        }
    }

    /// A limit's state under the policy in force, to be charged and stored, or put back.
    fn load(&mut self, wanted: &Wanted) -> Loaded {
        let entry = if self.is_disabled(wanted) { None } else { self.table.take(wanted.key) };
        match entry {
            None => Loaded { state: NEW, had: None },
            Some((had, state)) => {
                Loaded { state: self.installed.bring_up_owned(wanted.at, had.generation, state), had: Some(had) }
            }
        }
    }

    /// Stores a changed state; `had` is what it came from.
    pub(super) fn store(&mut self, wanted: &Wanted, state: State, had: Option<Had>) {
        let had = had.map(|had| had.generation);
        let as_new_at = state.as_new_at(&self.installed.policy(wanted.at).algorithm);
        if as_new_at <= self.stamp {
            if let Some(had) = had {
                self.table.remove(wanted.key);
                self.installed.leave(wanted.key.policy, had);
            }
            return;
        }
        let generation = self.installed.generation(wanted.at);
        self.table.put(wanted.key, generation, state);
        if had != Some(generation) {
            self.installed.enter(wanted.at, generation);
            if let Some(had) = had {
                self.installed.leave(wanted.key.policy, had);
            }
        }
        self.sweep.note(as_new_at);
    }

    /// Puts a state back that was taken and not charged. One that was brought up, or that moved out, is stored as it is now: it
    /// may have come to fit its slot meanwhile, and what it came from may be gone.
    pub(super) fn put_back(&mut self, wanted: &Wanted, state: State, had: Option<Had>) {
        let Some(from) = had else { return };
        if from.moved_out || from.generation != self.installed.generation(wanted.at) {
            self.store(wanted, state, had);
        }
    }
}

/// As good as new under any policy.
const NEW: State = State::TokenBucket { full_at: 0 };

fn answer(decided: Result<Decision, Refusal>) -> Answer {
    match decided {
        Ok(decision) => Answer::Decision(decision),
        Err(refusal) => Answer::Refused(refusal),
    }
}
