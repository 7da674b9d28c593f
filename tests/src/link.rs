//! A link to a node that can be cut: what a network that is gone looks like to both its ends.

use std::io;
use std::net::Ipv4Addr;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Hands on what comes to its port, both ways, until it is cut: then connections stay open, new ones too, and nothing comes
/// through. Joined again, what was sent meanwhile arrives late, as over a network that comes back.
pub struct Link {
    port: u16,
    cut: watch::Sender<bool>,
    accepting: JoinHandle<()>,
}

impl Link {
    /// A link to that port of this machine.
    ///
    /// # Errors
    ///
    /// No port is free.
    pub async fn to(port: u16) -> io::Result<Link> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let own = listener.local_addr()?.port();
        let cut = watch::Sender::new(false);
        let accepting = tokio::spawn(accept(listener, port, cut.clone()));
        Ok(Link { port: own, cut, accepting })
    }

    /// Where it is reached.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Cuts it, or joins it again.
    pub fn cut(&self, is_cut: bool) {
        self.cut.send_replace(is_cut);
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, to: u16, cut: watch::Sender<bool>) {
    while let Ok((caller, _)) = listener.accept().await {
        tokio::spawn(join(caller, to, cut.subscribe()));
    }
}

async fn join(caller: TcpStream, to: u16, mut cut: watch::Receiver<bool>) -> io::Result<()> {
    let whole = |cut: &bool| !cut;
    if cut.wait_for(whole).await.is_err() {
        return Ok(());
    }
    let node = TcpStream::connect((Ipv4Addr::LOCALHOST, to)).await?;
    caller.set_nodelay(true)?;
    node.set_nodelay(true)?;
    let ((from_caller, to_caller), (from_node, to_node)) = (caller.into_split(), node.into_split());
    // Whichever end goes, both are gone.
    tokio::select! {
        ended = hand_on(from_caller, to_node, cut.clone()) => ended,
        ended = hand_on(from_node, to_caller, cut) => ended,
    }
}

async fn hand_on(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut cut: watch::Receiver<bool>,
) -> io::Result<()> {
    let mut buffer = vec![0; 64 << 10];
    loop {
        let read = from.read(&mut buffer).await?;
        if cut.wait_for(|cut| !cut).await.is_err() || read == 0 {
            return Ok(());
        }
        to.write_all(&buffer[..read]).await?;
    }
}
