//! A bare gRPC call: a server that gives back what it is sent, in a process of its own.

use std::process::Command;

use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Request, Response, Status};

use crate::measure::Caller;
use crate::servers::{Servers, free_ports};

use wire::Said;
use wire::echo_client::EchoClient;
use wire::echo_server::{Echo, EchoServer};

#[allow(missing_docs, unreachable_pub, clippy::all, reason = "generated")]
mod wire {
    tonic::include_proto!("echo");
}

struct Wall;

#[tonic::async_trait]
impl Echo for Wall {
    async fn say(&self, said: Request<Said>) -> Result<Response<Said>, Status> {
        Ok(Response::new(said.into_inner()))
    }
}

/// Serves until the process is killed, on one thread as a node does.
pub(crate) fn serve(port: u16) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| error.to_string())?.block_on(async {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await.map_err(|error| error.to_string())?;
        let incoming = TcpListenerStream::new(listener);
        let server = Server::builder().tcp_nodelay(true).add_service(EchoServer::new(Wall));
        server.serve_with_incoming(incoming).await.map_err(|error| error.to_string())
    })
}

/// Starts it. The port to ask.
pub(crate) async fn start(servers: &mut Servers) -> Result<u16, String> {
    let port = free_ports(1)?[0];
    let me = std::env::current_exe().map_err(|error| format!("cannot tell where this program is: {error}"))?;
    let mut command = Command::new(me);
    command.args(["--echo", &port.to_string()]);
    servers.start(command, port).await?;
    Ok(port)
}

/// Calls it once for each text.
pub(crate) struct Calls(EchoClient<Channel>);

impl Calls {
    /// So many of them, over one connection.
    pub(crate) async fn connect(port: u16, callers: usize) -> Result<Vec<Calls>, String> {
        let endpoint = Endpoint::from_shared(format!("http://127.0.0.1:{port}")).map_err(|error| error.to_string())?;
        let channel = endpoint.tcp_nodelay(true).connect().await.map_err(|error| error.to_string())?;
        Ok((0..callers).map(|_| Calls(EchoClient::new(channel.clone()))).collect())
    }
}

impl Caller for Calls {
    async fn ask(&mut self, texts: &[String]) -> Result<usize, String> {
        for text in texts {
            self.0.say(Said { text: text.clone() }).await.map_err(|status| status.to_string())?;
        }
        Ok(texts.len())
    }
}
