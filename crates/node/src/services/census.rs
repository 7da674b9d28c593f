//! How many clients are about: the most sessions that any replica of this node has.
//!
//! A client opens one session on each shard that it asks, and a follower knows a shard's sessions as its leader does. So the
//! most of them is the number of clients, short only of those that ask little; a client that crashed counts until its
//! session expires. Clients are told so that each can take its share where the cluster cannot be asked: the number errs
//! upwards, so that shares err downwards.
//!
//! Invariant: what is told changes seldom. Small numbers are told as they are, large ones in steps of an eighth, rounded up,
//! so that clients that come and go are no news to all the others.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, Weak};

use quorate_core::ShardId;
use tokio::sync::watch;

use crate::caps;

type Count = Box<dyn Fn() -> u64 + Send + Sync>;

/// The counts of this node's replicas.
#[derive(Default)]
pub(super) struct Census {
    replicas: Mutex<BTreeMap<ShardId, Count>>,
    told: AtomicU64,
}

impl fmt::Debug for Census {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Census").field("told", &self.told).finish_non_exhaustive()
    }
}

impl Census {
    pub(super) fn add(&self, shard: ShardId, sessions: impl Fn() -> u64 + Send + Sync + 'static) {
        self.replicas.lock().unwrap_or_else(PoisonError::into_inner).insert(shard, Box::new(sessions));
    }

    /// What clients are told.
    pub(super) fn told(&self) -> u64 {
        self.told.load(Ordering::Relaxed)
    }

    /// Counts anew; whether clients have to be told.
    fn count(&self) -> bool {
        let replicas = self.replicas.lock().unwrap_or_else(PoisonError::into_inner);
        let now = rounded(replicas.values().map(|sessions| sessions()).max().unwrap_or(0));
        self.told.swap(now, Ordering::Relaxed) != now
    }
}

/// Counts now and then, as long as somebody holds the census, and says when the number is another.
pub(super) async fn keep_counting(census: Weak<Census>, changes: watch::Sender<u64>) {
    loop {
        tokio::time::sleep(caps::COUNT_CLIENTS).await;
        let Some(census) = census.upgrade() else { return };
        if census.count() {
            changes.send_modify(|change| *change += 1);
        }
    }
}

/// Up to 16 as it is, then up to the next eighth of a power of two.
fn rounded(count: u64) -> u64 {
    let step = (count.max(1).ilog2().saturating_sub(3)).min(60);
    match count {
        0..=16 => count,
        _ => count.div_ceil(1 << step) << step,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn large_numbers_are_told_in_steps_and_never_too_low() {
        let told: Vec<_> = [0, 1, 15, 16, 17, 18, 31, 33, 100, 1000].map(rounded).into();
        assert_eq!(told, [0, 1, 15, 16, 18, 18, 32, 36, 104, 1024]);
        for count in 0..20_000_u64 {
            let told = rounded(count);
            assert!(told >= count && told * 8 <= count.max(1) * 9 && rounded(told) == told, "{count}: {told}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_most_of_all_replicas_is_told_and_only_where_it_is_another() {
        let census = Arc::<Census>::default();
        let sessions = Arc::new(AtomicU64::new(3));
        let counted = Arc::clone(&sessions);
        census.add(ShardId(1), || 2);
        census.add(ShardId(2), move || counted.load(Ordering::Relaxed));
        let (changes, mut seen) = watch::channel(0);
        let task = tokio::spawn(keep_counting(Arc::downgrade(&census), changes));
        seen.changed().await.unwrap();
        assert_eq!(census.told(), 3);
        seen.mark_unchanged();
        tokio::time::sleep(caps::COUNT_CLIENTS * 3).await;
        assert!(!seen.has_changed().unwrap());
        sessions.store(1, Ordering::Relaxed);
        seen.changed().await.unwrap();
        assert_eq!(census.told(), 2);
        drop(census);
        task.await.unwrap();
    }
}
