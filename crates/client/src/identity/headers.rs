//! Identities that stand in a request as they are.

use std::fmt;
use std::marker::PhantomData;

use http::HeaderMap;
use http::header::{AUTHORIZATION, HeaderName};

use super::text::{digest, found};
use super::{Identify, IdentityError, Parts};

/// The name of a header, or what is wrong with it.
pub(super) fn header_name(name: &str) -> Result<HeaderName, IdentityError> {
    HeaderName::from_bytes(name.as_bytes())
        .map_err(|_| IdentityError::new(format!("{name:?} cannot be a header's name; use letters, digits and dashes")))
}

/// A header's value as text. Where it stands there more than once, nobody can say which one is meant: then there is none.
pub(super) fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?;
    match values.next() {
        None => std::str::from_utf8(value.as_bytes()).ok(),
        Some(_) => None,
    }
}

/// A header's value. A caller can choose it, unless a proxy in front overwrites it on every request.
///
/// It has to stand there once, in UTF-8, and not be empty.
///
/// ```
/// use quorate_client::identity::{Header, Identify};
/// # fn main() -> Result<(), quorate_client::identity::IdentityError> {
/// let (request, ()) = http::Request::get("/").header("x-user", "alice").body(()).unwrap().into_parts();
/// assert_eq!(Header::new("x-user")?.identify(&request).as_deref(), Some("alice"));
/// assert_eq!(Header::new("x-tenant")?.identify(&request), None);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Header(HeaderName);

impl Header {
    /// The header of that name, in any case.
    ///
    /// # Errors
    /// Where no header can have that name.
    pub fn new(name: &str) -> Result<Header, IdentityError> {
        header_name(name).map(Header)
    }
}

impl Identify for Header {
    fn identify(&self, request: &Parts) -> Option<String> {
        found(only(&request.headers, &self.0)?)
    }
}

/// An API key: as its digest, unless [`raw`](Self::raw), so that no log of keys and no list of hot keys shows it.
///
/// Nothing checks that the key is one that was given out: unless something does before, an invented one is an identity of its
/// own.
///
/// ```
/// use quorate_client::identity::{ApiKey, Identify};
/// let (request, ()) = http::Request::get("/").header("authorization", "Bearer s3cret").body(()).unwrap().into_parts();
/// assert_eq!(ApiKey::bearer().identify(&request).map(|key| key.len()), Some(32));
/// assert_eq!(ApiKey::bearer().raw().identify(&request).as_deref(), Some("s3cret"));
/// ```
#[derive(Clone, Debug)]
pub struct ApiKey {
    header: HeaderName,
    bearer: bool,
    raw: bool,
}

impl ApiKey {
    /// The whole value of that header, such as `x-api-key`.
    ///
    /// # Errors
    /// Where no header can have that name.
    pub fn header(name: &str) -> Result<ApiKey, IdentityError> {
        Ok(ApiKey { header: header_name(name)?, bearer: false, raw: false })
    }

    /// What follows `Bearer` in `Authorization`.
    pub fn bearer() -> ApiKey {
        ApiKey { header: AUTHORIZATION, bearer: true, raw: false }
    }

    /// The key itself instead of its digest: easier to look up with `quorate peek`, and then shown wherever keys are shown.
    #[must_use]
    pub fn raw(mut self) -> ApiKey {
        self.raw = true;
        self
    }
}

impl Identify for ApiKey {
    fn identify(&self, request: &Parts) -> Option<String> {
        let mut value = only(&request.headers, &self.header)?.trim();
        if self.bearer {
            let (scheme, token) = value.split_once([' ', '\t'])?;
            value = scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())?;
        }
        if self.raw { found(value) } else { (!value.is_empty()).then(|| digest(value.as_bytes())) }
    }
}

/// What an earlier layer has put into the request's extensions: the user that authentication has found.
///
/// ```
/// use quorate_client::identity::{FromExtension, Identify};
///
/// #[derive(Clone)]
/// struct User { id: u64 }
///
/// let by_user = FromExtension::new(|user: &User| Some(user.id.to_string()));
/// let (request, ()) = http::Request::get("/").extension(User { id: 7 }).body(()).unwrap().into_parts();
/// assert_eq!(by_user.identify(&request).as_deref(), Some("7"));
/// ```
pub struct FromExtension<T, F> {
    key: F,
    of: PhantomData<fn(&T)>,
}

impl<T, F> FromExtension<T, F>
where
    T: Send + Sync + 'static,
    F: Fn(&T) -> Option<String> + Send + Sync + 'static,
{
    /// The key that `key` makes of the extension; none where the request has no such extension.
    pub fn new(key: F) -> Self {
        FromExtension { key, of: PhantomData }
    }
}

impl<T, F> Identify for FromExtension<T, F>
where
    T: Send + Sync + 'static,
    F: Fn(&T) -> Option<String> + Send + Sync + 'static,
{
    fn identify(&self, request: &Parts) -> Option<String> {
        found(&(self.key)(request.extensions.get::<T>()?)?)
    }
}

impl<T, F: Clone> Clone for FromExtension<T, F> {
    fn clone(&self) -> Self {
        FromExtension { key: self.key.clone(), of: PhantomData }
    }
}

impl<T, F> fmt::Debug for FromExtension<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FromExtension").field("of", &std::any::type_name::<T>()).finish_non_exhaustive()
    }
}
