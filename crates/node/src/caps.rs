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
