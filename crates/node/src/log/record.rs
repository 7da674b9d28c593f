//! The records of a segment: their bytes.
//!
//! ```text
//!  0  crc     u32   of all that follows, padding too, begun with the segment's number and the record's offset in it
//!  4  len     u32   of the payload
//!  8  synced  u32   all of this segment before that offset was durable before this record was written
//! 12  group   u32
//! 16  term    u64
//! 24  index   u64   (of a vote: the node)
//! 32  kind    u8    never 0
//! 33  flag    u8    (of an entry: what its payload is; of a vote: committed; of a truncation: an entry is left)
//! 34  zero    u16
//! 36  payload, padded with zeros to a multiple of 4
//! ```
//!
//! The checksum's beginning is why a record is valid in one place only: what an older file left in a recycled block is
//! never taken for a record. `synced` is what tells rot from a tear: see [`scan`](super::scan).
//! All numbers are little-endian. Kinds are permanent.

use quorate_core::{GroupId, Index, NodeId, Term};

use super::entry::{Ballot, EntryId, EntryKind};
use super::marks::Marks;

/// Bytes of a record before its payload.
pub(crate) const HEAD: usize = 36;
/// Every record begins at a multiple of this.
pub(crate) const ALIGN: usize = 4;

/// The number of a segment, from 1; one more for each that is begun. Never used twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentId(pub u32);

/// A record with its payload.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Record<'a> {
    /// An entry, appended or written again to free an old segment. Kind 1.
    Entry { id: EntryId, kind: EntryKind, payload: &'a [u8] },
    /// A vote. Kind 2.
    Vote(Ballot),
    /// All up to here is committed. Kind 3.
    Committed(EntryId),
    /// All up to here is no longer needed. Kind 4.
    Purged(EntryId),
    /// All after this entry is taken back; all there is, if none. Kind 5.
    Truncated(Option<EntryId>),
    /// What is known of the group where a segment begins, so that older segments may go. Kind 6.
    State(Box<Marks>),
    /// Nothing but its `synced`. Kind 7.
    Mark,
    /// The group keeps its vote and nothing else: its replica has left this node. Kind 8.
    Cleared,
}

/// A record as it was found.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Found<'a> {
    pub(crate) offset: u32,
    /// Its bytes, padding included.
    pub(crate) len: u32,
    pub(crate) synced: u32,
    pub(crate) group: GroupId,
    pub(crate) record: Record<'a>,
}

/// Bytes that a record with that payload takes.
pub(crate) fn record_len(payload: usize) -> usize {
    (HEAD + payload).next_multiple_of(ALIGN)
}

impl Record<'_> {
    /// Appends the record's bytes, which will stand at `offset` of that segment.
    pub(crate) fn encode(&self, group: GroupId, segment: SegmentId, offset: u32, synced: u32, into: &mut Vec<u8>) {
        let nothing = EntryId::new(0, 0);
        let state;
        let (kind, flag, id, payload): (u8, u8, EntryId, &[u8]) = match self {
            Record::Entry { id, kind, payload } => (1, *kind as u8, *id, payload),
            Record::Vote(ballot) => (2, ballot.committed.into(), EntryId::new(ballot.term.0, ballot.node.0), &[]),
            Record::Committed(id) => (3, 0, *id, &[]),
            Record::Purged(id) => (4, 0, *id, &[]),
            Record::Truncated(after) => (5, after.is_some().into(), after.unwrap_or(nothing), &[]),
            Record::State(marks) => {
                state = marks.encode();
                (6, 0, nothing, &state)
            }
            Record::Mark => (7, 0, nothing, &[]),
            Record::Cleared => (8, 0, nothing, &[]),
        };
        let start = into.len();
        into.extend_from_slice(&[0; 4]);
        into.extend_from_slice(&(payload.len() as u32).to_le_bytes());
        into.extend_from_slice(&synced.to_le_bytes());
        into.extend_from_slice(&group.0.to_le_bytes());
        into.extend_from_slice(&id.term.0.to_le_bytes());
        into.extend_from_slice(&id.index.0.to_le_bytes());
        into.extend_from_slice(&[kind, flag, 0, 0]);
        into.extend_from_slice(payload);
        into.resize(start + record_len(payload.len()), 0);
        let crc = checksum(segment, offset, &into[start + 4..]);
        into[start..start + 4].copy_from_slice(&crc.to_le_bytes());
    }
}

/// Reads the record that begins a slice and stands at `offset` of that segment.
///
/// # Errors
/// Why there is none.
pub(crate) fn decode(bytes: &[u8], segment: SegmentId, offset: u32) -> Result<Found<'_>, &'static str> {
    let head: &[u8; HEAD] = bytes.first_chunk().ok_or("the segment ends within a record")?;
    let payload_len = u32_at(head, 4) as usize;
    let [kind, flag, zeros @ ..] = [head[32], head[33], head[34], head[35]];
    if kind == 0 && payload_len == 0 {
        return Err("no record");
    }
    if !(1..=8).contains(&kind) || zeros != [0, 0] {
        return Err("no record, or one of a kind that is not known");
    }
    let len = record_len(payload_len);
    let whole = bytes.get(..len).ok_or("the segment ends within a record")?;
    if checksum(segment, offset, &whole[4..]) != u32_at(head, 0) {
        return Err("its checksum does not match");
    }
    let payload = &whole[HEAD..HEAD + payload_len];
    let id = EntryId { term: Term(u64_at(head, 16)), index: Index(u64_at(head, 24)) };
    let record = match kind {
        1 => Record::Entry { id, kind: EntryKind::from_number(flag).ok_or("an entry of an unknown kind")?, payload },
        2 => Record::Vote(Ballot { term: id.term, node: NodeId(id.index.0), committed: flag != 0 }),
        3 => Record::Committed(id),
        4 => Record::Purged(id),
        5 => Record::Truncated((flag != 0).then_some(id)),
        6 => Record::State(Box::new(Marks::decode(payload).ok_or("a group's state that cannot be read")?)),
        7 => Record::Mark,
        _ => Record::Cleared,
    };
    Ok(Found { offset, len: len as u32, synced: u32_at(head, 8), group: GroupId(u32_at(head, 12)), record })
}

fn checksum(segment: SegmentId, offset: u32, bytes: &[u8]) -> u32 {
    let mut place = [0; 8];
    place[..4].copy_from_slice(&segment.0.to_le_bytes());
    place[4..].copy_from_slice(&offset.to_le_bytes());
    let mut crc = crc32fast::Hasher::new();
    crc.update(&place);
    crc.update(bytes);
    crc.finalize()
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut four = [0; 4];
    four.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(four)
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut eight = [0; 8];
    eight.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(eight)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_comes_back() {
        let id = EntryId::new(3, 70);
        let marks = Marks { purged: Some(EntryId::new(1, 4)), first: Index(5), last: Some(id), ..Marks::default() };
        let records = [
            Record::Entry { id, kind: EntryKind::Proposal, payload: b"hello" },
            Record::Entry { id, kind: EntryKind::Blank, payload: b"" },
            Record::Entry { id, kind: EntryKind::Membership, payload: &[0; 9] },
            Record::Vote(Ballot { term: Term(9), node: NodeId(2), committed: true }),
            Record::Vote(Ballot { term: Term(9), node: NodeId(2), committed: false }),
            Record::Committed(id),
            Record::Purged(id),
            Record::Truncated(Some(id)),
            Record::Truncated(None),
            Record::State(Box::new(marks)),
            Record::Mark,
            Record::Cleared,
        ];
        for record in records {
            let mut bytes = vec![];
            record.encode(GroupId(8), SegmentId(2), 400, 44, &mut bytes);
            assert_eq!(bytes.len() % ALIGN, 0);
            let found = decode(&bytes, SegmentId(2), 400).unwrap();
            assert_eq!((found.group, found.synced, found.len as usize), (GroupId(8), 44, bytes.len()));
            assert_eq!(found.record, record);
            // In any other place it is no record.
            assert!(decode(&bytes, SegmentId(3), 400).is_err());
            assert!(decode(&bytes, SegmentId(2), 404).is_err());
            for bit in 0..bytes.len() * 8 {
                bytes[bit / 8] ^= 1 << (bit % 8);
                assert!(decode(&bytes, SegmentId(2), 400).is_err(), "bit {bit} of {record:?}");
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
            for len in 0..bytes.len() {
                assert!(decode(&bytes[..len], SegmentId(2), 400).is_err());
            }
        }
    }
}
