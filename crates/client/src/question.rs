//! What a caller asks: one or several limits, checked here before they travel.
//!
//! Invariant: a question that passed [`Question::validate`] is within every bound that the cluster would refuse it for,
//! and names no (policy, key) twice.

use std::sync::Arc;
use std::time::Duration;

use quorate_core::{Cost, PolicyId};
use smallvec::SmallVec;

use crate::caps;
use crate::error::Error;
use crate::routes::Policies;

/// One limit of a check: a policy, the key it is applied to, and a cost. Made by [`limit`].
#[derive(Clone, Debug)]
pub struct Limit<'a> {
    pub(crate) policy: &'a str,
    pub(crate) key: String,
    pub(crate) cost: u64,
    /// The cluster's id for the policy and its shared name, once looked up.
    pub(crate) resolved: Option<(PolicyId, Arc<str>)>,
}

/// Names one limit for [`check_all`](crate::Client::check_all) and [`check_many`](crate::Client::check_many), with a cost of 1.
///
/// ```
/// use quorate_client::limit;
/// let both = [limit("tenant", "{acme}"), limit("user", "{acme}/7").cost(2)];
/// assert_eq!(both.len(), 2);
/// ```
pub fn limit(policy: &str, key: impl Into<String>) -> Limit<'_> {
    Limit { policy, key: key.into(), cost: 1, resolved: None }
}

impl Limit<'_> {
    /// What the check costs under this limit, in units: 0 to 10^12. 0 is always granted, and only reports.
    pub fn cost(mut self, units: u64) -> Self {
        self.cost = units;
        self
    }
}

/// One check among several of a [`check_many`](crate::Client::check_many): a limit, or several that are granted together.
///
/// ```
/// use quorate_client::{Question, limit};
/// let one = Question::from(limit("per-user", "alice"));
/// let two = Question::from([limit("tenant", "{acme}"), limit("user", "{acme}/7")]);
/// # let _ = (one, two);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Question<'a> {
    pub(crate) limits: SmallVec<[Limit<'a>; 1]>,
    pub(crate) peek: bool,
    pub(crate) max_delay: Option<Duration>,
}

impl<'a> From<Limit<'a>> for Question<'a> {
    fn from(limit: Limit<'a>) -> Self {
        Question { limits: smallvec::smallvec![limit], ..Default::default() }
    }
}

impl<'a, const N: usize> From<[Limit<'a>; N]> for Question<'a> {
    fn from(limits: [Limit<'a>; N]) -> Self {
        Question { limits: limits.into_iter().collect(), ..Default::default() }
    }
}

impl<'a> From<Vec<Limit<'a>>> for Question<'a> {
    fn from(limits: Vec<Limit<'a>>) -> Self {
        Question { limits: limits.into(), ..Default::default() }
    }
}

impl<'a> FromIterator<Limit<'a>> for Question<'a> {
    fn from_iter<I: IntoIterator<Item = Limit<'a>>>(limits: I) -> Self {
        // One more than may be named is enough to be refused.
        Question { limits: limits.into_iter().take(caps::LIMITS_PER_CHECK + 1).collect(), ..Default::default() }
    }
}

impl Question<'_> {
    /// Answers as the check would, and charges nothing.
    pub fn peek(mut self) -> Self {
        self.peek = true;
        self
    }

    /// Takes a leaky bucket's place only if the wait for it is at most this.
    pub fn max_delay(mut self, wait: Duration) -> Self {
        self.max_delay = Some(wait);
        self
    }

    /// Refuses what is out of bounds, and joins equal limits.
    pub(crate) fn validate(&mut self) -> Result<(), Error> {
        if self.limits.is_empty() {
            return Err(Error::invalid("a check has to name at least one limit"));
        }
        if self.limits.len() > caps::LIMITS_PER_CHECK {
            let text = format!("a check can name at most {} limits; split it", caps::LIMITS_PER_CHECK);
            return Err(Error::invalid(text));
        }
        for limit in &self.limits {
            limit.validate()?;
        }
        if self.limits.len() > 1 { self.join() } else { Ok(()) }
    }

    /// The same (policy, key) named twice counts as one limit with the costs added.
    fn join(&mut self) -> Result<(), Error> {
        let mut joined: SmallVec<[Limit<'_>; 1]> = SmallVec::with_capacity(self.limits.len());
        for limit in self.limits.drain(..) {
            match joined.iter_mut().find(|one| one.policy == limit.policy && one.key == limit.key) {
                Some(one) => one.cost += limit.cost,
                None => joined.push(limit),
            }
        }
        self.limits = joined;
        self.limits.iter().try_for_each(Limit::validate_cost)
    }

    /// Bytes of keys.
    pub(crate) fn bytes(&self) -> usize {
        self.limits.iter().map(|limit| limit.key.len()).sum()
    }

    /// Looks up what is not looked up yet. The name that the set does not have is the error.
    pub(crate) fn resolve(&mut self, policies: &Policies) -> Result<(), String> {
        for limit in &mut self.limits {
            limit.resolved = Some(policies.find(limit.policy).ok_or_else(|| limit.policy.to_owned())?);
        }
        Ok(())
    }
}

impl Limit<'_> {
    fn validate(&self) -> Result<(), Error> {
        if self.policy.is_empty() || self.policy.len() > caps::POLICY_NAME_BYTES {
            let text = format!("a policy's name has 1 to {} bytes", caps::POLICY_NAME_BYTES);
            return Err(Error::invalid(text));
        }
        if self.key.is_empty() {
            return Err(Error::invalid(format!("the key for policy {} is empty; name whom it is for", self.policy)));
        }
        if self.key.len() > caps::KEY_BYTES {
            return Err(Error::invalid(format!(
                "the key for policy {} has {} bytes; at most {} are allowed: hash it first",
                self.policy,
                self.key.len(),
                caps::KEY_BYTES
            )));
        }
        self.validate_cost()
    }

    fn validate_cost(&self) -> Result<(), Error> {
        match Cost::new(self.cost) {
            Some(_) => Ok(()),
            None => Err(Error::invalid(format!(
                "the cost {} for policy {} is above {}, the most that one check can ask",
                self.cost,
                self.policy,
                Cost::MAX
            ))),
        }
    }

    /// The cost; validated before.
    pub(crate) fn units(&self) -> Cost {
        Cost::new(self.cost).unwrap_or(Cost::MAX)
    }

    /// The cluster's id for the policy.
    ///
    /// # Panics
    /// Never after [`Question::resolve`] said yes.
    pub(crate) fn policy_id(&self) -> PolicyId {
        self.resolved.as_ref().expect("the policy was looked up before").0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused<'a>(question: impl Into<Question<'a>>) -> String {
        question.into().validate().unwrap_err().to_string()
    }

    #[test]
    fn what_the_cluster_would_refuse_is_refused_here() {
        assert!(refused(Vec::new()).contains("at least one"));
        assert!(refused((0..17).map(|i| limit("p", i.to_string())).collect::<Question<'_>>()).contains("at most 16"));
        assert!(refused(limit("p", "")).contains("empty"));
        assert!(refused(limit("", "k")).contains("name"));
        assert!(refused(limit("p", "x".repeat(1025))).contains("1025 bytes"));
        assert!(refused(limit("p", "k").cost(1_000_000_000_001)).contains("1000000000000"));
        assert!(Question::from(limit("p", "x".repeat(1024)).cost(1_000_000_000_000)).validate().is_ok());
    }

    #[test]
    fn equal_limits_are_joined_and_their_sum_is_bounded() {
        let mut question = Question::from([limit("p", "a").cost(2), limit("q", "a"), limit("p", "a").cost(3)]);
        question.validate().unwrap();
        assert_eq!(question.limits.iter().map(|l| (l.policy, l.cost)).collect::<Vec<_>>(), [("p", 5), ("q", 1)]);
        assert!(refused([limit("p", "a").cost(1_000_000_000_000), limit("p", "a")]).contains("above"));
    }
}
