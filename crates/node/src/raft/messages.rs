//! What Raft says to other nodes, in bytes: version 1.
//!
//! Integers are little-endian; an optional value has a byte before it that is 0 or 1. Whoever reads checks every length
//! against what is there. Nodes of one cluster may differ by one release, so the version comes first.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, TransferLeaderRequest, VoteRequest, VoteResponse,
};
use quorate_core::NodeId;

use super::codec;
use super::types::{Entry, LogId, Membership, Payload, Proposal, SnapshotMeta, TypeConfig, Vote, log_id};

const VERSION: u8 = 1;

/// Bytes that are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// Another release wrote it.
    #[error(
        "a message of version {0}, and this program speaks {VERSION}: run the same release on all nodes, or one apart"
    )]
    Version(u8),
    /// It ends early, or holds what cannot be.
    #[error("a message that cannot be read: {0}")]
    Malformed(&'static str),
}

type Read<T> = Result<T, MessageError>;

/// Something that goes over the wire between nodes.
pub trait Message: Sized {
    /// Adds it to the bytes.
    fn put(&self, out: &mut BytesMut);
    /// Takes it off the bytes.
    fn read(from: &mut Bytes) -> Read<Self>;

    /// As a message.
    fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        out.put_u8(VERSION);
        self.put(&mut out);
        out.freeze()
    }

    /// Reads a message; what follows it is left for a later release to mean something.
    fn decode(mut bytes: Bytes) -> Read<Self> {
        match u8::read(&mut bytes)? {
            VERSION => Self::read(&mut bytes),
            other => Err(MessageError::Version(other)),
        }
    }
}

impl Message for u8 {
    fn put(&self, out: &mut BytesMut) {
        out.put_u8(*self);
    }

    fn read(from: &mut Bytes) -> Read<Self> {
        from.try_get_u8().map_err(|_| MessageError::Malformed("it ends early"))
    }
}

impl Message for u64 {
    fn put(&self, out: &mut BytesMut) {
        out.put_u64_le(*self);
    }

    fn read(from: &mut Bytes) -> Read<Self> {
        from.try_get_u64_le().map_err(|_| MessageError::Malformed("it ends early"))
    }
}

impl Message for bool {
    fn put(&self, out: &mut BytesMut) {
        out.put_u8(u8::from(*self));
    }

    fn read(from: &mut Bytes) -> Read<Self> {
        match u8::read(from)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(MessageError::Malformed("a flag that is neither 0 nor 1")),
        }
    }
}

impl Message for Bytes {
    fn put(&self, out: &mut BytesMut) {
        out.put_u64_le(self.len() as u64);
        out.put_slice(self);
    }

    fn read(from: &mut Bytes) -> Read<Self> {
        let length = u64::read(from)?;
        if length > from.len() as u64 {
            return Err(MessageError::Malformed("a length beyond its end"));
        }
        Ok(from.split_to(length as usize))
    }
}

impl<T: Message> Message for Option<T> {
    fn put(&self, out: &mut BytesMut) {
        self.is_some().put(out);
        if let Some(value) = self {
            value.put(out);
        }
    }

    fn read(from: &mut Bytes) -> Read<Self> {
        if bool::read(from)? { T::read(from).map(Some) } else { Ok(None) }
    }
}

impl<T: Message> Message for Vec<T> {
    fn put(&self, out: &mut BytesMut) {
        out.put_u64_le(self.len() as u64);
        self.iter().for_each(|item| item.put(out));
    }

    fn read(from: &mut Bytes) -> Read<Self> {
        let count = u64::read(from)?;
        // Every item is at least a byte: more of them than bytes cannot be.
        if count > from.len() as u64 {
            return Err(MessageError::Malformed("more items than bytes"));
        }
        (0..count).map(|_| T::read(from)).collect()
    }
}

impl Message for NodeId {
    fn put(&self, out: &mut BytesMut) {
        self.0.put(out);
    }

    fn read(from: &mut Bytes) -> Read<Self> {
        u64::read(from).map(NodeId)
    }
}

impl Message for LogId {
    fn put(&self, out: &mut BytesMut) {
        out.put_u64_le(self.committed_leader_id().term);
        out.put_u64_le(self.index());
    }

    fn read(from: &mut Bytes) -> Read<Self> {
        Ok(log_id(u64::read(from)?, u64::read(from)?))
    }
}

impl Message for Vote {
    fn put(&self, out: &mut BytesMut) {
        self.leader_id().term.put(out);
        self.leader_id().voted_for.put(out);
        self.is_committed().put(out);
    }

    fn read(from: &mut Bytes) -> Read<Self> {
        let (term, node) = (u64::read(from)?, NodeId::read(from)?);
        Ok(if bool::read(from)? { Vote::new_committed(term, node) } else { Vote::new(term, node) })
    }
}

/// A value in the encoding that log and snapshots share, with its length before it.
fn put_coded(out: &mut BytesMut, put: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = Vec::new();
    put(&mut bytes);
    Bytes::from(bytes).put(out);
}

impl Message for Membership {
    fn put(&self, out: &mut BytesMut) {
        put_coded(out, |bytes| codec::put_membership(self, bytes));
    }

    fn read(from: &mut Bytes) -> Read<Self> {
        codec::Reader(&Bytes::read(from)?).membership().ok_or(MessageError::Malformed("a membership that cannot be"))
    }
}

impl Message for SnapshotMeta {
    fn put(&self, out: &mut BytesMut) {
        put_coded(out, |bytes| codec::put_snapshot_meta(self, bytes));
    }

    fn read(from: &mut Bytes) -> Read<Self> {
        codec::Reader(&Bytes::read(from)?)
            .snapshot_meta()
            .ok_or(MessageError::Malformed("a snapshot's meta that cannot be"))
    }
}

impl Message for Entry {
    fn put(&self, out: &mut BytesMut) {
        self.log_id.put(out);
        match &self.payload {
            Payload::Blank => 0u8.put(out),
            Payload::Normal(proposal) => {
                1u8.put(out);
                proposal.0.put(out);
            }
            Payload::Membership(membership) => {
                2u8.put(out);
                membership.put(out);
            }
        }
    }

    fn read(from: &mut Bytes) -> Read<Self> {
        let log_id = LogId::read(from)?;
        let payload = match u8::read(from)? {
            0 => Payload::Blank,
            1 => Payload::Normal(Proposal(Bytes::read(from)?)),
            2 => Payload::Membership(Membership::read(from)?),
            _ => return Err(MessageError::Malformed("an entry of an unknown kind")),
        };
        Ok(Entry { log_id, payload })
    }
}

impl Message for AppendEntriesRequest<TypeConfig> {
    fn put(&self, out: &mut BytesMut) {
        self.vote.put(out);
        self.prev_log_id.put(out);
        self.leader_commit.put(out);
        self.entries.put(out);
    }

    fn read(from: &mut Bytes) -> Read<Self> {
        let (vote, prev_log_id) = (Vote::read(from)?, Option::read(from)?);
        let (leader_commit, entries) = (Option::read(from)?, Vec::read(from)?);
        Ok(AppendEntriesRequest { vote, prev_log_id, entries, leader_commit })
    }
}

impl Message for AppendEntriesResponse<TypeConfig> {
    fn put(&self, out: &mut BytesMut) {
        match self {
            AppendEntriesResponse::Success => 0u8.put(out),
            AppendEntriesResponse::PartialSuccess(upto) => {
                1u8.put(out);
                upto.put(out);
            }
            AppendEntriesResponse::Conflict => 2u8.put(out),
            AppendEntriesResponse::HigherVote(vote) => {
                3u8.put(out);
                vote.put(out);
            }
        }
    }

    fn read(from: &mut Bytes) -> Read<Self> {
        match u8::read(from)? {
            0 => Ok(AppendEntriesResponse::Success),
            1 => Ok(AppendEntriesResponse::PartialSuccess(Option::read(from)?)),
            2 => Ok(AppendEntriesResponse::Conflict),
            3 => Ok(AppendEntriesResponse::HigherVote(Vote::read(from)?)),
            _ => Err(MessageError::Malformed("an unknown answer to an append")),
        }
    }
}

impl Message for VoteRequest<TypeConfig> {
    fn put(&self, out: &mut BytesMut) {
        self.vote.put(out);
        self.last_log_id.put(out);
        self.leadership_transfer.put(out);
    }

    fn read(from: &mut Bytes) -> Read<Self> {
        let (vote, last_log_id) = (Vote::read(from)?, Option::read(from)?);
        Ok(VoteRequest { vote, last_log_id, leadership_transfer: bool::read(from)? })
    }
}

impl Message for VoteResponse<TypeConfig> {
    fn put(&self, out: &mut BytesMut) {
        self.vote.put(out);
        self.last_log_id.put(out);
        self.vote_granted.put(out);
    }

    fn read(from: &mut Bytes) -> Read<Self> {
        let (vote, last_log_id) = (Vote::read(from)?, Option::read(from)?);
        Ok(VoteResponse { vote, last_log_id, vote_granted: bool::read(from)? })
    }
}

impl Message for TransferLeaderRequest<TypeConfig> {
    fn put(&self, out: &mut BytesMut) {
        self.from_leader().put(out);
        self.to_node_id().put(out);
        self.last_log_id().copied().put(out);
    }

    fn read(from: &mut Bytes) -> Read<Self> {
        let (vote, to) = (Vote::read(from)?, NodeId::read(from)?);
        Ok(TransferLeaderRequest::new(vote, to, Option::read(from)?))
    }
}

impl Message for SnapshotResponse<TypeConfig> {
    fn put(&self, out: &mut BytesMut) {
        self.vote.put(out);
    }

    fn read(from: &mut Bytes) -> Read<Self> {
        Ok(SnapshotResponse::new(Vote::read(from)?))
    }
}
