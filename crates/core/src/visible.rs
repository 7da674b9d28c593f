//! Text from elsewhere, made harmless to show to people.
//!
//! Names, descriptions, keys and messages come from files and from other machines. Shown as they are, a control character in one
//! of them would move a terminal's cursor, recolour it or retitle it, and a mark that turns the direction of writing would show
//! a text that is not the one that is meant. Whatever writes for people passes what it writes through here; JSON has its own
//! escapes.

use std::borrow::Cow;
use std::fmt::Write as _;

/// The text on one line, with every character that a terminal would obey, or that would hide or reorder others, written as
/// `\n`, `\t`, `\r`, `\u001b` or `\U000e0041`: the escapes of TOML, so that within quotes it reads back.
///
/// ```
/// use quorate_core::visible;
/// assert_eq!(visible::line("clé \u{1b}[31mred\r\n"), "clé \\u001b[31mred\\r\\n");
/// ```
pub fn line(text: &str) -> Cow<'_, str> {
    escaped(text, is_hidden)
}

/// As [`line()`], of a text that may have several lines.
///
/// ```
/// use quorate_core::visible;
/// assert_eq!(visible::lines("one\ntwo\u{7}\n"), "one\ntwo\\u0007\n");
/// ```
pub fn lines(text: &str) -> Cow<'_, str> {
    escaped(text, |c| c != '\n' && is_hidden(c))
}

fn escaped(text: &str, hidden: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&hidden) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            c if !hidden(c) => out.push(c),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            c => {
                let code = u32::from(c);
                let written = if code <= 0xffff { write!(out, "\\u{code:04x}") } else { write!(out, "\\U{code:08x}") };
                written.expect("writing to a string cannot fail");
            }
        }
    }
    Cow::Owned(out)
}

/// Control characters, and those that show nothing and change how others are shown. The joiners of scripts and emoji stay.
fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}')
        || matches!(c, '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_written_out() {
        for (text, shown) in [
            ("\u{1b}]0;title\u{7}", "\\u001b]0;title\\u0007"),
            ("\u{9b}31m", "\\u009b31m"),
            ("a\0b\u{7f}", "a\\u0000b\\u007f"),
            ("\u{202e}gpj.exe", "\\u202egpj.exe"),
            ("\u{2066}x\u{2069}\u{feff}", "\\u2066x\\u2069\\ufeff"),
            ("\u{e0041}", "\\U000e0041"),
            ("a\nb\tc", "a\\nb\\tc"),
        ] {
            assert_eq!(line(text), shown);
        }
        assert_eq!(lines("a\nb\tc\u{1b}"), "a\nb\\tc\\u001b");
    }

    #[test]
    fn what_people_write_stays() {
        for text in ["", "alice", "clé-🔑", "👩\u{200d}🚀", "日本語", "C:\\new", "\"quoted\""] {
            assert!(matches!(line(text), Cow::Borrowed(same) if same == text), "{text}");
        }
    }
}
