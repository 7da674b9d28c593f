//! Every maximum of a node, in one place, with the relations between them asserted.

use std::time::Duration;

/// Bytes of a part of the control state; sled never syncs values much larger.
pub const CONTROL_PART: usize = 60 << 10;
/// Bytes that sled caches.
pub const CONTROL_CACHE: u64 = 8 << 20;
/// Changes of the policies that are kept for the history.
pub const POLICY_HISTORY: usize = 100;

const _: () = assert!(CONTROL_PART < 64 << 10);

// Links between nodes.

/// Calls that wait for a link; more are refused.
pub const LINK_QUEUE: usize = 8192;
/// Messages handed to a stream and not yet taken by it.
pub const LINK_MESSAGES: usize = 4;
/// Bytes of a message between nodes, unless one call alone has more.
pub const LINK_MESSAGE_BYTES: usize = 4 << 20;
/// Calls of a message between nodes.
pub const LINK_MESSAGE_CALLS: usize = 1024;
/// Calls of a peer that are handled at the same time; the next wait in its stream.
pub const LINK_IN_FLIGHT: usize = 4096;
/// Bytes of a message that is decoded at all.
pub const MESSAGE: usize = 32 << 20;
/// Bytes that a peer may send ahead on one stream.
pub const STREAM_WINDOW: u32 = 4 << 20;
/// Bytes that a peer may send ahead on one connection.
pub const CONNECTION_WINDOW: u32 = 16 << 20;
/// How long a connection may take to be made.
pub const CONNECT: Duration = Duration::from_secs(1);
/// How often a silent connection is pinged.
pub const KEEPALIVE: Duration = Duration::from_secs(2);
/// How long a ping may stay unanswered.
pub const KEEPALIVE_PATIENCE: Duration = Duration::from_secs(2);
/// The first pause after a link could not be made.
pub const RECONNECT_MIN: Duration = Duration::from_millis(50);
/// The longest pause between two tries to make a link.
pub const RECONNECT_MAX: Duration = Duration::from_millis(500);
/// How long an append may stay unanswered.
pub const APPEND_PATIENCE: Duration = Duration::from_secs(5);
/// Appends of one group to one node that are on their way at the same time.
pub const APPENDS_IN_FLIGHT: usize = 16;
/// Entries of one append; bytes are bounded by what one read of the log returns.
pub const APPEND_ENTRIES: u64 = 512;
/// How long a snapshot may take to reach a node.
pub const SNAPSHOT_TRANSFER: Duration = Duration::from_secs(600);
/// Entries that stay in the log although a snapshot holds them: enough for a follower that was away for a moment, and to
/// outlast a snapshot on its way.
pub const ENTRIES_KEPT: u64 = 4096;
/// Entries that are purged at once.
pub const PURGE_BATCH: u64 = 512;
/// Entries that a replica applies before it lets others run.
pub const APPLY_RUN: usize = 64;

const _: () = assert!(quorate_core::caps::BATCH_BYTES + LINK_MESSAGE_BYTES < MESSAGE);
/// How long a leadership that is handed over may take to arrive.
pub const HAND_OVER: Duration = Duration::from_secs(2);

/// Bytes of a segment of the log, unless set.
pub const SEGMENT_BYTES: u32 = 64 << 20;
/// Bytes of the newest entries that each group keeps in memory for reads.
pub const LOG_TAIL_BYTES: usize = 4 << 20;
/// Bytes of entries that may wait for the log's writer; who comes then waits.
pub const LOG_QUEUE_BYTES: usize = 64 << 20;
/// Bytes that the log writes with one sync, about.
pub const LOG_BATCH_BYTES: usize = 4 << 20;
/// Bytes of entries that one read of the log returns, unless a single one is larger. Below what a message between nodes
/// may carry.
pub const LOG_READ_BYTES: usize = 2 << 20;
/// Bytes of old entries that are written again between two batches, to free an old segment.
pub const LOG_REWRITE_BYTES: usize = 1 << 20;
/// An idle log writes down after this time how far it was synced.
pub const LOG_IDLE: Duration = Duration::from_millis(20);
/// Bytes of a block of a snapshot file, each with its checksum.
pub const SNAPSHOT_BLOCK_BYTES: usize = 64 << 10;
/// Snapshot files of a group that are kept.
pub const SNAPSHOTS_KEPT: usize = 2;
/// Bytes of a snapshot's meta.
pub const SNAPSHOT_META_BYTES: usize = 1 << 20;

const _: () = assert!(quorate_core::caps::BATCH_BYTES <= SEGMENT_BYTES as usize / 2);
const _: () = assert!(LOG_BATCH_BYTES <= LOG_QUEUE_BYTES);
const _: () = assert!(LOG_QUEUE_BYTES <= u32::MAX as usize);
