//! The bytes of a snapshot file: version 1. Numbers are little-endian. The head is the same in every version, so that its
//! checksum can be looked at before its version is believed.

use std::io::{self, Read, Write};

use quorate_core::GroupId;

use super::rot;
use crate::caps;
use crate::disk::File;
use crate::identity::ClusterId;
use crate::raft::codec::{Reader, put_snapshot_meta};
use crate::raft::types::SnapshotMeta;

const MAGIC: &[u8; 8] = b"QRTSNAP\n";
const VERSION: u32 = 1;
/// Magic, version, cluster, group, length of the meta.
const HEAD: usize = 8 + 4 + 16 + 4 + 4;
const CHECKSUM: usize = 4;
/// Length and checksum before each block.
const BLOCK_HEAD: usize = 4 + CHECKSUM;

/// What a file says of itself.
pub(super) struct Head {
    pub(super) cluster: ClusterId,
    pub(super) group: GroupId,
    pub(super) meta: SnapshotMeta,
}

impl Head {
    fn bytes(&self) -> Vec<u8> {
        let mut meta = Vec::new();
        put_snapshot_meta(&self.meta, &mut meta);
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&self.cluster.0.to_le_bytes());
        bytes.extend_from_slice(&self.group.0.to_le_bytes());
        bytes.extend_from_slice(&(meta.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&meta);
        let sum = crc32fast::hash(&bytes);
        bytes.extend_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Reads the head, and says how many bytes it takes.
    pub(super) fn read(file: &dyn File) -> io::Result<(Head, u64)> {
        let mut bytes = file.read_exact_at(0, HEAD)?;
        if !bytes.starts_with(MAGIC) {
            return Err(rot("it does not begin as a snapshot does".to_owned()));
        }
        let u32_at =
            |bytes: &[u8], at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let meta_len = u32_at(&bytes, HEAD - 4) as usize;
        if meta_len > caps::SNAPSHOT_META_BYTES {
            return Err(rot("its head is longer than any".to_owned()));
        }
        bytes.extend(file.read_exact_at(HEAD as u64, meta_len + CHECKSUM)?);
        let (body, sum) = bytes.split_at(HEAD + meta_len);
        if crc32fast::hash(body).to_le_bytes() != sum {
            return Err(rot("its head does not fit its checksum".to_owned()));
        }
        let version = u32_at(body, 8);
        if version > VERSION {
            let problem = format!(
                "its format is version {version}, and this program reads up to {VERSION}: run a newer version of quorated"
            );
            return Err(io::Error::new(io::ErrorKind::Unsupported, problem));
        }
        let mut cluster = [0; 16];
        cluster.copy_from_slice(&body[12..28]);
        let meta = Reader(&body[HEAD..]).snapshot_meta().ok_or_else(|| rot("its head cannot be read".to_owned()))?;
        let head = Head { cluster: ClusterId(u128::from_le_bytes(cluster)), group: GroupId(u32_at(body, 28)), meta };
        Ok((head, bytes.len() as u64))
    }
}

fn checksum(number: u64, bytes: &[u8]) -> [u8; CHECKSUM] {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&number.to_le_bytes());
    hasher.update(bytes);
    hasher.finalize().to_le_bytes()
}

/// Cuts what is written into blocks.
pub(super) struct BlockWriter {
    file: Box<dyn File>,
    at: u64,
    number: u64,
    total: u64,
    block: Vec<u8>,
}

impl BlockWriter {
    pub(super) fn begin(file: Box<dyn File>, head: &Head) -> io::Result<Self> {
        let head = head.bytes();
        file.write_at(0, &head)?;
        Ok(BlockWriter {
            file,
            at: head.len() as u64,
            number: 0,
            total: 0,
            block: Vec::with_capacity(caps::SNAPSHOT_BLOCK_BYTES),
        })
    }

    /// Writes the last block and the end.
    pub(super) fn finish(mut self) -> io::Result<Box<dyn File>> {
        if !self.block.is_empty() {
            self.put_block()?;
        }
        let total = self.total.to_le_bytes();
        let end = [&0u32.to_le_bytes()[..], &checksum(self.number, &total), &total].concat();
        self.file.write_at(self.at, &end)?;
        Ok(self.file)
    }

    fn put_block(&mut self) -> io::Result<()> {
        let length = (self.block.len() as u32).to_le_bytes();
        let bytes = [&length[..], &checksum(self.number, &self.block), &self.block].concat();
        self.file.write_at(self.at, &bytes)?;
        self.at += bytes.len() as u64;
        self.number += 1;
        self.total += self.block.len() as u64;
        self.block.clear();
        Ok(())
    }
}

impl Write for BlockWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let piece = bytes.len().min(caps::SNAPSHOT_BLOCK_BYTES - self.block.len());
        self.block.extend_from_slice(&bytes[..piece]);
        if self.block.len() == caps::SNAPSHOT_BLOCK_BYTES {
            self.put_block()?;
        }
        Ok(piece)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Where the next block stands.
#[derive(Clone, Copy)]
pub(super) struct Place {
    at: u64,
    number: u64,
    total: u64,
}

impl Place {
    pub(super) fn first(at: u64) -> Self {
        Place { at, number: 0, total: 0 }
    }
}

/// The next block, and where the one after it stands; no bytes and no place at the end.
pub(super) fn read_block(file: &dyn File, place: Place) -> io::Result<(Vec<u8>, Option<Place>)> {
    let head = file.read_exact_at(place.at, BLOCK_HEAD)?;
    let (length, sum) = head.split_at(4);
    let length = u32::from_le_bytes([length[0], length[1], length[2], length[3]]) as usize;
    if length > caps::SNAPSHOT_BLOCK_BYTES {
        return Err(rot(format!("its block {} is longer than any", place.number)));
    }
    // The end carries the total length in place of bytes.
    let carried = if length == 0 { 8 } else { length };
    let bytes = file.read_exact_at(place.at + BLOCK_HEAD as u64, carried)?;
    if checksum(place.number, &bytes) != sum {
        return Err(rot(format!("its block {} does not fit its checksum", place.number)));
    }
    if length == 0 {
        let whole = place.total.to_le_bytes() == bytes[..];
        return if whole { Ok((Vec::new(), None)) } else { Err(rot("it has lost a block".to_owned())) };
    }
    let at = place.at + (BLOCK_HEAD + length) as u64;
    Ok((bytes, Some(Place { at, number: place.number + 1, total: place.total + length as u64 })))
}

/// Reads blocks as one run of bytes.
pub(super) struct BlockReader<'a> {
    file: &'a dyn File,
    next: Option<Place>,
    block: Vec<u8>,
    taken: usize,
}

impl<'a> BlockReader<'a> {
    pub(super) fn new(file: &'a dyn File, from: u64) -> Self {
        BlockReader { file, next: Some(Place::first(from)), block: Vec::new(), taken: 0 }
    }
}

impl Read for BlockReader<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.taken == self.block.len() {
            let Some(place) = self.next else { return Ok(0) };
            (self.block, self.next) = read_block(self.file, place)?;
            self.taken = 0;
        }
        let piece = into.len().min(self.block.len() - self.taken);
        into[..piece].copy_from_slice(&self.block[self.taken..self.taken + piece]);
        self.taken += piece;
        Ok(piece)
    }
}
