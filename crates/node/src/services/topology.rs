//! What clients route by: the topology, who leads, and the policies, sent anew whenever one of them changes.
//!
//! One task puts the update together for all streams. Changes that come close together (an election touches several shards)
//! are one update; a stream that is read slowly skips to the newest.

use std::pin::Pin;
use std::sync::Arc;

use futures::{Stream, StreamExt};
use quorate_proto::v1;
use tokio::sync::watch;
use tokio_stream::wrappers::WatchStream;
use tonic::{Request, Response, Status};

use crate::caps;

/// The newest update; none while this node is in no cluster.
pub type Newest = watch::Receiver<Option<Arc<v1::TopologyUpdate>>>;

/// The service.
#[derive(Debug)]
pub struct Topology {
    newest: Newest,
}

impl Topology {
    /// The service that sends what comes there.
    pub fn new(newest: Newest) -> Topology {
        Topology { newest }
    }
}

#[tonic::async_trait]
impl v1::topology_server::Topology for Topology {
    type WatchStream = Pin<Box<dyn Stream<Item = Result<v1::TopologyUpdate, Status>> + Send>>;

    async fn watch(&self, _: Request<v1::WatchTopologyRequest>) -> Result<Response<Self::WatchStream>, Status> {
        if self.newest.borrow().is_none() {
            return Err(Status::failed_precondition(super::NO_CLUSTER));
        }
        let updates = WatchStream::new(self.newest.clone());
        let updates = updates.filter_map(|update| async move { update.map(|update| Ok((*update).clone())) });
        Ok(Response::new(Box::pin(updates)))
    }
}

/// Puts an update together, now and after each of the `changes`, and publishes it if it differs. Ends with the changes.
pub async fn keep_telling(
    mut changes: watch::Receiver<u64>,
    build: impl Fn() -> Option<v1::TopologyUpdate> + Send + 'static,
    newest: watch::Sender<Option<Arc<v1::TopologyUpdate>>>,
) {
    loop {
        changes.borrow_and_update();
        let update = build();
        newest.send_if_modified(|before| {
            let differs = before.as_deref() != update.as_ref();
            if differs {
                *before = update.map(Arc::new);
            }
            differs
        });
        if changes.changed().await.is_err() {
            return;
        }
        tokio::time::sleep(caps::TOPOLOGY_PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn changes_close_together_are_one_update() {
        let (change, changes) = watch::channel(0);
        let (sender, mut newest) = watch::channel(None);
        let epoch = Arc::new(AtomicU64::new(1));
        let source = Arc::clone(&epoch);
        let build = move || {
            let epoch = source.load(Ordering::Relaxed);
            (epoch > 0).then(|| v1::TopologyUpdate { epoch, ..Default::default() })
        };
        let task = tokio::spawn(keep_telling(changes, build, sender));
        newest.wait_for(Option::is_some).await.unwrap();
        newest.mark_unchanged();
        for next in 2..5 {
            epoch.store(next, Ordering::Relaxed);
            change.send_replace(next);
            tokio::task::yield_now().await;
        }
        newest.changed().await.unwrap();
        assert_eq!(newest.borrow_and_update().as_ref().unwrap().epoch, 4);
        // Nothing new, nothing told.
        change.send_replace(9);
        tokio::time::sleep(caps::TOPOLOGY_PAUSE * 4).await;
        assert!(!newest.has_changed().unwrap());
        drop(change);
        task.await.unwrap();
    }

    #[tokio::test]
    async fn a_node_in_no_cluster_says_so() {
        let (_sender, newest) = watch::channel(None);
        let service = Topology::new(newest);
        let refused = v1::topology_server::Topology::watch(&service, Request::new(v1::WatchTopologyRequest {})).await;
        assert_eq!(refused.err().unwrap().code(), tonic::Code::FailedPrecondition);
    }
}
