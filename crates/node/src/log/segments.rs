//! The segments that are there, and how much of each is still needed.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::group::Runs;
use super::record::SegmentId;
use crate::disk::File;

/// All segments, by number.
#[derive(Debug, Default)]
pub(crate) struct Segments(Mutex<BTreeMap<SegmentId, Segment>>);

/// One segment.
#[derive(Clone)]
pub(crate) struct Segment {
    pub(crate) file: Arc<dyn File>,
    /// Bytes of the file.
    pub(crate) size: u64,
    /// Bytes of records of entries that a group still has.
    pub(crate) live: u64,
}

impl fmt::Debug for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Segment {{ size: {}, live: {} }}", self.size, self.live)
    }
}

impl Segments {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<SegmentId, Segment>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn insert(&self, id: SegmentId, segment: Segment) {
        self.lock().insert(id, segment);
    }

    pub(crate) fn remove(&self, id: SegmentId) {
        self.lock().remove(&id);
    }

    pub(crate) fn file(&self, id: SegmentId) -> Option<Arc<dyn File>> {
        self.lock().get(&id).map(|segment| segment.file.clone())
    }

    /// The oldest segment, unless it is the only one.
    pub(crate) fn oldest(&self) -> Option<(SegmentId, Segment)> {
        let segments = self.lock();
        let (id, segment) = segments.first_key_value()?;
        (segments.len() > 1).then(|| (*id, segment.clone()))
    }

    /// How many there are, their bytes, and how many of those are needed.
    pub(crate) fn totals(&self) -> (u64, u64, u64) {
        let segments = self.lock();
        let sum = |part: fn(&Segment) -> u64| segments.values().map(part).sum();
        (segments.len() as u64, sum(|segment| segment.size), sum(|segment| segment.live))
    }

    pub(crate) fn need(&self, runs: &Runs) {
        self.change(runs, |live, bytes| live + bytes);
    }

    pub(crate) fn free(&self, runs: &Runs) {
        self.change(runs, u64::saturating_sub);
    }

    fn change(&self, runs: &Runs, how: fn(u64, u64) -> u64) {
        if runs.0.is_empty() {
            return;
        }
        let mut segments = self.lock();
        for (id, bytes) in &runs.0 {
            if let Some(segment) = segments.get_mut(id) {
                segment.live = how(segment.live, *bytes);
            }
        }
    }
}
