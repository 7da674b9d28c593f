//! Whether a cluster is well again, as it says itself.

use quorate_client::admin::{Admin, ReplicaStatus, ShardStatus};

use crate::until;

/// Waits until every replica of every shard follows a leader.
pub async fn has_recovered(admin: &Admin) {
    until("every replica follows a leader", || async {
        let status = admin.status().await.ok()?;
        let led = |shard: &ShardStatus| shard.leader.is_some() && shard.replicas.len() == 3;
        (status.nodes.iter().all(|node| node.reachable) && status.shards.iter().all(led)).then_some(())
    })
    .await;
}

/// Waits until all replicas of each shard have applied the same.
///
/// # Panics
/// When two that have applied the same are not equal.
pub async fn agree(admin: &Admin) {
    until("all replicas have applied the same and are equal", || async {
        let status = admin.status().await.ok()?;
        let equal = status.shards.iter().all(|shard| {
            let same = |pair: &[ReplicaStatus]| {
                if pair[0].applied_index == pair[1].applied_index {
                    assert_eq!(
                        pair[0].digest, pair[1].digest,
                        "replicas of {} differ at {}",
                        shard.id, pair[0].applied_index
                    );
                }
                pair[0].applied_index == pair[1].applied_index
            };
            shard.replicas.len() == 3 && shard.replicas.windows(2).all(same)
        });
        equal.then_some(())
    })
    .await;
}
