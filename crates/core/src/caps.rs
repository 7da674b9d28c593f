//! Every maximum of the state machine, in one place, with the relations between them asserted.

/// A cost, limit, capacity, queue or a rate's R: 10^12.
pub const UNITS: u64 = 1_000_000_000_000;
/// How far the algorithms stay exact: beyond what any cluster lets in, so that a trace from elsewhere can be replayed.
pub const EXACT_UNITS: u64 = 4 * UNITS;
/// The shortest window or period: 1 ms.
pub const SPAN_MIN_US: i64 = 1_000;
/// The longest window or period: 366 days.
pub const SPAN_MAX_US: i64 = 366 * 24 * 3600 * 1_000_000;
/// The longest span that a policy may make: 2^62 microseconds.
pub const LONGEST_US: i64 = 1 << 62;
/// A sliding log's limit.
pub const SLIDING_LOG_LIMIT: u64 = 100_000;
/// Bytes of a key.
pub const KEY_BYTES: usize = 1024;
/// Bytes of a policy's name.
pub const POLICY_NAME_BYTES: usize = 128;
/// Bytes of a policy's description.
pub const DESCRIPTION_BYTES: usize = 1024;
/// Fields that are looked at where a policy is written down; no policy has as many.
pub const POLICY_FIELDS: usize = 64;
/// Mistakes of one file that are told; the rest is counted.
pub const MISTAKES_TOLD: usize = 50;
/// Policies of a set.
pub const POLICIES: usize = 4096;
/// Limits that one check may name.
pub const LIMITS_PER_CHECK: usize = 16;
/// Commands of one frame.
pub const COMMANDS_PER_FRAME: usize = 1024;
/// Commands of one batch: several frames.
pub const COMMANDS_PER_BATCH: usize = 16 * COMMANDS_PER_FRAME;
/// Bytes of an encoded batch.
pub const BATCH_BYTES: usize = 8 << 20;
/// A reservation's longest life: an hour.
pub const RESERVATION: crate::units::Span = crate::units::Span(3600 * 1_000_000);
/// Reservations that one key can hold at once.
pub const HOLDS_PER_KEY: usize = 1024;
/// Frames that a session may span above its lowest unanswered one.
pub const SESSION_SPAN: u64 = 1024;
/// Sessions of a shard, unless set.
pub const SESSIONS: u64 = 10_000;
/// Bytes of remembered answers of a shard, unless set.
pub const SESSION_BYTES: u64 = 256 << 20;
/// A session that sent no frame for this long, in logical time, has expired: an hour.
pub const SESSION_IDLE: crate::units::Span = crate::units::Span(3600 * 1_000_000);
/// Keys of a shard, unless set.
pub const KEYS: u64 = 20_000_000;
/// Bytes of sliding logs and held units of a shard, unless set.
pub const LOG_BYTES: u64 = 256 << 20;

// The bounds that the arithmetic of the buckets rests on (see `limit/pace.rs`).
const _: () = assert!(EXACT_UNITS < 1 << 42 && SPAN_MAX_US < 1 << 45 && UNITS <= EXACT_UNITS);
const _: () = assert!(COMMANDS_PER_FRAME <= COMMANDS_PER_BATCH);
const _: () = assert!(SPAN_MIN_US > 0 && SPAN_MAX_US < LONGEST_US);
