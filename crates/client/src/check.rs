//! Checks on their way: builders, and the future that a single check is.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use quorate_core::PlaceAnswer;
use tokio::time::Instant;

use crate::caps;
use crate::ceiling::Place;
use crate::client::{Client, decision};
use crate::decision::Decision;
use crate::denials::Before;
use crate::error::Error;
use crate::fallback::{Fallback, Manner};
use crate::gather::Gathering;
use crate::observe::{self, Begun};
use crate::question::Question;
use crate::queue::{Awaited, Failure, Outcome};

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
        Checking {
            client: self.client,
            span: observe::span(&self.question),
            question: self.question,
            manner: self.manner,
            begun: observe::begin(),
            place: None,
            state: State::Made(self.deadline),
        }
    }
}

/// A check under way: the future of a [`Check`].
#[must_use = "futures do nothing unless they are awaited"]
pub struct Checking<'a> {
    client: &'a Client,
    question: Question<'a>,
    manner: Manner,
    begun: Begun,
    span: tracing::Span,
    /// Under the client's ceiling, if it has one.
    place: Option<Place>,
    state: State<'a>,
}

enum State<'a> {
    /// With the deadline that was set.
    Made(Option<Duration>),
    /// It waits for a place under the client's ceiling.
    Entering(Asked, BoxFuture<'a, Result<Place, Error>>),
    Entered(Asked),
    Waiting(Asked, Awaited),
    /// Its way has changed before it was executed; rare, so it may cost more.
    Detour(BoxFuture<'a, (Result<Decision, Error>, Question<'a>)>),
}

/// A check that is sent.
#[derive(Clone, Copy)]
struct Asked {
    deadline: Instant,
    before: Option<Before>,
}

impl Asked {
    /// Asks where one answer is not enough: of several shards, or again because its way has changed.
    async fn decide(self, client: &Client, question: &mut Question<'_>) -> Result<Decision, Error> {
        let decided = client.inner.decide(question, self.deadline).await;
        decided.inspect(|decision| client.inner.remember(self.before.as_ref(), question, decision))
    }

    /// The same, with the question back, which may have to be answered otherwise.
    async fn detour<'a>(self, client: &Client, mut question: Question<'a>) -> (Result<Decision, Error>, Question<'a>) {
        (self.decide(client, &mut question).await, question)
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
        // Most often nobody listens.
        if this.span.is_none() {
            return this.poll_end(cx);
        }
        let span = std::mem::replace(&mut this.span, tracing::Span::none());
        let polled = span.in_scope(|| this.poll_end(cx));
        this.span = span;
        polled
    }
}

impl<'a> Checking<'a> {
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<Result<Decision, Error>> {
        let result = std::task::ready!(self.poll_answer(cx));
        self.place = None;
        Poll::Ready(self.client.inner.conclude(&mut self.question, self.manner, self.begun, result))
    }

    fn detour(&mut self, asked: Asked) -> State<'a> {
        State::Detour(asked.detour(self.client, std::mem::take(&mut self.question)).boxed())
    }

    /// What the cluster answers, or why it does not.
    fn poll_answer(&mut self, cx: &mut Context<'_>) -> Poll<Result<Decision, Error>> {
        let this = self;
        loop {
            this.state = match &mut this.state {
                State::Made(deadline) => {
                    this.question.validate()?;
                    let (inner, now) = (&this.client.inner, Instant::now());
                    let before = match inner.recall(&mut this.question, now) {
                        Ok(denial) => return Poll::Ready(Ok(denial)),
                        Err(before) => before,
                    };
                    let asked = Asked { deadline: inner.deadline_from(now, *deadline), before };
                    match inner.ceiling.as_ref().map(|ceiling| (ceiling.try_enter(), ceiling)) {
                        Some((None, ceiling)) => State::Entering(asked, ceiling.wait(asked.deadline)?),
                        entered => {
                            this.place = entered.and_then(|(place, _)| place);
                            State::Entered(asked)
                        }
                    }
                }
                State::Entering(asked, enter) => {
                    this.place = Some(std::task::ready!(enter.poll_unpin(cx))?);
                    State::Entered(*asked)
                }
                State::Entered(asked) => {
                    let (asked, inner) = (*asked, &this.client.inner);
                    if inner.is_split(&this.question) {
                        this.detour(asked)
                    } else {
                        match inner.submit(&mut this.question, asked.deadline) {
                            Ok(outcome) => State::Waiting(asked, outcome),
                            Err(Failure::Final(error)) => return Poll::Ready(Err(error)),
                            Err(Failure::Moved(_)) => this.detour(asked),
                        }
                    }
                }
                State::Waiting(asked, outcome) => match std::task::ready!(outcome.poll_unpin(cx)) {
                    Ok(Ok(answer)) => return Poll::Ready(asked.hear(this.client, &mut this.question, answer)),
                    Ok(Err(Failure::Final(error))) => return Poll::Ready(Err(error)),
                    Ok(Err(Failure::Moved(_))) => {
                        let asked = *asked;
                        this.detour(asked)
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
        let (now, begun) = (Instant::now(), observe::begin());
        if self.questions.len() > caps::CHECKS_AT_ONCE {
            let text = format!("more than {} checks at once; ask them in parts", caps::CHECKS_AT_ONCE);
            return vec![Err(Error::invalid(text))];
        }
        let client = self.client;
        let deadline = client.inner.deadline_from(now, self.deadline);
        // All of them together are one call.
        let _place = match client.inner.enter(deadline).await {
            Ok(place) => place,
            Err(error) => return self.questions.iter().map(|_| Err(error.again())).collect(),
        };
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
                    // The question stays here: it may have to be answered otherwise.
                    let mut question = question.clone();
                    split.push(async move { (at, asked.decide(client, &mut question).await) });
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
                Err(Failure::Moved(_)) => asked.decide(client, question).await,
                Err(Failure::Final(error)) => Err(error),
            });
        }
        let ended = results.into_iter().zip(&mut self.questions).map(|(result, question)| {
            let result = result.unwrap_or_else(|| Err(Error::abandoned()));
            client.inner.conclude(question, self.manner, begun, result)
        });
        ended.collect()
    }

    /// Puts the questions in line that are one command each; all of them are, when it returns.
    fn send(&mut self, alone: &[(usize, Asked)], deadline: Instant) -> impl Future<Output = Vec<Outcome>> + use<> {
        let gathering = (!alone.is_empty()).then(|| {
            let (gathering, seats) = Gathering::of(alone.len());
            for ((at, _), seat) in alone.iter().zip(seats) {
                self.client.inner.submit_seat(&mut self.questions[*at], seat, deadline);
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
