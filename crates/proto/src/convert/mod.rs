//! Between the wire's messages and the core's types; for the node and for clients alike.
//!
//! The wire is columnar: a [`Frame`](crate::v1::Frame) holds one packed array for each property of its checks, and one blob
//! for all keys. [`FramePacker`] and [`unpack_frame`] are the two ends of a frame, [`pack_answers`] and [`unpack_answer`] those
//! of its answers.
//!
//! Invariants: whatever comes from the wire is either a valid value of the core or a [`Malformed`] that names the field and
//! the place in it; nothing panics, and nothing is allocated that the message's own length does not justify. No decision is
//! taken here: which bounds a policy, a session or a shard has beyond those of the types is for others to say.

mod answer;
mod common;
mod frame;
mod policy;
#[cfg(test)]
mod tests;
mod unpack;

pub use answer::{Outcome, PlaceOutcome, pack_answers, unpack_answer};
pub use common::{mark_from_wire, mark_to_wire, receipt_from_wire, receipt_to_wire, refusal_to_wire};
pub use frame::{ChargeRef, FrameHead, FramePacker, LimitRef};
pub use policy::{policy_from_wire, policy_set_from_wire, policy_set_to_wire, policy_to_wire};
pub use unpack::{UnpackError, unpack_frame, unpack_head};

/// A message that means nothing: which field, where in it, and what would be allowed. The same message fails again.
///
/// ```
/// use quorate_proto::{convert, v1};
/// let error = convert::policy_from_wire(&v1::Policy::default()).unwrap_err();
/// assert_eq!(error.to_string(), "algorithm: it is missing; set one of those that the protocol names");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Malformed {
    /// The field or column.
    pub field: &'static str,
    /// The element of it, from 0, if it has several.
    pub at: Option<usize>,
    /// What is wrong with it, and what is allowed.
    pub problem: String,
}

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.at {
            Some(at) => write!(f, "{}[{at}]: {}", self.field, self.problem),
            None => write!(f, "{}: {}", self.field, self.problem),
        }
    }
}

impl Malformed {
    fn new(field: &'static str, problem: impl Into<String>) -> Malformed {
        Malformed { field, at: None, problem: problem.into() }
    }

    fn at(field: &'static str, at: usize, problem: impl Into<String>) -> Malformed {
        Malformed { field, at: Some(at), problem: problem.into() }
    }
}
