//! The encodings of what a shard's state is made of: bounds, policies.

use super::{DecodeError, Reader, put_int, put_part, put_text, put_uint};
use crate::caps;
use crate::command::Bounds;
use crate::ids::{PolicyId, PolicyVersion};
use crate::policy::{Algorithm, Mode, OnFull, OnUnavailable, Policy, PolicySet};
use crate::units::{Rate, Span};

pub(crate) fn put_bounds(out: &mut Vec<u8>, bounds: &Bounds) {
    for bound in [bounds.keys, bounds.log_bytes, bounds.sessions, bounds.session_bytes] {
        put_uint(out, bound);
    }
}

pub(crate) fn get_bounds(from: &mut Reader<'_>) -> Result<Bounds, DecodeError> {
    Ok(Bounds { keys: from.uint()?, log_bytes: from.uint()?, sessions: from.uint()?, session_bytes: from.uint()? })
}

/// Each policy is a part of its own, so that a newer writer's fields are skipped.
pub(crate) fn put_policy_set(out: &mut Vec<u8>, set: &PolicySet) {
    put_uint(out, set.version.0);
    put_uint(out, set.policies.len() as u64);
    for policy in &set.policies {
        put_part(out, |out| put_policy(out, policy));
    }
}

pub(crate) fn get_policy_set(from: &mut Reader<'_>) -> Result<PolicySet, DecodeError> {
    let version = PolicyVersion(from.uint()?);
    let count = from.count(8)?;
    if count > caps::POLICIES {
        return Err(DecodeError::OutOfBounds("the number of policies"));
    }
    let policies = (0..count).map(|_| get_policy(&mut from.part()?)).collect::<Result<_, _>>()?;
    Ok(PolicySet { version, policies })
}

pub(crate) fn put_policy(out: &mut Vec<u8>, policy: &Policy) {
    put_uint(out, policy.id.0.into());
    put_text(out, &policy.name);
    put_algorithm(out, &policy.algorithm);
    out.push(match policy.mode {
        Mode::Enforce => 0,
        Mode::Shadow => 1,
        Mode::Disabled => 2,
    });
    put_uint(out, policy.max_cost.map_or(0, |cost| cost.get() + 1));
    match policy.on_unavailable {
        OnUnavailable::FailOpen => out.push(0),
        OnUnavailable::FailClosed => out.push(1),
        OnUnavailable::Local { share_ppm: None } => out.push(2),
        OnUnavailable::Local { share_ppm: Some(share) } => {
            out.push(3);
            put_uint(out, share.into());
        }
    }
    out.push(match policy.on_full {
        OnFull::Refuse => 0,
        OnFull::Evict => 1,
    });
    put_text(out, &policy.description);
}

pub(crate) fn get_policy(from: &mut Reader<'_>) -> Result<Policy, DecodeError> {
    let id = PolicyId(from.uint32("a policy's id")?);
    let name = from.text("a policy's name")?.to_owned();
    let algorithm = get_algorithm(from)?;
    let mode = match from.byte()? {
        0 => Mode::Enforce,
        1 => Mode::Shadow,
        2 => Mode::Disabled,
        _ => return Err(DecodeError::OutOfBounds("a policy's mode")),
    };
    let max_cost = match from.uint()? {
        0 => None,
        plus_one => Some(crate::Cost::new(plus_one - 1).ok_or(DecodeError::OutOfBounds("a policy's max_cost"))?),
    };
    let on_unavailable = match from.byte()? {
        0 => OnUnavailable::FailOpen,
        1 => OnUnavailable::FailClosed,
        2 => OnUnavailable::Local { share_ppm: None },
        3 => OnUnavailable::Local { share_ppm: Some(from.uint32("a policy's share")?) },
        _ => return Err(DecodeError::OutOfBounds("a policy's on_unavailable")),
    };
    let on_full = match from.byte()? {
        0 => OnFull::Refuse,
        1 => OnFull::Evict,
        _ => return Err(DecodeError::OutOfBounds("a policy's on_full")),
    };
    let description = from.text("a policy's description")?.to_owned();
    Ok(Policy { id, name, algorithm, mode, max_cost, on_unavailable, on_full, description })
}

pub(crate) fn put_algorithm(out: &mut Vec<u8>, algorithm: &Algorithm) {
    let (kind, most, span, units) = match *algorithm {
        Algorithm::FixedWindow { limit, window } => (0, limit, window, None),
        Algorithm::SlidingLog { limit, window } => (1, limit, window, None),
        Algorithm::SlidingCounter { limit, window } => (2, limit, window, None),
        Algorithm::TokenBucket { capacity, refill } => (3, capacity, refill.period, Some(refill.units)),
        Algorithm::LeakyBucket { queue, rate } => (4, queue, rate.period, Some(rate.units)),
    };
    out.push(kind);
    put_uint(out, most);
    put_int(out, span.0);
    if let Some(units) = units {
        put_uint(out, units);
    }
}

pub(crate) fn get_algorithm(from: &mut Reader<'_>) -> Result<Algorithm, DecodeError> {
    let kind = from.byte()?;
    let most = from.uint()?;
    let window = Span(from.int()?);
    Ok(match kind {
        0 => Algorithm::FixedWindow { limit: most, window },
        1 => Algorithm::SlidingLog { limit: most, window },
        2 => Algorithm::SlidingCounter { limit: most, window },
        3 => Algorithm::TokenBucket { capacity: most, refill: Rate { units: from.uint()?, period: window } },
        4 => Algorithm::LeakyBucket { queue: most, rate: Rate { units: from.uint()?, period: window } },
        other => return Err(DecodeError::Version(other.into())),
    })
}
