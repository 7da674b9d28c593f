//! What callers asked and what they were told, as they saw it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use quorate_client::{DecidedBy, Decision, ErrorKind, Receipt};

use crate::trace::Trace;

/// A limit as it was asked.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Asked {
    /// The policy's name.
    pub policy: &'static str,
    /// The key.
    pub key: String,
    /// The cost.
    pub cost: u64,
}

/// What was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// A check, which charges what it is granted.
    Check(Vec<Asked>),
    /// A look.
    Peek(Asked),
    /// A check whose charge may be corrected.
    Reserve(Asked),
    /// A reservation's end: what was reserved, and what was used of it.
    Settle(Asked, u64),
    /// A charge given back: what was asked for it.
    Refund(Vec<Asked>),
    /// A turn that is waited for.
    Acquire(Asked),
    /// A key made as good as new.
    Reset(Asked),
}

/// A limit as it was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// By itself, it would grant.
    pub allowed: bool,
    /// It was charged.
    pub charged: bool,
    /// It denies nothing.
    pub shadow: bool,
    /// The most.
    pub limit: u64,
    /// What is left.
    pub remaining: u64,
    /// The wait after a denial, in microseconds.
    pub retry_after: Option<i64>,
    /// Until it is as good as new, in microseconds.
    pub reset_after: i64,
    /// How long to hold back, in microseconds.
    pub delay: Option<i64>,
    /// Where it stands in the log of its shard.
    pub receipt: Receipt,
}

/// A decision as it was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// It may go ahead.
    pub allowed: bool,
    /// The wait after a denial, in microseconds.
    pub retry_after: Option<i64>,
    /// Where it stands in the log.
    pub receipt: Receipt,
    /// It was answered by the client, which remembers an earlier denial.
    pub remembered: bool,
    /// Each limit's own.
    pub limits: Vec<Told>,
}

/// What came of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing yet.
    Pending,
    /// The caller went away before.
    Abandoned,
    /// A decision.
    Decided(Verdict),
    /// So many limits were changed.
    Undone(usize),
    /// It was done.
    Done,
    /// No answer that says what was decided.
    Failed {
        /// What kind of failure.
        kind: ErrorKind,
        /// Whether it may have been executed.
        may_have_charged: bool,
        /// In its words.
        text: String,
    },
}

/// One call.
#[derive(Clone, Debug)]
pub struct Op {
    /// Who called.
    pub client: usize,
    /// When, in the world's time.
    pub asked: i64,
    /// When the answer came.
    pub answered: Option<i64>,
    /// What was asked.
    pub call: Call,
    /// A key that no other call charges, under the policy [`TAGS`](crate::load::TAGS): so the call can be told in the log.
    pub tag: Option<String>,
    /// What came of it.
    pub outcome: Outcome,
}

/// All calls. Clones are the same.
#[derive(Clone, Debug)]
pub struct History {
    ops: Arc<Mutex<Vec<Op>>>,
    trace: Trace,
}

impl History {
    /// Nothing was asked yet.
    pub fn new(trace: Trace) -> History {
        History { ops: Arc::default(), trace }
    }

    /// All calls so far.
    pub fn ops(&self) -> MutexGuard<'_, Vec<Op>> {
        self.ops.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A call begins; its number.
    pub fn begin(&self, client: usize, call: Call, tag: Option<String>, now: i64) -> usize {
        let mut ops = self.ops();
        self.trace.line(format_args!("client {client} asks {}: {call:?} {tag:?}", ops.len()));
        ops.push(Op { client, asked: now, answered: None, call, tag, outcome: Outcome::Pending });
        ops.len() - 1
    }

    /// A client goes away, and nobody hears the answers that it still waits for.
    pub fn abandon(&self, client: usize) {
        let waits = |op: &&mut Op| op.client == client && op.outcome == Outcome::Pending;
        self.ops().iter_mut().filter(waits).for_each(|op| op.outcome = Outcome::Abandoned);
    }

    /// A call ends.
    pub fn end(&self, op: usize, outcome: Outcome, now: i64) {
        self.trace.line(format_args!("answer to {op}: {outcome:?}"));
        let mut ops = self.ops();
        (ops[op].outcome, ops[op].answered) = (outcome, Some(now));
    }
}

fn us(span: std::time::Duration) -> i64 {
    i64::try_from(span.as_micros()).unwrap_or(i64::MAX)
}

impl Outcome {
    /// What a decision comes to. What the cluster has not decided itself, because it could not be asked in time and the policies
    /// say so, is as little to be held against a log as a failure is.
    pub fn of(decision: &Decision) -> Outcome {
        match decision.decided_by {
            DecidedBy::Cluster => Outcome::Decided(Verdict::of(decision)),
            _ => Outcome::Done,
        }
    }
}

impl Verdict {
    /// What a decision says.
    pub fn of(decision: &Decision) -> Verdict {
        let limits = decision.limits.iter().map(|limit| Told {
            allowed: limit.allowed,
            charged: limit.charged,
            shadow: limit.shadow,
            limit: limit.limit,
            remaining: limit.remaining,
            retry_after: limit.retry_after.map(us),
            reset_after: us(limit.reset_after),
            delay: limit.delay.map(us),
            receipt: limit.receipt,
        });
        Verdict {
            allowed: decision.allowed,
            retry_after: decision.retry_after.map(us),
            receipt: decision.receipt,
            remembered: decision.remembered,
            limits: limits.collect(),
        }
    }
}

impl Verdict {
    /// What each shard that was asked has decided, in the order named: one alone in most cases.
    pub fn parts(&self) -> Vec<(Receipt, Vec<&Told>)> {
        let mut parts: Vec<(Receipt, Vec<&Told>)> = Vec::new();
        for limit in &self.limits {
            match parts.iter_mut().find(|(receipt, _)| *receipt == limit.receipt) {
                Some((_, limits)) => limits.push(limit),
                None => parts.push((limit.receipt, vec![limit])),
            }
        }
        if parts.is_empty() {
            parts.push((self.receipt, Vec::new()));
        }
        parts
    }
}

impl Call {
    /// What it names.
    pub fn asked(&self) -> &[Asked] {
        match self {
            Call::Check(asked) | Call::Refund(asked) => asked,
            Call::Peek(one) | Call::Reserve(one) | Call::Settle(one, _) | Call::Reset(one) | Call::Acquire(one) => {
                std::slice::from_ref(one)
            }
        }
    }

    /// Whether it may give something back.
    pub fn gives_back(&self) -> bool {
        matches!(self, Call::Refund(_) | Call::Settle(..) | Call::Reset(_))
    }
}

impl From<&quorate_client::Error> for Outcome {
    fn from(error: &quorate_client::Error) -> Self {
        Outcome::Failed { kind: error.kind(), may_have_charged: error.may_have_charged(), text: error.to_string() }
    }
}
