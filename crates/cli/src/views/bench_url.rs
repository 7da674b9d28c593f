//! What a run against a protected service measured.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use crate::bench::url::tally::{Probes, Tally};
use crate::human::{count, span};
use crate::output::View;
use crate::views::bench::LatencyView;

/// The report.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[allow(missing_docs)]
pub struct BenchUrlView {
    pub url: String,
    pub callers: usize,
    pub elapsed_us: u64,
    pub requests: u64,
    pub requests_per_second: u64,
    /// Answers by status.
    pub statuses: BTreeMap<u16, u64>,
    pub failed: u64,
    /// By the kind of failure.
    pub failures: BTreeMap<&'static str, u64>,
    pub latency_us: LatencyView,
    /// Refusals without a `Retry-After`.
    pub refused_without_retry_after: u64,
    /// Refusals whose `Retry-After` is not a number of seconds, 1 or more.
    pub retry_after_unreadable: u64,
    /// Asked again after `Retry-After`.
    pub on_time: ProbesView,
    /// Asked again before the last second of `Retry-After`.
    pub early: ProbesView,
    /// Waits that were longer than what was left of the run.
    pub waits_cut_short: u64,
}

/// How often a wait was true.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[allow(missing_docs)]
pub struct ProbesView {
    pub granted: u64,
    pub refused: u64,
}

impl BenchUrlView {
    /// Fills in what was measured.
    #[must_use]
    pub fn measured(mut self, tally: &Tally, elapsed: Duration) -> BenchUrlView {
        self.elapsed_us = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX);
        self.requests = tally.answered();
        self.requests_per_second = (u128::from(self.requests) * 1_000_000 / elapsed.as_micros().max(1)) as u64;
        (self.statuses, self.failures) = (tally.statuses.clone(), tally.failures.clone());
        self.failed = tally.failed();
        self.latency_us = LatencyView::of(&tally.latency);
        self.refused_without_retry_after = tally.without_wait;
        self.retry_after_unreadable = tally.unreadable;
        let Probes { held, broken } = tally.on_time;
        self.on_time = ProbesView { granted: held, refused: broken };
        let Probes { held, broken } = tally.early;
        self.early = ProbesView { granted: broken, refused: held };
        self.waits_cut_short = tally.cut_short;
        self
    }
}

impl View for BenchUrlView {
    fn table(&self) -> String {
        let listed = |pairs: Vec<(String, u64)>| {
            let pairs: Vec<_> = pairs.into_iter().map(|(name, number)| format!("{name} {}", count(number))).collect();
            if pairs.is_empty() { "none".to_owned() } else { pairs.join(", ") }
        };
        let statuses = listed(self.statuses.iter().map(|(status, number)| (status.to_string(), *number)).collect());
        let failures = listed(self.failures.iter().map(|(kind, number)| ((*kind).to_owned(), *number)).collect());
        let part = |held: u64, all: u64| format!("{} of {}", count(held), count(all));
        let on_time = part(self.on_time.granted, self.on_time.granted + self.on_time.refused);
        let early = part(self.early.refused, self.early.granted + self.early.refused);
        let mut text = format!(
            "requests/s      {}  ({} in {})\nstatuses        {statuses}\nfailed          {failures}\n\
             latency         {}\nRetry-After     after it, granted {on_time}; a second before, refused {early}\n",
            count(self.requests_per_second),
            count(self.requests),
            span(self.elapsed_us / 1000 * 1000),
            self.latency_us.line(),
        );
        for (number, what) in [
            (self.refused_without_retry_after, "refusals without it"),
            (self.retry_after_unreadable, "refusals where it is not a number of seconds, 1 or more"),
            (self.waits_cut_short, "waits longer than what was left of the run"),
        ] {
            if number > 0 {
                text += &format!("                {} {what}\n", count(number));
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report() {
        let mut tally = Tally { statuses: [(200, 1500), (429, 30)].into(), ..Tally::default() };
        (1..=1530).for_each(|micros| tally.latency.saturating_record(micros * 1000));
        tally.on_time = Probes { held: 28, broken: 1 };
        tally.early = Probes { held: 12, broken: 0 };
        (tally.without_wait, tally.cut_short) = (2, 1);
        let view = BenchUrlView::default().measured(&tally, Duration::from_secs(10));
        assert_eq!(
            view.table(),
            "\
requests/s      153  (1,530 in 10s)
statuses        200 1,500, 429 30
failed          none
latency         p50 766µs  p90 1.38ms  p99 1.52ms  p99.9 1.53ms  max 1.54ms
Retry-After     after it, granted 28 of 29; a second before, refused 12 of 12
                2 refusals without it
                1 waits longer than what was left of the run
"
        );
        let empty = BenchUrlView::default().measured(&Tally::default(), Duration::ZERO);
        assert!(empty.table().starts_with("requests/s      0  (0 in 0s)\nstatuses        none\n"));
    }
}
