//! Checks on their way: builders, and the future that a single check is.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::caps;
use crate::ceiling::Place;
use crate::client::{Client, decision};
use crate::decision::Decision;
use crate::error::Error;
use crate::fallback::{Fallback, Manner};
use crate::gather::Gathering;
use crate::observe::{self, Begun};
use crate::question::Question;
use crate::queue::{Failure, Outcome, Slot};

/// A check that is asked when it is awaited; made by [`Client::check`], [`Client::check_all`] and [`Client::peek`].
///
/// Dropping the future before it has resolved gives the answer up: what was sent may still be charged.
///
/// ```no_run
/// # async fn f(client: quorate_client::Client) -> Result<(), quorate_client::Error> {
/// use std::time::Duration;
/// let decision = client
///     .check("calls-to-partner", "partner-7")
///     .max_delay(Duration::from_secs(2))
///     .deadline(Duration::from_millis(100))
///     .await?;
/// if decision.allowed {
///     tokio::time::sleep(decision.delay.unwrap_or_default()).await;
///     // call the partner
/// }
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "a check asks nothing until it is awaited"]
pub struct Check<'a> {
    client: &'a Client,
    question: Question<'a>,
    deadline: Option<Duration>,
    manner: Manner,
}

impl<'a> Check<'a> {
    pub(crate) fn new(client: &'a Client, question: Question<'a>) -> Self {
        Check { client, question, deadline: None, manner: Manner::default() }
    }

    /// What the check costs, in units: 0 to 10^12; of every limit that it names. 0 is always granted, and only reports.
    pub fn cost(mut self, units: u64) -> Self {
        self.question.limits.iter_mut().for_each(|limit| limit.cost = units);
        self
    }

    /// Takes a leaky bucket's place only if the wait for it is at most this.
    pub fn max_delay(mut self, wait: Duration) -> Self {
        self.question.max_delay = Some(wait);
        self
    }

    /// How long to wait for the answer, from when it is awaited; the client's deadline if not set. A check that is given more
    /// time than that also waits where its shard's breaker is open.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// What is done where the cluster cannot be asked in time, whatever the policies say.
    pub fn on_unavailable(mut self, fallback: Fallback) -> Self {
        self.manner.fallback = Some(fallback);
        self
    }
}

impl<'a> IntoFuture for Check<'a> {
    type Output = Result<Decision, Error>;
    type IntoFuture = Checking<'a>;

    fn into_future(self) -> Checking<'a> {
        let deadline = self.client.inner.deadline(self.deadline);
        Checking {
            client: self.client,
            span: observe::span(&self.question),
            question: self.question,
            deadline,
            manner: self.manner,
            begun: observe::begin(),
            place: None,
            state: State::Made,
        }
    }
}

/// A check under way: the future of a [`Check`].
#[must_use = "futures do nothing unless they are awaited"]
pub struct Checking<'a> {
    client: &'a Client,
    question: Question<'a>,
    deadline: Instant,
    manner: Manner,
    begun: Begun,
    span: tracing::Span,
    /// Under the client's ceiling, if it has one.
    place: Option<Place>,
    state: State<'a>,
}

enum State<'a> {
    Made,
    /// It waits for a place under the client's ceiling.
    Entering(BoxFuture<'a, Result<Place, Error>>),
    Asked,
    Waiting(oneshot::Receiver<Outcome>),
    /// Its way has changed before it was executed; rare, so it may cost more.
    Detour(BoxFuture<'a, (Result<Decision, Error>, Question<'a>)>),
}

impl std::fmt::Debug for Checking<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Checking").field("question", &self.question).finish_non_exhaustive()
    }
}

impl Future for Checking<'_> {
    type Output = Result<Decision, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let span = std::mem::replace(&mut this.span, tracing::Span::none());
        let polled = span.in_scope(|| match this.poll_answer(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(result) => {
                this.place = None;
                Poll::Ready(this.client.inner.conclude(&mut this.question, this.manner, this.begun, result))
            }
        });
        this.span = span;
        polled
    }
}

impl Checking<'_> {
    /// What the cluster answers, or why it does not.
    fn poll_answer(&mut self, cx: &mut Context<'_>) -> Poll<Result<Decision, Error>> {
        let this = self;
        loop {
            this.state = match &mut this.state {
                State::Made => {
                    this.question.validate()?;
                    match &this.client.inner.ceiling {
                        None => State::Asked,
                        Some(ceiling) => match ceiling.try_enter() {
                            Some(place) => {
                                this.place = Some(place);
                                State::Asked
                            }
                            None => State::Entering(ceiling.wait(this.deadline)?),
                        },
                    }
                }
                State::Entering(enter) => {
                    this.place = Some(std::task::ready!(enter.poll_unpin(cx))?);
                    State::Asked
                }
                State::Asked => {
                    let (slot, outcome) = Slot::one(this.deadline);
                    this.client.inner.submit(&mut this.question, slot);
                    State::Waiting(outcome)
                }
                State::Waiting(outcome) => match std::task::ready!(outcome.poll_unpin(cx)) {
                    Ok(Ok(answer)) => return Poll::Ready(decision(answer, &mut this.question)),
                    Ok(Err(Failure::Final(error))) => return Poll::Ready(Err(error)),
                    Ok(Err(Failure::Moved(_))) => {
                        let (client, mut question, deadline) =
                            (this.client, std::mem::take(&mut this.question), this.deadline);
                        let ask = async move {
                            let answer = client.inner.ask(&mut question, deadline).await;
                            (answer.and_then(|answer| decision(answer, &mut question)), question)
                        };
                        State::Detour(ask.boxed())
                    }
                    Err(_) => return Poll::Ready(Err(Error::abandoned())),
                },
                State::Detour(ask) => {
                    let (result, question) = std::task::ready!(ask.poll_unpin(cx));
                    this.question = question;
                    return Poll::Ready(result);
                }
            };
        }
    }
}

/// Many checks that are asked together when they are awaited; made by [`Client::check_many`].
///
/// ```no_run
/// # async fn f(client: quorate_client::Client) {
/// use quorate_client::limit;
/// let users = ["alice", "bob"];
/// let results = client.check_many(users.map(|user| limit("per-user", user))).await;
/// assert_eq!(results.len(), 2);
/// # }
/// ```
#[derive(Debug)]
#[must_use = "checks ask nothing until they are awaited"]
pub struct CheckMany<'a> {
    client: &'a Client,
    questions: Vec<Question<'a>>,
    deadline: Option<Duration>,
    manner: Manner,
}

impl<'a> CheckMany<'a> {
    pub(crate) fn new(client: &'a Client, questions: Vec<Question<'a>>) -> Self {
        CheckMany { client, questions, deadline: None, manner: Manner::default() }
    }

    /// How long to wait for the answers, from when they are awaited; the client's deadline if not set.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// As [`Check::on_unavailable`], for each of them.
    pub fn on_unavailable(mut self, fallback: Fallback) -> Self {
        self.manner.fallback = Some(fallback);
        self
    }

    async fn ask(mut self) -> Vec<Result<Decision, Error>> {
        let begun = observe::begin();
        let deadline = self.client.inner.deadline(self.deadline);
        if self.questions.len() > caps::CHECKS_AT_ONCE {
            let text = format!("more than {} checks at once; ask them in parts", caps::CHECKS_AT_ONCE);
            return vec![Err(Error::invalid(text))];
        }
        if self.questions.is_empty() {
            return Vec::new();
        }
        let inner = &self.client.inner;
        // All of them together are one call.
        let _place = match inner.enter(deadline).await {
            Ok(place) => place,
            Err(error) => return self.questions.iter().map(|_| Err(error.again())).collect(),
        };
        let (gathering, seats) = Gathering::of(self.questions.len());
        for (question, seat) in self.questions.iter_mut().zip(seats) {
            let slot = Slot::many(seat, deadline);
            match question.validate() {
                Ok(()) => inner.submit(question, slot),
                Err(error) => slot.answer(Err(Failure::Final(error))),
            }
        }
        let mut results = Vec::with_capacity(self.questions.len());
        for (outcome, question) in gathering.outcomes().await.into_iter().zip(&mut self.questions) {
            let answer = match outcome {
                Ok(answer) => Ok(answer),
                Err(Failure::Final(error)) => Err(error),
                Err(Failure::Moved(_)) => inner.ask(question, deadline).await,
            };
            let result = answer.and_then(|answer| decision(answer, question));
            results.push(inner.conclude(question, self.manner, begun, result));
        }
        results
    }
}

impl<'a> IntoFuture for CheckMany<'a> {
    type Output = Vec<Result<Decision, Error>>;
    type IntoFuture = BoxFuture<'a, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        self.ask().boxed()
    }
}
