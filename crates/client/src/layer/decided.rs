//! The decision among a request's extensions.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::charge::Charge;
use crate::decision::Decision;

/// What was decided about the request, for the service that handles it: among the request's extensions, and among those of
/// the response of a denied one. It reads as the [`Decision`]; clones are the same one.
///
/// With the feature `axum` it is an extractor as well. Where several layers lie within each other, it is the innermost one's.
///
/// ```
/// use quorate_client::layer::Decided;
///
/// async fn handle(request: http::Request<String>) -> String {
///     match request.extensions().get::<Decided>() {
///         Some(decided) => format!("{} of {} left", decided.remaining, decided.limit),
///         None => "no limit was asked".to_owned(),
///     }
/// }
/// ```
#[derive(Clone)]
pub struct Decided(Arc<Inner>);

struct Inner {
    decision: Decision,
    taken: AtomicBool,
}

impl Decided {
    pub(super) fn new(decision: Decision) -> Self {
        Decided(Arc::new(Inner { decision, taken: AtomicBool::new(false) }))
    }

    /// Takes the charge out, to give it back by [`Client::refund`](crate::Client::refund): for a request that turned out to
    /// cost nothing. It can be taken once, of all clones; a decision that charged nothing has none.
    ///
    /// ```
    /// # async fn f(client: quorate_client::Client, decided: quorate_client::layer::Decided) {
    /// if let Some(charge) = decided.take_charge() {
    ///     // The answer came from a cache.
    ///     client.refund(charge).await.ok();
    /// }
    /// # }
    /// ```
    pub fn take_charge(&self) -> Option<Charge> {
        if self.0.taken.swap(true, Ordering::Relaxed) { None } else { self.charge() }
    }

    /// The charge, for as long as nobody else has seen the decision.
    pub(super) fn charge(&self) -> Option<Charge> {
        Charge::of(&self.0.decision)
    }
}

impl Deref for Decided {
    type Target = Decision;

    fn deref(&self) -> &Decision {
        &self.0.decision
    }
}

impl fmt::Debug for Decided {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.decision.fmt(f)
    }
}

#[cfg(feature = "axum")]
mod extract {
    use std::convert::Infallible;

    use axum::extract::{FromRequestParts, OptionalFromRequestParts};
    use http::StatusCode;
    use http::request::Parts;

    use super::Decided;

    /// Refuses with 500 where no layer has asked a limit for the request; take an `Option<Decided>` where that may be.
    impl<S: Send + Sync> FromRequestParts<S> for Decided {
        type Rejection = (StatusCode, &'static str);

        async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
            let missing = "no limit was asked for this request: no RateLimitLayer is on its route, or it was skipped";
            parts.extensions.get().cloned().ok_or((StatusCode::INTERNAL_SERVER_ERROR, missing))
        }
    }

    impl<S: Send + Sync> OptionalFromRequestParts<S> for Decided {
        type Rejection = Infallible;

        async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, Infallible> {
            Ok(parts.extensions.get().cloned())
        }
    }
}
