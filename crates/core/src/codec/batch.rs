//! The encoding of a log entry: one [`Batch`].
//!
//! ```text
//! batch   = version=1  stamp:int  groups:uint  group*
//! group   = framed:byte  [session:uint  sequence:uint  (sequence - lowest unanswered):int]  commands:uint  command*
//! command = (place - the one expected):int  kind:uint  part(body)
//! ```
//!
//! A single check of a common cost takes some 23 bytes. The body of a command is a part of its own: what a newer writer adds
//! at its end is skipped. A kind that is not known is an error that names it: it is never skipped, for state would fork.

use smallvec::SmallVec;

use super::state::{get_bounds, get_policy_set, put_bounds, put_policy_set};
use super::{DecodeError, Reader, put_fixed, put_int, put_part, put_uint, put_wide_int};
use crate::caps;
use crate::command::{Batch, Charge, Check, Command, FrameId, Group, Limit};
use crate::ids::{Index, PolicyId, Position, Sequence, SessionId};
use crate::key::Fingerprint;
use crate::units::{Cost, Span, Stamp};

const VERSION: u8 = 1;

const PEEK: u8 = 1;
const MAX_DELAY: u8 = 2;
/// Exactly one limit, so that no count is written.
const SINGLE: u8 = 4;

const LIMIT_LEAST: usize = 18;
const COMMAND_LEAST: usize = 3;
const GROUP_LEAST: usize = 2;

impl Batch {
    /// Appends the batch's encoding to `out`.
    ///
    /// ```
    /// use quorate_core::{Batch, Command, Group, Stamp};
    /// let batch = Batch { stamp: Stamp(5), groups: vec![Group { frame: None, commands: vec![(0, Command::Tick)] }] };
    /// let mut bytes = vec![];
    /// batch.encode(&mut bytes);
    /// assert_eq!(Batch::decode(&bytes), Ok(batch));
    /// ```
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(VERSION);
        put_int(out, self.stamp.0);
        put_uint(out, self.groups.len() as u64);
        for group in &self.groups {
            put_group(out, group);
        }
    }

    /// Reads a batch that [`Batch::encode`] wrote, here or on another version of Quorate.
    ///
    /// # Errors
    /// Where the bytes are cut or damaged, or hold what this build does not know. A shard cannot go on from there: see
    /// [`DecodeError`] for what to do.
    pub fn decode(bytes: &[u8]) -> Result<Batch, DecodeError> {
        let mut reader = Reader::new(bytes);
        match reader.byte()? {
            VERSION => {}
            other => return Err(DecodeError::Version(other.into())),
        }
        let stamp = Stamp(reader.int()?);
        let count = reader.count(GROUP_LEAST)?;
        if count > caps::COMMANDS_PER_BATCH {
            return Err(DecodeError::OutOfBounds("the number of groups"));
        }
        let mut groups = Vec::with_capacity(count);
        let mut room = caps::COMMANDS_PER_BATCH;
        for _ in 0..count {
            groups.push(get_group(&mut reader, &mut room)?);
        }
        reader.end()?;
        Ok(Batch { stamp, groups })
    }
}

fn put_group(out: &mut Vec<u8>, group: &Group) {
    match group.frame {
        None => out.push(0),
        Some(frame) => {
            out.push(1);
            put_uint(out, frame.session.0);
            put_uint(out, frame.sequence.0);
            put_int(out, frame.sequence.0.wrapping_sub(frame.lowest_unanswered.0) as i64);
        }
    }
    put_uint(out, group.commands.len() as u64);
    let mut expected = 0_u32;
    for (place, command) in &group.commands {
        put_int(out, i64::from(*place) - i64::from(expected));
        expected = place.wrapping_add(1);
        put_command(out, command);
    }
}

fn get_group(reader: &mut Reader<'_>, room: &mut usize) -> Result<Group, DecodeError> {
    let frame = match reader.byte()? {
        0 => None,
        1 => {
            let session = SessionId(reader.uint()?);
            let sequence = Sequence(reader.uint()?);
            let lowest_unanswered = Sequence(sequence.0.wrapping_sub(reader.int()? as u64));
            Some(FrameId { session, sequence, lowest_unanswered })
        }
        _ => return Err(DecodeError::OutOfBounds("a group's frame")),
    };
    let count = reader.count(COMMAND_LEAST)?;
    *room = room.checked_sub(count).ok_or(DecodeError::OutOfBounds("the number of commands"))?;
    let mut commands = Vec::with_capacity(count);
    let mut expected = 0_u32;
    for _ in 0..count {
        let place = i64::from(expected).checked_add(reader.int()?).and_then(|place| u32::try_from(place).ok());
        let place = place.ok_or(DecodeError::OutOfBounds("a place"))?;
        expected = place.wrapping_add(1);
        let kind = reader.uint()?;
        commands.push((place, get_command(kind, reader.part()?)?));
    }
    Ok(Group { frame, commands })
}

fn put_command(out: &mut Vec<u8>, command: &Command) {
    let kind = match command {
        Command::Tick => 0,
        Command::Check(_) => 1,
        Command::Refund { .. } => 2,
        Command::Reserve { .. } => 3,
        Command::Settle { .. } => 4,
        Command::Reset { .. } => 5,
        Command::Install(_) => 6,
        Command::OpenSession => 7,
        Command::CloseSession(_) => 8,
        Command::Bounds(_) => 9,
    };
    out.push(kind);
    put_part(out, |out| match command {
        Command::Tick | Command::OpenSession => {}
        Command::Check(check) => put_check(out, check),
        Command::Refund { receipt, at, charges } => {
            put_receipt(out, *receipt, *at);
            put_charges(out, charges);
        }
        Command::Reserve { check, ttl } => {
            put_int(out, ttl.0);
            put_check(out, check);
        }
        Command::Settle { receipt, at, ttl, charges, actual } => {
            put_receipt(out, *receipt, *at);
            put_int(out, ttl.0);
            put_charges(out, charges);
            put_uint(out, actual.len() as u64);
            actual.iter().for_each(|cost| put_uint(out, cost.get()));
        }
        Command::Reset { policy, key } => {
            put_uint(out, policy.0.into());
            put_key(out, *key);
        }
        Command::Install(set) => put_policy_set(out, set),
        Command::CloseSession(session) => put_uint(out, session.0),
        Command::Bounds(bounds) => put_bounds(out, bounds),
    });
}

fn get_command(kind: u64, mut body: Reader<'_>) -> Result<Command, DecodeError> {
    let body = &mut body;
    Ok(match kind {
        0 => Command::Tick,
        1 => Command::Check(get_check(body)?),
        2 => {
            let (receipt, at) = get_receipt(body)?;
            Command::Refund { receipt, at, charges: get_charges(body)? }
        }
        3 => {
            let ttl = Span(body.int()?);
            Command::Reserve { check: get_check(body)?, ttl }
        }
        4 => {
            let (receipt, at) = get_receipt(body)?;
            let ttl = Span(body.int()?);
            let charges = get_charges(body)?;
            let count = body.count(1)?;
            let actual = (0..count).map(|_| get_cost(body)).collect::<Result<_, _>>()?;
            Command::Settle { receipt, at, ttl, charges, actual }
        }
        5 => Command::Reset { policy: get_policy_id(body)?, key: get_key(body)? },
        6 => Command::Install(get_policy_set(body)?),
        7 => Command::OpenSession,
        8 => Command::CloseSession(SessionId(body.uint()?)),
        9 => Command::Bounds(get_bounds(body)?),
        other => return Err(DecodeError::UnknownKind(other)),
    })
}

fn put_check(out: &mut Vec<u8>, check: &Check) {
    let flag = |set: bool, flag: u8| if set { flag } else { 0 };
    let single = check.limits.len() == 1;
    out.push(flag(check.peek, PEEK) | flag(check.max_delay.is_some(), MAX_DELAY) | flag(single, SINGLE));
    if let Some(delay) = check.max_delay {
        put_int(out, delay.0);
    }
    if !single {
        put_uint(out, check.limits.len() as u64);
    }
    for limit in &check.limits {
        put_uint(out, limit.policy.0.into());
        put_key(out, limit.key);
        put_uint(out, limit.cost.get());
    }
}

fn get_check(body: &mut Reader<'_>) -> Result<Check, DecodeError> {
    let flags = body.byte()?;
    let max_delay = if flags & MAX_DELAY != 0 { Some(Span(body.int()?)) } else { None };
    let count = if flags & SINGLE != 0 { 1 } else { body.count(LIMIT_LEAST)? };
    let mut limits = SmallVec::with_capacity(count);
    for _ in 0..count {
        limits.push(Limit { policy: get_policy_id(body)?, key: get_key(body)?, cost: get_cost(body)? });
    }
    Ok(Check { limits, peek: flags & PEEK != 0, max_delay })
}

fn put_charges(out: &mut Vec<u8>, charges: &[Charge]) {
    put_uint(out, charges.len() as u64);
    for charge in charges {
        put_uint(out, charge.policy.0.into());
        put_key(out, charge.key);
        put_uint(out, charge.cost.get());
        match charge.mark {
            None => out.push(0),
            Some(mark) => {
                out.push(1);
                put_wide_int(out, mark);
            }
        }
    }
}

fn get_charges(body: &mut Reader<'_>) -> Result<SmallVec<[Charge; 1]>, DecodeError> {
    let count = body.count(LIMIT_LEAST + 1)?;
    let mut charges = SmallVec::with_capacity(count);
    for _ in 0..count {
        let (policy, key, cost) = (get_policy_id(body)?, get_key(body)?, get_cost(body)?);
        let mark = match body.byte()? {
            0 => None,
            _ => Some(body.wide_int()?),
        };
        charges.push(Charge { policy, key, cost, mark });
    }
    Ok(charges)
}

fn put_receipt(out: &mut Vec<u8>, receipt: Position, at: Stamp) {
    put_uint(out, receipt.index.0);
    put_uint(out, receipt.place.into());
    put_int(out, at.0);
}

fn get_receipt(body: &mut Reader<'_>) -> Result<(Position, Stamp), DecodeError> {
    let receipt = Position { index: Index(body.uint()?), place: body.uint32("a receipt's place")? };
    Ok((receipt, Stamp(body.int()?)))
}

fn put_key(out: &mut Vec<u8>, key: Fingerprint) {
    put_fixed(out, key.table);
    put_fixed(out, key.ring);
}

fn get_key(body: &mut Reader<'_>) -> Result<Fingerprint, DecodeError> {
    Ok(Fingerprint { table: body.fixed()?, ring: body.fixed()? })
}

fn get_policy_id(body: &mut Reader<'_>) -> Result<PolicyId, DecodeError> {
    Ok(PolicyId(body.uint32("a policy's id")?))
}

pub(super) fn get_cost(body: &mut Reader<'_>) -> Result<Cost, DecodeError> {
    Cost::new(body.uint()?).ok_or(DecodeError::OutOfBounds("a cost"))
}
