//! What is answered instead of the service: a problem (RFC 9457) over HTTP, a status over gRPC.
//!
//! No answer names a key: a caller knows who he is, and need not learn how the service tells callers apart.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode};
use problem_details::ProblemDetails;
use serde::Serialize;

use super::dialect::{Dialect, seconds, tell};
use crate::caps;
use crate::decision::Decision;
use crate::error::Error;
use crate::identity::Parts;
use crate::wall;

/// A request that was denied, as [`RateLimitLayer::on_denied`](super::RateLimitLayer::on_denied) sees it.
///
/// ```
/// use quorate_client::layer::Denied;
/// fn wait(denied: &Denied<'_>) -> Option<std::time::Duration> {
///     denied.decision.retry_after
/// }
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct Denied<'a> {
    /// The request, without its body.
    pub request: &'a Parts,
    /// What was decided.
    pub decision: &'a Decision,
}

/// A request without a decision, as [`RateLimitLayer::on_no_decision`](super::RateLimitLayer::on_no_decision) sees it.
///
/// ```
/// use quorate_client::layer::NoDecision;
/// fn why(none: &NoDecision<'_>) -> String {
///     none.error.to_string()
/// }
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct NoDecision<'a> {
    /// The request, without its body.
    pub request: &'a Parts,
    /// Why there is no decision.
    pub error: &'a Error,
}

/// What a refusal says, whatever it is written in.
pub(super) struct Refusal<'a> {
    pub(super) status: StatusCode,
    pub(super) detail: String,
    /// The policies that denied, or could not be asked.
    pub(super) policies: Vec<&'a str>,
    /// Whether they denied.
    #[cfg_attr(not(feature = "tonic"), expect(dead_code, reason = "what gRPC says of it"))]
    pub(super) is_denial: bool,
    /// The exact wait.
    pub(super) retry_after: Option<Duration>,
}

/// What a problem says beyond what every problem says.
#[derive(Serialize)]
struct Members<'a> {
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    policies: &'a [&'a str],
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_seconds: Option<u64>,
}

/// The answer that a layer gives to what is denied, for services that ask by themselves: 429 with `Retry-After`, a problem that
/// names the policy, and [`Dialect::XRateLimit`].
///
/// ```
/// # async fn f(client: quorate_client::Client) -> Result<http::Response<bytes::Bytes>, quorate_client::Error> {
/// use quorate_client::layer::too_many_requests;
/// let decision = client.check("per-user", "alice").await?;
/// if !decision.allowed {
///     return Ok(too_many_requests(&decision));
/// }
/// # Ok(http::Response::default()) }
/// ```
pub fn too_many_requests(decision: &Decision) -> Response<Bytes> {
    let mut response = problem(&denial(decision));
    tell(&[Dialect::XRateLimit], decision, None, wall::now, response.headers_mut());
    response
}

/// The answer that a layer gives where there is no decision: 503 with `Retry-After`, and a problem that names the policy.
///
/// ```
/// let response = quorate_client::layer::service_unavailable("per-user");
/// assert_eq!((response.status().as_u16(), &response.headers()["retry-after"]), (503, &"1".parse().unwrap()));
/// ```
pub fn service_unavailable(policy: &str) -> Response<Bytes> {
    problem(&no_decision(policy))
}

pub(super) fn denied(request: &Parts, decision: &Decision) -> Response<Bytes> {
    write(request, &denial(decision))
}

pub(super) fn unavailable(request: &Parts, policy: &str) -> Response<Bytes> {
    write(request, &no_decision(policy))
}

fn denial(decision: &Decision) -> Refusal<'_> {
    let deniers = decision.limits.iter().filter(|one| !one.allowed && !one.shadow);
    let policies: Vec<&str> = deniers.map(|one| &*one.policy).collect();
    let named = policies.join(" and ");
    let detail = match decision.retry_after {
        Some(wait) => format!("the limit {named} is used up; try again in {} s", retry_seconds(wait)),
        None => format!("this request costs more than the limit {named} can ever grant; waiting does not help"),
    };
    let (status, retry_after) = (StatusCode::TOO_MANY_REQUESTS, decision.retry_after);
    Refusal { status, detail, policies, is_denial: true, retry_after }
}

fn no_decision(policy: &str) -> Refusal<'_> {
    Refusal {
        status: StatusCode::SERVICE_UNAVAILABLE,
        detail: "the rate limiter could not be asked in time; try again a little later".to_owned(),
        policies: vec![policy],
        is_denial: false,
        retry_after: Some(caps::RETRY_UNAVAILABLE),
    }
}

pub(super) fn missing_key(request: &Parts, policy: &str) -> Response<Bytes> {
    let refusal = Refusal {
        status: StatusCode::BAD_REQUEST,
        detail: "the request does not say whom it is for, in a form that this service takes".to_owned(),
        policies: vec![policy],
        is_denial: false,
        retry_after: None,
    };
    write(request, &refusal)
}

/// What is wrong is for the service's log, not for its callers.
pub(super) fn misused(request: &Parts) -> Response<Bytes> {
    let refusal = Refusal {
        status: StatusCode::INTERNAL_SERVER_ERROR,
        detail: "the rate limit of this service is not set up correctly".to_owned(),
        policies: Vec::new(),
        is_denial: false,
        retry_after: None,
    };
    write(request, &refusal)
}

/// For `Retry-After`: at least 1, as 0 would ask for a storm.
fn retry_seconds(wait: Duration) -> u64 {
    seconds(wait).max(1)
}

fn write(request: &Parts, refusal: &Refusal<'_>) -> Response<Bytes> {
    #[cfg(feature = "tonic")]
    if super::grpc::is_grpc(request) {
        return super::grpc::write(refusal);
    }
    #[cfg(not(feature = "tonic"))]
    let _ = request;
    problem(refusal)
}

fn problem(refusal: &Refusal<'_>) -> Response<Bytes> {
    let retry_after = refusal.retry_after.map(retry_seconds);
    let members = Members { policies: &refusal.policies, retry_after_seconds: retry_after };
    let problem =
        ProblemDetails::from_status_code(refusal.status).with_detail(refusal.detail.as_str()).with_extensions(members);
    // Names, numbers and text: nothing that JSON cannot say.
    let body = serde_json::to_vec(&problem).unwrap_or_default();
    let mut response = Response::new(Bytes::from(body));
    *response.status_mut() = refusal.status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if let Some(seconds) = retry_after {
        headers.insert(RETRY_AFTER, seconds.into());
    }
    response
}
