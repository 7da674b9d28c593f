//! Faults that are planted on purpose, to see that the simulator finds them. Built only with the feature `planted`, and at
//! work only on a thread that asked for one.

use std::cell::Cell;

thread_local! {
    static PLANTED: Cell<Option<Planted>> = const { Cell::new(None) };
}

/// A fault.
///
/// ```
/// use quorate_core::planted::{Planted, is, plant};
/// plant(Some(Planted::VoteNotSynced));
/// assert!(is(Planted::VoteNotSynced) && !is(Planted::AnswerBeforeSync));
/// plant(None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// A replica adds what its own clock says to a batch's stamp.
    ApplyReadsClock,
    /// An append is acknowledged before it is on disk.
    AnswerBeforeSync,
    /// A vote is given before it is on disk; it gets there with the next entries.
    VoteNotSynced,
    /// A snapshot leaves out a key.
    SnapshotDropsKey,
    /// A frame that was decided is decided again when it is sent again.
    RetryChargesAgain,
    /// A node that restarts goes on leading the terms that it led.
    LeaderRestored,
    /// A leader stamps by its own wall clock instead of the majority's.
    OwnClock,
    /// The client says that nothing was charged where it cannot know.
    ErrorHidesCharge,
    /// A policy set that Raft refused within a term is not proposed again.
    PoliciesGivenUp,
    /// A node that starts trusts its own wall clock where clocks disagree.
    FreshClockTrusted,
    /// A leader that was ever heard goes on as if it were the only one.
    LeaseNeverEnds,
    /// A node that starts grants votes at once. Not among [`Planted::ALL`]: 300 seeds have not found it.
    VotesAtOnce,
    /// A frame that was sent before, and may have been executed, is denied without the log. Not among [`Planted::ALL`]: 300 seeds
    /// have not found it.
    DeniesWhatMayHaveRun,
    /// The client keeps what a denied check of several shards was charged on some of them.
    DenialKeepsCharge,
    /// The client answers from a remembered denial whose wait is over.
    DenialOutlived,
}

impl Planted {
    /// All that the simulator is known to find.
    pub const ALL: [Planted; 13] = [
        Planted::ApplyReadsClock,
        Planted::AnswerBeforeSync,
        Planted::VoteNotSynced,
        Planted::SnapshotDropsKey,
        Planted::RetryChargesAgain,
        Planted::LeaderRestored,
        Planted::OwnClock,
        Planted::ErrorHidesCharge,
        Planted::PoliciesGivenUp,
        Planted::FreshClockTrusted,
        Planted::LeaseNeverEnds,
        Planted::DenialKeepsCharge,
        Planted::DenialOutlived,
    ];

    /// The one of that name.
    pub fn named(name: &str) -> Option<Planted> {
        let unfound = [Planted::VotesAtOnce, Planted::DeniesWhatMayHaveRun];
        Planted::ALL.into_iter().chain(unfound).find(|fault| format!("{fault:?}") == name)
    }
}

/// From now on that one is at work on this thread, or none.
pub fn plant(planted: Option<Planted>) {
    PLANTED.set(planted);
}

/// Whether that one is at work on this thread.
pub fn is(planted: Planted) -> bool {
    PLANTED.get() == Some(planted)
}
