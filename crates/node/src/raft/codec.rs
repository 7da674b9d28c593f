//! Our encodings of openraft's types, for log, snapshots and wire. openraft's own serde is not used: its types may change,
//! these bytes may not.
//!
//! A membership begins with its version. All numbers are little-endian, of fixed width.

use std::collections::BTreeSet;

use bytes::Bytes;
use openraft::EmptyNode;
use quorate_core::NodeId;

use super::types::{
    Entry, LeaderId, LogId, Membership, Payload, Proposal, SnapshotMeta, StoredMembership, Vote, log_id,
};
use crate::log;

const MEMBERSHIP_VERSION: u8 = 1;

/// Bytes that are not what they should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot decode {0}: damaged, or written by a newer version of quorated")]
pub struct CodecError(pub &'static str);

/// Takes encoded values off the front of bytes.
#[derive(Debug)]
pub struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*head)
    }

    /// A byte.
    pub fn u8(&mut self) -> Option<u8> {
        self.take().map(|[byte]| byte)
    }

    /// A 32-bit number.
    pub fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    /// A 64-bit number.
    pub fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    /// A log id that may be none.
    pub fn log_id(&mut self) -> Option<Option<LogId>> {
        match self.u8()? {
            0 => Some(None),
            1 => Some(Some(log_id(self.u64()?, self.u64()?))),
            _ => None,
        }
    }

    /// A vote.
    pub fn vote(&mut self) -> Option<Vote> {
        let leader_id = LeaderId { term: self.u64()?, voted_for: NodeId(self.u64()?) };
        Some(Vote { leader_id, committed: self.u8()? != 0 })
    }

    /// A membership.
    pub fn membership(&mut self) -> Option<Membership> {
        if self.u8()? != MEMBERSHIP_VERSION {
            return None;
        }
        let mut configs = Vec::new();
        for _ in 0..self.u32()? {
            configs.push(self.nodes()?);
        }
        let nodes = self.nodes()?;
        let nodes: std::collections::BTreeMap<_, _> = nodes.into_iter().map(|node| (node, EmptyNode {})).collect();
        Membership::new(configs, nodes).ok()
    }

    fn nodes(&mut self) -> Option<BTreeSet<NodeId>> {
        let count = self.u32()?;
        (0..count).map(|_| self.u64().map(NodeId)).collect()
    }

    /// A membership and the entry that set it.
    pub fn stored_membership(&mut self) -> Option<StoredMembership> {
        Some(StoredMembership::new(self.log_id()?, self.membership()?))
    }

    /// What a snapshot covers.
    pub fn snapshot_meta(&mut self) -> Option<SnapshotMeta> {
        Some(SnapshotMeta { last_log_id: self.log_id()?, last_membership: self.stored_membership()? })
    }
}

/// Appends a log id that may be none.
pub fn put_log_id(id: Option<LogId>, into: &mut Vec<u8>) {
    into.push(id.is_some().into());
    if let Some(id) = id {
        into.extend_from_slice(&id.leader_id.term.to_le_bytes());
        into.extend_from_slice(&id.index.to_le_bytes());
    }
}

/// Appends a vote.
pub fn put_vote(vote: &Vote, into: &mut Vec<u8>) {
    into.extend_from_slice(&vote.leader_id.term.to_le_bytes());
    into.extend_from_slice(&vote.leader_id.voted_for.0.to_le_bytes());
    into.push(vote.committed.into());
}

/// Appends a membership.
pub fn put_membership(membership: &Membership, into: &mut Vec<u8>) {
    into.push(MEMBERSHIP_VERSION);
    let configs = membership.get_joint_config();
    into.extend_from_slice(&(configs.len() as u32).to_le_bytes());
    for config in configs {
        put_nodes(config.iter(), config.len(), into);
    }
    put_nodes(membership.nodes().map(|(node, _)| node), membership.nodes().count(), into);
}

fn put_nodes<'a>(nodes: impl Iterator<Item = &'a NodeId>, count: usize, into: &mut Vec<u8>) {
    into.extend_from_slice(&(count as u32).to_le_bytes());
    nodes.for_each(|node| into.extend_from_slice(&node.0.to_le_bytes()));
}

/// Appends a membership and the entry that set it.
pub fn put_stored_membership(stored: &StoredMembership, into: &mut Vec<u8>) {
    put_log_id(*stored.log_id(), into);
    put_membership(stored.membership(), into);
}

/// Appends what a snapshot covers.
pub fn put_snapshot_meta(meta: &SnapshotMeta, into: &mut Vec<u8>) {
    put_log_id(meta.last_log_id, into);
    put_stored_membership(&meta.last_membership, into);
}

/// An entry as the log keeps it.
pub fn to_log(entry: Entry) -> log::Entry {
    let (kind, payload) = match entry.payload {
        Payload::Blank => (log::EntryKind::Blank, Bytes::new()),
        Payload::Normal(Proposal(bytes)) => (log::EntryKind::Proposal, bytes),
        Payload::Membership(membership) => {
            let mut bytes = Vec::new();
            put_membership(&membership, &mut bytes);
            (log::EntryKind::Membership, bytes.into())
        }
    };
    log::Entry { id: to_entry_id(entry.log_id), kind, payload }
}

/// An entry as openraft wants it.
///
/// # Errors
/// A membership that cannot be read.
pub fn from_log(entry: log::Entry) -> Result<Entry, CodecError> {
    let payload = match entry.kind {
        log::EntryKind::Blank => Payload::Blank,
        log::EntryKind::Proposal => Payload::Normal(Proposal(entry.payload)),
        log::EntryKind::Membership => {
            Payload::Membership(Reader(&entry.payload).membership().ok_or(CodecError("a membership"))?)
        }
    };
    Ok(Entry { log_id: from_entry_id(entry.id), payload })
}

/// A log id as the log keeps it.
pub fn to_entry_id(id: LogId) -> log::EntryId {
    log::EntryId::new(id.leader_id.term, id.index)
}

/// A log id as openraft wants it.
pub fn from_entry_id(id: log::EntryId) -> LogId {
    log_id(id.term.0, id.index.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_comes_back() {
        let ids = |ids: &[u64]| ids.iter().map(|id| NodeId(*id)).collect::<BTreeSet<_>>();
        let memberships = [
            Membership::default(),
            Membership::new_with_defaults(vec![ids(&[1, 2, 3])], []),
            Membership::new_with_defaults(vec![ids(&[1, 2, 3]), ids(&[3, 4, 5])], ids(&[9])),
        ];
        for membership in memberships {
            for id in [None, Some(log_id(3, 70))] {
                let meta =
                    SnapshotMeta { last_log_id: id, last_membership: StoredMembership::new(id, membership.clone()) };
                let mut bytes = Vec::new();
                put_snapshot_meta(&meta, &mut bytes);
                let mut reader = Reader(&bytes);
                assert_eq!(reader.snapshot_meta(), Some(meta));
                assert!(reader.0.is_empty());
                (0..bytes.len()).for_each(|len| assert_eq!(Reader(&bytes[..len]).snapshot_meta(), None));
            }
            let entry = Entry { log_id: log_id(1, 2), payload: Payload::Membership(membership) };
            assert_eq!(from_log(to_log(entry.clone())), Ok(entry));
        }
        let vote = Vote { leader_id: LeaderId { term: 4, voted_for: NodeId(2) }, committed: true };
        let mut bytes = Vec::new();
        put_vote(&vote, &mut bytes);
        assert_eq!(Reader(&bytes).vote(), Some(vote));
    }

    #[test]
    fn a_newer_membership_is_not_guessed_at() {
        let mut bytes = Vec::new();
        put_membership(&Membership::default(), &mut bytes);
        bytes[0] += 1;
        assert_eq!(Reader(&bytes).membership(), None);
    }
}
