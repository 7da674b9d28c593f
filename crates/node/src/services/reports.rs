//! Denials that callers say were wrong: counted by policy, told in the node's status, and gone with the process.
//!
//! Invariant: only policies in force are counted, so there are never more counters than policies.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use quorate_core::visible;
use quorate_proto::v1;
use tokio::time::Instant;
use tonic::Status;

use crate::caps;

/// What was reported to this node since it started.
#[derive(Debug, Default)]
pub struct Reports(Mutex<Told>);

#[derive(Debug, Default)]
struct Told {
    counts: BTreeMap<String, u64>,
    logged: Option<Instant>,
    unlogged: u64,
}

impl Reports {
    /// Takes a report in, of policies that are among those `in_force`.
    ///
    /// # Errors
    /// It names no policy, too many, or one that is not in force, or its note is too long; nothing is counted then.
    pub fn take(&self, report: &v1::FalsePositiveReport, in_force: &[v1::Policy]) -> Result<(), Status> {
        let most = quorate_core::caps::LIMITS_PER_CHECK;
        if report.policies.is_empty() || report.policies.len() > most {
            let named = report.policies.len();
            return Err(Status::invalid_argument(format!("a report names 1 to {most} policies, not {named}")));
        }
        if report.note.len() > caps::REPORT_NOTE {
            let (long, most) = (report.note.len(), caps::REPORT_NOTE);
            return Err(Status::invalid_argument(format!(
                "the note has {long} bytes; a report's note has at most {most}"
            )));
        }
        let is_known = |name: &&String| in_force.iter().any(|policy| policy.name == **name);
        if let Some(unknown) = report.policies.iter().find(|name| !is_known(name)) {
            let shown: String = unknown.chars().take(quorate_core::caps::POLICY_NAME_BYTES).collect();
            return Err(Status::not_found(format!("no policy is named {shown:?}, so nothing was counted")));
        }
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        told.counts.retain(|name, _| in_force.iter().any(|policy| policy.name == *name));
        for name in &report.policies {
            *told.counts.entry(name.clone()).or_default() += 1;
        }
        told.log(report, Instant::now());
        Ok(())
    }

    /// By policy; those never reported are not among them.
    pub fn counts(&self) -> BTreeMap<String, u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).counts.clone()
    }
}

impl Told {
    /// A note a second: whoever floods reports does not flood the log.
    fn log(&mut self, report: &v1::FalsePositiveReport, now: Instant) {
        if self.logged.is_some_and(|logged| now < logged + caps::REPORT_LOG) {
            self.unlogged += 1;
            return;
        }
        self.logged = Some(now);
        let receipt = report.receipt.unwrap_or_default();
        tracing::info!(
            policies = report.policies.join(" "),
            note = %visible::line(&report.note),
            shard = receipt.shard,
            term = receipt.term,
            index = receipt.index,
            place = receipt.place,
            not_logged_before = std::mem::take(&mut self.unlogged),
            "a caller says that this denial was wrong"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(policies: &[&str]) -> v1::FalsePositiveReport {
        let policies = policies.iter().map(|name| (*name).to_owned()).collect();
        v1::FalsePositiveReport { policies, ..Default::default() }
    }

    fn in_force(names: &[&str]) -> Vec<v1::Policy> {
        names.iter().map(|name| v1::Policy { name: (*name).to_owned(), ..Default::default() }).collect()
    }

    #[tokio::test]
    async fn reports_are_counted_by_policy_while_it_is_in_force() {
        let (reports, both) = (Reports::default(), in_force(&["a", "b"]));
        for named in [&["a"][..], &["a", "b"], &["a"]] {
            reports.take(&report(named), &both).unwrap();
        }
        assert_eq!(reports.counts(), BTreeMap::from([("a".to_owned(), 3), ("b".to_owned(), 1)]));
        reports.take(&report(&["b"]), &in_force(&["b"])).unwrap();
        assert_eq!(reports.counts(), BTreeMap::from([("b".to_owned(), 2)]), "a is gone");
    }

    #[tokio::test]
    async fn what_cannot_be_a_report_counts_nothing() {
        let (reports, known) = (Reports::default(), in_force(&["a"]));
        let many = vec!["a"; quorate_core::caps::LIMITS_PER_CHECK + 1];
        let long = v1::FalsePositiveReport { note: "x".repeat(caps::REPORT_NOTE + 1), ..report(&["a"]) };
        let cases = [
            (report(&[]), tonic::Code::InvalidArgument),
            (report(&many), tonic::Code::InvalidArgument),
            (long, tonic::Code::InvalidArgument),
            (report(&["a", "unknown"]), tonic::Code::NotFound),
        ];
        for (report, code) in cases {
            assert_eq!(reports.take(&report, &known).unwrap_err().code(), code);
        }
        assert_eq!(reports.counts(), BTreeMap::new());
    }
}
