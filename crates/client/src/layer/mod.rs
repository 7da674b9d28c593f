//! `RateLimitLayer`: a limit in front of any tower service of HTTP requests, axum and tonic included.
//!
//! ```no_run
//! use quorate_client::Client;
//! use quorate_client::identity::{ClientIp, FromExtension, Identify};
//! use quorate_client::layer::{Dialect, RateLimitLayer};
//!
//! # #[derive(Clone)] struct User { id: u64 }
//! # async fn f() -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::builder().endpoints(["127.0.0.1:7600"]).connect().await?;
//! let by_user = FromExtension::new(|user: &User| Some(user.id.to_string()));
//! let layer = RateLimitLayer::new(client, "per-user")
//!     .key(by_user.or_else(ClientIp::trusted(["10.0.0.0/8"])?))
//!     .headers([Dialect::XRateLimit]);
//! # let _ = layer; Ok(()) }
//! ```
//!
//! # What a caller sees
//!
//! | case | HTTP | gRPC (with the feature `tonic`) |
//! |---|---|---|
//! | denied | 429 with `Retry-After` and `application/problem+json`; without `Retry-After` where waiting never helps | `RESOURCE_EXHAUSTED` with `RetryInfo` and `QuotaFailure` |
//! | no decision, and the policy does not let requests pass then | 503 with `Retry-After` | `UNAVAILABLE` with `RetryInfo` |
//! | the request does not say whom it is for, and [`MissingKey::Reject`] | 400 | `INVALID_ARGUMENT` |
//! | the layer is set up wrongly: an unknown policy, a cost out of bounds | 500, and an error in the log once a second | `INTERNAL` |
//!
//! The service's error type stays as it is, and all clones of a layer share one [`Client`].
//!
//! # Several layers
//!
//! A layer for each route, or group of routes, is natural: each names its policy. Where layers lie within each other, each
//! is a check of its own: one that denies does not give back what an outer one has charged. Limits that belong together are
//! [`also`](RateLimitLayer::also)s of one layer, charged together or not at all.

mod answer;
mod body;
mod cost;
mod decided;
mod dialect;
#[cfg(feature = "tonic")]
mod grpc;
mod rules;
mod service;
mod windows;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use tower_layer::Layer;

pub use answer::{Denied, NoDecision, service_unavailable, too_many_requests};
pub use body::ResponseBody;
pub use cost::RequestCost;
pub use decided::Decided;
pub use dialect::Dialect;
use rules::{Rule, Rules};
pub use service::{RateLimit, ResponseFuture};

use crate::client::Client;
use crate::identity::{ClientIp, Identify};

/// What becomes of a request that does not say whom it is for.
///
/// ```
/// use quorate_client::layer::MissingKey;
/// assert_eq!(MissingKey::default(), MissingKey::Reject);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum MissingKey {
    /// The limit is left out: whoever leaves the key out is not limited. Only where something else limits him.
    Skip,
    /// It is refused, as 400 Bad Request.
    #[default]
    Reject,
    /// All such requests share the key `anonymous`.
    Anonymous,
}

/// Asks a limit before a service gets a request; a tower `Layer`.
///
/// Without [`key`](Self::key) it limits by the address of the connection. Cheap to clone; all clones share the client.
///
/// ```
/// use http::{Request, Response, StatusCode};
/// use quorate_client::identity::Header;
/// use quorate_client::layer::RateLimitLayer;
/// use quorate_client::testing::FakeCluster;
/// use tower::{Layer, ServiceExt};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let policies = "[[policy]]\nname = \"per-user\"\nalgorithm = \"token_bucket\"\ncapacity = 2\nrefill = \"1/m\"";
/// let client = FakeCluster::from_toml(policies)?.connect().await?;
/// let layer = RateLimitLayer::new(client, "per-user").key(Header::new("x-user")?).cost(2);
/// let service = layer.layer(tower::service_fn(async |_: Request<()>| Ok::<_, std::io::Error>(Response::new(()))));
///
/// let request = || Request::get("/").header("x-user", "alice").body(());
/// assert_eq!(service.clone().oneshot(request()?).await?.status(), StatusCode::OK);
/// let denied = service.oneshot(request()?).await?;
/// assert_eq!(denied.status(), StatusCode::TOO_MANY_REQUESTS);
/// assert_eq!(denied.headers()["retry-after"], "120");
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct RateLimitLayer {
    rules: Arc<Rules>,
}

impl RateLimitLayer {
    /// Asks that policy for each request. Whether it is in force is seen at the first request: a policy may be applied after
    /// the service was started.
    pub fn new(client: Client, policy: impl Into<Arc<str>>) -> Self {
        let rule = Rule { policy: policy.into(), key: Arc::new(ClientIp::peer()), cost: None };
        RateLimitLayer { rules: Arc::new(Rules::new(client, rule)) }
    }

    /// Whom requests are charged to: an extractor of [`identity`](crate::identity), a combination, or a closure.
    ///
    /// ```
    /// # fn f(layer: quorate_client::layer::RateLimitLayer) {
    /// use quorate_client::identity::Parts;
    /// let layer = layer.key(|request: &Parts| Some(request.uri.path().to_owned()));
    /// # }
    /// ```
    #[must_use]
    pub fn key(self, key: impl Identify) -> Self {
        self.with(|rules| rules.first.key = Arc::new(key))
    }

    /// What a request costs, in units: a number, or a closure of the request. 1 if not set; it counts for every limit of this
    /// layer that has no cost of its own. Above 10^12 is a fault of the service: a cost taken from what a caller says has to
    /// be bounded.
    ///
    /// ```
    /// # fn f(layer: quorate_client::layer::RateLimitLayer) {
    /// use quorate_client::identity::Parts;
    /// let layer = layer.cost(|request: &Parts| if request.method == "GET" { 1 } else { 5 });
    /// # }
    /// ```
    #[must_use]
    pub fn cost(self, cost: impl RequestCost) -> Self {
        self.with(|rules| rules.cost = Arc::new(cost))
    }

    /// One more limit for each request, up to 16 in all: every one of them has to grant, or none is charged.
    ///
    /// Keys of one shard are charged in one command: give them a shared part with [`Identify::tagged`].
    ///
    /// ```
    /// # fn f(layer: quorate_client::layer::RateLimitLayer) -> Result<(), quorate_client::identity::IdentityError> {
    /// use quorate_client::identity::{Header, Identify};
    /// let tenant = Header::new("x-tenant")?.tagged();
    /// let layer = layer.key((tenant.clone(), Header::new("x-user")?)).also("per-tenant", tenant);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn also(self, policy: impl Into<Arc<str>>, key: impl Identify) -> Self {
        self.with(|rules| rules.others.push(Rule { policy: policy.into(), key: Arc::new(key), cost: None }))
    }

    /// As [`also`](Self::also), at a cost of its own.
    #[must_use]
    pub fn also_costing(self, policy: impl Into<Arc<str>>, key: impl Identify, cost: impl RequestCost) -> Self {
        let cost: Arc<dyn RequestCost> = Arc::new(cost);
        self.with(|rules| rules.others.push(Rule { policy: policy.into(), key: Arc::new(key), cost: Some(cost) }))
    }

    /// What becomes of requests that do not say whom they are for; [`MissingKey::Reject`] if not set.
    #[must_use]
    pub fn missing_key(self, missing: MissingKey) -> Self {
        self.with(|rules| rules.missing = missing)
    }

    /// Which headers tell of the limit, on granted and denied requests; [`Dialect::XRateLimit`] if not set, none for `[]`.
    /// `Retry-After` comes with every denial that a wait helps against, whatever is set here.
    #[must_use]
    pub fn headers(self, dialects: impl IntoIterator<Item = Dialect>) -> Self {
        let dialects = dialects.into_iter().collect();
        self.with(|rules| rules.dialects = dialects)
    }

    /// Changes what a denied caller is answered: gets the answer that would be sent, and returns the one that is.
    ///
    /// ```
    /// # fn f(layer: quorate_client::layer::RateLimitLayer) {
    /// let layer = layer.on_denied(|denied, mut response| {
    ///     if denied.request.uri.path().starts_with("/pages/") {
    ///         *response.body_mut() = "<h1>Please slow down</h1>".into();
    ///         response.headers_mut().insert("content-type", "text/html".parse().unwrap());
    ///     }
    ///     response
    /// });
    /// # }
    /// ```
    #[must_use]
    pub fn on_denied(
        self,
        answer: impl Fn(&Denied<'_>, Response<Bytes>) -> Response<Bytes> + Send + Sync + 'static,
    ) -> Self {
        self.with(|rules| rules.on_denied = Some(Arc::new(answer)))
    }

    /// As [`on_denied`](Self::on_denied), where there is no decision: the cluster could not be asked in time, and the policy
    /// lets no request pass then.
    #[must_use]
    pub fn on_no_decision(
        self,
        answer: impl Fn(&NoDecision<'_>, Response<Bytes>) -> Response<Bytes> + Send + Sync + 'static,
    ) -> Self {
        self.with(|rules| rules.on_no_decision = Some(Arc::new(answer)))
    }

    /// Asks and charges, and refuses nothing: for seeing what a limit would do. Callers notice nothing of it, no headers and
    /// no waits; the service finds the decision among the extensions, and denials are logged at `debug`.
    #[must_use]
    pub fn shadow(self, shadow: bool) -> Self {
        self.with(|rules| rules.shadow = shadow)
    }

    /// Whether a request that a leaky bucket grants is held back for the decision's `delay`, before the service gets it; it
    /// is, if not set. Otherwise the service finds the delay among the extensions, and has to wait itself.
    #[must_use]
    pub fn wait_turn(self, wait: bool) -> Self {
        self.with(|rules| rules.wait_turn = wait)
    }

    /// Denies requests that a leaky bucket would hold back for longer than this. The queue is the only bound if not set:
    /// choose one that callers wait for.
    #[must_use]
    pub fn max_delay(self, delay: Duration) -> Self {
        self.with(|rules| rules.max_delay = Some(delay))
    }

    /// How long to wait for the decision; the client's deadline if not set.
    #[must_use]
    pub fn deadline(self, deadline: Duration) -> Self {
        self.with(|rules| rules.deadline = Some(deadline))
    }

    fn with(mut self, change: impl FnOnce(&mut Rules)) -> Self {
        change(Arc::make_mut(&mut self.rules));
        self
    }
}

impl<S> Layer<S> for RateLimitLayer {
    type Service = RateLimit<S>;

    fn layer(&self, inner: S) -> RateLimit<S> {
        RateLimit::new(inner, self.rules.clone())
    }
}

impl fmt::Debug for RateLimitLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let policies: Vec<_> = self.rules.all().map(|rule| &rule.policy).collect();
        f.debug_struct("RateLimitLayer").field("policies", &policies).finish_non_exhaustive()
    }
}
