//! Refusals over gRPC: a status in a response of headers alone, with the details that clients know.

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{Response, StatusCode};
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

use super::answer::Refusal;
use crate::identity::Parts;

/// Whether a request is a call of gRPC, by its content type: it gets an answer that its client understands.
pub(super) fn is_grpc(request: &Parts) -> bool {
    let content_type = request.headers.get(CONTENT_TYPE).map(|value| value.as_bytes());
    content_type.and_then(|value| value.strip_prefix(b"application/grpc")).is_some_and(|rest| {
        // `application/grpc`, `application/grpc+proto`; also as grpc-web writes it.
        rest.first().is_none_or(|byte| b"+;-".contains(byte))
    })
}

pub(super) fn write(refusal: &Refusal<'_>) -> Response<Bytes> {
    let code = match refusal.status {
        StatusCode::TOO_MANY_REQUESTS => Code::ResourceExhausted,
        StatusCode::SERVICE_UNAVAILABLE => Code::Unavailable,
        StatusCode::BAD_REQUEST => Code::InvalidArgument,
        _ => Code::Internal,
    };
    let mut details = ErrorDetails::new();
    if let Some(wait) = refusal.retry_after {
        details.set_retry_info(Some(wait));
    }
    if refusal.is_denial {
        for policy in &refusal.policies {
            details.add_quota_failure_violation(format!("policy:{policy}"), refusal.detail.as_str());
        }
    }
    Status::with_error_details(code, refusal.detail.as_str(), details).into_http()
}
