//! What a frame meets on its way.

use std::time::Duration;

use quorate_proto::v1::ErrorCode;
use rand::RngExt as _;
use rand::rngs::SmallRng;

/// What one frame meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Nothing.
    Served,
    /// The stream breaks; nothing was executed.
    BrokenBefore,
    /// The stream breaks; it was executed.
    BrokenAfter,
    /// Not executed, and answered with that code.
    Refused(ErrorCode),
    /// Executed, and answered with that code.
    Denounced(ErrorCode),
    /// Executed that much later, whoever leads then; then answered.
    Delayed(Duration),
    /// Executed; answered that much later.
    AnsweredLate(Duration),
    /// Executed; never answered.
    Swallowed,
    /// Neither executed nor answered.
    Lost,
    /// Executed twice, answered twice.
    Twice,
    /// Executed in two entries and answered in two messages, the second that much later.
    Halves(Duration),
    /// The first half executed and answered, the second not; then the stream breaks.
    HalfThenBroken,
}

impl Fate {
    /// One of them: nothing, mostly.
    pub(super) fn draw(rng: &mut SmallRng) -> Fate {
        let mut wait = |most: u64| Duration::from_micros(rng.random_range(0..most));
        let (short, long) = (wait(20_000), wait(2_000_000));
        match rng.random_range(0..40) {
            0 => Fate::BrokenBefore,
            1 => Fate::BrokenAfter,
            2 => Fate::Refused(ErrorCode::Overloaded),
            3 => Fate::Refused(ErrorCode::PoliciesBehind),
            4 => Fate::Refused(ErrorCode::Unavailable),
            5 => Fate::Refused(ErrorCode::Unknown),
            6 => Fate::Denounced(ErrorCode::Unknown),
            7 => Fate::Delayed(long),
            8 => Fate::AnsweredLate(long),
            9 => Fate::Swallowed,
            10 => Fate::Lost,
            11 => Fate::Twice,
            12 => Fate::Halves(short),
            13 => Fate::HalfThenBroken,
            14 => Fate::Refused(ErrorCode::Deadline),
            15..20 => Fate::Delayed(short),
            20..25 => Fate::AnsweredLate(short),
            _ => Fate::Served,
        }
    }
}
