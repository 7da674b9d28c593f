//! What the cluster decided, as the caller sees it.

use std::sync::Arc;
use std::time::Duration;

use quorate_core::{Cost, PolicyId, PolicyVersion, Receipt, Span};

use crate::charge::Charge;
use crate::question::Question;

/// The answer to a check. "No" is an answer too: see [`allowed`](Self::allowed).
///
/// A decision is not `Clone`, because its charge can be given back once: see [`take_charge`](Self::take_charge).
///
/// ```no_run
/// # async fn f(client: quorate_client::Client) -> Result<(), quorate_client::Error> {
/// let decision = client.check("per-user", "alice").await?;
/// if !decision.allowed {
///     match decision.retry_after {
///         Some(wait) => println!("again in {wait:?}"),
///         None => println!("never: this costs more than the limit can ever grant"),
///     }
/// }
/// # Ok(()) }
/// ```
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Decision {
    /// Whether the request may go ahead.
    pub allowed: bool,
    /// The most unit-cost requests that an idle key could be granted at once. Of several limits, that of the one with the
    /// least [`remaining`](Self::remaining), enforced ones first. [`u64::MAX`] where no limit applies, because its policy is
    /// disabled.
    pub limit: u64,
    /// How many unit-cost requests would be granted right now, after this decision. [`u64::MAX`] where no limit applies.
    pub remaining: u64,
    /// On a denial, the shortest wait after which the same check would be granted if nobody else asked; none where it never
    /// would. Of several limits, the longest of those that denied.
    pub retry_after: Option<Duration>,
    /// The span after which the key is as good as new if nobody asks again; of the limit that `remaining` is of.
    pub reset_after: Duration,
    /// How long the caller has to hold a granted request back; leaky buckets only.
    pub delay: Option<Duration>,
    /// A check of one limit in shadow mode was allowed, and would have been denied.
    pub shadow_denied: bool,
    /// The answer is weaker than the policy promises: another key was evicted from a full table to make room.
    pub degraded: bool,
    /// A denial that this client remembered, so that the cluster was not asked again. Its waits are lessened by the time that
    /// has passed; the rest, its receipt too, is what the denial said when it came, and does not know what others were granted
    /// since. See
    /// [`ClientBuilder::remember_denials`](crate::ClientBuilder::remember_denials).
    pub remembered: bool,
    /// The policy set that decided.
    pub policy_version: PolicyVersion,
    /// Where and when it was decided: shard, term, index, place, stamp. Of a check over several shards, that of the one with
    /// the longest wait, or, where it was granted, of the first limit named; see [`receipts`](Self::receipts).
    pub receipt: Receipt,
    /// Each limit's own verdict, in the order they were named; equal ones are joined, disabled ones left out.
    pub limits: Vec<LimitDecision>,
    pub(crate) taken: bool,
}

/// The verdict on one limit of a check, as it would have been alone.
///
/// ```no_run
/// # async fn f(client: quorate_client::Client) -> Result<(), quorate_client::Error> {
/// use quorate_client::limit;
/// let decision = client.check_all([limit("tenant", "{acme}"), limit("user", "{acme}/7")]).await?;
/// for one in &decision.limits {
///     println!("{} {}: {} of {} left", one.policy, one.key, one.remaining, one.limit);
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LimitDecision {
    /// The policy's name.
    pub policy: Arc<str>,
    /// The key as it was asked.
    pub key: String,
    /// Whether this limit alone would grant the check.
    pub allowed: bool,
    /// Whether the check's cost was charged to it.
    pub charged: bool,
    /// Whether the policy is in shadow mode, so that its verdict denies nothing.
    pub shadow: bool,
    /// What was asked of it, in units.
    pub cost: u64,
    /// As [`Decision::limit`].
    pub limit: u64,
    /// As [`Decision::remaining`].
    pub remaining: u64,
    /// As [`Decision::retry_after`].
    pub retry_after: Option<Duration>,
    /// As [`Decision::reset_after`].
    pub reset_after: Duration,
    /// As [`Decision::delay`].
    pub delay: Option<Duration>,
    /// Where and when this limit was decided: limits of one shard are decided together.
    pub receipt: Receipt,
    pub(crate) id: PolicyId,
    pub(crate) mark: Option<i128>,
}

impl Decision {
    /// Takes the charge out, to keep it for a later [`refund`](crate::Client::refund). It can be taken once; a decision that
    /// charged nothing has none.
    ///
    /// ```no_run
    /// # async fn f(client: quorate_client::Client) -> Result<(), quorate_client::Error> {
    /// let mut decision = client.check("per-user", "alice").await?;
    /// let charge = decision.take_charge();
    /// assert!(decision.take_charge().is_none());
    /// if let Some(charge) = charge {
    ///     client.refund(charge).await?;
    /// }
    /// # Ok(()) }
    /// ```
    pub fn take_charge(&mut self) -> Option<Charge> {
        let charge = Charge::of(self);
        self.taken = true;
        charge
    }

    /// Where it was decided: one receipt for each shard that was asked, in the order named; one alone in most cases.
    ///
    /// ```no_run
    /// # async fn f(client: quorate_client::Client) -> Result<(), quorate_client::Error> {
    /// use quorate_client::limit;
    /// let decision = client.check_all([limit("tenant", "acme"), limit("global", "all")]).await?;
    /// for receipt in decision.receipts() {
    ///     println!("{} at {}", receipt.shard, receipt.index);
    /// }
    /// # Ok(()) }
    /// ```
    pub fn receipts(&self) -> impl Iterator<Item = &Receipt> {
        let first = |at: usize, one: &Receipt| self.limits.iter().take(at).all(|other| other.receipt != *one);
        let receipts = self.limits.iter().map(|limit| &limit.receipt).enumerate();
        let none = self.limits.is_empty().then_some(&self.receipt);
        receipts.filter(move |(at, one)| first(*at, one)).map(|(_, one)| one).chain(none)
    }

    /// The same, without its charge.
    pub(crate) fn copy(&self) -> Self {
        Decision { limits: self.limits.clone(), taken: true, ..*self }
    }

    /// Takes over the figures of its tightest limit.
    pub(crate) fn tighten(&mut self) {
        let tightest = self.limits.iter().min_by_key(|one| (one.shadow, one.remaining));
        self.limit = tightest.map_or(u64::MAX, |one| one.limit);
        self.remaining = tightest.map_or(u64::MAX, |one| one.remaining);
        self.reset_after = tightest.map_or(Duration::ZERO, |one| one.reset_after);
    }

    /// Dresses the core's decision in the caller's words.
    pub(crate) fn new(receipt: Receipt, core: quorate_core::Decision, asked: &mut Question<'_>) -> Self {
        let limits = core.limits.into_iter().filter_map(|one| LimitDecision::new(receipt, one, asked)).collect();
        let mut decision = Decision {
            allowed: core.allowed,
            retry_after: core.retry_after.map(duration),
            delay: core.delay.map(duration),
            shadow_denied: core.shadow_denied,
            degraded: core.degraded,
            policy_version: core.version,
            receipt,
            limits,
            ..Decision::default()
        };
        decision.tighten();
        decision
    }
}

impl LimitDecision {
    /// None where the answer speaks of a limit that was not asked; the caller drops it.
    fn new(receipt: Receipt, core: quorate_core::LimitAnswer, asked: &mut Question<'_>) -> Option<Self> {
        let limit = asked.limits.get_mut(usize::from(core.ordinal))?;
        let (id, policy) = limit.resolved.clone()?;
        Some(LimitDecision {
            policy,
            key: std::mem::take(&mut limit.key),
            allowed: core.allowed,
            charged: core.charged,
            shadow: core.shadow,
            cost: limit.cost,
            limit: core.limit,
            remaining: core.remaining,
            retry_after: core.retry_after.map(duration),
            reset_after: duration(core.reset_after),
            delay: core.delay.map(duration),
            receipt,
            id,
            mark: core.mark,
        })
    }

    pub(crate) fn cost(&self) -> Cost {
        Cost::new(self.cost).unwrap_or(Cost::MAX)
    }
}

pub(crate) fn duration(span: Span) -> Duration {
    Duration::from_micros(u64::try_from(span.0).unwrap_or(0))
}
