//! Callers that ask one policy about many keys at once, and count what they were told.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::stream::{self, StreamExt};
use quorate_client::{Client, Receipt};

/// How long a caller waits: longer than any failover here, so that every check gets its answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// What the callers were told.
#[derive(Default)]
pub struct Tally {
    /// Granted checks of each key.
    pub granted: BTreeMap<String, u64>,
    /// Denied checks of each key.
    pub denied: BTreeMap<String, u64>,
    /// The receipts of what was granted: no two alike.
    pub receipts: BTreeSet<(u32, u64, u32)>,
    /// Checks that got no decision, with what they were told instead.
    pub failed: Vec<String>,
}

impl Tally {
    /// Everything that was granted.
    pub fn total_granted(&self) -> u64 {
        self.granted.values().sum()
    }

    fn add(&mut self, key: String, allowed: bool, receipt: &Receipt) {
        let counts = if allowed { &mut self.granted } else { &mut self.denied };
        *counts.entry(key).or_default() += 1;
        if allowed {
            let fresh = self.receipts.insert((receipt.shard.0, receipt.index.0, receipt.place));
            assert!(fresh, "two granted checks bear one receipt: {receipt:?}");
        }
    }

    /// Takes another's counts in.
    pub fn merge(&mut self, other: Tally) {
        for (key, count) in other.granted {
            *self.granted.entry(key).or_default() += count;
        }
        for (key, count) in other.denied {
            *self.denied.entry(key).or_default() += count;
        }
        for receipt in other.receipts {
            assert!(self.receipts.insert(receipt), "two clients were granted one receipt: {receipt:?}");
        }
        self.failed.extend(other.failed);
    }
}

/// Asks each key so often, many at a time, the keys interleaved.
pub async fn ask(client: &Client, policy: &str, keys: &[String], each: usize, callers: usize) -> Tally {
    let asked: Vec<String> = (0..each).flat_map(|_| keys.to_vec()).collect();
    let answers = stream::iter(asked).map(|key| async move {
        let answer = client.check(policy, &key).deadline(PATIENCE).await;
        (key, answer)
    });
    let fold = |mut tally: Tally, (key, answer): (String, Result<quorate_client::Decision, quorate_client::Error>)| async move {
        match answer {
            Ok(decision) => tally.add(key, decision.allowed, &decision.receipt),
            Err(error) => tally.failed.push(format!("{key}: {error}")),
        }
        tally
    };
    answers.buffer_unordered(callers).fold(Tally::default(), fold).await
}
