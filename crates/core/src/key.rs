//! From key text to fingerprint.

/// What the table and the log know of a (policy, key): two keyed hashes of 64 bits.
///
/// ```
/// use quorate_core::Fingerprint;
/// assert_eq!(Fingerprint { ring: 1, table: 2 }.ring, 1);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint {
    /// The hash of (policy id, key) under the table secret. Orders and places the key in the table.
    pub table: u64,
    /// The hash of the key's route under the ring secret. Places the key on the ring.
    pub ring: u64,
}
