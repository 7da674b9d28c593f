//! When the cluster cannot be asked in time: what the policies of the check want done then.
//!
//! ```text
//!  an error of a kind that is_unavailable ──► strictest wish of its enforced limits
//!                                              fail_closed ──► the error
//!                                              local ────────► this process decides, on its share     ┐ degraded:
//!                                              fail_open ────► granted, nothing known, nothing charged ┘ counted, logged
//! ```
//!
//! A wish is what the check says, else what the builder says for that policy, else what the policy says. Policies in shadow
//! mode and disabled ones have none: they are never a reason to refuse.
//!
//! Invariant: an answer that the cluster gave, whatever it is, is never replaced by one from here.

mod local;
mod log;
mod share;

use std::collections::HashMap;
use std::sync::Arc;

use quorate_core::{Mode, OnUnavailable, PlaceAnswer, Policy, PolicyId, PolicyVersion, Receipt, Span};
use smallvec::SmallVec;
use tokio::time::Instant;

use crate::backoff::Chance;
use crate::decision::{DecidedBy, Decision};
use crate::error::Error;
use crate::observe;
use crate::pack::Operation;
use crate::question::{Limit, Question};
use crate::routes::Routes;
use crate::time::ClusterTime;
use local::{Asked, Local};
use log::Log;

/// What one check wants done when the cluster cannot be asked in time, whatever its policies say; from the most lenient to
/// the strictest.
///
/// ```no_run
/// # async fn f(client: quorate_client::Client) -> Result<(), quorate_client::Error> {
/// use quorate_client::Fallback;
/// // A health check is never refused for want of a cluster.
/// let decision = client.check("per-user", "probe").on_unavailable(Fallback::FailOpen).await?;
/// # drop(decision); Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fallback {
    /// Grant it, and charge nothing.
    FailOpen,
    /// Let this process decide, on its share of the limit: the share that the policy or the builder names, or one part for
    /// each live client.
    Local,
    /// Give no decision but the error.
    FailClosed,
}

impl From<OnUnavailable> for Fallback {
    fn from(wish: OnUnavailable) -> Self {
        match wish {
            OnUnavailable::FailOpen => Fallback::FailOpen,
            OnUnavailable::Local { .. } => Fallback::Local,
            OnUnavailable::FailClosed => Fallback::FailClosed,
        }
    }
}

/// What matters of a call when the cluster does not answer it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Manner {
    /// What the call itself wants.
    pub(crate) fallback: Option<Fallback>,
    /// It is a reservation of that life.
    pub(crate) reserve: Option<Span>,
}

/// What policies want, by name, where it was set in code.
pub(crate) type Overrides = HashMap<String, OnUnavailable>;

/// Answers where the cluster does not.
#[derive(Debug)]
pub(crate) struct Fallbacks {
    overrides: Overrides,
    local: Local,
    log: Log,
}

impl Fallbacks {
    pub(crate) fn new(overrides: Overrides, mut chance: Chance) -> Self {
        Fallbacks { overrides, local: Local::new(&mut chance), log: Log::default() }
    }

    /// What becomes of a check that the cluster did not answer: `error` says why.
    pub(crate) fn decide(
        &self,
        routes: &Routes,
        time: &ClusterTime,
        question: &mut Question<'_>,
        manner: Manner,
        error: Error,
    ) -> Result<Decision, Error> {
        // The policies may have changed since it was asked.
        if !error.kind().is_unavailable() || question.resolve(&routes.policies).is_err() {
            return Err(error);
        }
        let set = &routes.policies.set;
        let mut strictest = Fallback::FailOpen;
        let mut local: SmallVec<[Asked<'_>; 1]> = SmallVec::new();
        for (ordinal, limit) in question.limits.iter().enumerate() {
            let Some(policy) = set.get(limit.policy_id()).filter(|policy| policy.mode != Mode::Disabled) else {
                continue;
            };
            let wish = manner.fallback.unwrap_or_else(|| self.wish(policy).into());
            if policy.mode == Mode::Enforce {
                strictest = strictest.max(wish);
            }
            if wish == Fallback::Local {
                local.push(Asked { ordinal, policy: policy.id, key: limit.key.as_bytes(), cost: limit.units() });
            }
        }
        let now = Instant::now();
        let here = match strictest {
            Fallback::FailClosed => return Err(error),
            Fallback::FailOpen => None,
            Fallback::Local => {
                let share_of = |policy: &Policy| share::Share::of(self.wish(policy), routes.topology.live_clients);
                let table = (set, routes.topology.live_clients);
                let ask = local::Ask {
                    limits: &local,
                    peek: question.peek,
                    max_delay: question.max_delay.map(crate::pack::span),
                    reserve: manner.reserve,
                };
                match self.local.decide(table, share_of, time, now, &ask) {
                    Ok(decided) => Some(decided),
                    Err(refusal) => return Err(refusal.charged(error.may_have_charged()).caused_by(error)),
                }
            }
        };
        drop(local);
        let decided = match here {
            None => granted(set.version),
            Some((receipt, core)) => {
                let decision = Decision::new(receipt, core, question);
                Decision { decided_by: DecidedBy::Local, policy_version: set.version, ..decision }
            }
        };
        for limit in &question.limits {
            if let Some((id, name)) = &limit.resolved {
                observe::degraded(name, decided.decided_by, error.kind());
                self.log.note(*id, name, decided.decided_by, &error, now);
            }
        }
        Ok(Decision { degraded: true, cause: Some(error), ..decided })
    }

    /// The same where nothing was ever heard of the cluster, so that the policies are not known: only what was said in code
    /// counts, and a share of a limit that nobody knows is nothing.
    pub(crate) fn decide_unheard(
        &self,
        question: &Question<'_>,
        manner: Manner,
        error: Error,
    ) -> Result<Decision, Error> {
        let said = |name: &str| self.overrides.get(name).map(|wish| Fallback::from(*wish));
        let wish = |limit: &Limit<'_>| manner.fallback.or_else(|| said(limit.policy)).unwrap_or(Fallback::FailClosed);
        if !error.kind().is_unavailable() || question.limits.iter().any(|limit| wish(limit) != Fallback::FailOpen) {
            return Err(error);
        }
        let (decided, now) = (granted(PolicyVersion::default()), Instant::now());
        for limit in &question.limits {
            // A name that may be no policy's is nobody's label.
            let name =
                if self.overrides.contains_key(limit.policy) { limit.policy.into() } else { Arc::from("unknown") };
            observe::degraded(&name, decided.decided_by, error.kind());
            self.log.note(PolicyId(0), &name, decided.decided_by, &error, now);
        }
        Ok(Decision { degraded: true, cause: Some(error), ..decided })
    }

    /// The answer to what undoes or corrects a charge that was made here; none where it is the cluster's.
    pub(crate) fn undo(&self, operation: &Operation<'_, '_>, time: &ClusterTime) -> Option<PlaceAnswer> {
        match operation {
            Operation::Refund(part) => self.local.refund(part, time, Instant::now()),
            Operation::Settle { part, ttl, actual } => self.local.settle(part, *ttl, actual, time, Instant::now()),
            Operation::Reserve { .. } | Operation::Reset(_) => None,
        }
    }

    fn wish(&self, policy: &Policy) -> OnUnavailable {
        self.overrides.get(&policy.name).copied().unwrap_or(policy.on_unavailable)
    }
}

/// Granted without asking anybody.
fn granted(version: PolicyVersion) -> Decision {
    let core = quorate_core::Decision { allowed: true, version, ..Default::default() };
    let mut decision = Decision::new(Receipt::default(), core, &mut Question::default());
    decision.decided_by = DecidedBy::FailOpen;
    decision
}
