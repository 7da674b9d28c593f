//! A cluster without nodes, for the tests of a service that asks Quorate: feature `testing`.
//!
//! [`FakeCluster`] decides with the state machine that real nodes run, in this process and without a network, on a clock that
//! stands still until it is turned. The [`Client`] that it gives is the real one: its retries, its sessions, its
//! memory of denials and what it does when the cluster cannot be asked are what a service meets in production.
//!
//! ```toml
//! [dev-dependencies]
//! quorate-client = { version = "0.1", features = ["testing"] }
//! ```
//!
//! Without tokio's paused time, the cluster's clock is turned by hand and nothing has to be waited for:
//!
//! ```
//! use std::time::Duration;
//! use quorate_client::testing::FakeCluster;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), quorate_client::Error> {
//! let cluster = FakeCluster::from_toml(
//!     r#"
//!     [[policy]]
//!     name = "login"
//!     algorithm = "token_bucket"
//!     capacity = 2
//!     refill = "1/m"
//!     "#,
//! )?;
//! let client = cluster.connect().await?;
//! assert!(client.check("login", "alice").cost(2).await?.allowed);
//! let denied = client.check("login", "alice").await?;
//! assert_eq!((denied.allowed, denied.retry_after), (false, Some(Duration::from_secs(60))));
//!
//! cluster.advance(Duration::from_secs(60));
//! assert!(client.check("login", "alice").await?.allowed);
//! assert_eq!(cluster.granted("login", "alice"), 3);
//!
//! cluster.set_unavailable(true);
//! assert!(client.check("login", "bob").deadline(Duration::from_millis(20)).await.is_err());
//! # Ok(()) }
//! ```
//!
//! With it (`#[tokio::test(start_paused = true)]`, tokio's feature `test-util`), let the cluster's clock follow tokio's: then
//! what the service sleeps, the cluster passes too, and neither takes any time.
//!
//! ```
//! use std::time::Duration;
//! use quorate_client::testing::FakeCluster;
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), quorate_client::Error> {
//! let policies = "[[policy]]\nname = \"calls\"\nalgorithm = \"fixed_window\"\nlimit = 1\nwindow = \"1h\"\n";
//! let cluster = FakeCluster::builder().toml(policies).follow_tokio_time().build()?;
//! let client = cluster.connect().await?;
//! assert!(client.check("calls", "alice").await?.allowed);
//! let denied = client.check("calls", "alice").await?;
//! tokio::time::sleep(denied.retry_after.unwrap()).await;
//! assert!(client.check("calls", "alice").await?.allowed);
//! # Ok(()) }
//! ```

use std::sync::Arc;
use std::time::Duration;

use quorate_core::{Policy, policy_file};

use crate::builder::ClientBuilder;
use crate::caps;
use crate::client::Client;
use crate::error::Error;

mod clock;
mod fate;
mod ledger;
#[doc(hidden)]
pub mod nodes;

use ledger::Forced;
use nodes::{Fate, Nodes, Setup};

/// A cluster in this process; see the [module](self) for how it is used.
///
/// Its clock starts at a fixed moment, the same in every test: 2027-01-15 08:00:00 UTC, which begins a window of every length
/// that an hour is a multiple of. Clones are the same cluster. It has to be made, and its clients have to live, within a tokio
/// runtime.
#[derive(Clone)]
pub struct FakeCluster {
    nodes: Nodes,
}

impl std::fmt::Debug for FakeCluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FakeCluster").field("now", &self.nodes.now()).finish_non_exhaustive()
    }
}

/// Collects what a [`FakeCluster`] is made with; made by [`FakeCluster::builder`].
///
/// ```
/// use quorate_client::testing::FakeCluster;
/// use quorate_client::{Algorithm, Policy, Span};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), quorate_client::Error> {
/// let login = Policy::new("login", Algorithm::FixedWindow { limit: 5, window: Span(60_000_000) });
/// let cluster = FakeCluster::builder().policies([login]).shards(1).build()?;
/// assert!(cluster.connect().await?.check("login", "alice").await?.allowed);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct FakeClusterBuilder {
    policies: Result<Vec<Policy>, String>,
    shards: u32,
    follows_tokio: bool,
}

impl FakeClusterBuilder {
    /// Adds the policies of a policy file's text.
    pub fn toml(mut self, text: &str) -> Self {
        match (policy_file::parse(text, "policies"), &mut self.policies) {
            (Ok(more), Ok(policies)) => policies.extend(more),
            (Err(problems), _) => self.policies = Err(lines(problems)),
            (Ok(_), Err(_)) => {}
        }
        self
    }

    /// Adds policies. Their ids are given by the cluster.
    pub fn policies(mut self, policies: impl IntoIterator<Item = Policy>) -> Self {
        if let Ok(all) = &mut self.policies {
            all.extend(policies);
        }
        self
    }

    /// How many shards the keys fall to, 1 to 4096: 12 if not set, as in a new cluster.
    pub fn shards(mut self, shards: u32) -> Self {
        self.shards = shards;
        self
    }

    /// Lets the cluster's clock follow tokio's, for tests that run on its paused time; it can be turned besides.
    pub fn follow_tokio_time(mut self) -> Self {
        self.follows_tokio = true;
        self
    }

    /// Makes the cluster.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) where a policy is wrong, saying where and how, or the number of shards
    /// is.
    pub fn build(self) -> Result<FakeCluster, Error> {
        let policies = self.policies.map_err(Error::invalid)?;
        if !(1..=caps::SHARDS as u32).contains(&self.shards) {
            return Err(Error::invalid(format!("{} shards; allowed are 1 to {}", self.shards, caps::SHARDS)));
        }
        validate(&policies)?;
        let setup = Setup { shards: self.shards, follows_tokio: self.follows_tokio, audited: false };
        let cluster = FakeCluster { nodes: Nodes::new(setup) };
        cluster.nodes.apply(policies);
        Ok(cluster)
    }
}

fn lines(problems: impl IntoIterator<Item = policy_file::Problem>) -> String {
    problems.into_iter().map(|problem| problem.to_string()).collect::<Vec<_>>().join("\n")
}

fn validate(policies: &[Policy]) -> Result<(), Error> {
    for (at, policy) in policies.iter().enumerate() {
        policy.validate().map_err(|problem| Error::invalid(format!("policy {:?}: {problem}", policy.name)))?;
        if policies.iter().take(at).any(|other| other.name == policy.name) {
            return Err(Error::invalid(format!("there are two policies {:?}; a name is used once", policy.name)));
        }
    }
    Ok(())
}

impl FakeCluster {
    /// Begins to make a cluster.
    pub fn builder() -> FakeClusterBuilder {
        FakeClusterBuilder { policies: Ok(Vec::new()), shards: 12, follows_tokio: false }
    }

    /// A cluster with the policies of a policy file's text, on a clock that is turned by hand.
    ///
    /// # Errors
    /// As [`FakeClusterBuilder::build`].
    pub fn from_toml(text: &str) -> Result<FakeCluster, Error> {
        FakeCluster::builder().toml(text).build()
    }

    /// A client of this cluster, with the settings of [`Client::builder`], but a deadline of a second.
    ///
    /// # Errors
    /// As [`ClientBuilder::connect`]: the cluster is [unavailable](Self::set_unavailable).
    pub async fn connect(&self) -> Result<Client, Error> {
        // A test is not to depend on how fast its machine is.
        self.connect_with(Client::builder().deadline(caps::OPERATION)).await
    }

    /// A client of this cluster with settings of its own; endpoints need not be named.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use quorate_client::{Client, testing::FakeCluster};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), quorate_client::Error> {
    /// # let cluster = FakeCluster::from_toml("")?;
    /// let client = cluster.connect_with(Client::builder().deadline(Duration::from_millis(50))).await?;
    /// # drop(client); Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`ClientBuilder::connect`].
    pub async fn connect_with(&self, builder: ClientBuilder) -> Result<Client, Error> {
        builder.endpoints(Nodes::endpoints()).connect_over(Arc::new(self.nodes.clone()), 1).await
    }

    /// As [`connect_with`](Self::connect_with), of a client that [connects in the background](ClientBuilder::connect_lazily):
    /// for what a service does that starts while its cluster is away.
    ///
    /// # Errors
    /// As [`ClientBuilder::connect_lazily`].
    pub fn connect_lazily_with(&self, builder: ClientBuilder) -> Result<Client, Error> {
        builder.endpoints(Nodes::endpoints()).begin(Arc::new(self.nodes.clone()), 1)
    }

    /// Turns the cluster's clock forward. What its clients remember ages with it; nothing else in them does.
    pub fn advance(&self, by: Duration) {
        self.nodes.advance(by);
    }

    /// Adds policies, or changes those of the same name, as `quorate policy apply` does. Its clients hear of it a moment later:
    /// a new name is waited for, a changed policy is enforced at once.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) where a policy is wrong, saying where and how; nothing is changed then.
    pub fn apply_toml(&self, text: &str) -> Result<(), Error> {
        let new = policy_file::parse(text, "policies").map_err(|problems| Error::invalid(lines(problems)))?;
        self.apply(new)
    }

    /// As [`apply_toml`](Self::apply_toml), from policies.
    ///
    /// # Errors
    /// The same.
    pub fn apply(&self, policies: impl IntoIterator<Item = Policy>) -> Result<(), Error> {
        let new: Vec<_> = policies.into_iter().collect();
        validate(&new)?;
        let mut all = self.nodes.policies();
        all.retain(|old| new.iter().all(|new| new.name != old.name));
        all.extend(new);
        self.nodes.apply(all);
        Ok(())
    }

    /// Takes every node down, so that connections break and none can be made, or up again.
    pub fn set_unavailable(&self, unavailable: bool) {
        self.nodes.set_all_down(unavailable);
    }

    /// Takes all shards their leaders, as while a majority of the nodes is lost, or gives them back.
    pub fn set_leaderless(&self, leaderless: bool) {
        self.nodes.set_leaderless(leaderless);
    }

    /// Has every answer come that much later than its decision, by tokio's time; zero ends it.
    pub fn set_slow(&self, by: Duration) {
        self.nodes.set_slow(by);
    }

    /// Holds up everything that is asked from now on, decided by nobody, until it is [released](Self::release).
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use quorate_client::{ErrorKind, testing::FakeCluster};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), quorate_client::Error> {
    /// let cluster = FakeCluster::from_toml("[[policy]]\nname = \"p\"\nalgorithm = \"fixed_window\"\nlimit = 1\nwindow = \"1h\"\n")?;
    /// let client = cluster.connect().await?;
    /// cluster.hang();
    /// let late = client.check("p", "alice").deadline(Duration::from_millis(20)).await.unwrap_err();
    /// assert_eq!((late.kind(), cluster.asked("p", "alice")), (ErrorKind::Deadline, 0));
    /// cluster.release();
    /// # Ok(()) }
    /// ```
    pub fn hang(&self) {
        self.nodes.hold();
    }

    /// Decides what was held up, in the order that it came, and everything that comes after it.
    pub fn release(&self) {
        self.nodes.release();
    }

    /// The next message to the cluster is executed, and its answer never comes: its caller cannot know, so the error says that
    /// it [may have charged](Error::may_have_charged). Each call makes that so for one message more.
    pub fn lose_next_answer(&self) {
        self.nodes.script_another(Fate::Swallowed);
    }

    /// The next message to the cluster is executed, and then its connection breaks: the client asks again by itself, and is
    /// told what was decided first. Each call makes that so for one message more.
    pub fn break_next_connection(&self) {
        self.nodes.script_another(Fate::BrokenAfter);
    }

    /// Denies every check that names the policy, whatever its state, with that wait; none says that it never will be granted.
    /// Nothing is charged. In shadow mode the denial is told, and denies nothing.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use quorate_client::testing::FakeCluster;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), quorate_client::Error> {
    /// let cluster = FakeCluster::from_toml("[[policy]]\nname = \"p\"\nalgorithm = \"fixed_window\"\nlimit = 9\nwindow = \"1h\"\n")?;
    /// let client = cluster.connect().await?;
    /// cluster.deny("p", Some(Duration::from_secs(7)))?;
    /// assert_eq!(client.check("p", "alice").await?.retry_after, Some(Duration::from_secs(7)));
    /// cluster.decide("p")?;
    /// assert!(client.check("p", "bob").await?.allowed);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::UnknownPolicy`](crate::ErrorKind::UnknownPolicy).
    pub fn deny(&self, policy: &str, retry_after: Option<Duration>) -> Result<(), Error> {
        self.force(policy, Some(Forced::Denial(retry_after.map(ledger::span))))
    }

    /// Answers every check that names the policy with the error [`TableFull`](crate::ErrorKind::TableFull): no decision.
    ///
    /// # Errors
    /// [`ErrorKind::UnknownPolicy`](crate::ErrorKind::UnknownPolicy).
    pub fn fail(&self, policy: &str) -> Result<(), Error> {
        self.force(policy, Some(Forced::TableFull))
    }

    /// Decides checks of the policy by its state again.
    ///
    /// # Errors
    /// [`ErrorKind::UnknownPolicy`](crate::ErrorKind::UnknownPolicy).
    pub fn decide(&self, policy: &str) -> Result<(), Error> {
        self.force(policy, None)
    }

    fn force(&self, policy: &str, how: Option<Forced>) -> Result<(), Error> {
        if self.nodes.force(policy, how) { Ok(()) } else { Err(Error::unknown_policy(policy)) }
    }

    /// How many checks of that key and policy the cluster has decided, peeks left out. What the client answered by itself is not
    /// among them.
    pub fn asked(&self, policy: &str, key: &str) -> u64 {
        self.nodes.tally(policy, key).asked
    }

    /// How many of those the policy by itself would not have granted.
    pub fn denied(&self, policy: &str, key: &str) -> u64 {
        self.nodes.tally(policy, key).denied
    }

    /// The units that were charged to that key under the policy, all told: what was given back later is not taken off.
    pub fn granted(&self, policy: &str, key: &str) -> u64 {
        self.nodes.tally(policy, key).granted
    }

    /// How many refunds and settlements named that key and policy.
    pub fn corrected(&self, policy: &str, key: &str) -> u64 {
        self.nodes.tally(policy, key).corrected
    }

    /// How many denials by that policy were [reported as wrong](crate::Client::report_false_positive).
    pub fn false_positives(&self, policy: &str) -> u64 {
        self.nodes.false_positives(policy)
    }

    /// How many units the key would be granted now under the policy; none where there is no such policy, or it is disabled.
    pub fn remaining(&self, policy: &str, key: &str) -> Option<u64> {
        Some(self.nodes.look(policy, key)?.limits.first()?.remaining)
    }

    /// Whether two keys fall to one shard, so that one check of both is one atomic command.
    pub fn on_one_shard(&self, one: &str, other: &str) -> bool {
        self.nodes.shard_of(one) == self.nodes.shard_of(other)
    }
}
