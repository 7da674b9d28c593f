//! Where the control group's applied state is kept between starts: sled, or its twin in memory.
//!
//! The state is kept in parts, each under a name, and changed in transactions: what was applied and the index that it was
//! applied at change together or not at all. Nothing here is the only copy of anything: the log and the snapshots of the
//! control group could rebuild it, and do where it fell back.
//!
//! ```text
//!  commit ─► one sled transaction ─► flush ─► fdatasync of sled's file ─► done
//!                                    (sled's flush alone asks for a write-back and does not wait for the disk)
//! ```
//!
//! Invariants: a part is at most [`caps::CONTROL_PART`] bytes (sled puts larger values into files that it never syncs) and
//! carries its checksum; the sum of all parts' hashes changes in the same transaction, because sled takes a damaged page for an
//! old one: what is loaded is a state as it was committed, or an error; sled is never called on an async worker.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::Hasher as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use siphasher::sip::SipHasher13;
use tokio::time::{Instant, sleep};

use super::parts::Parts;
use crate::caps;

/// What went wrong with the store. The node cannot go on with it.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The database failed.
    #[error("the control store {} failed: {source}; {}", path.display(), advice(source))]
    Database {
        /// Where it is.
        path: PathBuf,
        /// What it said.
        source: sled::Error,
    },
    /// The disk failed.
    #[error(
        "the control store {} could not be made durable: {source}; {}, then start the node again",
        path.display(),
        crate::disk::remedy(source)
    )]
    Sync {
        /// Where it is.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A part does not fit its checksum.
    #[error(
        "the control store {} is damaged: its part {part:?} does not fit its checksum; remove that directory, and the node \
         rebuilds it from its log and the other nodes",
        path.display()
    )]
    Damaged {
        /// Where it is.
        path: PathBuf,
        /// The part's name.
        part: String,
    },
    /// The parts are not those of one commit.
    #[error(
        "the control store {} is damaged: its parts are of different ages; remove that directory, and the node rebuilds it from \
         its log and the other nodes",
        .0.display()
    )]
    Mixed(PathBuf),
    /// A part is larger than the store takes.
    #[error("the part {0:?} of the control state is larger than {max} bytes; report this", max = caps::CONTROL_PART)]
    TooLarge(String),
    /// The thread that serves the store is gone.
    #[error("the control store {} was interrupted: the node is stopping", .0.display())]
    Interrupted(PathBuf),
}

impl StoreError {
    /// Somebody has the database open.
    fn is_locked(&self) -> bool {
        matches!(self, StoreError::Database { source: sled::Error::Io(error), .. }
            if error.to_string().contains("could not acquire lock"))
    }
}

/// What to do about it. What sled cannot read is only a copy.
fn advice(error: &sled::Error) -> String {
    match error {
        sled::Error::Io(error) => format!("{}, then start the node again", crate::disk::remedy(error)),
        _ => "its files are damaged: remove that directory, and the node rebuilds it from its log and the other nodes"
            .to_owned(),
    }
}

/// Keeps the parts of a state.
#[async_trait]
pub trait ControlStore: Send + Sync + fmt::Debug {
    /// All parts, checked.
    ///
    /// # Errors
    /// The database or the disk failed, or a part is damaged.
    async fn load(&self) -> Result<Parts, StoreError>;
    /// Changes parts together: puts those with a value, drops the others. When it returns, the change is durable.
    ///
    /// # Errors
    /// The database or the disk failed, or a part is too large. Whether it was changed is not known then.
    async fn commit(&self, changes: BTreeMap<String, Option<Bytes>>) -> Result<(), StoreError>;
}

/// The real one, on sled.
pub struct SledControlStore {
    path: PathBuf,
    database: sled::Db,
    file: Arc<std::fs::File>,
    /// One commit at a time: each adds to the sum of the one before.
    committing: Arc<Mutex<()>>,
}

impl fmt::Debug for SledControlStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SledControlStore({})", self.path.display())
    }
}

impl SledControlStore {
    /// Opens the database in that directory, or makes it.
    ///
    /// # Errors
    /// The database or the disk failed, or somebody else has it open.
    pub async fn open(path: &Path) -> Result<Self, StoreError> {
        let deadline = Instant::now() + caps::CONTROL_LOCK;
        loop {
            match Self::try_open(path).await {
                // sled lets go of its lock some time after the last handle is dropped, from a thread of its own.
                Err(error) if error.is_locked() && Instant::now() < deadline => sleep(caps::CONTROL_LOCK / 100).await,
                opened => return opened,
            }
        }
    }

    async fn try_open(path: &Path) -> Result<Self, StoreError> {
        let path = path.to_owned();
        let at = path.clone();
        blocking(&at, move || {
            let failed = |source| StoreError::Database { path: path.clone(), source };
            let database = sled::Config::new().path(&path).cache_capacity(caps::CONTROL_CACHE).flush_every_ms(None);
            let database = database.open().map_err(failed)?;
            database.flush().map_err(failed)?;
            let file = std::fs::File::open(path.join("db"));
            let file = file.map_err(|source| StoreError::Sync { path: path.clone(), source })?;
            Ok(SledControlStore { path, database, file: Arc::new(file), committing: Arc::default() })
        })
        .await
    }
}

#[async_trait]
impl ControlStore for SledControlStore {
    async fn load(&self) -> Result<Parts, StoreError> {
        let (path, database) = (self.path.clone(), self.database.clone());
        blocking(&self.path, move || {
            let (mut parts, mut sum) = (Parts::new(), 0_u64);
            for entry in database.iter() {
                let (name, value) = entry.map_err(|source| StoreError::Database { path: path.clone(), source })?;
                let name = String::from_utf8_lossy(&name).into_owned();
                let Some(part) = unseal(&name, &value) else {
                    return Err(StoreError::Damaged { path, part: name });
                };
                sum = sum.wrapping_add(hash(name.as_bytes(), &value));
                parts.insert(name, part);
            }
            let whole = parts.remove(SUM).map(|part| part.to_vec());
            let expected = whole.as_ref().map(|part| sum.wrapping_sub(hash(SUM.as_bytes(), &seal(SUM, part))));
            match expected.map(u64::to_le_bytes) {
                None if parts.is_empty() => Ok(parts),
                Some(expected) if whole.as_deref() == Some(&expected[..]) => Ok(parts),
                _ => Err(StoreError::Mixed(path)),
            }
        })
        .await
    }

    async fn commit(&self, changes: BTreeMap<String, Option<Bytes>>) -> Result<(), StoreError> {
        check_sizes(&changes)?;
        let changes: Vec<_> =
            changes.into_iter().map(|(name, value)| (value.map(|value| seal(&name, &value)), name)).collect();
        let (path, database, file) = (self.path.clone(), self.database.clone(), self.file.clone());
        let committing = Arc::clone(&self.committing);
        blocking(&self.path, move || {
            let failed = |source| StoreError::Database { path: path.clone(), source };
            let _one = committing.lock().unwrap_or_else(PoisonError::into_inner);
            let mut sum = match database.get(SUM).map_err(failed)? {
                None => 0,
                Some(sealed) => match unseal(SUM, &sealed).and_then(|sum| <[u8; 8]>::try_from(&sum[..]).ok()) {
                    Some(sum) => u64::from_le_bytes(sum),
                    None => return Err(StoreError::Damaged { path, part: SUM.to_owned() }),
                },
            };
            let mut batch = sled::Batch::default();
            for (value, name) in changes {
                let name = name.as_bytes();
                if let Some(old) = database.get(name).map_err(failed)? {
                    sum = sum.wrapping_sub(hash(name, &old));
                }
                match value {
                    Some(value) => {
                        sum = sum.wrapping_add(hash(name, &value));
                        batch.insert(name, value);
                    }
                    None => batch.remove(name),
                }
            }
            batch.insert(SUM, seal(SUM, &sum.to_le_bytes()));
            database.apply_batch(batch).map_err(failed)?;
            database.flush().map_err(failed)?;
            file.sync_data().map_err(|source| StoreError::Sync { path, source })
        })
        .await
    }
}

/// Runs what blocks where it may.
#[expect(clippy::disallowed_methods, reason = "this is the one place where waiting for sled may block a thread")]
async fn blocking<T: Send + 'static>(
    path: &Path,
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|_| Err(StoreError::Interrupted(path.to_owned())))
}

fn check_sizes(changes: &BTreeMap<String, Option<Bytes>>) -> Result<(), StoreError> {
    let large = changes.iter().find(|(_, value)| value.as_ref().is_some_and(|value| value.len() > caps::CONTROL_PART));
    match large {
        Some((name, _)) => Err(StoreError::TooLarge(name.clone())),
        None => Ok(()),
    }
}

fn checksum(name: &str, value: &[u8]) -> [u8; 4] {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&(name.len() as u64).to_le_bytes());
    hasher.update(name.as_bytes());
    hasher.update(value);
    hasher.finalize().to_le_bytes()
}

/// Where the sum of the other parts' hashes is kept. No part of the state has this name.
const SUM: &str = "\0sum";

/// A part's share of the sum. Its secret is none: it finds accidents.
fn hash(name: &[u8], sealed: &[u8]) -> u64 {
    let mut hasher = SipHasher13::new();
    hasher.write_usize(name.len());
    hasher.write(name);
    hasher.write(sealed);
    hasher.finish()
}

fn seal(name: &str, value: &[u8]) -> Vec<u8> {
    [&checksum(name, value)[..], value].concat()
}

fn unseal(name: &str, sealed: &[u8]) -> Option<Bytes> {
    let (sum, value) = sealed.split_at_checked(4)?;
    (sum == checksum(name, value)).then(|| Bytes::copy_from_slice(value))
}

/// The twin in memory. What was committed survives as long as a clone of it does.
#[derive(Clone, Debug, Default)]
pub struct MemoryControlStore(Arc<Mutex<Parts>>);

#[async_trait]
impl ControlStore for MemoryControlStore {
    async fn load(&self) -> Result<Parts, StoreError> {
        Ok(self.0.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }

    async fn commit(&self, changes: BTreeMap<String, Option<Bytes>>) -> Result<(), StoreError> {
        check_sizes(&changes)?;
        let mut parts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (name, value) in changes {
            match value {
                Some(value) => parts.insert(name, value),
                None => parts.remove(&name),
            };
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes(pairs: &[(&str, Option<&'static [u8]>)]) -> BTreeMap<String, Option<Bytes>> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), value.map(Bytes::from_static))).collect()
    }

    #[tokio::test]
    async fn what_is_committed_is_there_when_it_is_opened_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("control");
        let store = SledControlStore::open(&path).await.unwrap();
        store.commit(changes(&[("a", Some(b"1")), ("b", Some(b"2"))])).await.unwrap();
        store.commit(changes(&[("a", None), ("c", Some(b"3"))])).await.unwrap();
        drop(store);
        let parts = SledControlStore::open(&path).await.unwrap().load().await.unwrap();
        let parts: Vec<_> = parts.iter().map(|(name, part)| (name.as_str(), &part[..])).collect();
        assert_eq!(parts, [("b", &b"2"[..]), ("c", b"3")]);
    }

    #[tokio::test]
    async fn a_database_that_somebody_has_open_is_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("control");
        let store = SledControlStore::open(&path).await.unwrap();
        assert!(SledControlStore::try_open(&path).await.unwrap_err().is_locked());
        let waiting = async { SledControlStore::open(&path).await.unwrap() };
        let leaving = async {
            sleep(caps::CONTROL_LOCK / 20).await;
            drop(store);
        };
        tokio::join!(waiting, leaving);
    }

    #[tokio::test]
    async fn a_part_that_changed_by_itself_is_found() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("control");
        let store = SledControlStore::open(&path).await.unwrap();
        store.commit(changes(&[("policies", Some(b"all of them"))])).await.unwrap();
        let mut sealed = store.database.get("policies").unwrap().unwrap().to_vec();
        for bit in 0..sealed.len() * 8 {
            sealed[bit / 8] ^= 1 << (bit % 8);
            store.database.insert("policies", &sealed[..]).unwrap();
            let error = store.load().await.unwrap_err();
            assert!(matches!(&error, StoreError::Damaged { part, .. } if part == "policies"), "bit {bit}: {error}");
            sealed[bit / 8] ^= 1 << (bit % 8);
        }
    }

    /// Whatever happens to sled's own files: what is loaded was committed, as a whole, or there is an error.
    #[tokio::test]
    async fn damaged_files_give_a_state_that_was_committed_or_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("control");
        let store = SledControlStore::open(&path).await.unwrap();
        let mut states = vec![store.load().await.unwrap()];
        for round in 0..40_u8 {
            let value = |part: u8| Bytes::from(vec![round ^ part; 900]);
            let mut parts: BTreeMap<_, _> =
                (0..6).map(|part| (format!("part{part}"), (round % 6 != part).then(|| value(part)))).collect();
            parts.insert("applied".to_owned(), Some(Bytes::from(vec![round; 8])));
            store.commit(parts).await.unwrap();
            states.push(store.load().await.unwrap());
        }
        drop(store);
        let files = ["db", "conf"].map(|name| (name, std::fs::read(path.join(name)).unwrap()));
        let snaps: Vec<_> = std::fs::read_dir(&path)
            .unwrap()
            .flatten()
            .filter(|entry| entry.path().is_file() && files.iter().all(|(name, _)| entry.file_name() != *name))
            .map(|entry| (entry.file_name(), std::fs::read(entry.path()).unwrap()))
            .collect();
        // Where sled wrote anything at all.
        let used = files[0].1.iter().rposition(|byte| *byte != 0).unwrap();
        let (mut exact, mut old, mut refused) = (0, 0, 0);
        for (round, at) in (0..used).step_by(used / 150).enumerate() {
            let damaged = directory.path().join("damaged");
            std::fs::create_dir(&damaged).unwrap();
            for (name, bytes) in &files {
                let mut bytes = bytes.clone();
                let place = at.min(bytes.len() - 1);
                match (round % 4, *name) {
                    (0 | 1, "db") => bytes[place] ^= 1 << (round % 8),
                    (2, "db") => bytes.truncate(place),
                    (3, "conf") => bytes.truncate(at % bytes.len()),
                    _ => {}
                }
                std::fs::write(damaged.join(name), bytes).unwrap();
            }
            snaps.iter().for_each(|(name, bytes)| std::fs::write(damaged.join(name), bytes).unwrap());
            let loaded = match SledControlStore::open(&damaged).await {
                Ok(store) => store.load().await,
                Err(error) => Err(error),
            };
            match loaded {
                Ok(parts) if Some(&parts) == states.last() => exact += 1,
                Ok(parts) => {
                    assert!(states.contains(&parts), "damage at {at} mixed states");
                    old += 1;
                }
                Err(_) => refused += 1,
            }
            std::fs::remove_dir_all(&damaged).unwrap();
        }
        assert!(exact > 0 && old + refused > 10, "{exact} exact, {old} old, {refused} refused");
    }

    #[tokio::test]
    async fn a_part_of_another_age_is_found() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("control");
        let store = SledControlStore::open(&path).await.unwrap();
        store.commit(changes(&[("a", Some(b"1")), ("b", Some(b"1"))])).await.unwrap();
        let before = store.database.get("a").unwrap().unwrap();
        store.commit(changes(&[("a", Some(b"2")), ("b", Some(b"2"))])).await.unwrap();
        store.database.insert("a", before).unwrap();
        assert!(matches!(store.load().await, Err(StoreError::Mixed(_))));
        store.database.remove("a").unwrap();
        assert!(matches!(store.load().await, Err(StoreError::Mixed(_))));
    }

    #[tokio::test]
    async fn a_part_that_sled_would_not_sync_is_refused() {
        let large = Bytes::from(vec![0; caps::CONTROL_PART + 1]);
        let error = MemoryControlStore::default().commit([("x".to_owned(), Some(large))].into()).await.unwrap_err();
        assert!(matches!(error, StoreError::TooLarge(_)));
    }
}
