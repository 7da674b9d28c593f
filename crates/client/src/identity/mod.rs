//! Whom a limit is applied to: from a request to a key.
//!
//! An identity says whose allowance a request is charged to. It is **not authentication**: it opens no door, and nothing
//! here says that a caller may do anything. Where callers are authenticated, let that come first, and take the identity from
//! what it established: [`FromExtension`].
//!
//! # Which of them an attacker can choose
//!
//! Who can choose his key at will is not limited: each request gets an allowance of its own, and may use up that of others.
//!
//! | identity | whether an attacker can choose it |
//! |---|---|
//! | [`ClientIp::peer`] | no: it is the address of the connection. Behind a proxy it is the proxy's |
//! | [`ClientIp::trusted`] | no, if every network that is named holds only proxies that add to the header. Who has many addresses has many keys: IPv6 is cut to a prefix |
//! | [`FromExtension`] | as whatever put it there: no after authentication |
//! | [`SignedHeader`] | no: only who holds the secret can make one. Who sees one can use it until it ends |
//! | [`ApiKey`] | **yes**, unless keys are checked before the limit: an invented key is a new identity |
//! | [`Header`] | **yes**, unless a proxy in front overwrites the header on every request |
//! | closures | as what they read: a path, a query or a body is the attacker's |
//!
//! So put the limit behind authentication where there is any, and one by address before it, as authentication costs
//! something too.
//!
//! # Keys
//!
//! A key is at most 1024 bytes; a longer one is replaced by its digest, so that it is limited like any other. What the
//! extractors here take from a request has its `{`, `}` and `%` written as `%7B`, `%7D` and `%25`, because a part of a key in
//! braces chooses the shard that holds it: no caller chooses that. [`Identify::tagged`] puts braces around a part, and a
//! tuple joins parts so that no two different ones make the same key. What a closure returns is taken as it is.
//!
//! ```
//! use quorate_client::identity::{ClientIp, Header, Identify, Parts};
//!
//! # fn main() -> Result<(), quorate_client::identity::IdentityError> {
//! let by_user = Header::new("x-user")?.or_else(ClientIp::trusted(["10.0.0.0/8"])?);
//! let by_tenant_and_method = (
//!     Header::new("x-tenant")?.tagged(),
//!     |request: &Parts| Some(request.method.to_string()),
//! );
//! let request = http::Request::get("/").header("x-tenant", "acme").header("x-user", "7").body(()).unwrap();
//! let (parts, ()) = request.into_parts();
//! assert_eq!(by_user.identify(&parts).as_deref(), Some("7"));
//! assert_eq!(by_tenant_and_method.identify(&parts).as_deref(), Some("{acme}|GET"));
//! # Ok(()) }
//! ```

mod client_ip;
mod combine;
mod forwarded;
mod headers;
mod peer;
mod signed;
mod text;

use std::borrow::Cow;
use std::fmt;

pub use client_ip::ClientIp;
pub use combine::{OrElse, Tagged};
pub use headers::{ApiKey, FromExtension, Header};
/// A request without its body: what identities and costs are taken from.
pub use http::request::Parts;
pub use peer::Peer;
pub use signed::{SignedHeader, SigningKeys};
pub(crate) use text::fit;

/// Takes a key from a request: closures, the extractors of this module, and combinations of them.
///
/// ```
/// use quorate_client::identity::{Identify, Parts};
///
/// /// One key for each host that is asked for.
/// struct Host;
///
/// impl Identify for Host {
///     fn identify(&self, request: &Parts) -> Option<String> {
///         Some(request.uri.host()?.to_ascii_lowercase())
///     }
/// }
/// # let (parts, ()) = http::Request::get("http://A.example/").body(()).unwrap().into_parts();
/// assert_eq!(Host.identify(&parts).as_deref(), Some("a.example"));
/// ```
pub trait Identify: Send + Sync + 'static {
    /// The key of whom the request is charged to; none where the request does not say. An empty one counts as none.
    fn identify(&self, request: &Parts) -> Option<String>;

    /// Another identity for requests that this one says nothing of.
    fn or_else<I: Identify>(self, other: I) -> OrElse<Self, I>
    where
        Self: Sized,
    {
        OrElse::new(self, other)
    }

    /// The same in braces, which makes it the part of a key that chooses the shard: limits whose keys share it are asked in
    /// one command. In a tuple, put it in one place, and do not nest the tuple in another.
    fn tagged(self) -> Tagged<Self>
    where
        Self: Sized,
    {
        Tagged::new(self)
    }
}

impl<F> Identify for F
where
    F: Fn(&Parts) -> Option<String> + Send + Sync + 'static,
{
    fn identify(&self, request: &Parts) -> Option<String> {
        self(request)
    }
}

/// One key for everybody: a limit of the whole service.
///
/// ```
/// use quorate_client::identity::{Everyone, Identify};
/// # let (parts, ()) = http::Request::get("/").body(()).unwrap().into_parts();
/// assert_eq!(Everyone.identify(&parts).as_deref(), Some("everyone"));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Everyone;

impl Identify for Everyone {
    fn identify(&self, _: &Parts) -> Option<String> {
        Some("everyone".to_owned())
    }
}

/// An identity that cannot be set up as it was asked for: a wrong header name, network or secret. Its text says what to do.
///
/// ```
/// use quorate_client::identity::ClientIp;
/// let error = ClientIp::trusted(["10.0.0.0/33"]).unwrap_err();
/// assert!(error.to_string().contains("10.0.0.0/33"));
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct IdentityError(Cow<'static, str>);

impl IdentityError {
    fn new(text: impl Into<Cow<'static, str>>) -> Self {
        IdentityError(text.into())
    }
}

impl fmt::Display for IdentityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for IdentityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("IdentityError").field(&self.0).finish()
    }
}

impl std::error::Error for IdentityError {}
