//! How a client is made.

use std::sync::Arc;
use std::time::Duration;

use rand::TryRng as _;
use tokio::time::timeout;

use crate::caps;
use crate::client::{Client, Inner};
use crate::denials::Denials;
use crate::engine;
use crate::error::{Error, ErrorKind};
use crate::wire::{Grpc, Wire};

/// Collects a client's settings; made by [`Client::builder`].
///
/// ```no_run
/// # async fn f() -> Result<(), quorate_client::Error> {
/// use std::time::Duration;
/// let client = quorate_client::Client::builder()
///     .endpoints(["10.0.0.1:7600", "10.0.0.2:7600", "10.0.0.3:7600"])
///     .deadline(Duration::from_millis(200))
///     .connect()
///     .await?;
/// # drop(client); Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `connect` is awaited"]
pub struct ClientBuilder {
    endpoints: Vec<String>,
    deadline: Duration,
    connect_timeout: Duration,
    remember_denials: Duration,
}

impl Default for ClientBuilder {
    fn default() -> Self {
        ClientBuilder {
            endpoints: Vec::new(),
            deadline: caps::DEADLINE,
            connect_timeout: caps::CONNECT,
            remember_denials: caps::DENIAL,
        }
    }
}

impl ClientBuilder {
    /// Adds nodes to ask for the topology first, as `host:port`. One that answers is enough; name several, so that it does
    /// not matter which is down. The others are learned from it. At most 64.
    pub fn endpoints<E: Into<String>>(mut self, endpoints: impl IntoIterator<Item = E>) -> Self {
        self.endpoints.extend(endpoints.into_iter().take(caps::ENDPOINTS + 1).map(Into::into));
        self
    }

    /// How long a call waits for its answer, unless it says otherwise: 1 s if not set, at most an hour. It covers everything:
    /// waiting in line, connecting, finding a new leader, retries. A shard that loses its leader has another within about a
    /// second and a half: a longer deadline rides that out, a shorter one fails fast.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// How long [`connect`](Self::connect) looks for a node that answers: 5 s if not set.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// How long a denial is remembered at most, 1 s if not set, at most an hour; zero asks the cluster every time.
    ///
    /// A check that was denied is answered from memory until its [`retry_after`](crate::Decision::retry_after), but no longer
    /// than this: see [`Decision::remembered`](crate::Decision::remembered). This client's own refunds, settlements and resets
    /// of a key make it forget. Those of others it does not see: for so long, what they give back may go unseen.
    pub fn remember_denials(mut self, most: Duration) -> Self {
        self.remember_denials = most;
        self
    }

    /// Connects: returns once the topology is known. Connections to the nodes that lead are opened when they are needed.
    /// Has to be called within a tokio runtime, on which the client's tasks then run.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] where an endpoint cannot be one; [`ErrorKind::Unavailable`] where no node gave a topology in
    /// time, saying what each of them answered.
    pub async fn connect(self) -> Result<Client, Error> {
        // Only waits are drawn from it: without the system's randomness they are merely not spread.
        let seed = rand::rngs::SysRng.try_next_u64().unwrap_or_default();
        self.connect_over(Arc::new(Grpc), seed).await
    }

    /// As [`connect`](Self::connect), over another wire and with chance drawn from that seed: for the simulator.
    #[doc(hidden)]
    pub async fn connect_over(self, wire: Arc<dyn Wire>, seed: u64) -> Result<Client, Error> {
        let endpoints = addresses(&self.endpoints)?;
        let deadline = self.deadline.min(caps::DEADLINE_MAX);
        let denials = Denials::new(self.remember_denials, seed, Arc::clone(&wire));
        let mut shared = engine::start(wire, endpoints.clone(), seed);
        let known = timeout(self.connect_timeout, shared.changes.wait_for(|changes| *changes > 0)).await;
        match known.map(|known| known.is_ok()) {
            Ok(true) => Ok(Client { inner: Arc::new(Inner::new(shared, deadline, denials)) }),
            _ => Err(unreachable(&endpoints, self.connect_timeout, &shared.tried.text())),
        }
    }
}

fn unreachable(endpoints: &[String], within: Duration, tried: &str) -> Error {
    let tried = if tried.is_empty() { "none has answered yet" } else { tried };
    let text = format!(
        "no topology from {} within {within:?} ({tried}); check the endpoints, and that the cluster runs and is initialised",
        endpoints.join(", ")
    );
    Error::new(ErrorKind::Unavailable, text)
}

/// Endpoints as `host:port`, each once.
pub(crate) fn addresses(endpoints: &[String]) -> Result<Vec<String>, Error> {
    let mut addresses = Vec::with_capacity(endpoints.len());
    for endpoint in endpoints {
        let address = address(endpoint)?;
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    match addresses.len() {
        0 => Err(Error::invalid("no endpoint is given; name at least one node as host:port")),
        n if n > caps::ENDPOINTS => Err(Error::invalid(format!(
            "more than {} endpoints; a few are enough, the rest is learned",
            caps::ENDPOINTS
        ))),
        _ => Ok(addresses),
    }
}

fn address(endpoint: &str) -> Result<String, Error> {
    let wrong =
        |why: &str| Error::invalid(format!("{endpoint:?} is no endpoint: {why}; write host:port, as 127.0.0.1:7600"));
    if endpoint.starts_with("https://") {
        return Err(wrong("TLS is not supported"));
    }
    let address = endpoint.strip_prefix("http://").unwrap_or(endpoint).trim_end_matches('/');
    let (host, port) = address.rsplit_once(':').ok_or_else(|| wrong("it has no port"))?;
    if !port.parse::<u16>().is_ok_and(|port| port > 0) {
        return Err(wrong("its port is not a number from 1 to 65535"));
    }
    let is_v6 = host.starts_with('[') && host.ends_with(']');
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c) || (is_v6 && "[]:%".contains(c));
    if host.is_empty() || !host.chars().all(allowed) {
        return Err(wrong("its host is not a name or an address"));
    }
    Ok(address.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_addresses() {
        for good in ["127.0.0.1:7600", "http://node-1.example:7600/", "[::1]:7600", "localhost:1"] {
            assert!(address(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "localhost",
            "localhost:",
            "localhost:0",
            "localhost:70000",
            ":7600",
            "https://a:1",
            "a b:1",
            "::1:7600",
            "a/b:1",
        ] {
            let error = address(bad).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{bad}");
            assert!(error.to_string().contains("host:port"), "{error}");
        }
        assert_eq!(addresses(&["a:1".into(), "http://a:1".into()]).unwrap(), ["a:1"]);
        assert!(addresses(&[]).is_err());
        assert!(addresses(&(0..65).map(|i| format!("a{i}:1")).collect::<Vec<_>>()).is_err());
    }
}
