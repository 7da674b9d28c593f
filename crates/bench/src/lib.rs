//! What the benchmarks share.
//!
//! A package of its own, and none of its targets is one of `cargo test`: other people's limiters, and what measures, are not
//! built to test Quorate.

pub mod keys;
pub mod load;
pub mod plain_map;
