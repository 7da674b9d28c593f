//! One check of one or several limits: all of them grant, or none is charged.
//!
//! Two passes. The first asks every limit for its verdict, and changes nothing; the second charges, if the check is granted,
//! and fills in what each limit says of itself afterwards. A policy in shadow mode has a verdict but no vote; a disabled one is
//! not asked.
//!
//! Invariant: a state is touched only where the answer says `charged`.

use smallvec::SmallVec;

use crate::answer::{Decision, LimitAnswer};
use crate::ids::Position;
use crate::limit::{State, Verdict};
use crate::policy::{Mode, Policy};
use crate::units::{Cost, Span, Stamp};

/// A limit that a check asks, to be charged. Equal ones, of one policy and key, are joined by the caller.
///
/// ```
/// use quorate_core::{decide, Algorithm, Asked, Cost, Policy, Span, Stamp, State};
/// let policy = Policy::new("p", Algorithm::FixedWindow { limit: 2, window: Span(1_000_000) });
/// let mut state = State::new(&policy.algorithm);
/// let asked = Asked { policy: &policy, state: &mut state, cost: Cost::ONE, ordinal: 0 };
/// let decision = decide(&mut [asked], Stamp(500_000), false, None, None);
/// assert!(decision.allowed);
/// assert_eq!((decision.limits[0].remaining, decision.limits[0].reset_after), (1, Span(500_000)));
/// ```
#[derive(Debug)]
pub struct Asked<'a> {
    /// The policy.
    pub policy: &'a Policy,
    /// The key's state under it.
    pub state: &'a mut State,
    /// What is asked.
    pub cost: Cost,
    /// Its ordinal in the check, to be found in the answer.
    pub ordinal: u16,
}

/// A limit that a check asks, only to look.
///
/// ```
/// use quorate_core::{peek, Algorithm, Cost, Peeked, Policy, Span, Stamp, State};
/// let policy = Policy::new("p", Algorithm::FixedWindow { limit: 2, window: Span(1_000_000) });
/// let state = State::new(&policy.algorithm);
/// let peeked = Peeked { policy: &policy, state: &state, cost: Cost::ONE, ordinal: 0 };
/// let decision = peek(&[peeked], Stamp(500_000), None);
/// assert!(decision.allowed);
/// assert_eq!(decision.limits[0].remaining, 2);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Peeked<'a> {
    /// The policy.
    pub policy: &'a Policy,
    /// The key's state under it.
    pub state: &'a State,
    /// What is asked.
    pub cost: Cost,
    /// Its ordinal in the check, to be found in the answer.
    pub ordinal: u16,
}

/// Answers a check, and charges every limit if it is granted (and is no peek). With `reserve`, a receipt and an expiry, the
/// charges can be settled until then; leaky buckets cannot be reserved, which is for the caller to refuse.
///
/// `t` is not before any earlier time of any of the states. `version` and `degraded` are left for the caller to fill.
pub fn decide(
    limits: &mut [Asked<'_>],
    t: Stamp,
    peek: bool,
    max_delay: Option<Span>,
    reserve: Option<(Position, Stamp)>,
) -> Decision {
    let mut decision = Decision::default();
    for limit in limits.iter() {
        ask(&mut decision.limits, limit.policy, limit.state, limit.cost, limit.ordinal, t, max_delay);
    }
    conclude(&mut decision, limits.len());
    let charge = decision.allowed && !peek;
    let mut answers = decision.limits.iter_mut();
    for limit in limits.iter_mut().filter(|limit| limit.policy.mode != Mode::Disabled) {
        let Some(answer) = answers.next() else { break };
        answer.charged = charge && answer.allowed && (limit.cost > Cost::ZERO || reserve.is_some());
        if answer.charged {
            answer.mark = limit.state.charge(&limit.policy.algorithm, t, limit.cost, reserve);
        }
        stand(answer, limit.policy, limit.state, t);
    }
    decision
}

/// Answers as [`decide`] would, and charges nothing: `remaining` and `reset_after` are those of the states as they are.
pub fn peek(limits: &[Peeked<'_>], t: Stamp, max_delay: Option<Span>) -> Decision {
    let mut decision = Decision::default();
    for limit in limits {
        ask(&mut decision.limits, limit.policy, limit.state, limit.cost, limit.ordinal, t, max_delay);
    }
    conclude(&mut decision, limits.len());
    let asked = limits.iter().filter(|limit| limit.policy.mode != Mode::Disabled);
    for (answer, limit) in decision.limits.iter_mut().zip(asked) {
        stand(answer, limit.policy, limit.state, t);
    }
    decision
}

/// Adds the limit's verdict, unless its policy is disabled.
fn ask(
    answers: &mut SmallVec<[LimitAnswer; 1]>,
    policy: &Policy,
    state: &State,
    cost: Cost,
    ordinal: u16,
    t: Stamp,
    max_delay: Option<Span>,
) {
    if policy.mode == Mode::Disabled {
        return;
    }
    let Verdict { allowed, retry_after, delay } = state.verdict(&policy.algorithm, t, cost, max_delay);
    let shadow = policy.mode == Mode::Shadow;
    answers.push(LimitAnswer {
        policy: policy.id,
        ordinal,
        allowed,
        shadow,
        retry_after,
        delay,
        cost,
        ..Default::default()
    });
}

/// Draws the overall answer from the verdicts of the limits; `asked` of them were named, the disabled included.
fn conclude(decision: &mut Decision, asked: usize) {
    let denied = |answer: &&LimitAnswer| !answer.allowed && !answer.shadow;
    decision.allowed = !decision.limits.iter().any(|answer| denied(&answer));
    if decision.allowed {
        decision.delay = decision.limits.iter().filter_map(|answer| answer.delay).max();
        decision.shadow_denied = asked == 1 && decision.limits.iter().any(|answer| !answer.allowed);
        return;
    }
    // The longest wait of those that denied, and none if one of them has none.
    let waits = decision.limits.iter().filter(denied).map(|answer| answer.retry_after);
    decision.retry_after = waits.reduce(|longest, wait| Some(longest?.max(wait?))).flatten();
    for answer in &mut decision.limits {
        answer.delay = None;
    }
}

/// Fills in what the limit says of itself after the decision.
fn stand(answer: &mut LimitAnswer, policy: &Policy, state: &State, t: Stamp) {
    let standing = state.standing(&policy.algorithm, t);
    answer.limit = standing.limit;
    answer.remaining = standing.remaining;
    answer.reset_after = standing.reset_after;
}
