//! openraft's settings, the same for all groups.

use std::sync::Arc;

use openraft::{Config, SnapshotPolicy};

use crate::caps;
use crate::settings::RaftSettings;

/// The settings of every group, from the node's.
///
/// # Errors
///
/// Says which timing does not fit the others.
pub fn config(cluster: &str, settings: &RaftSettings) -> Result<Arc<Config>, String> {
    let millis = |duration: std::time::Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let (heartbeat, min, max) =
        (millis(settings.heartbeat), millis(settings.election_min), millis(settings.election_max));
    let config = Config {
        cluster_name: cluster.to_owned(),
        heartbeat_interval: heartbeat,
        // A tick comes every fifth of a heartbeat: a suppressed heartbeat is never later than the shortest election timeout.
        heartbeat_min_interval: Some(heartbeat),
        election_timeout_min: min,
        election_timeout_max: max,
        // A node that restarted stands for election like any other: it has forgotten the leases that it granted.
        enable_leader_restore: Some(false),
        enable_pre_vote: Some(true),
        quorum_loss_probe_interval: Some(2 * max),
        install_snapshot_timeout: millis(caps::SNAPSHOT_TRANSFER),
        max_payload_entries: caps::APPEND_ENTRIES,
        // By bytes of log, by our own trigger.
        snapshot_policy: SnapshotPolicy::Never,
        // A follower is sent a snapshot only when what it needs was purged.
        replication_lag_threshold: u64::MAX,
        // By bytes as well, with the snapshots.
        max_in_snapshot_log_to_keep: u64::MAX,
        purge_batch_size: caps::PURGE_BATCH,
        ..Config::default()
    };
    #[cfg(feature = "planted")]
    let config = Config {
        enable_leader_restore: Some(quorate_core::planted::is(quorate_core::planted::Planted::LeaderRestored)),
        ..config
    };
    config.validate().map(Arc::new).map_err(|error| format!("the raft timings do not fit each other: {error}"))
}
