//! Key texts, drawn ahead: making them is no part of what is measured.

use std::rc::Rc;

/// Texts that are drawn, more than there are callers and batches.
const DRAWN: usize = 1 << 17;

/// Texts in the order in which they are asked. Clones share them.
#[derive(Clone)]
pub(crate) struct Texts(Rc<[String]>);

impl Texts {
    /// Draws among so many keys, each equally often.
    pub(crate) fn drawn(keys: u64) -> Texts {
        Texts((1..=DRAWN as u64).map(|draw| format!("user:{:08}", mix(draw) % keys)).collect())
    }

    /// One key, over and over.
    pub(crate) fn one() -> Texts {
        Texts(std::iter::repeat_n("user:flooded".to_owned(), DRAWN).collect())
    }

    /// The texts of a caller's call; every caller goes through them from a place of its own.
    pub(crate) fn of(&self, caller: usize, call: usize, batch: usize) -> &[String] {
        let turns = DRAWN / batch;
        let turn = (caller * 7919 + call) % turns;
        &self.0[turn * batch..(turn + 1) * batch]
    }
}

/// A bijection of 64 bits that looks like chance.
fn mix(number: u64) -> u64 {
    let z = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}
