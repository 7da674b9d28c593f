//! Resets and refunds.

use std::future::IntoFuture;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use quorate_core::Answer;

use crate::charge::Charge;
use crate::client::{Client, unexpected};
use crate::error::Error;
use crate::pack::Operation;
use crate::question::{Limit, Question};

/// A reset that is done when it is awaited; made by [`Client::reset`].
///
/// ```no_run
/// # async fn f(client: quorate_client::Client) -> Result<(), quorate_client::Error> {
/// client.reset("per-user", "alice").deadline(std::time::Duration::from_secs(5)).await?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "a reset does nothing until it is awaited"]
pub struct Reset<'a> {
    client: &'a Client,
    limit: Limit<'a>,
    deadline: Option<Duration>,
}

impl<'a> Reset<'a> {
    pub(crate) fn new(client: &'a Client, limit: Limit<'a>) -> Self {
        Reset { client, limit, deadline: None }
    }

    /// How long to wait for it, from when it is awaited; the client's deadline if not set.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    async fn run(self) -> Result<(), Error> {
        let deadline = self.client.inner.deadline(self.deadline);
        let mut question = Question::from(self.limit);
        question.validate()?;
        match self.client.inner.operate(&mut question, deadline, None).await?.answer {
            Answer::Done => Ok(()),
            other => Err(unexpected(&other)),
        }
    }
}

impl<'a> IntoFuture for Reset<'a> {
    type Output = Result<(), Error>;
    type IntoFuture = BoxFuture<'a, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        self.run().boxed()
    }
}

/// A refund that is done when it is awaited; made by [`Client::refund`].
///
/// Where it fails, or is dropped half way, the charge may stay charged: that errs on the limit's side.
///
/// ```no_run
/// # async fn f(client: quorate_client::Client) -> Result<(), quorate_client::Error> {
/// let mut decision = client.check("per-user", "alice").await?;
/// if let Some(charge) = decision.take_charge() {
///     client.refund(charge).deadline(std::time::Duration::from_secs(5)).await?;
/// }
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "a refund does nothing until it is awaited"]
pub struct Refund<'a> {
    client: &'a Client,
    charge: Charge,
    deadline: Option<Duration>,
}

impl<'a> Refund<'a> {
    pub(crate) fn new(client: &'a Client, charge: Charge) -> Self {
        Refund { client, charge, deadline: None }
    }

    /// How long to wait for it, from when it is awaited; the client's deadline if not set.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    async fn run(self) -> Result<usize, Error> {
        let deadline = self.client.inner.deadline(self.deadline);
        let mut changed = 0;
        for part in &self.charge.parts {
            let answer = self.client.inner.operate_at(part, deadline, Operation::Refund(part)).await?;
            changed += undone(answer.answer)?;
        }
        Ok(changed)
    }
}

impl<'a> IntoFuture for Refund<'a> {
    /// How many of the charge's limits were changed.
    type Output = Result<usize, Error>;
    type IntoFuture = BoxFuture<'a, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        self.run().boxed()
    }
}

pub(crate) fn undone(answer: Answer) -> Result<usize, Error> {
    match answer {
        Answer::Undone(changed) => Ok(usize::from(changed)),
        other => Err(unexpected(&other)),
    }
}
