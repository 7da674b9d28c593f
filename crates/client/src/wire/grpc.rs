//! The wire over tonic: one connection for each node's frames, one for the topology.

use std::time::Duration;

use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _};
use quorate_proto::v1;
use quorate_proto::v1::checks_client::ChecksClient;
use quorate_proto::v1::topology_client::TopologyClient;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;
use tonic::transport::{Channel, Endpoint};

use super::{Incoming, ReportError, Wire, WireError};
use crate::caps;

/// A dead peer is noticed by a ping after that long, unanswered for as long again.
const KEEPALIVE: Duration = Duration::from_secs(2);
/// Room for a topology of 4,096 shards and as many policies.
const MESSAGE_BYTES: usize = 16 << 20;

/// Reaches nodes over gRPC.
#[derive(Debug, Default)]
pub(crate) struct Grpc;

/// A connection to a node.
pub(crate) async fn channel(address: &str) -> Result<Channel, WireError> {
    let endpoint = Endpoint::from_shared(format!("http://{address}"))
        .map_err(|e| WireError::new(text(&e)))?
        .connect_timeout(caps::DIAL)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(KEEPALIVE)
        .keep_alive_timeout(KEEPALIVE)
        .keep_alive_while_idle(true)
        .initial_stream_window_size(4 << 20)
        .initial_connection_window_size(8 << 20);
    endpoint.connect().await.map_err(|e| WireError::new(text(&e)))
}

impl Wire for Grpc {
    fn watch(&self, address: &str) -> BoxFuture<'static, Result<Incoming<v1::TopologyUpdate>, WireError>> {
        let address = address.to_owned();
        async move {
            let mut client = TopologyClient::new(channel(&address).await?).max_decoding_message_size(MESSAGE_BYTES);
            let updates = client.watch(v1::WatchTopologyRequest {}).await.map_err(|e| refused(&e))?;
            Ok(updates.into_inner().map(|update| update.map_err(|e| refused(&e))).boxed())
        }
        .boxed()
    }

    fn frames(
        &self,
        address: &str,
        frames: mpsc::Receiver<v1::Frame>,
    ) -> BoxFuture<'static, Result<Incoming<v1::FrameAnswer>, WireError>> {
        let address = address.to_owned();
        async move {
            let mut client = ChecksClient::new(channel(&address).await?).max_decoding_message_size(MESSAGE_BYTES);
            let answers = client.frames(ReceiverStream::new(frames)).await.map_err(|e| refused(&e))?;
            Ok(answers.into_inner().map(|answer| answer.map_err(|e| refused(&e))).boxed())
        }
        .boxed()
    }

    fn report(&self, address: &str, report: v1::FalsePositiveReport) -> BoxFuture<'static, Result<(), ReportError>> {
        let address = address.to_owned();
        async move {
            let mut client = ChecksClient::new(channel(&address).await?);
            client.report_false_positive(report).await.map(|_| ()).map_err(|status| reported(&status))
        }
        .boxed()
    }
}

fn reported(status: &Status) -> ReportError {
    match broke(status) {
        Some(_) => ReportError::Unknown(refused(status)),
        None if status.code() == tonic::Code::FailedPrecondition => ReportError::NotReached(refused(status)),
        None => ReportError::Refused(refused(status)),
    }
}

fn refused(status: &Status) -> WireError {
    WireError::new(said(status))
}

/// What a status says: the node's own words or, where the connection broke, how.
pub(crate) fn said(status: &Status) -> String {
    match (broke(status), status.message()) {
        (Some(how), _) => how,
        (None, "") => format!("it answered {:?} and no more", status.code()),
        (None, message) => message.to_owned(),
    }
}

/// How the connection broke, where it did: a status that lies on an error was made on this side, not sent by the node.
pub(crate) fn broke(status: &Status) -> Option<String> {
    std::error::Error::source(status).map(text)
}

/// An error and what lies beneath it, each cause once: tonic's own text is only "transport error".
pub(crate) fn text(error: &(dyn std::error::Error + 'static)) -> String {
    let mut parts: Vec<String> = Vec::new();
    let mut next = Some(error);
    while let Some(error) = next {
        let part = error.to_string();
        if part != "transport error" && parts.last().is_none_or(|last| !last.contains(&part)) {
            parts.push(part);
        }
        next = error.source();
    }
    if parts.is_empty() { "the connection broke".to_owned() } else { parts.join(": ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{0}")]
    struct Layer(&'static str, #[source] Option<Box<Layer>>);

    #[test]
    fn an_error_is_told_down_to_its_cause() {
        let reset = || Some(Box::new(Layer("Connection reset by peer (os error 104)", None)));
        let read = Layer("connection error: Connection reset by peer (os error 104)", reset());
        assert_eq!(
            text(&Layer("transport error", Some(Box::new(read)))),
            "connection error: Connection reset by peer (os error 104)"
        );
        let closed = Layer("error sending request", reset());
        assert_eq!(text(&closed), "error sending request: Connection reset by peer (os error 104)");
        assert_eq!(text(&Layer("transport error", None)), "the connection broke");
    }

    #[test]
    fn a_status_says_who_made_it() {
        let sent = Status::unavailable("no majority");
        assert_eq!((broke(&sent), said(&sent).as_str()), (None, "no majority"));
        assert_eq!(said(&Status::internal("")), "it answered Internal and no more");
        let own = Status::from_error(Box::new(Layer("broken pipe", None)));
        assert_eq!((broke(&own).as_deref(), said(&own).as_str()), (Some("broken pipe"), "broken pipe"));
    }
}
