//! The least that could be called a limiter: token buckets in a hash map, in one process, forgotten when it ends.
//!
//! Exact only as far as a nanosecond, never expires a key, is not replicated.

use std::collections::HashMap;
use std::time::Instant;

/// Token buckets by key text.
#[derive(Debug)]
pub struct PlainMap {
    began: Instant,
    capacity_ns: u64,
    unit_ns: u64,
    /// When each bucket will be full, in nanoseconds.
    full_at: HashMap<String, u64>,
}

impl PlainMap {
    /// Buckets of that capacity, which take that many nanoseconds to get a unit back.
    #[allow(clippy::disallowed_methods, reason = "a limiter in one process reads the clock itself")]
    pub fn new(capacity: u64, unit_ns: u64) -> PlainMap {
        PlainMap { began: Instant::now(), capacity_ns: capacity * unit_ns, unit_ns, full_at: HashMap::new() }
    }

    /// Takes a unit of the key's bucket, if there is one.
    pub fn check(&mut self, key: &str) -> bool {
        let now = self.began.elapsed().as_nanos() as u64;
        let Some(full_at) = self.full_at.get_mut(key) else {
            self.full_at.insert(key.to_owned(), now + self.unit_ns);
            return true;
        };
        let after = now.max(*full_at) + self.unit_ns;
        let granted = after <= now + self.capacity_ns;
        if granted {
            *full_at = after;
        }
        granted
    }
}
