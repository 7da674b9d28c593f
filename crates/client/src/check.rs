//! Checks on their way: builders, and the future that a single check is.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use quorate_core::PlaceAnswer;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::caps;
use crate::client::{Client, decision};
use crate::decision::Decision;
use crate::denials::Before;
use crate::error::Error;
use crate::gather::Gathering;
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
}

impl<'a> Check<'a> {
    pub(crate) fn new(client: &'a Client, question: Question<'a>) -> Self {
        Check { client, question, deadline: None }
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

    /// How long to wait for the answer, from when it is awaited; the client's deadline if not set.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }
}

impl<'a> IntoFuture for Check<'a> {
    type Output = Result<Decision, Error>;
    type IntoFuture = Checking<'a>;

    fn into_future(self) -> Checking<'a> {
        Checking { client: self.client, question: self.question, state: State::Asked(self.deadline) }
    }
}

/// A check under way: the future of a [`Check`].
#[must_use = "futures do nothing unless they are awaited"]
pub struct Checking<'a> {
    client: &'a Client,
    question: Question<'a>,
    state: State<'a>,
}

enum State<'a> {
    /// With the deadline that was set.
    Asked(Option<Duration>),
    Waiting(Asked, oneshot::Receiver<Outcome>),
    /// Its way has changed before it was executed; rare, so it may cost more.
    Detour(BoxFuture<'a, Result<Decision, Error>>),
}

/// A check that was sent.
#[derive(Clone, Copy)]
struct Asked {
    deadline: Instant,
    before: Option<Before>,
}

impl Asked {
    /// Asks where one answer is not enough: of several shards, or again because its way has changed.
    async fn decide(self, client: &Client, mut question: Question<'_>) -> Result<Decision, Error> {
        let decided = client.inner.decide(&mut question, self.deadline).await;
        decided.inspect(|decision| client.inner.remember(self.before.as_ref(), &question, decision))
    }

    fn hear(&self, client: &Client, question: &mut Question<'_>, answer: PlaceAnswer) -> Result<Decision, Error> {
        let decided = decision(answer, question);
        decided.inspect(|decision| client.inner.remember(self.before.as_ref(), question, decision))
    }
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
        loop {
            this.state = match &mut this.state {
                State::Asked(deadline) => {
                    this.question.validate()?;
                    let (inner, now) = (&this.client.inner, Instant::now());
                    let before = match inner.recall(&mut this.question, now) {
                        Ok(denial) => return Poll::Ready(Ok(denial)),
                        Err(before) => before,
                    };
                    let asked = Asked { deadline: inner.deadline_from(now, *deadline), before };
                    if inner.is_split(&this.question) {
                        State::Detour(asked.decide(this.client, std::mem::take(&mut this.question)).boxed())
                    } else {
                        let (slot, outcome) = Slot::one(asked.deadline);
                        inner.submit(&mut this.question, slot);
                        State::Waiting(asked, outcome)
                    }
                }
                State::Waiting(asked, outcome) => match std::task::ready!(outcome.poll_unpin(cx)) {
                    Ok(Ok(answer)) => return Poll::Ready(asked.hear(this.client, &mut this.question, answer)),
                    Ok(Err(Failure::Final(error))) => return Poll::Ready(Err(error)),
                    Ok(Err(Failure::Moved(_))) => {
                        let asked = *asked;
                        State::Detour(asked.decide(this.client, std::mem::take(&mut this.question)).boxed())
                    }
                    Err(_) => return Poll::Ready(Err(Error::abandoned())),
                },
                State::Detour(ask) => return ask.poll_unpin(cx),
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
}

impl<'a> CheckMany<'a> {
    pub(crate) fn new(client: &'a Client, questions: Vec<Question<'a>>) -> Self {
        CheckMany { client, questions, deadline: None }
    }

    /// How long to wait for the answers, from when they are awaited; the client's deadline if not set.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    async fn ask(mut self) -> Vec<Result<Decision, Error>> {
        let now = Instant::now();
        if self.questions.len() > caps::CHECKS_AT_ONCE {
            let text = format!("more than {} checks at once; ask them in parts", caps::CHECKS_AT_ONCE);
            return vec![Err(Error::invalid(text))];
        }
        let client = self.client;
        let deadline = client.inner.deadline_from(now, self.deadline);
        let mut results = Vec::with_capacity(self.questions.len());
        let (mut alone, split) = (Vec::new(), FuturesUnordered::new());
        for (at, question) in self.questions.iter_mut().enumerate() {
            results.push(match Way::of(client, question, now, deadline) {
                Way::Done(result) => Some(result),
                Way::Alone(asked) => {
                    alone.push((at, asked));
                    None
                }
                Way::Split(asked) => {
                    let question = std::mem::take(question);
                    split.push(async move { (at, asked.decide(client, question).await) });
                    None
                }
            });
        }
        let outcomes = self.send(&alone, deadline);
        let (outcomes, split) = tokio::join!(outcomes, split.collect::<Vec<_>>());
        for (at, result) in split {
            results[at] = Some(result);
        }
        for ((at, asked), outcome) in alone.into_iter().zip(outcomes) {
            let question = &mut self.questions[at];
            results[at] = Some(match outcome {
                Ok(answer) => asked.hear(client, question, answer),
                Err(Failure::Moved(_)) => asked.decide(client, std::mem::take(question)).await,
                Err(Failure::Final(error)) => Err(error),
            });
        }
        results.into_iter().map(|result| result.unwrap_or_else(|| Err(Error::abandoned()))).collect()
    }

    /// Puts the questions in line that are one command each; all of them are, when it returns.
    fn send(&mut self, alone: &[(usize, Asked)], deadline: Instant) -> impl Future<Output = Vec<Outcome>> + use<> {
        let gathering = (!alone.is_empty()).then(|| {
            let (gathering, seats) = Gathering::of(alone.len());
            for ((at, _), seat) in alone.iter().zip(seats) {
                self.client.inner.submit(&mut self.questions[*at], Slot::many(seat, deadline));
            }
            gathering
        });
        async move {
            match gathering {
                Some(gathering) => gathering.outcomes().await,
                None => Vec::new(),
            }
        }
    }
}

/// How one question of many is answered.
enum Way {
    /// It is: it was wrong, or its denial was remembered.
    Done(Result<Decision, Error>),
    /// By one command of the frame that all go in.
    Alone(Asked),
    /// By several shards.
    Split(Asked),
}

impl Way {
    fn of(client: &Client, question: &mut Question<'_>, now: Instant, deadline: Instant) -> Way {
        if let Err(error) = question.validate() {
            return Way::Done(Err(error));
        }
        match client.inner.recall(question, now) {
            Ok(denial) => Way::Done(Ok(denial)),
            Err(before) if client.inner.is_split(question) => Way::Split(Asked { deadline, before }),
            Err(before) => Way::Alone(Asked { deadline, before }),
        }
    }
}

impl<'a> IntoFuture for CheckMany<'a> {
    type Output = Vec<Result<Decision, Error>>;
    type IntoFuture = BoxFuture<'a, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        self.ask().boxed()
    }
}
