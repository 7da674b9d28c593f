//! One shard of Quorate as a pure state machine.
//!
//! The core does no I/O, reads no clock, draws no random number, uses no float, is not async; no order of iteration shows;
//! apply cannot fail.

pub mod answer;
pub mod caps;
pub mod check;
pub mod command;
pub mod ids;
pub mod key;
pub mod limit;
pub mod policy;
pub mod policy_fields;
pub mod policy_file;
pub mod units;

pub use answer::{Answer, Decision, LimitAnswer, Refusal};
pub use check::{Asked, Peeked, decide, peek};
pub use command::{Batch, Charge, Check, Command, FrameId, Group, Limit};
pub use ids::{Epoch, GroupId, Index, NodeId, PolicyId, PolicyVersion, Position, Sequence, SessionId, ShardId, Term};
pub use key::Fingerprint;
pub use limit::{Entries, HeldBucket, Hold, SlidingLog, State, migrate, refund, settle};
pub use policy::{Algorithm, FieldProblem, Mode, OnFull, OnUnavailable, Policy, PolicyProblems, PolicySet};
pub use units::{Cost, Rate, Span, Stamp, UnitsError};
