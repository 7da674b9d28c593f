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
//! It answers a check that was denied a moment ago from memory, for as long as the denial is true and at most a second unless
//! [set](ClientBuilder::remember_denials); and it charges limits of several shards at the same time, and gives back what one
//! of them denies: see [`Client::check_all`].
//!
//! # Tests
//!
//! With the feature `testing`, `testing::FakeCluster` is a cluster without nodes: the same decisions in process, a clock that is
//! turned by hand, and faults to inject.
//!
//! # Answers and errors
//!
//! A denial is a [`Decision`]. An [`Error`] means that there is no decision; its [`ErrorKind`] says what to do about it.
//!
//! # When the cluster cannot be asked
//!
//! A check waits for 50 ms unless set ([`ClientBuilder::deadline`]). What is not answered by then ends as the policy's
//! [`on_unavailable`](Policy::on_unavailable) says, or as [the builder](ClientBuilder::on_unavailable) or [the
//! check](Check::on_unavailable) say before it: with an error of a kind that [is
//! unavailable](ErrorKind::is_unavailable) (`fail_closed`), with a grant (`fail_open`), or with a decision of this process on its
//! share of the limit (`local`). The latter two are [degraded](Decision::degraded), and say [who
//! decided](Decision::decided_by) and [why](Decision::cause). A shard that answers nothing is not asked any more until a probe
//! finds it well, so that a dead cluster costs a request next to nothing.
//!
//! # Features
//!
//! - `adaptive`: [`Ceiling`]s that find their own height.
//! - `metrics`: counts decisions, waits and failures through the facade of the [`metrics`](https://docs.rs/metrics) crate.

mod acquire;
pub mod address;
pub mod admin;
mod backoff;
mod breaker;
mod builder;
mod caps;
mod ceiling;
mod charge;
mod check;
mod client;
mod decision;
mod denials;
mod engine;
mod error;
mod fallback;
mod gather;
mod giveback;
mod observe;
mod operations;
mod pack;
mod question;
mod queue;
mod reservation;
mod routes;
mod split;
#[cfg(feature = "testing")]
pub mod testing;
mod time;
mod topology;
mod way;
#[doc(hidden)]
pub mod wire;

pub use acquire::Acquire;
pub use builder::ClientBuilder;
pub use ceiling::{Ceiling, Place};
pub use charge::Charge;
pub use check::{Check, CheckMany, Checking};
pub use client::Client;
pub use decision::{DecidedBy, Decision, LimitDecision};
pub use error::{Error, ErrorKind};
pub use fallback::Fallback;
pub use operations::{Refund, Reset};
pub use question::{Limit, Question, limit};
pub use quorate_core::{
    Algorithm, Cost, Epoch, Index, Mode, NodeId, OnFull, OnUnavailable, Policy, PolicyId, PolicySet, PolicyVersion,
    Rate, Receipt, ShardId, Span, Stamp, Term,
};
pub use reservation::{Reservation, Reserve};
pub use topology::{NodeInfo, ShardInfo, Topology};
