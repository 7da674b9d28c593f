//! Every maximum and every span of time of the client, in one place, with the relations between them asserted.
//!
//! What the cluster bounds (keys, costs, limits of a check, commands of a frame) is in [`quorate_core::caps`]; the client
//! refuses it before it is sent.

use std::time::Duration;

pub(crate) use quorate_core::caps::{COMMANDS_PER_FRAME, KEY_BYTES, LIMITS_PER_CHECK, POLICY_NAME_BYTES, SESSION_SPAN};

/// Frames of one shard that are under way at once. What comes meanwhile is packed into the next: more frames cost more
/// messages, fewer leave the leader idle for a round trip.
pub(crate) const FRAMES_IN_FLIGHT: usize = 3;
/// Commands that wait for one shard; one more is refused as overloaded.
pub(crate) const QUEUED_COMMANDS: usize = 16 * COMMANDS_PER_FRAME;
/// Bytes of keys that wait for one shard; one more is refused as overloaded.
pub(crate) const QUEUED_BYTES: usize = 8 << 20;
/// Bytes of keys in one frame: a message stays well below gRPC's usual 4 MiB.
pub(crate) const FRAME_BYTES: usize = 1 << 20;
/// Frames handed to one node's stream that the connection has not taken yet.
pub(crate) const STREAM_FRAMES: usize = 64;
/// Events that wait for the engine; the streams wait with it.
pub(crate) const EVENTS: usize = 1024;
/// Events that the engine takes at once, before it packs the next frames.
pub(crate) const EVENTS_AT_ONCE: usize = 256;
/// Checks of one `check_many`.
pub(crate) const CHECKS_AT_ONCE: usize = QUEUED_COMMANDS;
/// Bytes of the host in a node's address.
pub(crate) const HOST_BYTES: usize = 253;
/// Characters that are shown of what is no address.
pub(crate) const ADDRESS_SHOWN: usize = 64;
/// Endpoints that a client can be given.
pub(crate) const ENDPOINTS: usize = 64;
/// Shards of a topology.
pub(crate) const SHARDS: usize = 4096;
/// Nodes of a topology.
pub(crate) const NODES: usize = 1024;
/// Names remembered as not in the policy set in force, so that a wrong one costs its long wait once.
pub(crate) const UNKNOWN_NAMES: usize = 256;

/// Denials remembered at once: slots by hash, of which the newer denial takes the older one's.
pub(crate) const DENIALS: usize = 8 * 1024;
/// Bytes of keys of one check whose denial is remembered; with longer ones, the cluster is asked each time.
pub(crate) const DENIAL_BYTES: usize = 512;
/// Charges that nobody will use, given back in the background at once; one more stays charged.
pub(crate) const GIVE_BACKS: usize = 1024;

/// How long a denial is remembered at most, unless set.
pub(crate) const DENIAL: Duration = Duration::from_secs(1);
/// The longest that can be set.
pub(crate) const DENIAL_MAX: Duration = Duration::from_secs(3600);
/// How long a turn is waited for, unless set.
pub(crate) const ACQUIRE: Duration = Duration::from_secs(10);
/// What an `acquire` leaves the cluster for an answer, at least: its time may be over the moment that its turn comes.
pub(crate) const ACQUIRE_ANSWER: Duration = Duration::from_millis(50);
/// How long it is tried to give back what nobody uses.
pub(crate) const GIVE_BACK: Duration = Duration::from_secs(10);
/// How long a check waits for its decision, unless set.
pub(crate) const DEADLINE: Duration = Duration::from_millis(50);
/// How long a refund, a settlement or a reset waits at least, unless set: no request waits for it.
pub(crate) const OPERATION: Duration = Duration::from_secs(1);
/// The longest deadline that can be set.
pub(crate) const DEADLINE_MAX: Duration = Duration::from_secs(3600);
/// How long `connect` looks for a topology, unless set.
pub(crate) const CONNECT: Duration = Duration::from_secs(5);
/// How long one attempt at a connection may take.
pub(crate) const DIAL: Duration = Duration::from_secs(1);
/// A reservation's life, unless set.
pub(crate) const RESERVATION: Duration = Duration::from_secs(60);
/// How long the opening or closing of a session may take, before it is done again.
pub(crate) const ERRAND: Duration = Duration::from_secs(1);
/// How long an admin call may take, unless set: applying policies waits for every shard.
pub(crate) const ADMIN: Duration = Duration::from_secs(10);
/// Rounds over all endpoints after which an admin call gives up where nobody listens.
pub(crate) const ADMIN_ROUNDS: u32 = 3;
/// Bytes of an admin message.
pub(crate) const ADMIN_BYTES: usize = 64 << 20;
/// How long `close` waits for what is under way.
pub(crate) const CLOSE: Duration = Duration::from_secs(1);
/// The first backoff; each further one may be twice as long.
pub(crate) const BACKOFF_FIRST: Duration = Duration::from_millis(5);
/// The longest backoff.
pub(crate) const BACKOFF_MAX: Duration = Duration::from_millis(250);
/// A frame without an answer for that long makes the client ask another node who leads.
pub(crate) const PATIENCE: Duration = Duration::from_millis(300);
/// A stream that owes an answer and says nothing for that long is broken off.
pub(crate) const SILENCE: Duration = Duration::from_millis(1500);
/// How long a check of a policy that is not known waits for a newer policy set: it may have been applied a moment ago.
pub(crate) const POLICY_GRACE: Duration = Duration::from_millis(250);
/// The same where that set was waited out before for that name: long enough for the news of what was just applied.
pub(crate) const POLICY_GRACE_AGAIN: Duration = Duration::from_millis(20);

/// Checks in a row that a shard did not answer in time, after which its breaker opens.
pub(crate) const BREAKER_FAILURES: u32 = 5;
/// How far apart the first and the last of them are at least: one hiccup fails many checks at once.
pub(crate) const BREAKER_WINDOW: Duration = Duration::from_millis(100);
/// Keys that are decided in this process, of all policies together.
pub(crate) const LOCAL_KEYS: u64 = 100_000;
/// Bytes of sliding logs and reservations that are decided in this process.
pub(crate) const LOCAL_LOG_BYTES: u64 = 8 << 20;
/// How often what concerns many requests is logged at the most: degraded answers of one policy, faults of a layer.
pub(crate) const LOG_EVERY: Duration = Duration::from_secs(1);
/// How long telling a node of a wrong denial may take, and bytes of its note.
pub(crate) const REPORT: Duration = Duration::from_secs(5);
pub(crate) const REPORT_NOTE: usize = 1_024;
/// Policies whose failure policy is set in code.
pub(crate) const OVERRIDES: usize = quorate_core::caps::POLICIES;
/// Places of a ceiling, and callers that wait for one.
pub(crate) const CEILING: usize = 1 << 20;

/// Bytes of one part of a key that is joined of several; a longer one is replaced by its digest.
#[cfg(feature = "tower")]
pub(crate) const KEY_PART_BYTES: usize = 320;
/// Bytes of a key's hash tag, without its braces; a longer one is replaced by its digest.
#[cfg(feature = "tower")]
pub(crate) const KEY_TAG_BYTES: usize = 256;
/// Networks of one `ClientIp` that are trusted.
#[cfg(feature = "tower")]
pub(crate) const TRUSTED_NETWORKS: usize = 256;
/// Addresses of a forwarding header that are looked at, from the right.
#[cfg(feature = "tower")]
pub(crate) const HOPS: usize = 32;
/// Bytes of forwarding headers that are looked at, from the right.
#[cfg(feature = "tower")]
pub(crate) const HOPS_BYTES: usize = 8 << 10;
/// Bytes of one element of a forwarding header.
#[cfg(feature = "tower")]
pub(crate) const HOP_BYTES: usize = 1 << 10;
/// Keys that signed identities are verified with.
#[cfg(feature = "tower")]
pub(crate) const SIGNING_KEYS: usize = 16;
/// Bytes of a signing key's id.
#[cfg(feature = "tower")]
pub(crate) const SIGNING_KEY_ID_BYTES: usize = 32;
/// The fewest bytes of a signing key's secret.
#[cfg(feature = "tower")]
pub(crate) const SIGNING_SECRET_BYTES: usize = 32;
/// How far ahead a signed identity's end may lie.
#[cfg(feature = "tower")]
pub(crate) const SIGNED_LIFE: Duration = Duration::from_secs(24 * 3600);
/// Bytes of a signed identity's header.
#[cfg(feature = "tower")]
pub(crate) const SIGNED_BYTES: usize = 2 << 10;
/// How long a caller is told to wait where the cluster could not be asked.
#[cfg(feature = "tower")]
pub(crate) const RETRY_UNAVAILABLE: Duration = Duration::from_secs(1);
#[cfg(feature = "tower")]
const _: () = assert!(3 * KEY_PART_BYTES + 2 <= KEY_BYTES && KEY_TAG_BYTES + 2 <= KEY_PART_BYTES);
#[cfg(feature = "tower")]
const _: () = assert!(HOP_BYTES <= HOPS_BYTES && 2 * KEY_BYTES <= SIGNED_BYTES);
const _: () = assert!(FRAMES_IN_FLIGHT <= STREAM_FRAMES && (FRAMES_IN_FLIGHT as u64) < SESSION_SPAN);
const _: () = assert!(LIMITS_PER_CHECK * KEY_BYTES <= FRAME_BYTES && FRAME_BYTES <= QUEUED_BYTES);
const _: () = assert!(DENIALS.is_power_of_two() && DENIAL.as_micros() <= DENIAL_MAX.as_micros());
const _: () = assert!(ACQUIRE.as_micros() <= DEADLINE_MAX.as_micros());
const _: () = assert!(PATIENCE.as_micros() < SILENCE.as_micros());
const _: () =
    assert!(BACKOFF_FIRST.as_micros() < DEADLINE.as_micros() && BACKOFF_FIRST.as_micros() < BACKOFF_MAX.as_micros());
const _: () = assert!(DEADLINE.as_micros() < OPERATION.as_micros() && BACKOFF_MAX.as_micros() < OPERATION.as_micros());
const _: () = assert!(CEILING < tokio::sync::Semaphore::MAX_PERMITS && CEILING < u32::MAX as usize);
const _: () = assert!(RESERVATION.as_micros() <= quorate_core::caps::RESERVATION.0 as u128);
