//! The control group: one Raft group on every node, which holds what the whole cluster has to agree on.
//!
//! Its state is the nodes, who holds which arc, the policies with their history, and the secrets. Shard leaders watch it and
//! bring newer policies into their own logs; nobody else changes anything because of it. What it is told is a
//! [`ControlCommand`]; what comes of it is decided in [`ControlState::apply`] alone, the same on every node.

pub mod command;
pub mod parts;
pub mod policies;
pub mod state;
pub mod store;

pub use command::{ControlCommand, Genesis, PutPolicies};
pub use policies::{Change, ChangeKind, PolicyRecord};
pub use state::{ControlAnswer, ControlRefusal, ControlState, NodeInfo, ShardInfo};
pub use store::{ControlStore, MemoryControlStore, SledControlStore, StoreError};
