//! One frame under way: its number in the session, where it was sent, and whether it may have been executed.

use quorate_core::{NodeId, Sequence, SessionId};
use smallvec::SmallVec;
use tokio::time::Instant;

use super::links::Generation;
use crate::caps;
use crate::observe;
use crate::pack::Sealed;

#[derive(Debug)]
pub(crate) struct Flight {
    pub(crate) sealed: Sealed,
    /// Its place in a session; none before it has one. Once it may have been executed, it is never given another.
    pub(crate) number: Option<(SessionId, Sequence)>,
    /// The attempt that is awaited; none while it has to be sent.
    pub(crate) sent: Option<Sent>,
    /// The tag of every attempt: each may be answered still.
    tags: SmallVec<[u64; 2]>,
    /// An attempt before the awaited one may have been executed, and was not answered in full.
    pub(crate) may_have_run: bool,
    /// Places that the awaited attempt refused because it knows no such session.
    turned_down: Vec<u32>,
    /// Not later than the earliest deadline in it.
    pub(crate) earliest: Option<Instant>,
}

/// An attempt.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    pub(crate) node: NodeId,
    pub(crate) generation: Generation,
    pub(crate) tag: u64,
    pub(crate) at: Instant,
    /// When to ask elsewhere who leads, if no answer has come.
    pub(crate) nudge: Instant,
}

impl Sent {
    pub(crate) fn new(node: NodeId, generation: Generation, tag: u64, now: Instant) -> Sent {
        Sent { node, generation, tag, at: now, nudge: now + caps::PATIENCE }
    }

    pub(crate) fn is_on(&self, node: NodeId, generation: Generation) -> bool {
        (self.node, self.generation) == (node, generation)
    }

    /// Whether it is time to ask elsewhere; says so once in a while.
    pub(crate) fn is_due(&mut self, now: Instant) -> bool {
        let due = self.nudge <= now;
        if due {
            self.nudge = now + caps::PATIENCE;
        }
        due
    }
}

impl Flight {
    /// Whether no attempt was made yet.
    pub(crate) fn is_unsent(&self) -> bool {
        self.tags.is_empty()
    }

    pub(crate) fn new(sealed: Sealed) -> Flight {
        let earliest = sealed.earliest();
        Flight {
            sealed,
            number: None,
            sent: None,
            tags: SmallVec::new(),
            may_have_run: false,
            turned_down: Vec::new(),
            earliest,
        }
    }

    pub(crate) fn is_tagged(&self, tag: u64) -> bool {
        self.tags.contains(&tag)
    }

    /// Whether that attempt is the awaited one.
    pub(crate) fn awaits(&self, tag: u64) -> bool {
        self.sent.is_some_and(|sent| sent.tag == tag)
    }

    pub(crate) fn sent(&mut self, sent: Sent) {
        if !self.tags.is_empty() {
            observe::sent_again();
        }
        self.tags.push(sent.tag);
        self.turned_down.clear();
        self.sent = Some(sent);
    }

    /// The awaited attempt was refused as a whole: it has executed nothing.
    pub(crate) fn refused(&mut self) {
        self.sent = None;
    }

    /// The awaited attempt was refused for that place, since its session is not known. Where that holds for all that is
    /// awaited, the whole attempt was refused.
    pub(crate) fn turned_down(&mut self, place: u32) {
        self.turned_down.push(place);
        if self.sealed.awaited_places().all(|awaited| self.turned_down.contains(&awaited)) {
            self.refused();
        }
    }

    /// Nobody will say any more what became of the awaited attempt.
    pub(crate) fn lost(&mut self) {
        self.may_have_run |= self.sent.take().is_some();
    }

    /// Whether anything of what is still awaited may have been executed.
    pub(crate) fn may_have_charged(&self) -> bool {
        self.may_have_run || self.sent.is_some()
    }

    /// It belongs to a session that is gone and was certainly not executed: it can have another number.
    pub(crate) fn renumber(&mut self, gone: SessionId) {
        if self.sent.is_none() && !self.may_have_run && self.number.is_some_and(|(session, _)| session == gone) {
            self.number = None;
        }
    }
}
