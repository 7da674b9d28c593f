//! Identities made of others.

use super::text::{bounded, escape};
use super::{Identify, Parts};
use crate::caps;

/// One identity, or another where the first finds nothing; made by [`Identify::or_else`].
///
/// ```
/// use quorate_client::identity::{Everyone, Header, Identify};
/// # fn main() -> Result<(), quorate_client::identity::IdentityError> {
/// let identity = Header::new("x-user")?.or_else(Everyone);
/// # let (parts, ()) = http::Request::get("/").body(()).unwrap().into_parts();
/// assert_eq!(identity.identify(&parts).as_deref(), Some("everyone"));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct OrElse<A, B> {
    first: A,
    second: B,
}

impl<A, B> OrElse<A, B> {
    pub(super) fn new(first: A, second: B) -> Self {
        OrElse { first, second }
    }
}

impl<A: Identify, B: Identify> Identify for OrElse<A, B> {
    fn identify(&self, request: &Parts) -> Option<String> {
        present(&self.first, request).or_else(|| present(&self.second, request))
    }
}

/// An identity in braces; made by [`Identify::tagged`].
///
/// ```
/// use quorate_client::identity::{Everyone, Identify};
/// # let (parts, ()) = http::Request::get("/").body(()).unwrap().into_parts();
/// assert_eq!(Everyone.tagged().identify(&parts).as_deref(), Some("{everyone}"));
/// ```
#[derive(Clone, Debug)]
pub struct Tagged<I>(I);

impl<I> Tagged<I> {
    pub(super) fn new(inner: I) -> Self {
        Tagged(inner)
    }
}

impl<I: Identify> Identify for Tagged<I> {
    fn identify(&self, request: &Parts) -> Option<String> {
        let inner = present(&self.0, request)?;
        // Those that the extractors have written otherwise already are no braces any more.
        let inner = inner.replace('{', "%7B").replace('}', "%7D");
        Some(format!("{{{}}}", bounded(inner, caps::KEY_TAG_BYTES)))
    }
}

/// All of them, joined by `|`; nothing where one of them finds nothing.
impl<A: Identify, B: Identify> Identify for (A, B) {
    fn identify(&self, request: &Parts) -> Option<String> {
        Some(join([present(&self.0, request)?, present(&self.1, request)?]))
    }
}

/// All of them, joined by `|`; nothing where one of them finds nothing.
impl<A: Identify, B: Identify, C: Identify> Identify for (A, B, C) {
    fn identify(&self, request: &Parts) -> Option<String> {
        Some(join([present(&self.0, request)?, present(&self.1, request)?, present(&self.2, request)?]))
    }
}

fn present(identity: &impl Identify, request: &Parts) -> Option<String> {
    identity.identify(request).filter(|key| !key.is_empty())
}

/// Different parts make different keys, and the whole is never longer than a key may be.
fn join<const N: usize>(parts: [String; N]) -> String {
    parts.map(|part| bounded(escape(&part, &['|']).into_owned(), caps::KEY_PART_BYTES)).join("|")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::identity::Header;

    fn fixed(text: &str) -> impl Identify + use<> {
        let text = text.to_owned();
        move |_: &Parts| Some(text.clone())
    }

    fn nothing(_: &Parts) -> Option<String> {
        None
    }

    fn parts() -> Parts {
        http::Request::get("/").header("x-user", "{7}|%").body(()).unwrap().into_parts().0
    }

    #[test]
    fn a_key_has_all_parts_or_is_none() {
        let key = |identity: &dyn Identify| identity.identify(&parts());
        assert_eq!(key(&(fixed("a_b"), fixed("c"))).as_deref(), Some("a_b|c"));
        assert_eq!(key(&(fixed("a"), fixed("b|c"), fixed("%"))).as_deref(), Some("a|b%7Cc|%25"));
        assert_eq!(key(&(fixed("a"), nothing)), None);
        assert_eq!(key(&(fixed("a"), fixed(""))), None);
        assert_eq!(key(&nothing.or_else(fixed("b"))).as_deref(), Some("b"));
        assert_eq!(key(&fixed("").or_else(fixed("b"))).as_deref(), Some("b"));
        assert_eq!(key(&nothing.or_else(nothing)), None);
    }

    #[test]
    fn only_the_service_chooses_the_shard() {
        let user = || Header::new("x-user").unwrap();
        let key = |identity: &dyn Identify| identity.identify(&parts()).unwrap();
        assert_eq!(key(&user()), "%7B7%7D|%25");
        assert_eq!(key(&(fixed("acme").tagged(), user())), "{acme}|%257B7%257D%7C%2525");
        assert_eq!(key(&fixed("{a}{b}").tagged()), "{%7Ba%7D%7Bb%7D}");
        let long = key(&(fixed(&"x".repeat(5000)).tagged(), fixed(&"y".repeat(5000)), fixed(&"|".repeat(320))));
        assert!(long.starts_with("{sha256:") && long.contains("}|sha256:") && long.len() <= caps::KEY_BYTES, "{long}");
    }

    proptest! {
        #[test]
        fn different_parts_make_different_keys(a in ".{0,5}", b in ".{0,5}", c in ".{0,5}", d in ".{0,5}") {
            let different = (&a, &b) != (&c, &d);
            prop_assert_eq!(different, join([a, b]) != join([c, d]));
        }

        #[test]
        fn a_joined_key_is_never_too_long(parts in [".{0,2000}", "[|%]{0,2000}", ".{0,2000}"]) {
            prop_assert!(join(parts).len() <= caps::KEY_BYTES);
        }
    }
}
