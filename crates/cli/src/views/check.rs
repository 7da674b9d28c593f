//! A check's answer.

use serde::Serialize;

use crate::human::{count, span, time};
use crate::output::{View, columns};
use crate::views::or_dash;

/// The answer to a check or a peek.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CheckView {
    /// Whether the request may go ahead.
    pub allowed: bool,
    /// A single policy in shadow mode would have denied it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub shadow_denied: bool,
    /// The cluster did not decide this exactly; `docs/semantics.md` says when.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub degraded: bool,
    /// Whether nothing was charged because it was only asked.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub peek: bool,
    /// On a denial: the wait after which it would be granted; absent where it never would be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_us: Option<u64>,
    /// Of a leaky bucket: how long to hold the request back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay_us: Option<u64>,
    /// Each limit's own verdict.
    pub limits: Vec<LimitView>,
    /// The policy set that decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy_version: Option<u64>,
    /// Where the decision stands in its shard's log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receipt: Option<ReceiptView>,
    /// Where each shard's part of it stands, if there were several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub receipts: Vec<ReceiptView>,
}

/// One limit's verdict.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LimitView {
    /// The policy.
    pub policy: String,
    /// The key under it.
    pub key: String,
    /// Whether this limit alone would grant it.
    pub allowed: bool,
    /// Whether it was charged.
    pub charged: bool,
    /// Whether the policy denies nothing.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub shadow: bool,
    /// What was asked.
    pub cost: u64,
    /// What an idle key could be granted at once.
    pub limit: u64,
    /// What would be granted now.
    pub remaining: u64,
    /// The span after which the key is as good as new.
    pub reset_after_us: u64,
    /// On a denial, the wait; absent where it never would be granted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_us: Option<u64>,
    /// Of a leaky bucket: how long to hold the request back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay_us: Option<u64>,
}

/// Where a decision stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ReceiptView {
    /// The shard.
    pub shard: u32,
    /// The leader's term.
    pub term: u64,
    /// The log entry.
    pub index: u64,
    /// The command in the entry.
    pub place: u32,
    /// Logical time, microseconds since the Unix epoch.
    pub stamp_us: i64,
}

impl CheckView {
    fn headline(&self) -> String {
        let verdict = match (self.allowed, self.peek) {
            (true, false) => "allowed",
            (true, true) => "would be allowed",
            (false, false) => "denied",
            (false, true) => "would be denied",
        };
        let wait = match (self.allowed, self.retry_after_us, self.delay_us) {
            (false, Some(us), _) => format!("; retry after {}", span(us)),
            (false, None, _) => "; a retry would not help".into(),
            (true, _, Some(us)) if us > 0 => format!("; go ahead after {}", span(us)),
            _ => String::new(),
        };
        let shadow = if self.shadow_denied { " (in shadow mode; enforced, it would be denied)" } else { "" };
        let degraded = if self.degraded { " (degraded)" } else { "" };
        format!("{verdict}{wait}{shadow}{degraded}\n")
    }
}

impl View for CheckView {
    fn table(&self) -> String {
        let rows = self.limits.iter().map(LimitView::row).collect();
        let header = ["POLICY", "KEY", "VERDICT", "COST", "LIMIT", "REMAINING", "RETRY AFTER", "RESET AFTER", "DELAY"];
        let right = ["COST", "LIMIT", "REMAINING", "RETRY AFTER", "RESET AFTER", "DELAY"];
        let limits = match (self.limits.is_empty(), self.degraded || self.receipts.len() > 1) {
            (false, _) => columns(header, &right, rows),
            (true, false) => "no limit applies: the policy is disabled\n".to_owned(),
            (true, true) => String::new(),
        };
        let only = if self.receipts.is_empty() { self.receipt.as_slice() } else { &[] };
        let receipts: String = only.iter().chain(&self.receipts).map(ReceiptView::line).collect();
        format!("{}{limits}{receipts}", self.headline())
    }
}

impl ReceiptView {
    fn line(&self) -> String {
        let ReceiptView { shard, term, index, place, stamp_us } = self;
        format!("decided by shard {shard}, term {term}, index {index}, place {place}, at {}\n", time(*stamp_us))
    }
}

impl LimitView {
    fn row(&self) -> [String; 9] {
        let verdict = match (self.allowed, self.shadow) {
            (true, false) => "allowed",
            (false, false) => "denied",
            (true, true) => "allowed (shadow)",
            (false, true) => "denied (shadow)",
        };
        [
            self.policy.clone(),
            self.key.clone(),
            verdict.into(),
            count(self.cost),
            count(self.limit),
            count(self.remaining),
            or_dash(self.retry_after_us.map(span)),
            span(self.reset_after_us),
            or_dash(self.delay_us.map(span)),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(policy: &str, allowed: bool) -> LimitView {
        LimitView {
            policy: policy.into(),
            key: "alice".into(),
            allowed,
            charged: allowed,
            cost: 3,
            limit: 1_000,
            remaining: if allowed { 997 } else { 0 },
            reset_after_us: 1_800_000,
            retry_after_us: (!allowed).then_some(600_000),
            ..LimitView::default()
        }
    }

    #[test]
    fn an_allowed_check() {
        let view = CheckView {
            allowed: true,
            limits: vec![limit("per-user", true)],
            policy_version: Some(2),
            receipt: Some(ReceiptView { shard: 4, term: 2, index: 57, place: 0, stamp_us: 1_796_000_000_250_000 }),
            ..CheckView::default()
        };
        assert_eq!(
            view.table(),
            "\
allowed
POLICY    KEY    VERDICT  COST  LIMIT  REMAINING  RETRY AFTER  RESET AFTER  DELAY
per-user  alice  allowed     3  1,000        997            -         1.8s      -
decided by shard 4, term 2, index 57, place 0, at 2026-11-30 00:53:20.250000 UTC
"
        );
        assert_eq!(
            serde_json::to_string(&view).unwrap(),
            r#"{"allowed":true,"limits":[{"policy":"per-user","key":"alice","allowed":true,"charged":true,"cost":3,"limit":1000,"remaining":997,"reset_after_us":1800000}],"policy_version":2,"receipt":{"shard":4,"term":2,"index":57,"place":0,"stamp_us":1796000000250000}}"#
        );
    }

    #[test]
    fn a_denied_check_of_two_limits() {
        let view = CheckView {
            retry_after_us: Some(600_000),
            limits: vec![limit("per-user", true), limit("login", false)],
            ..CheckView::default()
        };
        assert_eq!(
            view.table(),
            "\
denied; retry after 600ms
POLICY    KEY    VERDICT  COST  LIMIT  REMAINING  RETRY AFTER  RESET AFTER  DELAY
per-user  alice  allowed     3  1,000        997            -         1.8s      -
login     alice  denied      3  1,000          0        600ms         1.8s      -
"
        );
    }

    #[test]
    fn a_check_of_several_shards_names_all_of_them() {
        let at = |shard| ReceiptView { shard, term: 2, index: 57, place: 0, stamp_us: 1_796_000_000_250_000 };
        let view =
            CheckView { allowed: true, receipt: Some(at(4)), receipts: vec![at(4), at(7)], ..CheckView::default() };
        assert_eq!(
            view.table(),
            "\
allowed
decided by shard 4, term 2, index 57, place 0, at 2026-11-30 00:53:20.250000 UTC
decided by shard 7, term 2, index 57, place 0, at 2026-11-30 00:53:20.250000 UTC
"
        );
        assert!(serde_json::to_string(&view).unwrap().contains(r#""receipts":[{"shard":4,"#));
    }

    #[test]
    fn a_check_that_no_limit_applies_to_says_so() {
        let view = CheckView { allowed: true, ..CheckView::default() };
        assert_eq!(view.table(), "allowed\nno limit applies: the policy is disabled\n");
    }

    #[test]
    fn headlines_say_what_to_do() {
        let never = CheckView::default();
        assert_eq!(never.headline(), "denied; a retry would not help\n");
        let wait = CheckView { allowed: true, delay_us: Some(200_000), ..CheckView::default() };
        assert_eq!(wait.headline(), "allowed; go ahead after 200ms\n");
        let shadow = CheckView { allowed: true, shadow_denied: true, degraded: true, ..CheckView::default() };
        assert_eq!(shadow.headline(), "allowed (in shadow mode; enforced, it would be denied) (degraded)\n");
        let peek = CheckView { peek: true, allowed: true, ..CheckView::default() };
        assert_eq!(peek.headline(), "would be allowed\n");
    }
}
