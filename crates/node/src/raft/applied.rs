//! What applying an entry answers, to whoever proposed it on this node.

use crate::control::ControlAnswer;

/// The answer to a proposal. Followers, and entries that carry none, build [`Applied::None`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Applied {
    /// No answer: a blank entry, a membership, or nobody asked.
    #[default]
    None,
    /// A shard's.
    Shard(quorate_core::Applied),
    /// The control group's.
    Control(ControlAnswer),
}
