//! What happened, line by line: read by people when a seed is looked at, and hashed always, so that two runs of one seed can
//! be held against each other.

use std::fmt;
use std::hash::{DefaultHasher, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The story of one world. Clones write the same one.
#[derive(Clone, Debug, Default)]
pub struct Trace(Arc<Mutex<Lines>>);

#[derive(Debug, Default)]
struct Lines {
    now: i64,
    kept: bool,
    lines: Vec<String>,
    hasher: DefaultHasher,
    count: u64,
    wrong: Vec<String>,
}

impl Trace {
    /// A story of which every line is kept for reading, or only the hash.
    pub fn new(kept: bool) -> Trace {
        let trace = Trace::default();
        trace.lock().kept = kept;
        trace
    }

    /// The world's time, in microseconds since it began.
    pub fn now(&self) -> i64 {
        self.lock().now
    }

    /// Lets the world's time be that.
    pub fn set_now(&self, now: i64) {
        self.lock().now = now;
    }

    /// Something happened.
    pub fn line(&self, what: fmt::Arguments<'_>) {
        let mut lines = self.lock();
        let line = format!("{:>10.3} {what}", lines.now as f64 / 1e6);
        lines.hasher.write(line.as_bytes());
        lines.count += 1;
        if lines.kept {
            lines.lines.push(line);
        }
    }

    /// Something happened that must not.
    pub fn wrong(&self, checker: &str, what: impl fmt::Display) {
        self.line(format_args!("WRONG {checker}: {what}"));
        let mut lines = self.lock();
        let at = lines.now as f64 / 1e6;
        lines.wrong.push(format!("{checker}: {what} (at {at:.3} s)"));
    }

    /// Everything that must not have happened.
    pub fn wrongs(&self) -> Vec<String> {
        self.lock().wrong.clone()
    }

    /// Whether there is any of it.
    pub fn is_wrong(&self) -> bool {
        !self.lock().wrong.is_empty()
    }

    /// The hash of all lines so far.
    pub fn hash(&self) -> u64 {
        let lines = self.lock();
        let mut hasher = lines.hasher.clone();
        hasher.write_u64(lines.count);
        hasher.finish()
    }

    /// The lines that were kept.
    pub fn lines(&self) -> Vec<String> {
        self.lock().lines.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Lines> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
