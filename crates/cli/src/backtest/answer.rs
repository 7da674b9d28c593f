//! Answers as lines of JSON, one for each event of a trace.

use quorate_core::LimitAnswer;
use serde::Serialize;

use super::replay::Answered;

#[derive(Serialize)]
struct One<'a> {
    policy: &'a str,
    key: &'a str,
    allowed: bool,
    limit: u64,
    remaining: u64,
    reset_after_us: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_us: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delay_us: Option<i64>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    shadow_denied: bool,
}

#[derive(Serialize)]
struct Several<'a> {
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    limits: Option<Vec<One<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_us: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delay_us: Option<i64>,
}

fn one<'a>(answered: &'a Answered, answer: &LimitAnswer) -> One<'a> {
    let limit = &answered.limits[usize::from(answer.ordinal)];
    One {
        policy: &limit.policy,
        key: &limit.key,
        allowed: answer.allowed,
        limit: answer.limit,
        remaining: answer.remaining,
        reset_after_us: answer.reset_after.0,
        retry_after_us: answer.retry_after.map(|span| span.0),
        delay_us: answer.delay.map(|span| span.0),
        shadow_denied: false,
    }
}

/// The answer to a check: of several limits as a list, of one by itself; a disabled policy asked alone only grants.
pub(super) fn line(answered: &Answered, list: bool) -> serde_json::Result<String> {
    let decision = &answered.decision;
    if let ([answer], false) = (decision.limits.as_slice(), list) {
        let alone = One { allowed: decision.allowed, shadow_denied: decision.shadow_denied, ..one(answered, answer) };
        return serde_json::to_string(&alone);
    }
    serde_json::to_string(&Several {
        allowed: decision.allowed,
        limits: list.then(|| decision.limits.iter().map(|answer| one(answered, answer)).collect()),
        retry_after_us: decision.retry_after.map(|span| span.0),
        delay_us: decision.delay.map(|span| span.0),
    })
}

/// The answer to a policy put in force.
pub(super) fn applied(warning: Option<&String>) -> serde_json::Result<String> {
    #[derive(Serialize)]
    struct Applied<'a> {
        applied: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        warning: Option<&'a String>,
    }
    serde_json::to_string(&Applied { applied: true, warning })
}

/// The answer to a refund: false where that charge had been refunded before.
pub(super) fn refunded(refunded: bool) -> serde_json::Result<String> {
    #[derive(Serialize)]
    struct Refunded {
        refunded: bool,
    }
    serde_json::to_string(&Refunded { refunded })
}
