//! Finding out where a segment ends, and whether what ends it is a tear or rot.
//!
//! ```text
//!   ├── batch ──┼── batch ──┼── batch ──┤ zeros …
//!               ▲           ▲
//!               │           └ the records of the third batch say: synced up to here
//!               └ those of the second say: synced up to here
//! ```
//!
//! A batch is written only after the one before it is synced, and says so. So when a record is bad, and any valid record
//! after it says that the log was synced beyond the bad one, then the bad one had been on disk: rot. If none says so, the
//! bad record may belong to a write that was interrupted, which nobody was told is safe: a tear. The log ends there, and
//! what stands after it is overwritten with zeros before anything is appended, so that it can never come back.
//!
//! The last batch before a crash is vouched for by nobody; that is why a short idle writes a mark.

use super::record::{ALIGN, Found, HEAD, SegmentId, decode, u32_at};

/// The records of a segment, in order, up to the first that is none.
pub(crate) struct Records<'a> {
    bytes: &'a [u8],
    segment: SegmentId,
    at: usize,
}

/// What stands where the records end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Zeros only.
    Clean,
    /// Something that no one was told is safe, up to that offset.
    Torn { upto: usize },
    /// Something that had been on disk.
    Rotten { why: &'static str },
}

impl<'a> Records<'a> {
    /// Those from `base` on; `bytes` is the whole segment.
    pub(crate) fn new(bytes: &'a [u8], segment: SegmentId, base: usize) -> Self {
        Records { bytes, segment, at: base }
    }

    /// The next record; none where they end.
    pub(crate) fn next(&mut self) -> Option<Found<'a>> {
        let found = decode(self.bytes.get(self.at..)?, self.segment, self.at as u32).ok()?;
        self.at += found.len as usize;
        Some(found)
    }

    /// Where the next record would begin.
    pub(crate) fn offset(&self) -> usize {
        self.at
    }

    /// Why no record begins at [`Records::offset`].
    pub(crate) fn why(&self) -> &'static str {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        decode(rest, self.segment, self.at as u32).err().unwrap_or("no record")
    }

    /// Judges what stands at [`Records::offset`], where no record is.
    pub(crate) fn end(&self) -> End {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let Some(upto) = last_nonzero(rest) else {
            return End::Clean;
        };
        if self.vouched_for() {
            return End::Rotten { why: self.why() };
        }
        End::Torn { upto: self.at + upto }
    }

    /// Whether a valid record further on says that the log was synced beyond here. Its place is not known, since what
    /// stands here says nothing: so it is looked for everywhere.
    fn vouched_for(&self) -> bool {
        let mut at = self.at + ALIGN;
        while at + HEAD <= self.bytes.len() {
            let synced = u32_at(&self.bytes[at..at + HEAD], 8) as usize;
            if (self.at + 1..=at).contains(&synced) && decode(&self.bytes[at..], self.segment, at as u32).is_ok() {
                return true;
            }
            at += ALIGN;
        }
        false
    }
}

/// The end of the last block that is not all zeros, if there is one.
fn last_nonzero(bytes: &[u8]) -> Option<usize> {
    const ZEROS: [u8; 4096] = [0; 4096];
    let last = bytes.chunks(ZEROS.len()).rposition(|block| block != &ZEROS[..block.len()])?;
    Some(bytes.len().min((last + 1) * ZEROS.len()))
}

#[cfg(test)]
mod tests {
    use super::super::record::Record;
    use super::*;
    use quorate_core::GroupId;

    fn segment(synced: &[u32]) -> Vec<u8> {
        let mut bytes = vec![];
        for synced in synced {
            let offset = bytes.len() as u32;
            Record::Mark.encode(GroupId(0), SegmentId(1), offset, *synced, &mut bytes);
        }
        bytes.resize(400, 0);
        bytes
    }

    fn end_of(bytes: &[u8]) -> (usize, End) {
        let mut records = Records::new(bytes, SegmentId(1), 0);
        while records.next().is_some() {}
        (records.offset(), records.end())
    }

    #[test]
    fn zeros_end_a_log() {
        assert_eq!(end_of(&segment(&[0, 36, 36])), (108, End::Clean));
        assert_eq!(end_of(&[]), (0, End::Clean));
    }

    #[test]
    fn a_bad_record_is_a_tear_until_a_later_one_vouches_for_it() {
        // The second and the third are one batch, written when only the first was synced.
        let mut bytes = segment(&[0, 36, 36]);
        bytes[36 + 20] ^= 1;
        assert_eq!(end_of(&bytes), (36, End::Torn { upto: 400 }));
        // A fourth was written when they were synced.
        let mut bytes = segment(&[0, 36, 36, 108]);
        bytes[36 + 20] ^= 1;
        assert!(matches!(end_of(&bytes), (36, End::Rotten { .. })));
        // Rotten also where the bad one is nothing but zeros.
        bytes[36..72].fill(0);
        assert!(matches!(end_of(&bytes), (36, End::Rotten { .. })));
    }
}
