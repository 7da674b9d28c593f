//! Load on a cluster through the client crate, and what is measured of it.
//!
//! Each caller asks, waits for the answer, and asks again. With a rate, callers ask on a schedule instead, and latency
//! counts from the moment at which a check was due: a cluster that stalls cannot hide the checks that it kept from being
//! asked. Reads the clock (through tokio), because measuring is what it is for; its randomness is seeded.

pub mod cpu;
pub mod keys;
pub mod load;
pub mod tally;
pub mod url;
