//! Decides in this process, with the core that the cluster's shards run: a shard of its own, on this process's share of every
//! limit.
//!
//! It is made when it is first needed, and kept, so that what it granted in one outage still counts in the next. A policy set,
//! or a share, that has changed is put into it as a new policy set would be into a shard: keys keep what they used.
//!
//! Invariants:
//! - Its time goes on from the cluster's and never leaps: a leap forward would make its keys as good as new.
//! - Memory is bounded by [`caps::LOCAL_KEYS`] and [`caps::LOCAL_LOG_BYTES`]; a full table does what the policy's `on_full` says.
//! - Its receipts name a shard that no cluster has, so that a refund finds its way back here.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use quorate_core::{
    Answer, Batch, Bounds, Check, Command, Cost, Decision, Fingerprint, Group, Index, Limit, Mode, PlaceAnswer, Policy,
    PolicyId, PolicySet, PolicyVersion, Receipt, Refusal, RingSecret, Shard, ShardId, Span, Stamp, TableSecret, Term,
};
use smallvec::SmallVec;
use tokio::time::Instant;

use super::share::{Share, shared};
use crate::backoff::Chance;
use crate::caps;
use crate::charge::Part;
use crate::error::{Error, ErrorKind};
use crate::time::ClusterTime;

/// The shard that receipts from here name.
pub(super) const LOCAL: ShardId = ShardId(u32::MAX);

/// A limit that is asked here.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked<'a> {
    /// Its ordinal in the question.
    pub(super) ordinal: usize,
    pub(super) policy: PolicyId,
    pub(super) key: &'a [u8],
    pub(super) cost: Cost,
}

/// A question as it is asked here.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ask<'a> {
    pub(super) limits: &'a [Asked<'a>],
    pub(super) peek: bool,
    pub(super) max_delay: Option<Span>,
    pub(super) reserve: Option<Span>,
}

/// The shard of this process.
#[derive(Debug)]
pub(super) struct Local {
    secrets: (RingSecret, TableSecret),
    table: Mutex<Option<Box<Table>>>,
}

#[derive(Debug)]
struct Table {
    shard: Shard,
    index: u64,
    /// The time that is 0 in the client's age.
    birth: Stamp,
    /// The policy set that its own was made of, and the number of clients then.
    made_of: Option<(PolicyVersion, u64)>,
    sets: u64,
    /// Enforced policies of which the share is nothing.
    nothing: HashSet<PolicyId>,
}

impl Local {
    pub(super) fn new(chance: &mut Chance) -> Self {
        let mut secret = || {
            let mut bytes = [0; 16];
            bytes[..8].copy_from_slice(&chance.seed().to_le_bytes());
            bytes[8..].copy_from_slice(&chance.seed().to_le_bytes());
            bytes
        };
        Local { secrets: (RingSecret(secret()), TableSecret(secret())), table: Mutex::new(None) }
    }

    /// The answer, its limits numbered as in the question; or why there is none.
    pub(super) fn decide(
        &self,
        (set, live_clients): (&PolicySet, u64),
        share_of: impl Fn(&Policy) -> Share,
        time: &ClusterTime,
        now: Instant,
        ask: &Ask<'_>,
    ) -> Result<(Receipt, Decision), Error> {
        let limit = |asked: &Asked<'_>| Limit {
            policy: asked.policy,
            key: self.fingerprint(asked.policy, asked.key),
            cost: asked.cost,
        };
        let limits = ask.limits.iter().map(limit).collect();
        let mut table = self.lock();
        let table = table.get_or_insert_with(|| Box::new(Table::new(time.birth())));
        let stamp = table.stamp(time, now);
        table.follow(set, live_clients, share_of, stamp);
        let denied: SmallVec<[usize; 1]> =
            (0..ask.limits.len()).filter(|&at| table.is_denied(&ask.limits[at])).collect();
        let check = Check { limits, peek: ask.peek || !denied.is_empty(), max_delay: ask.max_delay };
        let command = match ask.reserve {
            Some(ttl) if !check.peek => Command::Reserve { check, ttl },
            _ => Command::Check(check),
        };
        let PlaceAnswer { receipt, answer, .. } = table.apply(stamp, command);
        match answer {
            Answer::Decision(mut decision) => {
                deny(&mut decision, &denied);
                for answer in &mut decision.limits {
                    let asked = ask.limits.get(usize::from(answer.ordinal));
                    answer.ordinal = asked.map_or(answer.ordinal, |asked| asked.ordinal as u16);
                }
                Ok((receipt, decision))
            }
            Answer::Refused(refusal) => Err(refused(&refusal)),
            other => Err(crate::client::unexpected(&other)),
        }
    }

    /// None where the charge is the cluster's.
    pub(super) fn refund(&self, part: &Part, time: &ClusterTime, now: Instant) -> Option<PlaceAnswer> {
        let receipt = part.receipt;
        self.undo(part, time, now, |charges| Command::Refund {
            receipt: receipt.position(),
            at: receipt.stamp,
            charges,
        })
    }

    /// None where the charge is the cluster's.
    pub(super) fn settle(
        &self,
        part: &Part,
        ttl: Span,
        actual: &[Cost],
        time: &ClusterTime,
        now: Instant,
    ) -> Option<PlaceAnswer> {
        let receipt = part.receipt;
        self.undo(part, time, now, |charges| Command::Settle {
            receipt: receipt.position(),
            at: receipt.stamp,
            ttl,
            charges,
            actual: actual.iter().copied().collect(),
        })
    }

    fn undo(
        &self,
        part: &Part,
        time: &ClusterTime,
        now: Instant,
        command: impl FnOnce(SmallVec<[quorate_core::Charge; 1]>) -> Command,
    ) -> Option<PlaceAnswer> {
        if part.receipt.shard != LOCAL {
            return None;
        }
        let charge = |item: &crate::charge::Item| quorate_core::Charge {
            policy: item.policy,
            key: self.fingerprint(item.policy, &item.key),
            cost: item.cost,
            mark: item.mark,
        };
        let command = command(part.items.iter().map(charge).collect());
        let mut table = self.lock();
        let table = table.as_mut()?;
        let stamp = table.stamp(time, now);
        let answer = table.apply(stamp, command);
        // A policy that was taken away took the charge with it.
        let gone = matches!(answer.answer, Answer::Refused(Refusal::UnknownPolicy(_)));
        Some(if gone { PlaceAnswer { answer: Answer::Undone(0), ..answer } } else { answer })
    }

    fn fingerprint(&self, policy: PolicyId, key: &[u8]) -> Fingerprint {
        // Over the whole key: a route would let keys that share one share half of their hash.
        Fingerprint { table: self.secrets.1.hash(policy, key), ring: self.secrets.0.hash(key) }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Box<Table>>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn new(birth: Stamp) -> Table {
        let shard = Shard::new(LOCAL, quorate_core::Arc::WHOLE);
        let mut table = Table { shard, index: 0, birth, made_of: None, sets: 0, nothing: HashSet::new() };
        let bounds = Bounds { keys: caps::LOCAL_KEYS, log_bytes: caps::LOCAL_LOG_BYTES, ..Bounds::default() };
        table.apply(birth, Command::Bounds(bounds));
        table
    }

    fn stamp(&self, time: &ClusterTime, now: Instant) -> Stamp {
        Stamp(self.birth.0.saturating_add(time.age(now)))
    }

    /// Puts this process's share of the policies in force, if they or it have changed.
    fn follow(&mut self, set: &PolicySet, live_clients: u64, share_of: impl Fn(&Policy) -> Share, stamp: Stamp) {
        if self.made_of == Some((set.version, live_clients)) {
            return;
        }
        self.made_of = Some((set.version, live_clients));
        self.sets += 1;
        self.nothing.clear();
        let mut policies = Vec::with_capacity(set.policies.len());
        for policy in &set.policies {
            let shared = shared(policy, share_of(policy));
            if shared.nothing && policy.mode == Mode::Enforce {
                self.nothing.insert(policy.id);
            }
            policies.push(shared.policy);
        }
        self.apply(stamp, Command::Install(PolicySet { version: PolicyVersion(self.sets), policies }));
    }

    fn is_denied(&self, asked: &Asked<'_>) -> bool {
        asked.cost > Cost::ZERO && self.nothing.contains(&asked.policy)
    }

    fn apply(&mut self, stamp: Stamp, command: Command) -> PlaceAnswer {
        self.index += 1;
        let batch = Batch { stamp, groups: vec![Group { frame: None, commands: vec![(0, command)] }] };
        let mut applied = self.shard.apply(Term(0), Index(self.index), &batch, true);
        let answer = applied.groups.pop().and_then(|mut answers| answers.pop());
        answer.expect("a shard answers every command")
    }
}

/// Denies the limits of which there is no share, those ordinals of the answer; it was asked as a peek.
fn deny(decision: &mut Decision, denied: &[usize]) {
    if denied.is_empty() {
        return;
    }
    (decision.allowed, decision.retry_after, decision.delay) = (false, None, None);
    for answer in &mut decision.limits {
        answer.delay = None;
        if denied.contains(&usize::from(answer.ordinal)) {
            (answer.allowed, answer.limit, answer.remaining, answer.retry_after) = (false, 0, 0, None);
        }
    }
}

fn refused(refusal: &Refusal) -> Error {
    match refusal {
        Refusal::TableFull => {
            let text = format!(
                "the cluster cannot be asked, and this process decides {} keys already; nothing was charged: try again later",
                caps::LOCAL_KEYS
            );
            Error::new(ErrorKind::TableFull, text)
        }
        other => Error::invalid(other.to_string()),
    }
}
