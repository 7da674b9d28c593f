//! How clients reach nodes here: the twin of the gRPC streams, on the simulated network.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{FutureExt, Stream, StreamExt};
use quorate_client::wire::{Incoming, ReportError, Wire, WireError};
use quorate_node::node::Node;
use quorate_node::services::{Frames, NO_CLUSTER};
use quorate_proto::v1;
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::{UnboundedReceiverStream, WatchStream};

use crate::net::{LaneId, Machine, Net};
use crate::peers::{Nodes, machine_of};

/// How long a stream may take to open.
const OPEN: Duration = Duration::from_secs(2);

/// The way from one machine to nodes.
#[derive(Clone)]
pub struct SimWire {
    /// The client's machine.
    pub here: Machine,
    /// The network.
    pub net: Net,
    /// Who is where.
    pub nodes: Nodes,
    /// Whether the client at this end has died: what it still does reaches nobody.
    pub dead: Arc<AtomicBool>,
}

/// What listens at one end of a stream; nobody once it broke.
struct Ear<T>(Arc<Mutex<Option<mpsc::UnboundedSender<T>>>>);

impl<T> Clone for Ear<T> {
    fn clone(&self) -> Self {
        Ear(Arc::clone(&self.0))
    }
}

impl<T> Ear<T> {
    fn new() -> (Ear<T>, mpsc::UnboundedReceiver<T>) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (Ear(Arc::new(Mutex::new(Some(sender)))), receiver)
    }

    fn tell(&self, what: T) {
        if let Some(sender) = &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            // Whoever listened may have gone away; then nobody is told.
            let _ = sender.send(what);
        }
    }

    fn close(&self) {
        let sender = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(sender);
    }
}

/// What comes back on a connection, which is hung up when nobody listens any more.
struct Coming<T> {
    back: LaneId,
    net: Net,
    stream: UnboundedReceiverStream<Result<T, WireError>>,
}

impl<T> Stream for Coming<T> {
    type Item = Result<T, WireError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.stream.poll_next_unpin(context)
    }
}

impl<T> Drop for Coming<T> {
    fn drop(&mut self) {
        self.net.hang_up(self.back);
    }
}

/// A connection to a node, as the client has it.
struct Connection<T> {
    to: Machine,
    there: LaneId,
    back: LaneId,
    ear: Ear<Result<T, WireError>>,
    coming: Coming<T>,
}

impl SimWire {
    /// The same way, for another client.
    pub fn anew(&self) -> SimWire {
        SimWire { dead: Arc::default(), ..self.clone() }
    }

    fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Relaxed)
    }

    fn connect<T: Send + 'static>(&self, address: &str) -> Result<Connection<T>, WireError> {
        if self.is_dead() {
            return Err(WireError::new("who asks is dead"));
        }
        let to = machine_of(address).ok_or_else(|| WireError::new("nobody knows where"))?;
        let (there, back) = self.net.connect(self.here, to).ok_or_else(|| WireError::new("nobody listens there"))?;
        let (ear, incoming) = Ear::new();
        let broken = ear.clone();
        let deed = move || {
            broken.tell(Err(WireError::new("the stream broke")));
            broken.close();
        };
        self.net.on_break(back, Box::new(deed));
        let coming = Coming { back, net: self.net.clone(), stream: UnboundedReceiverStream::new(incoming) };
        Ok(Connection { to, there, back, ear, coming })
    }

    /// Has the node begin to answer, and waits until it says that it has.
    async fn begin<T: Send + 'static, S>(
        &self,
        connection: &Connection<T>,
        answers: impl FnOnce(Arc<Node>) -> Result<S, &'static str> + Send + 'static,
    ) -> Result<(), WireError>
    where
        S: Stream<Item = T> + Send + Unpin + 'static,
    {
        let (told, begun) = oneshot::channel();
        let (net, nodes) = (self.net.clone(), self.nodes.clone());
        let (to, back, ear) = (connection.to, connection.back, connection.ear.clone());
        let begin = move || {
            let answers = nodes.get(to).ok_or("the node is still starting").and_then(answers);
            let begins = answers.as_ref().map(|_| ()).map_err(|problem| *problem);
            net.stream(back, Box::new(move || _ = told.send(begins)));
            if let Ok(answers) = answers {
                tokio::spawn(forward(net, back, ear, answers));
            }
        };
        self.net.stream(connection.there, Box::new(begin));
        match tokio::time::timeout(OPEN, begun).await {
            Ok(Ok(Ok(()))) => Ok(()),
            Ok(Ok(Err(problem))) => Err(WireError::new(problem)),
            Ok(Err(_)) | Err(_) => Err(WireError::new("it does not answer")),
        }
    }
}

/// Sends what the node answers, for as long as the connection is there.
async fn forward<T: Send + 'static>(
    net: Net,
    back: LaneId,
    ear: Ear<Result<T, WireError>>,
    mut answers: impl Stream<Item = T> + Unpin,
) {
    while let Some(answer) = answers.next().await {
        if !net.is_open(back) {
            return;
        }
        let ear = ear.clone();
        net.stream(back, Box::new(move || ear.tell(Ok(answer))));
    }
    net.stream(back, Box::new(move || ear.close()));
}

impl Wire for SimWire {
    fn watch(&self, address: &str) -> BoxFuture<'static, Result<Incoming<v1::TopologyUpdate>, WireError>> {
        let (wire, address) = (self.clone(), address.to_owned());
        async move {
            let connection = wire.connect(&address)?;
            let answers = |node: Arc<Node>| {
                let newest = node.topology();
                if newest.borrow().is_none() {
                    return Err(NO_CLUSTER);
                }
                let updates = WatchStream::new(newest);
                Ok(updates.filter_map(|update| std::future::ready(update.map(|update| (*update).clone()))))
            };
            wire.begin(&connection, answers).await?;
            Ok(connection.coming.boxed())
        }
        .boxed()
    }

    fn report(&self, address: &str, _: v1::FalsePositiveReport) -> BoxFuture<'static, Result<(), ReportError>> {
        // It has no bearing on any limit, so nobody here reports.
        let problem = WireError::new(format!("nobody at {address} takes reports"));
        std::future::ready(Err(ReportError::NotReached(problem))).boxed()
    }

    fn frames(
        &self,
        address: &str,
        mut frames: mpsc::Receiver<v1::Frame>,
    ) -> BoxFuture<'static, Result<Incoming<v1::FrameAnswer>, WireError>> {
        let (wire, address) = (self.clone(), address.to_owned());
        async move {
            let connection = wire.connect(&address)?;
            let (node_ear, arriving) = Ear::new();
            let broken = node_ear.clone();
            wire.net.on_break(connection.there, Box::new(move || broken.close()));
            let answers =
                |node: Arc<Node>| Ok(Frames::new(Arc::clone(node.ingress()), UnboundedReceiverStream::new(arriving)));
            wire.begin(&connection, answers).await?;
            let (net, there) = (wire.net.clone(), connection.there);
            tokio::spawn(async move {
                while let Some(frame) = frames.recv().await {
                    if wire.is_dead() || !net.is_open(there) {
                        return;
                    }
                    let ear = node_ear.clone();
                    net.stream(there, Box::new(move || ear.tell(frame)));
                }
                net.stream(there, Box::new(move || node_ear.close()));
            });
            Ok(connection.coming.boxed())
        }
        .boxed()
    }
}
