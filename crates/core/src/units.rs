//! Time, spans, costs and rates: whole numbers with their bounds.
//!
//! Text is read exactly or not at all: `1.5s` is 1,500,000 microseconds, and what would need a fraction of one is refused.

use std::fmt;

/// Text that is not a span or a rate.
///
/// ```
/// let error = quorate_core::Span::parse("10 sec").unwrap_err();
/// assert_eq!(error.to_string(), "\"10 sec\" is not a span; write a number with us, ms, s, m, h or d, such as 250ms or 1h");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a {what}; write {expected}")]
pub struct UnitsError {
    text: String,
    what: &'static str,
    expected: &'static str,
}

const SPAN_UNITS: [(&str, i64); 6] =
    [("us", 1), ("ms", 1_000), ("s", 1_000_000), ("m", 60_000_000), ("h", 3_600_000_000), ("d", 86_400_000_000)];

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

impl Span {
    /// Reads `250ms`, `10s`, `1.5s`, `5m`, `1h`, `1d`: at most 2^62 microseconds, and a whole number of them.
    ///
    /// ```
    /// use quorate_core::Span;
    /// assert_eq!(Span::parse("5m"), Ok(Span(300_000_000)));
    /// assert!(Span::parse("0.0000001s").is_err());
    /// ```
    pub fn parse(text: &str) -> Result<Span, UnitsError> {
        parse_us(text).map(Span).ok_or_else(|| UnitsError {
            text: text.chars().take(64).collect(),
            what: "span",
            expected: "a number with us, ms, s, m, h or d, such as 250ms or 1h",
        })
    }
}

/// The text as microseconds; none if it is not a span, or too long a one.
fn parse_us(text: &str) -> Option<i64> {
    let (number, unit) = text.split_at(text.find(|c: char| c.is_ascii_alphabetic())?);
    let &(_, scale) = SPAN_UNITS.iter().find(|(name, _)| *name == unit)?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let digits = |text: &str| !text.is_empty() && text.len() <= 19 && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(fraction) || fraction.len() > 12 {
        return None;
    }
    let (scale, tens) = (i128::from(scale), 10_i128.pow(fraction.len() as u32));
    let parts = fraction.parse::<i128>().ok()? * scale;
    let us = whole.parse::<i128>().ok()? * scale + parts / tens;
    (parts % tens == 0 && us <= i128::from(crate::caps::LONGEST_US)).then_some(us as i64)
}

impl Rate {
    /// Reads `100/s`, `100/10s`, `6000/1h`: units for each period, at least 1; at most 10^12 for a policy, which
    /// [`Policy::validate`](crate::Policy::validate) sees to, as to the period's bounds.
    ///
    /// ```
    /// use quorate_core::{Rate, Span};
    /// assert_eq!(Rate::parse("100/m"), Rate::parse("100/1m"));
    /// assert_eq!(Rate::parse("3/10s"), Ok(Rate { units: 3, period: Span(10_000_000) }));
    /// ```
    pub fn parse(text: &str) -> Result<Rate, UnitsError> {
        let read = || {
            let (units, period) = text.split_once('/')?;
            let units = units.bytes().all(|byte| byte.is_ascii_digit()).then(|| units.parse::<u64>().ok())??;
            let period = if period.starts_with(|c: char| c.is_ascii_alphabetic()) {
                parse_us(&format!("1{period}"))?
            } else {
                parse_us(period)?
            };
            (units > 0 && period > 0).then_some(Rate { units, period: Span(period) })
        };
        read().ok_or_else(|| UnitsError {
            text: text.chars().take(64).collect(),
            what: "rate",
            expected: "units, at least 1, for each period, such as 100/s, 100/10s or 6000/1h",
        })
    }
}

impl std::str::FromStr for Span {
    type Err = UnitsError;

    fn from_str(text: &str) -> Result<Span, UnitsError> {
        Span::parse(text)
    }
}

impl std::str::FromStr for Rate {
    type Err = UnitsError;

    fn from_str(text: &str) -> Result<Rate, UnitsError> {
        Rate::parse(text)
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

    /// A cost as a trace may ask it, which is as far as the algorithms stay exact; none above
    /// [`caps::EXACT_UNITS`](crate::caps::EXACT_UNITS). What calls a cluster uses [`Cost::new`].
    pub const fn exact(units: u64) -> Option<Cost> {
        if units <= crate::caps::EXACT_UNITS { Some(Cost(units)) } else { None }
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
        // No valid span is below zero, and one that is refused because of it has to be shown all the same.
        let (sign, us) = (if self.0 < 0 { "-" } else { "" }, self.0.unsigned_abs());
        for (unit, name) in [(86_400_000_000, "d"), (3_600_000_000, "h"), (60_000_000, "m"), (1_000_000, "s")] {
            if us >= unit && us.is_multiple_of(unit) {
                return write!(f, "{sign}{}{name}", us / unit);
            }
        }
        let (whole, fraction, name) = match us {
            us if us >= 1_000_000 => (us / 1_000_000, format!("{:06}", us % 1_000_000), "s"),
            us => (us / 1_000, format!("{:03}", us % 1_000), "ms"),
        };
        let fraction = fraction.trim_end_matches('0');
        let point = if fraction.is_empty() { "" } else { "." };
        write!(f, "{sign}{whole}{point}{fraction}{name}")
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_read_exactly_or_refused() {
        for (text, us) in [
            ("1us", 1),
            ("0s", 0),
            ("250ms", 250_000),
            ("10s", 10_000_000),
            ("1.5s", 1_500_000),
            ("0.000001s", 1),
            ("5m", 300_000_000),
            ("1h", 3_600_000_000),
            ("366d", 31_622_400_000_000),
            ("4611686018427387904us", 1 << 62),
        ] {
            assert_eq!(Span::parse(text), Ok(Span(us)), "{text}");
        }
        let hostile = [
            "",
            "s",
            "10",
            "10 s",
            "-1s",
            "+1s",
            "1S",
            "1w",
            "1.s",
            ".5s",
            "1..5s",
            "1e3s",
            "0.5us",
            "0.0000001s",
            "1s1s",
            "1sé",
            "\u{661}s",
            "4611686018427387905us",
            "99999999999999999999s",
            "9999999999999999999d",
            "1_000s",
            "1s\n",
        ];
        for text in hostile {
            assert!(Span::parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn rates_are_read_exactly_or_refused() {
        assert_eq!(Rate::parse("100/m"), Ok(Rate { units: 100, period: Span(60_000_000) }));
        assert_eq!(Rate::parse("3/7ms"), Ok(Rate { units: 3, period: Span(7_000) }));
        for text in [
            "",
            "/",
            "1/",
            "/s",
            "0/s",
            "1/0s",
            "1//s",
            "1/s/s",
            "-1/s",
            "1.5/s",
            "+1/s",
            "1/11",
            "99999999999999999999/s",
        ] {
            assert!(Rate::parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn what_is_below_zero_is_shown_as_it_is() {
        let shown = |us| Span(us).to_string();
        assert_eq!(
            [-50, -1_500, -1_000, -5_000_000, -90_500_000].map(shown),
            ["-0.05ms", "-1.5ms", "-1ms", "-5s", "-90.5s"]
        );
        assert_eq!(shown(i64::MIN), "-9223372036854.775808s");
        assert_eq!(Rate { units: 3, period: Span(-10_000_000) }.to_string(), "3/-10s");
    }

    #[test]
    fn what_is_shown_reads_back() {
        for us in [
            1,
            999,
            1_000,
            1_001,
            1_500,
            999_999,
            1_000_000,
            1_234_567,
            60_000_000,
            61_000_000,
            90_061_000_001,
            1 << 62,
        ] {
            assert_eq!(Span::parse(&Span(us).to_string()), Ok(Span(us)));
            let rate = Rate { units: 7, period: Span(us) };
            assert_eq!(Rate::parse(&rate.to_string()), Ok(rate));
        }
    }
}
