//! The real disk: a directory of the operating system, locked for one process.
//!
//! Jobs run on tokio's threads for blocking work. This file and the control store's are the only ones that may block.

use std::fs;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;

use super::{Device, Disk, File, Files, Job, Space};

/// The file in the data directory whose lock says that a process is using it.
pub const LOCK: &str = "LOCK";

/// A data directory on a real disk.
#[derive(Debug)]
pub struct RealDisk(Arc<Directory>);

#[derive(Debug)]
struct Directory {
    root: PathBuf,
    read_only: bool,
    /// Locked for as long as it is open.
    _lock: fs::File,
}

struct RealFile(fs::File);

impl RealDisk {
    /// Opens a data directory, creating it if need be, and locks it.
    ///
    /// # Errors
    /// The directory cannot be made or written, or another process holds its lock.
    pub async fn open(root: impl Into<PathBuf>) -> io::Result<Disk> {
        Self::open_with(root.into(), false).await
    }

    /// Opens the data directory of a stopped node, to look and not to touch.
    ///
    /// # Errors
    /// It is no data directory, or the node is still running.
    pub async fn open_read_only(root: impl Into<PathBuf>) -> io::Result<Disk> {
        Self::open_with(root.into(), true).await
    }

    async fn open_with(root: PathBuf, read_only: bool) -> io::Result<Disk> {
        let directory = blocking(move || Directory::open(root, read_only)).await??;
        Ok(Disk::new(RealDisk(Arc::new(directory))))
    }
}

impl Directory {
    fn open(root: PathBuf, read_only: bool) -> io::Result<Self> {
        let path = root.join(LOCK);
        let lock = if read_only {
            fs::File::open(&path).map_err(|e| no_node(e, &root, &path))?
        } else {
            fs::create_dir_all(&root).map_err(|e| named(e, "create", &root))?;
            let mut options = fs::OpenOptions::new();
            options.read(true).write(true).create(true).truncate(false);
            options.open(&path).map_err(|e| named(e, "open", &path))?
        };
        lock.try_lock().map_err(|e| match e {
            fs::TryLockError::WouldBlock => io::Error::new(
                io::ErrorKind::ResourceBusy,
                format!(
                    "{} is in use by {}; stop it first, or give another data directory",
                    root.display(),
                    holder(&path)
                ),
            ),
            fs::TryLockError::Error(e) => named(e, "lock", &path),
        })?;
        if !read_only {
            // Only for whoever is refused: it is the lock that counts.
            let pid = format!("{}\n", std::process::id());
            lock.set_len(0)
                .and_then(|()| lock.write_all_at(pid.as_bytes(), 0))
                .map_err(|e| named(e, "write", &path))?;
        }
        Ok(Directory { root, read_only, _lock: lock })
    }

    fn path(&self, relative: &str) -> io::Result<PathBuf> {
        let path = Path::new(relative);
        if path.components().all(|part| matches!(part, Component::Normal(_))) {
            Ok(self.root.join(path))
        } else {
            Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{relative:?} leads out of the data directory")))
        }
    }

    fn writable(&self) -> io::Result<()> {
        if self.read_only { Err(io::Error::from(io::ErrorKind::ReadOnlyFilesystem)) } else { Ok(()) }
    }
}

/// Who holds a lock, as far as its file tells.
fn holder(lock: &Path) -> String {
    let pid = fs::read_to_string(lock).ok().and_then(|text| text.trim().parse::<u32>().ok());
    pid.map_or("a running node".into(), |pid| format!("process {pid}, a running node"))
}

#[async_trait]
impl Device for RealDisk {
    async fn submit(&self, job: Job) -> io::Result<()> {
        let directory = self.0.clone();
        blocking(move || job(&*directory)).await
    }
}

#[expect(clippy::disallowed_methods, reason = "this is the one place where waiting for the disk may block a thread")]
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)
}

impl Files for Directory {
    fn create(&self, path: &str) -> io::Result<Box<dyn File>> {
        self.writable()?;
        let path = self.path(path)?;
        let file = fs::OpenOptions::new().read(true).write(true).create_new(true).open(&path);
        Ok(Box::new(RealFile(file.map_err(|e| named(e, "create", &path))?)))
    }

    fn open(&self, path: &str) -> io::Result<Box<dyn File>> {
        let path = self.path(path)?;
        let file = fs::OpenOptions::new().read(true).write(!self.read_only).open(&path);
        Ok(Box::new(RealFile(file.map_err(|e| named(e, "open", &path))?)))
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        let path = self.path(dir)?;
        let mut names = Vec::new();
        for entry in fs::read_dir(&path).map_err(|e| named(e, "list", &path))? {
            // A name that is not UTF-8 is none of ours.
            names.extend(entry?.file_name().into_string().ok());
        }
        names.sort();
        Ok(names)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.writable()?;
        let (from, to) = (self.path(from)?, self.path(to)?);
        fs::rename(&from, to).map_err(|e| named(e, "rename", &from))
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        self.writable()?;
        let path = self.path(path)?;
        fs::remove_file(&path).map_err(|e| named(e, "remove", &path))
    }

    fn make_dir(&self, dir: &str) -> io::Result<()> {
        self.writable()?;
        let path = self.path(dir)?;
        fs::create_dir_all(&path).map_err(|e| named(e, "create", &path))
    }

    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        self.writable()?;
        let path = self.path(dir)?;
        fs::File::open(&path).and_then(|dir| dir.sync_all()).map_err(|e| named(e, "sync", &path))
    }

    fn space(&self) -> io::Result<Space> {
        let found = rustix::fs::statvfs(&self.root)?;
        Ok(Space { free: found.f_bavail * found.f_frsize, total: found.f_blocks * found.f_frsize })
    }
}

impl File for RealFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read_at(&self, at: u64, into: &mut [u8]) -> io::Result<usize> {
        let mut read = 0;
        while read < into.len() {
            match self.0.read_at(&mut into[read..], at + read as u64) {
                Ok(0) => break,
                Ok(n) => read += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(read)
    }

    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all_at(bytes, at)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }
}

/// The error with what was tried on which file.
fn named(error: io::Error, verb: &str, path: &Path) -> io::Error {
    io::Error::new(error.kind(), format!("cannot {verb} {}: {error}", path.display()))
}

/// Why a directory that was to be looked into has no lock file.
fn no_node(error: io::Error, root: &Path, lock: &Path) -> io::Error {
    let what = match (error.kind(), root.try_exists()) {
        (io::ErrorKind::NotFound, Ok(false)) => "does not exist",
        (io::ErrorKind::NotFound, _) => "holds no node",
        (io::ErrorKind::NotADirectory, _) => "is no directory",
        _ => return named(error, "open", lock),
    };
    io::Error::new(error.kind(), format!("{} {what}; name a node's data directory", root.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_data_directory_is_used_by_one() {
        let dir = tempfile::tempdir().unwrap();
        let refused = async |path: &Path| RealDisk::open_read_only(path).await.unwrap_err().to_string();
        let none = dir.path().join("none");
        assert_eq!(refused(&none).await, format!("{} does not exist; name a node's data directory", none.display()));
        fs::create_dir(&none).unwrap();
        let empty = format!("{} holds no node; name a node's data directory", none.display());
        assert_eq!(refused(&none).await, empty);
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        let said = refused(&file).await;
        assert_eq!(said, format!("{} is no directory; name a node's data directory", file.display()));
        let first = RealDisk::open(dir.path()).await.unwrap();
        let refused = RealDisk::open(dir.path()).await.unwrap_err();
        let holder = format!("in use by process {}, a running node", std::process::id());
        assert!(refused.to_string().contains(&holder), "{refused}");
        drop(first);
        RealDisk::open_read_only(dir.path()).await.unwrap();
    }

    #[tokio::test]
    async fn files_are_written_and_read() {
        let dir = tempfile::tempdir().unwrap();
        let disk = RealDisk::open(dir.path()).await.unwrap();
        disk.run(|files| {
            files.make_dir("a/b")?;
            let file = files.create("a/b/one")?;
            file.fill(100_000)?;
            file.write_at(99_998, b"xyz")?;
            file.sync()?;
            assert_eq!(file.len()?, 100_001);
            assert_eq!(file.read_exact_at(99_997, 4)?, b"\0xyz");
            assert!(file.read_exact_at(99_997, 5).is_err());
            assert!(files.create("a/b/one").is_err());
            files.rename("a/b/one", "a/b/two")?;
            files.sync_dir("a/b")?;
            files.sync_dir("")?;
            assert_eq!(files.list("a/b")?, ["two"]);
            files.remove("a/b/two")?;
            assert!(files.open("a/b/two").is_err());
            assert_eq!(file.read_exact_at(99_998, 3)?, b"xyz");
            assert!(files.space()?.free > 0);
            assert!(files.open("../up").is_err());
            assert!(files.open("/etc/passwd").is_err());
            Ok(())
        })
        .await
        .unwrap();
    }

    #[tokio::test]
    async fn read_only_writes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        drop(RealDisk::open(dir.path()).await.unwrap());
        let disk = RealDisk::open_read_only(dir.path()).await.unwrap();
        assert!(disk.run(|files| files.create("x").map(|_| ())).await.is_err());
    }
}
