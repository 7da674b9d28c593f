//! Waiting one's turn: a check that holds its caller back until the request may go ahead.

use std::future::IntoFuture;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use quorate_core::Algorithm;
use tokio::time::{Instant, sleep, sleep_until};

use crate::caps;
use crate::charge::Charge;
use crate::client::{Client, decision};
use crate::decision::Decision;
use crate::error::Error;
use crate::giveback::Held;
use crate::question::Question;

/// A turn that is waited for when it is awaited; made by [`Client::acquire`].
///
/// Under a **leaky bucket** it takes a place in the queue and waits until that has come. Under every **other algorithm** it waits
/// until enough has come back and asks again, which is fair to nobody: who asks at the right moment gets it.
///
/// It ends with a [`Decision`]: allowed, and the request may go ahead at once; or denied, because the turn cannot come within
/// the [deadline](Self::deadline). That is said at once, not after the wait, and
/// [`retry_after`](Decision::retry_after) is then the deadline that it would have taken, were nobody else to ask; none where
/// the cost can never be granted.
///
/// Dropping the future gives the place back, in the background: nobody waits behind one who has gone. A leaky bucket takes back
/// only the last place of its queue; one that others stand behind stays taken.
///
/// ```no_run
/// # async fn f(client: quorate_client::Client) -> Result<(), quorate_client::Error> {
/// use std::time::Duration;
/// let turn = client.acquire("calls-to-partner", "partner-7").deadline(Duration::from_secs(5)).await?;
/// if turn.allowed {
///     // call the partner now
/// } else {
///     println!("too busy; it would take {:?}", turn.retry_after);
/// }
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "a turn is not waited for until it is awaited"]
pub struct Acquire<'a> {
    client: &'a Client,
    question: Question<'a>,
    deadline: Duration,
}

impl<'a> Acquire<'a> {
    pub(crate) fn new(client: &'a Client, question: Question<'a>) -> Self {
        Acquire { client, question, deadline: caps::ACQUIRE }
    }

    /// What is asked, in units: 0 to 10^12.
    pub fn cost(mut self, units: u64) -> Self {
        self.question.limits.iter_mut().for_each(|limit| limit.cost = units);
        self
    }

    /// How long to wait for the turn at most, from when it is awaited: 10 s if not set, at most an hour. Each time that the
    /// cluster is asked, it has the client's own [deadline](crate::ClientBuilder::deadline) to answer within this one. The turn
    /// may come later than this by the time that its answer took.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    async fn run(mut self) -> Result<Decision, Error> {
        let until = Instant::now() + self.deadline.min(caps::DEADLINE_MAX);
        self.question.validate()?;
        loop {
            let mut decision = self.ask(until).await?;
            let left = until.saturating_duration_since(Instant::now());
            if decision.allowed {
                let held = Held::new(&self.client.inner, Charge::of(&decision));
                sleep(decision.delay.unwrap_or_default()).await;
                held.keep();
                return Ok(decision);
            }
            let needed = self.needed(&decision);
            match decision.retry_after.filter(|_| needed.is_some_and(|needed| needed <= left)) {
                Some(wait) => sleep_until(Instant::now() + wait).await,
                None => {
                    decision.retry_after = needed;
                    return Ok(decision);
                }
            }
        }
    }

    /// Asks for the turn. Whoever drops this gives it back.
    async fn ask(&mut self, until: Instant) -> Result<Decision, Error> {
        let left = until.saturating_duration_since(Instant::now());
        let deadline = Instant::now() + left.max(caps::ACQUIRE_ANSWER).min(self.client.inner.deadline);
        // The key stays for the next time.
        let mut question = self.question.clone();
        question.max_delay = Some(left);
        let answer = self.client.inner.ask_giving_back(&mut question, deadline).await?;
        decision(answer, &mut question)
    }

    /// How long the turn would take to come, were nobody else to ask. Of a leaky bucket, until its queue as it stands is
    /// done; of any other, until it grants.
    fn needed(&self, decision: &Decision) -> Option<Duration> {
        let wait = decision.retry_after?;
        let limit = decision.limits.first()?;
        let paced = self.client.inner.algorithm(limit.id).is_some_and(|is| matches!(is, Algorithm::LeakyBucket { .. }));
        Some(if paced { wait.max(limit.reset_after) } else { wait })
    }
}

impl<'a> IntoFuture for Acquire<'a> {
    type Output = Result<Decision, Error>;
    type IntoFuture = BoxFuture<'a, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        self.run().boxed()
    }
}
