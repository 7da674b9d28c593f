//! What can go wrong, in few kinds, each with what to do about it.
//!
//! A denial is no error: it is a [`Decision`](crate::Decision). An error means that the client has no decision, and it
//! tells whether something may have been charged all the same.

use std::borrow::Cow;
use std::fmt;

/// What an [`Error`] asks of its receiver.
///
/// ```
/// use quorate_client::ErrorKind;
/// assert!(ErrorKind::Overloaded.is_transient());
/// assert!(!ErrorKind::Invalid.is_transient());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The call itself is wrong: fix it; the same call will fail again.
    Invalid,
    /// The policy is not in force: apply it, or fix the name.
    UnknownPolicy,
    /// The admin call names something that does not exist.
    NotFound,
    /// The admin call does not fit what is there: look, and try again.
    Conflict,
    /// The caller may not do this.
    Forbidden,
    /// The shard has no room for another key: call the operator.
    TableFull,
    /// More is asked than can be answered: shed load, try again later.
    Overloaded,
    /// No node could be reached, or none that serves: check the endpoints and the network.
    Unavailable,
    /// The shard has no leader just now: try again in a second; if it lasts, a majority of its nodes is down.
    NoLeader,
    /// The deadline passed first.
    Deadline,
    /// Whether it was done can no longer be known.
    Unknown,
    /// The client was closed.
    Closed,
    /// The other side does not keep to the protocol: a version that does not fit, or a fault to report.
    Protocol,
}

impl ErrorKind {
    /// Whether the same call may well succeed a little later.
    pub fn is_transient(self) -> bool {
        matches!(self, Self::Overloaded | Self::Unavailable | Self::NoLeader | Self::Deadline | Self::Unknown)
    }

    /// The kind as one lower-case word with underscores, for logs and metrics. Permanent.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Invalid => "invalid",
            Self::UnknownPolicy => "unknown_policy",
            Self::NotFound => "not_found",
            Self::Conflict => "conflict",
            Self::Forbidden => "forbidden",
            Self::TableFull => "table_full",
            Self::Overloaded => "overloaded",
            Self::Unavailable => "unavailable",
            Self::NoLeader => "no_leader",
            Self::Deadline => "deadline",
            Self::Unknown => "unknown",
            Self::Closed => "closed",
            Self::Protocol => "protocol",
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Why there is no decision.
///
/// Its text says what was wrong, whether something may have been charged, and what to do.
///
/// ```no_run
/// # async fn f(client: quorate_client::Client) {
/// use quorate_client::ErrorKind;
/// match client.check("per-user", "alice").await {
///     Ok(decision) => println!("{}", if decision.allowed { "go ahead" } else { "too many requests" }),
///     Err(error) if error.kind() == ErrorKind::UnknownPolicy => panic!("{error}"),
///     Err(error) => eprintln!("{error} (charged? {})", if error.may_have_charged() { "perhaps" } else { "no" }),
/// }
/// # }
/// ```
pub struct Error(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    message: Cow<'static, str>,
    may_have_charged: bool,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<Cow<'static, str>>) -> Self {
        Error(Box::new(Inner { kind, message: message.into(), may_have_charged: false, source: None }))
    }

    pub(crate) fn invalid(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::Invalid, message)
    }

    #[cfg(feature = "testing")]
    pub(crate) fn unknown_policy(name: &str) -> Self {
        Self::new(ErrorKind::UnknownPolicy, format!("there is no policy {name:?}; apply it first"))
    }

    pub(crate) fn closed() -> Self {
        Self::new(ErrorKind::Closed, "the client was closed; connect another")
    }

    /// The engine went away with the question: it was closed, or its runtime was shut down.
    pub(crate) fn abandoned() -> Self {
        Self::new(ErrorKind::Closed, "the client was closed before the answer came; the check may have been charged")
            .charged(true)
    }

    pub(crate) fn charged(mut self, may_have_charged: bool) -> Self {
        #[cfg(feature = "planted")]
        let may_have_charged =
            may_have_charged && !quorate_core::planted::is(quorate_core::planted::Planted::ErrorHidesCharge);
        self.0.may_have_charged = may_have_charged;
        self
    }

    pub(crate) fn caused_by(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// The same for another call; without what lies beneath.
    pub(crate) fn again(&self) -> Self {
        Error::new(self.0.kind, self.0.message.clone()).charged(self.0.may_have_charged)
    }

    /// What the error asks of its receiver.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Whether the call may have been executed although it failed: a check may have been charged, a refund or a reset
    /// done. Where this is false, nothing was changed.
    pub fn may_have_charged(&self) -> bool {
        self.0.may_have_charged
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_deref().map(|source| source as _)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("kind", &self.0.kind)
            .field("message", &self.0.message)
            .field("may_have_charged", &self.0.may_have_charged)
            .field("source", &self.0.source)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_one_word_wide() {
        assert_eq!(size_of::<Error>(), size_of::<usize>());
    }

    #[test]
    fn kinds_have_names_of_their_own() {
        let error = Error::new(ErrorKind::NoLeader, "text").charged(true);
        assert_eq!((error.kind().to_string().as_str(), error.to_string().as_str()), ("no_leader", "text"));
        assert!(error.may_have_charged());
    }
}
