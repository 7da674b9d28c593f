//! What a shard answers.
//!
//! "No" is a value: a denial is a [`Decision`]. A [`Refusal`] means that nothing was decided.

use smallvec::SmallVec;

use crate::ids::{Index, PolicyId, PolicyVersion, Position, SessionId, ShardId, Term};
use crate::units::{Cost, Span, Stamp};

/// The verdict on one limit of a check, as `semantics` defines each field.
///
/// ```
/// use quorate_core::{LimitAnswer, PolicyId, Span};
/// let answer = LimitAnswer { policy: PolicyId(1), allowed: true, limit: 5, remaining: 4, reset_after: Span(1_000_000), ..Default::default() };
/// assert_eq!(answer.retry_after, None);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LimitAnswer {
    /// The policy that was asked.
    pub policy: PolicyId,
    /// Its ordinal among the limits that the check named (after equal ones were joined), for the caller to match it with its key.
    pub ordinal: u16,
    /// Whether this limit alone would grant the check.
    pub allowed: bool,
    /// Whether the check's cost was charged to it.
    pub charged: bool,
    /// Whether the policy is in shadow mode, so that its verdict denies nothing.
    pub shadow: bool,
    /// The most unit-cost requests that an idle key could be granted at once.
    pub limit: u64,
    /// How many unit-cost requests would be granted now, after this decision.
    pub remaining: u64,
    /// On a denial, the shortest wait after which the same would be granted; none where it never would.
    pub retry_after: Option<Span>,
    /// The span after which the key is as good as new if nobody asks again.
    pub reset_after: Span,
    /// How long the caller has to hold a granted request back; leaky buckets only.
    pub delay: Option<Span>,
    /// What a refund of this charge has to bring along besides its receipt: a leaky bucket's `next` after the charge, in
    /// 1/R microseconds. None for the others.
    pub mark: Option<i128>,
    /// The cost that was asked of this limit, equal ones joined.
    pub cost: Cost,
}

/// A check's answer.
///
/// ```
/// use quorate_core::Decision;
/// assert!(Decision::default().limits.is_empty());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// Whether the request may go ahead.
    pub allowed: bool,
    /// For a check of one limit in shadow mode: it would have been denied.
    pub shadow_denied: bool,
    /// On a denial: the longest wait of the enforced limits that denied; none if one of them never would grant it.
    pub retry_after: Option<Span>,
    /// The longest delay of a granted check's limits; none where no leaky bucket was charged.
    pub delay: Option<Span>,
    /// Each limit's own verdict, in the order first named, disabled ones left out.
    pub limits: SmallVec<[LimitAnswer; 1]>,
    /// The policy set that decided.
    pub version: PolicyVersion,
    /// A key was evicted from a full table to make room for this one.
    pub degraded: bool,
}

/// Why a shard decided nothing. Nothing was charged.
///
/// ```
/// use quorate_core::{PolicyId, Refusal};
/// assert!(Refusal::UnknownPolicy(PolicyId(9)).to_string().contains("p9"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The policy set in force has no such policy.
    #[error("policy {0} is not in force; list the policies, or apply it first")]
    UnknownPolicy(PolicyId),
    /// The check costs more than the policy's `max_cost`.
    #[error("the cost {cost} is above the policy's max_cost {max}; ask for less, or raise max_cost")]
    CostAboveMax {
        /// What the check asked.
        cost: Cost,
        /// What the policy allows at most.
        max: Cost,
    },
    /// Costs of equal limits add up to more than a cost may be.
    #[error("the costs of one limit add up to more than {}", Cost::MAX)]
    CostTooLarge,
    /// The shard's table is full and the policy says `on_full = "refuse"`.
    #[error(
        "the shard's key table is full; nobody can say how long to wait: raise max_keys, or set on_full = \"evict\""
    )]
    TableFull,
    /// The session is not known here: expired, or never opened. If the frame was sent before, its outcome is unknown.
    #[error("session {0} is not known to the shard: it has expired; open another")]
    UnknownSession(SessionId),
    /// The frame lies further above the session's lowest unanswered frame than a session may span.
    #[error("the frame is too far above the session's lowest unanswered one; wait for answers first")]
    SessionSpan,
    /// The session already said that this frame was answered; its answers are gone.
    #[error("the frame was already acknowledged by its session; its answers are no longer kept")]
    Acknowledged,
    /// The policy's algorithm cannot do this.
    #[error("a leaky bucket cannot be reserved; use check, or acquire")]
    NotReservable,
    /// A command of a kind, or a value, that is not valid here.
    #[error("invalid: {0}")]
    Invalid(&'static str),
}

/// A shard's answer to one command.
///
/// ```
/// use quorate_core::{Answer, SessionId};
/// assert_ne!(Answer::SessionOpened(SessionId(1)), Answer::Done);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// To a check, a peek, or a reservation.
    Decision(Decision),
    /// To a refund or a settlement: how many of the named limits it changed.
    Undone(u16),
    /// To an opened session.
    SessionOpened(SessionId),
    /// To anything else that was done.
    Done,
    /// Nothing was decided, and why.
    Refused(Refusal),
}

/// Where and when a command was decided: its place in the shard's log.
///
/// ```
/// use quorate_core::{Index, Receipt};
/// let receipt = Receipt { index: Index(7), place: 2, ..Default::default() };
/// assert_eq!(receipt.position().place, 2);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Receipt {
    /// The shard that decided.
    pub shard: ShardId,
    /// The entry's term.
    pub term: Term,
    /// The entry's index.
    pub index: Index,
    /// The command's ordinal in the entry, from 0; from [`Receipt::UNLOGGED`] on it is in no entry.
    pub place: u32,
    /// The logical time it was decided at.
    pub stamp: Stamp,
}

impl Receipt {
    /// Places from this one on are of denials that were answered from the state alone, as it was after the entry of that index:
    /// they are in no log, and charged nothing.
    pub const UNLOGGED: u32 = 1 << 31;

    /// Whether the log holds what was decided.
    pub fn is_logged(&self) -> bool {
        self.place < Receipt::UNLOGGED
    }

    /// The place in the log alone, which orders what one shard decided.
    pub fn position(&self) -> Position {
        Position { index: self.index, place: self.place }
    }
}

/// The answer to one place of a frame.
///
/// ```
/// use quorate_core::{Answer, PlaceAnswer, Receipt};
/// let answer = PlaceAnswer { place: 3, receipt: Receipt::default(), answer: Answer::Done };
/// assert_eq!(answer.place, 3);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlaceAnswer {
    /// The command's place in its frame.
    pub place: u32,
    /// Where it was decided; for a frame sent again, where it was decided first.
    pub receipt: Receipt,
    /// What was decided.
    pub answer: Answer,
}

/// What applying a batch came to.
///
/// ```
/// use quorate_core::{Applied, Stamp};
/// assert_eq!(Applied::default().stamp, Stamp(0));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// The logical time of the batch: its own stamp, or the shard's where that was later.
    pub stamp: Stamp,
    /// The answers, group by group as in the batch; empty where none were wanted.
    pub groups: Vec<Vec<PlaceAnswer>>,
}
