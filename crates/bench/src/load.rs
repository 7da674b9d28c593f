//! Checks as a node applies them, from policy name and key text to the answers.
//!
//! For each check what client and node do together: the policy is found by its name, the key hashed under both secrets, its
//! place on the ring compared with the shard's arc; then the batch is applied: decided, the digest kept, the sweep paid.

use std::collections::HashMap;

use quorate_core::{
    Algorithm, Arc, Batch, Bounds, Check, Command, Cost, Fingerprint, FrameId, Group, Index, Limit, Policy, PolicyId,
    PolicySet, PolicyVersion, Rate, RingSecret, Sequence, SessionId, Shard, ShardId, Span, Stamp, TableSecret, Term,
};

use crate::keys::text;

/// Checks of a batch: what a busy node puts in one log entry.
pub const BATCH: usize = 128;

/// Microseconds of logical time from one batch to the next.
const PACE_US: i64 = 100;

/// Every algorithm, each a policy of its own that denies nothing here, and whose keys outlast what is measured; but for the
/// sliding log, whose entries go after a second, so that memory bounds nothing.
pub fn policies() -> PolicySet {
    let (limit, window) = (100_000_000, Span(3_600_000_000));
    let rate = Rate { units: 100, period: window };
    let algorithms = [
        Algorithm::TokenBucket { capacity: limit, refill: rate },
        Algorithm::FixedWindow { limit, window },
        Algorithm::SlidingCounter { limit, window },
        Algorithm::LeakyBucket { queue: limit, rate },
        Algorithm::SlidingLog { limit: 100_000, window: Span(1_000_000) },
    ];
    let policies = (1..).zip(algorithms).map(|(id, algorithm)| {
        let mut policy = Policy::new(algorithm.name(), algorithm);
        policy.id = PolicyId(id);
        policy
    });
    PolicySet { version: PolicyVersion(1), policies: policies.collect() }
}

/// Names of [`policies`].
pub fn algorithms() -> Vec<String> {
    policies().policies.into_iter().map(|policy| policy.name).collect()
}

/// A shard under load.
pub struct Load {
    shard: Shard,
    ids: HashMap<String, PolicyId>,
    ring: RingSecret,
    table: TableSecret,
    arc: Arc,
    index: u64,
    stamp: i64,
    /// The session that checks come through, and how many frames it has sent.
    session: Option<(SessionId, u64)>,
}

impl std::fmt::Debug for Load {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Load").field("keys", &self.shard.keys()).finish_non_exhaustive()
    }
}

impl Load {
    /// A shard that holds `keys` keys of that policy. Without a session, a check's answer is not remembered.
    ///
    /// # Panics
    /// Where no policy is called that.
    pub fn new(policy: &str, keys: u64) -> Load {
        let set = policies();
        let ids = set.policies.iter().map(|policy| (policy.name.clone(), policy.id)).collect();
        let mut load = Load {
            shard: Shard::new(ShardId(1), Arc::WHOLE),
            ids,
            ring: RingSecret([1; 16]),
            table: TableSecret([2; 16]),
            arc: Arc::WHOLE,
            index: 0,
            stamp: 1_700_000_000_000_000,
            session: None,
        };
        load.apply(vec![(0, Command::Install(set))]);
        load.apply(vec![(0, Command::Bounds(Bounds { log_bytes: 64 << 30, ..Bounds::default() }))]);
        let numbers: Vec<u64> = (0..keys).collect();
        for numbers in numbers.chunks(1024) {
            let texts: Vec<String> = numbers.iter().map(|number| text(*number)).collect();
            load.check(policy, &texts);
        }
        assert_eq!(load.shard.keys(), keys, "every key is held, or another benchmark runs than is told");
        load
    }

    /// The same, and checks come as frames of a session from then on: their answers are remembered until the next but one.
    pub fn with_session(mut self) -> Load {
        self.apply(vec![(0, Command::OpenSession)]);
        self.session = Some((SessionId(self.index), 0));
        self
    }

    /// Asks one check for each text, all in one batch; how many were granted.
    ///
    /// # Panics
    /// Where no policy is called that.
    pub fn check(&mut self, policy: &str, texts: &[String]) -> usize {
        let check = |(place, text): (u32, &String)| {
            let policy = self.ids[policy];
            let key = text.as_bytes();
            let ring = self.ring.hash(key);
            assert!(self.arc.contains(ring), "the only shard holds every key");
            let key = Fingerprint { ring, table: self.table.hash(policy, key) };
            let limits = [Limit { policy, key, cost: Cost::ONE }].into_iter().collect();
            (place, Command::Check(Check { limits, ..Check::default() }))
        };
        let commands = (0..).zip(texts).map(check).collect();
        self.apply(commands)
    }

    fn apply(&mut self, commands: Vec<(u32, Command)>) -> usize {
        self.index += 1;
        self.stamp += PACE_US;
        let frame = self.session.as_mut().map(|(session, sent)| {
            *sent += 1;
            let (sequence, lowest) = (Sequence(*sent), Sequence(sent.saturating_sub(1).max(1)));
            FrameId { session: *session, sequence, lowest_unanswered: lowest }
        });
        let batch = Batch { stamp: Stamp(self.stamp), groups: vec![Group { frame, commands }] };
        let applied = self.shard.apply(Term(1), Index(self.index), &batch, true);
        let granted = |answer: &quorate_core::PlaceAnswer| match &answer.answer {
            quorate_core::Answer::Decision(decision) => decision.allowed,
            _ => false,
        };
        applied.groups.iter().flatten().filter(|answer| granted(answer)).count()
    }
}
