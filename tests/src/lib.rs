//! Quorate tried as real processes on real disks.
//!
//! A [`Cluster`] is three or more `quorated` in a temporary directory, on ports of their own, with everything they print kept
//! beside their data. It can kill any of them as a machine would die, and start it again on what is left. Nothing here
//! sleeps for a guess: whatever is waited for is asked for, until it is so or a bound far beyond it has passed.

pub mod binaries;
pub mod cluster;
pub mod health;
pub mod ledger;
pub mod link;
pub mod load;
pub mod outage;
pub mod recorder;
pub mod service;
pub mod tool;
pub mod wait;

pub use binaries::command;
pub use cluster::Cluster;
pub use wait::until;
