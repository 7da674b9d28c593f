//! What a shard can be told: the commands that its log carries.
//!
//! One [`Batch`] is one log entry and has one stamp. Kinds have permanent numbers.

use smallvec::SmallVec;

use crate::caps;
use crate::ids::{PolicyId, Position, Sequence, SessionId};
use crate::key::Fingerprint;
use crate::policy::PolicySet;
use crate::units::{Cost, Span, Stamp};

/// One limit that a check names.
///
/// ```
/// use quorate_core::{Cost, Fingerprint, Limit, PolicyId};
/// let limit = Limit { policy: PolicyId(1), key: Fingerprint { ring: 1, table: 2 }, cost: Cost::ONE };
/// assert_eq!(limit.cost.get(), 1);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// The policy.
    pub policy: PolicyId,
    /// The key under that policy.
    pub key: Fingerprint,
    /// What is asked.
    pub cost: Cost,
}

/// A question of one or several limits.
///
/// ```
/// use quorate_core::Check;
/// assert!(!Check::default().peek);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Check {
    /// All of them grant, or none is charged. At least one, at most [`caps::LIMITS_PER_CHECK`].
    pub limits: SmallVec<[Limit; 1]>,
    /// Answer as the check would, and charge nothing.
    pub peek: bool,
    /// A leaky bucket's place is taken only if the wait for it is at most this.
    pub max_delay: Option<Span>,
}

/// A charge to undo or to correct: one limit of a granted check.
///
/// ```
/// use quorate_core::{Charge, Cost, Fingerprint, PolicyId};
/// let charge = Charge { policy: PolicyId(1), key: Fingerprint { ring: 1, table: 2 }, cost: Cost::ONE, mark: None };
/// assert!(charge.mark.is_none());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Charge {
    /// The policy charged.
    pub policy: PolicyId,
    /// The key charged.
    pub key: Fingerprint,
    /// What was charged.
    pub cost: Cost,
    /// [`LimitAnswer::mark`](crate::LimitAnswer::mark) as it was answered.
    pub mark: Option<i128>,
}

/// A command to a shard.
///
/// ```
/// use quorate_core::{Command, Check};
/// assert_ne!(Command::Tick, Command::Check(Check::default()));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Lets time pass: sweeps and expires. Kind 0.
    Tick,
    /// Asks, and charges if granted. Kind 1.
    Check(Check),
    /// Undoes a granted check. Kind 2.
    Refund {
        /// The check's receipt: where it stands in the log.
        receipt: Position,
        /// The receipt's stamp.
        at: Stamp,
        /// What it charged.
        charges: SmallVec<[Charge; 1]>,
    },
    /// A check whose charge can be settled until it expires. Kind 3.
    Reserve {
        /// The check.
        check: Check,
        /// How long it may stay unsettled; at most [`caps::RESERVATION`].
        ttl: Span,
    },
    /// Says what a reservation really used. Kind 4.
    Settle {
        /// The reservation's receipt.
        receipt: Position,
        /// The receipt's stamp.
        at: Stamp,
        /// The reservation's time to live, as it was asked.
        ttl: Span,
        /// What it charged.
        charges: SmallVec<[Charge; 1]>,
        /// What was used of each of them, in the same order.
        actual: SmallVec<[Cost; 1]>,
    },
    /// Makes a key as good as new. Kind 5.
    Reset {
        /// The policy.
        policy: PolicyId,
        /// The key under it.
        key: Fingerprint,
    },
    /// Puts a policy set in force; ignored where its version is not newer. Kind 6.
    Install(PolicySet),
    /// Opens a session. Kind 7.
    OpenSession,
    /// Ends a session: its client is going away in peace. Kind 8.
    CloseSession(SessionId),
    /// Sets the shard's bounds. Kind 9.
    Bounds(Bounds),
    // 10 to 13 are kept for leases: take, renew, return, end.
}

/// The most that a shard may hold; part of its state, so that all replicas refuse and expire alike.
///
/// A bound lowered below what is held throws no key away: new ones are refused or evict, and sessions beyond it expire.
///
/// ```
/// use quorate_core::{Bounds, caps};
/// assert_eq!(Bounds::default().keys, caps::KEYS);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Keys in the table, remembered resets included.
    pub keys: u64,
    /// Bytes of sliding logs and of buckets with held units; may be passed by what one check adds.
    pub log_bytes: u64,
    /// Sessions.
    pub sessions: u64,
    /// Bytes of the answers that sessions remember.
    pub session_bytes: u64,
}

impl Default for Bounds {
    fn default() -> Self {
        Bounds {
            keys: caps::KEYS,
            log_bytes: caps::LOG_BYTES,
            sessions: caps::SESSIONS,
            session_bytes: caps::SESSION_BYTES,
        }
    }
}

/// A frame's place in its session.
///
/// ```
/// use quorate_core::{FrameId, Sequence, SessionId};
/// let frame = FrameId { session: SessionId(1), sequence: Sequence(4), lowest_unanswered: Sequence(3) };
/// assert!(frame.lowest_unanswered <= frame.sequence);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameId {
    /// The session.
    pub session: SessionId,
    /// The frame's number.
    pub sequence: Sequence,
    /// The session still waits for answers from this frame on: all before it may be forgotten.
    pub lowest_unanswered: Sequence,
}

/// Commands that came together: those of one frame, or one that no session numbers.
///
/// ```
/// use quorate_core::{Command, Group};
/// let group = Group { frame: None, commands: vec![(0, Command::Tick)] };
/// assert_eq!(group.commands.len(), 1);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// The frame; none where there is no session, so that a retry would charge again.
    pub frame: Option<FrameId>,
    /// Each command with its place in the frame.
    pub commands: Vec<(u32, Command)>,
}

/// One log entry of a shard.
///
/// ```
/// use quorate_core::{Batch, Stamp};
/// let batch = Batch { stamp: Stamp(1), groups: vec![] };
/// assert!(batch.groups.is_empty());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// The leader's time.
    pub stamp: Stamp,
    /// What came.
    pub groups: Vec<Group>,
}

impl Batch {
    /// How many commands it carries.
    pub fn commands(&self) -> usize {
        self.groups.iter().map(|group| group.commands.len()).sum()
    }
}
