//! The disk as everything below the node sees it: one data directory, injected.
//!
//! All input and output is plain synchronous code in a *job*, and [`Disk::run`] is the only way to run one. The real disk
//! runs a job on a thread of its own, so no async worker ever blocks; the in-memory twin runs it where it stands, after a
//! delay in virtual time, so that a simulation needs no thread. A job once begun runs to its end, also when the future
//! that waits for it is dropped.
//!
//! What a caller may lean on, because the twin takes everything else away at a crash:
//!
//! ```text
//!  bytes of a file          durable after File::sync            (a failed sync: never again durable, do not retry)
//!  create, rename, remove   durable after Files::sync_dir       (in the order they were made, per directory)
//!  a write                  changes no byte outside its range   (a torn one may leave anything inside it)
//! ```

pub mod memory;
pub mod real;

use std::fmt;
use std::io;
use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::oneshot;

pub use memory::MemoryDisk;
pub use real::RealDisk;

/// What an operator has to do about an error of the disk, as an order without its full stop.
pub fn remedy(error: &io::Error) -> &'static str {
    match rustix::io::Errno::from_io_error(error) {
        Some(rustix::io::Errno::MFILE | rustix::io::Errno::NFILE) => {
            "raise the limit on open files (`ulimit -n`, or LimitNOFILE= of the systemd unit)"
        }
        Some(rustix::io::Errno::NOSPC | rustix::io::Errno::DQUOT) => "make room on the disk",
        Some(rustix::io::Errno::ROFS | rustix::io::Errno::ACCESS | rustix::io::Errno::PERM) => {
            "let the node write to its data directory"
        }
        _ => "replace the disk",
    }
}

/// A part of the work that touches files, run in one go.
pub type Job = Box<dyn FnOnce(&dyn Files) + Send>;

/// Something that runs jobs on a data directory.
#[async_trait]
pub trait Device: Send + Sync + fmt::Debug {
    /// Runs the job to its end. An error means that it may not have been run.
    async fn submit(&self, job: Job) -> io::Result<()>;
}

/// The files of one data directory. Paths are relative to it, with `/` between their parts.
pub trait Files: Send + Sync {
    /// Creates a file for reading and writing; an error if the path is taken.
    fn create(&self, path: &str) -> io::Result<Box<dyn File>>;
    /// Opens a file that is there; for writing too, unless the disk was opened to be read only.
    fn open(&self, path: &str) -> io::Result<Box<dyn File>>;
    /// The names in a directory, sorted. A directory that is not there is an error.
    fn list(&self, dir: &str) -> io::Result<Vec<String>>;
    /// Gives a file another name in the same directory, atomically; what had that name is gone.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Takes a file's name away. Those who have it open may still read it.
    fn remove(&self, path: &str) -> io::Result<()>;
    /// Creates a directory; nothing happens if it is there.
    fn make_dir(&self, dir: &str) -> io::Result<()>;
    /// Makes all creates, renames and removes in this directory durable. `""` is the data directory itself.
    fn sync_dir(&self, dir: &str) -> io::Result<()>;
    /// How much room there is.
    fn space(&self) -> io::Result<Space>;
}

/// An open file.
pub trait File: Send + Sync {
    /// Its length in bytes.
    fn len(&self) -> io::Result<u64>;
    /// Whether it has no byte.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
    /// Reads from a place on, until the buffer is full or the file ends; how many bytes it were.
    fn read_at(&self, at: u64, into: &mut [u8]) -> io::Result<usize>;
    /// Writes all bytes at a place; the file grows as needed.
    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()>;
    /// Makes all that was written to this file durable, and its length.
    fn sync(&self) -> io::Result<()>;
    /// Makes the file exactly that long.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// Makes a new file `len` bytes long, each a zero that is really written, and durable: later writes and syncs within
    /// it change no metadata.
    fn fill(&self, len: u64) -> io::Result<()> {
        static ZEROS: [u8; 1 << 16] = [0; 1 << 16];
        let mut at = 0;
        while at < len {
            let piece = ZEROS.len().min((len - at) as usize);
            self.write_at(at, &ZEROS[..piece])?;
            at += piece as u64;
        }
        self.sync()
    }

    /// Reads exactly that many bytes; an error if the file ends before.
    fn read_exact_at(&self, at: u64, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        match self.read_at(at, &mut bytes)? {
            read if read == len => Ok(bytes),
            read => Err(io::Error::new(io::ErrorKind::UnexpectedEof, format!("{read} bytes where {len} should be"))),
        }
    }
}

/// Room on the disk, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// What may still be written.
    pub free: u64,
    /// What the disk holds in all.
    pub total: u64,
}

/// A handle on the disk; cheap to clone. The data directory stays locked for this process until the last one is gone.
#[derive(Clone, Debug)]
pub struct Disk(Arc<dyn Device>);

impl Disk {
    /// A disk made of any device.
    pub fn new(device: impl Device + 'static) -> Self {
        Disk(Arc::new(device))
    }

    /// Runs a job and gives back what it returned.
    pub async fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce(&dyn Files) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let (sender, receiver) = oneshot::channel();
        self.0
            .submit(Box::new(move |files| {
                // Nobody listens any more if the caller was dropped; the work is done all the same.
                let _ = sender.send(job(files));
            }))
            .await?;
        receiver.await.map_err(|_| io::Error::other("a job on the disk ended without a result"))?
    }
}
