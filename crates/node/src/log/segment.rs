//! A segment: one file of the log, preallocated, named by its number, beginning with a head that says whose it is.
//!
//! ```text
//!  0  magic         "QUORWAL\n"
//!  8  version       u32
//! 12  base          u32   where what is appended begins; before it, the state of every group
//! 16  cluster       u128
//! 32  node          u64
//! 40  segment       u64
//! 48  previous_end  u32   where the segment before this one ended; 0 in the first
//! 52  size          u32   bytes that were prepared: a file that is shorter was cut
//! 56  zero          u32
//! 60  crc           u32   of the 60 bytes before it
//! 64  records
//! ```
//!
//! Head and state are synced before the file gets its name, and only when all of the segment before is synced: so a
//! segment that has a name vouches for its own beginning, and for all of the one before.

use quorate_core::{GroupId, NodeId};

use super::error::LogError;
use super::marks::Marks;
use super::record::{Record, SegmentId, u32_at, u64_at};
use crate::identity::{ClusterId, Identity};

/// The directory of the segments.
pub(crate) const DIR: &str = "log";
/// A segment that is being prepared.
pub(crate) const SPARE: &str = "log/spare";
/// The newest format this version reads, and the one it writes.
pub(crate) const VERSION: u32 = 1;
/// Bytes of a head.
pub(crate) const HEAD: usize = 64;

const MAGIC: &[u8; 8] = b"QUORWAL\n";
const SUFFIX: &str = ".wal";

/// What a segment's head says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) identity: Identity,
    pub(crate) segment: SegmentId,
    pub(crate) base: u32,
    pub(crate) previous_end: u32,
    /// The least length of the file.
    pub(crate) size: u32,
}

impl SegmentId {
    /// The segment's file, relative to the data directory.
    pub fn path(self) -> String {
        format!("{DIR}/{}", self.name())
    }

    pub(crate) fn name(self) -> String {
        format!("{:08x}{SUFFIX}", self.0)
    }

    /// The segment of that file name, if it is one.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        let number = u32::from_str_radix(name.strip_suffix(SUFFIX)?, 16).ok()?;
        Some(SegmentId(number)).filter(|segment| segment.name() == name && number > 0)
    }

    pub(crate) fn next(self) -> SegmentId {
        SegmentId(self.0 + 1)
    }
}

/// The beginning of a new segment: head and the state of every group. Its length is the segment's base.
pub(crate) fn beginning<'a>(
    identity: Identity,
    segment: SegmentId,
    size: u32,
    previous_end: u32,
    groups: impl Iterator<Item = (GroupId, &'a Marks)>,
) -> Vec<u8> {
    let mut bytes = vec![0; HEAD];
    for (group, marks) in groups {
        let offset = bytes.len() as u32;
        Record::State(Box::new(*marks)).encode(group, segment, offset, offset, &mut bytes);
    }
    let head = Head { identity, segment, base: bytes.len() as u32, previous_end, size };
    bytes[..HEAD].copy_from_slice(&head.encode());
    bytes
}

impl Head {
    fn encode(&self) -> [u8; HEAD] {
        let mut bytes = [0; HEAD];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.base.to_le_bytes());
        bytes[16..32].copy_from_slice(&self.identity.cluster.0.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.identity.node.0.to_le_bytes());
        bytes[40..48].copy_from_slice(&u64::from(self.segment.0).to_le_bytes());
        bytes[48..52].copy_from_slice(&self.previous_end.to_le_bytes());
        bytes[52..56].copy_from_slice(&self.size.to_le_bytes());
        let crc = crc32fast::hash(&bytes[..60]);
        bytes[60..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Reads the head of a file that is named as `segment`. `expected` is who may open it; anyone's will do if none.
    pub(crate) fn decode(bytes: &[u8], segment: SegmentId, expected: Option<Identity>) -> Result<Self, LogError> {
        let rotten = |why: &str| LogError::Rotten { file: segment.path(), offset: 0, why: why.to_string() };
        let head: &[u8; HEAD] = bytes.first_chunk().ok_or_else(|| rotten("it is shorter than its head"))?;
        if &head[..8] != MAGIC {
            return Err(rotten("it does not begin as a segment of the log does"));
        }
        let version = u32_at(head, 8);
        if version > VERSION {
            return Err(LogError::Newer { file: segment.path(), found: version, known: VERSION });
        }
        if crc32fast::hash(&head[..60]) != u32_at(head, 60) {
            return Err(rotten("the checksum of its head does not match"));
        }
        let mut cluster = [0; 16];
        cluster.copy_from_slice(&head[16..32]);
        let cluster = ClusterId(u128::from_le_bytes(cluster));
        let identity = Identity { cluster, node: NodeId(u64_at(head, 32)) };
        if let Some(expected) = expected.filter(|expected| *expected != identity) {
            return Err(LogError::Foreign { file: segment.path(), found: identity, expected });
        }
        if u64_at(head, 40) != u64::from(segment.0) {
            return Err(rotten("its head is that of another segment"));
        }
        let (base, previous_end, size) = (u32_at(head, 12), u32_at(head, 48), u32_at(head, 52));
        Ok(Head { identity, segment, base, previous_end, size })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_numbers() {
        assert_eq!(SegmentId(0x1f).path(), "log/0000001f.wal");
        assert_eq!(SegmentId::from_name("0000001f.wal"), Some(SegmentId(0x1f)));
        for other in ["1f.wal", "0000001F.wal", "spare", "00000000.wal", "0000001f.wal.old"] {
            assert_eq!(SegmentId::from_name(other), None);
        }
    }

    #[test]
    fn a_head_says_whose_it_is() {
        let identity = Identity { cluster: ClusterId(7 << 90), node: NodeId(3) };
        let marks = Marks::default();
        let bytes = beginning(identity, SegmentId(9), 4096, 1234, [(GroupId(1), &marks)].into_iter());
        let head = Head::decode(&bytes, SegmentId(9), Some(identity)).unwrap();
        assert_eq!(
            head,
            Head { identity, segment: SegmentId(9), base: bytes.len() as u32, previous_end: 1234, size: 4096 }
        );
        assert!(matches!(Head::decode(&bytes, SegmentId(8), Some(identity)), Err(LogError::Rotten { .. })));
        let other = Identity { node: NodeId(4), ..identity };
        let foreign = Head::decode(&bytes, SegmentId(9), Some(other)).unwrap_err();
        assert!(foreign.to_string().contains("belongs to node 3 of cluster"), "{foreign}");
        let mut newer = bytes.clone();
        newer[8] = 2;
        let refused = Head::decode(&newer, SegmentId(9), Some(identity)).unwrap_err();
        assert!(refused.to_string().contains("format 2"), "{refused}");
        for bit in 0..HEAD * 8 {
            let mut bytes = bytes.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(Head::decode(&bytes, SegmentId(9), Some(identity)).is_err(), "bit {bit}");
        }
    }
}
