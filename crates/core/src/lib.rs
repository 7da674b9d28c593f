//! One shard of Quorate as a pure state machine.
//!
//! The core does no I/O, reads no clock, draws no random number, uses no float, is not async; no order of iteration shows;
//! apply cannot fail.

pub mod answer;
pub mod caps;
pub mod check;
mod codec;
pub mod command;
mod digest;
pub mod ids;
mod installed;
pub mod key;
pub mod limit;
pub mod mistakes;
#[cfg(feature = "planted")]
#[doc(hidden)]
pub mod planted;
pub mod policy;
pub mod policy_fields;
pub mod policy_file;
mod resets;
pub mod ring;
mod session;
mod shard;
mod snapshot;
mod table;
pub mod units;
pub mod visible;

pub use answer::{Answer, Applied, Decision, LimitAnswer, PlaceAnswer, Receipt, Refusal};
pub use check::{Asked, Peeked, decide, peek};
pub use codec::DecodeError;
pub use command::{Batch, Bounds, Charge, Check, Command, FrameId, Group, Limit};
pub use digest::Digest;
pub use ids::{Epoch, GroupId, Index, NodeId, PolicyId, PolicyVersion, Position, Sequence, SessionId, ShardId, Term};
pub use key::{Fingerprint, RingSecret, TableSecret};
pub use limit::{Entries, HeldBucket, Hold, SlidingLog, State, migrate, overrun, refund, settle};
pub use policy::{Algorithm, FieldProblem, Mode, OnFull, OnUnavailable, Policy, PolicyProblems, PolicySet};
pub use ring::{Arc, Ring, RingError};
pub use shard::{Shard, Usage};
pub use snapshot::{Image, SnapshotError};
pub use units::{Cost, Rate, Span, Stamp, UnitsError};
