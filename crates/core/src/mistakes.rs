//! What every reader of a file that people write needs to tell its mistakes: where they stand, each once, and not without end.

use std::collections::HashSet;
use std::fmt;
use std::hash::Hash;

use crate::caps;

/// Where the lines of a text begin, found once: asking for the line of each of many places costs little.
///
/// ```
/// use quorate_core::mistakes::Lines;
/// let lines = Lines::of("one\ntwo\n");
/// assert_eq!((lines.at(0), lines.at(3), lines.at(4)), (1, 1, 2));
/// ```
#[derive(Clone, Debug)]
pub struct Lines {
    /// The place of each line's end.
    ends: Vec<usize>,
}

impl Lines {
    /// Those of this text.
    pub fn of(text: &str) -> Lines {
        let bytes = text.bytes().enumerate();
        Lines { ends: bytes.filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at).collect() }
    }

    /// The line, from 1, of the byte at that place.
    pub fn at(&self, place: usize) -> usize {
        self.ends.partition_point(|end| *end < place) + 1
    }
}

/// Mistakes as they are found: the same one is told once, and those beyond
/// [`caps::MISTAKES_TOLD`] are only counted.
///
/// ```
/// use quorate_core::mistakes::Mistakes;
/// let mut mistakes = Mistakes::default();
/// for number in [1, 1, 2] {
///     mistakes.add(format!("{number} is odd"));
/// }
/// assert_eq!(mistakes.told(|_, more| format!("and {more} more")), ["1 is odd", "2 is odd"]);
/// ```
#[derive(Clone, Debug)]
pub struct Mistakes<M> {
    told: Vec<M>,
    seen: HashSet<M>,
    /// The first that was not told, and how many were not.
    more: Option<(M, usize)>,
}

impl<M> Default for Mistakes<M> {
    fn default() -> Self {
        Mistakes { told: Vec::new(), seen: HashSet::new(), more: None }
    }
}

impl<M: Clone + Eq + Hash> Mistakes<M> {
    /// Takes in one more.
    pub fn add(&mut self, mistake: M) {
        if self.seen.contains(&mistake) {
            return;
        }
        match &mut self.more {
            Some((_, more)) => *more += 1,
            None if self.told.len() >= caps::MISTAKES_TOLD => self.more = Some((mistake, 1)),
            None => {
                self.seen.insert(mistake.clone());
                self.told.push(mistake);
            }
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.told.is_empty()
    }

    /// Those that are told, in the order in which they were found. If there are more, `rest` makes the last one, of the first
    /// that is not told and the number of all that are not.
    pub fn told(mut self, rest: impl FnOnce(M, usize) -> M) -> Vec<M> {
        if let Some((first, more)) = self.more.take() {
            self.told.push(rest(first, more));
        }
        self.told
    }
}

/// Bytes that are not text.
///
/// ```
/// let error = quorate_core::mistakes::text(b"one\ntwo \xff").unwrap_err();
/// assert_eq!((error.line, error.to_string().as_str()), (2, "byte 5 of the line is 0xff, which is not UTF-8; save the file as UTF-8"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotText {
    /// The line, from 1.
    pub line: usize,
    /// The byte within the line, from 1.
    pub place: usize,
    /// What it is.
    pub byte: u8,
}

impl fmt::Display for NotText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NotText { place, byte, .. } = self;
        write!(f, "byte {place} of the line is 0x{byte:02x}, which is not UTF-8; save the file as UTF-8")
    }
}

impl std::error::Error for NotText {}

/// The bytes of a file as text.
///
/// # Errors
/// Where the first byte stands that is not UTF-8.
pub fn text(bytes: &[u8]) -> Result<&str, NotText> {
    std::str::from_utf8(bytes).map_err(|error| {
        let (good, bad) = bytes.split_at(error.valid_up_to());
        let line = good.iter().filter(|byte| **byte == b'\n').count() + 1;
        let place = good.iter().rev().take_while(|byte| **byte != b'\n').count() + 1;
        NotText { line, place, byte: bad.first().copied().unwrap_or_default() }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_with_their_last_byte() {
        let text = "a\n\nbc\n";
        let lines = Lines::of(text);
        let counted = |place: usize| text.bytes().take(place).filter(|byte| *byte == b'\n').count() + 1;
        for place in 0..=text.len() + 1 {
            assert_eq!(lines.at(place), counted(place), "{place}");
        }
    }

    #[test]
    fn the_same_is_told_once_and_the_rest_is_counted() {
        let mut mistakes = Mistakes::default();
        for number in (0..caps::MISTAKES_TOLD + 3).chain([0, 1]) {
            mistakes.add(number.to_string());
            mistakes.add("0".to_owned());
        }
        let told = mistakes.told(|first, more| format!("{first} and {more} in all"));
        assert_eq!(told.len(), caps::MISTAKES_TOLD + 1);
        assert_eq!(told.last().unwrap(), &format!("{} and 3 in all", caps::MISTAKES_TOLD));
        assert!(Mistakes::<u8>::default().told(|first, _| first).is_empty());
    }

    #[test]
    fn what_is_no_text_is_told_by_its_line() {
        assert_eq!(text("clé\n".as_bytes()), Ok("clé\n"));
        assert_eq!(text(b"\xfe"), Err(NotText { line: 1, place: 1, byte: 0xfe }));
        // A character that is cut off at the end.
        assert_eq!(text(b"a\n\nb\xc3"), Err(NotText { line: 3, place: 2, byte: 0xc3 }));
    }
}
