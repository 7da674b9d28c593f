//! The file `member` of a data directory: which node of which cluster it belongs to, for good.
//!
//! ```text
//!  written aside as  member.new ─► synced ─► renamed to member ─► directory synced
//!  file:   magic, version, length, checksum │ the record
//! ```

use std::collections::BTreeSet;
use std::io;

use prost::Message;
use quorate_core::NodeId;
use quorate_proto::v1;

use super::parts::CONTROL_DIR;
use crate::disk::{Disk, Files};
use crate::identity::{ClusterId, Identity};
use crate::{caps, log, snapshot_files};

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
    /// Whether the node has taken this up: its log was begun, and from then on must be there. Before, the record is only held.
    pub(super) began: bool,
}

impl Record {
    /// Whether both make the same node the same member.
    pub(super) fn is_same_as(&self, other: &Record) -> bool {
        (self.identity, &self.members) == (other.identity, &other.members)
    }

    /// Whether both clusters are made of the same nodes, in whatever order.
    pub(super) fn has_members_of(&self, other: &Record) -> bool {
        same_nodes(&self.members, &other.members)
    }

    /// The first members with their ids.
    pub(super) fn numbered(&self) -> impl Iterator<Item = (NodeId, &String)> {
        (1..).map(NodeId).zip(&self.members)
    }

    /// Reads the record of a data directory; none where it belongs to nobody yet.
    ///
    /// # Errors
    ///
    /// The disk failed, the record is damaged, or it is gone and what it was the record of is there.
    pub(super) async fn load(disk: &Disk) -> io::Result<Option<Record>> {
        let bytes = disk.run(|files| {
            let names = files.list("")?;
            if !names.iter().any(|name| name == NAME) {
                return nothing_is_left(files, &names).map(|()| None);
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

/// A directory without a record has to be without everything else that a member writes.
fn nothing_is_left(files: &dyn Files, names: &[String]) -> io::Result<()> {
    let mut left: Vec<&str> = Vec::new();
    for dir in [log::DIR, snapshot_files::DIR] {
        match files.list(dir) {
            Ok(inside) if !inside.is_empty() => left.push(dir),
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    left.extend(names.iter().map(String::as_str).filter(|name| *name == CONTROL_DIR));
    if left.is_empty() {
        return Ok(());
    }
    let problem = format!(
        "the data directory holds {}, and the file {NAME:?}, which says whose they are, is missing; restore it from a copy, or \
         give the node an empty directory: it is a new node then, and may not take its old place",
        left.iter().map(|name| format!("{name}/")).collect::<Vec<_>>().join(", ")
    );
    Err(io::Error::new(io::ErrorKind::InvalidData, problem))
}

/// Whether two lists name the same nodes.
pub(super) fn same_nodes(some: &[String], others: &[String]) -> bool {
    some.iter().collect::<BTreeSet<_>>() == others.iter().collect::<BTreeSet<_>>()
}

fn damaged(how: &str) -> io::Error {
    let problem = format!(
        "the file {NAME:?}, which says whose the data directory is, is damaged ({how}); restore it from a copy, or \
         give the node an empty directory: it is a new node then, and may not take its old place"
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

    #[tokio::test]
    async fn what_a_member_wrote_is_nobodys_without_its_record() {
        for left in [log::DIR, snapshot_files::DIR] {
            let disk = MemoryDisk::new(1).mount().unwrap();
            disk.run(move |files| files.make_dir(left)).await.unwrap();
            assert_eq!(Record::load(&disk).await.unwrap(), None, "an empty {left} is nothing");
            disk.run(move |files| files.create(&format!("{left}/0001")).map(drop)).await.unwrap();
            let error = Record::load(&disk).await.unwrap_err().to_string();
            assert!(error.contains(left) && error.contains("\"member\""), "{error}");
            record().save(&disk).await.unwrap();
            assert_eq!(Record::load(&disk).await.unwrap(), Some(record()));
        }
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
