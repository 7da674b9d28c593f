//! The cluster's clock as the rest of the node uses it, and the loop that asks the voters for theirs.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use futures::future::{BoxFuture, join_all};
use quorate_core::{NodeId, Stamp};
use tokio::sync::watch;

use super::{Clock, Estimate, Estimator, Monotonic, Sample, Wall};
use crate::caps;

/// Asks another node what its wall clock says; none if it did not say in time.
pub trait AskClock: Send + Sync + 'static {
    /// Asks that node.
    fn ask(&self, node: NodeId) -> BoxFuture<'_, Option<Wall>>;
}

impl<F> AskClock for F
where
    F: Fn(NodeId) -> BoxFuture<'static, Option<Wall>> + Send + Sync + 'static,
{
    fn ask(&self, node: NodeId) -> BoxFuture<'_, Option<Wall>> {
        self(node)
    }
}

/// What the node says of its clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockStatus {
    /// Its wall clock less the cluster's, in microseconds.
    pub own_offset_us: i64,
    /// The estimate itself.
    pub estimate: Estimate,
}

/// The cluster's clock as this node sees it. Clones share it.
#[derive(Clone, Debug)]
pub struct ClusterClock {
    clock: Arc<dyn Clock>,
    estimator: Arc<Mutex<Estimator>>,
    estimate: watch::Sender<Estimate>,
}

impl ClusterClock {
    /// The clock of the node `me`, which knows of no voters yet.
    pub fn new(me: NodeId, clock: Arc<dyn Clock>) -> ClusterClock {
        let estimator = Estimator::new(me, clock.monotonic(), clock.wall());
        let estimate = watch::Sender::new(estimator.current());
        ClusterClock { clock, estimator: Arc::new(Mutex::new(estimator)), estimate }
    }

    /// The node's own clocks.
    pub fn own(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// The moment of one's own clock, and the estimate that holds at it.
    pub fn read(&self) -> (Monotonic, Estimate) {
        (self.clock.monotonic(), *self.estimate.borrow())
    }

    /// What the cluster's clock says, unslewed.
    pub fn now(&self) -> Stamp {
        let (now, estimate) = self.read();
        estimate.at(now)
    }

    /// Returns once a majority's clocks were heard. Before that nothing may be stamped: the node's own may be the wrong one.
    pub async fn trusted(&self) {
        // The sender is `self`, so that it cannot be gone.
        let _ = self.estimate.subscribe().wait_for(|estimate| estimate.trusted).await;
    }

    /// For the node's status.
    pub fn status(&self) -> ClockStatus {
        let (now, estimate) = self.read();
        let own = self.clock.wall().0.saturating_sub(now.0);
        ClockStatus { own_offset_us: own.saturating_sub(estimate.offset), estimate }
    }

    /// Who has a say.
    pub fn set_voters(&self, voters: Vec<NodeId>) {
        self.estimator().set_voters(voters);
        self.renew();
    }

    /// A shard's log holds that stamp: where the clocks that are heard disagree, it is not earlier than that.
    pub fn remember(&self, stamp: Stamp) {
        self.estimator().remember(self.clock.monotonic(), stamp);
        self.renew();
    }

    fn estimator(&self) -> std::sync::MutexGuard<'_, Estimator> {
        self.estimator.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn renew(&self) {
        let fresh = self.estimator().estimate(self.clock.monotonic(), self.clock.wall());
        let old = self.estimate.send_replace(fresh);
        let doubtful = |estimate: &Estimate| estimate.doubt > caps::CLOCK_DOUBT;
        if doubtful(&fresh) && !doubtful(&old) {
            tracing::warn!(
                doubt_us = fresh.doubt.0,
                heard = fresh.heard,
                voters = fresh.voters,
                "the clocks that can be heard disagree, and nobody can tell which is right: the cluster's time goes on as it \
                 was; check the nodes' time synchronisation"
            );
        }
        let apart = |estimate: &Estimate| estimate.trusted && estimate.heard * 2 <= estimate.voters;
        if apart(&fresh) && !apart(&old) {
            tracing::warn!(
                heard = fresh.heard,
                voters = fresh.voters,
                "no majority's clocks can be heard: the cluster's time goes on as it was"
            );
        }
    }

    /// Asks every voter once, together, and makes a new estimate.
    pub async fn sample(&self, ask: &dyn AskClock) {
        let others: Vec<NodeId> = self.estimator().others().collect();
        let asked = others.into_iter().map(|node| async move {
            let asked = self.clock.monotonic();
            let wall = ask.ask(node).await?;
            Some((node, Sample { asked, answered: self.clock.monotonic(), wall }))
        });
        for (node, sample) in join_all(asked).await.into_iter().flatten() {
            self.estimator().hear(node, sample);
        }
        self.renew();
    }
}

/// Asks the voters for their clocks, again and again: often until a majority was heard once, then every second or so. Ends
/// when `voters` does.
pub async fn keep_sampling(clock: ClusterClock, ask: impl AskClock, mut voters: watch::Receiver<Vec<NodeId>>) {
    loop {
        let now = voters.borrow_and_update().clone();
        clock.set_voters(now);
        clock.sample(&ask).await;
        let pause = if clock.read().1.trusted { caps::CLOCK_PERIOD } else { caps::CLOCK_FIRST_PERIOD };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            changed = voters.changed() => if changed.is_err() { return },
        }
    }
}

/// The answer to `KIND_CLOCK`: the node's own wall clock.
pub fn clock_to_wire(clock: &dyn Clock) -> Bytes {
    Bytes::copy_from_slice(&clock.wall().0.to_le_bytes())
}

/// Reads it; none where it is none.
pub fn clock_from_wire(body: &[u8]) -> Option<Wall> {
    body.try_into().ok().map(i64::from_le_bytes).map(Wall)
}

#[cfg(test)]
mod tests {
    use quorate_core::Span;

    use super::super::HandClock;
    use super::*;

    const NODES: [NodeId; 3] = [NodeId(1), NodeId(2), NodeId(3)];

    fn asking(walls: [Option<i64>; 2]) -> impl AskClock {
        move |node: NodeId| -> BoxFuture<'static, Option<Wall>> {
            let wall = walls[node.0 as usize - 2].map(Wall);
            Box::pin(async move { wall })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_trusted_before_a_majority_was_heard() {
        let hand = HandClock::at(Wall(5_000));
        let clock = ClusterClock::new(NODES[0], Arc::new(hand.clone()));
        clock.set_voters(NODES.to_vec());
        clock.sample(&asking([None, None])).await;
        assert!(!clock.read().1.trusted);
        clock.sample(&asking([Some(100), Some(105)])).await;
        clock.trusted().await;
        assert_eq!((clock.now(), clock.status().own_offset_us), (Stamp(105), 4_895));
        hand.advance(Span(10));
        assert_eq!(clock.now(), Stamp(115));
    }

    #[tokio::test(start_paused = true)]
    async fn the_loop_follows_the_voters_and_ends_with_them() {
        let clock = ClusterClock::new(NODES[0], Arc::new(HandClock::at(Wall(7))));
        let (voters, follow) = watch::channel(Vec::new());
        let looping = tokio::spawn(keep_sampling(clock.clone(), asking([Some(3), Some(5)]), follow));
        voters.send(vec![NODES[0]]).unwrap();
        clock.trusted().await;
        assert_eq!(clock.now(), Stamp(7));
        voters.send(NODES.to_vec()).unwrap();
        let mut estimates = clock.estimate.subscribe();
        estimates.wait_for(|estimate| estimate.heard == 3).await.unwrap();
        assert_eq!(clock.now(), Stamp(5));
        drop(voters);
        looping.await.unwrap();
    }

    #[test]
    fn a_clock_comes_over_the_wire() {
        assert_eq!(clock_from_wire(&clock_to_wire(&HandClock::at(Wall(-9)))), Some(Wall(-9)));
        assert_eq!(clock_from_wire(b"short"), None);
    }
}
