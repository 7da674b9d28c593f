//! Key texts, drawn the same way for every limiter.
//!
//! Texts are drawn ahead and stand in memory in the order in which they are asked, as those do that come off a wire: what is
//! measured is the limiter's memory, not that of the load.

/// How checks are spread over the keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spread {
    /// A hundred of the keys, all the time.
    Hot,
    /// Any of the keys, each equally often.
    Cold,
}

/// Keys that are asked all the time where the spread is hot.
const HOT: u64 = 100;

/// The text of the key of that number.
pub fn text(number: u64) -> String {
    format!("user:{number:08}")
}

/// The same numbers for everybody: a bijection of 64 bits that looks like chance.
pub fn mix(number: u64) -> u64 {
    let z = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// Texts of `draws` of the `keys` keys, numbered from 0.
pub fn drawn(keys: u64, spread: Spread, draws: u64) -> Vec<String> {
    let among = match spread {
        Spread::Hot => keys.min(HOT),
        Spread::Cold => keys,
    };
    // A hot key's number is spread over all of them, so that hot keys are no neighbours.
    let step = keys / among;
    (1..=draws).map(|draw| text(mix(draw) % among * step)).collect()
}
