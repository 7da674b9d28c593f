//! Says that answers are degraded, at most once a second for each policy, and how many there were.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use quorate_core::PolicyId;
use tokio::time::Instant;

use crate::decision::DecidedBy;
use crate::error::Error;
use crate::throttle::Throttle;

/// What was last said of which policy.
#[derive(Debug, Default)]
pub(super) struct Log(Mutex<HashMap<PolicyId, Throttle>>);

impl Log {
    pub(super) fn note(&self, policy: PolicyId, name: &Arc<str>, by: DecidedBy, error: &Error, now: Instant) {
        if let Some(answers) = self.count(policy, now) {
            let reason = error.kind().as_str();
            tracing::warn!(policy = &**name, by = by.as_str(), answers, reason, %error, "degraded: the cluster could not be asked in time");
        }
    }

    /// Counts one more; how many there were since it was last said, if it is to be said now.
    fn count(&self, policy: PolicyId, now: Instant) -> Option<u64> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= quorate_core::caps::POLICIES && !all.contains_key(&policy) {
            // Most of them are of policies that were taken away.
            all.clear();
        }
        all.entry(policy).or_default().pass(now).map(|held_back| held_back + 1)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_policy_is_spoken_of_once_a_second() {
        let (log, start) = (Log::default(), Instant::now());
        assert_eq!(log.count(PolicyId(1), start), Some(1));
        assert_eq!(log.count(PolicyId(2), start), Some(1), "each for itself");
        for ms in [0, 500, 999] {
            assert_eq!(log.count(PolicyId(1), start + Duration::from_millis(ms)), None);
        }
        assert_eq!(log.count(PolicyId(1), start + Duration::from_secs(1)), Some(4));
        for policy in 0..10_000 {
            log.count(PolicyId(policy), start);
        }
        assert!(log.0.lock().unwrap().len() <= quorate_core::caps::POLICIES);
    }
}
