//! Freeing old segments, so that the log does not grow with time.
//!
//! Only the oldest segment is ever freed: what is there is one run of numbers without a gap, and a gap means loss. A
//! segment that nobody needs is unlinked. One that a few entries of a quiet group hold back is emptied by writing them
//! again at the log's end. In what order is what keeps a crash at any point harmless:
//!
//! ```text
//!   plan from memory ─► write again ─► all that waits in the queue ─► sync ─► unlink ─► sync the directory
//!                       (live at the    (all that memory was
//!                        plan)           ahead by at the plan)
//! ```

use std::sync::Arc;

use super::entry::EntryId;
use super::error::LogError;
use super::group::Group;
use super::record::{Record, SegmentId};
use super::replay::Place;
use super::segment::DIR;
use super::writer::Writer;
use crate::caps;

/// Entries of a group, and where they now stand.
type Moved = (Arc<Group>, Vec<(EntryId, Place)>);

/// What to do about the oldest segment.
#[derive(Default)]
pub(super) struct Cleaning {
    /// Write these again.
    pub(super) moves: Vec<Moved>,
    /// Unlink this one, after the next sync.
    pub(super) free: Option<SegmentId>,
    /// There is something to do at once.
    pub(super) busy: bool,
}

impl Writer {
    pub(super) fn plan_cleaning(&mut self) -> Cleaning {
        let Some((oldest, segment)) = self.shared.segments.oldest() else { return Cleaning::default() };
        if self.unlinking.as_ref().is_some_and(|unlinking| !unlinking.is_finished()) {
            return Cleaning::default();
        }
        if segment.live == 0 {
            return Cleaning { free: Some(oldest), busy: true, ..Cleaning::default() };
        }
        // Emptying it is worth while if little is left in it, or if most of what the log takes is not needed.
        let (_, size, live) = self.shared.segments.totals();
        if segment.live * 4 > segment.size && size < 4 * (live + 2 * segment.size) {
            return Cleaning::default();
        }
        let mut cleaning = Cleaning { busy: true, ..Cleaning::default() };
        let mut budget = caps::LOG_REWRITE_BYTES.min(segment.size as usize / 4);
        for group in self.shared.all_groups() {
            let entries = group.lock().in_segment(oldest, budget);
            if entries.is_empty() {
                continue;
            }
            let bytes: usize = entries.iter().map(|(_, place)| place.len as usize).sum();
            cleaning.moves.push((group, entries));
            budget = budget.saturating_sub(bytes);
            if budget == 0 {
                break;
            }
        }
        cleaning
    }

    /// Puts entries of the oldest segment into the batch once more.
    pub(super) async fn write_again(&mut self, moves: Vec<Moved>) -> Result<(), LogError> {
        for (group, places) in moves {
            let entries = self.shared.read_places(group.id, places.clone()).await?;
            for (entry, (id, from)) in entries.iter().zip(places) {
                let record = Record::Entry { id, kind: entry.kind, payload: &entry.payload };
                let place = self.put(group.id, record).await?;
                self.batch.moved(&group, (id, Some(from), place));
            }
        }
        Ok(())
    }

    /// Unlinks a segment that nobody needs. Entries that have just been written are in the newest, never in this one.
    pub(super) async fn release(&mut self, segment: Option<SegmentId>) -> Result<(), LogError> {
        if self.unlinking.as_ref().is_some_and(|unlinking| unlinking.is_finished())
            && let Some(unlinking) = self.unlinking.take()
        {
            unlinking.await.map_err(std::io::Error::other).map_err(LogError::disk("unlinking a segment"))??;
        }
        let Some(segment) = segment else { return Ok(()) };
        let shared = self.shared.clone();
        shared.segments.remove(segment);
        self.unlinking = Some(tokio::spawn(async move {
            let unlinked = shared.disk.run(move |files| {
                files.remove(&segment.path())?;
                files.sync_dir(DIR)
            });
            unlinked.await.map_err(LogError::disk("unlinking a segment"))?;
            tracing::info!(node = shared.identity.node.0, segment = segment.0, "purged a segment of the log");
            Ok(())
        }));
        Ok(())
    }
}
