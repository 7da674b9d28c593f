//! What operators see: one function for each thing that is worth counting, and the only place that knows the names of the metrics.
//!
//! Metrics go through the `metrics` facade if the feature of that name is on, to whatever recorder the service has installed;
//! without the feature these functions are empty. Labels are bounded: names of policies in force, and words of this crate; never a
//! key.
//!
//! | metric | labels | counts |
//! |---|---|---|
//! | `quorate_client_decisions_total` | policy, outcome, by | limits decided: `allowed`, `denied`, `shadow_denied` |
//! | `quorate_client_errors_total` | policy, kind | limits of checks that ended without a decision |
//! | `quorate_client_check_seconds` | by | how long checks took, with a decision (`cluster`, `local`, `fail_open`) or without (`none`) |
//! | `quorate_client_degraded_total` | policy, by, reason | limits granted or decided without the cluster |
//! | `quorate_client_frames_sent_again_total` | | frames sent once more because no answer came |
//! | `quorate_client_breakers_open` | | shards that are not asked now |
//! | `quorate_client_breaker_changes_total` | to | breakers that opened or closed |
//! | `quorate_client_ceiling_refusals_total` | | calls refused by a ceiling of this process |
//! | `quorate_client_denials_remembered_total` | policy | limits that denied from memory |

use std::sync::Arc;

use crate::decision::{DecidedBy, Decision};
use crate::error::{Error, ErrorKind};
use crate::question::Question;

/// When a check began; nothing where nobody measures.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Begun(#[cfg(feature = "metrics")] tokio::time::Instant);

pub(crate) fn begin() -> Begun {
    Begun(
        #[cfg(feature = "metrics")]
        tokio::time::Instant::now(),
    )
}

/// The span of a check, of level trace: one load where nobody listens.
pub(crate) fn span(question: &Question<'_>) -> tracing::Span {
    tracing::trace_span!(
        "quorate_check",
        policy = question.limits.first().map(|limit| limit.policy),
        limits = question.limits.len(),
        peek = question.peek
    )
}

/// A check has ended.
pub(crate) fn ended(begun: Begun, question: &Question<'_>, result: &Result<Decision, Error>) {
    match result {
        Ok(decision) => {
            tracing::trace!(allowed = decision.allowed, by = decision.decided_by.as_str(), "decided");
        }
        Err(error) => tracing::trace!(%error, "not decided"),
    }
    counted::ended(begun, question, result);
}

/// Nobody decided that limit but this process.
pub(crate) fn degraded(policy: &Arc<str>, by: DecidedBy, reason: ErrorKind) {
    counted::degraded(policy, by, reason);
}

/// A denial was answered from memory.
pub(crate) fn denial_remembered(denial: &Decision) {
    counted::denial_remembered(denial);
}

/// A frame goes out that went out before.
pub(crate) fn sent_again() {
    counted::sent_again();
}

/// A shard's breaker has opened, or closed.
pub(crate) fn breaker(open: bool) {
    counted::breaker(open);
}

/// A call was refused by a ceiling of this process.
pub(crate) fn refused_by_ceiling() {
    counted::refused_by_ceiling();
}

#[cfg(feature = "metrics")]
mod counted {
    use super::*;

    const DECISIONS: &str = "quorate_client_decisions_total";

    pub(super) fn ended(begun: Begun, question: &Question<'_>, result: &Result<Decision, Error>) {
        let by = match result {
            Ok(decision) => decided(question, decision),
            Err(error) => {
                failed(question, error.kind());
                "none"
            }
        };
        metrics::histogram!("quorate_client_check_seconds", "by" => by).record(begun.0.elapsed().as_secs_f64());
    }

    fn decided(question: &Question<'_>, decision: &Decision) -> &'static str {
        let by = decision.decided_by.as_str();
        if decision.decided_by == DecidedBy::FailOpen {
            for (_, policy) in question.limits.iter().filter_map(|limit| limit.resolved.as_ref()) {
                metrics::counter!(DECISIONS, "policy" => policy.clone(), "outcome" => "allowed", "by" => by)
                    .increment(1);
            }
        }
        for limit in &decision.limits {
            let outcome = match (limit.allowed, limit.shadow) {
                (true, _) => "allowed",
                (false, false) => "denied",
                (false, true) => "shadow_denied",
            };
            metrics::counter!(DECISIONS, "policy" => limit.policy.clone(), "outcome" => outcome, "by" => by)
                .increment(1);
        }
        by
    }

    fn failed(question: &Question<'_>, kind: ErrorKind) {
        // A name that is not in force is nobody's label.
        for (_, policy) in question.limits.iter().filter_map(|limit| limit.resolved.as_ref()) {
            metrics::counter!("quorate_client_errors_total", "policy" => policy.clone(), "kind" => kind.as_str())
                .increment(1);
        }
    }

    pub(super) fn degraded(policy: &Arc<str>, by: DecidedBy, reason: ErrorKind) {
        metrics::counter!(
            "quorate_client_degraded_total",
            "policy" => policy.clone(), "by" => by.as_str(), "reason" => reason.as_str()
        )
        .increment(1);
    }

    pub(super) fn denial_remembered(denial: &Decision) {
        for limit in denial.limits.iter().filter(|limit| !limit.allowed) {
            metrics::counter!("quorate_client_denials_remembered_total", "policy" => limit.policy.clone()).increment(1);
        }
    }

    pub(super) fn sent_again() {
        metrics::counter!("quorate_client_frames_sent_again_total").increment(1);
    }

    pub(super) fn breaker(open: bool) {
        let (to, by) = if open { ("open", 1.0) } else { ("closed", -1.0) };
        metrics::gauge!("quorate_client_breakers_open").increment(by);
        metrics::counter!("quorate_client_breaker_changes_total", "to" => to).increment(1);
    }

    pub(super) fn refused_by_ceiling() {
        metrics::counter!("quorate_client_ceiling_refusals_total").increment(1);
    }
}

#[cfg(not(feature = "metrics"))]
mod counted {
    use super::*;

    pub(super) fn ended(_: Begun, _: &Question<'_>, _: &Result<Decision, Error>) {}
    pub(super) fn degraded(_: &Arc<str>, _: DecidedBy, _: ErrorKind) {}
    pub(super) fn denial_remembered(_: &Decision) {}
    pub(super) fn sent_again() {}
    pub(super) fn breaker(_: bool) {}
    pub(super) fn refused_by_ceiling() {}
}
