//! How a client is made.

use std::sync::Arc;
use std::time::Duration;

use quorate_core::OnUnavailable;
use rand::TryRng as _;
use tokio::time::{Instant, timeout};

use crate::address;
use crate::backoff::Chance;
use crate::caps;
use crate::ceiling::Ceiling;
use crate::client::{Client, Inner};
use crate::denials::Denials;
use crate::engine;
use crate::error::{Error, ErrorKind};
use crate::fallback::{Fallbacks, Overrides};
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
    overrides: Overrides,
    max_in_flight: Option<usize>,
    queue: usize,
}

impl Default for ClientBuilder {
    fn default() -> Self {
        ClientBuilder {
            endpoints: Vec::new(),
            deadline: caps::DEADLINE,
            connect_timeout: caps::CONNECT,
            remember_denials: caps::DENIAL,
            overrides: Overrides::new(),
            max_in_flight: None,
            queue: 0,
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

    /// How long a check waits for its answer, unless it says otherwise: 50 ms if not set, at most an hour. It covers everything:
    /// waiting in line, connecting, finding a new leader, retries. What is not answered by then ends as the policy's
    /// `on_unavailable` says.
    ///
    /// It is the most that a request is held up while the cluster is away, so choose what your service can spare, and several
    /// times what a check takes when all is well (`quorate bench` shows its percentiles); less would give up checks that the
    /// cluster is about to answer. A shard that loses its leader has another within about two seconds: a longer
    /// deadline rides that out, a shorter one falls back on the policy meanwhile.
    ///
    /// Refunds, settlements and resets wait for a second where this is less, since no request waits for them.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// What is done with checks of that policy where the cluster cannot be asked in time, whatever the policy itself says. One
    /// check can say otherwise: see [`Check::on_unavailable`](crate::Check::on_unavailable). For at most 4,096 policies.
    ///
    /// ```
    /// use quorate_client::{Client, OnUnavailable};
    /// let builder = Client::builder()
    ///     .on_unavailable("per-user", OnUnavailable::FailOpen)
    ///     // 200,000 parts per million: this process takes a fifth of the limit.
    ///     .on_unavailable("exports", OnUnavailable::Local { share_ppm: Some(200_000) });
    /// # let _ = builder;
    /// ```
    pub fn on_unavailable(mut self, policy: impl Into<String>, wish: OnUnavailable) -> Self {
        if self.overrides.len() <= caps::OVERRIDES {
            self.overrides.insert(policy.into(), wish);
        }
        self
    }

    /// How many calls that ask (checks, peeks, reservations; a `check_many` is one) may be under way at once, whatever the
    /// cluster says: 1 to 1,048,576; no bound if not set. One more waits if [`queue`](Self::queue) has room for it, else it is
    /// refused at once as [`ErrorKind::Ceiling`], which no failure policy turns into a grant.
    pub fn max_in_flight(mut self, calls: usize) -> Self {
        self.max_in_flight = Some(calls);
        self
    }

    /// How many calls may wait, within their deadlines, for a place under [`max_in_flight`](Self::max_in_flight): none if not
    /// set, at most 1,048,576. Without `max_in_flight` it means nothing.
    pub fn queue(mut self, calls: usize) -> Self {
        self.queue = calls;
        self
    }

    /// How long [`connect`](Self::connect) looks for a node that answers, and how long the calls of a client that was [connected
    /// lazily](Self::connect_lazily) may be kept waiting for one: 5 s if not set.
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
    /// [`ErrorKind::Invalid`] where an endpoint cannot be one, or a setting is out of bounds; [`ErrorKind::Unavailable`] where no
    /// node gave a topology in time, saying what each of them answered.
    pub async fn connect(self) -> Result<Client, Error> {
        self.connect_over(Arc::new(Grpc), seed()).await
    }

    /// Makes a client that connects in the background, so that a service starts whether or not its cluster can be reached. Has to
    /// be called within a tokio runtime.
    ///
    /// Until a node has told of the cluster, calls wait for it within their deadlines; once
    /// [`connect_timeout`](Self::connect_timeout) has passed they are no longer kept waiting. The policies are not known by then,
    /// nor what they want done: a check is granted where the check itself or [`on_unavailable`](Self::on_unavailable) says
    /// `fail_open` for all its policies, and is an error of kind [`ErrorKind::Unavailable`] otherwise.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] where an endpoint cannot be one, or a setting is out of bounds.
    ///
    /// ```no_run
    /// # async fn f() -> Result<(), quorate_client::Error> {
    /// use quorate_client::{Client, OnUnavailable};
    /// let client = Client::builder()
    ///     .endpoints(["10.0.0.1:7600", "10.0.0.2:7600", "10.0.0.3:7600"])
    ///     .on_unavailable("per-user", OnUnavailable::FailOpen)
    ///     .connect_lazily()?;
    /// # drop(client); Ok(()) }
    /// ```
    pub fn connect_lazily(self) -> Result<Client, Error> {
        self.begin(Arc::new(Grpc), seed())
    }

    /// As [`connect`](Self::connect), over another wire and with chance drawn from that seed: for the simulator.
    #[doc(hidden)]
    pub async fn connect_over(self, wire: Arc<dyn Wire>, seed: u64) -> Result<Client, Error> {
        let (endpoints, within) = (self.endpoints.clone(), self.connect_timeout);
        let client = self.begin(wire, seed)?;
        let shared = &client.inner.shared;
        let mut changes = shared.changes.clone();
        match timeout(within, changes.wait_for(|changes| *changes > 0)).await.map(|known| known.is_ok()) {
            Ok(true) => Ok(client),
            _ => Err(unreachable(&endpoints, within, &shared.tried.text())),
        }
    }

    /// As [`connect_lazily`](Self::connect_lazily), over another wire.
    pub(crate) fn begin(self, wire: Arc<dyn Wire>, seed: u64) -> Result<Client, Error> {
        let endpoints = address::endpoints(&self.endpoints)?;
        let deadline = self.deadline.min(caps::DEADLINE_MAX);
        let ceiling = self.max_in_flight.map(|calls| Ceiling::new(calls, self.queue)).transpose()?;
        wishes(&self.overrides)?;
        let fallbacks = Fallbacks::new(self.overrides, Chance::seeded(!seed));
        let denials = Denials::new(self.remember_denials, seed, Arc::clone(&wire));
        let shared = engine::start(Arc::clone(&wire), endpoints, seed, deadline);
        let patient_until = Instant::now() + self.connect_timeout.min(caps::DEADLINE_MAX);
        let inner = Inner::new(shared, wire, deadline, denials, fallbacks, ceiling, patient_until);
        Ok(Client { inner: Arc::new(inner) })
    }
}

/// Drawn from it are waits, and where keys lie in this process's own table: without the system's randomness waits are not
/// spread, and somebody who knows that could choose keys that collide.
fn seed() -> u64 {
    rand::rngs::SysRng.try_next_u64().unwrap_or_default()
}

fn unreachable(endpoints: &[String], within: Duration, tried: &str) -> Error {
    let tried = if tried.is_empty() { "none has answered yet" } else { tried };
    let text = format!(
        "no topology from {} within {within:?} ({tried}); check the endpoints, and that the cluster runs and is initialised",
        endpoints.join(", ")
    );
    Error::new(ErrorKind::Unavailable, text)
}

/// Refuses what no policy could say.
fn wishes(overrides: &Overrides) -> Result<(), Error> {
    if overrides.len() > caps::OVERRIDES {
        let text = format!("on_unavailable is set for more than {} policies; set it in the policies", caps::OVERRIDES);
        return Err(Error::invalid(text));
    }
    for (policy, wish) in overrides {
        if let OnUnavailable::Local { share_ppm: Some(share) } = wish
            && !(1..=1_000_000).contains(share)
        {
            return Err(Error::invalid(format!(
                "the share of policy {policy} is {share} parts per million; allowed is 1 to 1000000"
            )));
        }
    }
    Ok(())
}
