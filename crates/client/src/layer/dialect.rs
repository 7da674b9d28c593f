//! The headers that tell a caller of his limit, in the dialects that callers know.
//!
//! Numbers are whole: counts as the decision has them, times in seconds, rounded up. A limit in shadow mode is not told, nor is
//! one that is disabled or of which nothing is known.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use http::header::{HeaderName, HeaderValue};
use sfv::{Integer, KeyRef, ListSerializer, StringRef};

use super::windows::Windows;
use crate::decision::{Decision, LimitDecision};

/// Which headers tell of a limit.
///
/// Those of the Internet-Draft `draft-ietf-httpapi-ratelimit-headers` are named by its number, because they have changed with
/// it and it is no standard yet: a dialect here stays as its draft has it.
///
/// ```
/// use quorate_client::layer::{Dialect, RateLimitLayer};
/// # fn f(layer: RateLimitLayer) {
/// let layer = layer.headers([Dialect::XRateLimit, Dialect::Draft8]);
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Dialect {
    /// `X-RateLimit-Limit`, `-Remaining` and `-Reset`: the most that can be granted at once, what would be granted now, and
    /// the seconds until all of it is. Of several limits, of the one that denied or has least left.
    XRateLimit,
    /// The same with `X-RateLimit-Reset` as a Unix time in seconds, by this machine's clock.
    XRateLimitEpoch,
    /// Internet-Draft 6: `RateLimit-Limit`, `-Remaining` and `-Reset` as above, and `RateLimit-Policy` for each limit:
    /// `200;w=120`.
    Draft6,
    /// Internet-Draft 8: `RateLimit-Policy: "per-user";q=200;w=120` and `RateLimit: "per-user";r=137;t=38` for each limit.
    Draft8,
}

const X: Names = Names::new("x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset");
const DRAFT: Names = Names::new("ratelimit-limit", "ratelimit-remaining", "ratelimit-reset");
const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const LIMIT: HeaderName = HeaderName::from_static("ratelimit");

/// The names of three headers that speak of one limit.
struct Names {
    limit: HeaderName,
    remaining: HeaderName,
    reset: HeaderName,
}

impl Names {
    const fn new(limit: &'static str, remaining: &'static str, reset: &'static str) -> Names {
        Names {
            limit: HeaderName::from_static(limit),
            remaining: HeaderName::from_static(remaining),
            reset: HeaderName::from_static(reset),
        }
    }

    /// Puts them in, unless there are ones already that leave the caller no more.
    fn put(&self, headers: &mut HeaderMap, limit: &LimitDecision, reset: u64) {
        let told = headers.get(&self.remaining).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
        if told.is_some_and(|told| told <= limit.remaining) {
            return;
        }
        headers.insert(&self.limit, limit.limit.into());
        headers.insert(&self.remaining, limit.remaining.into());
        headers.insert(&self.reset, reset.into());
    }
}

impl Dialect {
    /// Whether it tells how long a limit lasts, which no decision says.
    pub(super) fn needs_windows(self) -> bool {
        matches!(self, Dialect::Draft6 | Dialect::Draft8)
    }
}

/// Adds what the dialects say of a decision. `now` is since the Unix epoch.
pub(super) fn tell(
    dialects: &[Dialect],
    decision: &Decision,
    windows: Option<&Arc<Windows>>,
    now: impl Fn() -> Duration,
    headers: &mut HeaderMap,
) {
    // What was granted without asking knows no limit.
    let enforced = || decision.limits.iter().filter(|one| !one.shadow && one.limit != u64::MAX);
    let Some(tightest) = enforced().min_by_key(|one| (one.allowed, one.remaining)) else { return };
    let reset = seconds(tightest.reset_after);
    let window = |limit: &LimitDecision| windows.and_then(|windows| windows.seconds(&limit.policy));
    for dialect in dialects {
        match dialect {
            Dialect::XRateLimit => X.put(headers, tightest, reset),
            Dialect::XRateLimitEpoch => X.put(headers, tightest, seconds(now() + tightest.reset_after)),
            Dialect::Draft6 => {
                DRAFT.put(headers, tightest, reset);
                let mut list = ListSerializer::new();
                for limit in enforced() {
                    let item = list.bare_item(integer(limit.limit));
                    parameters(item, [("w", window(limit))]);
                }
                append(headers, &POLICY, list);
            }
            Dialect::Draft8 => {
                let (mut policies, mut limits) = (ListSerializer::new(), ListSerializer::new());
                for limit in enforced() {
                    let Ok(name) = StringRef::from_str(&limit.policy) else { continue };
                    let told = [("q", Some(limit.limit)), ("w", window(limit))];
                    parameters(policies.bare_item(name), told);
                    let told = [("r", Some(limit.remaining)), ("t", Some(seconds(limit.reset_after)))];
                    parameters(limits.bare_item(name), told);
                }
                append(headers, &POLICY, policies);
                append(headers, &LIMIT, limits);
            }
        }
    }
}

fn parameters<const N: usize>(item: sfv::ParameterSerializer<&mut String>, named: [(&str, Option<u64>); N]) {
    named.into_iter().fold(item, |item, (name, value)| match (KeyRef::from_str(name), value) {
        (Ok(name), Some(value)) => item.parameter(name, integer(value)),
        _ => item,
    });
}

/// Added to what other layers say: the fields are lists.
fn append(headers: &mut HeaderMap, name: &HeaderName, list: ListSerializer<String>) {
    if let Some(value) = list.finish().and_then(|list| HeaderValue::try_from(list).ok()) {
        headers.append(name, value);
    }
}

/// The largest that a structured field can say, where it is more.
fn integer(value: u64) -> Integer {
    i64::try_from(value).ok().and_then(|value| Integer::try_from(value).ok()).unwrap_or(Integer::MAX)
}

/// Whole seconds, rounded up, so that nobody who waits for as long comes too early.
pub(super) fn seconds(span: Duration) -> u64 {
    span.as_secs() + u64::from(span.subsec_nanos() > 0)
}
