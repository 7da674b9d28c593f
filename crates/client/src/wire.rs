//! How the client reaches nodes: behind a trait, so that the simulator runs the client's own code on a network in memory.
//!
//! The tonic implementation is the only one that ships.

use std::sync::Arc;

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use quorate_proto::v1;
use tokio::sync::mpsc;
use tokio::time::Instant;

mod grpc;

pub(crate) use grpc::{Grpc, broke, channel, said};

/// Why a node could not be reached, or stopped talking.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct WireError(pub Arc<str>);

impl WireError {
    /// With that text.
    pub fn new(text: impl AsRef<str>) -> Self {
        WireError(text.as_ref().into())
    }
}

/// Why a report was not counted, or may not have been.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ReportError {
    /// The node was not reached: another may be told.
    #[error("{0}")]
    NotReached(#[from] WireError),
    /// The node refused it, in its own words.
    #[error("{0}")]
    Refused(WireError),
    /// Nobody knows whether it was counted.
    #[error("{0}")]
    Unknown(WireError),
}

/// A stream of what a node says; it ends with an error, or without one if the node ended it.
pub type Incoming<T> = BoxStream<'static, Result<T, WireError>>;

/// Reaches nodes by address (`host:port`).
///
/// An opened stream loses nothing and reorders nothing until it breaks; frames that were handed over when it breaks may
/// have arrived or not.
pub trait Wire: Send + Sync + 'static {
    /// The topology, now and at each change.
    fn watch(&self, address: &str) -> BoxFuture<'static, Result<Incoming<v1::TopologyUpdate>, WireError>>;

    /// A stream of frames to that node, and its answers. Ends when
    /// `frames` does.
    fn frames(
        &self,
        address: &str,
        frames: mpsc::Receiver<v1::Frame>,
    ) -> BoxFuture<'static, Result<Incoming<v1::FrameAnswer>, WireError>>;

    /// Tells that node of a denial that was wrong.
    fn report(&self, address: &str, report: v1::FalsePositiveReport) -> BoxFuture<'static, Result<(), ReportError>>;

    /// The moment that it is there when it is `now` here: what is remembered of answers ages by it. The same, but where a
    /// cluster's clock is turned by hand.
    fn at(&self, now: Instant) -> Instant {
        now
    }
}
