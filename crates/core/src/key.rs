//! From key text to fingerprint.
//!
//! State and log know a key by two keyed hashes of 64 bits, never by its text. The *ring* hash is over the key's route under
//! a secret that clients know too, and says which shard holds the key. The *table* hash is over policy id and key under a
//! secret that nodes alone know, so that nobody outside can craft keys that collide. Both functions are SipHash-1-3 and
//! permanent: another function, or another order of the bytes, would put every key elsewhere.

use std::fmt;
use std::hash::Hasher;

use siphasher::sip::SipHasher13;

use crate::ids::PolicyId;

/// What the table and the log know of a (policy, key): two keyed hashes of 64 bits.
///
/// ```
/// use quorate_core::{Fingerprint, PolicyId, RingSecret, TableSecret};
/// let (ring, table) = (RingSecret([1; 16]), TableSecret([2; 16]));
/// let alice = Fingerprint::new(&ring, &table, PolicyId(1), b"{acme}alice");
/// let bob = Fingerprint::new(&ring, &table, PolicyId(1), b"{acme}bob");
/// assert_eq!(alice.ring, bob.ring); // the same route, so the same shard
/// assert_ne!(alice.table, bob.table);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint {
    /// The hash of (policy id, key) under the table secret. Orders and places the key in the table.
    pub table: u64,
    /// The hash of the key's route under the ring secret. Places the key on the ring.
    pub ring: u64,
}

impl Fingerprint {
    /// The fingerprint of a key under a policy.
    pub fn new(ring: &RingSecret, table: &TableSecret, policy: PolicyId, key: &[u8]) -> Self {
        Fingerprint { table: table.hash(policy, key), ring: ring.hash(key) }
    }
}

/// The part of a key that places it on the ring: what stands inside the first `{…}` if that is not empty, else the whole key.
///
/// ```
/// use quorate_core::key::route;
/// assert_eq!(route(b"user:{acme}:1"), b"acme");
/// assert_eq!(route(b"user:{}:1"), b"user:{}:1");
/// assert_eq!(route(b"user:1"), b"user:1");
/// ```
pub fn route(key: &[u8]) -> &[u8] {
    let Some(open) = key.iter().position(|&byte| byte == b'{') else { return key };
    let inside = &key[open + 1..];
    match inside.iter().position(|&byte| byte == b'}') {
        None | Some(0) => key,
        Some(close) => &inside[..close],
    }
}

/// The secret under which routes are placed on the ring; drawn when the cluster is made, shared with its clients.
///
/// ```
/// use quorate_core::RingSecret;
/// let secret = RingSecret([7; 16]);
/// assert_eq!(secret.hash(b"{acme}1"), secret.hash(b"{acme}2"));
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct RingSecret(pub [u8; 16]);

impl RingSecret {
    /// Where the key's route falls on the ring.
    pub fn hash(&self, key: &[u8]) -> u64 {
        let mut hasher = SipHasher13::new_with_key(&self.0);
        hasher.write(route(key));
        hasher.finish()
    }
}

/// The secret under which keys are placed in a shard's table; drawn when the cluster is made, known to its nodes alone.
///
/// ```
/// use quorate_core::{PolicyId, TableSecret};
/// let secret = TableSecret([7; 16]);
/// assert_ne!(secret.hash(PolicyId(1), b"alice"), secret.hash(PolicyId(2), b"alice"));
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TableSecret(pub [u8; 16]);

impl TableSecret {
    /// The table hash of a key under a policy.
    pub fn hash(&self, policy: PolicyId, key: &[u8]) -> u64 {
        let mut hasher = SipHasher13::new_with_key(&self.0);
        hasher.write(&policy.0.to_le_bytes());
        hasher.write(key);
        hasher.finish()
    }
}

impl fmt::Debug for RingSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RingSecret(…)")
    }
}

impl fmt::Debug for TableSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TableSecret(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_follow_the_redis_cluster_rule() {
        for (key, expected) in [
            ("", ""),
            ("{}", "{}"),
            ("{a}", "a"),
            ("x{a}y{b}", "a"),
            ("{}{a}", "{}{a}"),
            ("{{a}}", "{a"),
            ("a}b{c}", "c"),
            ("a{b", "a{b"),
        ] {
            assert_eq!(route(key.as_bytes()), expected.as_bytes(), "{key}");
        }
    }

    #[test]
    fn hashes_are_permanent() {
        let key = std::array::from_fn(|i| i as u8);
        let print = Fingerprint::new(&RingSecret(key), &TableSecret(key), PolicyId(1), b"alice");
        assert_eq!(format!("{:016x} {:016x}", print.table, print.ring), "880c2cff8ddec1a2 cbfb4a035000f64a");
    }

    #[test]
    fn secrets_do_not_print() {
        assert_eq!(format!("{:?} {:?}", RingSecret([1; 16]), TableSecret([1; 16])), "RingSecret(…) TableSecret(…)");
    }
}
