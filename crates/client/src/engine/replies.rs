//! What a lane makes of an answer: each code of the protocol has its one line here.

use quorate_core::{Answer, NodeId, PlaceAnswer, SessionId};
use quorate_proto::convert::{Outcome, unpack_answer};
use quorate_proto::v1::{self, ErrorCode};

use super::errand::Kind;
use super::lane::{Heard, Lane, Turn};
use super::trouble::{Trouble, unknown};
use crate::error::{Error, ErrorKind};
use crate::queue::Failure;

/// What to do with the commands that an error is about.
enum Verdict {
    /// The same frame again.
    Again,
    /// The same frame again, which may have been executed.
    AgainAfterRun,
    /// The session that the frame is numbered in does not exist.
    NoSession,
    /// The commands have their answer.
    Answer(Failure),
}

impl Lane {
    pub(crate) fn hear(&mut self, heard: Heard, turn: &mut Turn<'_>) {
        let Heard { node, answer } = heard;
        if self.errand.as_ref().is_some_and(|errand| errand.sent.tag == answer.tag) {
            return self.errand_done(node, &answer, turn);
        }
        let Some(at) = self.flights.iter().position(|flight| flight.is_tagged(answer.tag)) else {
            return; // Everybody who waited for it has gone.
        };
        match &answer.error {
            Some(error) => self.frame_refused(at, node, answer.tag, error, turn),
            None => self.places_answered(at, node, &answer, turn),
        }
        self.flights.retain(|flight| flight.sealed.is_awaited());
    }

    fn errand_done(&mut self, node: NodeId, answer: &v1::FrameAnswer, turn: &mut Turn<'_>) {
        let Some(errand) = self.errand.take() else { return };
        if errand.kind == Kind::Close {
            self.session = None;
            return;
        }
        let refused = match &answer.error {
            Some(error) => Some(error.clone()),
            None => match unpack_answer(answer).ok().and_then(|mut all| all.pop()).map(|one| one.outcome) {
                Some(Outcome::Answer(Answer::SessionOpened(session))) if errand.kind == Kind::Open => {
                    self.session_opened(session);
                    return self.proved(errand.sent, turn);
                }
                Some(Outcome::Answer(Answer::Done)) if errand.kind == Kind::Probe => {
                    return self.proved(errand.sent, turn);
                }
                Some(Outcome::Error(error)) => Some(error),
                _ => None,
            },
        };
        let refused = refused.unwrap_or_else(|| v1::Error {
            code: ErrorCode::Unavailable.into(),
            message: "it answered a session's opening, or a probe, with something else".to_owned(),
            ..Default::default()
        });
        // Whatever it is: nobody's command was in it, and it can be asked again.
        if let Verdict::Answer(_) | Verdict::NoSession = self.judge(node, &refused, false, turn) {
            self.trouble = Some(Trouble::new(
                ErrorKind::Unavailable,
                format!("node {node} opens no session: {}", refused.message),
            ));
            self.back_off(turn);
        }
    }

    fn session_opened(&mut self, session: SessionId) {
        self.session = Some(session);
        self.restart_numbers();
        self.worked();
    }

    fn frame_refused(&mut self, at: usize, node: NodeId, tag: u64, error: &v1::Error, turn: &mut Turn<'_>) {
        let Some(flight) = self.flights.get(at).filter(|flight| flight.awaits(tag)) else { return };
        let may_have_run = flight.may_have_run;
        let verdict = self.judge(node, error, may_have_run, turn);
        let number = self.flights.get(at).and_then(|flight| flight.number);
        let Some(flight) = self.flights.get_mut(at) else { return };
        match verdict {
            Verdict::Again => flight.refused(),
            Verdict::AgainAfterRun => flight.lost(),
            Verdict::NoSession => {
                flight.refused();
                if may_have_run {
                    let error = || Failure::Final(unknown(self.shard, "its session has expired"));
                    flight.sealed.fail(error);
                }
                self.session_gone(number.map(|(session, _)| session));
            }
            Verdict::Answer(failure) => flight.sealed.fail(|| failure.again()),
        }
    }

    fn places_answered(&mut self, at: usize, node: NodeId, answer: &v1::FrameAnswer, turn: &mut Turn<'_>) {
        let outcomes = match unpack_answer(answer) {
            Ok(outcomes) => outcomes,
            Err(malformed) => {
                let text = format!("node {node} sent an answer that means nothing ({malformed}); check its version");
                let error = || Failure::Final(Error::new(ErrorKind::Protocol, text.clone()).charged(true));
                if let Some(flight) = self.flights.get_mut(at) {
                    flight.sealed.fail(error);
                }
                return;
            }
        };
        let attempt = self.flights.get(at).and_then(|flight| flight.sent).filter(|sent| sent.tag == answer.tag);
        let mut worked = false;
        for one in outcomes {
            match one.outcome {
                Outcome::Answer(decided) => {
                    worked = true;
                    turn.time.saw(one.receipt.stamp, turn.now);
                    let Some(flight) = self.flights.get_mut(at) else { return };
                    let answer = PlaceAnswer { place: one.place, receipt: one.receipt, answer: decided };
                    flight.sealed.answer(one.place, Ok(answer));
                }
                Outcome::Error(error) => self.place_refused(at, node, answer.tag, one.place, &error, turn),
            }
        }
        if worked {
            self.worked();
            if let Some(attempt) = attempt {
                self.proved(attempt, turn);
            }
        }
    }

    fn place_refused(&mut self, at: usize, node: NodeId, tag: u64, place: u32, error: &v1::Error, turn: &mut Turn<'_>) {
        let Some(flight) = self.flights.get(at) else { return };
        let (may_have_run, current, number) = (flight.may_have_run, flight.awaits(tag), flight.number);
        if !flight.sealed.awaits(place) {
            return;
        }
        let verdict = self.judge(node, error, may_have_run, turn);
        let Some(flight) = self.flights.get_mut(at) else { return };
        match verdict {
            Verdict::Answer(failure) => flight.sealed.answer(place, Err(failure)),
            // The rest of the frame may be executed yet, so this counts as lost.
            Verdict::Again | Verdict::AgainAfterRun if current => flight.lost(),
            Verdict::Again | Verdict::AgainAfterRun => {}
            Verdict::NoSession if !current => {} // The attempt that is awaited will tell.
            Verdict::NoSession => {
                if may_have_run {
                    let error = unknown(self.shard, "its session has expired");
                    flight.sealed.answer(place, Err(Failure::Final(error)));
                } else {
                    flight.turned_down(place);
                }
                self.session_gone(number.map(|(session, _)| session));
            }
        }
    }

    /// The shard does not know the session: the next frame opens another, and what was not executed goes with it.
    fn session_gone(&mut self, gone: Option<SessionId>) {
        let Some(gone) = gone else { return };
        if self.session == Some(gone) {
            self.session = None;
        }
        for flight in &mut self.flights {
            flight.renumber(gone);
        }
    }

    /// Something was answered: whatever was wrong is over.
    pub(super) fn worked(&mut self) {
        self.failures = 0;
        self.pause = None;
        self.trouble = None;
    }

    /// Draws the consequences for the lane, and says what to do with the commands.
    fn judge(&mut self, node: NodeId, error: &v1::Error, may_have_run: bool, turn: &mut Turn<'_>) -> Verdict {
        let shard = self.shard;
        let final_ = |kind| Verdict::Answer(Failure::Final(Error::new(kind, error.message.clone())));
        let unknown = |why: &str| Verdict::Answer(Failure::Final(unknown(shard, why)));
        match error.code() {
            ErrorCode::NotLeader => {
                self.not_leader(node, NodeId(error.leader), turn);
                Verdict::Again
            }
            ErrorCode::WrongShard if may_have_run => unknown("the key has moved to another shard meanwhile"),
            ErrorCode::WrongShard => Verdict::Answer(Failure::Moved(Error::new(
                ErrorKind::Unavailable,
                format!("the key has moved to another shard, and no newer topology has come: {}", error.message),
            ))),
            ErrorCode::PoliciesBehind => {
                self.again(turn, ErrorKind::Unavailable, "its policies are behind", node, error)
            }
            ErrorCode::Overloaded => self.again(turn, ErrorKind::Overloaded, "it is overloaded", node, error),
            ErrorCode::Deadline => self.again(turn, ErrorKind::Deadline, "it had no time to propose it", node, error),
            ErrorCode::SessionSpan => {
                self.again(turn, ErrorKind::Overloaded, "the session spans too much", node, error)
            }
            ErrorCode::Unavailable => {
                if self.target() == Some(node) {
                    self.turn_away(node);
                }
                self.again(turn, ErrorKind::Unavailable, "it does not serve", node, error)
            }
            ErrorCode::Unknown => {
                self.again(turn, ErrorKind::Unknown, "it does not know yet", node, error);
                Verdict::AgainAfterRun
            }
            ErrorCode::UnknownSession => Verdict::NoSession,
            ErrorCode::Acknowledged => unknown("its answers were acknowledged before"),
            ErrorCode::UnknownPolicy => {
                Verdict::Answer(Failure::Moved(Error::new(ErrorKind::UnknownPolicy, error.message.clone())))
            }
            ErrorCode::Invalid | ErrorCode::CostAboveMax => final_(ErrorKind::Invalid),
            ErrorCode::TableFull => final_(ErrorKind::TableFull),
            ErrorCode::Unspecified => {
                let text = format!(
                    "node {node} answered with an error that this client does not know (code {}): {}; update the client",
                    error.code, error.message
                );
                Verdict::Answer(Failure::Final(Error::new(ErrorKind::Protocol, text).charged(true)))
            }
        }
    }

    fn again(&mut self, turn: &mut Turn<'_>, kind: ErrorKind, what: &str, node: NodeId, error: &v1::Error) -> Verdict {
        let text = format!("node {node} at {} says that {what} ({})", turn.links.address(node), error.message);
        self.trouble = Some(Trouble::new(kind, text));
        self.back_off(turn);
        Verdict::Again
    }

    /// Goes to whom it names at once the first time, then after a backoff: two nodes may each hold the other for the leader.
    fn not_leader(&mut self, node: NodeId, leader: NodeId, turn: &mut Turn<'_>) {
        if self.target() != Some(node) {
            return; // Somebody else was found meanwhile.
        }
        if leader == NodeId(0) || leader == node {
            let text = format!("shard {} has no leader that node {node} knows of", self.shard);
            self.trouble = Some(Trouble::new(ErrorKind::NoLeader, text));
            self.turn_away(node);
            return self.back_off(turn);
        }
        self.target = Some(leader);
        if self.failures > 0 {
            self.back_off(turn);
        }
        self.failures = self.failures.max(1);
    }
}
