//! The names of things: nodes, shards, policies, sessions, places in a log.
//!
//! Each is a newtype, so that a term is never taken for an index. Numbers on the wire and on disk are permanent:
//! a node id, a policy id and a session id are never used twice.

use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($int:ty), $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $int);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }
    };
}

id!(
    /// A node of the cluster; from 1. Never used twice.
    ///
    /// ```
    /// assert_eq!(quorate_core::NodeId(3).to_string(), "n3");
    /// ```
    NodeId(u64), "n"
);
id!(
    /// A Raft group of a node: 0 is the control group, every other number is the shard of that number.
    ///
    /// ```
    /// use quorate_core::{GroupId, ShardId};
    /// assert_eq!(GroupId::CONTROL.shard(), None);
    /// assert_eq!(GroupId::from(ShardId(4)).shard(), Some(ShardId(4)));
    /// ```
    GroupId(u32), "g"
);
id!(
    /// A shard: one arc of the ring, one Raft group; from 1.
    ///
    /// ```
    /// assert_eq!(quorate_core::ShardId(7).to_string(), "s7");
    /// ```
    ShardId(u32), "s"
);
id!(
    /// A policy, for as long as the cluster lives; from 1. A policy that is taken away and written again gets another.
    ///
    /// ```
    /// assert_eq!(quorate_core::PolicyId(1).to_string(), "p1");
    /// ```
    PolicyId(u32), "p"
);
id!(
    /// The number of a policy set: all policies together. 0 is the empty set that a shard is born with.
    ///
    /// ```
    /// assert!(quorate_core::PolicyVersion(2) > quorate_core::PolicyVersion(1));
    /// ```
    PolicyVersion(u64), "v"
);
id!(
    /// The number of a topology: who holds which arc.
    ///
    /// ```
    /// assert_eq!(quorate_core::Epoch(9).to_string(), "e9");
    /// ```
    Epoch(u64), "e"
);
id!(
    /// A Raft term.
    ///
    /// ```
    /// assert_eq!(quorate_core::Term(5).to_string(), "t5");
    /// ```
    Term(u64), "t"
);
id!(
    /// The place of an entry in a group's log.
    ///
    /// ```
    /// assert_eq!(quorate_core::Index(12).to_string(), "i12");
    /// ```
    Index(u64), "i"
);
id!(
    /// A session on one shard, numbered by that shard; from 1. Never used twice on that shard.
    ///
    /// ```
    /// assert_eq!(quorate_core::SessionId(1).to_string(), "c1");
    /// ```
    SessionId(u64), "c"
);
id!(
    /// The number of a frame within its session; from 1.
    ///
    /// ```
    /// assert_eq!(quorate_core::Sequence(2).to_string(), "f2");
    /// ```
    Sequence(u64), "f"
);

impl GroupId {
    /// The control group.
    pub const CONTROL: GroupId = GroupId(0);

    /// The shard whose group this is; none for the control group.
    pub fn shard(self) -> Option<ShardId> {
        (self != Self::CONTROL).then_some(ShardId(self.0))
    }
}

impl From<u64> for NodeId {
    fn from(id: u64) -> Self {
        NodeId(id)
    }
}

impl From<ShardId> for GroupId {
    fn from(shard: ShardId) -> Self {
        GroupId(shard.0)
    }
}

/// Where a command stands in its shard's log: the entry, and the command's ordinal in that entry's batch.
/// Ordered as the shard applied them.
///
/// ```
/// use quorate_core::{Index, Position};
/// assert!(Position { index: Index(4), place: 1 } < Position { index: Index(5), place: 0 });
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// The entry of the log.
    pub index: Index,
    /// The command's ordinal in the entry, from 0.
    pub place: u32,
}
