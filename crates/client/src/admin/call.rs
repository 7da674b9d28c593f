//! One call to whichever node can do it: round and round until the deadline, and in the end an error that says what each node
//! answered.
//!
//! Whatever was learned before the deadline says more than that it passed: a cluster without a leader is told as one, also where
//! the time ends in the middle of another try.

use std::collections::BTreeMap;
use std::time::Duration;

use quorate_proto::v1::admin_client::AdminClient;
use rand::TryRng as _;
use tokio::time::{Instant, sleep_until, timeout_at};
use tonic::transport::Channel;
use tonic::{Code, Response, Status};

use super::Admin;
use crate::backoff::Chance;
use crate::caps;
use crate::error::{Error, ErrorKind};
use crate::wire::{broke, channel, said};

impl Admin {
    /// Asks one node after another, round and round until the deadline, as long as that may help.
    pub(super) async fn call<Q: Clone, A>(
        &self,
        twice: Twice,
        request: Q,
        call: impl AsyncFn(AdminClient<Channel>, tonic::Request<Q>) -> Result<Response<A>, Status>,
    ) -> Result<A, Error> {
        let deadline = Instant::now() + self.deadline;
        let mut chance = Chance::seeded(rand::rngs::SysRng.try_next_u64().unwrap_or_default());
        let mut answers = Answers::new(twice, self.deadline);
        for round in 1_u32.. {
            for address in &self.endpoints {
                match self.ask(address, deadline, &request, &call).await {
                    Ok(answer) => return Ok(answer),
                    Err(Refused::Unreachable(why)) => answers.note(address, ErrorKind::Unavailable, why),
                    Err(Refused::Lost(status)) => answers.lost(address, status)?,
                    Err(Refused::Late { sent }) => return Err(answers.late(address, sent)),
                    Err(Refused::Status(status)) if status.code() == Code::Unavailable => {
                        answers.note(address, ErrorKind::NoLeader, said(&status));
                    }
                    Err(Refused::Status(status)) => return Err(refused(status, address)),
                }
            }
            let again = Instant::now() + chance.wait(round + 3);
            // Nobody listens at all: whoever waits for nodes to start says so with a longer deadline, and sees it at once.
            if again >= deadline || (!answers.somebody_answered() && round >= caps::ADMIN_ROUNDS) {
                break;
            }
            sleep_until(again).await;
        }
        Err(answers.given_up())
    }

    async fn ask<Q: Clone, A>(
        &self,
        address: &str,
        deadline: Instant,
        request: &Q,
        call: &impl AsyncFn(AdminClient<Channel>, tonic::Request<Q>) -> Result<Response<A>, Status>,
    ) -> Result<A, Refused> {
        let channel = match timeout_at(deadline, channel(address)).await {
            Ok(connected) => connected.map_err(|why| Refused::Unreachable(why.to_string()))?,
            Err(_) => return Err(Refused::Late { sent: false }),
        };
        let mut request = tonic::Request::new(request.clone());
        request.set_timeout(deadline.saturating_duration_since(Instant::now()));
        let client = AdminClient::new(channel)
            .max_decoding_message_size(caps::ADMIN_BYTES)
            .max_encoding_message_size(caps::ADMIN_BYTES);
        match timeout_at(deadline, call(client, request)).await {
            Ok(Ok(answer)) => Ok(answer.into_inner()),
            Ok(Err(status)) if timed_out(&status) => Err(Refused::Late { sent: true }),
            Ok(Err(status)) if broke(&status).is_some() => Err(Refused::Lost(status)),
            Ok(Err(status)) => Err(Refused::Status(status)),
            Err(_) => Err(Refused::Late { sent: true }),
        }
    }
}

/// What it means that a call may have been executed twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Twice {
    /// It changes nothing.
    Reads,
    /// Twice is the same as once.
    Safe,
    /// The second time it is refused, or does something else.
    Differs,
}

/// Why one try gave no answer.
enum Refused {
    /// It was not sent.
    Unreachable(String),
    /// The connection broke after it was sent.
    Lost(Status),
    /// The deadline passed.
    Late { sent: bool },
    /// The node said no.
    Status(Status),
}

/// Whether the status is what tonic makes, here or there, of the deadline that the call carries.
fn timed_out(status: &Status) -> bool {
    matches!(status.code(), Code::DeadlineExceeded | Code::Cancelled)
        && matches!(status.message(), "" | "Timeout expired")
}

/// What each node answered last, to explain why nothing came of the call.
struct Answers {
    twice: Twice,
    deadline: Duration,
    last: BTreeMap<String, (ErrorKind, String)>,
    /// A node that may have done it was lost.
    may_be_done: bool,
}

impl Answers {
    fn new(twice: Twice, deadline: Duration) -> Answers {
        Answers { twice, deadline, last: BTreeMap::new(), may_be_done: false }
    }

    fn note(&mut self, address: &str, kind: ErrorKind, why: String) {
        self.last.insert(address.to_owned(), (kind, why));
    }

    fn somebody_answered(&self) -> bool {
        self.last.values().any(|(kind, _)| *kind == ErrorKind::NoLeader)
    }

    /// A node was lost in the middle of the call. An error where another node must not be asked the same.
    fn lost(&mut self, address: &str, status: Status) -> Result<(), Error> {
        let how = format!("it was lost during the call ({})", said(&status));
        if self.twice == Twice::Differs {
            let text = format!("{address}: {how}; it may have been done: look, then try again");
            return Err(Error::new(ErrorKind::Unavailable, text).charged(true).caused_by(status));
        }
        self.may_be_done |= self.twice == Twice::Safe;
        self.note(address, ErrorKind::Unavailable, how);
        Ok(())
    }

    fn text(&self) -> String {
        self.last.iter().map(|(address, (_, why))| format!("{address}: {why}")).collect::<Vec<_>>().join("; ")
    }

    /// The deadline passed in the middle of a try at that node: what was known before says more than that.
    fn late(mut self, address: &str, sent: bool) -> Error {
        let deadline = self.deadline;
        self.may_be_done |= sent && self.twice != Twice::Reads;
        if !self.somebody_answered() && sent {
            let others = if self.last.is_empty() { String::new() } else { format!(" ({})", self.text()) };
            let hint = if self.twice == Twice::Reads {
                "try again with more time"
            } else {
                "it may still be done: look, then try again with more time"
            };
            let text = format!("{address} did not finish within {deadline:?}{others}; {hint}");
            return Error::new(ErrorKind::Deadline, text).charged(self.may_be_done);
        }
        self.last.entry(address.to_owned()).or_insert_with(|| (ErrorKind::Unavailable, "no answer in time".to_owned()));
        self.given_up()
    }

    /// No node could do it before the deadline.
    fn given_up(self) -> Error {
        let (deadline, tried) = (self.deadline, self.text());
        let done = if self.may_be_done { "; it may have been done" } else { "" };
        let (kind, text) = if self.somebody_answered() {
            let what = "try again, or look at the cluster's status";
            (
                ErrorKind::NoLeader,
                format!("no node could do it within the deadline of {deadline:?} ({tried}){done}; {what}"),
            )
        } else {
            let what = "check the endpoints, and that the nodes run";
            (ErrorKind::Unavailable, format!("no node can be reached ({tried}){done}; {what}"))
        };
        Error::new(kind, text).charged(self.may_be_done)
    }
}

fn refused(status: Status, address: &str) -> Error {
    let kind = match status.code() {
        Code::InvalidArgument | Code::OutOfRange => ErrorKind::Invalid,
        Code::NotFound => ErrorKind::NotFound,
        Code::AlreadyExists | Code::Aborted | Code::FailedPrecondition => ErrorKind::Conflict,
        Code::PermissionDenied | Code::Unauthenticated => ErrorKind::Forbidden,
        Code::ResourceExhausted => ErrorKind::Overloaded,
        Code::DeadlineExceeded | Code::Cancelled => ErrorKind::Deadline,
        Code::Unimplemented | Code::Ok => ErrorKind::Protocol,
        _ => ErrorKind::Unknown,
    };
    let text = match (kind, status.message()) {
        (ErrorKind::Protocol, message) => format!("{address} does not know this call ({message}); check the versions"),
        (_, "") => format!("{address}: {}", said(&status)),
        (_, message) => message.to_owned(),
    };
    let may_have = matches!(kind, ErrorKind::Deadline | ErrorKind::Unknown);
    Error::new(kind, text).charged(may_have).caused_by(status)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEADLINE: Duration = Duration::from_secs(2);

    fn answers(twice: Twice, known: &[(&str, ErrorKind, &str)]) -> Answers {
        let mut answers = Answers::new(twice, DEADLINE);
        for (address, kind, why) in known {
            answers.note(address, *kind, (*why).to_owned());
        }
        answers
    }

    const NO_MAJORITY: (&str, ErrorKind, &str) = ("a:1", ErrorKind::NoLeader, "no majority");
    const REFUSED: (&str, ErrorKind, &str) = ("a:1", ErrorKind::Unavailable, "connection refused");

    #[test]
    fn what_was_known_before_the_deadline_is_the_reason() {
        for sent in [true, false] {
            let error = answers(Twice::Differs, &[NO_MAJORITY]).late("a:1", sent);
            assert_eq!((error.kind(), error.may_have_charged()), (ErrorKind::NoLeader, sent));
            let text = error.to_string();
            assert!(text.contains("a:1: no majority") && text.contains("deadline of 2s"), "{text}");
        }
        let error = answers(Twice::Reads, &[REFUSED]).late("b:1", false);
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.to_string().contains("a:1: connection refused; b:1: no answer in time"), "{error}");
    }

    #[test]
    fn a_deadline_without_a_reason_is_one() {
        let error = answers(Twice::Differs, &[REFUSED]).late("b:1", true);
        assert_eq!((error.kind(), error.may_have_charged()), (ErrorKind::Deadline, true));
        assert!(error.to_string().starts_with("b:1 did not finish within 2s (a:1: connection refused)"), "{error}");
        let error = answers(Twice::Reads, &[]).late("b:1", true);
        assert_eq!((error.kind(), error.may_have_charged()), (ErrorKind::Deadline, false));
    }

    #[test]
    fn the_newest_answer_of_a_node_counts() {
        let error = answers(Twice::Safe, &[NO_MAJORITY, REFUSED]).given_up();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(!error.to_string().contains("no majority"), "{error}");
    }

    #[test]
    fn a_lost_node_ends_only_what_must_not_be_done_twice() {
        let broken = || Status::from_error(Box::new(std::io::Error::from(std::io::ErrorKind::BrokenPipe)));
        for (twice, may_be_done) in [(Twice::Reads, false), (Twice::Safe, true)] {
            let mut answers = answers(twice, &[]);
            assert!(answers.lost("a:1", broken()).is_ok());
            let error = answers.given_up();
            assert_eq!((error.kind(), error.may_have_charged()), (ErrorKind::Unavailable, may_be_done));
            assert!(error.to_string().contains("a:1: it was lost during the call (broken pipe)"), "{error}");
        }
        let error = answers(Twice::Differs, &[]).lost("a:1", broken()).unwrap_err();
        assert_eq!((error.kind(), error.may_have_charged()), (ErrorKind::Unavailable, true));
        assert!(error.to_string().starts_with("a:1: it was lost during the call (broken pipe)"), "{error}");
    }
}
