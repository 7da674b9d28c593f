//! The file `member` of a data directory: which node of which cluster it belongs to, for good.
//!
//! ```text
//!  written aside as  member.new ─► synced ─► renamed to member ─► directory synced
//!  file:   magic, version, length, checksum │ the record
//! ```

use std::io;

use prost::Message;
use quorate_core::NodeId;
use quorate_proto::v1;

use crate::caps;
use crate::disk::{Disk, Files};
use crate::identity::{ClusterId, Identity};

const NAME: &str = "member";
const ASIDE: &str = "member.new";
const MAGIC: &[u8; 8] = b"QRMEMBER";
const VERSION: u32 = 1;
const HEAD: usize = 20;

/// What a node was told when it became a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// Which node it is.
    pub(super) identity: Identity,
    /// The cluster's name, for people.
    pub(super) cluster_name: String,
    /// The addresses of the cluster's first members; their ids go from 1 in this order.
    pub(super) members: Vec<String>,
    /// Whether the node's log was begun; from then on it must be there.
    pub(super) began: bool,
}

impl Record {
    /// The first members with their ids.
    pub(super) fn numbered(&self) -> impl Iterator<Item = (NodeId, &String)> {
        (1..).map(NodeId).zip(&self.members)
    }

    /// Reads the record of a data directory; none where it belongs to nobody yet.
    ///
    /// # Errors
    ///
    /// The disk failed, or the record is damaged.
    pub(super) async fn load(disk: &Disk) -> io::Result<Option<Record>> {
        let bytes = disk.run(|files| {
            if !files.list("")?.iter().any(|name| name == NAME) {
                return Ok(None);
            }
            let file = files.open(NAME)?;
            let length = file.len()?;
            if length > caps::MEMBER_BYTES {
                return Err(damaged("it is too long"));
            }
            file.read_exact_at(0, length as usize).map(Some)
        });
        bytes.await?.map(|bytes| Record::decode(&bytes)).transpose()
    }

    /// Makes this the record of the data directory. When it returns, that is durable.
    ///
    /// # Errors
    ///
    /// The disk failed; what was there before is still there.
    pub(super) async fn save(&self, disk: &Disk) -> io::Result<()> {
        let bytes = self.encode();
        disk.run(move |files: &dyn Files| {
            match files.remove(ASIDE) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            let file = files.create(ASIDE)?;
            file.write_at(0, &bytes)?;
            file.sync()?;
            files.rename(ASIDE, NAME)?;
            files.sync_dir("")
        })
        .await
    }

    fn encode(&self) -> Vec<u8> {
        let record = v1::Member {
            cluster_id: self.identity.cluster.0.to_be_bytes().to_vec().into(),
            cluster_name: self.cluster_name.clone(),
            node_id: self.identity.node.0,
            members: self.members.clone(),
            began: self.began,
        };
        let record = record.encode_to_vec();
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&(record.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&crc32fast::hash(&record).to_le_bytes());
        bytes.extend_from_slice(&record);
        bytes
    }

    fn decode(bytes: &[u8]) -> io::Result<Record> {
        let (head, record) = bytes.split_at_checked(HEAD).ok_or_else(|| damaged("it is cut short"))?;
        let number = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        if &head[..8] != MAGIC {
            return Err(damaged("it does not begin as one"));
        }
        if number(8) != VERSION {
            let problem = format!(
                "the file {NAME:?} is of version {}, and this program knows {VERSION}: run a newer quorated",
                number(8)
            );
            return Err(io::Error::new(io::ErrorKind::InvalidData, problem));
        }
        if number(12) as usize != record.len() || number(16) != crc32fast::hash(record) {
            return Err(damaged("it does not fit its checksum"));
        }
        let record = v1::Member::decode(record).map_err(|_| damaged("it cannot be decoded"))?;
        let cluster: [u8; 16] = record.cluster_id[..].try_into().map_err(|_| damaged("it names no cluster"))?;
        let members = record.members.len() as u64;
        if !(1..=members.max(record.node_id)).contains(&record.node_id) || members == 0 {
            return Err(damaged("it names no node"));
        }
        Ok(Record {
            identity: Identity { cluster: ClusterId(u128::from_be_bytes(cluster)), node: NodeId(record.node_id) },
            cluster_name: record.cluster_name,
            members: record.members,
            began: record.began,
        })
    }
}

fn damaged(how: &str) -> io::Error {
    let problem = format!(
        "the file {NAME:?}, which says whose the data directory is, is damaged ({how}); restore it from a copy, or empty the \
         directory and let the node join as a new one"
    );
    io::Error::new(io::ErrorKind::InvalidData, problem)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::MemoryDisk;

    fn record() -> Record {
        Record {
            identity: Identity { cluster: ClusterId(0xabcd << 64), node: NodeId(2) },
            cluster_name: "quorate".into(),
            members: vec!["a:1".into(), "b:2".into()],
            began: true,
        }
    }

    #[tokio::test]
    async fn a_directory_says_whose_it_is() {
        let disk = MemoryDisk::new(1).mount().unwrap();
        assert_eq!(Record::load(&disk).await.unwrap(), None);
        let first = Record { began: false, ..record() };
        first.save(&disk).await.unwrap();
        record().save(&disk).await.unwrap();
        assert_eq!(Record::load(&disk).await.unwrap(), Some(record()));
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_found() {
        let bytes = record().encode();
        assert_eq!(Record::decode(&bytes).unwrap(), record());
        for len in 0..bytes.len() {
            assert!(Record::decode(&bytes[..len]).is_err(), "cut after {len}");
        }
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(Record::decode(&flipped).is_err(), "bit {bit}");
        }
    }
}
