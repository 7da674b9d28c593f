//! Keys as text: bounded, and joined so that different ones stay different.

use std::borrow::Cow;

use sha2::{Digest as _, Sha256};

use crate::caps;

/// The key as it is, or its digest where it is longer than a key may be.
pub(crate) fn fit(key: String) -> String {
    bounded(key, caps::KEY_BYTES)
}

/// The text as it is, or its digest where it is longer than that.
pub(super) fn bounded(text: String, most: usize) -> String {
    if text.len() <= most { text } else { format!("sha256:{}", digest(text.as_bytes())) }
}

/// The first half of the SHA-256, as 32 hexadecimal digits: nobody finds two texts that share it.
pub(super) fn digest(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let hash = Sha256::digest(bytes);
    let half = hash.iter().take(16);
    half.flat_map(|byte| [byte >> 4, byte & 15]).map(|digit| char::from(DIGITS[usize::from(digit)])).collect()
}

/// Writes `%` and those characters as `%` and two hexadecimal digits.
pub(super) fn escape<'a>(text: &'a str, special: &[char]) -> Cow<'a, str> {
    let is_special = |c: char| c == '%' || special.contains(&c);
    if !text.contains(is_special) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match u8::try_from(c) {
            Ok(byte) if is_special(c) => escaped.push_str(&format!("%{byte:02X}")),
            _ => escaped.push(c),
        }
    }
    Cow::Owned(escaped)
}

/// What was found in a request, without the braces that would choose a shard; none if it is empty.
pub(super) fn found(text: &str) -> Option<String> {
    let text = text.trim();
    (!text.is_empty()).then(|| escape(text, &['{', '}']).into_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_too_long_is_digested() {
        assert_eq!(fit("x".repeat(1024)), "x".repeat(1024));
        let digested = fit("x".repeat(1025));
        assert_eq!(digested.len(), "sha256:".len() + 32);
        assert_ne!(digested, fit("x".repeat(1026)));
        assert_eq!(digest(b"abc"), "ba7816bf8f01cfea414140de5dae2223");
    }

    #[test]
    fn braces_are_not_the_callers() {
        assert_eq!(found(" {a}%b "), Some("%7Ba%7D%25b".into()));
        assert_eq!(found(" \t"), None);
        assert_eq!(found("Zoë"), Some("Zoë".into()));
    }

    proptest! {
        #[test]
        fn different_texts_stay_different(a in ".*", b in ".*") {
            prop_assert_eq!(a == b, escape(&a, &['|']) == escape(&b, &['|']));
            let is_left = escape(&a, &['|', '{']).contains(['|', '{']);
            prop_assert!(!is_left);
        }
    }
}
