//! Charges that nobody will use: given back in the background, whatever becomes of the caller.
//!
//! A check whose caller may go away before its answer comes is [`Pending`]; what was charged and may yet have to be given back
//! is [`Held`]. Dropping either gives back what was or will be charged, in a task of its own. There are at most
//! [`caps::GIVE_BACKS`] such tasks: beyond that, and where the runtime or the client ends first, the charge stays, which errs
//! on the limit's side.

use std::future::Future;
use std::sync::Arc;

use quorate_core::{Answer, Cost, PolicyId};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use crate::caps;
use crate::charge::{Charge, Item, Part};
use crate::client::Inner;
use crate::error::Error;
use crate::pack::Operation;
use crate::question::Question;
use crate::queue::{Awaited, Failure, Outcome};

/// Where and how many.
pub(crate) struct GiveBacks {
    runtime: Handle,
    room: Arc<Semaphore>,
}

impl GiveBacks {
    /// On this runtime.
    pub(crate) fn new() -> GiveBacks {
        GiveBacks { runtime: Handle::current(), room: Arc::new(Semaphore::new(caps::GIVE_BACKS)) }
    }

    /// None where too many are under way already.
    fn spawn<T: Send + 'static>(&self, task: impl Future<Output = T> + Send + 'static) -> Option<JoinHandle<T>> {
        let Ok(room) = Arc::clone(&self.room).try_acquire_owned() else {
            tracing::debug!("too many charges are being given back; one more stays charged");
            return None;
        };
        Some(self.runtime.spawn(async move {
            let result = task.await;
            drop(room);
            result
        }))
    }
}

/// A check that was sent. Dropped before its outcome is taken, what it is granted is given back.
pub(crate) struct Pending {
    inner: Arc<Inner>,
    /// What it named, by ordinal.
    named: Vec<(PolicyId, Box<[u8]>, Cost)>,
    outcome: Option<Awaited>,
}

impl Pending {
    /// Of a question that was resolved and is not a peek.
    pub(crate) fn new(inner: &Arc<Inner>, question: &Question<'_>, outcome: Awaited) -> Pending {
        let named = |limit: &crate::question::Limit<'_>| {
            (limit.resolved.as_ref().map_or(PolicyId(0), |known| known.0), limit.key.as_bytes().into(), limit.units())
        };
        let named = if question.peek { Vec::new() } else { question.limits.iter().map(named).collect() };
        Pending { inner: Arc::clone(inner), named, outcome: Some(outcome) }
    }

    pub(crate) async fn outcome(&mut self) -> Outcome {
        let Some(outcome) = &mut self.outcome else { return Err(Failure::Final(Error::abandoned())) };
        let came = outcome.await;
        self.outcome = None;
        came.unwrap_or_else(|_| Err(Failure::Final(Error::abandoned())))
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        let Some(mut outcome) = self.outcome.take() else { return };
        if self.named.is_empty() {
            return;
        }
        let (inner, named) = (Arc::clone(&self.inner), std::mem::take(&mut self.named));
        let task = async move {
            if let Ok(Ok(answer)) = (&mut outcome).await
                && let Some(part) = charged(answer, named)
            {
                inner.give_back_all(vec![part]).await;
            }
        };
        drop(self.inner.give_backs.spawn(task));
    }
}

/// What an answer says was charged.
fn charged(answer: quorate_core::PlaceAnswer, mut named: Vec<(PolicyId, Box<[u8]>, Cost)>) -> Option<Part> {
    let Answer::Decision(decision) = answer.answer else { return None };
    let item = |limit: &quorate_core::LimitAnswer| {
        let (policy, key, cost) = named.get_mut(usize::from(limit.ordinal))?;
        Some(Item { policy: *policy, key: std::mem::take(key), cost: *cost, mark: limit.mark })
    };
    let items: Vec<_> = decision.limits.iter().filter(|limit| limit.charged).filter_map(item).collect();
    (!items.is_empty()).then_some(Part { receipt: answer.receipt, items })
}

/// A charge that is given back unless it is kept.
pub(crate) struct Held {
    inner: Arc<Inner>,
    parts: Vec<Part>,
}

impl Held {
    pub(crate) fn new(inner: &Arc<Inner>, charge: Option<Charge>) -> Held {
        Held { inner: Arc::clone(inner), parts: charge.map(|charge| charge.parts).unwrap_or_default() }
    }

    pub(crate) fn add(&mut self, charge: Option<Charge>) {
        self.parts.extend(charge.into_iter().flat_map(|charge| charge.parts));
    }

    /// It is the caller's now.
    pub(crate) fn keep(mut self) {
        self.parts.clear();
    }

    /// Gives it back; whether that was done by then. It goes on in the background.
    pub(crate) async fn give_back(mut self, by: Instant) -> bool {
        match self.start() {
            None => true,
            Some(None) => false,
            Some(Some(task)) => matches!(timeout_at(by, task).await, Ok(Ok(true))),
        }
    }

    /// None where there is nothing to give back.
    fn start(&mut self) -> Option<Option<JoinHandle<bool>>> {
        let parts = std::mem::take(&mut self.parts);
        if parts.is_empty() {
            return None;
        }
        let inner = Arc::clone(&self.inner);
        Some(self.inner.give_backs.spawn(async move { inner.give_back_all(parts).await }))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        drop(self.start());
    }
}

impl Inner {
    /// Whether all of it was done.
    async fn give_back_all(&self, parts: Vec<Part>) -> bool {
        let deadline = Instant::now() + caps::GIVE_BACK;
        let refunds = parts.iter().map(|part| self.operate_at(part, deadline, Operation::Refund(part)));
        let results = futures::future::join_all(refunds).await;
        for error in results.iter().filter_map(|result| result.as_ref().err()) {
            tracing::debug!(%error, "a charge that nobody uses could not be given back; it stays charged");
        }
        results.iter().all(Result::is_ok)
    }
}
