//! The task behind a sequencer: what it does while this node leads, and between.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use quorate_core::{Applied, Batch, Command, Group, PolicySet, PolicyVersion, Receipt, Term};
use tokio::sync::watch;
use tokio::time::Instant;

use super::denials::{self, DeniedKeys};
use super::queue::{Queue, Submission};
use super::reply::{Failure, ReplySlot};
use super::shard::Proposer;
use crate::caps;
use crate::clock::{ClusterClock, Monotonic, Stamper};
use crate::raft::{Leadership, ProposeError};

/// Follows the shard's leadership, and leads its frames into the log whenever it is this node's. Ends with the watch.
pub(super) async fn keep_leading(
    shard: impl Proposer,
    clock: ClusterClock,
    policies: watch::Receiver<Arc<PolicySet>>,
    queue: Arc<Queue>,
) {
    let mut leadership = shard.leadership();
    loop {
        let now = *leadership.borrow_and_update();
        if now.is_self {
            let mut office = Office {
                shard: &shard,
                clock: &clock,
                queue: &queue,
                policies: policies.clone(),
                term: now.term,
                proposed_policies: PolicyVersion(0),
                policies_again: None,
                in_flight: VecDeque::new(),
                denied: DeniedKeys::default(),
                unlogged: 0,
            };
            office.hold(&mut leadership, now).await;
        } else {
            queue.close(now.leader);
        }
        // In office it may have changed already; then this returns at once.
        if leadership.changed().await.is_err() {
            queue.stop();
            return;
        }
    }
}

/// One term in which this node leads.
struct Office<'a, S: Proposer> {
    shard: &'a S,
    clock: &'a ClusterClock,
    queue: &'a Queue,
    policies: watch::Receiver<Arc<PolicySet>>,
    term: Term,
    /// The newest policy set that this term has proposed.
    proposed_policies: PolicyVersion,
    /// Raft may refuse a proposal in the middle of a term, while it hears from no majority; a policy set that was refused is
    /// proposed again from then on.
    policies_again: Option<Instant>,
    in_flight: VecDeque<InFlight<S::Ticket>>,
    /// Keys whose next check may be denied without the log.
    denied: DeniedKeys,
    /// How many denials this term has given without the log: their receipts are told apart by it.
    unlogged: u32,
}

/// A batch on its way through the log.
struct InFlight<T> {
    ticket: T,
    groups: Vec<Group>,
    /// One for each group of the batch; none where nobody asked, or the asker was told already.
    replies: Vec<Option<(Monotonic, ReplySlot)>>,
    /// Whether it may give allowance back.
    gives_back: bool,
    /// Limits that it may charge.
    limits: u64,
}

/// What the office waits for.
enum Event {
    Leadership,
    Applied(Result<Applied, ProposeError>),
    Filled,
    Policies,
    Idle,
    Overdue,
}

impl<S: Proposer> Office<'_, S> {
    /// Leads until the term is over.
    async fn hold(&mut self, leadership: &mut watch::Receiver<Leadership>, now: Leadership) {
        tokio::select! {
            () = self.clock.trusted() => {}
            // The loop around this sees what changed.
            () = over(leadership, self.term) => return self.leave(leadership),
        }
        let last = self.shard.stamp();
        self.clock.remember(last);
        let (moment, estimate) = self.clock.read();
        let mut stamper = Stamper::new(&estimate, moment, last);
        self.queue.open(now.leader);
        loop {
            if let Err(error) = self.propose_all(&mut stamper).await {
                tracing::debug!(shard = %self.shard.id(), term = %self.term, %error, "a batch was not proposed");
                break;
            }
            match self.next_event(leadership).await {
                Event::Leadership => break,
                Event::Applied(outcome) => self.route(outcome),
                Event::Overdue => self.tell_overdue(),
                Event::Filled | Event::Policies => {}
                Event::Idle => {
                    if self.propose_tick(&mut stamper).await.is_err() {
                        break;
                    }
                }
            }
        }
        self.leave(leadership);
        if !self.is_over(leadership) {
            // The group refused, and its watch has yet to say why.
            over(leadership, self.term).await;
        }
    }

    fn is_over(&self, leadership: &watch::Receiver<Leadership>) -> bool {
        let now = *leadership.borrow();
        !now.is_self || now.term != self.term || leadership.has_changed().is_err()
    }

    async fn next_event(&mut self, leadership: &watch::Receiver<Leadership>) -> Event {
        let room = self.in_flight.len() < caps::PROPOSALS_IN_FLIGHT;
        let idle = self.in_flight.is_empty();
        let (term, queue) = (self.term, self.queue);
        let expires = if idle { self.shard.expires_at() } else { None };
        let clock = self.clock;
        let again = self.policies_again;
        let in_flight = &mut self.in_flight;
        let applied = std::future::poll_fn(|context| match in_flight.front_mut() {
            Some(front) => Pin::new(&mut front.ticket).poll(context),
            None => Poll::Pending,
        });
        let policies = &mut self.policies;
        tokio::select! {
            biased;
            () = over(leadership, term) => Event::Leadership,
            outcome = applied => Event::Applied(outcome),
            () = queue.filled.notified(), if room => Event::Filled,
            Ok(()) = policies.changed(), if room && again.is_none() => Event::Policies,
            () = until(again), if room && again.is_some() => Event::Policies,
            () = tick(clock, expires), if expires.is_some() => Event::Idle,
            () = tokio::time::sleep(caps::OVERDUE_PERIOD), if !idle => Event::Overdue,
        }
    }

    /// Proposes what waits, as long as there is something and not too much is in flight.
    async fn propose_all(&mut self, stamper: &mut Stamper) -> Result<(), ProposeError> {
        while self.in_flight.len() < caps::PROPOSALS_IN_FLIGHT {
            let install = self.newer_policies();
            let (now, _) = self.clock.read();
            let taken = self.queue.take_batch(now);
            if taken.is_empty() && install.is_none() {
                return Ok(());
            }
            let batch = if install.is_none() { self.deny(stamper, taken) } else { taken };
            if batch.is_empty() && install.is_none() {
                continue;
            }
            self.propose(stamper, install, batch).await?;
        }
        Ok(())
    }

    /// Answers what is sure to be denied; what is left has to go through the log.
    fn deny(&mut self, stamper: &mut Stamper, batch: Vec<Submission>) -> Vec<Submission> {
        let gives_back = self.in_flight.iter().any(|batch| batch.gives_back);
        if gives_back {
            return batch;
        }
        let suspects = self.denied.suspects(&batch);
        if suspects.is_empty() {
            return batch;
        }
        let (now, estimate) = self.clock.read();
        let coming = self.in_flight.iter().map(|batch| batch.limits).sum();
        let answers = self.shard.deny(self.term, stamper.stamp(&estimate, now), coming, &suspects);
        let mut denied = Vec::new();
        for (suspect, answer) in suspects.iter().zip(answers) {
            let Some(mut answer) = answer else { continue };
            answer.receipt.place = Receipt::UNLOGGED | self.unlogged;
            self.unlogged = self.unlogged.wrapping_add(1) & !Receipt::UNLOGGED;
            denied.push((suspect.at, answer));
        }
        if denied.is_empty() { batch } else { denials::take_out(batch, denied) }
    }

    /// Lets time pass on an idle shard where something awaits its expiry.
    async fn propose_tick(&mut self, stamper: &mut Stamper) -> Result<(), ProposeError> {
        self.propose(stamper, Some(Command::Tick), Vec::new()).await
    }

    /// The policy set to bring into the log, if there is one that the log does not have.
    fn newer_policies(&mut self) -> Option<Command> {
        if self.policies_again.is_some_and(|again| Instant::now() < again) {
            return None;
        }
        self.policies_again = None;
        let newest = Arc::clone(&self.policies.borrow_and_update());
        let known = self.proposed_policies.max(self.shard.policy_version());
        (newest.version > known).then(|| {
            self.proposed_policies = newest.version;
            Command::Install(PolicySet::clone(&newest))
        })
    }

    async fn propose(
        &mut self,
        stamper: &mut Stamper,
        own: Option<Command>,
        submissions: Vec<Submission>,
    ) -> Result<(), ProposeError> {
        let mut groups = Vec::with_capacity(submissions.len() + 1);
        let mut replies = Vec::with_capacity(submissions.len() + 1);
        if let Some(command) = own {
            groups.push(Group { frame: None, commands: vec![(0, command)] });
            replies.push(None);
        }
        for Submission { group, deadline, reply, .. } in submissions {
            groups.push(group);
            replies.push(Some((deadline, reply)));
        }
        let (now, estimate) = self.clock.read();
        let batch = Batch { stamp: stamper.stamp(&estimate, now), groups };
        let mut bytes = Vec::with_capacity(64 + 40 * batch.commands());
        batch.encode(&mut bytes);
        match self.shard.propose(Bytes::from(bytes)).await {
            Ok(ticket) => {
                for (_, reply) in replies.iter_mut().flatten() {
                    reply.mark_proposed();
                }
                let commands = || batch.groups.iter().flat_map(|group| &group.commands).map(|(_, command)| command);
                let (gives_back, limits) = (commands().any(gives_back), commands().map(limits).sum());
                self.in_flight.push_back(InFlight { ticket, groups: batch.groups, replies, gives_back, limits });
                Ok(())
            }
            Err(error) => {
                for (_, reply) in replies.into_iter().flatten() {
                    reply.reply(Err(failure(&error)));
                }
                Err(error)
            }
        }
    }

    /// Gives the answers of the oldest batch in flight to those that asked.
    fn route(&mut self, outcome: Result<Applied, ProposeError>) {
        let Some(batch) = self.in_flight.pop_front() else { return };
        #[cfg(feature = "planted")]
        let forgets = quorate_core::planted::is(quorate_core::planted::Planted::PoliciesGivenUp);
        #[cfg(not(feature = "planted"))]
        let forgets = false;
        if outcome.is_err() && !forgets {
            self.proposed_policies = PolicyVersion(0);
            self.policies_again = Some(Instant::now() + caps::TICK_PERIOD);
        }
        if let Ok(applied) = &outcome {
            batch.groups.iter().zip(&applied.groups).for_each(|(group, answers)| self.denied.learn(group, answers));
        }
        route(batch.replies, outcome);
    }

    /// Tells those whose time is over that their frame's outcome is not known, and sheds what still waits.
    fn tell_overdue(&mut self) {
        let (now, _) = self.clock.read();
        self.queue.shed(now);
        for slot in self.in_flight.iter_mut().flat_map(|batch| &mut batch.replies) {
            if let Some((_, reply)) = slot.take_if(|(deadline, _)| *deadline < now) {
                reply.reply(Err(Failure::Unknown));
            }
        }
    }

    /// The term is over: what is known is told, what was proposed is unknown, what waits is to be asked elsewhere.
    fn leave(&mut self, leadership: &watch::Receiver<Leadership>) {
        let now = *leadership.borrow();
        self.queue.close(if now.is_self { None } else { now.leader });
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        for mut batch in self.in_flight.drain(..) {
            match Pin::new(&mut batch.ticket).poll(&mut context) {
                Poll::Ready(outcome) => route(batch.replies, outcome),
                Poll::Pending => route(batch.replies, Err(ProposeError::Unknown)),
            }
        }
    }
}

async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

/// Returns when the term is over; what changed stays marked as not seen.
async fn over(leadership: &watch::Receiver<Leadership>, term: Term) {
    let mut follow = leadership.clone();
    let _ = follow.wait_for(|now| !now.is_self || now.term != term).await;
}

/// Whether a command may give allowance back, or change what is denied.
fn gives_back(command: &Command) -> bool {
    match command {
        Command::Check(_) | Command::Reserve { .. } | Command::Tick => false,
        Command::OpenSession | Command::CloseSession(_) => false,
        Command::Refund { .. } | Command::Settle { .. } | Command::Reset { .. } => true,
        Command::Install(_) | Command::Bounds(_) => true,
    }
}

/// How many limits a command may charge.
fn limits(command: &Command) -> u64 {
    match command {
        Command::Check(check) | Command::Reserve { check, .. } => check.limits.len() as u64,
        _ => 1,
    }
}

fn route(replies: Vec<Option<(Monotonic, ReplySlot)>>, outcome: Result<Applied, ProposeError>) {
    match outcome {
        Ok(applied) => {
            // A slot that no group is left for replies by itself, that it does not know.
            for (slot, answers) in replies.into_iter().zip(applied.groups) {
                if let Some((_, reply)) = slot {
                    reply.reply(Ok(answers));
                }
            }
        }
        Err(error) => {
            for (_, reply) in replies.into_iter().flatten() {
                reply.reply(Err(failure(&error)));
            }
        }
    }
}

fn failure(error: &ProposeError) -> Failure {
    match error {
        ProposeError::NotLeader { leader } => Failure::NotLeader { leader: *leader },
        ProposeError::Unknown => Failure::Unknown,
        ProposeError::Stopped(_) => Failure::Stopped,
    }
}

/// Returns when it is time for a tick: something has expired, and the last look is a while ago.
async fn tick(clock: &ClusterClock, expires: Option<quorate_core::Stamp>) {
    let left = expires.map_or(0, |at| at.0.saturating_sub(clock.now().0).max(0) as u64);
    let pause = std::time::Duration::from_micros(left).clamp(caps::TICK_PERIOD, caps::TICK_LONGEST);
    tokio::time::sleep(pause).await;
}
