//! Who may connect: so many at once, and only those that speak.
//!
//! A connection costs a file descriptor and memory, and the log needs both. So there is a place for each, of which there are
//! fewer than the process may have files open; who finds none is turned away at once. A connection that has not sent what
//! every HTTP/2 client begins with gives its place back after [`caps::PREFACE_PATIENCE`].

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures::{FutureExt as _, Stream};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep, sleep};
use tonic::transport::server::{Connected, TcpConnectInfo, TcpIncoming};

use crate::caps;

/// How many bytes a client of HTTP/2 begins with (RFC 9113, section 3.4).
const PREFACE: usize = 24;

/// How many connections there is room for: what is asked for, or fewer where the process may not have that many files open.
/// Raises that limit as far as it may.
///
/// # Errors
/// There is no room for even [`caps::CONNECTIONS_MIN`]; in words that say what to do.
pub fn room(asked: usize) -> Result<usize, String> {
    let limit = getrlimit(Resource::Nofile);
    // Where it is not allowed, what is allowed has to do.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    let files = getrlimit(Resource::Nofile).current.map_or(usize::MAX, |files| files as usize);
    let room = asked.min(files.saturating_sub(caps::FILES_KEPT));
    if room < caps::CONNECTIONS_MIN {
        return Err(format!(
            "this process may have {files} files open, and a node needs at least {}; raise the limit (`ulimit -n`, or \
             LimitNOFILE= of the systemd unit)",
            caps::FILES_KEPT + caps::CONNECTIONS_MIN
        ));
    }
    if room < asked {
        tracing::warn!(
            asked,
            room,
            files,
            "fewer connections than set: the limit on open files leaves no room for more"
        );
    }
    Ok(room)
}

/// The connections that are taken in.
pub(super) struct Connections {
    incoming: TcpIncoming,
    places: Arc<Semaphore>,
    room: usize,
    /// Turned away since it was last told, and when that was.
    turned_away: u64,
    told: Option<Instant>,
    /// The pause after the system gave none.
    pause: Option<Pin<Box<Sleep>>>,
}

impl Connections {
    /// Takes up to `room` connections at once from the listener.
    pub(super) fn new(listener: TcpListener, room: usize) -> Connections {
        let incoming =
            TcpIncoming::from(listener).with_nodelay(Some(true)).with_keepalive(Some(Duration::from_secs(60)));
        let places = Arc::new(Semaphore::new(room));
        Connections { incoming, places, room, turned_away: 0, told: None, pause: None }
    }

    fn turn_away(&mut self) {
        self.turned_away += 1;
        let now = Instant::now();
        if self.told.is_none_or(|told| now - told >= caps::TURNED_AWAY_TOLD) {
            tracing::warn!(
                room = self.room,
                turned_away = self.turned_away,
                "connections are turned away: all places are taken; look for a client that opens too many, or raise `connections`"
            );
            (self.turned_away, self.told) = (0, Some(now));
        }
    }
}

impl Stream for Connections {
    type Item = io::Result<Connection>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(pause) = &mut self.pause {
                ready!(pause.poll_unpin(cx));
                self.pause = None;
            }
            match ready!(Pin::new(&mut self.incoming).poll_next(cx)) {
                None => return Poll::Ready(None),
                Some(Err(error)) => {
                    // A client that was gone at once, or the system is short of something: neither ends a server.
                    tracing::debug!(%error, "a connection could not be accepted");
                    self.pause = Some(Box::pin(sleep(caps::ACCEPT_PAUSE)));
                }
                Some(Ok(stream)) => match self.places.clone().try_acquire_owned() {
                    Ok(place) => return Poll::Ready(Some(Ok(Connection::new(stream, place)))),
                    Err(_) => self.turn_away(),
                },
            }
        }
    }
}

/// A connection, and the place that it takes for as long as it lasts.
pub(super) struct Connection {
    stream: TcpStream,
    /// Until the preface has come: how much of it has, and how long to wait for the rest.
    silent: Option<(usize, Pin<Box<Sleep>>)>,
    _place: OwnedSemaphorePermit,
}

impl Connection {
    fn new(stream: TcpStream, place: OwnedSemaphorePermit) -> Connection {
        Connection { stream, silent: Some((0, Box::pin(sleep(caps::PREFACE_PATIENCE)))), _place: place }
    }
}

impl Connected for Connection {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> TcpConnectInfo {
        self.stream.connect_info()
    }
}

impl AsyncRead for Connection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let Some((come, patience)) = &mut this.silent else { return Pin::new(&mut this.stream).poll_read(cx, buffer) };
        if patience.poll_unpin(cx).is_ready() {
            let problem = format!("it said nothing in HTTP/2 within {:?}", caps::PREFACE_PATIENCE);
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, problem)));
        }
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(cx, buffer))?;
        *come += buffer.filled().len() - before;
        if *come >= PREFACE {
            this.silent = None;
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bytes)
    }
}

#[cfg(test)]
mod tests {
    use futures::StreamExt as _;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    async fn connections(room: usize) -> (Connections, std::net::SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        (Connections::new(listener, room), address)
    }

    #[tokio::test]
    async fn who_finds_no_place_is_turned_away_until_one_is_free() {
        let (mut connections, address) = connections(2).await;
        let mut clients = Vec::new();
        let mut taken = Vec::new();
        for _ in 0..2 {
            clients.push(TcpStream::connect(address).await.unwrap());
            taken.push(connections.next().await.unwrap().unwrap());
        }
        let mut third = TcpStream::connect(address).await.unwrap();
        let turned_away = async { assert_eq!(third.read(&mut [0]).await.unwrap(), 0) };
        tokio::select! {
            () = turned_away => {}
            _ = connections.next() => panic!("a third place"),
        }
        taken.pop();
        let _fourth = TcpStream::connect(address).await.unwrap();
        assert!(connections.next().await.unwrap().is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn who_says_nothing_loses_its_place() {
        let (mut connections, address) = connections(1).await;
        let mut client = TcpStream::connect(address).await.unwrap();
        let mut silent = connections.next().await.unwrap().unwrap();
        client.write_all(&[b'P'; PREFACE - 1]).await.unwrap();
        let mut read = [0; PREFACE];
        silent.read_exact(&mut read[..PREFACE - 1]).await.unwrap();
        let error = silent.read(&mut read).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        drop(silent);

        let mut client = TcpStream::connect(address).await.unwrap();
        let mut speaks = connections.next().await.unwrap().unwrap();
        client.write_all(&[b'P'; PREFACE]).await.unwrap();
        speaks.read_exact(&mut read).await.unwrap();
        let later = async {
            sleep(caps::PREFACE_PATIENCE * 2).await;
            client.write_all(b"!").await.unwrap();
        };
        let (byte, ()) = tokio::join!(speaks.read_u8(), later);
        assert_eq!(byte.unwrap(), b'!');
    }

    #[test]
    fn there_is_room_for_what_the_system_allows() {
        assert_eq!(room(caps::CONNECTIONS_MIN).unwrap(), caps::CONNECTIONS_MIN);
    }
}
