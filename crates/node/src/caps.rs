//! Every maximum of a node, in one place, with the relations between them asserted.

/// Bytes of a part of the control state; sled never syncs values much larger.
pub const CONTROL_PART: usize = 60 << 10;
/// Bytes that sled caches.
pub const CONTROL_CACHE: u64 = 8 << 20;
/// Changes of the policies that are kept for the history.
pub const POLICY_HISTORY: usize = 100;

const _: () = assert!(CONTROL_PART < 64 << 10);
