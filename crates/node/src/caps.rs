//! Every maximum of the node, in one place, with the relations between them asserted.

use std::time::Duration;

use quorate_core::Span;

// The cluster's clock.

/// How often the voters' clocks are asked.
pub const CLOCK_PERIOD: Duration = Duration::from_secs(1);
/// How often, until a majority was heard once.
pub const CLOCK_FIRST_PERIOD: Duration = Duration::from_millis(50);
/// A voter's clock that took longer to answer is not heard.
pub const CLOCK_ROUND_TRIP: Span = Span(250_000);
/// What a voter's clock said counts for this long.
pub const CLOCK_SAMPLE_LIFE: Span = Span(10_000_000);
/// The node says so when the clocks that it hears leave more doubt than this.
pub const CLOCK_DOUBT: Span = Span(500_000);

const _: () = assert!(CLOCK_SAMPLE_LIFE.0 as u128 >= 3 * CLOCK_PERIOD.as_micros());
