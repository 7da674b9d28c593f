//! A node of Quorate: Raft groups, log, snapshots, control plane, services.

pub mod caps;
pub mod clock;
pub mod control;
pub mod disk;
pub mod identity;
pub mod log;
pub mod node;
pub mod raft;
pub mod random;
pub mod sequencer;
pub mod services;
pub mod settings;
pub mod snapshot_files;
pub mod transport;
