//! Raft as Quorate uses it: openraft's types, and what it needs from us.

pub mod applied;
pub mod codec;
pub mod config;
pub mod control_machine;
pub mod dispatch;
pub mod group;
pub mod lease;
pub mod log_storage;
pub mod messages;
pub mod network;
pub mod runtime;
pub mod shard_machine;
pub mod types;

pub use applied::Applied;
pub use control_machine::ControlMachine;
pub use dispatch::Dispatch;
pub use group::{Group, GroupStatus, Leadership, ProposeError};
pub use lease::Lease;
pub use log_storage::LogStorage;
pub use network::Peers;
pub use runtime::Runtime;
pub use shard_machine::{ShardMachine, SharedShard};
pub use types::{
    Entry, IoFlushed, LeaderId, LogId, LogState, Membership, Payload, Proposal, Snapshot, SnapshotMeta,
    StoredMembership, TypeConfig, Vote, log_id,
};
