//! Every maximum of the node, in one place, with the relations between them asserted.

use std::time::Duration;

use quorate_core::Span;

// The cluster's clock.

/// How often the voters' clocks are asked.
pub const CLOCK_PERIOD: Duration = Duration::from_secs(1);
/// How often, until a majority was heard once.
pub const CLOCK_FIRST_PERIOD: Duration = Duration::from_millis(50);
/// A voter's clock that took longer to answer is not heard.
pub const CLOCK_ROUND_TRIP: Span = Span(250_000);
/// What a voter's clock said counts for this long.
pub const CLOCK_SAMPLE_LIFE: Span = Span(10_000_000);
/// The node says so when the clocks that it hears leave more doubt than this.
pub const CLOCK_DOUBT: Span = Span(500_000);

const _: () = assert!(CLOCK_SAMPLE_LIFE.0 as u128 >= 3 * CLOCK_PERIOD.as_micros());

// The sequencer.

/// Batches of one shard that are on their way through the log at once.
pub const PROPOSALS_IN_FLIGHT: usize = 3;
/// Bytes of the frames that one batch takes, about, unless a single one is larger.
pub const BATCH_BYTES: usize = 1 << 20;
/// Bytes of the frames that may wait before one shard, about.
pub const QUEUE_BYTES: usize = 16 << 20;
/// How often those in flight are looked at whose time may be over.
pub const OVERDUE_PERIOD: Duration = Duration::from_millis(50);
/// An idle shard on which something awaits expiry has its time moved on no more often than this.
pub const TICK_PERIOD: Duration = Duration::from_millis(100);
/// Nor later than this: what awaits expiry may be told otherwise in between.
pub const TICK_LONGEST: Duration = Duration::from_secs(60);

// A frame's estimate counts at most 64 bytes a limit and as much a command; so no batch outgrows what an entry may be.
const _: () = assert!(
    BATCH_BYTES + quorate_core::caps::COMMANDS_PER_FRAME * (64 + 64 * quorate_core::caps::LIMITS_PER_CHECK) + 32
        <= quorate_core::caps::BATCH_BYTES
);
const _: () = assert!(TICK_PERIOD.as_micros() <= TICK_LONGEST.as_micros());

// The services.

/// Frames of one stream that are unanswered at once; beyond that no more are read.
pub const FRAMES_IN_FLIGHT: usize = 1024;
/// A frame without a budget, or with a longer one, is waited for this long.
pub const FRAME_PATIENCE: Span = Span(30_000_000);
/// A plain check is waited for no longer than this.
pub const UNARY_PATIENCE: Duration = Duration::from_secs(5);
/// Changes of the topology that come within this are told together.
pub const TOPOLOGY_PAUSE: Duration = Duration::from_millis(10);
/// How often the number of live clients is looked at.
pub const COUNT_CLIENTS: Duration = Duration::from_secs(1);
/// Bytes of the note of a report.
pub const REPORT_NOTE: usize = 1_024;
/// How often a report is logged at the most.
pub const REPORT_LOG: Duration = Duration::from_secs(1);
/// Bytes of a message from or to a client.
pub const CLIENT_MESSAGE: usize = 4 << 20;
/// Bytes of an operator's message: all policies of a cluster fit.
pub const ADMIN_MESSAGE: usize = 8 << 20;
/// Streams and calls of one connection that are open at once.
pub const STREAMS_PER_CONNECTION: u32 = 256;
/// Bytes of one stream that may be under way unread.
pub const STREAM_WINDOW: u32 = 4 << 20;
/// Bytes of one connection that may be under way unread.
pub const CONNECTION_WINDOW: u32 = 16 << 20;
/// Bytes of a call's metadata.
pub const HEADERS: u32 = 16 << 10;
/// How often a silent connection is asked whether it lives.
pub const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
/// How long it has to answer.
pub const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a stopping node waits for the calls that are under way.
pub const STOP_GRACE: Duration = Duration::from_millis(500);

const _: () = assert!(
    quorate_core::caps::POLICIES
        * (quorate_core::caps::POLICY_NAME_BYTES + quorate_core::caps::DESCRIPTION_BYTES + 128)
        <= ADMIN_MESSAGE
);
const _: () = assert!(STREAM_WINDOW <= CONNECTION_WINDOW);

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
/// Bytes of a message between nodes that is decoded at all.
pub const PEER_MESSAGE: usize = 32 << 20;
/// How long a connection may take to be made.
pub const CONNECT: Duration = Duration::from_secs(1);
/// How often a silent link is pinged.
pub const LINK_PING: Duration = Duration::from_secs(2);
/// How long a ping may stay unanswered.
pub const LINK_PATIENCE: Duration = Duration::from_secs(2);
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

const _: () = assert!(LOG_READ_BYTES + quorate_core::caps::BATCH_BYTES + LINK_MESSAGE_BYTES < PEER_MESSAGE);

// The groups.

/// Entries that are purged at once.
pub const PURGE_BATCH: u64 = 512;
/// Entries that a replica applies before it lets others run.
pub const APPLY_RUN: usize = 64;
/// How long a leadership that is handed over may take to arrive.
pub const HAND_OVER: Duration = Duration::from_secs(2);
/// How often a group's log is measured against what calls for a snapshot.
pub const SNAPSHOT_PERIOD: Duration = Duration::from_secs(1);
/// How long a replica that lost its snapshot looks for one among the others before its node gives up.
pub const MEND: Duration = Duration::from_secs(60);
/// The pause before the others are asked again.
pub const MEND_RETRY: Duration = Duration::from_millis(200);
/// A group that its first replica has not begun by then is begun by the others.
pub const BIRTH: Duration = Duration::from_secs(3);

// Connections.

/// Connections that a node takes, at the least: its members' and a few clients'.
pub const CONNECTIONS_MIN: usize = 64;
/// Files that are kept free of connections: the log's, snapshots', the control database's, links to other nodes.
pub const FILES_KEPT: usize = 192;
/// How long a new connection has to say the first bytes of HTTP/2.
pub const PREFACE_PATIENCE: Duration = Duration::from_secs(5);
/// How often it is told, at most, that connections are turned away.
pub const TURNED_AWAY_TOLD: Duration = Duration::from_secs(1);
/// The pause after a connection could not be accepted.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

// Making a cluster.

/// Bytes of a settings file: every setting, generously written, is far below.
pub const SETTINGS_BYTES: u64 = 1 << 20;
/// Nodes that a cluster is made of, at most.
pub const NODES: usize = 64;
/// Shards of a cluster at its birth, at most.
pub const SHARDS: u32 = 1024;
/// Shards of a cluster at its birth unless the operator says otherwise.
pub const SHARDS_DEFAULT: u32 = 12;
/// Bytes of a cluster's name.
pub const CLUSTER_NAME_BYTES: usize = 64;
/// How long a node that is to be a member has to say who it is, and to become one.
pub const JOIN_PATIENCE: Duration = Duration::from_secs(5);
/// How long the making of a cluster may take.
pub const FOUND_PATIENCE: Duration = Duration::from_secs(8);
/// Bytes of the file that says whose a data directory is.
pub const MEMBER_BYTES: u64 = 64 << 10;

// Log and snapshots.

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

// The control group.

/// Nodes that vote in the control group, at most; the others learn.
pub const CONTROL_VOTERS: usize = 5;
/// Bytes of a part of the control state; sled never syncs values much larger.
pub const CONTROL_PART: usize = 60 << 10;
/// How long to wait for somebody who has the control database open to let go of it.
pub const CONTROL_LOCK: Duration = Duration::from_secs(5);
/// Bytes that sled caches.
pub const CONTROL_CACHE: u64 = 8 << 20;
/// Changes of the policies that are kept for the history.
pub const POLICY_HISTORY: usize = 100;
/// Names of each kind that a record of the history lists.
pub const POLICY_RECORD_NAMES: usize = 64;

const _: () = assert!(CONTROL_PART < 64 << 10);
const _: () = assert!(3 * POLICY_RECORD_NAMES * (quorate_core::caps::POLICY_NAME_BYTES + 4) + 64 < CONTROL_PART);

// The operator's calls.

/// How long a change of the policies, and its way to every shard, is waited for. Below what a client's admin calls wait.
pub const ADMIN_PATIENCE: Duration = Duration::from_secs(8);
/// The pause before the control group, or a shard that lags, is asked again.
pub const ADMIN_RETRY: Duration = Duration::from_millis(50);
/// How long the control group's leader has to answer another node.
pub const FORWARD_PATIENCE: Duration = Duration::from_secs(3);
/// How long a node has to say how it is.
pub const STATUS_PATIENCE: Duration = Duration::from_secs(1);
/// Wrong policies of one request that are told; more are only counted.
pub const PROBLEMS_TOLD: usize = 20;

const _: () = assert!(FORWARD_PATIENCE.as_millis() < ADMIN_PATIENCE.as_millis());
