//! Answers to a frame: packed by the node, unpacked by the client.
//!
//! One [`v1::FrameAnswer`] carries what one log entry decided under one policy set. What a decision says of all its limits
//! together, the longest wait and the longest delay, is not sent: it follows from the limits' own.

use quorate_core::{
    Answer, Cost, Decision, Index, LimitAnswer, PlaceAnswer, PolicyId, PolicyVersion, Receipt, SessionId, ShardId,
    Span, Term, caps,
};
use smallvec::SmallVec;

use super::Malformed;
use super::common::{mark_from_wire, mark_to_wire, optional_span, refusal_to_wire, span_plus_one, stamp};
use super::frame::{push, push_place};
use super::unpack::{length, optional_length};
use crate::v1::{self, place_answer::Answer as Wire};

const ALLOWED: u32 = 1;
const SHADOW_DENIED: u32 = 2;
const DEGRADED: u32 = 4;
const CHARGED: u32 = 2;
const SHADOW: u32 = 4;

/// What became of one place of a frame.
///
/// ```
/// use quorate_core::{Answer, Receipt};
/// use quorate_proto::convert::{Outcome, PlaceOutcome};
/// let outcome = PlaceOutcome { place: 0, receipt: Receipt::default(), outcome: Outcome::Answer(Answer::Done) };
/// assert_eq!(outcome.place, 0);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct PlaceOutcome {
    /// The command's place in the frame.
    pub place: u32,
    /// Where it was decided.
    pub receipt: Receipt,
    /// What was decided.
    pub outcome: Outcome,
}

/// An answer, or why there is none.
///
/// ```
/// use quorate_proto::{convert::Outcome, v1};
/// assert!(matches!(Outcome::Error(v1::Error::default()), Outcome::Error(_)));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// It was decided. The costs of a decision's limits are not sent: they are 0 here, for the asker to fill in.
    Answer(Answer),
    /// It was not.
    Error(v1::Error),
}

/// Packs a frame's answers, in order, into as many messages as they have entries and policy sets.
///
/// ```
/// use quorate_core::{Answer, PlaceAnswer, Receipt, ShardId};
/// use quorate_proto::convert::pack_answers;
/// let answers = [PlaceAnswer { place: 0, receipt: Receipt::default(), answer: Answer::Done }];
/// assert_eq!(pack_answers(7, ShardId(1), &answers)[0].tag, 7);
/// ```
pub fn pack_answers(tag: u64, shard: ShardId, answers: &[PlaceAnswer]) -> SmallVec<[v1::FrameAnswer; 1]> {
    let mut packed = SmallVec::new();
    let mut open: Option<Packer> = None;
    for answer in answers {
        let fits = open.as_mut().is_some_and(|packer| packer.takes(answer));
        if !fits {
            packed.extend(open.take().map(|packer| packer.out));
        }
        open.get_or_insert_with(|| Packer::new(tag, shard, answer, answers.len())).add(answer);
    }
    packed.extend(open.map(|packer| packer.out));
    packed
}

/// One message as it is put together.
struct Packer {
    out: v1::FrameAnswer,
    decisions: usize,
    /// The policy set that decided, once there is a decision.
    version: Option<PolicyVersion>,
}

fn version_of(answer: &PlaceAnswer) -> Option<PolicyVersion> {
    match &answer.answer {
        Answer::Decision(decision) => Some(decision.version),
        _ => None,
    }
}

impl Packer {
    fn new(tag: u64, shard: ShardId, first: &PlaceAnswer, most: usize) -> Packer {
        let receipt = &first.receipt;
        let out = v1::FrameAnswer {
            tag,
            shard: shard.0,
            term: receipt.term.0,
            index: receipt.index.0,
            stamp_us: receipt.stamp.0,
            verdicts: Vec::with_capacity(most),
            policies: Vec::with_capacity(most),
            limit_flags: Vec::with_capacity(most),
            limits: Vec::with_capacity(most),
            remaining: Vec::with_capacity(most),
            reset_after_us: Vec::with_capacity(most),
            ..v1::FrameAnswer::default()
        };
        Packer { out, decisions: 0, version: None }
    }

    fn takes(&self, answer: &PlaceAnswer) -> bool {
        let (out, receipt) = (&self.out, &answer.receipt);
        let entry = (out.term, out.index, out.stamp_us) == (receipt.term.0, receipt.index.0, receipt.stamp.0);
        let one_set = match (self.version, version_of(answer)) {
            (Some(ours), Some(theirs)) => ours == theirs,
            _ => true,
        };
        entry && one_set
    }

    fn add(&mut self, answer: &PlaceAnswer) {
        let other = match &answer.answer {
            Answer::Decision(decision) => {
                self.version = Some(decision.version);
                self.out.policy_version = decision.version.0;
                return self.add_decision(answer.place, answer.receipt.place, decision);
            }
            Answer::Undone(count) => Wire::Undone(u32::from(*count)),
            Answer::SessionOpened(session) => Wire::Session(session.0),
            Answer::Done => Wire::Done(true),
            Answer::Refused(refusal) => Wire::Error(refusal_to_wire(refusal)),
        };
        let receipt_place = answer.receipt.place;
        self.out.others.push(v1::PlaceAnswer { place: answer.place, receipt_place, answer: Some(other) });
    }

    fn add_decision(&mut self, place: u32, receipt_place: u32, decision: &Decision) {
        let (out, len) = (&mut self.out, self.decisions);
        push_place(&mut out.places, len, place);
        if len == 0 {
            out.first_receipt_place = receipt_place;
        } else if out.receipt_places.is_empty() && receipt_place != out.first_receipt_place.wrapping_add(len as u32) {
            let first = out.first_receipt_place;
            out.receipt_places.extend((0..len as u32).map(|nth| first.wrapping_add(nth)));
        }
        if !out.receipt_places.is_empty() {
            out.receipt_places.push(receipt_place);
        }
        let flag = |set: bool, flag: u32| if set { flag } else { 0 };
        out.verdicts.push(
            flag(decision.allowed, ALLOWED)
                | flag(decision.shadow_denied, SHADOW_DENIED)
                | flag(decision.degraded, DEGRADED),
        );
        push(&mut out.limit_counts, len, decision.limits.len() as u32, 1);
        for limit in &decision.limits {
            let len = out.policies.len();
            out.policies.push(limit.policy.0);
            push(&mut out.ordinals, len, u32::from(limit.ordinal), 0);
            out.limit_flags
                .push(flag(limit.allowed, ALLOWED) | flag(limit.charged, CHARGED) | flag(limit.shadow, SHADOW));
            out.limits.push(limit.limit);
            out.remaining.push(limit.remaining);
            out.reset_after_us.push(limit.reset_after.0.max(0) as u64);
            push(&mut out.retry_after_us, len, span_plus_one(limit.retry_after), 0);
            push(&mut out.delays_us, len, span_plus_one(limit.delay), 0);
            push(&mut out.marks, len, mark_to_wire(limit.mark), bytes::Bytes::new());
        }
        self.decisions += 1;
    }
}

/// What became of the places that the message answers. Its `error`, the failure of a whole frame, is for the caller to look
/// at first.
///
/// # Errors
/// Where columns do not fit together, or a value is none of the core's.
///
/// ```
/// use quorate_core::{Answer, PlaceAnswer, Receipt, ShardId};
/// use quorate_proto::convert::{Outcome, pack_answers, unpack_answer};
/// let answers = [PlaceAnswer { place: 3, receipt: Receipt::default(), answer: Answer::Done }];
/// let outcomes = unpack_answer(&pack_answers(7, ShardId(0), &answers)[0]).unwrap();
/// assert_eq!((outcomes[0].place, &outcomes[0].outcome), (3, &Outcome::Answer(Answer::Done)));
/// ```
pub fn unpack_answer(answer: &v1::FrameAnswer) -> Result<Vec<PlaceOutcome>, Malformed> {
    check_columns(answer)?;
    let entry = Receipt {
        shard: ShardId(answer.shard),
        term: Term(answer.term),
        index: Index(answer.index),
        place: 0,
        stamp: stamp("stamp_us", answer.stamp_us)?,
    };
    let decisions = answer.verdicts.len();
    let mut out = Vec::with_capacity(decisions + answer.others.len());
    let mut limit_at = 0;
    for at in 0..decisions {
        let place = answer.places.get(at).copied().unwrap_or(at as u32);
        let count = answer.limit_counts.get(at).copied().unwrap_or(1) as usize;
        let decision = unpack_decision(answer, at, limit_at..limit_at + count)?;
        limit_at += count;
        let nth = answer.first_receipt_place.wrapping_add(at as u32);
        let receipt = Receipt { place: answer.receipt_places.get(at).copied().unwrap_or(nth), ..entry };
        out.push(PlaceOutcome { place, receipt, outcome: Outcome::Answer(Answer::Decision(decision)) });
    }
    for (at, other) in answer.others.iter().enumerate() {
        let outcome = match &other.answer {
            Some(Wire::Session(session)) => Outcome::Answer(Answer::SessionOpened(SessionId(*session))),
            Some(Wire::Undone(count)) => {
                let count = u16::try_from(*count);
                Outcome::Answer(Answer::Undone(
                    count.map_err(|_| Malformed::at("others.undone", at, format!("more than {}", u16::MAX)))?,
                ))
            }
            Some(Wire::Done(_)) => Outcome::Answer(Answer::Done),
            Some(Wire::Error(error)) => Outcome::Error(error.clone()),
            None => {
                return Err(Malformed::at("others.answer", at, "it is missing, or of a kind that is not known here"));
            }
        };
        out.push(PlaceOutcome {
            place: other.place,
            receipt: Receipt { place: other.receipt_place, ..entry },
            outcome,
        });
    }
    Ok(out)
}

/// Whether the columns fit together, and are not longer than any frame's answers.
fn check_columns(answer: &v1::FrameAnswer) -> Result<(), Malformed> {
    let (decisions, limits) = (answer.verdicts.len(), answer.policies.len());
    let (answers, most) = (decisions + answer.others.len(), caps::COMMANDS_PER_FRAME);
    if answers > most {
        return Err(Malformed::new("verdicts", format!("answers to {answers} places; a frame has at most {most}")));
    }
    optional_length("places", answer.places.len(), decisions)?;
    optional_length("receipt_places", answer.receipt_places.len(), decisions)?;
    optional_length("limit_counts", answer.limit_counts.len(), decisions)?;
    if answer.limit_counts.is_empty() {
        length("policies", limits, decisions)?;
    } else {
        for (at, &count) in answer.limit_counts.iter().enumerate() {
            if count as usize > caps::LIMITS_PER_CHECK {
                let most = caps::LIMITS_PER_CHECK;
                return Err(Malformed::at("limit_counts", at, format!("{count} limits; allowed are 0 to {most}")));
            }
        }
        let sum: usize = answer.limit_counts.iter().map(|&count| count as usize).sum();
        length("policies", limits, sum)?;
    }
    length("limit_flags", answer.limit_flags.len(), limits)?;
    length("limits", answer.limits.len(), limits)?;
    length("remaining", answer.remaining.len(), limits)?;
    length("reset_after_us", answer.reset_after_us.len(), limits)?;
    optional_length("ordinals", answer.ordinals.len(), limits)?;
    optional_length("retry_after_us", answer.retry_after_us.len(), limits)?;
    optional_length("delays_us", answer.delays_us.len(), limits)?;
    optional_length("marks", answer.marks.len(), limits)
}

/// The decision at `at`, whose limits are those of the range; the columns fit together.
fn unpack_decision(answer: &v1::FrameAnswer, at: usize, limits: std::ops::Range<usize>) -> Result<Decision, Malformed> {
    let verdict = answer.verdicts[at];
    let mut decision = Decision {
        allowed: verdict & ALLOWED != 0,
        shadow_denied: verdict & SHADOW_DENIED != 0,
        degraded: verdict & DEGRADED != 0,
        version: PolicyVersion(answer.policy_version),
        ..Decision::default()
    };
    for at in limits {
        let ordinal = answer.ordinals.get(at).copied().unwrap_or(0);
        let Some(ordinal) = u16::try_from(ordinal).ok().filter(|&nth| usize::from(nth) < caps::LIMITS_PER_CHECK) else {
            let most = caps::LIMITS_PER_CHECK - 1;
            return Err(Malformed::at("ordinals", at, format!("{ordinal}; allowed are 0 to {most}")));
        };
        let flags = answer.limit_flags[at];
        let reset_after = optional_span("reset_after_us", at, answer.reset_after_us[at].saturating_add(1))?;
        let mark = match answer.marks.get(at) {
            Some(mark) => {
                mark_from_wire(mark).map_err(|problem| Malformed { field: "marks", at: Some(at), ..problem })?
            }
            None => None,
        };
        decision.limits.push(LimitAnswer {
            policy: PolicyId(answer.policies[at]),
            ordinal,
            allowed: flags & ALLOWED != 0,
            charged: flags & CHARGED != 0,
            shadow: flags & SHADOW != 0,
            limit: answer.limits[at],
            remaining: answer.remaining[at],
            retry_after: span("retry_after_us", at, &answer.retry_after_us)?,
            reset_after: reset_after.unwrap_or_default(),
            delay: span("delays_us", at, &answer.delays_us)?,
            mark,
            cost: Cost::ZERO,
        });
    }
    if decision.allowed {
        decision.delay = decision.limits.iter().filter_map(|limit| limit.delay).max();
    } else {
        let denied = decision.limits.iter().filter(|limit| !limit.allowed && !limit.shadow);
        let longest = denied.map(|limit| limit.retry_after).reduce(|longest, wait| Some(longest?.max(wait?)));
        decision.retry_after = longest.flatten();
    }
    Ok(decision)
}

fn span(field: &'static str, at: usize, column: &[u64]) -> Result<Option<Span>, Malformed> {
    optional_span(field, at, column.get(at).copied().unwrap_or(0))
}
