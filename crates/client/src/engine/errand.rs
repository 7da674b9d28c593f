//! Frames that belong to no session: one opens a session, one ends it, one probes whether the shard answers.
//!
//! None carries anybody's command, so one whose answer does not come is simply done again: a session too many expires. A probe
//! ends a session that never was: it changes nothing, and takes the way through the log that a check takes.

use quorate_core::{NodeId, SessionId};
use quorate_proto::convert::{FrameHead, FramePacker};
use tokio::time::Instant;

use super::flight::Sent;
use super::lane::{Lane, Turn};
use super::links::{Generation, Reach};
use crate::caps;

/// An errand under way.
pub(crate) struct Errand {
    pub(super) sent: Sent,
    pub(super) kind: Kind,
    /// Then it is given up, and done again.
    pub(super) until: Instant,
}

/// What an errand is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Open,
    Close,
    Probe,
}

/// No session has this number.
const NO_SESSION: SessionId = SessionId(0);

impl Lane {
    /// False where the stream takes nothing.
    pub(super) fn open_session(&mut self, node: NodeId, generation: Generation, turn: &mut Turn<'_>) -> bool {
        self.run_errand(node, generation, Kind::Open, turn, |packer| packer.open_session(0))
    }

    /// False where the stream takes nothing.
    pub(super) fn probe(&mut self, node: NodeId, generation: Generation, turn: &mut Turn<'_>) -> bool {
        self.run_errand(node, generation, Kind::Probe, turn, |packer| packer.close_session(0, NO_SESSION))
    }

    /// Ends the session once nothing is under way; true when nothing is left to do.
    pub(crate) fn leave(&mut self, turn: &mut Turn<'_>) -> bool {
        let Some(session) = self.session.filter(|_| self.flights.is_empty()) else { return self.flights.is_empty() };
        if self.errand.take_if(|errand| errand.kind == Kind::Probe).is_none() && self.errand.is_some() {
            return false;
        }
        let reached = self.target().map(|node| (node, turn.links.reach(node, turn.now)));
        let sent = match reached {
            Some((node, Reach::Up(generation))) => {
                self.run_errand(node, generation, Kind::Close, turn, |packer| packer.close_session(0, session))
            }
            _ => false,
        };
        // What cannot be closed now expires by itself.
        !sent
    }

    fn run_errand(
        &mut self,
        node: NodeId,
        generation: Generation,
        kind: Kind,
        turn: &mut Turn<'_>,
        fill: impl FnOnce(&mut FramePacker),
    ) -> bool {
        let mut packer = FramePacker::default();
        fill(&mut packer);
        let budget = Some(crate::pack::span(caps::ERRAND));
        let head =
            FrameHead { tag: turn.next_tag(), shard: self.shard, epoch: turn.epoch, budget, ..FrameHead::default() };
        let sent = Sent::new(node, generation, head.tag, turn.now);
        let handed = turn.links.send(node, generation, packer.pack(&head), turn.now);
        if handed {
            self.errand = Some(Errand { sent, kind, until: turn.now + caps::ERRAND });
        }
        handed
    }
}
