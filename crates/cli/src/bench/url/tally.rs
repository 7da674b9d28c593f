//! What came of the requests.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;

use super::{Answer, Wait};
use crate::bench::tally::latencies;

/// Counts of one run.
#[derive(Debug)]
pub struct Tally {
    /// Answers by status.
    pub statuses: BTreeMap<u16, u64>,
    /// Requests without an answer, by the kind of failure.
    pub failures: BTreeMap<&'static str, u64>,
    /// Nanoseconds of every request that was answered.
    pub latency: Histogram<u64>,
    /// Refusals (429 and 503) without a `Retry-After`.
    pub without_wait: u64,
    /// Refusals whose `Retry-After` is not a number of seconds, 1 or more.
    pub unreadable: u64,
    /// Asked again after the wait: held if granted.
    pub on_time: Probes,
    /// Asked again before the wait's last second: held if refused still.
    pub early: Probes,
    /// Waits that were longer than the run.
    pub cut_short: u64,
}

/// How often a wait held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Probes {
    /// It was as it had to be.
    pub held: u64,
    /// It was not.
    pub broken: u64,
}

/// One look at a wait.
#[derive(Clone, Copy, Debug)]
pub struct Probe {
    /// Whether it was as it had to be.
    pub held: bool,
    /// Whether there was an answer at all; else it says nothing.
    pub answered: bool,
}

impl Default for Tally {
    fn default() -> Self {
        Tally {
            statuses: BTreeMap::new(),
            failures: BTreeMap::new(),
            latency: latencies(),
            without_wait: 0,
            unreadable: 0,
            on_time: Probes::default(),
            early: Probes::default(),
            cut_short: 0,
        }
    }
}

impl Probes {
    pub(super) fn add(&mut self, probe: Probe) {
        if probe.answered {
            *if probe.held { &mut self.held } else { &mut self.broken } += 1;
        }
    }
}

impl Tally {
    pub(super) fn add(&mut self, answer: Result<Answer, &'static str>, took: Duration) {
        let answer = match answer {
            Ok(answer) => answer,
            Err(kind) => return *self.failures.entry(kind).or_default() += 1,
        };
        *self.statuses.entry(answer.status).or_default() += 1;
        self.latency.saturating_record(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX).max(1));
        if answer.is_refusal() {
            match answer.retry_after {
                None => self.without_wait += 1,
                Some(Wait::Unreadable | Wait::Seconds(0)) => self.unreadable += 1,
                Some(Wait::Seconds(_)) => {}
            }
        }
    }

    /// Requests with an answer.
    pub fn answered(&self) -> u64 {
        self.statuses.values().sum()
    }

    /// Requests without one.
    pub fn failed(&self) -> u64 {
        self.failures.values().sum()
    }
}
