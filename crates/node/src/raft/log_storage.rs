//! A group's log as openraft wants it.
//!
//! Appends return when they are queued and call back in order once they are durable; a vote returns when it is durable;
//! everything else only queues. Reads are bounded by bytes.

use std::fmt::Debug;
use std::io;
use std::ops::{Bound, RangeBounds};

use futures::{Stream, StreamExt, stream};
use openraft::OptionalSend;
use openraft::errors::LeaderChanged;
use openraft::storage::{LeaderBoundedStreamError, LeaderBoundedStreamResult, RaftLogReader, RaftLogStorage};
use quorate_core::NodeId;

use super::codec::{from_entry_id, from_log, to_entry_id, to_log};
use super::types::{Entry, IoFlushed, LeaderId, LogId, LogState, TypeConfig, Vote};
use crate::caps;
use crate::log::{Ballot, GroupLog};

/// Storage and reader of one group; cheap to clone.
#[derive(Clone, Debug)]
pub struct LogStorage(GroupLog);

impl LogStorage {
    /// The storage of that group.
    pub fn new(log: GroupLog) -> Self {
        LogStorage(log)
    }

    /// The log beneath.
    pub fn group_log(&self) -> &GroupLog {
        &self.0
    }

    fn vote(&self) -> Option<Vote> {
        self.0.marks().vote.map(|ballot| Vote {
            leader_id: LeaderId { term: ballot.term.0, voted_for: ballot.node },
            committed: ballot.committed,
        })
    }

    async fn read(&self, start: u64, end: u64, budget: usize) -> io::Result<Vec<Entry>> {
        let entries = self.0.read(start..end, budget).await?;
        entries.into_iter().map(|entry| from_log(entry).map_err(io::Error::other)).collect()
    }
}

/// A range of indexes with its ends.
fn bounds(range: &impl RangeBounds<u64>) -> (u64, u64) {
    let start = match range.start_bound() {
        Bound::Included(start) => *start,
        Bound::Excluded(before) => before.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(last) => last.saturating_add(1),
        Bound::Excluded(end) => *end,
        Bound::Unbounded => u64::MAX,
    };
    (start, end)
}

impl RaftLogReader<TypeConfig> for LogStorage {
    async fn try_get_log_entries<RB>(&mut self, range: RB) -> Result<Vec<Entry>, io::Error>
    where
        RB: RangeBounds<u64> + Clone + Debug + OptionalSend,
    {
        let (start, end) = bounds(&range);
        self.read(start, end, usize::MAX).await
    }

    async fn read_vote(&mut self) -> Result<Option<Vote>, io::Error> {
        Ok(self.vote())
    }

    async fn limited_get_log_entries(&mut self, start: u64, end: u64) -> Result<Vec<Entry>, io::Error> {
        self.read(start, end, caps::LOG_READ_BYTES).await
    }

    async fn entries_stream<RB>(&mut self, range: RB) -> impl Stream<Item = Result<Entry, io::Error>> + OptionalSend
    where
        RB: RangeBounds<u64> + Clone + Debug + OptionalSend,
    {
        let (start, end) = bounds(&range);
        pieces(self.clone(), start, end, |_| Ok(()))
    }

    async fn leader_bounded_stream<RB>(
        &mut self,
        leader: LeaderId,
        range: RB,
    ) -> impl Stream<Item = LeaderBoundedStreamResult<TypeConfig>> + OptionalSend
    where
        RB: RangeBounds<u64> + Clone + Debug + OptionalSend,
    {
        let (start, end) = bounds(&range);
        pieces(self.clone(), start, end, move |vote: Option<Vote>| match vote {
            Some(vote) if vote.committed && vote.leader_id == leader => Ok(()),
            vote => Err(LeaderBoundedStreamError::LeaderChanged(LeaderChanged::new(leader, vote))),
        })
    }
}

/// Reads a range piece by piece, each only if the vote allows it, before and after.
fn pieces<E: From<io::Error> + Send + 'static>(
    log: LogStorage,
    start: u64,
    end: u64,
    allows: impl Fn(Option<Vote>) -> Result<(), E> + Send + 'static,
) -> impl Stream<Item = Result<Entry, E>> + Send {
    let piece = stream::try_unfold((log, start, allows), move |(log, start, allows)| async move {
        allows(log.vote())?;
        if start >= end {
            return Ok(None);
        }
        let entries = log.read(start, end, caps::LOG_READ_BYTES).await?;
        allows(log.vote())?;
        // What was purged is missing at the beginning only; where nothing is left, the range has ended.
        let Some(last) = entries.last() else { return Ok(None) };
        let next = last.log_id.index + 1;
        Ok(Some((stream::iter(entries.into_iter().map(Ok)), (log, next, allows))))
    });
    Box::pin(piece.flat_map(|piece: Result<_, E>| match piece {
        Ok(entries) => entries.left_stream(),
        Err(error) => stream::iter([Err(error)]).right_stream(),
    }))
}

impl RaftLogStorage<TypeConfig> for LogStorage {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> Result<LogState, io::Error> {
        let marks = self.0.marks();
        Ok(LogState { last_purged_log_id: marks.purged.map(from_entry_id), last_log_id: marks.last.map(from_entry_id) })
    }

    async fn get_log_reader(&mut self) -> Self::LogReader {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> Result<(), io::Error> {
        let LeaderId { term, voted_for } = vote.leader_id;
        let ballot = Ballot { term: quorate_core::Term(term), node: NodeId(voted_for.0), committed: vote.committed };
        Ok(self.0.save_vote(ballot).await?)
    }

    async fn save_committed(&mut self, committed: Option<LogId>) -> Result<(), io::Error> {
        match committed {
            Some(committed) => Ok(self.0.save_committed(to_entry_id(committed))?),
            None => Ok(()),
        }
    }

    async fn read_committed(&mut self) -> Result<Option<LogId>, io::Error> {
        Ok(self.0.marks().committed.map(from_entry_id))
    }

    async fn append<I>(&mut self, entries: I, callback: IoFlushed) -> Result<(), io::Error>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let entries = entries.into_iter().map(to_log).collect();
        #[cfg(feature = "planted")]
        if quorate_core::planted::is(quorate_core::planted::Planted::AnswerBeforeSync) {
            callback.io_completed(Ok(()));
            return Ok(self.0.append(entries, Box::new(|_| {})).await?);
        }
        let done =
            move |result: Result<(), crate::log::LogError>| callback.io_completed(result.map_err(io::Error::from));
        Ok(self.0.append(entries, Box::new(done)).await?)
    }

    async fn truncate_after(&mut self, last_log_id: Option<LogId>) -> Result<(), io::Error> {
        Ok(self.0.truncate_after(last_log_id.map(to_entry_id))?)
    }

    async fn purge(&mut self, log_id: LogId) -> Result<(), io::Error> {
        Ok(self.0.purge(to_entry_id(log_id))?)
    }
}

#[cfg(test)]
mod tests;
