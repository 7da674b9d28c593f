//! The encoding of answers that a session remembers.
//!
//! ```text
//! answers = term:uint  index:uint  stamp:int  answer*
//! answer  = (place - the one expected):int  (ordinal - the one expected):int  kind:byte  body
//! ```
//!
//! One run of answers is what one log entry gave one frame. These bytes are part of the state that replicas agree on, so the
//! encoding of what exists is permanent; new kinds and new flags may be added.

use smallvec::SmallVec;

use super::{DecodeError, Reader, put_int, put_uint, put_wide_int};
use crate::answer::{Answer, Decision, LimitAnswer, PlaceAnswer, Receipt, Refusal};
use crate::ids::{Index, PolicyId, PolicyVersion, SessionId, ShardId, Term};
use crate::units::{Cost, Span, Stamp};

const ALLOWED: u8 = 1;
const SHADOW: u8 = 2;
const DEGRADED: u8 = 4;
const RETRY: u8 = 8;
const DELAY: u8 = 16;
const MARK: u8 = 32;
const CHARGED: u8 = 64;

/// Writes one run of answers, all from one log entry.
pub(crate) struct Run {
    place: u32,
    ordinal: u32,
}

impl Run {
    /// Begins a run with the entry's receipt.
    pub(crate) fn begin(out: &mut Vec<u8>, receipt: &Receipt) -> Run {
        put_uint(out, receipt.term.0);
        put_uint(out, receipt.index.0);
        put_int(out, receipt.stamp.0);
        Run { place: 0, ordinal: 0 }
    }

    /// Adds the answer to one place.
    pub(crate) fn add(&mut self, out: &mut Vec<u8>, place: u32, ordinal: u32, answer: &Answer) {
        put_int(out, i64::from(place) - i64::from(self.place));
        put_int(out, i64::from(ordinal) - i64::from(self.ordinal));
        self.place = place.wrapping_add(1);
        self.ordinal = ordinal.wrapping_add(1);
        put_answer(out, answer);
    }
}

/// Reads a run of answers, one after the other.
pub(crate) struct RunReader<'a> {
    reader: Reader<'a>,
    receipt: Receipt,
    place: u32,
    ordinal: u32,
}

impl<'a> RunReader<'a> {
    pub(crate) fn new(shard: ShardId, bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let (term, index) = (Term(reader.uint()?), Index(reader.uint()?));
        let receipt = Receipt { shard, term, index, place: 0, stamp: Stamp(reader.int()?) };
        Ok(RunReader { reader, receipt, place: 0, ordinal: 0 })
    }

    pub(crate) fn next(&mut self) -> Result<Option<PlaceAnswer>, DecodeError> {
        if self.reader.left() == 0 {
            return Ok(None);
        }
        let place = step(self.place, self.reader.int()?)?;
        let ordinal = step(self.ordinal, self.reader.int()?)?;
        self.place = place.wrapping_add(1);
        self.ordinal = ordinal.wrapping_add(1);
        let receipt = Receipt { place: ordinal, ..self.receipt };
        Ok(Some(PlaceAnswer { place, receipt, answer: get_answer(&mut self.reader)? }))
    }
}

fn step(expected: u32, by: i64) -> Result<u32, DecodeError> {
    let place = i64::from(expected).checked_add(by).and_then(|place| u32::try_from(place).ok());
    place.ok_or(DecodeError::OutOfBounds("a place"))
}

fn put_answer(out: &mut Vec<u8>, answer: &Answer) {
    match answer {
        Answer::Done => out.push(0),
        Answer::Decision(decision) => {
            out.push(1);
            put_decision(out, decision);
        }
        Answer::Undone(limits) => {
            out.push(2);
            put_uint(out, (*limits).into());
        }
        Answer::SessionOpened(session) => {
            out.push(3);
            put_uint(out, session.0);
        }
        Answer::Refused(refusal) => {
            out.push(4);
            put_refusal(out, refusal);
        }
    }
}

fn get_answer(from: &mut Reader<'_>) -> Result<Answer, DecodeError> {
    Ok(match from.byte()? {
        0 => Answer::Done,
        1 => Answer::Decision(get_decision(from)?),
        2 => Answer::Undone(from.uint16("a count of limits")?),
        3 => Answer::SessionOpened(SessionId(from.uint()?)),
        4 => Answer::Refused(get_refusal(from)?),
        other => return Err(DecodeError::Version(other.into())),
    })
}

fn flag(set: bool, flag: u8) -> u8 {
    if set { flag } else { 0 }
}

fn put_spans(out: &mut Vec<u8>, spans: [Option<Span>; 2]) {
    spans.into_iter().flatten().for_each(|span| put_int(out, span.0));
}

fn get_span(from: &mut Reader<'_>, there: bool) -> Result<Option<Span>, DecodeError> {
    if there { Ok(Some(Span(from.int()?))) } else { Ok(None) }
}

fn put_decision(out: &mut Vec<u8>, decision: &Decision) {
    out.push(
        flag(decision.allowed, ALLOWED)
            | flag(decision.shadow_denied, SHADOW)
            | flag(decision.degraded, DEGRADED)
            | flag(decision.retry_after.is_some(), RETRY)
            | flag(decision.delay.is_some(), DELAY),
    );
    put_uint(out, decision.version.0);
    put_spans(out, [decision.retry_after, decision.delay]);
    put_uint(out, decision.limits.len() as u64);
    for limit in &decision.limits {
        out.push(
            flag(limit.allowed, ALLOWED)
                | flag(limit.charged, CHARGED)
                | flag(limit.shadow, SHADOW)
                | flag(limit.retry_after.is_some(), RETRY)
                | flag(limit.delay.is_some(), DELAY)
                | flag(limit.mark.is_some(), MARK),
        );
        for number in [limit.policy.0.into(), limit.ordinal.into(), limit.limit, limit.remaining, limit.cost.get()] {
            put_uint(out, number);
        }
        put_int(out, limit.reset_after.0);
        put_spans(out, [limit.retry_after, limit.delay]);
        if let Some(mark) = limit.mark {
            put_wide_int(out, mark);
        }
    }
}

fn get_decision(from: &mut Reader<'_>) -> Result<Decision, DecodeError> {
    let flags = from.byte()?;
    let version = PolicyVersion(from.uint()?);
    let retry_after = get_span(from, flags & RETRY != 0)?;
    let delay = get_span(from, flags & DELAY != 0)?;
    let count = from.count(7)?;
    let mut limits = SmallVec::with_capacity(count);
    for _ in 0..count {
        limits.push(get_limit_answer(from)?);
    }
    Ok(Decision {
        allowed: flags & ALLOWED != 0,
        shadow_denied: flags & SHADOW != 0,
        retry_after,
        delay,
        limits,
        version,
        degraded: flags & DEGRADED != 0,
    })
}

fn get_limit_answer(from: &mut Reader<'_>) -> Result<LimitAnswer, DecodeError> {
    let flags = from.byte()?;
    Ok(LimitAnswer {
        policy: PolicyId(from.uint32("a policy's id")?),
        ordinal: from.uint16("an ordinal")?,
        allowed: flags & ALLOWED != 0,
        charged: flags & CHARGED != 0,
        shadow: flags & SHADOW != 0,
        limit: from.uint()?,
        remaining: from.uint()?,
        cost: super::batch::get_cost(from)?,
        reset_after: Span(from.int()?),
        retry_after: get_span(from, flags & RETRY != 0)?,
        delay: get_span(from, flags & DELAY != 0)?,
        mark: if flags & MARK != 0 { Some(from.wide_int()?) } else { None },
    })
}

fn put_refusal(out: &mut Vec<u8>, refusal: &Refusal) {
    let (kind, numbers): (u8, [u64; 3]) = match *refusal {
        Refusal::UnknownPolicy(policy) => (0, [policy.0.into(), 0, 0]),
        Refusal::CostAboveMax { cost, max } => (1, [cost.get(), max.get(), 0]),
        Refusal::CostTooLarge => (2, [0; 3]),
        Refusal::TableFull => (3, [0; 3]),
        Refusal::UnknownSession(session) => (4, [session.0, 0, 0]),
        Refusal::SessionSpan => (5, [0; 3]),
        Refusal::Acknowledged => (6, [0; 3]),
        Refusal::NotReservable => (7, [0; 3]),
        Refusal::Invalid(why) => (8, [invalid::number(why), 0, 0]),
    };
    out.push(kind);
    let last = numbers.iter().rposition(|&number| number != 0).map_or(0, |at| at + 1);
    out.push(last as u8);
    numbers[..last].iter().for_each(|&number| put_uint(out, number));
}

fn get_refusal(from: &mut Reader<'_>) -> Result<Refusal, DecodeError> {
    let kind = from.byte()?;
    let mut numbers = [0; 3];
    for at in 0..from.count(1)? {
        *numbers.get_mut(at).ok_or(DecodeError::OutOfBounds("a refusal"))? = from.uint()?;
    }
    let cost = |units| Cost::new(units).ok_or(DecodeError::OutOfBounds("a cost"));
    Ok(match kind {
        0 => Refusal::UnknownPolicy(PolicyId(
            u32::try_from(numbers[0]).map_err(|_| DecodeError::OutOfBounds("a policy's id"))?,
        )),
        1 => Refusal::CostAboveMax { cost: cost(numbers[0])?, max: cost(numbers[1])? },
        2 => Refusal::CostTooLarge,
        3 => Refusal::TableFull,
        4 => Refusal::UnknownSession(SessionId(numbers[0])),
        5 => Refusal::SessionSpan,
        6 => Refusal::Acknowledged,
        7 => Refusal::NotReservable,
        8 => Refusal::Invalid(invalid::text(numbers[0])),
        other => return Err(DecodeError::Version(other.into())),
    })
}

/// Why a command was invalid, as a number: permanent, as it is part of what sessions remember.
pub(crate) mod invalid {
    pub(crate) const NO_LIMITS: &str = "a check names no limit; name at least one";
    pub(crate) const TOO_MANY_LIMITS: &str = "a check names more than 16 limits; ask in several";
    pub(crate) const TTL: &str = "a reservation lives more than 0 and at most an hour; change its ttl";
    pub(crate) const HOLDS: &str = "a key holds at most 1024 reservations at once; settle some first";
    pub(crate) const PEEK: &str = "a reservation cannot be a peek; use check";
    pub(crate) const ACTUAL: &str =
        "a settlement says for each charge what was used; give as many as there are charges";
    pub(crate) const POLICIES: &str = "a policy set names its policies by ascending id, each within its bounds";
    const OTHER: &str = "the command is not valid";

    const ALL: [&str; 8] = [OTHER, NO_LIMITS, TOO_MANY_LIMITS, TTL, HOLDS, PEEK, ACTUAL, POLICIES];

    pub(super) fn number(why: &str) -> u64 {
        ALL.iter().position(|&known| known == why).unwrap_or(0) as u64
    }

    pub(super) fn text(number: u64) -> &'static str {
        usize::try_from(number).ok().and_then(|at| ALL.get(at)).copied().unwrap_or(OTHER)
    }
}
