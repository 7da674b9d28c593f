//! What the cluster's clock says, from the voters' wall clocks: the median of their offsets to one's own monotonic clock.
//!
//! The median of all n voters' offsets cannot be moved beyond the right ones by fewer than half of them that are wrong. When
//! only r of them were heard (a majority), the median of all is not known, but it lies between two of the r: whatever the
//! n - r silent ones would say, at most n - r places lower or higher. So there is one rule for all cases:
//!
//! ```text
//! heard offsets, ascending:   s[0]  …  s[(n-1)/2 - (n-r)]  ……  s[n/2]  …  s[r-1]
//!                                      └──────── the new offset lies here ┘
//! ```
//!
//! With all n heard and n odd that is one value, the median. Otherwise the previous offset is kept as far as it lies between
//! the two, else the nearer one is taken. Where no majority was heard, nothing changes, and the old offset runs on.
//!
//! A node that has just started has no previous offset: its own wall clock may be the wrong one. Until the clocks that it
//! hears agree once, what a shard's log says takes its place: it is at least as late as the last stamp. So, of three, one
//! wrong clock and one lost node together never make time run ahead, and make it late by no more than the shard stood still.
//!
//! Pure: fed with samples and moments, it reads no clock.

use std::collections::BTreeMap;

use quorate_core::{NodeId, Span, Stamp};

use super::{Monotonic, Wall};
use crate::caps;

/// What a voter's wall clock said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// When it was asked, by one's own clock.
    pub asked: Monotonic,
    /// When its answer came.
    pub answered: Monotonic,
    /// What it said.
    pub wall: Wall,
}

impl Sample {
    /// Its wall clock less one's own monotonic clock, taking the answer for given half way.
    fn offset(&self) -> i64 {
        self.wall.0.saturating_sub(self.asked.0.saturating_add(self.round_trip().0 / 2))
    }

    fn round_trip(&self) -> Span {
        self.answered.since(self.asked)
    }
}

/// The cluster's clock as one node sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Estimate {
    /// The cluster's clock less one's own monotonic clock, in microseconds.
    pub offset: i64,
    /// Whether a majority's clocks were ever heard. Before, it is one's own wall clock, which may be the wrong one.
    pub trusted: bool,
    /// How far apart the two values are between which the offset lies: 0 when the median is known.
    pub doubt: Span,
    /// Voters whose clocks were heard lately, oneself included.
    pub heard: usize,
    /// Voters that there are.
    pub voters: usize,
}

impl Estimate {
    /// What the cluster's clock says at that moment of one's own.
    pub fn at(&self, now: Monotonic) -> Stamp {
        Stamp(now.0.saturating_add(self.offset).clamp(0, quorate_core::caps::LONGEST_US))
    }
}

/// Makes the estimate.
#[derive(Clone, Debug)]
pub struct Estimator {
    me: NodeId,
    voters: Vec<NodeId>,
    heard: BTreeMap<NodeId, Sample>,
    estimate: Estimate,
    /// Whether the clocks of a majority ever agreed: then the previous offset is worth keeping.
    settled: bool,
    /// The latest that a stamp says it is, as an offset.
    stamped: i64,
}

impl Estimator {
    /// Knows of no voters yet, and says what the node's own wall clock says.
    pub fn new(me: NodeId, now: Monotonic, wall: Wall) -> Estimator {
        let estimate = Estimate { offset: wall.0.saturating_sub(now.0), ..Estimate::default() };
        Estimator { me, voters: Vec::new(), heard: BTreeMap::new(), estimate, settled: false, stamped: i64::MIN }
    }

    /// Who has a say: the voters of the control group.
    pub fn set_voters(&mut self, mut voters: Vec<NodeId>) {
        voters.sort_unstable();
        voters.dedup();
        self.heard.retain(|node, _| voters.binary_search(node).is_ok());
        self.voters = voters;
    }

    /// The last estimate.
    pub fn current(&self) -> Estimate {
        self.estimate
    }

    /// Those that have a say, oneself left out.
    pub fn others(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.voters.iter().copied().filter(|&node| node != self.me)
    }

    /// What a voter said. An answer that took too long says too little, and is not heard.
    pub fn hear(&mut self, voter: NodeId, sample: Sample) {
        if voter != self.me
            && self.voters.binary_search(&voter).is_ok()
            && sample.round_trip() <= caps::CLOCK_ROUND_TRIP
            && self.heard.get(&voter).is_none_or(|old| old.answered <= sample.answered)
        {
            self.heard.insert(voter, sample);
        }
    }

    /// A log holds that stamp, so it is at least that late.
    pub fn remember(&mut self, now: Monotonic, stamp: Stamp) {
        self.stamped = self.stamped.max(stamp.0.saturating_sub(now.0));
    }

    /// Forgets what was heard too long ago, and makes a new estimate if a majority was heard since.
    pub fn estimate(&mut self, now: Monotonic, own: Wall) -> Estimate {
        self.heard.retain(|_, sample| now.since(sample.answered) <= caps::CLOCK_SAMPLE_LIFE);
        let mut offsets: Vec<i64> = self.heard.values().map(Sample::offset).collect();
        if self.voters.binary_search(&self.me).is_ok() {
            offsets.push(own.0.saturating_sub(now.0));
        }
        offsets.sort_unstable();
        let (all, heard) = (self.voters.len(), offsets.len());
        (self.estimate.heard, self.estimate.voters) = (heard, all);
        if heard > all / 2 {
            // A majority: at most (all - 1) / 2 are silent, so neither index leaves the list.
            let least = offsets[(all - 1) / 2 - (all - heard)];
            let most = offsets[all / 2];
            self.estimate.doubt = Span(most.saturating_sub(least));
            self.settled |= self.estimate.doubt <= caps::CLOCK_DOUBT;
            #[cfg(feature = "planted")]
            self.planted(own.0.saturating_sub(now.0));
            let previous = if self.settled { self.estimate.offset } else { self.stamped };
            self.estimate.offset = previous.clamp(least, most);
            self.estimate.trusted = true;
        }
        #[cfg(feature = "planted")]
        if quorate_core::planted::is(quorate_core::planted::Planted::OwnClock) {
            self.estimate.offset = own.0.saturating_sub(now.0);
        }
        self.estimate
    }

    #[cfg(feature = "planted")]
    fn planted(&mut self, own: i64) {
        if quorate_core::planted::is(quorate_core::planted::Planted::FreshClockTrusted) && !self.settled {
            self.stamped = own;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HOUR: i64 = 3_600_000_000;
    /// What right clocks say at moment 0.
    const TRUE: i64 = 1_000 * HOUR;

    /// The node 1 of `voters`, and what each other's clock is off by; those that are `None` are silent.
    fn estimator(voters: u64, own: i64) -> Estimator {
        let mut estimator = Estimator::new(NodeId(1), Monotonic(0), Wall(TRUE + own));
        estimator.set_voters((1..=voters).map(NodeId).collect());
        estimator
    }

    fn hear_at(estimator: &mut Estimator, now: i64, others: &[Option<i64>]) {
        for (at, off) in others.iter().enumerate() {
            if let Some(off) = off {
                let sample = Sample { asked: Monotonic(now), answered: Monotonic(now), wall: Wall(TRUE + now + off) };
                estimator.hear(NodeId(at as u64 + 2), sample);
            }
        }
    }

    /// How far from the truth the estimate is, own clock off by `own`, at the moment `now`.
    fn error_at(estimator: &mut Estimator, now: i64, own: i64) -> i64 {
        estimator.estimate(Monotonic(now), Wall(TRUE + now + own)).offset - TRUE
    }

    #[test]
    fn one_voter_is_its_own_clock() {
        let mut one = estimator(1, 5);
        assert_eq!(error_at(&mut one, 10, 5), 5);
        assert_eq!(error_at(&mut one, 20, -7), -7);
        assert!(one.estimate.trusted);
    }

    #[test]
    fn one_wrong_clock_of_three_changes_nothing() {
        for wrong in [HOUR, -HOUR] {
            let mut right = estimator(3, 0);
            hear_at(&mut right, 0, &[Some(3), Some(-3)]);
            assert_eq!(error_at(&mut right, 0, 0), 0);
            hear_at(&mut right, 1, &[Some(3), Some(wrong)]);
            assert!(error_at(&mut right, 1, 0).abs() <= 3, "a peer is wrong by {wrong}");

            let mut own = estimator(3, wrong);
            hear_at(&mut own, 0, &[Some(3), Some(-3)]);
            assert!(error_at(&mut own, 0, wrong).abs() <= 3, "the own clock is wrong by {wrong}");
            assert!(error_at(&mut own, 1, -wrong).abs() <= 3, "the own clock jumps to {wrong}");
        }
    }

    #[test]
    fn with_one_voter_silent_the_previous_is_kept_between_the_two_that_are_heard() {
        let mut two_of_three = estimator(3, 0);
        hear_at(&mut two_of_three, 0, &[Some(0), Some(0)]);
        assert_eq!(error_at(&mut two_of_three, 0, 0), 0);
        let late = caps::CLOCK_SAMPLE_LIFE.0 + 1;
        // The third is silent; the second is an hour ahead, or the node itself an hour behind: nobody can tell.
        hear_at(&mut two_of_three, late, &[Some(HOUR), None]);
        assert_eq!(error_at(&mut two_of_three, late, 0), 0);
        assert_eq!(two_of_three.estimate.doubt, Span(HOUR));
        // Both are off the same way: no further from the previous than need be.
        hear_at(&mut two_of_three, late, &[Some(50), None]);
        assert_eq!(error_at(&mut two_of_three, late, 20), 20);
    }

    #[test]
    fn a_node_that_starts_among_doubt_goes_on_from_the_last_stamp() {
        const DOWN: i64 = 5_000_000;
        for (own, other) in [(HOUR, 0), (-HOUR, 0), (0, HOUR), (0, -HOUR)] {
            let mut fresh = estimator(3, own);
            hear_at(&mut fresh, 0, &[Some(other), None]);
            assert_eq!(error_at(&mut fresh, 0, own), own.min(other), "nothing is known: rather late than early");
            fresh.remember(Monotonic(0), Stamp(TRUE - DOWN));
            let error = if own.min(other) < 0 { -DOWN } else { 0 };
            assert_eq!(error_at(&mut fresh, 0, own), error);
            // It goes on from there, and a later stamp of another shard says more.
            assert_eq!(error_at(&mut fresh, 7, own), error);
            fresh.remember(Monotonic(10), Stamp(TRUE + 10 - DOWN / 2));
            assert_eq!(error_at(&mut fresh, 10, own), error / 2);
            // Once the third is heard, the median is known; from then on it is kept.
            hear_at(&mut fresh, 20, &[Some(other), Some(0)]);
            assert_eq!(error_at(&mut fresh, 20, own), 0);
            let late = 20 + caps::CLOCK_SAMPLE_LIFE.0 + 1;
            hear_at(&mut fresh, late, &[Some(other), None]);
            assert_eq!(error_at(&mut fresh, late, own), 0);
        }
    }

    #[test]
    fn without_a_majority_the_old_one_runs_on() {
        let mut alone = estimator(3, HOUR);
        assert_eq!(error_at(&mut alone, 0, HOUR), HOUR);
        assert!(!alone.estimate.trusted);
        hear_at(&mut alone, 0, &[Some(0), Some(0)]);
        assert_eq!(error_at(&mut alone, 0, HOUR), 0);
        let late = caps::CLOCK_SAMPLE_LIFE.0 + 1;
        assert_eq!(error_at(&mut alone, late, HOUR), 0);
        assert_eq!((alone.estimate.heard, alone.estimate.trusted), (1, true));
        assert_eq!(alone.estimate.at(Monotonic(late)), Stamp(TRUE + late));
    }

    #[test]
    fn what_took_too_long_or_comes_from_elsewhere_is_not_heard() {
        let mut three = estimator(3, 0);
        let slow = Monotonic(caps::CLOCK_ROUND_TRIP.0 + 1);
        three.hear(NodeId(2), Sample { asked: Monotonic(0), answered: slow, wall: Wall(TRUE) });
        three.hear(NodeId(9), Sample { asked: Monotonic(0), answered: Monotonic(0), wall: Wall(TRUE) });
        assert_eq!(three.estimate(slow, Wall(TRUE)).heard, 1);
    }

    proptest! {
        /// Fewer than half of the voters are wrong, by anything; a majority is heard, whichever: once the estimate was right,
        /// it stays as right as the right clocks are.
        #[test]
        fn a_minority_of_wrong_clocks_changes_nothing(
            voters in 1..=7_u64,
            rounds in prop::collection::vec((any::<u64>(), any::<u64>(), prop::collection::vec(-HOUR..HOUR, 7)), 1..10),
        ) {
            let minority = (voters as usize - 1) / 2;
            let mut estimator = estimator(voters, 0);
            hear_at(&mut estimator, 0, &vec![Some(0); voters as usize - 1]);
            prop_assert_eq!(error_at(&mut estimator, 0, 0), 0);
            let mut now = 0;
            for (first_wrong, first_silent, by) in rounds {
                now += caps::CLOCK_SAMPLE_LIFE.0 + 1;
                let (n, off) = (voters as usize, |at: usize, from: u64, count: usize| {
                    (at + voters as usize - (from % voters) as usize) % voters as usize >= voters as usize - count
                });
                // Right clocks are off by at most a millisecond.
                let says: Vec<i64> =
                    (0..n).map(|at| if off(at, first_wrong, minority) { by[at] } else { by[at] % 1000 }).collect();
                let heard: Vec<_> =
                    (1..n).map(|at| (!off(at, first_silent, minority)).then_some(says[at])).collect();
                hear_at(&mut estimator, now, &heard);
                let error = error_at(&mut estimator, now, says[0]);
                prop_assert!(error.abs() < 1000, "off by {} with {:?} heard of {:?}", error, heard, says);
            }
        }
    }
}
