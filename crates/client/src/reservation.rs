//! Reservations: charge first what may be used, correct it once it is known.

use std::future::IntoFuture;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use quorate_core::{Cost, caps as core_caps};

use crate::caps;
use crate::charge::Charge;
use crate::client::{Client, decision};
use crate::decision::Decision;
use crate::error::Error;
use crate::operations::undone;
use crate::pack::{Operation, span};
use crate::question::Question;

/// A reservation that is asked for when it is awaited; made by [`Client::reserve`] and [`Client::reserve_all`].
///
/// ```no_run
/// # async fn f(client: quorate_client::Client) -> Result<(), quorate_client::Error> {
/// use std::time::Duration;
/// let reservation = client.reserve("llm-tokens", "acme").cost(4_000).ttl(Duration::from_secs(120)).await?;
/// if reservation.allowed() {
///     let used = 1_234; // what the model said
///     reservation.settle(used).await?;
/// }
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "a reservation asks nothing until it is awaited"]
pub struct Reserve<'a> {
    client: &'a Client,
    question: Question<'a>,
    ttl: Duration,
    deadline: Option<Duration>,
}

impl<'a> Reserve<'a> {
    pub(crate) fn new(client: &'a Client, question: Question<'a>) -> Self {
        Reserve { client, question, ttl: caps::RESERVATION, deadline: None }
    }

    /// What is reserved, in units: 0 to 10^12; of every limit that it names.
    pub fn cost(mut self, units: u64) -> Self {
        self.question.limits.iter_mut().for_each(|limit| limit.cost = units);
        self
    }

    /// How long it can be settled, 1 µs to an hour; a minute if not set. After that, all of it counts as used.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// How long to wait for the answer, from when it is awaited; the client's deadline if not set.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    async fn run(mut self) -> Result<Reservation, Error> {
        let deadline = self.client.inner.deadline(self.deadline);
        self.question.validate()?;
        let ttl = span(self.ttl);
        if ttl.0 < 1 || ttl > core_caps::RESERVATION {
            let text =
                format!("a reservation lives 1 µs to {}; it was asked for {:?}", core_caps::RESERVATION, self.ttl);
            return Err(Error::invalid(text));
        }
        let question = &mut self.question;
        let answer = self.client.inner.operate(question, deadline, Some(ttl)).await?;
        let decision = decision(answer, question)?;
        let charge = Charge::of(&decision);
        Ok(Reservation { client: self.client.clone(), decision, charge, ttl: self.ttl })
    }
}

impl<'a> IntoFuture for Reserve<'a> {
    type Output = Result<Reservation, Error>;
    type IntoFuture = BoxFuture<'a, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        self.run().boxed()
    }
}

/// What was reserved, or a denial: look at [`allowed`](Self::allowed) before using anything.
///
/// It is corrected once, by [`settle`](Self::settle), or given back whole by [`refund`](Self::refund); both consume it.
/// Dropped without either, it stays charged.
///
/// ```no_run
/// # async fn f(client: quorate_client::Client) -> Result<(), quorate_client::Error> {
/// let reservation = client.reserve("llm-tokens", "acme").cost(4_000).await?;
/// match reservation.decision().retry_after {
///     _ if reservation.allowed() => drop(reservation.settle(3_000).await?),
///     wait => println!("denied; again in {wait:?}"),
/// }
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "a reservation that is neither settled nor refunded stays charged"]
pub struct Reservation {
    client: Client,
    decision: Decision,
    charge: Option<Charge>,
    ttl: Duration,
}

impl Reservation {
    /// Whether it was granted.
    pub fn allowed(&self) -> bool {
        self.decision.allowed
    }

    /// The decision as a whole. Its charge is the reservation's: it cannot be taken out of it.
    pub fn decision(&self) -> &Decision {
        &self.decision
    }

    /// Says what was really used, in units, of every limit that was reserved: less is given back, more is charged without
    /// asking. Answers how many limits were changed; after its life nothing is.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) where the reservation was denied, or `actual` is above 10^12. Where
    /// it fails otherwise, the whole reservation may stay charged.
    pub async fn settle(self, actual: u64) -> Result<usize, Error> {
        let n = self.decision.limits.len();
        self.settle_each(&vec![actual; n]).await
    }

    /// As [`settle`](Self::settle), with what was used of each limit, in the order of the decision's
    /// [`limits`](Decision::limits).
    ///
    /// # Errors
    /// As `settle`; also where there are not as many amounts as limits.
    pub async fn settle_each(self, actual: &[u64]) -> Result<usize, Error> {
        if !self.decision.allowed {
            return Err(Error::invalid(
                "the reservation was denied, so there is nothing to settle; look at allowed() first",
            ));
        }
        let limits = &self.decision.limits;
        if actual.len() != limits.len() {
            let text = format!("{} amounts for {} limits; name one for each", actual.len(), limits.len());
            return Err(Error::invalid(text));
        }
        let used = |units: u64| {
            Cost::new(units).ok_or_else(|| {
                Error::invalid(format!("{units} units used is above {}, the most that can be", Cost::MAX))
            })
        };
        let charged = limits.iter().zip(actual).filter(|(limit, _)| limit.charged);
        let actual = charged.map(|(_, units)| used(*units)).collect::<Result<Vec<_>, _>>()?;
        let Some(charge) = &self.charge else { return Ok(0) };
        let inner = &self.client.inner;
        let (deadline, ttl, mut changed) = (inner.deadline(None), span(self.ttl), 0);
        for part in &charge.parts {
            let settle = Operation::Settle { part, ttl, actual: &actual };
            changed += undone(inner.operate_at(part, deadline, settle).await?.answer)?;
        }
        Ok(changed)
    }

    /// Gives all of it back: nothing was used. A denied reservation has nothing to give back.
    ///
    /// # Errors
    /// As [`settle`](Self::settle).
    pub async fn refund(self) -> Result<usize, Error> {
        if self.charge.is_none() { Ok(0) } else { self.settle(0).await }
    }
}
