//! Policies and policy sets on the wire.
//!
//! What is read here has every field in its type; whether its values lie inside the law's bounds is for
//! [`Policy::validate`](quorate_core::Policy::validate).

use quorate_core::{
    Algorithm, Cost, Mode, OnFull, OnUnavailable, Policy, PolicyId, PolicySet, PolicyVersion, Rate, Span, caps,
};

use super::{Malformed, common};
use crate::v1::{self, policy::Algorithm as Wire};

/// A policy as it goes over the wire.
///
/// ```
/// use quorate_core::{Algorithm, Policy, Span};
/// use quorate_proto::convert::{policy_from_wire, policy_to_wire};
/// let policy = Policy::new("per-user", Algorithm::FixedWindow { limit: 5, window: Span(1_000_000) });
/// assert_eq!(policy_from_wire(&policy_to_wire(&policy)), Ok(policy));
/// ```
pub fn policy_to_wire(policy: &Policy) -> v1::Policy {
    let window = |limit: u64, window: Span| v1::Window { limit, window_us: window.0 };
    let rate = |rate: Rate| Some(v1::Rate { units: rate.units, period_us: rate.period.0 });
    let algorithm = match policy.algorithm {
        Algorithm::FixedWindow { limit, window: span } => Wire::FixedWindow(window(limit, span)),
        Algorithm::SlidingLog { limit, window: span } => Wire::SlidingLog(window(limit, span)),
        Algorithm::SlidingCounter { limit, window: span } => Wire::SlidingCounter(window(limit, span)),
        Algorithm::TokenBucket { capacity, refill } => {
            Wire::TokenBucket(v1::TokenBucket { capacity, refill: rate(refill) })
        }
        Algorithm::LeakyBucket { queue, rate: pace } => Wire::LeakyBucket(v1::LeakyBucket { queue, rate: rate(pace) }),
    };
    let (on_unavailable, share_ppm) = match policy.on_unavailable {
        OnUnavailable::FailClosed => (v1::OnUnavailable::FailClosed, None),
        OnUnavailable::FailOpen => (v1::OnUnavailable::FailOpen, None),
        OnUnavailable::Local { share_ppm } => (v1::OnUnavailable::Local, share_ppm),
    };
    let mode = match policy.mode {
        Mode::Enforce => v1::Mode::Enforce,
        Mode::Shadow => v1::Mode::Shadow,
        Mode::Disabled => v1::Mode::Disabled,
    };
    let on_full = match policy.on_full {
        OnFull::Refuse => v1::OnFull::Refuse,
        OnFull::Evict => v1::OnFull::Evict,
    };
    v1::Policy {
        id: policy.id.0,
        name: policy.name.clone(),
        algorithm: Some(algorithm),
        mode: mode.into(),
        max_cost: policy.max_cost.map(Cost::get),
        on_unavailable: on_unavailable.into(),
        share_ppm,
        on_full: on_full.into(),
        description: policy.description.clone(),
    }
}

/// A policy as it came. Its values may still lie outside the law's bounds.
///
/// # Errors
/// Where something is missing, or is of a kind that this program does not know.
pub fn policy_from_wire(policy: &v1::Policy) -> Result<Policy, Malformed> {
    let algorithm = match &policy.algorithm {
        None => {
            return Err(Malformed::new("algorithm", "it is missing; set one of those that the protocol names"));
        }
        Some(Wire::FixedWindow(w)) => Algorithm::FixedWindow { limit: w.limit, window: Span(w.window_us) },
        Some(Wire::SlidingLog(w)) => Algorithm::SlidingLog { limit: w.limit, window: Span(w.window_us) },
        Some(Wire::SlidingCounter(w)) => Algorithm::SlidingCounter { limit: w.limit, window: Span(w.window_us) },
        Some(Wire::TokenBucket(b)) => {
            Algorithm::TokenBucket { capacity: b.capacity, refill: rate("token_bucket.refill", b.refill.as_ref())? }
        }
        Some(Wire::LeakyBucket(b)) => {
            Algorithm::LeakyBucket { queue: b.queue, rate: rate("leaky_bucket.rate", b.rate.as_ref())? }
        }
    };
    let mode = match v1::Mode::try_from(policy.mode) {
        Ok(v1::Mode::Enforce) => Mode::Enforce,
        Ok(v1::Mode::Shadow) => Mode::Shadow,
        Ok(v1::Mode::Disabled) => Mode::Disabled,
        Err(_) => return Err(unknown("mode", policy.mode)),
    };
    let on_unavailable = match v1::OnUnavailable::try_from(policy.on_unavailable) {
        Ok(v1::OnUnavailable::FailClosed) => OnUnavailable::FailClosed,
        Ok(v1::OnUnavailable::FailOpen) => OnUnavailable::FailOpen,
        Ok(v1::OnUnavailable::Local) => OnUnavailable::Local { share_ppm: policy.share_ppm },
        Err(_) => return Err(unknown("on_unavailable", policy.on_unavailable)),
    };
    let on_full = match v1::OnFull::try_from(policy.on_full) {
        Ok(v1::OnFull::Refuse) => OnFull::Refuse,
        Ok(v1::OnFull::Evict) => OnFull::Evict,
        Err(_) => return Err(unknown("on_full", policy.on_full)),
    };
    let max_cost = policy.max_cost.map(|units| common::cost("max_cost", 0, units)).transpose();
    Ok(Policy {
        id: PolicyId(policy.id),
        name: policy.name.clone(),
        algorithm,
        mode,
        max_cost: max_cost.map_err(|problem| Malformed { at: None, ..problem })?,
        on_unavailable,
        on_full,
        description: policy.description.clone(),
    })
}

fn rate(field: &'static str, rate: Option<&v1::Rate>) -> Result<Rate, Malformed> {
    match rate {
        Some(rate) => Ok(Rate { units: rate.units, period: Span(rate.period_us) }),
        None => Err(Malformed::new(field, "it is missing; set units and period_us")),
    }
}

fn unknown(field: &'static str, value: i32) -> Malformed {
    Malformed::new(field, format!("{value} is not known here; use a value of protocol version 1, or a newer program"))
}

/// A policy set as it goes over the wire.
///
/// ```
/// use quorate_core::PolicySet;
/// use quorate_proto::convert::{policy_set_from_wire, policy_set_to_wire};
/// let set = PolicySet::default();
/// assert_eq!(policy_set_from_wire(&policy_set_to_wire(&set)), Ok(set));
/// ```
pub fn policy_set_to_wire(set: &PolicySet) -> v1::PolicySet {
    v1::PolicySet { version: set.version.0, policies: set.policies.iter().map(policy_to_wire).collect() }
}

/// A policy set as it came; `at` of an error is the policy that it lies in.
///
/// # Errors
/// Where a policy is malformed or has the id 0, ids or names come twice, or there are more than
/// [`caps::POLICIES`](quorate_core::caps::POLICIES).
pub fn policy_set_from_wire(set: &v1::PolicySet) -> Result<PolicySet, Malformed> {
    if set.policies.len() > caps::POLICIES {
        let (is, most) = (set.policies.len(), caps::POLICIES);
        return Err(Malformed::new("policies", format!("{is} of them; allowed are {most}")));
    }
    let mut policies = Vec::with_capacity(set.policies.len());
    for (at, policy) in set.policies.iter().enumerate() {
        policies.push(policy_from_wire(policy).map_err(|problem| Malformed { at: Some(at), ..problem })?);
    }
    policies.sort_by_key(|policy| policy.id);
    let mut names: Vec<&str> = policies.iter().map(|policy| policy.name.as_str()).collect();
    names.sort_unstable();
    let twice = names.windows(2).any(|pair| pair[0] == pair[1]);
    if twice || policies.windows(2).any(|pair| pair[0].id == pair[1].id) {
        return Err(Malformed::new("policies", "two of them have one id or one name; each names one policy"));
    }
    if policies.first().is_some_and(|policy| policy.id == PolicyId(0)) {
        return Err(Malformed::new("policies", "one has the id 0; a policy in force has an id from 1"));
    }
    Ok(PolicySet { version: PolicyVersion(set.version), policies })
}
