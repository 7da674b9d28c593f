//! For how long a leader knows that no other can have been elected.
//!
//! A follower that has heard from a leader grants nobody a vote for the longest election timeout. So while a majority has heard
//! from this leader less than that ago, it is the only one, and its state holds all that was answered to anybody.
//!
//! ```text
//!  leader    sends an append at s ────────────────────────► answered; the lease is counted from s
//!  follower            hears it, later ─► no vote for anybody for election_max
//!  lease               s ├───────── ¾ of election_max ─────────┤ the rest is for clocks that do not go alike
//! ```
//!
//! It is counted by a clock that goes on while the machine sleeps. Two things would break it: a follower that forgets what it has
//! heard, so a node that starts grants no vote and stands for no election for as long (see [`super::dispatch`] and
//! [`super::group`]); and a leadership that is handed over, for which votes are granted at once, so that it ends the lease first.

use std::sync::{Arc, Mutex, PoisonError};

use quorate_core::{NodeId, Span, Term};

use crate::clock::{Clock, Monotonic};

/// One group's lease on this node. Clones are the same one.
#[derive(Clone, Debug)]
pub struct Lease(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    clock: Arc<dyn Clock>,
    lasts: Span,
    heard: Mutex<Heard>,
}

/// What is known of one term in which this node leads.
#[derive(Debug, Default)]
struct Heard {
    term: Term,
    /// The newest append that each follower has answered: when it was sent.
    sent: Vec<(NodeId, Monotonic)>,
    /// The leadership was offered to another.
    is_over: bool,
}

impl Lease {
    /// None is held yet. `election_max` is how long a follower that has heard from a leader grants no vote.
    pub fn new(clock: Arc<dyn Clock>, election_max: std::time::Duration) -> Lease {
        let lasts = Span((election_max.as_micros() as i64).saturating_mul(3) / 4);
        Lease(Arc::new(Shared { clock, lasts, heard: Mutex::default() }))
    }

    /// The time that leases are counted by.
    pub fn now(&self) -> Monotonic {
        self.0.clock.monotonic()
    }

    /// A follower has accepted what this node sent it as the leader of that term, at that time.
    pub fn accepted(&self, term: Term, follower: NodeId, sent: Monotonic) {
        let mut heard = self.0.heard.lock().unwrap_or_else(PoisonError::into_inner);
        if term > heard.term {
            *heard = Heard { term, ..Heard::default() };
        } else if term < heard.term {
            return;
        }
        match heard.sent.iter_mut().find(|(node, _)| *node == follower) {
            Some((_, newest)) => *newest = (*newest).max(sent),
            None => heard.sent.push((follower, sent)),
        }
    }

    /// The leadership of that term is about to be offered to another: nothing is sure any more in it.
    pub fn give_up(&self, term: Term) {
        let mut heard = self.0.heard.lock().unwrap_or_else(PoisonError::into_inner);
        if term >= heard.term {
            *heard = Heard { term, sent: Vec::new(), is_over: true };
        }
    }

    /// Whether this node, which leads in that term, is the only one that can; of each set of voters a majority has to know it.
    pub fn holds<'v, V>(&self, term: Term, me: NodeId, voters: impl IntoIterator<Item = V>) -> bool
    where
        V: IntoIterator<Item = &'v NodeId>,
    {
        let heard = self.0.heard.lock().unwrap_or_else(PoisonError::into_inner);
        if heard.term > term || (heard.term == term && heard.is_over) {
            return false;
        }
        // After everything that is to be vouched for was looked at.
        let now = self.now();
        #[cfg(feature = "planted")]
        let is_planted = quorate_core::planted::is(quorate_core::planted::Planted::LeaseNeverEnds);
        #[cfg(not(feature = "planted"))]
        let is_planted = false;
        let is_fresh = |voter: &NodeId| {
            let sent = heard.sent.iter().filter(|_| heard.term == term).find(|(node, _)| node == voter);
            sent.is_some_and(|(_, sent)| is_planted || now.since(*sent) < self.0.lasts)
        };
        voters.into_iter().all(|voters| {
            let (mut all, mut fresh) = (0, 0);
            for voter in voters {
                all += 1;
                fresh += usize::from(*voter == me || is_fresh(voter));
            }
            fresh * 2 > all
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::clock::{HandClock, Wall};

    const ME: NodeId = NodeId(1);
    const T: Term = Term(3);

    fn lease() -> (Lease, HandClock) {
        let hand = HandClock::at(Wall(1_000_000_000));
        (Lease::new(Arc::new(hand.clone()), Duration::from_millis(1000)), hand)
    }

    fn holds(lease: &Lease, voters: &[u64]) -> bool {
        let voters: Vec<NodeId> = voters.iter().copied().map(NodeId).collect();
        lease.holds(T, ME, [&voters])
    }

    #[test]
    fn it_lasts_three_quarters_of_a_follower_s_patience_from_when_was_sent_what_it_answered() {
        let (lease, hand) = lease();
        assert!(!holds(&lease, &[1, 2, 3]) && holds(&lease, &[1]));
        let sent = lease.now();
        hand.advance(Span(400_000));
        lease.accepted(T, NodeId(2), sent);
        assert!(holds(&lease, &[1, 2, 3]) && !holds(&lease, &[1, 2, 3, 4]) && !holds(&lease, &[1, 3, 4]));
        hand.advance(Span(349_999));
        assert!(holds(&lease, &[1, 2, 3]));
        hand.advance(Span(1));
        assert!(!holds(&lease, &[1, 2, 3]));
        // An answer that comes late to something older takes nothing back.
        lease.accepted(T, NodeId(3), lease.now());
        lease.accepted(T, NodeId(3), sent);
        assert!(holds(&lease, &[1, 2, 3]));
        // A set of voters that is on its way out has to know it, too.
        let (old, new) = ([NodeId(1), NodeId(2), NodeId(4)], [NodeId(1), NodeId(2), NodeId(3)]);
        assert!(!lease.holds(T, ME, [&old, &new]));
    }

    #[test]
    fn it_is_of_one_term_and_ends_when_the_leadership_is_offered() {
        let (lease, _) = lease();
        lease.accepted(Term(2), NodeId(2), lease.now());
        assert!(!holds(&lease, &[1, 2, 3]), "an earlier term's");
        lease.accepted(T, NodeId(2), lease.now());
        lease.accepted(Term(2), NodeId(3), lease.now());
        assert!(holds(&lease, &[1, 2, 3]));
        lease.give_up(T);
        lease.accepted(T, NodeId(2), lease.now());
        assert!(!holds(&lease, &[1, 2, 3]) && !holds(&lease, &[1]));
        lease.accepted(Term(4), NodeId(2), lease.now());
        assert!(lease.holds(Term(4), ME, [&[ME, NodeId(2), NodeId(3)]]), "a later term's is another");
        assert!(!holds(&lease, &[1, 2, 3]));
    }
}
