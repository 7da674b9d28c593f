//! How long an operator's call may take: not longer than its caller waits.
//!
//! Whoever gives up on a node learns only that it was slow; a node that gives up first can say why.

use std::time::Duration;

use tonic::metadata::MetadataMap;

/// At most `most`, and less than the caller says it waits (`grpc-timeout`) by what an answer may need on its way.
pub(super) fn patience(metadata: &MetadataMap, most: Duration) -> Duration {
    let waits = metadata.get("grpc-timeout").and_then(|value| value.to_str().ok()).and_then(read);
    waits.map_or(most, |waits| (waits - waits / 8).min(most))
}

/// gRPC's form of a span: up to eight digits, and a unit.
fn read(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number: u64 = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(number * 3600),
        "M" => Duration::from_secs(number * 60),
        "S" => Duration::from_secs(number),
        "m" => Duration::from_millis(number),
        "u" => Duration::from_micros(number),
        "n" => Duration::from_nanos(number),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: Duration = Duration::from_secs(8);

    fn with(timeout: &'static str) -> Duration {
        let mut metadata = MetadataMap::new();
        metadata.insert("grpc-timeout", timeout.parse().unwrap());
        patience(&metadata, MOST)
    }

    #[test]
    fn a_caller_who_waits_briefly_is_answered_before_that() {
        assert_eq!(with("2000000u"), Duration::from_millis(1750));
        assert_eq!(
            [with("4S"), with("4000m"), with("99999999n")],
            [MOST * 7 / 16, MOST * 7 / 16, Duration::from_nanos(87_500_000)]
        );
        assert_eq!([with("1M"), with("99999999H"), patience(&MetadataMap::new(), MOST)], [MOST; 3]);
    }

    #[test]
    fn what_is_no_span_is_not_looked_at() {
        for text in ["", "S", "1", "-1S", "123456789S", "1s", "1é"] {
            assert_eq!(with(text), MOST, "{text:?}");
        }
    }
}
