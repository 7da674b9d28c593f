//! What a layer was told to do, and the check that it makes of a request.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::{HeaderMap, Response};
use tokio::time::Instant;

use super::MissingKey;
use super::answer::{self, Denied, NoDecision};
use super::cost::RequestCost;
use super::decided::Decided;
use super::dialect::{Dialect, tell};
use super::windows::Windows;
use crate::client::Client;
use crate::error::{Error, ErrorKind};
use crate::giveback::Held;
use crate::identity::{Identify, Parts, fit};
use crate::question::{Limit, limit};
use crate::throttle::Throttle;
use crate::wall;

/// The key of all who have none.
const ANONYMOUS: &str = "anonymous";

type OnDenied = dyn Fn(&Denied<'_>, Response<Bytes>) -> Response<Bytes> + Send + Sync;
type OnNoDecision = dyn Fn(&NoDecision<'_>, Response<Bytes>) -> Response<Bytes> + Send + Sync;

/// A limit that is asked for each request.
#[derive(Clone)]
pub(super) struct Rule {
    pub(super) policy: Arc<str>,
    pub(super) key: Arc<dyn Identify>,
    /// The layer's, if it has none of its own.
    pub(super) cost: Option<Arc<dyn RequestCost>>,
}

#[derive(Clone)]
pub(super) struct Rules {
    client: Client,
    pub(super) first: Rule,
    pub(super) others: Vec<Rule>,
    pub(super) cost: Arc<dyn RequestCost>,
    pub(super) missing: MissingKey,
    pub(super) dialects: Vec<Dialect>,
    pub(super) on_denied: Option<Arc<OnDenied>>,
    pub(super) on_no_decision: Option<Arc<OnNoDecision>>,
    pub(super) shadow: bool,
    pub(super) wait_turn: bool,
    pub(super) max_delay: Option<Duration>,
    pub(super) deadline: Option<Duration>,
    windows: Arc<ArcSwap<Windows>>,
    faults: Arc<Mutex<Throttle>>,
}

/// What becomes of a request.
pub(super) enum Verdict {
    /// It goes on, with what was decided, if anything was asked.
    Pass(Option<Decided>),
    Refuse(Response<Bytes>),
}

impl Rules {
    pub(super) fn new(client: Client, first: Rule) -> Rules {
        Rules {
            client,
            first,
            others: Vec::new(),
            cost: Arc::new(1),
            missing: MissingKey::default(),
            dialects: vec![Dialect::XRateLimit],
            on_denied: None,
            on_no_decision: None,
            shadow: false,
            wait_turn: true,
            max_delay: None,
            deadline: None,
            windows: Arc::default(),
            faults: Arc::default(),
        }
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Rule> {
        std::iter::once(&self.first).chain(&self.others)
    }

    /// Asks all limits of the request.
    pub(super) async fn ask(&self, request: &Parts) -> Verdict {
        let mut limits = Vec::with_capacity(1 + self.others.len());
        for rule in self.all() {
            match self.limit(rule, request) {
                Some(limit) => limits.push(limit),
                None if self.missing == MissingKey::Skip || self.shadow => {}
                None => return Verdict::Refuse(answer::missing_key(request, &rule.policy)),
            }
        }
        if limits.is_empty() {
            return Verdict::Pass(None);
        }
        let mut check = self.client.check_all(limits);
        if let Some(delay) = self.max_delay {
            check = check.max_delay(delay);
        }
        if let Some(deadline) = self.deadline {
            check = check.deadline(deadline);
        }
        match check.await {
            Ok(decision) => self.decided(request, Decided::new(decision)),
            Err(error) => self.failed(request, &error),
        }
    }

    fn limit<'a>(&self, rule: &'a Rule, request: &Parts) -> Option<Limit<'a>> {
        let key = rule.key.identify(request).filter(|key| !key.is_empty());
        let key = match self.missing {
            MissingKey::Anonymous => key.unwrap_or_else(|| ANONYMOUS.to_owned()),
            _ => key?,
        };
        let cost = rule.cost.as_ref().unwrap_or(&self.cost).cost(request);
        Some(limit(&rule.policy, fit(key)).cost(cost))
    }

    fn decided(&self, request: &Parts, decided: Decided) -> Verdict {
        if decided.allowed {
            return Verdict::Pass(Some(decided));
        }
        if self.shadow {
            tracing::debug!(policy = &*self.first.policy, "a request would have been denied");
            return Verdict::Pass(Some(decided));
        }
        let mut response = answer::denied(request, &decided);
        self.tell(&decided, response.headers_mut());
        if let Some(change) = &self.on_denied {
            response = change(&Denied { request, decision: &decided }, response);
        }
        response.extensions_mut().insert(decided);
        Verdict::Refuse(response)
    }

    /// How many faults were not logged since the last one, if this one is to be logged.
    fn note_fault(&self) -> Option<u64> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner).pass(Instant::now())
    }

    fn failed(&self, request: &Parts, error: &Error) -> Verdict {
        use ErrorKind::{Conflict, Forbidden, Invalid, NotFound, UnknownPolicy};
        let is_misuse = matches!(error.kind(), Invalid | UnknownPolicy | NotFound | Conflict | Forbidden);
        if is_misuse && let Some(before) = self.note_fault() {
            tracing::error!(policy = &*self.first.policy, %error, before, "a limit cannot be asked as this service asks it");
        }
        if self.shadow {
            return Verdict::Pass(None);
        }
        if is_misuse {
            return Verdict::Refuse(answer::misused(request));
        }
        let mut response = answer::unavailable(request, &self.first.policy);
        if let Some(change) = &self.on_no_decision {
            response = change(&NoDecision { request, error }, response);
        }
        Verdict::Refuse(response)
    }

    /// Adds the headers that tell of a decision.
    pub(super) fn tell(&self, decided: &Decided, headers: &mut HeaderMap) {
        if self.shadow || self.dialects.is_empty() {
            return;
        }
        let needs_windows = self.dialects.iter().any(|dialect| dialect.needs_windows());
        let windows = needs_windows.then(|| Windows::current(&self.windows, &self.client, decided.policy_version));
        tell(&self.dialects, decided, windows.as_ref(), wall::now, headers);
    }

    /// Holds the request back until its turn has come. Where the caller goes away meanwhile, its place is given back.
    pub(super) async fn hold(&self, decided: &Decided) {
        let Some(delay) = decided.delay.filter(|delay| !delay.is_zero()) else { return };
        if !self.wait_turn || self.shadow {
            return;
        }
        let held = Held::new(&self.client.inner, decided.charge());
        tokio::time::sleep(delay).await;
        held.keep();
    }
}
