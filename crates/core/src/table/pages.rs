//! An ordered map of keys that can be captured in no time, grows without a stall and gives its memory back.
//!
//! ```text
//! chunks (a few thousand at 10 million keys)     pages (up to PAGES a chunk)       slots (up to SLOTS a page)
//! bounds ─► [chunk][chunk][chunk]…          ─►   bounds ─► [page][page]…      ─►   [slot][slot]…  by key
//! ```
//!
//! A tree of three levels, cut by table hash. Hashes are even, so each level is found nearly without searching: chunks by the
//! hash's high bits, slots by interpolation; uneven hashes cost time, never truth. A page or chunk that is full is split in
//! two, one that empties is joined with its neighbour; a page's room grows and shrinks by [`STEP`] slots. So no change moves
//! more than a page, a chunk's list of pages, or the list of chunks.
//!
//! Chunks and pages are shared with whoever captured the map, by cloning it: what is shared is copied before it is changed.
//!
//! Invariants: keys ascend through slots, pages and chunks; keys of equal table hash stand in one page, which may then be
//! longer than [`SLOTS`]; a bound is the lowest hash that belongs there, the first one 0; no page is empty but the only one.

use std::sync::Arc;

use super::Key;

/// Slots of a page, unless all have the same hash.
const SLOTS: usize = 64;
/// Slots that a page's room grows by.
const STEP: usize = 4;
/// Pages of a chunk.
const PAGES: usize = 128;

/// What stands in a page.
pub(crate) trait Slot: Clone {
    /// What it belongs to.
    fn key(&self) -> Key;
    /// What fills the room that is not used.
    fn unused() -> Self;
}

/// The map.
#[derive(Clone, Debug)]
pub(crate) struct Pages<S> {
    chunks: Vec<Arc<Chunk<S>>>,
    /// The lowest hash of each chunk.
    bounds: Vec<u64>,
    /// For each value of the hash's high bits, the chunk that its lowest hash belongs to; and one more at the end.
    index: Vec<u32>,
    /// How far a hash is shifted for `index`.
    shift: u32,
    len: u64,
    /// The key that was looked up last to be changed, and where it was found: good until a key comes or goes.
    last: Option<(Key, Spot)>,
}

#[derive(Clone, Debug)]
struct Chunk<S> {
    /// The lowest hash of each page.
    bounds: Vec<u64>,
    pages: Vec<Page<S>>,
}

#[derive(Clone, Debug)]
struct Page<S> {
    /// The first `len` are used.
    slots: Arc<[S]>,
    len: u32,
}

/// Where a key is, or would be.
#[derive(Clone, Copy, Debug)]
struct Spot {
    chunk: usize,
    page: usize,
    slot: usize,
    there: bool,
}

impl<S: Slot> Default for Pages<S> {
    fn default() -> Self {
        let chunk = Chunk { bounds: vec![0], pages: vec![Page::of(&[])] };
        Pages { chunks: vec![Arc::new(chunk)], bounds: vec![0], index: vec![0, 0, 0], shift: 63, len: 0, last: None }
    }
}

impl<S: Slot> Page<S> {
    /// A page of these slots, with a little room.
    fn of(slots: &[S]) -> Self {
        let room = slots.len().next_multiple_of(STEP);
        let unused = std::iter::repeat_n(S::unused(), room - slots.len());
        let mut all = Vec::with_capacity(room);
        all.extend_from_slice(slots);
        all.extend(unused);
        Page { slots: all.into(), len: slots.len() as u32 }
    }

    fn used(&self) -> &[S] {
        &self.slots[..self.len as usize]
    }

    /// The slots, copied first if they are shared.
    fn own(&mut self) -> &mut [S] {
        // Only who holds the map clones pages, and that is the caller: a count of one stays one.
        if Arc::strong_count(&self.slots) > 1 {
            self.slots = Arc::from(&*self.slots);
        }
        Arc::get_mut(&mut self.slots).expect("it was copied if it was shared")
    }

    fn insert(&mut self, at: usize, slot: S) {
        let len = self.len as usize;
        if len == self.slots.len() {
            let mut all = Vec::with_capacity(len + STEP);
            all.extend_from_slice(&self.slots[..at]);
            all.push(slot);
            all.extend_from_slice(&self.slots[at..]);
            all.resize(len + STEP, S::unused());
            self.slots = all.into();
        } else {
            let slots = self.own();
            slots[at..=len].rotate_right(1);
            slots[at] = slot;
        }
        self.len += 1;
    }

    fn remove(&mut self, at: usize) -> S {
        let len = self.len as usize;
        let slots = self.own();
        let slot = std::mem::replace(&mut slots[at], S::unused());
        slots[at..len].rotate_left(1);
        self.len -= 1;
        if self.slots.len() >= len - 1 + 2 * STEP {
            *self = Page::of(self.used());
        }
        slot
    }

    /// Where a key is in the page, or would be; the page's hashes begin at `low` and end before `high`.
    fn find(&self, key: Key, low: u64, high: Option<u64>) -> Result<usize, usize> {
        let used = self.used();
        if used.len() > SLOTS {
            return used.binary_search_by_key(&key, S::key);
        }
        let mut at = guess(key.print.table, low, high, used.len());
        // The guess is a few slots off at most: walk up, or down, to the first slot that is not below the key.
        while at < used.len() && used[at].key() < key {
            at += 1;
        }
        while at > 0 && used[at - 1].key() >= key {
            at -= 1;
        }
        if at < used.len() && used[at].key() == key { Ok(at) } else { Err(at) }
    }

    /// Splits it about the middle, between two hashes; the upper part, with its lowest hash. None if all hashes are equal.
    fn split(&mut self) -> Option<(u64, Page<S>)> {
        let used = self.used();
        let middle = used.len() / 2;
        let hash = |at: usize| used[at].key().print.table;
        let up = (middle..used.len()).find(|&at| hash(at) != hash(at - 1));
        let at = up.or_else(|| (1..middle).rev().find(|&at| hash(at) != hash(at - 1)))?;
        let (bound, lower, upper) = (hash(at), Page::of(&used[..at]), Page::of(&used[at..]));
        *self = lower;
        Some((bound, upper))
    }
}

/// Where a hash stands among `len` even ones from `low` to before `high`, about.
fn guess(hash: u64, low: u64, high: Option<u64>, len: usize) -> usize {
    let span = high.map_or(u64::MAX - low, |high| high - low);
    let shift = 40_u32.saturating_sub(span.leading_zeros());
    let (part, all) = ((hash - low) >> shift, (span >> shift).max(1));
    // Below 2^24 of the span's bits are left, so the product fits; hashes below `high` stay below `len`.
    ((part * len as u64) / all).min(len as u64) as usize
}

impl<S: Slot> Chunk<S> {
    fn page_of(&self, hash: u64) -> usize {
        self.bounds.partition_point(|&bound| bound <= hash) - 1
    }

    /// Puts a page that grew too long in two.
    fn split_page(&mut self, page: usize) {
        if let Some((bound, upper)) = self.pages[page].split() {
            self.bounds.insert(page + 1, bound);
            self.pages.insert(page + 1, upper);
        }
    }

    /// Joins a page that grew short with a neighbour, if the two are short enough together.
    fn join_page(&mut self, page: usize) {
        let short = |chunk: &Self, lower: usize| {
            chunk.pages.get(lower + 1).is_some_and(|upper| upper.len + chunk.pages[lower].len <= SLOTS as u32 * 3 / 4)
        };
        let lower = if short(self, page) {
            page
        } else if page > 0 && short(self, page - 1) {
            page - 1
        } else {
            return;
        };
        let upper = self.pages.remove(lower + 1);
        self.bounds.remove(lower + 1);
        let joined = [self.pages[lower].used(), upper.used()].concat();
        self.pages[lower] = Page::of(&joined);
    }
}

impl<S: Slot> Pages<S> {
    /// How many keys there are.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// What stands at a key.
    pub(crate) fn get(&self, key: Key) -> Option<&S> {
        let spot = self.find(key);
        spot.there.then(|| &self.chunks[spot.chunk].pages[spot.page].slots[spot.slot])
    }

    /// What stands at a key, which is about to be put or removed: its place is remembered.
    pub(crate) fn look(&mut self, key: Key) -> Option<&S> {
        let spot = self.find(key);
        self.last = Some((key, spot));
        spot.there.then(|| &self.chunks[spot.chunk].pages[spot.page].slots[spot.slot])
    }

    /// Where a key is, without searching if it was looked at last.
    fn find_again(&self, key: Key) -> Spot {
        match self.last {
            Some((last, spot)) if last == key => spot,
            _ => self.find(key),
        }
    }

    /// What stands at a key, to be changed; its key is not.
    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut S> {
        let spot = self.find(key);
        if !spot.there {
            return None;
        }
        let chunk = Arc::make_mut(&mut self.chunks[spot.chunk]);
        Some(&mut chunk.pages[spot.page].own()[spot.slot])
    }

    /// Puts a slot at its key; what stood there.
    pub(crate) fn put(&mut self, slot: S) -> Option<S> {
        let spot = self.find_again(slot.key());
        let chunk = Arc::make_mut(&mut self.chunks[spot.chunk]);
        let page = &mut chunk.pages[spot.page];
        if spot.there {
            return Some(std::mem::replace(&mut page.own()[spot.slot], slot));
        }
        self.last = None;
        page.insert(spot.slot, slot);
        self.len += 1;
        if page.len as usize > SLOTS {
            chunk.split_page(spot.page);
            if chunk.pages.len() > PAGES {
                self.split_chunk(spot.chunk);
            }
        }
        None
    }

    /// Removes what stands at a key.
    pub(crate) fn remove(&mut self, key: Key) -> Option<S> {
        let spot = self.find_again(key);
        if !spot.there {
            return None;
        }
        let chunk = Arc::make_mut(&mut self.chunks[spot.chunk]);
        self.last = None;
        let slot = chunk.pages[spot.page].remove(spot.slot);
        self.len -= 1;
        if chunk.pages[spot.page].len < SLOTS as u32 / 4 {
            chunk.join_page(spot.page);
            if chunk.pages.len() < PAGES / 4 {
                self.join_chunk(spot.chunk);
            }
        }
        Some(slot)
    }

    /// What stands at the keys from one on, in order.
    pub(crate) fn from(&self, key: Key) -> From<'_, S> {
        let spot = self.find(key);
        let chunk = &self.chunks[spot.chunk];
        From {
            slots: chunk.pages[spot.page].used()[spot.slot..].iter(),
            pages: chunk.pages[spot.page + 1..].iter(),
            chunks: self.chunks[spot.chunk + 1..].iter(),
        }
    }

    fn chunk_of(&self, hash: u64) -> usize {
        let cell = (hash >> self.shift) as usize;
        let (first, last) = (self.index[cell] as usize, self.index[cell + 1] as usize);
        first + self.bounds[first + 1..=last].partition_point(|&bound| bound <= hash)
    }

    fn find(&self, key: Key) -> Spot {
        let hash = key.print.table;
        let chunk = self.chunk_of(hash);
        let at = &self.chunks[chunk];
        let page = at.page_of(hash);
        let high = at.bounds.get(page + 1).or_else(|| self.bounds.get(chunk + 1)).copied();
        let low = at.bounds[page];
        match at.pages[page].find(key, low, high) {
            Ok(slot) => Spot { chunk, page, slot, there: true },
            Err(slot) => Spot { chunk, page, slot, there: false },
        }
    }

    fn split_chunk(&mut self, at: usize) {
        let chunk = Arc::make_mut(&mut self.chunks[at]);
        let half = chunk.pages.len() / 2;
        let upper = Chunk { bounds: chunk.bounds.split_off(half), pages: chunk.pages.split_off(half) };
        chunk.bounds.shrink_to_fit();
        chunk.pages.shrink_to_fit();
        self.bounds.insert(at + 1, upper.bounds[0]);
        self.chunks.insert(at + 1, Arc::new(upper));
        self.index_chunks();
    }

    fn join_chunk(&mut self, at: usize) {
        let pages = |lower: usize| Some(self.chunks.get(lower)?.pages.len() + self.chunks.get(lower + 1)?.pages.len());
        let short = |lower: usize| pages(lower).is_some_and(|pages| pages <= PAGES * 3 / 4);
        let lower = if short(at) {
            at
        } else if at > 0 && short(at - 1) {
            at - 1
        } else {
            return;
        };
        let upper = self.chunks.remove(lower + 1);
        self.bounds.remove(lower + 1);
        let chunk = Arc::make_mut(&mut self.chunks[lower]);
        chunk.bounds.extend_from_slice(&upper.bounds);
        chunk.pages.extend_from_slice(&upper.pages);
        self.index_chunks();
    }

    /// Makes the index of chunks anew: twice as many cells as chunks, or somewhat more.
    fn index_chunks(&mut self) {
        let cells = (self.chunks.len() * 2).next_power_of_two();
        self.shift = 64 - cells.trailing_zeros();
        self.index.clear();
        let mut chunk = 0;
        for cell in 0..cells as u64 {
            while self.bounds.get(chunk + 1).is_some_and(|&bound| bound <= cell << self.shift) {
                chunk += 1;
            }
            self.index.push(chunk as u32);
        }
        self.index.push(self.chunks.len() as u32 - 1);
        self.index.shrink_to(2 * self.index.len());
        self.chunks.shrink_to(2 * self.chunks.len());
        self.bounds.shrink_to(2 * self.bounds.len());
    }
}

/// Slots in the order of their keys.
#[derive(Debug)]
pub(crate) struct From<'a, S> {
    slots: std::slice::Iter<'a, S>,
    pages: std::slice::Iter<'a, Page<S>>,
    chunks: std::slice::Iter<'a, Arc<Chunk<S>>>,
}

impl<'a, S: Slot> Iterator for From<'a, S> {
    type Item = &'a S;

    fn next(&mut self) -> Option<&'a S> {
        loop {
            if let Some(slot) = self.slots.next() {
                return Some(slot);
            }
            match self.pages.next() {
                Some(page) => self.slots = page.used().iter(),
                None => self.pages = self.chunks.next()?.pages.iter(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::ids::PolicyId;
    use crate::key::Fingerprint;

    #[derive(Clone, Debug, PartialEq)]
    struct Counted(Key, Option<Arc<u64>>);

    impl Slot for Counted {
        fn key(&self) -> Key {
            self.0
        }

        fn unused() -> Self {
            Counted(Key::default(), None)
        }
    }

    fn key(hash: u64, ring: u64) -> Key {
        Key { print: Fingerprint { table: hash, ring }, policy: PolicyId(1) }
    }

    fn check(pages: &Pages<Counted>, model: &BTreeMap<Key, u64>) {
        assert_eq!(pages.len(), model.len() as u64);
        assert!(
            pages
                .from(Key::default())
                .map(|slot| (slot.0, **slot.1.as_ref().unwrap()))
                .eq(model.iter().map(|(k, v)| (*k, *v)))
        );
        assert_eq!((pages.bounds[0], pages.bounds.len()), (0, pages.chunks.len()));
        for (at, chunk) in pages.chunks.iter().enumerate() {
            assert_eq!((chunk.bounds[0], chunk.bounds.len()), (pages.bounds[at], chunk.pages.len()));
            assert!(chunk.pages.len() <= PAGES && chunk.bounds.is_sorted_by(|a, b| a < b));
            for (page, bounds) in chunk.pages.iter().zip(chunk.bounds.iter().copied()) {
                assert!(page.len > 0 || chunk.pages.len() == 1, "an empty page stays");
                assert!(page.slots.len() < page.len as usize + 2 * STEP, "room is given back");
                assert!(page.used().iter().all(|slot| slot.0.print.table >= bounds));
                assert!(
                    page.slots[page.len as usize..].iter().all(|slot| slot.1.is_none()),
                    "unused slots hold nothing"
                );
                assert!(page.len as usize <= SLOTS || page.used()[0].0.print.table == page.used()[SLOTS].0.print.table);
            }
        }
    }

    /// Hashes of some distribution: even, small, clustered, few.
    fn hash(kind: u8, raw: u64) -> u64 {
        match kind % 4 {
            0 => raw,
            1 => raw % 5_000,
            2 => ((raw % 7) << 61) | (raw % 900),
            _ => u64::MAX - raw % 3,
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn pages_are_an_ordered_map(
            kind: u8,
            spread in 1_u64..2_000,
            steps in prop::collection::vec((any::<u64>(), 0_u8..10), 1..6_000),
        ) {
            let (mut pages, mut model) = (Pages::<Counted>::default(), BTreeMap::new());
            let mut images = vec![];
            for (at, (raw, what)) in steps.into_iter().enumerate() {
                // First more comes than goes, then the other way round, down to nothing.
                let grows = at < 3_000;
                let mut key = key(hash(kind, raw), raw % spread);
                if what >= 5 {
                    // One that is there, most likely.
                    key = model.range(key..).next().map_or(key, |(key, _)| *key);
                }
                match (what, grows) {
                    (0..=4, true) | (0, false) => {
                        let before = pages.put(Counted(key, Some(Arc::new(raw))));
                        prop_assert_eq!(before.map(|slot| *slot.1.unwrap()), model.insert(key, raw));
                    }
                    (5, _) => {
                        let slot = pages.get_mut(key);
                        prop_assert_eq!(slot.is_some(), model.contains_key(&key));
                        if let Some(slot) = slot {
                            slot.1 = Some(Arc::new(raw));
                            model.insert(key, raw);
                        }
                    }
                    (6, _) => {
                        prop_assert_eq!(pages.get(key).map(|slot| **slot.1.as_ref().unwrap()), model.get(&key).copied());
                        prop_assert_eq!(pages.look(key).is_some(), model.contains_key(&key));
                        let from: Vec<Key> = pages.from(key).take(70).map(|slot| slot.0).collect();
                        prop_assert!(from.iter().eq(model.range(key..).take(70).map(|(key, _)| key)));
                    }
                    (7, true) if at % 40 == 0 => images.push((pages.clone(), model.clone())),
                    _ => {
                        let gone = pages.remove(key);
                        prop_assert_eq!(gone.map(|slot| *slot.1.unwrap()), model.remove(&key));
                    }
                }
                if at % 500 == 0 {
                    check(&pages, &model);
                }
            }
            check(&pages, &model);
            images.iter().for_each(|(pages, model)| check(pages, model));
            for key in model.keys() {
                pages.remove(*key);
            }
            check(&pages, &BTreeMap::new());
        }
    }

    #[test]
    fn many_keys_come_and_go() {
        let (mut pages, mut model) = (Pages::<Counted>::default(), BTreeMap::new());
        let hash = |i: u64| i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for i in 0..60_000 {
            pages.put(Counted(key(hash(i), i), Some(Arc::new(i))));
            model.insert(key(hash(i), i), i);
        }
        check(&pages, &model);
        assert!(pages.chunks.len() > 8, "{}", pages.chunks.len());
        let used: usize = pages.chunks.iter().flat_map(|chunk| &chunk.pages).map(|page| page.slots.len()).sum();
        assert!(used < 60_000 * 11 / 10, "{used} slots for 60000 keys");
        for i in 0..59_990 {
            pages.remove(key(hash(i), i)).unwrap();
            model.remove(&key(hash(i), i));
        }
        check(&pages, &model);
        assert_eq!((pages.chunks.len(), pages.index.len()), (1, 3));
    }
}
