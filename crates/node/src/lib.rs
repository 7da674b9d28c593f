//! A node of Quorate: Raft groups, log, snapshots, control plane, services.

pub mod raft;
pub mod settings;
