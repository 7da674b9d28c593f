//! The service that a layer makes of another.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use http::{Request, Response};
use tower_service::Service;

use super::body::ResponseBody;
use super::rules::{Rules, Verdict};

/// Asks a limit before the service within gets a request; made by [`RateLimitLayer`](super::RateLimitLayer).
///
/// It is ready when the service within is, and has its error type. A request that is refused takes up the readiness of the
/// service that it would have gone to, and gives it back untouched.
///
/// ```
/// use quorate_client::layer::{RateLimit, RateLimitLayer};
/// use tower_layer::Layer;
///
/// fn protect<S>(service: S, layer: &RateLimitLayer) -> RateLimit<S> {
///     layer.layer(service)
/// }
/// ```
#[derive(Clone)]
pub struct RateLimit<S> {
    inner: S,
    rules: Arc<Rules>,
}

impl<S> RateLimit<S> {
    pub(super) fn new(inner: S, rules: Arc<Rules>) -> Self {
        RateLimit { inner, rules }
    }
}

impl<S: fmt::Debug> fmt::Debug for RateLimit<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimit").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl<S, Q, R> Service<Request<Q>> for RateLimit<S>
where
    S: Service<Request<Q>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    Q: Send + 'static,
{
    type Response = Response<ResponseBody<R>>;
    type Error = S::Error;
    type Future = ResponseFuture<R, S::Error>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Q>) -> Self::Future {
        // It is the one in `self` that is ready, not its clone.
        let clone = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, clone);
        let rules = self.rules.clone();
        ResponseFuture(Box::pin(async move {
            let (mut parts, body) = request.into_parts();
            let decided = match rules.ask(&parts).await {
                Verdict::Pass(decided) => decided,
                Verdict::Refuse(response) => return Ok(response.map(ResponseBody::refused)),
            };
            if let Some(decided) = &decided {
                parts.extensions.insert(decided.clone());
                rules.hold(decided).await;
            }
            let mut response = inner.call(Request::from_parts(parts, body)).await?;
            if let Some(decided) = &decided {
                rules.tell(decided, response.headers_mut());
            }
            Ok(response.map(ResponseBody::passed))
        }))
    }
}

/// The answer of a [`RateLimit`] under way.
#[must_use = "futures do nothing unless they are awaited"]
pub struct ResponseFuture<R, E>(BoxFuture<'static, Result<Response<ResponseBody<R>>, E>>);

impl<R, E> Future for ResponseFuture<R, E> {
    type Output = Result<Response<ResponseBody<R>>, E>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(cx)
    }
}

impl<R, E> fmt::Debug for ResponseFuture<R, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
