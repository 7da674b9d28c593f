//! Whole-number division that says which way it rounds.
//!
//! Spans round up and counts round down, everywhere; so every division in the algorithms goes through here. The wide path is
//! 128 bits because a moment times a rate needs 102; what fits 64 bits, as nearly all of it does, is divided in 64, which is
//! several times faster.

use crate::caps::LONGEST_US;
use crate::units::Span;

/// a / b rounded up; a is not negative, b is positive.
pub(super) fn div_up(a: i128, b: i128) -> i128 {
    debug_assert!(a >= 0 && b > 0);
    match (u64::try_from(a), u64::try_from(b)) {
        (Ok(a), Ok(b)) => i128::from(a.div_ceil(b)),
        _ => a / b + i128::from(a % b != 0),
    }
}

/// a / b rounded down; a is not negative, b is positive.
pub(super) fn div_down(a: i128, b: i128) -> i128 {
    debug_assert!(a >= 0 && b > 0);
    match (u64::try_from(a), u64::try_from(b)) {
        (Ok(a), Ok(b)) => i128::from(a / b),
        _ => a / b,
    }
}

/// a · m / d rounded down, where a · m alone could pass 128 bits; m and d are positive and below 2^46.
pub(super) fn scale_down(a: i128, m: i128, d: i128) -> i128 {
    a.div_euclid(d) * m + (a.rem_euclid(d) * m).div_euclid(d)
}

/// a · m / d rounded up, under the same bounds.
pub(super) fn scale_up(a: i128, m: i128, d: i128) -> i128 {
    -scale_down(-a, m, d)
}

/// A count of microseconds as a span. Every span of a policy that was let in fits; only the waits of a debt can be longer, and
/// show as 2^62 (146,000 years).
pub(super) fn span(us: i128) -> Span {
    Span(us.clamp(0, i128::from(LONGEST_US)) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_is_as_named_on_both_paths() {
        assert_eq!((div_up(7, 2), div_up(8, 2), div_up(0, 9)), (4, 4, 0));
        assert_eq!((div_down(7, 2), div_down(8, 2)), (3, 4));
        let wide = i128::from(u64::MAX) * 10;
        assert_eq!((div_up(wide + 1, 10), div_down(wide + 1, 10)), (i128::from(u64::MAX) + 1, i128::from(u64::MAX)));
        assert_eq!((scale_down(10, 7, 3), scale_up(10, 7, 3)), (23, 24));
        assert_eq!((scale_down(-10, 7, 3), scale_up(-10, 7, 3)), (-24, -23));
    }

    #[test]
    fn scaling_stays_exact_beyond_128_bits_of_product() {
        let (a, m, d) = ((1_i128 << 80) + 1, (1 << 45) - 1, (1 << 45) - 3);
        let (q, r) = (a / d, a % d);
        assert_eq!(scale_down(a, m, d), q * m + r * m / d);
        assert_eq!(scale_down(a * d, m, d), a * m);
    }

    #[test]
    fn spans_saturate_at_their_bound() {
        assert_eq!(span(-5), Span(0));
        assert_eq!(span(i128::MAX), Span(1 << 62));
    }
}
