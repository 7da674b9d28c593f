//! The disk's twin in memory, for tests and the simulator: deterministic, and as bad as the real thing.
//!
//! What was not synced is lost or torn at a crash; a name that was not synced may be gone, or be back; a sync may fail, and
//! then what it was to cover is never durable; the disk may be full, slow, rotten, or lose its power between any two
//! operations. Everything is a function of the seed and of the order of the calls.
//!
//! Within the range of an unsynced write anything may be left, sector by sector. Bytes outside it never change.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use rand::rngs::SmallRng;
use rand::{Rng, RngExt, SeedableRng};

use super::{Device, Disk, File, Files, Job, Space};

/// What a real disk writes or loses as one.
const SECTOR: usize = 512;

/// A data directory in memory. Clones are the same one.
#[derive(Clone)]
pub struct MemoryDisk(Arc<Mutex<Machine>>);

/// Faults to come. All off by default.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// The power fails when so many more changing operations (write, sync, create, rename, remove, …) have begun.
    pub power_after: Option<u64>,
    /// The sync that is reached after so many good ones fails, and those that follow do not: what it was to make durable
    /// is lost at the next crash all the same, as on Linux.
    pub sync_fails_after: Option<u64>,
    /// Reads of files whose path contains this text fail.
    pub unreadable: Option<String>,
    /// The most bytes that all files may have together.
    pub capacity: Option<u64>,
    /// The shortest and the longest that a job takes, in virtual time.
    pub latency: Option<(Duration, Duration)>,
}

#[derive(Clone)]
struct Machine {
    /// Which start of the machine this is; handles of an earlier one are dead.
    boot: u64,
    mounted: bool,
    dead: bool,
    faults: Faults,
    random: SmallRng,
    changes: u64,
    syncs: u64,
    inodes: BTreeMap<u64, Inode>,
    next_inode: u64,
    names: BTreeMap<String, Node>,
    durable_names: BTreeMap<String, Node>,
    /// Changes of names that no sync of their directory covers yet, in order.
    pending_names: Vec<Renaming>,
}

#[derive(Clone, Copy, PartialEq)]
enum Node {
    Dir,
    File(u64),
}

#[derive(Clone)]
struct Renaming {
    dir: String,
    take: Option<String>,
    put: Option<(String, Node)>,
}

#[derive(Clone, Default)]
struct Inode {
    now: Vec<u8>,
    durable: Vec<u8>,
    pending: Vec<Write>,
}

#[derive(Clone)]
enum Write {
    Bytes { at: usize, bytes: Vec<u8> },
    Len(usize),
}

#[derive(Debug)]
struct Mount {
    disk: MemoryDisk,
    boot: u64,
}

struct MemoryFile {
    disk: MemoryDisk,
    boot: u64,
    inode: u64,
    path: String,
}

impl fmt::Debug for MemoryDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MemoryDisk")
    }
}

impl MemoryDisk {
    /// An empty disk, whose faults are drawn from the seed.
    pub fn new(seed: u64) -> Self {
        MemoryDisk(Arc::new(Mutex::new(Machine {
            boot: 0,
            mounted: false,
            dead: false,
            faults: Faults::default(),
            random: SmallRng::seed_from_u64(seed),
            changes: 0,
            syncs: 0,
            inodes: BTreeMap::new(),
            next_inode: 1,
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            pending_names: Vec::new(),
        })))
    }

    /// Takes the disk into use, as a process that starts does.
    ///
    /// # Errors
    /// Another handle on it is still alive and no crash has ended it.
    pub fn mount(&self) -> io::Result<Disk> {
        let mut machine = self.lock();
        if machine.mounted {
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, "the data directory is in use"));
        }
        machine.mounted = true;
        machine.dead = false;
        let boot = machine.boot;
        drop(machine);
        Ok(Disk::new(Mount { disk: self.clone(), boot }))
    }

    /// Sets the faults from now on.
    pub fn set_faults(&self, faults: Faults) {
        self.lock().faults = faults;
    }

    /// The power fails: what was not synced is lost or torn, as the seed has it, and every handle is dead. The disk can be
    /// mounted again, without faults.
    pub fn crash(&self) {
        let mut machine = self.lock();
        machine.restart();
        machine.lose_names();
        let Machine { inodes, random, .. } = &mut *machine;
        for inode in inodes.values_mut() {
            inode.lose(random);
        }
        machine.forget_unnamed();
    }

    /// The process is killed, the machine goes on: every handle is dead, what was written stays.
    pub fn kill(&self) {
        self.lock().restart();
    }

    /// Whether a planned power failure has struck.
    pub fn is_dead(&self) -> bool {
        self.lock().dead
    }

    /// A copy that goes its own way, with a seed of its own.
    pub fn fork(&self, seed: u64) -> MemoryDisk {
        let mut machine = self.lock().clone();
        machine.restart();
        machine.random = SmallRng::seed_from_u64(seed);
        MemoryDisk(Arc::new(Mutex::new(machine)))
    }

    /// How many changing operations were begun so far.
    pub fn changes(&self) -> u64 {
        self.lock().changes
    }

    /// How many syncs of files and directories were asked for so far.
    pub fn syncs(&self) -> u64 {
        self.lock().syncs
    }

    /// The paths of all files, sorted.
    pub fn paths(&self) -> Vec<String> {
        let machine = self.lock();
        machine.names.iter().filter(|(_, node)| **node != Node::Dir).map(|(path, _)| path.clone()).collect()
    }

    /// A file's bytes as a reader sees them now; empty where there is no such file.
    pub fn bytes(&self, path: &str) -> Vec<u8> {
        let machine = self.lock();
        machine.inode_of(path).and_then(|inode| machine.inodes.get(&inode)).map(|i| i.now.clone()).unwrap_or_default()
    }

    /// Rot: puts other bytes into a file, behind everybody's back. Nothing happens where there is no such file.
    pub fn rot(&self, path: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let mut machine = self.lock();
        let Some(inode) = machine.inode_of(path) else { return };
        if let Some(inode) = machine.inodes.get_mut(&inode) {
            change(&mut inode.now);
            inode.durable = inode.now.clone();
            inode.pending.clear();
        }
    }

    /// Rot: turns one bit over.
    pub fn flip_bit(&self, path: &str, bit: usize) {
        self.rot(path, |bytes| bytes[bit / 8] ^= 1 << (bit % 8));
    }

    fn lock(&self) -> MutexGuard<'_, Machine> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let mut machine = self.disk.lock();
        if machine.boot == self.boot {
            machine.mounted = false;
        }
    }
}

#[async_trait]
impl Device for Mount {
    async fn submit(&self, job: Job) -> io::Result<()> {
        let waits = {
            let machine = &mut *self.disk.lock();
            machine.faults.latency.map(|(least, most)| {
                // Part of the time passes before the work and part after it, so that a crash can fall on either side.
                let micros = machine.random.random_range(least.as_micros()..=most.as_micros()) as u64;
                let before = machine.random.random_range(0..=micros);
                (Duration::from_micros(before), Duration::from_micros(micros - before))
            })
        };
        if let Some((before, _)) = waits {
            tokio::time::sleep(before).await;
        }
        job(self);
        if let Some((_, after)) = waits {
            tokio::time::sleep(after).await;
        }
        Ok(())
    }
}

impl Machine {
    fn restart(&mut self) {
        self.boot += 1;
        self.mounted = false;
        self.dead = false;
        self.faults = Faults::default();
    }

    /// Before an operation that changes nothing.
    fn alive(&self, boot: u64) -> io::Result<()> {
        if self.dead || self.boot != boot { Err(io::Error::other("the machine has no power")) } else { Ok(()) }
    }

    /// Before an operation that changes something.
    fn change(&mut self, boot: u64) -> io::Result<()> {
        self.alive(boot)?;
        self.changes += 1;
        if let Some(left) = &mut self.faults.power_after {
            match left.checked_sub(1) {
                Some(less) => *left = less,
                None => self.dead = true,
            }
        }
        self.alive(boot)
    }

    /// Before a sync.
    fn sync(&mut self, boot: u64) -> io::Result<bool> {
        self.change(boot)?;
        self.syncs += 1;
        Ok(match &mut self.faults.sync_fails_after {
            None => true,
            Some(0) => {
                self.faults.sync_fails_after = None;
                false
            }
            Some(left) => {
                *left -= 1;
                true
            }
        })
    }

    fn inode_of(&self, path: &str) -> Option<u64> {
        match self.names.get(path) {
            Some(Node::File(inode)) => Some(*inode),
            _ => None,
        }
    }

    fn file(&mut self, inode: u64) -> &mut Inode {
        self.inodes.entry(inode).or_default()
    }

    fn rename(&mut self, take: Option<&str>, put: Option<(&str, Node)>) {
        let dir = take.or(put.map(|(path, _)| path)).map(parent).unwrap_or_default().to_string();
        let renaming =
            Renaming { dir, take: take.map(String::from), put: put.map(|(path, node)| (path.to_string(), node)) };
        renaming.enter(&mut self.names);
        self.pending_names.push(renaming);
    }

    fn has_dir(&self, dir: &str) -> io::Result<()> {
        if dir.is_empty() || self.names.get(dir) == Some(&Node::Dir) { Ok(()) } else { Err(missing(dir)) }
    }

    /// Of each directory's unsynced changes of names, the first few survive.
    fn lose_names(&mut self) {
        let mut kept: BTreeMap<String, u64> = BTreeMap::new();
        for renaming in &self.pending_names {
            *kept.entry(renaming.dir.clone()).or_default() += 1;
        }
        for count in kept.values_mut() {
            *count = self.random.random_range(0..=*count);
        }
        for renaming in std::mem::take(&mut self.pending_names) {
            if let Some(left) = kept.get_mut(&renaming.dir).filter(|left| **left > 0) {
                *left -= 1;
                renaming.enter(&mut self.durable_names);
            }
        }
        self.names = self.durable_names.clone();
    }

    fn forget_unnamed(&mut self) {
        let dirs: Vec<String> = self.names.iter().filter(|(_, n)| **n == Node::Dir).map(|(p, _)| p.clone()).collect();
        self.names.retain(|path, _| parent(path).is_empty() || dirs.iter().any(|dir| dir == parent(path)));
        self.durable_names = self.names.clone();
        let names = &self.names;
        self.inodes.retain(|inode, _| names.values().any(|node| *node == Node::File(*inode)));
    }
}

impl Renaming {
    fn enter(&self, names: &mut BTreeMap<String, Node>) {
        if let Some(path) = &self.take {
            names.remove(path);
        }
        if let Some((path, node)) = &self.put {
            names.insert(path.clone(), *node);
        }
    }
}

impl Inode {
    /// What is left of the unsynced writes after a loss of power.
    fn lose(&mut self, random: &mut SmallRng) {
        let pending = std::mem::take(&mut self.pending);
        let kind = random.random_range(0..4);
        let upto = random.random_range(0..=pending.len());
        for (place, write) in pending.into_iter().enumerate() {
            match kind {
                // Nothing arrived.
                0 => break,
                // All did.
                1 => write.enter(&mut self.durable),
                // The first few did, and a part of the next.
                2 if place < upto => write.enter(&mut self.durable),
                2 => {
                    write.first_part(random).enter(&mut self.durable);
                    break;
                }
                // Each sector for itself.
                _ => write.scattered(random, &mut self.durable),
            }
        }
        self.now = self.durable.clone();
    }
}

impl Write {
    fn enter(&self, into: &mut Vec<u8>) {
        match self {
            Write::Len(len) => into.resize(*len, 0),
            Write::Bytes { at, bytes } => {
                let end = at + bytes.len();
                if into.len() < end {
                    into.resize(end, 0);
                }
                into[*at..end].copy_from_slice(bytes);
            }
        }
    }

    fn first_part(self, random: &mut SmallRng) -> Write {
        match self {
            Write::Bytes { at, mut bytes } => {
                bytes.truncate(random.random_range(0..=bytes.len()));
                Write::Bytes { at, bytes }
            }
            len => len,
        }
    }

    fn scattered(self, random: &mut SmallRng, into: &mut Vec<u8>) {
        let Write::Bytes { at, bytes } = self else {
            self.enter(into);
            return;
        };
        let mut from = 0;
        while from < bytes.len() {
            let sector_end = ((at + from) / SECTOR + 1) * SECTOR - at;
            let to = sector_end.min(bytes.len());
            let mut piece = bytes[from..to].to_vec();
            match random.random_range(0..8) {
                0..=3 => Write::Bytes { at: at + from, bytes: piece }.enter(into),
                4 => {
                    random.fill_bytes(&mut piece);
                    Write::Bytes { at: at + from, bytes: piece }.enter(into);
                }
                _ => {}
            }
            from = to;
        }
    }
}

impl Files for Mount {
    fn create(&self, path: &str) -> io::Result<Box<dyn File>> {
        let mut machine = self.disk.lock();
        machine.change(self.boot)?;
        machine.has_dir(parent(path))?;
        if machine.names.contains_key(path) {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, format!("{path} is there already")));
        }
        let inode = machine.next_inode;
        machine.next_inode += 1;
        machine.inodes.insert(inode, Inode::default());
        machine.rename(None, Some((path, Node::File(inode))));
        Ok(Box::new(MemoryFile { disk: self.disk.clone(), boot: self.boot, inode, path: path.to_string() }))
    }

    fn open(&self, path: &str) -> io::Result<Box<dyn File>> {
        let machine = self.disk.lock();
        machine.alive(self.boot)?;
        let inode = machine.inode_of(path).ok_or_else(|| missing(path))?;
        Ok(Box::new(MemoryFile { disk: self.disk.clone(), boot: self.boot, inode, path: path.to_string() }))
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        let machine = self.disk.lock();
        machine.alive(self.boot)?;
        machine.has_dir(dir)?;
        let of_dir = machine.names.keys().filter(|path| parent(path) == dir);
        Ok(of_dir.map(|path| path.rsplit('/').next().unwrap_or(path).to_string()).collect())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut machine = self.disk.lock();
        machine.change(self.boot)?;
        let node = *machine.names.get(from).ok_or_else(|| missing(from))?;
        if parent(from) != parent(to) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a rename stays in its directory"));
        }
        machine.rename(Some(from), Some((to, node)));
        Ok(())
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        let mut machine = self.disk.lock();
        machine.change(self.boot)?;
        machine.inode_of(path).ok_or_else(|| missing(path))?;
        machine.rename(Some(path), None);
        Ok(())
    }

    fn make_dir(&self, dir: &str) -> io::Result<()> {
        let mut machine = self.disk.lock();
        machine.change(self.boot)?;
        let mut made = String::new();
        for part in dir.split('/') {
            made = if made.is_empty() { part.to_string() } else { format!("{made}/{part}") };
            if !machine.names.contains_key(&made) {
                machine.rename(None, Some((&made, Node::Dir)));
            }
        }
        Ok(())
    }

    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        let mut machine = self.disk.lock();
        let good = machine.sync(self.boot)?;
        machine.has_dir(dir)?;
        let (of_dir, others) = std::mem::take(&mut machine.pending_names).into_iter().partition(|r| r.dir == dir);
        machine.pending_names = others;
        if !good {
            return Err(io::Error::other("the sync failed (injected)"));
        }
        let of_dir: Vec<Renaming> = of_dir;
        of_dir.iter().for_each(|renaming| renaming.enter(&mut machine.durable_names));
        Ok(())
    }

    fn space(&self) -> io::Result<Space> {
        let machine = self.disk.lock();
        machine.alive(self.boot)?;
        let total = machine.faults.capacity.unwrap_or(1 << 40);
        let used: u64 = machine.inodes.values().map(|inode| inode.now.len() as u64).sum();
        Ok(Space { free: total.saturating_sub(used), total })
    }
}

impl MemoryFile {
    fn write(&self, write: Write) -> io::Result<()> {
        let mut machine = self.disk.lock();
        machine.change(self.boot)?;
        let now = machine.file(self.inode).now.len();
        let then = match &write {
            Write::Bytes { at, bytes } => now.max(at + bytes.len()),
            Write::Len(len) => *len,
        };
        if let Some(capacity) = machine.faults.capacity {
            let used: u64 = machine.inodes.values().map(|inode| inode.now.len() as u64).sum();
            if then > now && used + (then - now) as u64 > capacity {
                return Err(io::Error::new(io::ErrorKind::StorageFull, "no space left on the disk (injected)"));
            }
        }
        let file = machine.file(self.inode);
        write.enter(&mut file.now);
        file.pending.push(write);
        Ok(())
    }
}

impl File for MemoryFile {
    fn len(&self) -> io::Result<u64> {
        let mut machine = self.disk.lock();
        machine.alive(self.boot)?;
        Ok(machine.file(self.inode).now.len() as u64)
    }

    fn read_at(&self, at: u64, into: &mut [u8]) -> io::Result<usize> {
        let mut machine = self.disk.lock();
        machine.alive(self.boot)?;
        if machine.faults.unreadable.as_ref().is_some_and(|part| self.path.contains(part)) {
            return Err(io::Error::other("the disk cannot read this (injected)"));
        }
        let now = &machine.file(self.inode).now;
        let from = now.len().min(at as usize);
        let read = into.len().min(now.len() - from);
        into[..read].copy_from_slice(&now[from..from + read]);
        Ok(read)
    }

    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.write(Write::Bytes { at: at as usize, bytes: bytes.to_vec() })
    }

    fn sync(&self) -> io::Result<()> {
        let mut machine = self.disk.lock();
        let good = machine.sync(self.boot)?;
        let file = machine.file(self.inode);
        let pending = std::mem::take(&mut file.pending);
        if !good {
            return Err(io::Error::other("the sync failed (injected)"));
        }
        pending.iter().for_each(|write| write.enter(&mut file.durable));
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.write(Write::Len(len as usize))
    }
}

fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(dir, _)| dir)
}

fn missing(path: &str) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("{path} is not there"))
}

#[cfg(test)]
mod tests;
