//! Time, spans, costs and rates: whole numbers with their bounds.

use std::fmt;

/// A moment of logical time: microseconds since the Unix epoch, 0 to 2^62.
///
/// ```
/// use quorate_core::{Span, Stamp};
/// assert_eq!(Stamp(5).saturating_add(Span(7)), Stamp(12));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stamp(pub i64);

/// A span of time: microseconds, 0 to 2^62.
///
/// ```
/// assert_eq!(quorate_core::Span(1_500_000).to_string(), "1.5s");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(pub i64);

/// A number of units, 0 to 10^12.
///
/// ```
/// use quorate_core::Cost;
/// assert_eq!(Cost::new(3).map(Cost::get), Some(3));
/// assert_eq!(Cost::new(1_000_000_000_001), None);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cost(u64);

/// R units in each period P; R from 1 to 10^12, P from 1 ms to 366 days.
///
/// ```
/// use quorate_core::{Rate, Span};
/// assert_eq!(Rate { units: 100, period: Span(1_000_000) }.to_string(), "100/s");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// R.
    pub units: u64,
    /// P.
    pub period: Span,
}

impl Stamp {
    /// The moment `span` later; at most 2^62.
    pub fn saturating_add(self, span: Span) -> Stamp {
        Stamp(self.0.saturating_add(span.0).min(crate::caps::LONGEST_US))
    }
}

impl Cost {
    /// The largest cost: 10^12.
    pub const MAX: Cost = Cost(crate::caps::UNITS);
    /// One unit.
    pub const ONE: Cost = Cost(1);
    /// Nothing: the check only reports.
    pub const ZERO: Cost = Cost(0);

    /// A cost; none above 10^12.
    pub const fn new(units: u64) -> Option<Cost> {
        if units <= crate::caps::UNITS { Some(Cost(units)) } else { None }
    }

    /// In units.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The two together; none above 10^12.
    pub const fn checked_add(self, other: Cost) -> Option<Cost> {
        // No sum of two costs passes 64 bits.
        Cost::new(self.0 + other.0)
    }

    /// What is left of it; nothing where the other is more.
    pub const fn saturating_sub(self, other: Cost) -> Cost {
        Cost(self.0.saturating_sub(other.0))
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (unit, name) in [(86_400_000_000, "d"), (3_600_000_000, "h"), (60_000_000, "m"), (1_000_000, "s")] {
            if self.0 >= unit && self.0 % unit == 0 {
                return write!(f, "{}{name}", self.0 / unit);
            }
        }
        let (whole, fraction, name) = match self.0 {
            us if us >= 1_000_000 => (us / 1_000_000, format!("{:06}", us % 1_000_000), "s"),
            us => (us / 1_000, format!("{:03}", us % 1_000), "ms"),
        };
        let fraction = fraction.trim_end_matches('0');
        if fraction.is_empty() { write!(f, "{whole}{name}") } else { write!(f, "{whole}.{fraction}{name}") }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let period = self.period.to_string();
        write!(
            f,
            "{}/{}",
            self.units,
            period.strip_prefix('1').filter(|p| p.starts_with(char::is_alphabetic)).unwrap_or(&period)
        )
    }
}
