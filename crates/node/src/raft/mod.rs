//! Raft as Quorate uses it: openraft's types, and what it needs from us.

pub mod applied;
pub mod codec;
pub mod log_storage;
pub mod runtime;
pub mod types;

pub use applied::Applied;
pub use log_storage::LogStorage;
pub use runtime::Runtime;
pub use types::{
    Entry, IoFlushed, LeaderId, LogId, LogState, Membership, Payload, Proposal, Snapshot, SnapshotMeta,
    StoredMembership, TypeConfig, Vote, log_id,
};
