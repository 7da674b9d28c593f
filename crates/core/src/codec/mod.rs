//! Encodings of our own: log entries, remembered answers, snapshots.
//!
//! Whole numbers are little-endian base-128 varints, signed ones zigzagged; hashes are 8 bytes as they are. Whatever can grow
//! is length-prefixed, so that an older reader skips the fields a newer writer adds at its end. Numbers of kinds are permanent.
//!
//! Invariant: reading hostile bytes never panics and reserves no more than a small multiple of the bytes that are there.

pub(crate) mod answer;
pub(crate) mod batch;
pub(crate) mod state;

/// Why bytes are not what they should be.
///
/// ```
/// use quorate_core::{Batch, DecodeError};
/// assert_eq!(Batch::decode(&[]), Err(DecodeError::Truncated));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The bytes end too early.
    #[error("the bytes end too early: they were cut or are not of this kind; read them from another replica")]
    Truncated,
    /// More bytes follow than should.
    #[error("bytes are left over: these are not of this kind; read them from another replica")]
    LeftOver,
    /// A version of the encoding that this build does not know.
    #[error("version {0} of the encoding is not known to this build; upgrade this node")]
    Version(u64),
    /// A kind of command that this build does not know.
    #[error(
        "commands of kind {0} are not known to this build; upgrade this node before the cluster's version is raised"
    )]
    UnknownKind(u64),
    /// A value out of its bounds.
    #[error("{0} is out of bounds: the bytes are damaged or hostile; read them from another replica")]
    OutOfBounds(&'static str),
}

/// Reads from bytes in memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Reader { bytes }
    }

    pub(crate) fn left(&self) -> usize {
        self.bytes.len()
    }

    /// All that is left.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.bytes
    }

    /// Errs where bytes are left over.
    pub(crate) fn end(&self) -> Result<(), DecodeError> {
        if self.bytes.is_empty() { Ok(()) } else { Err(DecodeError::LeftOver) }
    }

    pub(crate) fn take(&mut self, len: usize) -> Result<&'a [u8], DecodeError> {
        let (head, tail) = self.bytes.split_at_checked(len).ok_or(DecodeError::Truncated)?;
        self.bytes = tail;
        Ok(head)
    }

    pub(crate) fn byte(&mut self) -> Result<u8, DecodeError> {
        let (&byte, tail) = self.bytes.split_first().ok_or(DecodeError::Truncated)?;
        self.bytes = tail;
        Ok(byte)
    }

    /// 8 bytes as they are.
    pub(crate) fn fixed(&mut self) -> Result<u64, DecodeError> {
        let (head, tail) = self.bytes.split_first_chunk::<8>().ok_or(DecodeError::Truncated)?;
        self.bytes = tail;
        Ok(u64::from_le_bytes(*head))
    }

    pub(crate) fn uint(&mut self) -> Result<u64, DecodeError> {
        let first = self.byte()?;
        if first < 0x80 {
            return Ok(u64::from(first));
        }
        let (mut value, mut shift) = (u64::from(first & 0x7f), 7);
        loop {
            let byte = self.byte()?;
            let part = u64::from(byte & 0x7f);
            if shift == 63 && byte > 1 {
                return Err(DecodeError::OutOfBounds("a number"));
            }
            value |= part << shift;
            if byte < 0x80 {
                return Ok(value);
            }
            shift += 7;
        }
    }

    pub(crate) fn uint32(&mut self, what: &'static str) -> Result<u32, DecodeError> {
        u32::try_from(self.uint()?).map_err(|_| DecodeError::OutOfBounds(what))
    }

    pub(crate) fn uint16(&mut self, what: &'static str) -> Result<u16, DecodeError> {
        u16::try_from(self.uint()?).map_err(|_| DecodeError::OutOfBounds(what))
    }

    pub(crate) fn int(&mut self) -> Result<i64, DecodeError> {
        let raw = self.uint()?;
        Ok((raw >> 1) as i64 ^ -((raw & 1) as i64))
    }

    pub(crate) fn wide_int(&mut self) -> Result<i128, DecodeError> {
        let (mut raw, mut shift) = (0_u128, 0);
        loop {
            let byte = self.byte()?;
            if shift == 126 && byte > 3 {
                return Err(DecodeError::OutOfBounds("a wide number"));
            }
            raw |= u128::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok((raw >> 1) as i128 ^ -((raw & 1) as i128));
            }
            shift += 7;
        }
    }

    /// A count of items of at least `least` bytes each, no more than can be there.
    pub(crate) fn count(&mut self, least: usize) -> Result<usize, DecodeError> {
        let count = usize::try_from(self.uint()?).map_err(|_| DecodeError::Truncated)?;
        if count > self.left() / least { Err(DecodeError::Truncated) } else { Ok(count) }
    }

    /// A part of its own: a length, and that many bytes.
    pub(crate) fn part(&mut self) -> Result<Reader<'a>, DecodeError> {
        let len = usize::try_from(self.uint()?).map_err(|_| DecodeError::Truncated)?;
        Ok(Reader::new(self.take(len)?))
    }

    pub(crate) fn text(&mut self, what: &'static str) -> Result<&'a str, DecodeError> {
        let part = self.part()?;
        std::str::from_utf8(part.bytes).map_err(|_| DecodeError::OutOfBounds(what))
    }
}

pub(crate) fn put_uint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

pub(crate) fn put_int(out: &mut Vec<u8>, value: i64) {
    put_uint(out, (value << 1) as u64 ^ (value >> 63) as u64);
}

pub(crate) fn put_wide_int(out: &mut Vec<u8>, value: i128) {
    let mut raw = (value << 1) as u128 ^ (value >> 127) as u128;
    while raw >= 0x80 {
        out.push(raw as u8 | 0x80);
        raw >>= 7;
    }
    out.push(raw as u8);
}

pub(crate) fn put_fixed(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_le_bytes());
}

pub(crate) fn put_text(out: &mut Vec<u8>, text: &str) {
    put_uint(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

/// Writes what `body` writes as a part of its own, length first. Parts shorter than 128 bytes are written in place.
pub(crate) fn put_part(out: &mut Vec<u8>, body: impl FnOnce(&mut Vec<u8>)) {
    let at = out.len();
    out.push(0);
    body(out);
    let len = out.len() - at - 1;
    if len < 0x80 {
        out[at] = len as u8;
        return;
    }
    let mut prefix = Vec::with_capacity(10);
    put_uint(&mut prefix, len as u64);
    out.splice(at..=at, prefix);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn numbers_come_back(a: u64, b: i64, c: i128, d in any::<u64>().prop_map(|d| d >> (d % 64)), text: String) {
            let mut out = vec![];
            put_uint(&mut out, a);
            put_uint(&mut out, d);
            put_int(&mut out, b);
            put_wide_int(&mut out, c);
            put_fixed(&mut out, a);
            put_part(&mut out, |out| put_text(out, &text));
            let mut reader = Reader::new(&out);
            prop_assert_eq!((reader.uint(), reader.uint(), reader.int()), (Ok(a), Ok(d), Ok(b)));
            prop_assert_eq!((reader.wide_int(), reader.fixed()), (Ok(c), Ok(a)));
            prop_assert_eq!(reader.part().unwrap().text("text"), Ok(text.as_str()));
            prop_assert_eq!(reader.end(), Ok(()));
        }
    }

    #[test]
    fn extremes_come_back() {
        for value in [i128::MIN, i128::MAX, -1, 0] {
            let mut out = vec![];
            put_wide_int(&mut out, value);
            put_int(&mut out, value as i64);
            let mut reader = Reader::new(&out);
            assert_eq!((reader.wide_int(), reader.int()), (Ok(value), Ok(value as i64)));
        }
    }

    #[test]
    fn endless_numbers_are_refused() {
        assert_eq!(Reader::new(&[0xff; 40]).uint(), Err(DecodeError::OutOfBounds("a number")));
        assert_eq!(Reader::new(&[0xff; 40]).wide_int(), Err(DecodeError::OutOfBounds("a wide number")));
        assert_eq!(Reader::new(&[0xff, 0x7f, 0]).count(1), Err(DecodeError::Truncated));
    }
}
