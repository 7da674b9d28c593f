//! The fake cluster of `quorate_client::testing` as the client's own tests use it: audited, its policies ready, its time tokio's.

#![allow(
    dead_code,
    unused_imports,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "test support; each test file uses a part of it"
)]

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use quorate_client::testing::nodes::Setup;
pub use quorate_client::testing::nodes::{Fate, Nodes, address};
use quorate_client::wire::Wire;
use quorate_client::{Client, Error, limit};
use quorate_core::{Algorithm, Answer, Policy, PolicyId, Rate, Span};
use quorate_proto::v1;

/// The nodes; whatever broke the protocol fails the test that looks at them next, or their last clone's end.
#[derive(Clone)]
pub struct Fake {
    nodes: Nodes,
    end: Arc<End>,
}

struct End(Nodes);

impl Deref for Fake {
    type Target = Nodes;

    fn deref(&self) -> &Nodes {
        &self.nodes
    }
}

impl Drop for End {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(self.0.violations(), Vec::<String>::new());
        }
    }
}

/// One for each algorithm and mode that the tests use; ids are given here.
pub fn policies() -> Vec<Policy> {
    let year = Span(366 * 24 * 3_600 * 1_000_000);
    let mut all = vec![
        Policy::new("ten", Algorithm::FixedWindow { limit: 10, window: year }),
        Policy::new("plenty", Algorithm::FixedWindow { limit: 1_000_000_000, window: year }),
        Policy::new(
            "bucket",
            Algorithm::TokenBucket { capacity: 10, refill: Rate { units: 1, period: Span(1_000_000) } },
        ),
        Policy::new("paced", Algorithm::LeakyBucket { queue: 5, rate: Rate { units: 1, period: Span(1_000_000) } }),
        Policy::new("shadowed", Algorithm::FixedWindow { limit: 1, window: year }),
        Policy::new("off", Algorithm::FixedWindow { limit: 1, window: year }),
    ];
    all[4].mode = quorate_core::Mode::Shadow;
    all[5].mode = quorate_core::Mode::Disabled;
    for (at, policy) in all.iter_mut().enumerate() {
        policy.id = PolicyId(at as u32 + 1);
    }
    all
}

impl Fake {
    /// Three nodes and that many shards, led by one node after another.
    pub fn new(shards: u32) -> Fake {
        let nodes = Nodes::new(Setup { shards, follows_tokio: true, audited: true });
        nodes.install(policies());
        Fake { end: Arc::new(End(nodes.clone())), nodes }
    }

    pub async fn connect(&self) -> Client {
        self.builder().connect_over(self.wire(), 1).await.unwrap()
    }

    pub fn builder(&self) -> quorate_client::ClientBuilder {
        Client::builder().endpoints(Nodes::endpoints())
    }

    pub fn wire(&self) -> Arc<dyn Wire> {
        Arc::new(self.nodes.clone())
    }

    /// Every frame that has come so far.
    pub fn frames(&self) -> Vec<v1::Frame> {
        assert_eq!(self.violations(), Vec::<String>::new());
        self.nodes.frames()
    }

    /// What the shard holds as charged under a fixed window.
    pub fn used(&self, policy: &str, key: &str) -> u64 {
        assert_eq!(self.violations(), Vec::<String>::new());
        let decision = self.look(policy, key).unwrap();
        decision.limits[0].limit - decision.limits[0].remaining
    }

    /// Two keys of different shards.
    pub fn keys_apart(&self) -> (String, String) {
        let mut keys = (0..).map(|i| format!("apart{i}"));
        let one = keys.next().unwrap();
        let other = keys.find(|key| self.shard_of(key) != self.shard_of(&one)).unwrap();
        (one, other)
    }

    /// Holds a decision of one shard against what the state machine decided at that place of its log.
    pub fn assert_true(&self, decision: &quorate_client::Decision) {
        let Some(Answer::Decision(core)) = self.decided(&decision.receipt) else { panic!("{decision:?}") };
        assert_eq!((decision.allowed, decision.policy_version), (core.allowed, core.version));
        assert_eq!(decision.retry_after, core.retry_after.map(micros));
        assert_eq!(decision.delay, core.delay.map(micros));
        assert_eq!(decision.limits.len(), core.limits.len());
        for (ours, theirs) in decision.limits.iter().zip(&core.limits) {
            assert_eq!((ours.allowed, ours.charged, ours.shadow), (theirs.allowed, theirs.charged, theirs.shadow));
            assert_eq!((ours.limit, ours.remaining, ours.cost), (theirs.limit, theirs.remaining, theirs.cost.get()));
            assert_eq!(
                (ours.retry_after, ours.reset_after),
                (theirs.retry_after.map(micros), micros(theirs.reset_after))
            );
        }
    }
}

fn micros(span: Span) -> Duration {
    Duration::from_micros(span.0 as u64)
}

/// Whether the check of one unit under `plenty` is granted now.
pub async fn works(client: &Client, key: &str) -> Result<bool, Error> {
    client.check_all([limit("plenty", key)]).await.map(|decision| decision.allowed)
}
