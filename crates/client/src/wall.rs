//! The wall clock, for what other machines read: times at which something ends. Nothing is measured by it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Since the Unix epoch, by this machine's clock.
#[expect(clippy::disallowed_methods, reason = "the one place where the layer reads the wall clock")]
pub(crate) fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
