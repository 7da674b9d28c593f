//! Whole clusters of Quorate in one thread, on virtual time, from one seed.
//!
//! The nodes and the clients are the shipped ones; what they take from their machines (clocks, chance, disks, networks) comes
//! from here. A seed gives the same story, byte for byte, where it is the first of its process.
//!
//! ```text
//!  world ── ticks ──► machine × 3: runtime, disk, clock ── node      peers: nodes to nodes ─┐
//!    │                machine: runtime ── clients, load              wire: clients to nodes ┴► net
//!    ├─ faults: what strikes when
//!    ├─ tap: what was applied anywhere    history: what callers were told
//!    └─ check/: one promise a file
//! ```

pub mod check;
pub mod clock;
pub mod faults;
pub mod fired;
pub mod history;
pub mod load;
pub mod machine;
pub mod many;
pub mod net;
pub mod peers;
pub mod tap;
pub mod trace;
pub mod wire;
pub mod world;

pub use world::{Options, Outcome, run};
