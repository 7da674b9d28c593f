//! What a benchmark measured.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::bench::tally::Tally;
use crate::human::{count, span};
use crate::output::View;

/// The report.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[allow(missing_docs)]
pub struct BenchView {
    pub policy: String,
    pub callers: usize,
    pub batch: usize,
    pub keys: u64,
    pub distribution: String,
    pub cost: u64,
    /// Checks a second that were asked for; absent: as many as the callers can.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_per_second: Option<u64>,
    pub elapsed_us: u64,
    pub decisions: u64,
    pub decisions_per_second: u64,
    pub granted: u64,
    pub denied: u64,
    pub failed: u64,
    /// By the kind of error.
    pub failures: BTreeMap<&'static str, u64>,
    pub latency_us: LatencyView,
    /// CPU time of this tool itself, which includes the client crate.
    pub client_cpu_us: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_cpu_ns_per_decision: Option<u64>,
    /// CPU time of the processes named by `--cpu-of`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub other_cpu_us: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub other_cpu_ns_per_decision: Option<u64>,
}

/// Latency in microseconds, rounded up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[allow(missing_docs)]
pub struct LatencyView {
    pub p50: u64,
    pub p90: u64,
    pub p99: u64,
    pub p99_9: u64,
    pub max: u64,
}

impl LatencyView {
    /// What a histogram of nanoseconds holds.
    pub fn of(nanos: &Histogram<u64>) -> LatencyView {
        let quantile = |q: f64| nanos.value_at_quantile(q).div_ceil(1000);
        LatencyView {
            p50: quantile(0.5),
            p90: quantile(0.9),
            p99: quantile(0.99),
            p99_9: quantile(0.999),
            max: nanos.max().div_ceil(1000),
        }
    }

    /// On one line, for people.
    pub fn line(&self) -> String {
        let [p50, p90, p99, p99_9, max] = [self.p50, self.p90, self.p99, self.p99_9, self.max].map(span);
        format!("p50 {p50}  p90 {p90}  p99 {p99}  p99.9 {p99_9}  max {max}")
    }
}

impl BenchView {
    /// Fills in what was measured.
    #[must_use]
    pub fn measured(
        mut self,
        tally: &Tally,
        elapsed: Duration,
        own_cpu: Duration,
        other_cpu: Option<Duration>,
    ) -> BenchView {
        let micros = |duration: Duration| u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        let decisions = tally.decided();
        let per_decision = |cpu: Duration| (u64::try_from(cpu.as_nanos()).unwrap_or(u64::MAX)).checked_div(decisions);
        self.elapsed_us = micros(elapsed);
        self.decisions = decisions;
        self.decisions_per_second = (u128::from(decisions) * 1_000_000 / elapsed.as_micros().max(1)) as u64;
        (self.granted, self.denied, self.failed) = (tally.granted, tally.denied, tally.failed());
        self.failures = tally.failures.clone();
        self.latency_us = LatencyView::of(&tally.latency);
        self.client_cpu_us = micros(own_cpu);
        self.client_cpu_ns_per_decision = per_decision(own_cpu);
        self.other_cpu_us = other_cpu.map(micros);
        self.other_cpu_ns_per_decision = other_cpu.and_then(per_decision);
        self
    }
}

impl View for BenchView {
    fn table(&self) -> String {
        let failures: Vec<String> =
            self.failures.iter().map(|(kind, number)| format!("{kind} {}", count(*number))).collect();
        let failures = if failures.is_empty() { String::new() } else { format!(" ({})", failures.join(", ")) };
        let cpu = |name: &str, ns: Option<u64>| {
            ns.map_or(String::new(), |ns| format!("CPU a decision  {name} {}.{:02}µs\n", ns / 1000, ns % 1000 / 10))
        };
        format!(
            "decisions/s     {}  ({} in {})\nanswers         granted {}, denied {}, failed {}{failures}\n\
             latency         {}\n{}{}",
            count(self.decisions_per_second),
            count(self.decisions),
            span(self.elapsed_us / 1000 * 1000),
            count(self.granted),
            count(self.denied),
            count(self.failed),
            self.latency_us.line(),
            cpu("this tool", self.client_cpu_ns_per_decision),
            cpu("the others", self.other_cpu_ns_per_decision),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::tally::Result;

    #[test]
    fn a_report() {
        let mut tally = Tally::default();
        for micros in 1..=1000 {
            tally.add(if micros % 4 == 0 { Result::Denied } else { Result::Granted }, Duration::from_micros(micros));
        }
        tally.add(Result::Failed("deadline"), Duration::from_secs(1));
        let cpu = Duration::from_micros(3250);
        let view = BenchView::default().measured(&tally, Duration::from_millis(2000), cpu, Some(cpu * 2));
        assert_eq!(
            view.table(),
            "\
decisions/s     500  (1,000 in 2s)
answers         granted 750, denied 250, failed 1 (deadline 1)
latency         p50 501µs  p90 901µs  p99 991µs  p99.9 1ms  max 1.01ms
CPU a decision  this tool 3.25µs
CPU a decision  the others 6.50µs
"
        );
    }

    #[test]
    fn nothing_decided_divides_by_nothing() {
        let view = BenchView::default().measured(&Tally::default(), Duration::ZERO, Duration::ZERO, None);
        assert_eq!(view.client_cpu_ns_per_decision, None);
        assert!(view.table().starts_with("decisions/s     0  (0 in 0s)"));
    }
}
