//! Unpacking a frame: the node's end.
//!
//! One pass over the columns, straight to commands; keys are hashed on the way by what the caller gives, and are not kept.

use quorate_core::{
    Charge, Check, Command, Cost, Epoch, Fingerprint, FrameId, Limit, PolicyId, PolicyVersion, Position, Sequence,
    SessionId, ShardId, Span, Stamp, caps,
};
use smallvec::SmallVec;

use super::common::{cost, mark_from_wire, optional_span, receipt_from_wire};
use super::{FrameHead, Malformed};
use crate::v1::{self, operation::Operation};

/// Why a frame gave no commands.
///
/// ```
/// use quorate_proto::{convert::{UnpackError, unpack_frame}, v1};
/// let error = unpack_frame(&v1::Frame::default(), |_, _| Err("no key was expected")).unwrap_err();
/// assert!(matches!(error, UnpackError::Malformed(problem) if problem.field == "frame"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnpackError<E> {
    /// It means nothing.
    Malformed(Malformed),
    /// The caller did not take a key of the command at that place.
    Key {
        /// The command's place in the frame.
        place: u32,
        /// What the caller said.
        error: E,
    },
}

impl<E> From<Malformed> for UnpackError<E> {
    fn from(problem: Malformed) -> Self {
        UnpackError::Malformed(problem)
    }
}

/// What stands over a frame's commands.
///
/// # Errors
/// Where the shard is 0, or a session's numbering is none.
pub fn unpack_head(frame: &v1::Frame) -> Result<FrameHead, Malformed> {
    if frame.shard == 0 {
        return Err(Malformed::new("shard", "it is 0; shards are numbered from 1"));
    }
    let id = FrameId {
        session: SessionId(frame.session),
        sequence: Sequence(frame.sequence),
        lowest_unanswered: Sequence(frame.lowest_unanswered),
    };
    if frame.session != 0 {
        if frame.sequence == 0 {
            return Err(Malformed::new("sequence", "it is 0; a session's frames are numbered from 1"));
        }
        if !(1..=frame.sequence).contains(&frame.lowest_unanswered) {
            let (is, most) = (frame.lowest_unanswered, frame.sequence);
            return Err(Malformed::new(
                "lowest_unanswered",
                format!("it is {is}; allowed is 1 to the sequence, {most}"),
            ));
        }
    }
    let budget = i64::try_from(frame.budget_us).unwrap_or(i64::MAX).min(caps::LONGEST_US);
    Ok(FrameHead {
        tag: frame.tag,
        shard: ShardId(frame.shard),
        epoch: Epoch(frame.epoch),
        policy_version: PolicyVersion(frame.policy_version),
        frame: (frame.session != 0).then_some(id),
        budget: (budget != 0).then_some(Span(budget)),
        first: frame.first,
    })
}

/// A frame's commands with their places, ascending by place. `hash` gives each key's fingerprint under a policy, or says why
/// the key is not taken.
///
/// # Errors
/// Where columns do not fit together, a value is none of the core's, a place comes twice, there is no command or too many, or
/// `hash` does not take a key.
pub fn unpack_frame<E>(
    frame: &v1::Frame,
    mut hash: impl FnMut(PolicyId, &[u8]) -> Result<Fingerprint, E>,
) -> Result<Vec<(u32, Command)>, UnpackError<E>> {
    let checks = count_checks(frame)?;
    let commands = checks + frame.operations.len();
    if !(1..=caps::COMMANDS_PER_FRAME).contains(&commands) {
        let most = caps::COMMANDS_PER_FRAME;
        return Err(Malformed::new("frame", format!("it has {commands} commands; allowed are 1 to {most}")).into());
    }
    let mut out = Vec::with_capacity(commands);
    let mut places = Places::default();
    unpack_checks(frame, checks, &mut hash, &mut places, &mut out)?;
    for (at, operation) in frame.operations.iter().enumerate() {
        places.take("operations.place", at, operation.place)?;
        let hash = |policy, key: &[u8]| {
            key_bytes("key", at, key.len())?;
            hash(policy, key).map_err(|error| UnpackError::Key { place: operation.place, error })
        };
        let command = unpack_operation(operation, frame.session != 0, hash).map_err(|error| match error {
            UnpackError::Malformed(problem) => UnpackError::Malformed(Malformed { at: Some(at), ..problem }),
            other => other,
        })?;
        out.push((operation.place, command));
    }
    if !out.is_sorted_by_key(|(place, _)| *place) {
        out.sort_unstable_by_key(|(place, _)| *place);
    }
    Ok(out)
}

/// The places that were seen.
#[derive(Default)]
struct Places([u64; caps::COMMANDS_PER_FRAME / 64]);

impl Places {
    fn take(&mut self, field: &'static str, at: usize, place: u32) -> Result<(), Malformed> {
        let Some(word) = self.0.get_mut(place as usize / 64) else {
            let most = caps::COMMANDS_PER_FRAME - 1;
            return Err(Malformed::at(field, at, format!("place {place}; allowed are 0 to {most}")));
        };
        let bit = 1 << (place % 64);
        if *word & bit != 0 {
            return Err(Malformed::at(field, at, format!("place {place} comes twice; each command has its own")));
        }
        *word |= bit;
        Ok(())
    }
}

/// How many checks the columns hold; they fit together.
fn count_checks(frame: &v1::Frame) -> Result<usize, Malformed> {
    let limits = frame.policies.len();
    length("key_lengths", frame.key_lengths.len(), limits)?;
    optional_length("costs", frame.costs.len(), limits)?;
    let checks = if frame.limit_counts.is_empty() {
        limits
    } else {
        let mut sum = 0_u64;
        for (at, &count) in frame.limit_counts.iter().enumerate() {
            if !(1..=caps::LIMITS_PER_CHECK as u32).contains(&count) {
                let most = caps::LIMITS_PER_CHECK;
                return Err(Malformed::at("limit_counts", at, format!("{count} limits; allowed are 1 to {most}")));
            }
            sum += u64::from(count);
        }
        if sum != limits as u64 {
            return Err(Malformed::new("limit_counts", format!("they add up to {sum}, and policies has {limits}")));
        }
        frame.limit_counts.len()
    };
    optional_length("places", frame.places.len(), checks)?;
    optional_length("flags", frame.flags.len(), checks)?;
    optional_length("max_delays_us", frame.max_delays_us.len(), checks)?;
    let mut bytes = 0_u64;
    for (at, &length) in frame.key_lengths.iter().enumerate() {
        key_bytes("key_lengths", at, length as usize)?;
        bytes += u64::from(length);
    }
    if bytes != frame.keys.len() as u64 {
        let is = frame.keys.len();
        return Err(Malformed::new("keys", format!("{is} bytes, and key_lengths add up to {bytes}")));
    }
    Ok(checks)
}

pub(super) fn length(field: &'static str, is: usize, wanted: usize) -> Result<(), Malformed> {
    if is == wanted {
        Ok(())
    } else {
        Err(Malformed::new(field, format!("{is} elements; {wanted} belong to the others")))
    }
}

pub(super) fn optional_length(field: &'static str, is: usize, wanted: usize) -> Result<(), Malformed> {
    if is == 0 { Ok(()) } else { length(field, is, wanted) }
}

fn key_bytes(field: &'static str, at: usize, bytes: usize) -> Result<(), Malformed> {
    if bytes <= caps::KEY_BYTES {
        return Ok(());
    }
    Err(Malformed::at(field, at, format!("a key of {bytes} bytes; allowed are {}", caps::KEY_BYTES)))
}

fn unpack_checks<E>(
    frame: &v1::Frame,
    checks: usize,
    hash: &mut impl FnMut(PolicyId, &[u8]) -> Result<Fingerprint, E>,
    places: &mut Places,
    out: &mut Vec<(u32, Command)>,
) -> Result<(), UnpackError<E>> {
    let (mut keys, mut limit_at) = (&frame.keys[..], 0);
    for at in 0..checks {
        let place = frame.places.get(at).copied().unwrap_or(at as u32);
        places.take("places", at, place)?;
        let flags = frame.flags.get(at).copied().unwrap_or(0);
        if flags > 1 {
            let problem = format!("{flags} has a flag that is not known here; allowed are 0 and 1");
            return Err(Malformed::at("flags", at, problem).into());
        }
        let max_delay = optional_span("max_delays_us", at, frame.max_delays_us.get(at).copied().unwrap_or(0))?;
        let count = frame.limit_counts.get(at).copied().unwrap_or(1);
        let mut limits = SmallVec::new();
        for _ in 0..count {
            // The columns fit together: `count_checks` saw to it.
            let (policy, length) = (PolicyId(frame.policies[limit_at]), frame.key_lengths[limit_at] as usize);
            let (key, rest) = keys.split_at(length);
            let cost = match frame.costs.get(limit_at) {
                Some(&units) => cost("costs", limit_at, units)?,
                None => Cost::ONE,
            };
            let key = hash(policy, key).map_err(|error| UnpackError::Key { place, error })?;
            limits.push(Limit { policy, key, cost });
            keys = rest;
            limit_at += 1;
        }
        out.push((place, Command::Check(Check { limits, peek: flags == 1, max_delay })));
    }
    Ok(())
}

fn unpack_operation<E>(
    operation: &v1::Operation,
    in_session: bool,
    mut hash: impl FnMut(PolicyId, &[u8]) -> Result<Fingerprint, UnpackError<E>>,
) -> Result<Command, UnpackError<E>> {
    match &operation.operation {
        None => Err(Malformed::new("operation", "it is missing, or of a kind that is not known here").into()),
        Some(Operation::Refund(refund)) => {
            let (receipt, at) = receipt(refund.receipt.as_ref())?;
            Ok(Command::Refund { receipt, at, charges: unpack_charges(&refund.charges, hash)? })
        }
        Some(Operation::Reserve(reserve)) => {
            limit_count("limits", reserve.limits.len())?;
            let mut limits = SmallVec::with_capacity(reserve.limits.len());
            for limit in &reserve.limits {
                let (policy, cost) = (PolicyId(limit.policy), cost("limits.cost", 0, limit.cost)?);
                limits.push(Limit { policy, key: hash(policy, &limit.key)?, cost });
            }
            let check = Check { limits, peek: false, max_delay: None };
            Ok(Command::Reserve { check, ttl: ttl(reserve.ttl_us)? })
        }
        Some(Operation::Settle(settle)) => {
            let (receipt, at) = receipt(settle.receipt.as_ref())?;
            length("actual", settle.actual.len(), settle.charges.len())?;
            let charges = unpack_charges(&settle.charges, hash)?;
            let actual = settle.actual.iter().map(|&units| cost("actual", 0, units)).collect::<Result<_, _>>()?;
            Ok(Command::Settle { receipt, at, ttl: ttl(settle.ttl_us)?, charges, actual })
        }
        Some(Operation::Reset(reset)) => {
            let policy = PolicyId(reset.policy);
            Ok(Command::Reset { policy, key: hash(policy, &reset.key)? })
        }
        Some(Operation::OpenSession(_)) if in_session => {
            Err(Malformed::new("open_session", "it is in a session's frame; send it in one without").into())
        }
        Some(Operation::OpenSession(_)) => Ok(Command::OpenSession),
        Some(Operation::CloseSession(close)) => {
            if in_session {
                return Err(
                    Malformed::new("close_session", "it is in a session's frame; send it in one without").into()
                );
            }
            Ok(Command::CloseSession(SessionId(close.session)))
        }
    }
}

fn receipt(receipt: Option<&v1::Receipt>) -> Result<(Position, Stamp), Malformed> {
    receipt_from_wire(receipt).map(|receipt| (receipt.position(), receipt.stamp))
}

fn ttl(us: i64) -> Result<Span, Malformed> {
    let most = caps::RESERVATION;
    if (1..=most.0).contains(&us) {
        return Ok(Span(us));
    }
    Err(Malformed::new("ttl_us", format!("{us} microseconds; allowed are 1 to {} ({most})", most.0)))
}

fn limit_count(field: &'static str, count: usize) -> Result<(), Malformed> {
    if (1..=caps::LIMITS_PER_CHECK).contains(&count) {
        return Ok(());
    }
    Err(Malformed::new(field, format!("{count} limits; allowed are 1 to {}", caps::LIMITS_PER_CHECK)))
}

fn unpack_charges<E>(
    charges: &[v1::Charge],
    mut hash: impl FnMut(PolicyId, &[u8]) -> Result<Fingerprint, UnpackError<E>>,
) -> Result<SmallVec<[Charge; 1]>, UnpackError<E>> {
    limit_count("charges", charges.len())?;
    let mut out = SmallVec::with_capacity(charges.len());
    for charge in charges {
        let policy = PolicyId(charge.policy);
        let (cost, mark) = (cost("charges.cost", 0, charge.cost)?, mark_from_wire(&charge.mark)?);
        out.push(Charge { policy, key: hash(policy, &charge.key)?, cost, mark });
    }
    Ok(out)
}
