//! The encodings of what a shard's state is made of: bounds, policies, keys with their states.

use std::borrow::Cow;

use super::{DecodeError, Reader, put_fixed, put_int, put_part, put_text, put_uint, put_wide_int};
use crate::caps;
use crate::command::Bounds;
use crate::ids::{Index, PolicyId, PolicyVersion, Position};
use crate::key::Fingerprint;
use crate::limit::{HeldBucket, Hold, SlidingLog, State};
use crate::policy::{Algorithm, Mode, OnFull, OnUnavailable, Policy, PolicySet};
use crate::table::{Entry, Key};
use crate::units::{Cost, Rate, Span, Stamp};

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
        plus_one => Some(Cost::new(plus_one - 1).ok_or(DecodeError::OutOfBounds("a policy's max_cost"))?),
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

pub(crate) fn put_key(out: &mut Vec<u8>, key: Key) {
    put_fixed(out, key.print.table);
    put_fixed(out, key.print.ring);
    put_uint(out, key.policy.0.into());
}

pub(crate) fn get_key(from: &mut Reader<'_>) -> Result<Key, DecodeError> {
    let print = Fingerprint { table: from.fixed()?, ring: from.fixed()? };
    Ok(Key { print, policy: PolicyId(from.uint32("a policy's id")?) })
}

pub(crate) fn put_position(out: &mut Vec<u8>, position: Position) {
    put_uint(out, position.index.0);
    put_uint(out, position.place.into());
}

pub(crate) fn get_position(from: &mut Reader<'_>) -> Result<Position, DecodeError> {
    Ok(Position { index: Index(from.uint()?), place: from.uint32("a place")? })
}

pub(crate) fn put_entry(out: &mut Vec<u8>, key: Key, entry: &Entry<'_>) {
    put_key(out, key);
    out.push(entry.generation);
    match &*entry.state {
        State::FixedWindow { window, used } => {
            out.push(0);
            put_int(out, *window);
            put_uint(out, *used);
        }
        State::SlidingCounter { window, prev, curr } => {
            out.push(1);
            put_int(out, *window);
            put_uint(out, *prev);
            put_uint(out, *curr);
        }
        State::TokenBucket { full_at } => {
            out.push(2);
            put_wide_int(out, *full_at);
        }
        State::LeakyBucket { next } => {
            out.push(3);
            put_wide_int(out, *next);
        }
        State::SlidingLog(log) => {
            out.push(4);
            put_log(out, log);
        }
        State::HeldBucket(bucket) => {
            out.push(5);
            put_wide_int(out, bucket.full_at);
            put_uint(out, bucket.holds.len() as u64);
            for hold in &bucket.holds {
                put_position(out, hold.id);
                put_uint(out, hold.cost.get());
                put_int(out, hold.expires.0);
            }
        }
    }
}

pub(crate) fn get_entry(from: &mut Reader<'_>) -> Result<(Key, Entry<'static>), DecodeError> {
    let key = get_key(from)?;
    let generation = from.byte()?;
    let state = match from.byte()? {
        0 => State::FixedWindow { window: get_window(from)?, used: from.uint()? },
        1 => State::SlidingCounter { window: get_window(from)?, prev: from.uint()?, curr: from.uint()? },
        2 => State::TokenBucket { full_at: get_moment(from)? },
        3 => State::LeakyBucket { next: get_moment(from)? },
        4 => State::SlidingLog(Box::new(get_log(from)?)),
        5 => State::HeldBucket(Box::new(get_held(from)?)),
        other => return Err(DecodeError::Version(other.into())),
    };
    Ok((key, Entry { generation, state: Cow::Owned(state) }))
}

/// The time of the first entry, then for each the time since the one before it, and its units.
fn put_log(out: &mut Vec<u8>, log: &SlidingLog) {
    put_uint(out, log.entries().count() as u64);
    let mut before = 0;
    for (at, units) in log.entries() {
        put_uint(out, (at.0 - before) as u64);
        put_uint(out, units);
        before = at.0;
    }
}

fn get_log(from: &mut Reader<'_>) -> Result<SlidingLog, DecodeError> {
    let count = from.count(2)?;
    let mut log = SlidingLog::default();
    let mut before = 0;
    for _ in 0..count {
        let since = i64::try_from(from.uint()?).map_err(|_| DecodeError::OutOfBounds("a log's time"))?;
        before = since
            .checked_add(before)
            .filter(|at| *at <= caps::LONGEST_US)
            .ok_or(DecodeError::OutOfBounds("a log's time"))?;
        log.push(Stamp(before), from.uint()?);
    }
    Ok(log)
}

fn get_held(from: &mut Reader<'_>) -> Result<HeldBucket, DecodeError> {
    let full_at = get_moment(from)?;
    let count = from.count(4)?;
    let mut holds = Vec::with_capacity(count.min(caps::HOLDS_PER_KEY));
    for _ in 0..count {
        let (id, cost) = (get_position(from)?, super::batch::get_cost(from)?);
        let expires = Stamp(from.int()?);
        if !(0..=caps::LONGEST_US).contains(&expires.0) {
            return Err(DecodeError::OutOfBounds("a reservation's expiry"));
        }
        holds.push(Hold { id, cost, expires });
    }
    Ok(HeldBucket { full_at, holds })
}

/// A window's number: what the shortest window's can be by the end of time.
fn get_window(from: &mut Reader<'_>) -> Result<i64, DecodeError> {
    let window = from.int()?;
    let most = caps::LONGEST_US / caps::SPAN_MIN_US + 1;
    if (0..=most).contains(&window) { Ok(window) } else { Err(DecodeError::OutOfBounds("a window")) }
}

/// A bucket's moment, in 1/R microseconds.
fn get_moment(from: &mut Reader<'_>) -> Result<i128, DecodeError> {
    let moment = from.wide_int()?;
    if moment.unsigned_abs() < 1 << 120 { Ok(moment) } else { Err(DecodeError::OutOfBounds("a bucket's moment")) }
}
