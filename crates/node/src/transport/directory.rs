//! Which node is where: kept up from the control group's state, read by every link.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use quorate_core::NodeId;

/// The nodes' addresses, `host:port`. Cheap to clone; all clones see the same.
#[derive(Clone, Debug, Default)]
pub struct Directory(Arc<RwLock<BTreeMap<NodeId, String>>>);

impl Directory {
    /// The address of a node, if it is known.
    pub fn address(&self, node: NodeId) -> Option<String> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(&node).cloned()
    }

    /// All nodes but that one.
    pub fn others(&self, than: NodeId) -> Vec<NodeId> {
        let nodes = self.0.read().unwrap_or_else(PoisonError::into_inner);
        nodes.keys().copied().filter(|node| *node != than).collect()
    }

    /// Replaces everything that is known.
    pub fn set(&self, nodes: impl IntoIterator<Item = (NodeId, String)>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = nodes.into_iter().collect();
    }
}
