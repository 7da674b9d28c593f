//! The handle that a service holds: from a call to the queue of the shard that decides it, and back.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use quorate_core::{Answer, PlaceAnswer, PolicySet, Span};
use smallvec::SmallVec;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use crate::acquire::Acquire;
use crate::builder::ClientBuilder;
use crate::caps;
use crate::ceiling::{Ceiling, Place};
use crate::charge::{Charge, Part};
use crate::check::{Check, CheckMany};
use crate::decision::Decision;
use crate::denials::{Before, Denials, Forgetting};
use crate::engine::Shared;
use crate::error::{Error, ErrorKind};
use crate::fallback::{Fallbacks, Manner};
use crate::gather::Seat;
use crate::giveback::{GiveBacks, Pending};
use crate::observe::{self, Begun};
use crate::operations::{Refund, Reset};
use crate::pack::Operation;
use crate::question::{Limit, Question, limit};
use crate::queue::{Awaited, Failure, Queue, Slot};
use crate::report;
use crate::reservation::Reserve;
use crate::split;
use crate::topology::Topology;
use crate::way::way;
use crate::wire::Wire;

/// Asks limits of a Quorate cluster.
///
/// Cheap to clone: all clones share their connections, their sessions and what they know of the cluster. Calls from many
/// tasks are packed into few messages by themselves.
///
/// When the last clone is dropped, or one is [closed](Self::close), its background tasks end.
///
/// ```no_run
/// # async fn f() -> Result<(), quorate_client::Error> {
/// use quorate_client::Client;
/// let client = Client::builder().endpoints(["127.0.0.1:7600"]).connect().await?;
/// if client.check("per-user", "alice").cost(3).await?.allowed {
///     // serve alice
/// }
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Client {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) shared: Shared,
    pub(crate) wire: Arc<dyn Wire>,
    pub(crate) deadline: Duration,
    denials: Option<Denials>,
    fallbacks: Fallbacks,
    pub(crate) ceiling: Option<Ceiling>,
    pub(crate) give_backs: GiveBacks,
    /// Names that a policy set was found not to have, after waiting for a newer one.
    unknown: Mutex<Unknown>,
    /// Until then a call waits for the first topology; afterwards it is refused at once until there is one.
    patient_until: Instant,
}

/// Why a call is refused before the first topology has come.
const UNHEARD: &str = "no node has told of the cluster since this client began; nothing was charged";

#[derive(Default)]
struct Unknown {
    version: u64,
    names: HashSet<String>,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let topology = self.topology();
        f.debug_struct("Client").field("cluster", &topology.cluster_name).field("epoch", &topology.epoch).finish()
    }
}

impl Client {
    /// Begins to make a client.
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }

    /// Asks one limit, at a cost of 1 unless set: `client.check("per-user", user).await`.
    ///
    /// The key names whom the limit is applied to: 1 to 1024 bytes. A part of it in `{braces}` decides which shard holds it.
    pub fn check<'a>(&'a self, policy: &'a str, key: impl Into<String>) -> Check<'a> {
        Check::new(self, limit(policy, key).into())
    }

    /// Asks several limits at once, 1 to 16: all of them grant and are charged, or none is.
    ///
    /// Limits whose keys fall to one shard are one atomic command. Hash tags see to that: write the part that the keys share in
    /// braces, as in `{acme}` and `{acme}/7`. Keys of several shards are charged on all of them at the same time, and where one
    /// denies, what the others took is given back before the denial is told; if the deadline passes or the future is dropped
    /// first, in the background. Meanwhile others may be denied for it, and a process that dies in between leaves it charged;
    /// nothing is ever granted over a limit.
    ///
    /// ```no_run
    /// # async fn f(client: quorate_client::Client) -> Result<(), quorate_client::Error> {
    /// use quorate_client::limit;
    /// let decision = client.check_all([limit("tenant", "{acme}"), limit("user", "{acme}/7").cost(2)]).await?;
    /// # drop(decision); Ok(()) }
    /// ```
    pub fn check_all<'a>(&'a self, limits: impl IntoIterator<Item = Limit<'a>>) -> Check<'a> {
        Check::new(self, limits.into_iter().collect())
    }

    /// Asks many independent questions, and costs less than asking them one by one. Each is decided for itself; the results
    /// are in the order of the questions. At most 16,384; those that find the line for their shard full are refused as
    /// [overloaded](ErrorKind::Overloaded).
    ///
    /// ```no_run
    /// # async fn f(client: quorate_client::Client) -> Result<(), quorate_client::Error> {
    /// use quorate_client::limit;
    /// for result in client.check_many([limit("per-user", "alice"), limit("per-user", "bob").cost(2)]).await {
    ///     println!("{}", result?.allowed);
    /// }
    /// # Ok(()) }
    /// ```
    pub fn check_many<'a, Q: Into<Question<'a>>>(&'a self, questions: impl IntoIterator<Item = Q>) -> CheckMany<'a> {
        // One more than may be asked is enough to be refused.
        CheckMany::new(self, questions.into_iter().take(caps::CHECKS_AT_ONCE + 1).map(Into::into).collect())
    }

    /// Answers as the check would, and charges nothing.
    pub fn peek<'a>(&'a self, policy: &'a str, key: impl Into<String>) -> Check<'a> {
        Check::new(self, Question::from(limit(policy, key)).peek())
    }

    /// Waits until its turn has come, within a [deadline](Acquire::deadline): for work that had rather be late than refused.
    ///
    /// ```no_run
    /// # async fn f(client: quorate_client::Client) -> Result<(), quorate_client::Error> {
    /// if client.acquire("calls-to-partner", "partner-7").await?.allowed {
    ///     // call the partner now
    /// }
    /// # Ok(()) }
    /// ```
    pub fn acquire<'a>(&'a self, policy: &'a str, key: impl Into<String>) -> Acquire<'a> {
        Acquire::new(self, limit(policy, key).into())
    }

    /// Says that a denial was wrong: whoever runs the cluster sees how many were reported of each policy, with `quorate policy
    /// get`. It changes no limit and gives nothing back; for that, [`reset`](Self::reset) the key.
    ///
    /// The node that is told counts it until it ends, and logs at most one `note` a second (at most 1,024 bytes; what is in it is
    /// read by people). Reports are for what people complain of, not for each request: each is a call of its own.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] where the decision denied nothing or the note is too long; [`ErrorKind::Unavailable`] where no node
    /// could be told; [`ErrorKind::Deadline`] where it took longer than 5 s: whether it was counted is not known then.
    ///
    /// ```no_run
    /// # async fn f(client: quorate_client::Client) -> Result<(), quorate_client::Error> {
    /// let decision = client.check("per-user", "alice").await?;
    /// if !decision.allowed {
    ///     client.report_false_positive(&decision, "support case 4711: a customer behind a shared address").await?;
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn report_false_positive(&self, decision: &Decision, note: &str) -> Result<(), Error> {
        report::send(&self.inner, decision, note).await
    }

    /// Makes a key as good as new.
    ///
    /// ```no_run
    /// # async fn f(client: quorate_client::Client) -> Result<(), quorate_client::Error> {
    /// client.reset("per-user", "alice").await?;
    /// # Ok(()) }
    /// ```
    pub fn reset<'a>(&'a self, policy: &'a str, key: impl Into<String>) -> Reset<'a> {
        Reset::new(self, limit(policy, key))
    }

    /// Gives a charge back: a [`Decision`](crate::Decision), or a [`Charge`] taken out of one. Answers how many of its limits
    /// were changed: what time has given back already is not given back twice.
    ///
    /// ```no_run
    /// # async fn f(client: quorate_client::Client) -> Result<(), quorate_client::Error> {
    /// let decision = client.check("per-user", "alice").await?;
    /// let given_back = client.refund(decision).await?;
    /// assert!(given_back <= 1);
    /// # Ok(()) }
    /// ```
    pub fn refund(&self, charge: impl Into<Charge>) -> Refund<'_> {
        Refund::new(self, charge.into())
    }

    /// As [`check`](Self::check), with a charge that can be corrected afterwards, once: see [`Reservation`](crate::Reservation).
    /// Not for leaky buckets.
    pub fn reserve<'a>(&'a self, policy: &'a str, key: impl Into<String>) -> Reserve<'a> {
        Reserve::new(self, limit(policy, key).into())
    }

    /// As [`check_all`](Self::check_all), with a charge that can be corrected afterwards, once. Its keys have to fall to one
    /// shard: give them a hash tag, as in `{acme}` and `{acme}/7`.
    pub fn reserve_all<'a>(&'a self, limits: impl IntoIterator<Item = Limit<'a>>) -> Reserve<'a> {
        Reserve::new(self, limits.into_iter().collect())
    }

    /// The policies in force, as far as this client knows.
    ///
    /// ```no_run
    /// # fn f(client: quorate_client::Client) {
    /// for policy in client.policies().policies {
    ///     println!("{}: {}", policy.name, policy.algorithm.name());
    /// }
    /// # }
    /// ```
    pub fn policies(&self) -> PolicySet {
        self.inner.shared.routes.load().as_ref().map(|routes| routes.policies.set.clone()).unwrap_or_default()
    }

    /// The cluster as this client knows it now.
    pub fn topology(&self) -> Arc<Topology> {
        self.inner.shared.routes.load().as_ref().map(|routes| routes.topology.clone()).unwrap_or_default()
    }

    /// Closes this client and all its clones: what waits is refused, what is under way is awaited for up to a second, then
    /// the sessions are ended. Returns when that is done. A client that is dropped does the same in the background.
    pub async fn close(self) {
        let (closed, wait) = oneshot::channel();
        if self.inner.shared.close.send(closed).await.is_ok() {
            // Closed by a clone already: the sender is dropped then.
            drop(wait.await);
        }
    }
}

impl Inner {
    /// Within a runtime.
    pub(crate) fn new(
        shared: Shared,
        wire: Arc<dyn Wire>,
        deadline: Duration,
        denials: Option<Denials>,
        fallbacks: Fallbacks,
        ceiling: Option<Ceiling>,
        patient_until: Instant,
    ) -> Inner {
        let (give_backs, unknown) = (GiveBacks::new(), Mutex::default());
        Inner { shared, wire, deadline, denials, fallbacks, ceiling, give_backs, unknown, patient_until }
    }

    /// The denial that is remembered for a validated check, or what to remember the next one by.
    pub(crate) fn recall(&self, question: &mut Question<'_>, now: Instant) -> Result<Decision, Option<Before>> {
        let Some(denials) = &self.denials else { return Err(None) };
        if question.peek || self.shared.close.is_closed() {
            return Err(None);
        }
        let routes = self.shared.routes.load();
        let Some(routes) = routes.as_ref() else { return Err(None) };
        let denial = denials.recall(question, routes.policies.set.version, now).map_err(Some)?;
        observe::denial_remembered(&denial);
        Ok(denial)
    }

    /// Remembers a denial, if it can be.
    pub(crate) fn remember(&self, before: Option<&Before>, question: &Question<'_>, decision: &Decision) {
        if let (Some(denials), Some(before)) = (&self.denials, before)
            && !decision.allowed
        {
            denials.remember(before, question, decision);
        }
    }

    /// Asks a validated check, however many shards it concerns, until there is a decision or none can be had.
    pub(crate) async fn decide(
        self: &Arc<Self>,
        question: &mut Question<'_>,
        deadline: Instant,
    ) -> Result<Decision, Error> {
        self.hear(deadline).await?;
        if self.is_split(question) {
            return split::ask(self, question, deadline).await;
        }
        let answer = self.ask(question, deadline).await?;
        decision(answer, question)
    }

    /// Why nothing can be asked before the first topology has come.
    pub(crate) fn unheard(&self) -> Failure {
        if self.shared.close.is_closed() {
            return Failure::Final(Error::closed());
        }
        if Instant::now() >= self.patient_until {
            return Failure::Final(Error::new(ErrorKind::Unavailable, UNHEARD.to_owned()));
        }
        Failure::Moved(Error::new(ErrorKind::Unavailable, UNHEARD.to_owned()))
    }

    /// Waits for the first topology, if there is none yet.
    async fn hear(&self, deadline: Instant) -> Result<(), Error> {
        if self.shared.routes.load().is_some() {
            return Ok(());
        }
        match self.unheard() {
            Failure::Final(error) => Err(error),
            Failure::Moved(error) => self.changed_since(0, deadline, error).await,
        }
    }

    /// Puts a validated check in line, to be answered by `deadline`; or says at once why not.
    pub(crate) fn submit(&self, question: &mut Question<'_>, deadline: Instant) -> Result<Awaited, Failure> {
        self.put(question, |question, version, queue| {
            self.admit(queue, deadline)?;
            let (slot, outcome) = Slot::one(deadline);
            queue.check(question, version, slot);
            Ok(outcome)
        })
    }

    /// The same for one of many, which is answered at its seat.
    pub(crate) fn submit_seat(&self, question: &mut Question<'_>, seat: Seat, deadline: Instant) {
        let mut seat = Some(seat);
        let put = self.put(question, |question, version, queue| {
            self.admit(queue, deadline)?;
            if let Some(seat) = seat.take() {
                queue.check(question, version, Slot::many(seat, deadline));
            }
            Ok(())
        });
        if let (Err(failure), Some(seat)) = (put, seat) {
            seat.take(Err(failure));
        }
    }

    /// Refuses a check where the shard's breaker is open, and the caller has no more time than it goes by.
    fn admit(&self, queue: &Queue, deadline: Instant) -> Result<(), Failure> {
        match queue.gate.refusal() {
            Some(error) if deadline <= Instant::now() + self.deadline => Err(Failure::Final(error)),
            _ => Ok(()),
        }
    }

    /// Takes a place under the ceiling, if there is one.
    pub(crate) async fn enter(&self, deadline: Instant) -> Result<Option<Place>, Error> {
        let Some(ceiling) = &self.ceiling else { return Ok(None) };
        match ceiling.try_enter() {
            Some(place) => Ok(Some(place)),
            None => ceiling.wait(deadline)?.await.map(Some),
        }
    }

    /// Ends a check: where the cluster did not answer it in time, as its policies want it.
    pub(crate) fn conclude(
        &self,
        question: &mut Question<'_>,
        manner: Manner,
        begun: Begun,
        mut result: Result<Decision, Error>,
    ) -> Result<Decision, Error> {
        if let Err(error) = result {
            result = match self.shared.routes.load().as_ref() {
                Some(routes) => self.fallbacks.decide(routes, &self.shared.time, question, manner, error),
                None => self.fallbacks.decide_unheard(question, manner, error),
            };
        }
        observe::ended(begun, question, &result);
        result
    }

    /// Looks up the way of what names policies and keys, and goes it.
    fn put<'q, T>(
        &self,
        question: &mut Question<'q>,
        go: impl FnOnce(&Question<'q>, u64, &Queue) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let routes = self.shared.routes.load();
        let Some(routes) = routes.as_ref() else { return Err(self.unheard()) };
        let queue = way(routes, question)?;
        go(question, routes.policies.set.version.0, queue)
    }

    /// Asks a validated question, again where its way has changed before anything was executed.
    pub(crate) async fn ask(&self, question: &mut Question<'_>, deadline: Instant) -> Result<PlaceAnswer, Error> {
        self.until_final(deadline, || self.submit(question, deadline)).await
    }

    /// The same for what names policies and keys, and is not a check: a reservation of that life, or a reset if it has none.
    pub(crate) async fn operate(
        &self,
        question: &mut Question<'_>,
        deadline: Instant,
        ttl: Option<Span>,
    ) -> Result<PlaceAnswer, Error> {
        let reset: SmallVec<[Vec<u8>; 1]> = match ttl {
            None => question.limits.iter().map(|limit| limit.key.clone().into_bytes()).collect(),
            Some(_) => SmallVec::new(),
        };
        let _forgetting = self.forgetting(reset.iter().map(Vec::as_slice));
        self.until_final(deadline, || {
            self.put(question, |question, version, queue| {
                let operation = match ttl {
                    Some(ttl) => {
                        self.admit(queue, deadline)?;
                        Operation::Reserve { question, ttl }
                    }
                    None => Operation::Reset(question),
                };
                let (slot, outcome) = Slot::one(deadline);
                queue.operation(&operation, version, slot);
                Ok(outcome)
            })
        })
        .await
    }

    /// Undoes or corrects what one shard charged.
    pub(crate) async fn operate_at(
        &self,
        part: &Part,
        deadline: Instant,
        operation: Operation<'_, '_>,
    ) -> Result<PlaceAnswer, Error> {
        if let Some(answer) = self.fallbacks.undo(&operation, &self.shared.time) {
            return Ok(answer);
        }
        let _forgetting = self.forgetting(part.items.iter().map(|item| &*item.key));
        let key = part.key();
        self.until_final(deadline, || {
            let routes = self.shared.routes.load();
            let Some(routes) = routes.as_ref() else { return Err(self.unheard()) };
            let queue = routes.queue(routes.shard_of(key)).ok_or_else(|| Failure::Final(Error::closed()))?;
            let (slot, outcome) = Slot::one(deadline);
            queue.operation(&operation, routes.policies.set.version.0, slot);
            Ok(outcome)
        })
        .await
    }

    /// Denials of these keys are forgotten when it is dropped.
    fn forgetting<'a>(&'a self, keys: impl Iterator<Item = &'a [u8]>) -> Forgetting<'a> {
        Forgetting { denials: self.denials.as_ref(), keys: keys.collect() }
    }

    /// As [`ask`](Self::ask); what is granted to a caller that drops this is given back.
    pub(crate) async fn ask_giving_back(
        self: &Arc<Self>,
        question: &mut Question<'_>,
        deadline: Instant,
    ) -> Result<PlaceAnswer, Error> {
        loop {
            let seen = self.changes();
            let outcome = match self.submit(question, deadline) {
                Ok(outcome) => Pending::new(self, question, outcome).outcome().await,
                Err(failure) => Err(failure),
            };
            match outcome {
                Ok(answer) => return Ok(answer),
                Err(Failure::Final(error)) => return Err(error),
                Err(Failure::Moved(error)) => self.changed_since(seen, deadline, error).await?,
            }
        }
    }

    async fn until_final(
        &self,
        deadline: Instant,
        mut submit: impl FnMut() -> Result<Awaited, Failure>,
    ) -> Result<PlaceAnswer, Error> {
        loop {
            let seen = self.changes();
            let failure = match submit() {
                Ok(outcome) => match outcome.await {
                    Ok(Ok(answer)) => return Ok(answer),
                    Ok(Err(failure)) => failure,
                    Err(_) => return Err(Error::abandoned()),
                },
                Err(failure) => failure,
            };
            match failure {
                Failure::Final(error) => return Err(error),
                Failure::Moved(error) => self.changed_since(seen, deadline, error).await?,
            }
        }
    }

    pub(crate) fn changes(&self) -> u64 {
        *self.shared.changes.borrow()
    }

    /// Waits until the routes are newer, as long as that may help against this error.
    pub(crate) async fn changed_since(&self, seen: u64, deadline: Instant, error: Error) -> Result<(), Error> {
        let mut until = deadline;
        if error.kind() == ErrorKind::UnknownPolicy {
            let known = self.is_known_as_unknown(&error);
            let grace = if known { caps::POLICY_GRACE_AGAIN } else { caps::POLICY_GRACE };
            until = until.min(Instant::now() + grace);
        }
        let mut changes = self.shared.changes.clone();
        match timeout_at(until, changes.wait_for(|changes| *changes > seen)).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) => Err(Error::closed()),
            Err(_) if self.shared.routes.load().is_none() => {
                let tried = self.shared.tried.text();
                Err(Error::new(ErrorKind::Unavailable, format!("{UNHEARD} ({tried})")))
            }
            Err(_) => {
                self.remember_as_unknown(&error);
                Err(error)
            }
        }
    }

    fn is_known_as_unknown(&self, error: &Error) -> bool {
        let unknown = self.unknown.lock().unwrap_or_else(PoisonError::into_inner);
        unknown.version == self.version() && unknown.names.contains(&error.to_string())
    }

    fn remember_as_unknown(&self, error: &Error) {
        if error.kind() != ErrorKind::UnknownPolicy {
            return;
        }
        let version = self.version();
        let mut unknown = self.unknown.lock().unwrap_or_else(PoisonError::into_inner);
        if unknown.version != version || unknown.names.len() >= caps::UNKNOWN_NAMES {
            *unknown = Unknown { version, names: HashSet::new() };
        }
        unknown.names.insert(error.to_string());
    }

    fn version(&self) -> u64 {
        self.shared.routes.load().as_ref().map_or(0, |routes| routes.policies.set.version.0)
    }

    /// From now on, for what no request waits for.
    pub(crate) fn operation_deadline(&self, set: Option<Duration>) -> Instant {
        self.deadline(Some(set.unwrap_or(self.deadline.max(caps::OPERATION))))
    }

    /// From now on.
    pub(crate) fn deadline(&self, set: Option<Duration>) -> Instant {
        self.deadline_from(Instant::now(), set)
    }

    pub(crate) fn deadline_from(&self, now: Instant, set: Option<Duration>) -> Instant {
        now + set.unwrap_or(self.deadline).min(caps::DEADLINE_MAX)
    }
}

/// The decision in an answer to a check or a reservation.
pub(crate) fn decision(answer: PlaceAnswer, question: &mut Question<'_>) -> Result<crate::Decision, Error> {
    match answer.answer {
        Answer::Decision(core) => Ok(crate::Decision::new(answer.receipt, core, question)),
        other => Err(unexpected(&other)),
    }
}

/// An answer of another kind than the command's.
pub(crate) fn unexpected(answer: &Answer) -> Error {
    let text = format!("the node answered with something else than was asked for ({answer:?}); check its version");
    Error::new(ErrorKind::Protocol, text).charged(true)
}
