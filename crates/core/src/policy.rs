//! Policies: named rules, and the set of all of them.

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
    /// Denies.
    #[default]
    FailClosed,
    /// Decides in process, on this process's share of the limit.
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
