//! The addresses that proxies have written down, read from the right: what is nearest to us was written by who is nearest.
//!
//! What stands further left may be anybody's invention, so nothing of it may change how what stands right of it is read. That
//! is why elements are also parted from the right, quoted strings included: a quote that a caller left open is met last.
//!
//! An element that is no address ends the walk: whoever wrote it hides whom it had it from.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use http::HeaderMap;
use http::header::{HeaderName, HeaderValue};

use crate::caps;

/// How a header lists addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Syntax {
    /// `X-Forwarded-For`: addresses, parted by commas.
    Plain,
    /// `Forwarded` of RFC 7239: `for=` among parameters.
    Parameters,
}

/// The addresses of all headers of that name, the nearest first; `None` for an element that is no address. Ends at whichever
/// cap is met first, with a `None`.
pub(super) fn from_the_right<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
    syntax: Syntax,
) -> impl Iterator<Item = Option<IpAddr>> + use<'a> {
    let lines = headers.get_all(name).iter().rev().map(HeaderValue::as_bytes);
    let elements = lines.flat_map(move |line| FromRight { rest: Some(line), quotes: syntax == Syntax::Parameters });
    let mut room = (caps::HOPS, caps::HOPS_BYTES);
    elements
        .map_while(move |element| {
            let (hops, bytes) = room;
            // The element's comma counts as well, so that a list of nothing but commas ends.
            room = (hops.checked_sub(1)?, bytes.saturating_sub(element.len() + 1));
            match trim(element) {
                _ if bytes == 0 || element.len() > caps::HOP_BYTES => Some(Hop::Unreadable),
                [] => Some(Hop::Nothing),
                element => Some(read(element, syntax).map_or(Hop::Unreadable, Hop::Address)),
            }
        })
        .filter_map(|hop| match hop {
            Hop::Nothing => None,
            Hop::Unreadable => Some(None),
            Hop::Address(address) => Some(Some(address)),
        })
}

enum Hop {
    /// An empty element, which a list may have.
    Nothing,
    Unreadable,
    Address(IpAddr),
}

/// Parts a list at its commas, from the right; those in quotes are none.
struct FromRight<'a> {
    rest: Option<&'a [u8]>,
    quotes: bool,
}

impl<'a> Iterator for FromRight<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let rest = self.rest?;
        let comma = if self.quotes { comma_outside_quotes(rest) } else { rest.iter().rposition(|byte| *byte == b',') };
        match comma {
            Some(at) => {
                self.rest = Some(&rest[..at]);
                Some(&rest[at + 1..])
            }
            None => {
                self.rest = None;
                Some(rest)
            }
        }
    }
}

/// The last comma that is not in a quoted string, as who reads from the right sees quoted strings.
fn comma_outside_quotes(text: &[u8]) -> Option<usize> {
    let mut quoted = false;
    for at in (0..text.len()).rev() {
        match text[at] {
            b'"' if !quoted => quoted = true,
            b'"' => quoted = is_escaped(text, at),
            b',' if !quoted => return Some(at),
            _ => {}
        }
    }
    None
}

/// Whether an odd number of backslashes stands before that place.
fn is_escaped(text: &[u8], at: usize) -> bool {
    text[..at].iter().rev().take_while(|byte| **byte == b'\\').count() % 2 == 1
}

fn trim(text: &[u8]) -> &[u8] {
    text.trim_ascii()
}

fn read(element: &[u8], syntax: Syntax) -> Option<IpAddr> {
    let element = std::str::from_utf8(element).ok()?;
    match syntax {
        Syntax::Plain => address(element),
        Syntax::Parameters => address(parameter_for(element)?),
    }
}

/// What `for` is in an element of `Forwarded`; none where it is not there, or more than once.
fn parameter_for(element: &str) -> Option<&str> {
    let mut found = None;
    let mut rest = Some(element);
    while let Some(parameters) = rest {
        let end = semicolon_outside_quotes(parameters);
        let (parameter, after) = match end {
            Some(at) => (&parameters[..at], Some(&parameters[at + 1..])),
            None => (parameters, None),
        };
        rest = after;
        if parameter.trim().is_empty() {
            continue;
        }
        let (name, value) = parameter.split_once('=')?;
        if name.trim().eq_ignore_ascii_case("for") && found.replace(value.trim()).is_some() {
            return None;
        }
    }
    found
}

fn semicolon_outside_quotes(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut quoted = false;
    for at in 0..bytes.len() {
        match bytes[at] {
            b'"' => quoted = !quoted || is_escaped(bytes, at),
            b';' if !quoted => return Some(at),
            _ => {}
        }
    }
    None
}

/// An address with or without quotes, brackets, zone and port. Anything else, obfuscated identifiers (`_hidden`) and
/// `unknown` included, is none.
pub(super) fn address(text: &str) -> Option<IpAddr> {
    let text = match text.strip_prefix('"') {
        Some(rest) => rest.strip_suffix('"')?.trim(),
        None => text,
    };
    if let Some(rest) = text.strip_prefix('[') {
        let (inside, after) = rest.split_once(']')?;
        let is_port_or_nothing = after.is_empty() || after.strip_prefix(':').is_some_and(is_port);
        return is_port_or_nothing.then(|| v6(inside)).flatten();
    }
    if let Some((host, port)) = text.split_once(':')
        && !port.contains(':')
    {
        return is_port(port).then(|| v4(host)).flatten();
    }
    v4(text).or_else(|| v6(text))
}

fn v4(text: &str) -> Option<IpAddr> {
    text.parse::<Ipv4Addr>().ok().map(IpAddr::V4)
}

/// A zone names an interface of the machine that wrote it, and nothing to anybody else.
fn v6(text: &str) -> Option<IpAddr> {
    let address = match text.split_once('%') {
        Some((_, zone)) if zone.is_empty() || !zone.bytes().all(|byte| byte.is_ascii_graphic()) => return None,
        Some((address, _)) => address,
        None => text,
    };
    address.parse::<Ipv6Addr>().ok().map(|address| IpAddr::V6(address).to_canonical())
}

/// Digits, or an obfuscated port.
fn is_port(text: &str) -> bool {
    match text.strip_prefix('_') {
        Some(rest) => {
            !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
        }
        None => text.len() <= 5 && text.bytes().all(|byte| byte.is_ascii_digit()) && text.parse::<u16>().is_ok(),
    }
}
