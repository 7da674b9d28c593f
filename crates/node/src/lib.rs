//! A node of Quorate: Raft groups, log, snapshots, control plane, services.

pub mod disk;
pub mod raft;
pub mod settings;
