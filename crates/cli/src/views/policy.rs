//! Policies, and what applying them changed.

use std::collections::BTreeMap;

use quorate_core::{Algorithm, Mode, OnFull, OnUnavailable, Policy, visible};
use serde::Serialize;

use crate::human::count;
use crate::output::{View, columns};
use crate::views::or_dash;

/// A policy set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PolicySetView {
    /// The set's number.
    pub version: u64,
    /// By name.
    pub policies: Vec<PolicyView>,
}

/// One policy. Only the fields of its algorithm are there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[allow(missing_docs)]
pub struct PolicyView {
    pub name: String,
    pub id: u32,
    pub algorithm: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window_us: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_units: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_period_us: Option<i64>,
    pub mode: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_cost: Option<u64>,
    pub on_unavailable: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share_ppm: Option<u32>,
    pub on_full: &'static str,
    /// Denials that were reported as wrong; only where the nodes were asked for them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub false_positives: Option<u64>,
    pub description: String,
    /// The algorithm's numbers in words.
    #[serde(skip)]
    pub summary: String,
}

impl PolicySetView {
    /// A view of these policies, by name.
    pub fn new<'a>(version: u64, policies: impl IntoIterator<Item = &'a Policy>) -> PolicySetView {
        let mut policies: Vec<PolicyView> = policies.into_iter().map(PolicyView::from).collect();
        policies.sort_by(|a, b| a.name.cmp(&b.name));
        PolicySetView { version, policies }
    }

    /// With the denials of each that were reported as wrong.
    pub fn reported(mut self, reports: &BTreeMap<String, u64>) -> PolicySetView {
        for policy in &mut self.policies {
            policy.false_positives = Some(reports.get(&policy.name).copied().unwrap_or(0));
        }
        self
    }
}

impl From<&Policy> for PolicyView {
    fn from(policy: &Policy) -> Self {
        let mut view = PolicyView {
            name: policy.name.clone(),
            id: policy.id.0,
            algorithm: policy.algorithm.name(),
            mode: match policy.mode {
                Mode::Enforce => "enforce",
                Mode::Shadow => "shadow",
                Mode::Disabled => "disabled",
            },
            max_cost: policy.max_cost.map(|cost| cost.get()),
            on_unavailable: match policy.on_unavailable {
                OnUnavailable::FailOpen => "fail_open",
                OnUnavailable::FailClosed => "fail_closed",
                OnUnavailable::Local { .. } => "local",
            },
            share_ppm: if let OnUnavailable::Local { share_ppm } = policy.on_unavailable { share_ppm } else { None },
            on_full: match policy.on_full {
                OnFull::Refuse => "refuse",
                OnFull::Evict => "evict",
            },
            description: policy.description.clone(),
            ..PolicyView::default()
        };
        match policy.algorithm {
            Algorithm::FixedWindow { limit, window }
            | Algorithm::SlidingLog { limit, window }
            | Algorithm::SlidingCounter { limit, window } => {
                (view.limit, view.window_us) = (Some(limit), Some(window.0));
                view.summary = format!("{} in {window}", count(limit));
            }
            Algorithm::TokenBucket { capacity, refill } => {
                (view.capacity, view.rate_units, view.rate_period_us) =
                    (Some(capacity), Some(refill.units), Some(refill.period.0));
                view.summary = format!("{} filled at {refill}", count(capacity));
            }
            Algorithm::LeakyBucket { queue, rate } => {
                (view.queue, view.rate_units, view.rate_period_us) =
                    (Some(queue), Some(rate.units), Some(rate.period.0));
                view.summary = format!("{rate}, {} waiting", count(queue));
            }
        }
        view
    }
}

impl View for PolicySetView {
    fn table(&self) -> String {
        let header = ["NAME", "ALGORITHM", "ALLOWS", "MODE", "MAX COST", "IF UNAVAILABLE", "IF FULL", "DESCRIPTION"];
        let rows = self.policies.iter().map(|policy| {
            [
                policy.name.clone(),
                policy.algorithm.into(),
                policy.summary.clone(),
                policy.mode.into(),
                or_dash(policy.max_cost.map(count)),
                policy.on_unavailable.into(),
                policy.on_full.into(),
                policy.description.clone(),
            ]
        });
        columns(header, &["MAX COST"], rows.collect())
    }
}

/// What applying or removing policies changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ChangesView {
    /// The set in force afterwards; in a dry run, before.
    pub version: u64,
    /// Nothing was changed, only asked.
    pub dry_run: bool,
    /// Each policy named, and those pruned.
    pub changes: Vec<ChangeView>,
    /// What the operator ought to know.
    pub warnings: Vec<String>,
}

/// What happens to one policy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ChangeView {
    /// The policy.
    pub name: String,
    /// `added`, `changed`, `removed` or `unchanged`.
    pub change: &'static str,
}

impl View for ChangesView {
    fn table(&self) -> String {
        let width = self.changes.iter().map(|change| change.change.len()).max().unwrap_or(0);
        let lines: Vec<String> = self
            .changes
            .iter()
            .map(|change| format!("{:width$}  {}\n", change.change, visible::line(&change.name)))
            .collect();
        let moved = self.changes.iter().any(|change| change.change != "unchanged");
        let last = match (self.dry_run, moved) {
            (true, true) => format!("nothing was changed: this was a dry run against policy set {}\n", self.version),
            (true, false) | (false, false) => format!("nothing to change: policy set {} is as asked\n", self.version),
            (false, true) => format!("policy set {} is in force on every shard\n", self.version),
        };
        format!("{}{last}", lines.concat())
    }
}

/// A policy file that was looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ValidView {
    /// The file.
    pub file: String,
    /// Its policies.
    pub policies: Vec<PolicyView>,
}

impl View for ValidView {
    fn table(&self) -> String {
        let policies = PolicySetView { version: 0, policies: self.policies.clone() }.table();
        let file = visible::line(&self.file);
        match self.policies.len() {
            0 => format!("{file}: no policies\n"),
            1 => format!("{policies}{file}: 1 policy, valid\n"),
            more => format!("{policies}{file}: {more} policies, all valid\n"),
        }
    }
}

#[cfg(test)]
mod tests {
    use quorate_core::{Cost, Rate, Span};

    use super::*;

    fn policies() -> [Policy; 2] {
        let mut user = Policy::new(
            "per-user",
            Algorithm::TokenBucket { capacity: 2000, refill: Rate { units: 100, period: Span(60_000_000) } },
        );
        user.max_cost = Cost::new(50);
        user.on_unavailable = OnUnavailable::Local { share_ppm: Some(100_000) };
        let mut gate =
            Policy::new("gate", Algorithm::LeakyBucket { queue: 20, rate: Rate { units: 5, period: Span(1_000_000) } });
        gate.description = "One each 200 ms".into();
        [user, gate]
    }

    #[test]
    fn policies_by_name() {
        let view = PolicySetView::new(3, &policies());
        assert_eq!(
            view.table(),
            "\
NAME      ALGORITHM     ALLOWS                 MODE     MAX COST  IF UNAVAILABLE  IF FULL  DESCRIPTION
gate      leaky_bucket  5/s, 20 waiting        enforce         -  fail_closed     refuse   One each 200 ms
per-user  token_bucket  2,000 filled at 100/m  enforce        50  local           refuse
"
        );
        assert_eq!(
            serde_json::to_string(&view.policies[1]).unwrap(),
            r#"{"name":"per-user","id":0,"algorithm":"token_bucket","capacity":2000,"rate_units":100,"rate_period_us":60000000,"mode":"enforce","max_cost":50,"on_unavailable":"local","share_ppm":100000,"on_full":"refuse","description":""}"#
        );
    }

    #[test]
    fn changes() {
        let change = |name: &str, change| ChangeView { name: name.into(), change };
        let mut view = ChangesView {
            version: 4,
            changes: vec![change("a", "added"), change("b", "unchanged")],
            ..ChangesView::default()
        };
        assert_eq!(view.table(), "added      a\nunchanged  b\npolicy set 4 is in force on every shard\n");
        view.dry_run = true;
        assert_eq!(
            view.table(),
            "added      a\nunchanged  b\nnothing was changed: this was a dry run against policy set 4\n"
        );
        view.changes.remove(0);
        assert_eq!(view.table(), "unchanged  b\nnothing to change: policy set 4 is as asked\n");
    }
}
