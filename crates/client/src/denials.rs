//! Denials remembered: a check that was denied a moment ago is answered without asking again.
//!
//! Time only brings allowance back, and what others are granted only takes it. So a denial stays true until its
//! `retry_after`, unless somebody gives back: this client's own refunds, settlements and resets make it forget; those of
//! others, and a newer policy set that it has not heard of yet, it may miss for as long as it remembers at most.
//!
//! ```text
//!              asked          received                         denied until
//!   ────────────┼───────────────┼──────────────────────────────────┼─────►
//!               └── decided in here; forgotten asked + wait ──┘    │
//!                               └── waits are told up to received + wait
//! ```
//!
//! Both ends are on the safe side: what is remembered is never denied longer than the cluster would, and whoever waits what
//! he is told has waited long enough.
//!
//! Invariants: one slot for each hash, so memory is bounded and nothing is ever searched or swept; what a slot holds is
//! compared as a whole before it is believed; nobody waits for a lock.

use std::hash::Hasher as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use quorate_core::PolicyVersion;
use siphasher::sip::SipHasher13;
use smallvec::SmallVec;
use tokio::time::Instant;

use crate::caps;
use crate::decision::{Decision, LimitDecision};
use crate::question::Question;
use crate::wire::Wire;

pub(crate) struct Denials {
    most: Duration,
    slots: Box<[ArcSwapOption<Denial>]>,
    /// By a key's hash: how often this client has given back, reset or settled such a key.
    given_back: Box<[AtomicU64]>,
    secret: (u64, u64),
    wire: Arc<dyn Wire>,
}

/// A denial as it came. Its limits' keys are what is compared; its waits count from `received`.
struct Denial {
    decision: Decision,
    max_delay: Option<Duration>,
    given_back: u64,
    received: Instant,
    until: Instant,
}

/// What was so before a check was sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Before {
    hash: u64,
    given_back: u64,
    asked: Instant,
}

impl Denials {
    /// None where nothing is to be remembered. The seed keeps those who choose keys from choosing slots.
    pub(crate) fn new(most: Duration, seed: u64, wire: Arc<dyn Wire>) -> Option<Denials> {
        let most = most.min(caps::DENIAL_MAX);
        (most > Duration::ZERO).then(|| Denials {
            most,
            slots: std::iter::repeat_with(ArcSwapOption::empty).take(caps::DENIALS).collect(),
            given_back: std::iter::repeat_with(AtomicU64::default).take(caps::DENIALS).collect(),
            secret: (seed, seed.rotate_left(32) ^ 0x9e37_79b9_7f4a_7c15),
            wire,
        })
    }

    /// The denial that is remembered for this check, or what to remember the next one by.
    pub(crate) fn recall(
        &self,
        question: &mut Question<'_>,
        version: PolicyVersion,
        now: Instant,
    ) -> Result<Decision, Before> {
        let now = self.wire.at(now);
        let before = self.before(question, now);
        let slot = self.slot(before.hash).load();
        match slot.as_ref() {
            Some(denial) if denial.holds(question, version, &before) => Ok(denial.answer(question, now)),
            _ => Err(before),
        }
    }

    /// Remembers what was decided, if it is a denial that can be: every limit enforced, nothing degraded, the wait known or
    /// known to be for ever.
    pub(crate) fn remember(&self, before: &Before, question: &Question<'_>, decision: &Decision) {
        let bytes: usize = decision.limits.iter().map(|limit| limit.key.len()).sum();
        let can_be = !decision.allowed
            && !question.peek
            && !decision.degraded
            && !decision.remembered
            && decision.limits.len() == question.limits.len()
            && decision.limits.iter().all(|limit| !limit.shadow)
            && bytes <= caps::DENIAL_BYTES;
        // Until the first limit's verdict changes, so that each stays true.
        let denied = decision.limits.iter().filter(|limit| !limit.allowed);
        let wait = denied.filter_map(|limit| limit.retry_after).min().map_or(self.most, |wait| wait.min(self.most));
        #[cfg(feature = "planted")]
        let wait = match quorate_core::planted::is(quorate_core::planted::Planted::DenialOutlived) {
            true => self.most,
            false => wait,
        };
        let (received, until) = (self.wire.at(Instant::now()), before.asked + wait);
        if !can_be || until <= received {
            return;
        }
        let denial = Denial {
            decision: decision.copy(),
            max_delay: question.max_delay,
            given_back: before.given_back,
            received,
            until,
        };
        self.slot(before.hash).store(Some(Arc::new(denial)));
    }

    /// This key was given something back, or may have been: what is remembered of it, or still to come from before, is void.
    pub(crate) fn forget(&self, key: &[u8]) {
        self.count(self.hash(key)).fetch_add(1, Ordering::AcqRel);
    }

    fn before(&self, question: &Question<'_>, asked: Instant) -> Before {
        let (mut all, mut given_back) = (0, 0_u64);
        for limit in &question.limits {
            // One pass over a key gives its own hash and, gone on with, that of the limit.
            let mut hasher = self.hasher();
            hasher.write(limit.key.as_bytes());
            given_back = given_back.wrapping_add(self.count(hasher.finish()).load(Ordering::Acquire));
            hasher.write_u64(all);
            hasher.write_u64(limit.cost);
            hasher.write(limit.policy.as_bytes());
            all = hasher.finish();
        }
        let all = all ^ question.max_delay.map_or(0, |wait| !(wait.as_micros() as u64));
        Before { hash: all, given_back, asked }
    }

    fn hasher(&self) -> SipHasher13 {
        SipHasher13::new_with_keys(self.secret.0, self.secret.1)
    }

    fn hash(&self, key: &[u8]) -> u64 {
        let mut hasher = self.hasher();
        hasher.write(key);
        hasher.finish()
    }

    fn slot(&self, hash: u64) -> &ArcSwapOption<Denial> {
        &self.slots[hash as usize % caps::DENIALS]
    }

    fn count(&self, key: u64) -> &AtomicU64 {
        &self.given_back[key as usize % caps::DENIALS]
    }
}

impl Denial {
    /// Whether it is the answer to that question now.
    fn holds(&self, question: &Question<'_>, version: PolicyVersion, before: &Before) -> bool {
        let limits = || self.decision.limits.iter().zip(&question.limits);
        before.asked < self.until
            && self.given_back == before.given_back
            && self.decision.policy_version == version
            && self.max_delay == question.max_delay
            && !question.peek
            && self.decision.limits.len() == question.limits.len()
            && limits().all(|(is, asked)| is.cost == asked.cost && is.key == asked.key && *is.policy == *asked.policy)
    }

    /// The same again, its waits lessened by the time that has passed.
    fn answer(&self, question: &mut Question<'_>, now: Instant) -> Decision {
        let passed = now.saturating_duration_since(self.received);
        let lessen = |wait: Duration| wait.saturating_sub(passed);
        let limit = |(is, asked): (&LimitDecision, &mut crate::question::Limit<'_>)| LimitDecision {
            policy: Arc::clone(&is.policy),
            key: std::mem::take(&mut asked.key),
            retry_after: is.retry_after.map(lessen),
            reset_after: lessen(is.reset_after),
            ..*is
        };
        let limits = self.decision.limits.iter().zip(&mut question.limits).map(limit).collect();
        Decision {
            retry_after: self.decision.retry_after.map(lessen),
            reset_after: lessen(self.decision.reset_after),
            remembered: true,
            limits,
            cause: None,
            ..self.decision
        }
    }
}

/// Keys that are given something back: forgotten once that is done, given up, or dropped.
pub(crate) struct Forgetting<'a> {
    pub(crate) denials: Option<&'a Denials>,
    pub(crate) keys: SmallVec<[&'a [u8]; 1]>,
}

impl Drop for Forgetting<'_> {
    fn drop(&mut self) {
        if let Some(denials) = self.denials {
            self.keys.iter().for_each(|key| denials.forget(key));
        }
    }
}
