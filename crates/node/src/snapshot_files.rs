//! A group's snapshots as files.
//!
//! ```text
//!  written aside as  snapshots/g3.part ─► synced ─► renamed to snapshots/g3-<term>-<index>.snap ─► directory synced
//!
//!  file:   head (magic, version, cluster, group, meta, checksum) │ block │ block │ … │ end
//!  block:  length, checksum over its number and bytes, bytes         end: a block of no bytes, then the total length
//! ```
//!
//! Nothing is believed before it is checked: the head when a file is opened, each block when it is read, and the end, so that
//! a file that was cut is found. A file that is rotten is passed over for an older one; where none is left the group has no
//! snapshot, and what its log no longer holds comes from the leader. The newest two are kept.
//!
//! A snapshot on its way to another node goes as the content alone, without head and checksums; the receiver writes its own.

mod format;

use std::fmt;
use std::io::{self, Read, Write};
use std::sync::Arc;

use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt};
use quorate_core::GroupId;

use crate::caps;
use crate::disk::{Disk, File, Files};
use crate::identity::ClusterId;
use crate::raft::types::SnapshotMeta;
use format::{BlockReader, BlockWriter, Head};

/// The directory of all snapshots.
pub(crate) const DIR: &str = "snapshots";

/// The snapshots of one group. Cheap to clone.
#[derive(Clone)]
pub struct SnapshotFiles {
    disk: Disk,
    cluster: ClusterId,
    group: GroupId,
    /// One file is written at a time.
    writing: Arc<tokio::sync::Mutex<()>>,
}

/// A snapshot that is on this node's disk. Cheap to clone.
#[derive(Clone)]
pub struct SnapshotHandle {
    disk: Disk,
    file: Arc<dyn File>,
    name: String,
    meta: SnapshotMeta,
    head_len: u64,
    len: u64,
}

impl fmt::Debug for SnapshotFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SnapshotFiles of {}", self.group)
    }
}

impl fmt::Debug for SnapshotHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl SnapshotFiles {
    /// The snapshots of that group, in the data directory behind `disk`.
    pub fn new(disk: Disk, cluster: ClusterId, group: GroupId) -> Self {
        SnapshotFiles { disk, cluster, group, writing: Arc::default() }
    }

    /// Whose they are.
    pub fn group(&self) -> GroupId {
        self.group
    }

    /// Writes a snapshot: `write` gives its content. When this returns it is durable, and the oldest are gone.
    ///
    /// # Errors
    ///
    /// The disk failed or is full, or `write` did; what was there before is still there.
    pub async fn create(
        &self,
        meta: SnapshotMeta,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()> + Send + 'static,
    ) -> io::Result<SnapshotHandle> {
        let _one = self.writing.lock().await;
        let (head, aside) = (self.head(&meta), self.aside());
        let written = self.disk.run(move |files| {
            let mut writer = begin(files, &aside, &head)?;
            write(&mut writer)?;
            writer.finish()?.sync()
        });
        written.await?;
        self.adopt(meta).await
    }

    /// Writes a snapshot that comes in pieces from another node.
    ///
    /// # Errors
    ///
    /// As [`create`](Self::create); or the pieces end early, or give more than `length` bytes.
    pub async fn receive(
        &self,
        meta: SnapshotMeta,
        length: u64,
        mut pieces: BoxStream<'static, io::Result<Bytes>>,
    ) -> io::Result<SnapshotHandle> {
        let _one = self.writing.lock().await;
        let (head, aside) = (self.head(&meta), self.aside());
        let mut writer = self.disk.run(move |files| begin(files, &aside, &head)).await?;
        let mut received = 0;
        while let Some(piece) = pieces.next().await {
            let piece = piece?;
            received += piece.len() as u64;
            if received > length {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!("a snapshot of {length} bytes goes on beyond them"),
                ));
            }
            writer = self.disk.run(move |_| writer.write_all(&piece).map(|()| writer)).await?;
        }
        if received < length {
            let problem = format!("a snapshot of {length} bytes ended after {received}");
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, problem));
        }
        self.disk.run(move |_| writer.finish()?.sync()).await?;
        self.adopt(meta).await
    }

    /// The newest snapshot whose every block fits its checksum; none if there is none.
    ///
    /// # Errors
    ///
    /// The disk failed. A rotten file is none: it is told to the log and passed over.
    pub async fn latest(&self) -> io::Result<Option<SnapshotHandle>> {
        let this = self.clone();
        self.disk.run(move |files| this.find_latest(files)).await
    }

    fn find_latest(&self, files: &dyn Files) -> io::Result<Option<SnapshotHandle>> {
        for name in self.names(files)?.into_iter().rev() {
            match self.open(files, &name) {
                Ok(handle) => return Ok(Some(handle)),
                Err(error) if is_rot(&error) => {
                    tracing::error!(group = self.group.0, file = name, %error, "a snapshot is rotten; an older one, or another node's, is used");
                }
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Opens a file and reads all of it once.
    fn open(&self, files: &dyn Files, name: &str) -> io::Result<SnapshotHandle> {
        let file: Arc<dyn File> = files.open(&format!("{DIR}/{name}"))?.into();
        let (head, head_len) = Head::read(&*file)?;
        if (head.cluster, head.group) != (self.cluster, self.group) {
            return Err(rot(format!("it is of group {} of cluster {}", head.group.0, head.cluster)));
        }
        let len = io::copy(&mut BlockReader::new(&*file, head_len), &mut io::sink())?;
        Ok(SnapshotHandle { disk: self.disk.clone(), file, name: name.to_owned(), meta: head.meta, head_len, len })
    }

    /// Gives a file written aside its name, and removes the oldest.
    async fn adopt(&self, meta: SnapshotMeta) -> io::Result<SnapshotHandle> {
        let this = self.clone();
        let adopt = move |files: &dyn Files| {
            let name = this.name(&meta);
            files.rename(&this.aside(), &format!("{DIR}/{name}"))?;
            files.sync_dir(DIR)?;
            let handle = this.open(files, &name)?;
            let names = this.names(files)?;
            for old in names.iter().rev().skip(caps::SNAPSHOTS_KEPT) {
                files.remove(&format!("{DIR}/{old}"))?;
            }
            tracing::info!(group = this.group.0, file = name, bytes = handle.len, "a snapshot is on disk");
            Ok(handle)
        };
        self.disk.run(adopt).await
    }

    fn head(&self, meta: &SnapshotMeta) -> Head {
        Head { cluster: self.cluster, group: self.group, meta: meta.clone() }
    }

    fn aside(&self) -> String {
        format!("{DIR}/g{}.part", self.group.0)
    }

    fn name(&self, meta: &SnapshotMeta) -> String {
        let (term, index) = meta.last_log_id.map_or((0, 0), |id| (id.committed_leader_id().term, id.index()));
        format!("g{}-{index:020}-{term:020}.snap", self.group.0)
    }

    /// The group's files, oldest first.
    fn names(&self, files: &dyn Files) -> io::Result<Vec<String>> {
        files.make_dir(DIR)?;
        let prefix = format!("g{}-", self.group.0);
        let mut names = files.list(DIR)?;
        names.retain(|name| name.starts_with(&prefix) && name.ends_with(".snap"));
        names.sort();
        Ok(names)
    }
}

fn begin(files: &dyn Files, aside: &str, head: &Head) -> io::Result<BlockWriter> {
    files.make_dir(DIR)?;
    files.sync_dir("")?;
    // What an interrupted write left behind.
    match files.remove(aside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    BlockWriter::begin(files.create(aside)?, head)
}

/// An error that says that a file is not what was written.
fn rot(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

fn is_rot(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof)
}

impl SnapshotHandle {
    /// What it covers.
    pub fn meta(&self) -> &SnapshotMeta {
        &self.meta
    }

    /// Bytes of its content.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether it has no content.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Reads the content with a function that may take its time; it runs where waiting for the disk is allowed.
    ///
    /// # Errors
    ///
    /// The function's, or a block is rotten.
    pub async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&mut dyn Read) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let (file, from) = (self.file.clone(), self.head_len);
        self.disk.run(move |_| read(&mut BlockReader::new(&*file, from))).await
    }

    /// The content in pieces, each checked. An error ends it.
    pub fn blocks(&self) -> BoxStream<'static, io::Result<Bytes>> {
        let next = |place: Option<format::Place>, handle: SnapshotHandle| async move {
            let Some(place) = place else { return Ok(None) };
            let file = handle.file.clone();
            let (bytes, place) = handle.disk.run(move |_| format::read_block(&*file, place)).await?;
            Ok((!bytes.is_empty()).then(|| (Bytes::from(bytes), (place, handle))))
        };
        let start = (Some(format::Place::first(self.head_len)), self.clone());
        stream::try_unfold(start, move |(place, handle)| next(place, handle)).boxed()
    }
}

#[cfg(test)]
mod tests;
