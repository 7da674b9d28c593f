//! Snapshots: a shard's state as a stream of checked blocks.
//!
//! ```text
//! snapshot = "QSNP"  version:u32  block*
//! block    = length:u32  section:u32  number:u32  crc:u32  payload
//! ```
//!
//! The crc is over length, section, number and payload; blocks are numbered from 0, so that none is lost, doubled or moved. A
//! section is the payloads of all blocks that carry its number; sections that a reader does not know are skipped. The last
//! block holds the digest: a reader computes it again from what it read, and loads nothing unless the two are equal. So a
//! snapshot that was cut, damaged or put together wrongly is an error, never a state.
//!
//! What is in a section goes in the order of keys and ids: equal states have equal snapshots. Neither writer nor reader holds
//! more than a block in memory besides the state itself.

use std::io::{self, Read, Write};
use std::sync;

use smallvec::SmallVec;

use crate::codec::state::{
    get_bounds, get_entry, get_key, get_policy, get_policy_set, get_position, put_bounds, put_entry, put_key,
    put_policy, put_policy_set, put_position,
};
use crate::codec::{DecodeError, Reader, put_fixed, put_int, put_part, put_uint};
use crate::digest::{Digest, Sum};
use crate::ids::{Index, PolicyId, Sequence, SessionId, ShardId};
use crate::installed::{Installed, Past, Rule};
use crate::resets::{Reset, Resets};
use crate::ring::Arc;
use crate::session::{Frame, Session, Sessions};
use crate::shard::{Round, Shard, Sweep};
use crate::table::{Key, Table};
use crate::units::Stamp;

const MAGIC: [u8; 4] = *b"QSNP";
const VERSION: u32 = 1;
/// A block is written when it holds this much; one key's log or one frame's answers may make it longer.
const BLOCK: usize = 64 << 10;
/// The longest payload that a reader takes.
const BLOCK_MAX: u32 = 64 << 20;

const HEAD: u32 = 1;
const POLICIES: u32 = 2;
const KEYS: u32 = 3;
const RESETS: u32 = 4;
const SESSIONS: u32 = 5;
const FRAMES: u32 = 6;
const END: u32 = u32::MAX;

/// Why a snapshot was not loaded.
///
/// ```
/// use quorate_core::{Shard, SnapshotError};
/// let error = Shard::restore(&mut &b"something else"[..]).unwrap_err();
/// assert!(matches!(error, SnapshotError::NotASnapshot));
/// ```
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// It could not be read.
    #[error("the snapshot could not be read; look to the disk or the network, then try again")]
    Io(#[source] io::Error),
    /// It does not begin as a snapshot does.
    #[error("this is no snapshot of a shard; take another file")]
    NotASnapshot,
    /// A version of the format that this build does not know.
    #[error("version {0} of the snapshot format is not known to this build; upgrade this node")]
    Version(u32),
    /// It ends too early.
    #[error("the snapshot ends too early, after block {0}; fetch it again from another replica")]
    Cut(u32),
    /// A block's checksum is wrong, or it is out of place.
    #[error("block {0} of the snapshot is damaged; fetch it again from another replica")]
    Damaged(u32),
    /// A block holds what it should not.
    #[error("block {block} of the snapshot makes no sense: {source}")]
    Malformed {
        /// The block's number.
        block: u32,
        /// What is wrong with it.
        source: DecodeError,
    },
    /// Its parts do not fit together.
    #[error("the snapshot does not fit together ({0}); fetch it again from another replica")]
    Inconsistent(&'static str),
    /// Its digest is not that of the state in it.
    #[error("the snapshot's digest is {said}, its state's is {is}; fetch it again from another replica")]
    Digest {
        /// What it says.
        said: Digest,
        /// What it comes to.
        is: Digest,
    },
}

/// A shard's state at one moment, to be written as a snapshot while the shard goes on.
///
/// ```
/// use quorate_core::{Arc, Shard, ShardId};
/// let shard = Shard::new(ShardId(1), Arc::WHOLE);
/// let mut bytes = vec![];
/// shard.capture().write(&mut bytes).unwrap();
/// assert_eq!(Shard::restore(&mut bytes.as_slice()).unwrap().digest(), shard.digest());
/// ```
#[derive(Debug)]
pub struct Image {
    shard: Shard,
    digest: Digest,
}

impl Shard {
    /// The state as it is now. Costs some microseconds and a few thousand counters, whatever the size of the state: what the
    /// shard changes afterwards, it copies first.
    pub fn capture(&self) -> Image {
        #[cfg(feature = "planted")]
        if crate::planted::is(crate::planted::Planted::SnapshotDropsKey) {
            let mut shard = self.fork();
            let first = shard.table.from(Key::default()).next().map(|(key, _)| key);
            if let Some(key) = first
                && let Some((had, _)) = shard.table.take(key)
            {
                shard.table.remove(key);
                shard.installed.leave(key.policy, had.generation);
            }
            let digest = shard.digest();
            return Image { shard, digest };
        }
        Image { shard: self.fork(), digest: self.digest() }
    }

    /// Reads a shard from a snapshot that [`Image::write`] wrote. Reads no byte beyond its end.
    ///
    /// # Errors
    /// Where anything at all is wrong with it: nothing is loaded then. [`SnapshotError`] says what to do.
    pub fn restore(from: &mut dyn Read) -> Result<Shard, SnapshotError> {
        let mut blocks = BlockReader::new(from)?;
        let mut building = Building::default();
        loop {
            let section = blocks.next()?;
            let block = blocks.number - 1;
            let read = building.read(section, &mut Reader::new(&blocks.payload));
            match read.map_err(|source| SnapshotError::Malformed { block, source })? {
                None => {}
                Some(said) => return building.finish(said),
            }
        }
    }
}

impl Image {
    /// The digest of the state.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// The state's logical time.
    pub fn stamp(&self) -> Stamp {
        self.shard.stamp()
    }

    /// How many keys the state holds.
    pub fn keys(&self) -> u64 {
        self.shard.keys()
    }

    /// About how many bytes the snapshot will have, rather too many than too few.
    pub fn size_hint(&self) -> u64 {
        let usage = self.shard.usage();
        4096 + 48 * usage.keys + 40 * usage.resets + 2 * usage.log_bytes + usage.session_bytes
    }

    /// Writes the snapshot, a block at a time. Every key is hashed anew meanwhile.
    ///
    /// # Errors
    /// Where `to` does, or where the state in memory is not what its digest says: memory was damaged, and this replica has to
    /// be rebuilt from the others.
    pub fn write(&self, to: &mut dyn Write) -> io::Result<()> {
        to.write_all(&MAGIC)?;
        to.write_all(&VERSION.to_le_bytes())?;
        let mut blocks = BlockWriter { to, payload: Vec::with_capacity(BLOCK + 4096), number: 0 };
        let shard = &self.shard;
        put_head(&mut blocks.payload, shard);
        blocks.flush(HEAD)?;
        put_policies(&mut blocks.payload, &shard.installed);
        blocks.flush(POLICIES)?;
        let mut sum = Sum::default();
        for (key, entry) in shard.table.from(Key::default()) {
            sum.add(Table::hash(key, &entry));
            put_entry(&mut blocks.payload, key, &entry);
            blocks.flush_if_full(KEYS)?;
        }
        blocks.flush(KEYS)?;
        if sum != shard.table.sum() {
            let message = "the keys in memory are not what their digest says: rebuild this replica from the others";
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
        for (key, reset) in shard.resets.from(Key::default()) {
            put_key(&mut blocks.payload, key);
            put_position(&mut blocks.payload, reset.at);
            put_int(&mut blocks.payload, reset.until.0);
            blocks.flush_if_full(RESETS)?;
        }
        blocks.flush(RESETS)?;
        for session in shard.sessions.iter() {
            put_session(&mut blocks.payload, session);
            blocks.flush_if_full(SESSIONS)?;
        }
        blocks.flush(SESSIONS)?;
        for session in shard.sessions.iter() {
            for frame in &session.frames {
                put_frame(&mut blocks.payload, session.id, frame);
                blocks.flush_if_full(FRAMES)?;
            }
        }
        blocks.flush(FRAMES)?;
        blocks.payload.extend_from_slice(&self.digest.0.to_le_bytes());
        blocks.flush(END)
    }
}

struct BlockWriter<'a> {
    to: &'a mut dyn Write,
    payload: Vec<u8>,
    number: u32,
}

impl BlockWriter<'_> {
    fn flush_if_full(&mut self, section: u32) -> io::Result<()> {
        if self.payload.len() >= BLOCK { self.flush(section) } else { Ok(()) }
    }

    fn flush(&mut self, section: u32) -> io::Result<()> {
        if self.payload.is_empty() {
            return Ok(());
        }
        let header = header(self.payload.len() as u32, section, self.number);
        self.to.write_all(&header)?;
        self.to.write_all(&crc(&header, &self.payload).to_le_bytes())?;
        self.to.write_all(&self.payload)?;
        self.payload.clear();
        self.payload.shrink_to(2 * BLOCK);
        self.number += 1;
        Ok(())
    }
}

fn header(length: u32, section: u32, number: u32) -> [u8; 12] {
    let mut header = [0; 12];
    header[..4].copy_from_slice(&length.to_le_bytes());
    header[4..8].copy_from_slice(&section.to_le_bytes());
    header[8..].copy_from_slice(&number.to_le_bytes());
    header
}

fn crc(header: &[u8], payload: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(header);
    crc.update(payload);
    crc.finalize()
}

struct BlockReader<'a> {
    from: &'a mut dyn Read,
    payload: Vec<u8>,
    number: u32,
}

impl<'a> BlockReader<'a> {
    fn new(from: &'a mut dyn Read) -> Result<Self, SnapshotError> {
        let mut reader = BlockReader { from, payload: Vec::new(), number: 0 };
        if reader.array::<4>()? != MAGIC {
            return Err(SnapshotError::NotASnapshot);
        }
        match u32::from_le_bytes(reader.array()?) {
            VERSION => Ok(reader),
            other => Err(SnapshotError::Version(other)),
        }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], SnapshotError> {
        let mut bytes = [0; N];
        self.from.read_exact(&mut bytes).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => SnapshotError::Cut(self.number),
            _ => SnapshotError::Io(error),
        })?;
        Ok(bytes)
    }

    /// Reads the next block into `payload`, checked; its section.
    fn next(&mut self) -> Result<u32, SnapshotError> {
        let read: [u8; 12] = self.array()?;
        let word = |at: usize| u32::from_le_bytes([read[at], read[at + 1], read[at + 2], read[at + 3]]);
        let (length, section, number) = (word(0), word(4), word(8));
        let said = u32::from_le_bytes(self.array()?);
        if length > BLOCK_MAX || number != self.number {
            return Err(SnapshotError::Damaged(self.number));
        }
        self.payload.clear();
        // Grows as the bytes come, so that a length alone reserves nothing.
        self.from.take(length.into()).read_to_end(&mut self.payload).map_err(SnapshotError::Io)?;
        if self.payload.len() < length as usize {
            return Err(SnapshotError::Cut(self.number));
        }
        if crc(&read, &self.payload) != said {
            return Err(SnapshotError::Damaged(self.number));
        }
        self.number += 1;
        Ok(section)
    }
}

/// A shard that is being read.
#[derive(Default)]
struct Building {
    shard: Option<Shard>,
    sessions: Vec<Session>,
    /// What does not fit together, if anything does not.
    misfit: Option<&'static str>,
}

impl Building {
    /// Reads a block of a section; the digest that the snapshot says it has, at its end.
    fn read(&mut self, section: u32, from: &mut Reader<'_>) -> Result<Option<Digest>, DecodeError> {
        if section == HEAD {
            self.shard = Some(get_head(from)?);
            return Ok(None);
        }
        let Some(shard) = &mut self.shard else {
            self.misfit = Some("it does not begin with its head");
            return Ok(None);
        };
        match section {
            POLICIES => match get_policies(from)? {
                Some(installed) => shard.installed = installed,
                None => self.misfit = Some("its policies"),
            },
            KEYS => {
                while from.left() > 0 {
                    if !read_key(shard, from)? {
                        self.misfit = Some("its keys");
                    }
                }
            }
            RESETS => {
                while from.left() > 0 {
                    let key = get_key(from)?;
                    let at = get_position(from)?;
                    shard.resets.put(key, Reset { at, until: Stamp(from.int()?) });
                }
            }
            SESSIONS => {
                while from.left() > 0 {
                    self.sessions.push(get_session(from)?);
                }
            }
            FRAMES => {
                while from.left() > 0 {
                    let (id, frame) = get_frame(from)?;
                    match self.sessions.binary_search_by_key(&id, |session| session.id) {
                        Ok(at) => self.sessions[at].frames.push_back(frame),
                        Err(_) => self.misfit = Some("its frames"),
                    }
                }
            }
            END => {
                let (low, high) = (from.fixed()?, from.fixed()?);
                return Ok(Some(Digest(u128::from(high) << 64 | u128::from(low))));
            }
            _ => {}
        }
        Ok(None)
    }

    fn finish(self, said: Digest) -> Result<Shard, SnapshotError> {
        let mut shard = self.shard.ok_or(SnapshotError::Inconsistent("it has no head"))?;
        if let Some(misfit) = self.misfit {
            return Err(SnapshotError::Inconsistent(misfit));
        }
        for session in self.sessions {
            if !shard.sessions.restore(session) {
                return Err(SnapshotError::Inconsistent("its sessions"));
            }
        }
        let is = shard.digest();
        if is == said { Ok(shard) } else { Err(SnapshotError::Digest { said, is }) }
    }
}

/// Reads a key with its state; false where it cannot be one of this shard.
fn read_key(shard: &mut Shard, from: &mut Reader<'_>) -> Result<bool, DecodeError> {
    let (key, entry) = get_entry(from)?;
    if shard.table.has(key) {
        return Ok(false);
    }
    if let Some(at) = shard.installed.find(key.policy)
        && !shard.installed.enter(at, entry.generation)
    {
        return Ok(false);
    }
    shard.table.put(key, entry.generation, entry.state.into_owned());
    Ok(true)
}

fn put_head(out: &mut Vec<u8>, shard: &Shard) {
    put_uint(out, shard.shard.0.into());
    put_fixed(out, shard.arc.start);
    put_fixed(out, shard.arc.end_inclusive);
    put_int(out, shard.stamp.0);
    put_part(out, |out| put_bounds(out, &shard.bounds));
    put_uint(out, shard.sessions.next());
    put_uint(out, shard.evicted);
    for round in [&shard.sweep.keys, &shard.sweep.resets] {
        put_key(out, round.cursor);
        put_int(out, round.due.0);
        put_int(out, round.passed.0);
    }
    put_uint(out, shard.sweep.credit);
    put_uint(out, shard.sweep.most);
}

fn get_head(from: &mut Reader<'_>) -> Result<Shard, DecodeError> {
    let id = ShardId(from.uint32("a shard's number")?);
    let mut shard = Shard::new(id, Arc { start: from.fixed()?, end_inclusive: from.fixed()? });
    shard.stamp = Stamp(from.int()?);
    if !(0..=crate::caps::LONGEST_US).contains(&shard.stamp.0) {
        return Err(DecodeError::OutOfBounds("a stamp"));
    }
    shard.bounds = get_bounds(&mut from.part()?)?;
    shard.sessions = Sessions::restored(id, from.uint()?);
    shard.evicted = from.uint()?;
    let mut round = || Ok(Round { cursor: get_key(from)?, due: Stamp(from.int()?), passed: Stamp(from.int()?) });
    let (keys, resets) = (round()?, round()?);
    shard.sweep = Sweep { keys, resets, credit: from.uint()?, most: from.uint()? };
    (shard.table, shard.resets) = (Table::default(), Resets::default());
    Ok(shard)
}

fn put_policies(out: &mut Vec<u8>, installed: &Installed) {
    put_uint(out, installed.highest().0.into());
    put_part(out, |out| put_policy_set(out, installed.set()));
    for rule in installed.rules() {
        put_part(out, |out| {
            put_uint(out, rule.generation);
            put_position(out, rule.gone_before);
            put_uint(out, rule.past.len() as u64);
            for past in &rule.past {
                put_part(out, |out| {
                    put_int(out, past.until.0);
                    put_part(out, |out| put_policy(out, &past.policy));
                });
            }
        });
    }
}

/// Counts of keys are left at 0: they are counted again as the keys are read.
fn get_policies(from: &mut Reader<'_>) -> Result<Option<Installed>, DecodeError> {
    let highest = PolicyId(from.uint32("a policy's id")?);
    let set = get_policy_set(&mut from.part()?)?;
    let mut rules = Vec::with_capacity(set.policies.len());
    for policy in &set.policies {
        let part = &mut from.part()?;
        let (generation, gone_before) = (part.uint()?, get_position(part)?);
        let mut past = std::collections::VecDeque::new();
        for _ in 0..part.count(4)? {
            let part = &mut part.part()?;
            let until = Stamp(part.int()?);
            past.push_back(Past { until, policy: get_policy(&mut part.part()?)?, keys: 0 });
        }
        rules.push(Rule { id: policy.id, generation, keys: 0, past, gone_before });
    }
    Ok(Installed::restored(set, rules, highest))
}

fn put_session(out: &mut Vec<u8>, session: &Session) {
    put_part(out, |out| {
        put_uint(out, session.id.0);
        put_uint(out, session.lowest.0);
        put_uint(out, session.used.0);
        put_int(out, session.used_at.0);
    });
}

fn get_session(from: &mut Reader<'_>) -> Result<Session, DecodeError> {
    let from = &mut from.part()?;
    let (id, lowest) = (SessionId(from.uint()?), Sequence(from.uint()?));
    let (used, used_at) = (Index(from.uint()?), Stamp(from.int()?));
    Ok(Session { id, lowest, used, used_at, frames: Default::default(), filed: used })
}

fn put_frame(out: &mut Vec<u8>, session: SessionId, frame: &Frame) {
    put_uint(out, session.0);
    put_uint(out, frame.sequence.0);
    put_uint(out, frame.runs.len() as u64);
    for run in &frame.runs {
        put_part(out, |out| out.extend_from_slice(run));
    }
}

fn get_frame(from: &mut Reader<'_>) -> Result<(SessionId, Frame), DecodeError> {
    let (session, sequence) = (SessionId(from.uint()?), Sequence(from.uint()?));
    let count = from.count(1)?;
    let mut runs = SmallVec::with_capacity(count);
    for _ in 0..count {
        let part = from.part()?;
        runs.push(sync::Arc::from(part.rest()));
    }
    Ok((session, Frame { sequence, runs }))
}
