//! The client of Quorate, a replicated rate limiter.
//!
//! ```no_run
//! use quorate_client::Client;
//!
//! # async fn run() -> Result<(), quorate_client::Error> {
//! let client = Client::builder().endpoints(["127.0.0.1:7600"]).connect().await?;
//! let decision = client.check("per-user", "alice").cost(3).await?;
//! if decision.allowed {
//!     println!("go ahead; {} left", decision.remaining);
//! } else {
//!     println!("too many requests; again in {:?}", decision.retry_after);
//! }
//! # Ok(()) }
//! ```
//!
//! # What it does by itself
//!
//! It learns who leads which shard and follows changes; packs the checks of many tasks into few messages; numbers them in
//! sessions, so that a check that has to be sent again is charged once; and retries inside the caller's deadline with full
//! jitter. Where it cannot know whether a check was charged, it says so: see [`Error::may_have_charged`].
//!
//! # Answers and errors
//!
//! A denial is a [`Decision`]. An [`Error`] means that there is no decision; its [`ErrorKind`] says what to do about it.

mod acquire;
pub mod admin;
mod backoff;
mod builder;
mod caps;
mod charge;
mod check;
mod client;
mod decision;
mod denials;
mod engine;
mod error;
mod gather;
mod giveback;
#[cfg(feature = "tower")]
pub mod identity;
#[cfg(feature = "tower")]
pub mod layer;
mod operations;
mod pack;
mod question;
mod queue;
mod reservation;
mod routes;
mod split;
#[cfg(feature = "testing")]
pub mod testing;
mod topology;
#[cfg(feature = "tower")]
mod wall;
#[doc(hidden)]
pub mod wire;

pub use acquire::Acquire;
pub use builder::ClientBuilder;
pub use charge::Charge;
pub use check::{Check, CheckMany, Checking};
pub use client::Client;
pub use decision::{Decision, LimitDecision};
pub use error::{Error, ErrorKind};
pub use operations::{Refund, Reset};
pub use question::{Limit, Question, limit};
pub use quorate_core::{
    Algorithm, Cost, Epoch, Index, Mode, NodeId, OnFull, OnUnavailable, Policy, PolicyId, PolicySet, PolicyVersion,
    Rate, Receipt, ShardId, Span, Stamp, Term,
};
pub use reservation::{Reservation, Reserve};
pub use topology::{NodeInfo, ShardInfo, Topology};
