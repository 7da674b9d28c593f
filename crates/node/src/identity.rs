//! Whose a data directory is: one node of one cluster, for good.

use std::fmt;

use quorate_core::NodeId;

/// A cluster's number: drawn once, when it is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterId(pub u128);

impl ClusterId {
    /// Reads what its text says; none if that is none.
    pub fn parse(text: &str) -> Option<ClusterId> {
        (text.len() == 32).then(|| u128::from_str_radix(text, 16).ok().map(ClusterId)).flatten()
    }
}

/// A node of a cluster. Every file of its data directory names it, and a file of another is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The cluster.
    pub cluster: ClusterId,
    /// The node. Its id is never used twice in its cluster.
    pub node: NodeId,
}

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {} of cluster {}", self.node.0, self.cluster)
    }
}
