//! Policies: named rules, and the set of all of them.
//!
//! A policy that [`Policy::validate`] lets in can be evaluated for ever without overflow; one that does not fit is refused
//! when it is applied, never later.

use std::fmt;

use crate::caps;
use crate::ids::{PolicyId, PolicyVersion};
use crate::units::{Cost, Rate, Span};

/// How a policy counts. What each means is in `docs/semantics.md`.
///
/// ```
/// use quorate_core::{Algorithm, Rate, Span};
/// let bucket = Algorithm::TokenBucket { capacity: 200, refill: Rate { units: 100, period: Span(60_000_000) } };
/// assert_eq!(bucket.name(), "token_bucket");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// At most `limit` in each window aligned to the epoch.
    FixedWindow {
        /// L, 0 to 10^12.
        limit: u64,
        /// W, 1 ms to 366 d.
        window: Span,
    },
    /// At most `limit` in any window, exactly; L at most 100,000.
    SlidingLog {
        /// L.
        limit: u64,
        /// W.
        window: Span,
    },
    /// At most about `limit` in any window, from two counters.
    SlidingCounter {
        /// L.
        limit: u64,
        /// W.
        window: Span,
    },
    /// A bucket of `capacity` tokens, filled at a rate.
    TokenBucket {
        /// B.
        capacity: u64,
        /// R/P.
        refill: Rate,
    },
    /// A queue of places, served at a rate.
    LeakyBucket {
        /// Q.
        queue: u64,
        /// R/P.
        rate: Rate,
    },
}

/// Whether a policy denies.
///
/// ```
/// assert_eq!(quorate_core::Mode::default(), quorate_core::Mode::Enforce);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// It denies.
    #[default]
    Enforce,
    /// It is evaluated and reported, and never denies.
    Shadow,
    /// It is not evaluated.
    Disabled,
}

/// What a client does when the cluster cannot be asked in time.
///
/// ```
/// assert_eq!(quorate_core::OnUnavailable::default(), quorate_core::OnUnavailable::FailClosed);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnUnavailable {
    /// Grants, marked degraded.
    FailOpen,
    /// Refuses: the check ends with an error, which is no denial.
    #[default]
    FailClosed,
    /// Decides in process, on this process's share of the limit, marked degraded.
    Local {
        /// The share in parts per million, 1 to 1,000,000; none: one part for each live client.
        share_ppm: Option<u32>,
    },
}

/// What happens to a new key when the shard's table is full.
///
/// ```
/// assert_eq!(quorate_core::OnFull::default(), quorate_core::OnFull::Refuse);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFull {
    /// The check gets the error `table_full`.
    #[default]
    Refuse,
    /// The key nearest to good-as-new among a few sampled ones makes room; marked degraded.
    Evict,
}

/// A named rule.
///
/// ```
/// use quorate_core::{Algorithm, Policy, Span};
/// let policy = Policy::new("per-user", Algorithm::FixedWindow { limit: 5, window: Span(1_000_000) });
/// assert_eq!(policy.name, "per-user");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The cluster's number for it; 0 until the control group has given one.
    pub id: PolicyId,
    /// Letters, digits and `- _ . /`; 1 to 128 bytes.
    pub name: String,
    /// How it counts.
    pub algorithm: Algorithm,
    /// Whether it denies.
    pub mode: Mode,
    /// A check that costs more is an invalid call.
    pub max_cost: Option<Cost>,
    /// What a client does when it cannot ask.
    pub on_unavailable: OnUnavailable,
    /// What happens to a new key in a full table.
    pub on_full: OnFull,
    /// For people.
    pub description: String,
}

/// All policies together.
///
/// ```
/// use quorate_core::{PolicySet, PolicyVersion};
/// assert_eq!(PolicySet::default().version, PolicyVersion(0));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicySet {
    /// The set's number.
    pub version: PolicyVersion,
    /// By id, ascending.
    pub policies: Vec<Policy>,
}

impl Policy {
    /// An enforced policy with every other setting at its default.
    pub fn new(name: impl Into<String>, algorithm: Algorithm) -> Self {
        Policy {
            id: PolicyId(0),
            name: name.into(),
            algorithm,
            mode: Mode::default(),
            max_cost: None,
            on_unavailable: OnUnavailable::default(),
            on_full: OnFull::default(),
            description: String::new(),
        }
    }
}

/// What is wrong with one field of a policy.
///
/// ```
/// use quorate_core::{Algorithm, Policy, Span};
/// let policy = Policy::new("p", Algorithm::FixedWindow { limit: 5, window: Span(1) });
/// let problems = policy.validate().unwrap_err();
/// assert_eq!(problems.0[0].to_string(), "window is 0.001ms; allowed is 1ms to 366d");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldProblem {
    /// The field's name, as in a policy file.
    pub field: &'static str,
    /// What is wrong with it, and what is allowed.
    pub message: String,
}

/// Everything that is wrong with a policy; never empty.
///
/// ```
/// use quorate_core::{Algorithm, Policy, Span};
/// let policy = Policy::new("a b", Algorithm::FixedWindow { limit: 5, window: Span(1) });
/// assert_eq!(policy.validate().unwrap_err().0.len(), 2);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyProblems(pub Vec<FieldProblem>);

impl fmt::Display for FieldProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl fmt::Display for PolicyProblems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, problem) in self.0.iter().enumerate() {
            write!(f, "{}{problem}", if i == 0 { "" } else { "; " })?;
        }
        Ok(())
    }
}

impl std::error::Error for PolicyProblems {}

impl Policy {
    /// Whether the policy lies within the bounds of the law, so that nothing can overflow later; all that does not, if not.
    ///
    /// ```
    /// use quorate_core::{Algorithm, Policy, Rate, Span};
    /// let slow = Rate { units: 1, period: Span(366 * 86_400_000_000) };
    /// assert!(Policy::new("p", Algorithm::TokenBucket { capacity: 100_000, refill: slow }).validate().is_ok());
    /// assert!(Policy::new("p", Algorithm::TokenBucket { capacity: 200_000, refill: slow }).validate().is_err());
    /// ```
    pub fn validate(&self) -> Result<(), PolicyProblems> {
        self.validate_up_to(caps::UNITS)
    }

    /// What whoever puts this policy in force in place of `old` should be told; none if nothing is lost by it.
    ///
    /// ```
    /// use quorate_core::{Algorithm, Policy, Span};
    /// let old = Policy::new("p", Algorithm::FixedWindow { limit: 5, window: Span(1_000_000) });
    /// let new = Policy::new("p", Algorithm::SlidingLog { limit: 5, window: Span(1_000_000) });
    /// assert!(new.warning_over(&old).is_some());
    /// assert_eq!(new.warning_over(&new), None);
    /// ```
    pub fn warning_over(&self, old: &Policy) -> Option<String> {
        let (from, to) = (old.algorithm.name(), self.algorithm.name());
        (from != to).then(|| {
            let name = &self.name;
            format!("policy {name:?} goes from {from} to {to}: every key of it starts as good as new, and earlier charges are gone")
        })
    }

    /// As [`Policy::validate`], with limits, capacities, queues and rates up to `units` instead of 10^12, which may be up to
    /// [`caps::EXACT_UNITS`]. For traces, which may ask more than a cluster lets in.
    pub fn validate_up_to(&self, units: u64) -> Result<(), PolicyProblems> {
        let mut problems = Problems { units: units.min(caps::EXACT_UNITS), found: Vec::new() };
        problems.name(&self.name);
        match self.algorithm {
            Algorithm::FixedWindow { limit, window } | Algorithm::SlidingCounter { limit, window } => {
                problems.count("limit", limit, problems.units);
                problems.span("window", window);
            }
            Algorithm::SlidingLog { limit, window } => {
                problems.count("limit", limit, caps::SLIDING_LOG_LIMIT);
                problems.span("window", window);
            }
            Algorithm::TokenBucket { capacity, refill } => {
                problems.count("capacity", capacity, problems.units);
                problems.rate("refill", refill);
                problems.longest("capacity", capacity, refill, "fill the bucket");
            }
            Algorithm::LeakyBucket { queue, rate } => {
                problems.count("queue", queue, problems.units);
                problems.rate("rate", rate);
                problems.longest("queue", queue.saturating_add(1), rate, "drain the queue");
            }
        }
        if self.max_cost == Some(Cost::ZERO) {
            problems.add("max_cost", format!("max_cost is 0; allowed is 1 to {}", caps::UNITS));
        }
        if let OnUnavailable::Local { share_ppm: Some(share) } = self.on_unavailable
            && !(1..=1_000_000).contains(&share)
        {
            problems.add("share", format!("share is {share} parts per million; allowed is 1 to 1000000"));
        }
        if self.description.len() > caps::DESCRIPTION_BYTES {
            let (is, most) = (self.description.len(), caps::DESCRIPTION_BYTES);
            problems.add("description", format!("description has {is} bytes; allowed are {most}"));
        }
        if problems.found.is_empty() { Ok(()) } else { Err(PolicyProblems(problems.found)) }
    }
}

/// The mistakes of one policy, as they are found.
struct Problems {
    units: u64,
    found: Vec<FieldProblem>,
}

impl Problems {
    fn add(&mut self, field: &'static str, message: String) {
        self.found.push(FieldProblem { field, message });
    }

    fn name(&mut self, name: &str) {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte);
        if name.is_empty() || name.len() > caps::POLICY_NAME_BYTES || !name.bytes().all(allowed) {
            let shown: String = name.chars().take(caps::POLICY_NAME_BYTES).collect();
            let most = caps::POLICY_NAME_BYTES;
            self.add("name", format!("name is {shown:?}; allowed are 1 to {most} letters, digits, and any of - _ . /"));
        }
    }

    fn count(&mut self, field: &'static str, is: u64, most: u64) {
        if is > most {
            self.add(field, format!("{field} is {is}; allowed is 0 to {most}"));
        }
    }

    fn span(&mut self, field: &'static str, is: Span) {
        if !(caps::SPAN_MIN_US..=caps::SPAN_MAX_US).contains(&is.0) {
            self.add(field, format!("{field} is {is}; allowed is 1ms to 366d"));
        }
    }

    fn rate(&mut self, field: &'static str, is: Rate) {
        if is.units == 0 || is.units > self.units {
            self.add(field, format!("{field} is {} units a period; allowed is 1 to {}", is.units, self.units));
        }
        if !(caps::SPAN_MIN_US..=caps::SPAN_MAX_US).contains(&is.period.0) {
            self.add(field, format!("{field} has a period of {}; allowed is 1ms to 366d", is.period));
        }
    }

    /// The longest span of a bucket has to fit 2^62 microseconds.
    fn longest(&mut self, field: &'static str, units: u64, rate: Rate, to: &str) {
        if !self.found.iter().any(|problem| problem.field != "name") {
            let (work, speed) = (i128::from(units) * i128::from(rate.period.0), i128::from(rate.units));
            if work > i128::from(caps::LONGEST_US) * speed {
                let message =
                    format!("{field} is too large for {rate}: it would take longer than 2^62 microseconds to {to}");
                self.add(field, message);
            }
        }
    }
}

impl Algorithm {
    /// The algorithm's name in a policy file.
    pub fn name(&self) -> &'static str {
        match self {
            Algorithm::FixedWindow { .. } => "fixed_window",
            Algorithm::SlidingLog { .. } => "sliding_log",
            Algorithm::SlidingCounter { .. } => "sliding_counter",
            Algorithm::TokenBucket { .. } => "token_bucket",
            Algorithm::LeakyBucket { .. } => "leaky_bucket",
        }
    }
}

impl PolicySet {
    /// The policy of that id, if it is in the set.
    pub fn get(&self, id: PolicyId) -> Option<&Policy> {
        let at = self.policies.binary_search_by_key(&id, |policy| policy.id).ok()?;
        self.policies.get(at)
    }
}
