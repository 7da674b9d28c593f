//! Reading a log from its files: for a node that starts, and for one who only looks.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use quorate_core::GroupId;

use super::error::LogError;
use super::record::SegmentId;
use super::replay::{Replay, ReplayedGroup};
use super::scan::{End, Records};
use super::segment::{DIR, HEAD, Head, SPARE};
use crate::disk::{File, Files};
use crate::identity::Identity;

/// A log as its files have it.
pub(crate) struct Loaded {
    /// Whose it is.
    pub(crate) identity: Identity,
    pub(crate) groups: BTreeMap<GroupId, ReplayedGroup>,
    /// All segments, the oldest first; at least one.
    pub(crate) segments: Vec<LoadedSegment>,
    /// What an interrupted write left after the last record of the last segment: from where to where.
    pub(crate) torn: Option<(u32, u64)>,
}

pub(crate) struct LoadedSegment {
    pub(crate) id: SegmentId,
    pub(crate) file: Arc<dyn File>,
    pub(crate) size: u64,
    pub(crate) base: u32,
    /// Where its records end.
    pub(crate) end: u32,
}

/// Reads all segments; none if there is no log. Changes nothing. `expected` is who may read it; anyone if none.
pub(crate) fn load(files: &dyn Files, expected: Option<Identity>) -> Result<Option<Loaded>, LogError> {
    let ids = segment_ids(files)?;
    let Some((oldest, last)) = ids.first().copied().zip(ids.last().copied()) else { return Ok(None) };
    let present = ids.len() as u64;
    if present != u64::from(last.0 - oldest.0) + 1 {
        let what = format!("of its segments {} to {}, only {present} are there", oldest.path(), last.path());
        return Err(LogError::Incomplete { what });
    }
    let mut replay = Replay::default();
    let mut segments: Vec<LoadedSegment> = Vec::new();
    let mut heads = Vec::new();
    for id in ids {
        let file: Arc<dyn File> = files.open(&id.path()).map(Arc::from).map_err(LogError::disk("opening a segment"))?;
        let bytes = file.read_exact_at(0, HEAD.min(length(&*file)? as usize));
        let bytes = bytes.map_err(LogError::disk("reading a segment's head"))?;
        heads.push((file, bytes));
    }
    for (place, (file, _)) in heads.iter().enumerate() {
        let id = SegmentId(oldest.0 + place as u32);
        let size = length(&**file)?;
        let bytes = file.read_exact_at(0, size as usize).map_err(LogError::disk("reading a segment"))?;
        let head = Head::decode(&bytes, id, expected)?;
        // The next segment says where this one ends, and was begun when this one was synced.
        let sealed_at = match heads.get(place + 1) {
            Some((_, next)) => Some(Head::decode(next, id.next(), expected)?.previous_end),
            None => None,
        };
        let (end, tear) = read_segment(&bytes, head, sealed_at, &mut replay)?;
        segments.push(LoadedSegment { id, file: file.clone(), size, base: head.base, end });
        if place + 1 == heads.len() {
            let torn = tear.map(|upto| (end, upto as u64));
            return Ok(Some(Loaded { identity: head.identity, groups: replay.finish()?, segments, torn }));
        }
    }
    Ok(None)
}

fn length(file: &dyn File) -> Result<u64, LogError> {
    file.len().map_err(LogError::disk("opening a segment"))
}

fn segment_ids(files: &dyn Files) -> Result<Vec<SegmentId>, LogError> {
    let names = match files.list(DIR) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => vec![],
        names => names.map_err(LogError::disk("listing the segments"))?,
    };
    Ok(names.iter().filter_map(|name| SegmentId::from_name(name)).collect())
}

/// Follows a segment's records. Where they end, and up to where an interrupted write left something after them.
fn read_segment(
    bytes: &[u8],
    head: Head,
    sealed_at: Option<u32>,
    replay: &mut Replay,
) -> Result<(u32, Option<usize>), LogError> {
    let rotten = |offset: usize, why: &str| LogError::Rotten {
        file: head.segment.path(),
        offset: offset as u64,
        why: why.to_string(),
    };
    if bytes.len() < head.size as usize {
        return Err(rotten(bytes.len(), "it was cut short"));
    }
    // What is known to have been on disk: the state of every group, and all of a segment that has a successor.
    let known = sealed_at.unwrap_or(head.base).max(head.base) as usize;
    let mut records = Records::new(bytes, head.segment, HEAD);
    while sealed_at.is_none_or(|end| records.offset() < end as usize) {
        let Some(found) = records.next() else { break };
        replay.enter(head.segment, &found).map_err(|why| rotten(found.offset as usize, &why))?;
    }
    let at = records.offset();
    if at < known {
        return Err(rotten(at, records.why()));
    }
    if sealed_at.is_some() {
        return if at == known { Ok((at as u32, None)) } else { Err(rotten(at, "it goes on where it should end")) };
    }
    match records.end() {
        End::Clean => Ok((at as u32, None)),
        End::Torn { upto } => Ok((at as u32, Some(upto))),
        End::Rotten { why } => Err(rotten(at, why)),
    }
}

/// Makes what was read the durable truth, and the files as a writer wants them: nothing is left of an interrupted write,
/// nor of a segment that was being prepared. Syncs what a process that was killed may have left unsynced.
pub(crate) fn make_good(files: &dyn Files, loaded: &Loaded) -> Result<(), LogError> {
    let done = || {
        if files.list(DIR)?.iter().any(|name| SPARE.ends_with(name)) {
            files.remove(SPARE)?;
        }
        let Some(last) = loaded.segments.last() else { return Ok(()) };
        if let Some((from, upto)) = loaded.torn {
            let mut at = u64::from(from);
            while at < upto {
                let piece = (upto - at).min(1 << 20);
                last.file.write_at(at, &vec![0; piece as usize])?;
                at += piece;
            }
        }
        last.file.sync()?;
        files.sync_dir(DIR)
    };
    done().map_err(LogError::disk("making the log's end good"))
}
