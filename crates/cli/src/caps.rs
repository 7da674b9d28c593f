//! Every maximum of the tool, in one place. What a cluster bounds is in [`quorate_core::caps`].

/// Bytes of a policy file: the largest set of policies, generously written, is far below.
pub(crate) const POLICY_FILE_BYTES: u64 = 16 << 20;
/// Bytes of one line of a trace: the largest check that can be asked is far below.
pub(crate) const TRACE_LINE_BYTES: u64 = 1 << 20;
