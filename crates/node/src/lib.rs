//! A node of Quorate: Raft groups, log, snapshots, control plane, services.

pub mod caps;
pub mod control;
pub mod disk;
pub mod identity;
pub mod log;
pub mod raft;
pub mod settings;
pub mod snapshot_files;
pub mod transport;
