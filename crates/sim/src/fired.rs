//! Which faults there are, and how often each struck. A fault that never strikes proves nothing.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};

/// What can go wrong in a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Fault {
    MessageLost,
    MessageDelayed,
    MessageTwice,
    StreamBroken,
    CutOneWay,
    CutTwoWay,
    Killed,
    AllKilled,
    PowerLost,
    Paused,
    ClockStepped,
    ClientGone,
    SlowDisk,
    SnapshotTaken,
    LogPurged,
    SnapshotInstalled,
    LargeSnapshotInstalled,
    AnswerLost,
    CheckRetried,
    PolicyChanged,
    ClientDied,
    CallerGone,
    DeniedElsewhere,
    DenialRemembered,
    DenialUnlogged,
}

impl Fault {
    /// All of them.
    pub const ALL: [Fault; 25] = [
        Fault::MessageLost,
        Fault::MessageDelayed,
        Fault::MessageTwice,
        Fault::StreamBroken,
        Fault::CutOneWay,
        Fault::CutTwoWay,
        Fault::Killed,
        Fault::AllKilled,
        Fault::PowerLost,
        Fault::Paused,
        Fault::ClockStepped,
        Fault::ClientGone,
        Fault::SlowDisk,
        Fault::SnapshotTaken,
        Fault::LogPurged,
        Fault::SnapshotInstalled,
        Fault::LargeSnapshotInstalled,
        Fault::AnswerLost,
        Fault::CheckRetried,
        Fault::PolicyChanged,
        Fault::ClientDied,
        Fault::CallerGone,
        Fault::DeniedElsewhere,
        Fault::DenialRemembered,
        Fault::DenialUnlogged,
    ];
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = format!("{self:?}");
        let words = name.char_indices().map(|(at, letter)| match letter.is_uppercase() && at > 0 {
            true => format!(" {}", letter.to_lowercase()),
            false => letter.to_lowercase().to_string(),
        });
        words.collect::<String>().fmt(f)
    }
}

/// How often each struck. Clones count together.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Fired(Arc<Mutex<BTreeMap<Fault, u64>>>);

impl Fired {
    /// It struck.
    pub fn count(&self, fault: Fault) {
        self.add(fault, 1);
    }

    /// It struck so often.
    pub fn add(&self, fault: Fault, times: u64) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(fault).or_default() += times;
    }

    /// How often that one struck.
    pub fn times(&self, fault: Fault) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&fault).copied().unwrap_or(0)
    }

    /// How often each struck, those that never did included.
    pub fn all(&self) -> Vec<(Fault, u64)> {
        Fault::ALL.into_iter().map(|fault| (fault, self.times(fault))).collect()
    }

    /// Takes another's counts in.
    pub fn merge(&self, other: &Fired) {
        other.all().into_iter().for_each(|(fault, times)| self.add(fault, times));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_is_listed_and_named() {
        assert_eq!(Fault::LargeSnapshotInstalled.to_string(), "large snapshot installed");
        let fired = Fired::default();
        fired.count(Fault::Killed);
        assert_eq!(fired.all().iter().map(|(_, times)| times).sum::<u64>(), 1);
    }
}
