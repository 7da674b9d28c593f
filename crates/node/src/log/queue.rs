//! What waits for the log's writer.
//!
//! Requests of one group are served in the order in which they came; the committed marks of a group, of which only the
//! newest counts, go after all requests that wait with them. So a mark never stands before an entry that it covers.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use quorate_core::GroupId;
use tokio::sync::Notify;

use super::entry::{Ballot, Entry, EntryId};
use super::error::LogError;
use super::group::Group;

/// Told once what became of a request.
pub type Done = Box<dyn FnOnce(Result<(), LogError>) + Send>;

/// Something to write.
pub(crate) enum Request {
    Append {
        group: Arc<Group>,
        entries: Vec<Entry>,
        cost: usize,
        done: Done,
    },
    Vote {
        group: Arc<Group>,
        ballot: Ballot,
        done: Done,
    },
    Purge {
        group: GroupId,
        upto: EntryId,
    },
    Truncate {
        group: GroupId,
        after: Option<EntryId>,
    },
    Clear {
        group: GroupId,
    },
    /// Nothing: it is done when all before it is.
    Flush {
        done: Done,
    },
}

/// What the writer takes at once.
#[derive(Default)]
pub(crate) struct Work {
    pub(crate) requests: Vec<Request>,
    pub(crate) committed: BTreeMap<GroupId, EntryId>,
    pub(crate) closed: bool,
}

#[derive(Default)]
pub(crate) struct Queue {
    inner: Mutex<Inner>,
    wake: Notify,
}

#[derive(Default)]
pub(crate) struct Inner {
    work: Work,
    /// Somebody waits for something in it.
    urgent: bool,
    /// The writer will look by itself before long.
    armed: bool,
    failed: Option<LogError>,
}

impl Request {
    /// Whether somebody waits for it to be durable.
    fn urgent(&self) -> bool {
        matches!(self, Request::Append { .. } | Request::Vote { .. } | Request::Flush { .. })
    }

    pub(crate) fn fail(self, error: &LogError) {
        match self {
            Request::Append { done, .. } | Request::Vote { done, .. } | Request::Flush { done } => {
                done(Err(error.clone()));
            }
            Request::Purge { .. } | Request::Truncate { .. } | Request::Clear { .. } => {}
        }
    }
}

impl Inner {
    /// An error if nothing is taken any more.
    pub(crate) fn open(&self) -> Result<(), LogError> {
        match &self.failed {
            Some(error) => Err(error.clone()),
            None if self.work.closed => Err(LogError::Closed),
            None => Ok(()),
        }
    }
}

impl Queue {
    /// Held while a group's memory is changed and the request is pushed, so that both happen in one order.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn push(&self, mut inner: MutexGuard<'_, Inner>, request: Request) {
        let urgent = request.urgent();
        inner.work.requests.push(request);
        self.wake_up(inner, urgent);
    }

    pub(crate) fn commit(&self, mut inner: MutexGuard<'_, Inner>, group: GroupId, upto: EntryId) {
        inner.work.committed.insert(group, upto);
        self.wake_up(inner, false);
    }

    fn wake_up(&self, mut inner: MutexGuard<'_, Inner>, urgent: bool) {
        let wake = if urgent { !std::mem::replace(&mut inner.urgent, true) } else { !inner.armed && !inner.urgent };
        drop(inner);
        if wake {
            self.wake.notify_one();
        }
    }

    /// Takes no more requests; the writer ends once it has served those that wait.
    pub(crate) fn close(&self) {
        self.lock().work.closed = true;
        self.wake.notify_one();
    }

    /// Fails all that waits and all that comes.
    pub(crate) fn fail(&self, error: &LogError) {
        let mut inner = self.lock();
        inner.failed.get_or_insert_with(|| error.clone());
        let work = std::mem::take(&mut inner.work);
        inner.work.closed = work.closed;
        drop(inner);
        work.requests.into_iter().for_each(|request| request.fail(error));
    }

    /// Takes all that waits, without waiting.
    pub(crate) fn take(&self) -> Work {
        let mut inner = self.lock();
        inner.urgent = false;
        inner.armed = false;
        let closed = inner.work.closed;
        Work { closed, ..std::mem::replace(&mut inner.work, Work { closed, ..Work::default() }) }
    }

    /// Waits until somebody waits for something, or the log is closed, and takes all that is there. If there is something
    /// to write that nobody waits for (or `restless` says so), it waits for `idle` at most; then the second value is true.
    pub(crate) async fn next(&self, restless: bool, idle: std::time::Duration) -> (Work, bool) {
        loop {
            let armed = {
                let mut inner = self.lock();
                if inner.urgent || inner.work.closed {
                    drop(inner);
                    return (self.take(), false);
                }
                inner.armed = restless || !inner.work.requests.is_empty() || !inner.work.committed.is_empty();
                inner.armed
            };
            let woken = self.wake.notified();
            if !armed {
                woken.await;
            } else if tokio::time::timeout(idle, woken).await.is_err() {
                return (self.take(), true);
            }
        }
    }
}
