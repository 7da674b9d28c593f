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
//! # In front of a service
//!
//! With the feature `tower`, `layer::RateLimitLayer` asks a limit before any tower service gets a request: in axum, tonic or
//! hyper. It takes whom the request is for from an `identity` that callers cannot choose, and answers what is denied with honest
//! headers.
//!
//! ```no_run
//! # #[cfg(feature = "tower")]
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! use quorate_client::Client;
//! use quorate_client::identity::ClientIp;
//! use quorate_client::layer::RateLimitLayer;
//!
//! let client = Client::builder().endpoints(["127.0.0.1:7600"]).connect().await?;
//! let limit = RateLimitLayer::new(client, "per-address").key(ClientIp::trusted(["10.0.0.0/8"])?);
//! // axum: Router::new().route("/", get(handler)).layer(limit)
//! // tonic: Server::builder().layer(limit).add_service(service)
//! # let _ = limit; Ok(()) }
//! ```
//!
//! How to choose algorithms, keys, and what happens on a bad day is in the
//! [guide](https://github.com/quorate/quorate/blob/main/docs/client/guide.md).
//!
//! # Features
//!
//! | feature | brings |
//! |---|---|
//! | `tower` | `layer` and `identity`, for any tower service of HTTP requests |
//! | `axum` | `tower`, the address of axum's connections, and the decision as an extractor |
//! | `tonic` | `tower`, the address of tonic's connections, and denials as gRPC statuses with details |
//! | `testing` | `testing`: a cluster without nodes, for a service's own tests |
//! | `metrics` | what the client counts, through the facade of the `metrics` crate |
//! | `adaptive` | a ceiling that finds its own height |
//!
//! None is on by itself.
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
#[cfg(feature = "tower")]
pub mod identity;
#[cfg(feature = "tower")]
pub mod layer;
mod observe;
mod operations;
mod pack;
mod question;
mod queue;
mod report;
mod reservation;
mod routes;
mod split;
#[cfg(feature = "testing")]
pub mod testing;
mod throttle;
mod time;
mod topology;
#[cfg(feature = "tower")]
mod wall;
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
