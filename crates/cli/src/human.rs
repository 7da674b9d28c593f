//! Numbers as people read them. What has to be exact is in the JSON output.

/// A span of microseconds: `350µs`, `1.5ms`, `12.35s`, `2m5s`, `3h12m`, `2d3h`. Rounded up, so that nobody who waits for as
/// long comes too early.
///
/// ```
/// assert_eq!(quorate_cli::human::span(1_500_000), "1.5s");
/// ```
pub fn span(us: u64) -> String {
    match us {
        0 => "0s".into(),
        1..1_000 => format!("{us}µs"),
        1_000..1_000_000 => decimal(us, 1_000, 100, "ms"),
        1_000_000..60_000_000 => decimal(us, 1_000_000, 1_000, "s"),
        60_000_000..3_600_000_000 => pair(us, (60_000_000, "m"), (1_000_000, "s")),
        3_600_000_000..86_400_000_000 => pair(us, (3_600_000_000, "h"), (60_000_000, "m")),
        _ => pair(us, (86_400_000_000, "d"), (3_600_000_000, "h")),
    }
}

/// `us` in `unit`s, with as many decimals as `parts` (a power of ten) of a unit show.
fn decimal(us: u64, unit: u64, parts: u64, name: &str) -> String {
    let scaled = us.div_ceil(unit / parts);
    let (whole, fraction) = (scaled / parts, scaled % parts);
    let width = parts.ilog10() as usize;
    let fraction = format!("{fraction:0width$}");
    match fraction.trim_end_matches('0') {
        "" => format!("{whole}{name}"),
        fraction => format!("{whole}.{fraction}{name}"),
    }
}

fn pair(us: u64, large: (u64, &str), small: (u64, &str)) -> String {
    let smalls = us.div_ceil(small.0);
    let each = large.0 / small.0;
    match smalls % each {
        0 => format!("{}{}", smalls / each, large.1),
        rest => format!("{}{}{rest}{}", smalls / each, large.1, small.1),
    }
}

/// Microseconds since the Unix epoch as `2026-12-01 01:05:54.123456 UTC`.
///
/// ```
/// assert_eq!(quorate_cli::human::time(0), "1970-01-01 00:00:00 UTC");
/// ```
pub fn time(us: i64) -> String {
    let (seconds, micros) = (us.div_euclid(1_000_000), us.rem_euclid(1_000_000));
    let (year, month, day) = date(seconds.div_euclid(86_400));
    let of_day = seconds.rem_euclid(86_400);
    let fraction = if micros == 0 { String::new() } else { format!(".{micros:06}") };
    format!(
        "{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}{fraction} UTC",
        of_day / 3600,
        of_day / 60 % 60,
        of_day % 60
    )
}

/// The Gregorian date of a day counted from 1970-01-01. Years begin in March here, so that the leap day comes last.
fn date(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

/// A whole number with its thousands parted: `1,234,567`.
///
/// ```
/// assert_eq!(quorate_cli::human::count(1_234_567), "1,234,567");
/// ```
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut parted = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            parted.push(',');
        }
        parted.push(digit);
    }
    parted
}

/// Bytes: `512 B`, `1.5 KiB`, `64 MiB`.
///
/// ```
/// assert_eq!(quorate_cli::human::bytes(64 << 20), "64 MiB");
/// ```
pub fn bytes(bytes: u64) -> String {
    let units = [(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match units.into_iter().find(|(unit, _)| bytes >= *unit) {
        None => format!("{bytes} B"),
        Some((unit, name)) => {
            let tenths = (u128::from(bytes) * 10 / u128::from(unit)) as u64;
            if tenths.is_multiple_of(10) {
                format!("{} {name}", tenths / 10)
            } else {
                format!("{}.{} {name}", tenths / 10, tenths % 10)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_rounded_up_and_short() {
        let shown: Vec<String> = [
            0,
            1,
            999,
            1_000,
            1_499,
            1_510,
            999_999,
            1_000_000,
            12_345_001,
            59_999_999,
            60_000_000,
            125_000_000,
            125_000_001,
        ]
        .map(span)
        .to_vec();
        assert_eq!(
            shown,
            ["0s", "1µs", "999µs", "1ms", "1.5ms", "1.51ms", "1000ms", "1s", "12.346s", "60s", "1m", "2m5s", "2m6s"]
        );
        assert_eq!(span(3_600_000_000 * 3 + 12 * 60_000_000), "3h12m");
        assert_eq!(span(86_400_000_000 * 2), "2d");
        assert_eq!(span(u64::MAX >> 1), "106751991d5h");
    }

    #[test]
    fn times_are_dates() {
        assert_eq!(time(1_000_000_000_000_000), "2001-09-09 01:46:40 UTC");
        assert_eq!(time(951_782_400_000_001), "2000-02-29 00:00:00.000001 UTC");
        assert_eq!(time(-1_000_000), "1969-12-31 23:59:59 UTC");
        assert_eq!(time(1_798_761_599_000_000), "2026-12-31 23:59:59 UTC");
    }

    #[test]
    fn numbers_and_bytes() {
        assert_eq!([0, 999, 1_000, 12_345_678].map(count), ["0", "999", "1,000", "12,345,678"]);
        assert_eq!([0, 1023, 1536, 1 << 30].map(bytes), ["0 B", "1023 B", "1.5 KiB", "1 GiB"]);
    }
}
