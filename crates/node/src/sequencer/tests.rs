//! The sequencer before a fake shard whose log and leadership the test turns by hand.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard};
use std::task::{Context, Poll};

use bytes::Bytes;
use proptest::prelude::*;
use quorate_core::*;
use tokio::sync::{mpsc, oneshot};

use super::*;
use crate::clock::{Clock as _, HandClock, Monotonic, Wall};
use crate::raft::{Leadership, ProposeError};

const ME: NodeId = NodeId(1);
const OTHER: NodeId = NodeId(2);
const START: i64 = 1_000_000_000;
const LONG: i64 = 3_600_000_000;

type Outcome = Result<Applied, ProposeError>;

/// A shard whose proposals are committed when the test says so.
#[derive(Clone)]
struct Fake(std::sync::Arc<Mutex<Inner>>, watch::Receiver<Leadership>);

struct Inner {
    leadership: Option<watch::Sender<Leadership>>,
    state: Shard,
    index: u64,
    waiting: VecDeque<(Term, Batch, oneshot::Sender<Outcome>)>,
    log: Vec<Batch>,
    refuse: bool,
    lease: bool,
}

struct Ticket(oneshot::Receiver<Outcome>);

impl Future for Ticket {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome> {
        Pin::new(&mut self.0).poll(context).map(|outcome| outcome.unwrap_or(Err(ProposeError::Unknown)))
    }
}

impl Proposer for Fake {
    type Ticket = Ticket;

    fn id(&self) -> ShardId {
        ShardId(1)
    }

    fn leadership(&self) -> watch::Receiver<Leadership> {
        self.1.clone()
    }

    async fn propose(&self, batch: Bytes) -> Result<Ticket, ProposeError> {
        tokio::task::yield_now().await;
        let mut inner = self.inner();
        let now = *self.1.borrow();
        if !now.is_self || inner.refuse {
            return Err(ProposeError::NotLeader { leader: now.leader.filter(|&node| node != ME) });
        }
        let (sender, ticket) = oneshot::channel();
        inner.waiting.push_back((now.term, Batch::decode(&batch).unwrap(), sender));
        Ok(Ticket(ticket))
    }

    fn stamp(&self) -> Stamp {
        self.inner().state.stamp()
    }

    fn policy_version(&self) -> PolicyVersion {
        self.inner().state.policies().version
    }

    fn deny(&self, term: Term, stamp: Stamp, coming: u64, suspects: &[Suspect<'_>]) -> Vec<Option<PlaceAnswer>> {
        let inner = self.inner();
        let receipt = Receipt { shard: ShardId(1), term, index: Index(inner.index), place: Receipt::UNLOGGED, stamp };
        let look = |suspect: &Suspect<'_>| {
            let decision = inner.state.sure_denial(stamp, suspect.frame, suspect.check, coming)?;
            Some(PlaceAnswer { place: suspect.place, receipt, answer: Answer::Decision(decision) })
        };
        suspects.iter().map(|suspect| look(suspect).filter(|_| inner.lease)).collect()
    }

    fn expires_at(&self) -> Option<Stamp> {
        self.inner().state.expires_at()
    }
}

impl Fake {
    fn new() -> Fake {
        let (sender, receiver) = watch::channel(Leadership::default());
        let inner = Inner {
            leadership: Some(sender),
            state: Shard::new(ShardId(1), quorate_core::Arc::WHOLE),
            index: 0,
            waiting: VecDeque::new(),
            log: Vec::new(),
            refuse: false,
            lease: true,
        };
        Fake(std::sync::Arc::new(Mutex::new(inner)), receiver)
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap()
    }

    fn lead(&self, term: u64, leader: NodeId) {
        let now = Leadership { term: Term(term), leader: Some(leader), is_self: leader == ME };
        self.inner().leadership.as_ref().unwrap().send_replace(now);
    }

    fn commit(&self) -> bool {
        let mut inner = self.inner();
        let Some((term, batch, ticket)) = inner.waiting.pop_front() else { return false };
        inner.index += 1;
        let index = Index(inner.index);
        let applied = inner.state.apply(term, index, &batch, true);
        inner.log.push(batch);
        let _ = ticket.send(Ok(applied));
        true
    }
}

struct Bench {
    fake: Fake,
    hand: HandClock,
    sequencer: Sequencer,
    policies: watch::Sender<std::sync::Arc<PolicySet>>,
    to: mpsc::UnboundedSender<Reply>,
    replies: mpsc::UnboundedReceiver<Reply>,
    task: JoinHandle<()>,
}

fn bench(caps: QueueCaps) -> Bench {
    let hand = HandClock::at(Wall(START));
    let clock = ClusterClock::new(ME, std::sync::Arc::new(hand.clone()));
    clock.set_voters(vec![ME]);
    bench_with(caps, clock, hand)
}

fn bench_with(caps: QueueCaps, clock: ClusterClock, hand: HandClock) -> Bench {
    let (fake, (policies, follow)) = (Fake::new(), watch::channel(std::sync::Arc::default()));
    let (sequencer, task) = Sequencer::start(fake.clone(), clock, follow, caps);
    let (to, replies) = mpsc::unbounded_channel();
    Bench { fake, hand, sequencer, policies, to, replies, task }
}

const WIDE: QueueCaps = QueueCaps { commands: 1_000_000, bytes: 1 << 30 };

impl Bench {
    /// A frame of so many commands, each of which names the tag: a reset of policy 1 answers without any policy set.
    fn submit(&self, tag: u64, commands: u32, patience: i64) {
        let reset = Command::Reset { policy: PolicyId(1), key: Fingerprint { ring: tag, table: tag } };
        let group = Group { frame: None, commands: (0..commands).map(|place| (place, reset.clone())).collect() };
        let deadline = Monotonic(self.hand.monotonic().0 + patience);
        let reply = ReplySlot::new(tag, ShardId(1), self.to.clone());
        self.sequencer.submit(Submission { group, deadline, first: true, reply });
    }

    /// Lets the task do all that it can.
    async fn settle(&self) {
        for _ in 0..64 {
            tokio::task::yield_now().await;
        }
    }

    async fn reply(&mut self) -> Reply {
        self.replies.recv().await.unwrap()
    }

    async fn failure(&mut self) -> (u64, Failure) {
        let reply = self.reply().await;
        (reply.tag, reply.outcome.unwrap_err())
    }

    fn waiting(&self) -> usize {
        self.fake.inner().waiting.len()
    }
}

/// The tags of a batch's frames, in order.
fn tags(batch: &Batch) -> Vec<u64> {
    let tag = |group: &Group| match &group.commands[0].1 {
        Command::Reset { key, .. } => key.ring,
        _ => 0,
    };
    batch.groups.iter().map(tag).collect()
}

#[tokio::test(start_paused = true)]
async fn a_frame_is_answered_once_it_is_applied() {
    let mut bench = bench(WIDE);
    bench.fake.lead(1, ME);
    bench.settle().await;
    bench.submit(7, 2, LONG);
    bench.settle().await;
    assert!(bench.fake.commit());
    let reply = bench.reply().await;
    let answers = reply.outcome.unwrap();
    assert_eq!((reply.tag, answers.len(), answers[1].place, answers[1].receipt.index), (7, 2, 1, Index(1)));
    assert_eq!(answers[0].receipt.stamp, Stamp(START));
}

#[tokio::test(start_paused = true)]
async fn what_waits_while_batches_are_in_flight_goes_together() {
    let mut bench = bench(WIDE);
    bench.fake.lead(1, ME);
    bench.settle().await;
    for tag in 0..20 {
        bench.submit(tag, 1, LONG);
        bench.settle().await;
    }
    assert_eq!(bench.waiting(), crate::caps::PROPOSALS_IN_FLIGHT);
    let mut seen = Vec::new();
    while bench.fake.commit() {
        bench.settle().await;
    }
    for batch in &bench.fake.inner().log {
        seen.push(tags(batch));
    }
    assert_eq!(seen.concat(), (0..20).collect::<Vec<_>>());
    assert_eq!(seen.len(), crate::caps::PROPOSALS_IN_FLIGHT + 1);
    for tag in 0..20 {
        assert_eq!(bench.reply().await.tag, tag);
    }
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_says_so_at_once() {
    let mut bench = bench(QueueCaps { commands: 5, bytes: 1 << 20 });
    bench.fake.lead(1, ME);
    bench.settle().await;
    bench.submit(1, 3, LONG);
    bench.submit(2, 3, LONG);
    bench.submit(3, 2, LONG);
    assert_eq!(bench.failure().await, (2, Failure::Overloaded));
    bench.settle().await;
    assert!(bench.fake.commit());
    assert_eq!((bench.reply().await.tag, bench.reply().await.tag), (1, 3));
    // What was taken out makes room.
    bench.submit(4, 5, LONG);
    bench.settle().await;
    assert!(bench.fake.commit());
    assert!(bench.reply().await.outcome.is_ok());

    let mut bytes = self::bench(QueueCaps { commands: 1_000, bytes: 100 });
    bytes.fake.lead(1, ME);
    bytes.settle().await;
    bytes.submit(1, 10, LONG);
    assert_eq!(bytes.failure().await, (1, Failure::Overloaded));
}

#[tokio::test(start_paused = true)]
async fn what_nobody_waits_for_is_not_proposed() {
    let mut bench = bench(WIDE);
    bench.fake.lead(1, ME);
    bench.settle().await;
    for tag in 0..3 {
        bench.submit(tag, 1, 1_000);
        bench.settle().await;
    }
    bench.submit(3, 1, 1_000);
    bench.submit(4, 1, LONG);
    bench.hand.advance(Span(1_001));
    assert!(bench.fake.commit());
    bench.settle().await;
    assert_eq!(bench.reply().await.tag, 0);
    assert_eq!(bench.failure().await, (3, Failure::Deadline));
    // Those that are in flight are told that nobody knows.
    assert_eq!(bench.failure().await, (1, Failure::Unknown));
    assert_eq!(bench.failure().await, (2, Failure::Unknown));
    while bench.fake.commit() {
        bench.settle().await;
    }
    assert_eq!(bench.reply().await.tag, 4);
}

#[tokio::test(start_paused = true)]
async fn a_stuck_log_sheds_what_waits_before_it() {
    let mut bench = bench(WIDE);
    bench.fake.lead(1, ME);
    bench.settle().await;
    for tag in 0..4 {
        bench.submit(tag, 1, if tag == 3 { 1_000 } else { LONG });
        bench.settle().await;
    }
    bench.hand.advance(Span(1_001));
    assert_eq!(bench.failure().await, (3, Failure::Deadline));
}

#[tokio::test(start_paused = true)]
async fn lost_leadership_tells_proposed_from_not_proposed() {
    let mut bench = bench(WIDE);
    bench.submit(9, 1, LONG);
    assert_eq!(bench.failure().await, (9, Failure::NotLeader { leader: None }));
    bench.fake.lead(1, ME);
    bench.settle().await;
    for tag in 0..4 {
        bench.submit(tag, 1, LONG);
        bench.settle().await;
    }
    // One is committed just before, and its answer is not lost.
    assert!(bench.fake.commit());
    bench.fake.lead(2, OTHER);
    bench.settle().await;
    let mut failures = BTreeMap::new();
    for _ in 0..4 {
        let reply = bench.reply().await;
        failures.insert(reply.tag, reply.outcome.err());
    }
    let not_leader = Some(Failure::NotLeader { leader: Some(OTHER) });
    assert_eq!(failures, [(0, None), (1, Some(Failure::Unknown)), (2, Some(Failure::Unknown)), (3, not_leader)].into());
    bench.submit(5, 1, LONG);
    assert_eq!(bench.failure().await, (5, Failure::NotLeader { leader: Some(OTHER) }));
}

#[tokio::test(start_paused = true)]
async fn a_refused_proposal_ends_the_term_until_the_next() {
    let mut bench = bench(WIDE);
    bench.fake.lead(1, ME);
    bench.settle().await;
    bench.fake.inner().refuse = true;
    bench.submit(1, 1, LONG);
    assert_eq!(bench.failure().await, (1, Failure::NotLeader { leader: None }));
    bench.settle().await;
    bench.submit(2, 1, LONG);
    assert_eq!(bench.failure().await, (2, Failure::NotLeader { leader: None }));
    bench.fake.inner().refuse = false;
    bench.fake.lead(3, ME);
    bench.settle().await;
    bench.submit(3, 1, LONG);
    bench.settle().await;
    assert!(bench.fake.commit());
    assert!(bench.reply().await.outcome.is_ok());
}

#[tokio::test(start_paused = true)]
async fn nothing_is_taken_before_the_clock_is_trusted() {
    let hand = HandClock::at(Wall(START));
    let clock = ClusterClock::new(ME, std::sync::Arc::new(hand.clone()));
    clock.set_voters(vec![ME, OTHER, NodeId(3)]);
    let mut bench = bench_with(WIDE, clock.clone(), hand);
    bench.fake.lead(1, ME);
    bench.settle().await;
    bench.submit(1, 1, LONG);
    assert!(matches!(bench.failure().await, (1, Failure::NotLeader { .. })));
    clock.set_voters(vec![ME]);
    bench.settle().await;
    bench.submit(2, 1, LONG);
    bench.settle().await;
    assert_eq!(bench.waiting(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_newer_policy_set_is_brought_in_once() {
    let bench = bench(WIDE);
    bench.fake.lead(1, ME);
    bench.settle().await;
    let set = |version| std::sync::Arc::new(PolicySet { version: PolicyVersion(version), policies: vec![] });
    bench.policies.send_replace(set(3));
    bench.settle().await;
    bench.policies.send_replace(set(3));
    bench.submit(1, 1, LONG);
    bench.settle().await;
    while bench.fake.commit() {
        bench.settle().await;
    }
    bench.fake.lead(2, OTHER);
    bench.settle().await;
    bench.fake.lead(3, ME);
    bench.settle().await;
    let installs = |fake: &Fake| {
        let log = &fake.inner().log;
        log.iter().flat_map(|batch| &batch.groups).filter(|g| matches!(g.commands[0].1, Command::Install(_))).count()
    };
    assert_eq!((installs(&bench.fake), bench.fake.policy_version(), bench.waiting()), (1, PolicyVersion(3), 0));
    bench.policies.send_replace(set(4));
    bench.settle().await;
    assert!(bench.fake.commit());
    assert_eq!((installs(&bench.fake), bench.fake.policy_version()), (2, PolicyVersion(4)));
}

#[tokio::test(start_paused = true)]
async fn a_policy_set_that_was_refused_within_a_term_is_proposed_again() {
    let bench = bench(WIDE);
    bench.fake.lead(1, ME);
    bench.settle().await;
    let set = PolicySet { version: PolicyVersion(4), policies: Vec::new() };
    bench.policies.send_replace(std::sync::Arc::new(set));
    bench.settle().await;
    for _ in 0..3 {
        // As Raft does while it hears from no majority: the term goes on.
        let (_, _, ticket) = bench.fake.inner().waiting.pop_front().expect("it is proposed");
        ticket.send(Err(ProposeError::NotLeader { leader: None })).unwrap();
        bench.settle().await;
        assert!(bench.fake.inner().waiting.is_empty(), "not again at once");
        tokio::time::sleep(crate::caps::TICK_PERIOD).await;
        bench.settle().await;
    }
    assert!(bench.fake.commit());
    assert_eq!(bench.fake.policy_version(), PolicyVersion(4));
    tokio::time::sleep(crate::caps::TICK_PERIOD * 3).await;
    assert!(!bench.fake.commit(), "and then no more");
}

#[tokio::test(start_paused = true)]
async fn an_idle_shard_ticks_only_while_something_awaits_expiry() {
    let bench = bench(WIDE);
    bench.fake.lead(1, ME);
    tokio::time::sleep(crate::caps::TICK_LONGEST * 3).await;
    assert_eq!(bench.waiting(), 0);
    let mut policy = Policy::new("p", Algorithm::FixedWindow { limit: 5, window: Span(1_000_000) });
    policy.id = PolicyId(1);
    let set = PolicySet { version: PolicyVersion(1), policies: vec![policy] };
    bench.policies.send_replace(std::sync::Arc::new(set));
    bench.settle().await;
    let limit = Limit { policy: PolicyId(1), key: Fingerprint { ring: 1, table: 1 }, cost: Cost::ONE };
    let check = Command::Check(Check { limits: [limit].into_iter().collect(), ..Check::default() });
    let group = Group { frame: None, commands: vec![(0, check)] };
    let reply = ReplySlot::new(1, ShardId(1), bench.to.clone());
    bench.sequencer.submit(Submission { group, deadline: Monotonic(LONG), first: true, reply });
    bench.settle().await;
    while bench.fake.commit() {
        bench.settle().await;
    }
    assert_eq!(bench.fake.inner().state.keys(), 1);
    bench.hand.advance(Span(5_000_000));
    let mut ticks = 0;
    while bench.fake.expires_at().is_some() {
        tokio::time::sleep(crate::caps::TICK_PERIOD).await;
        ticks += usize::from(bench.fake.commit());
        assert!(ticks < 100, "still awaits expiry after {ticks} ticks");
    }
    assert!(ticks > 0);
    assert_eq!(bench.fake.inner().state.keys(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_stopped_shard_ends_the_task() {
    let mut bench = bench(WIDE);
    bench.fake.lead(1, ME);
    bench.settle().await;
    bench.submit(1, 1, LONG);
    bench.settle().await;
    let leadership = bench.fake.inner().leadership.take().unwrap();
    leadership.send_replace(Leadership::default());
    drop(leadership);
    (&mut bench.task).await.unwrap();
    assert_eq!(bench.failure().await, (1, Failure::Unknown));
    bench.submit(2, 1, LONG);
    assert_eq!(bench.failure().await, (2, Failure::Stopped));
}

#[derive(Clone, Debug)]
enum Step {
    Submit(u32, i64),
    Commit,
    Lead(bool),
    Advance(i64),
    Settle,
    Yield,
    Overdue,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (1..4_u32, prop_oneof![Just(LONG), 0..2_000_i64]).prop_map(|(commands, patience)| Step::Submit(commands, patience)),
        4 => Just(Step::Commit),
        1 => any::<bool>().prop_map(Step::Lead),
        1 => (1..1_500_i64).prop_map(Step::Advance),
        3 => Just(Step::Settle),
        3 => Just(Step::Yield),
        1 => Just(Step::Overdue),
    ]
}

async fn random_history(steps: Vec<Step>) {
    let mut bench = bench(QueueCaps { commands: 12, bytes: 1 << 20 });
    let (mut term, mut tag) = (1, 0);
    bench.fake.lead(term, ME);
    for step in steps {
        match step {
            Step::Submit(commands, patience) => {
                tag += 1;
                bench.submit(tag, commands, patience);
            }
            Step::Commit => _ = bench.fake.commit(),
            Step::Lead(me) => {
                term += 1;
                bench.fake.lead(term, if me { ME } else { OTHER });
            }
            Step::Advance(us) => bench.hand.advance(Span(us)),
            Step::Settle => bench.settle().await,
            Step::Yield => tokio::task::yield_now().await,
            Step::Overdue => tokio::time::sleep(crate::caps::OVERDUE_PERIOD).await,
        }
    }
    bench.settle().await;
    while bench.fake.commit() {
        bench.settle().await;
    }
    bench.fake.inner().leadership = None;
    (&mut bench.task).await.unwrap();

    let mut logged: Vec<u64> = bench.fake.inner().log.iter().flat_map(tags).filter(|&tag| tag > 0).collect();
    let in_order = logged.clone();
    logged.sort_unstable();
    assert!(logged.windows(2).all(|pair| pair[0] != pair[1]), "a frame was proposed twice: {in_order:?}");
    assert_eq!(in_order, logged, "frames overtook one another");
    let stamps: Vec<Stamp> = bench.fake.inner().log.iter().map(|batch| batch.stamp).collect();
    assert!(stamps.is_sorted(), "stamps went back: {stamps:?}");
    let logged: BTreeSet<u64> = logged.into_iter().collect();
    let mut replied = BTreeMap::new();
    while let Ok(reply) = bench.replies.try_recv() {
        let was_logged = logged.contains(&reply.tag);
        match &reply.outcome {
            Ok(answers) => assert!(was_logged && !answers.is_empty(), "{reply:?}"),
            Err(Failure::Unknown) => assert!(was_logged, "{reply:?}"),
            Err(_) => assert!(!was_logged, "{reply:?}"),
        }
        assert!(replied.insert(reply.tag, reply.outcome.is_ok()).is_none(), "tag {} was replied to twice", reply.tag);
    }
    assert_eq!(replied.len() as u64, tag, "a reply was lost");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]
    #[test]
    fn no_reply_is_lost_whatever_happens(steps in prop::collection::vec(step(), 1..80)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(random_history(steps));
    }
}

/// A bench whose shard grants one check a second to each key, and has granted it to key 7.
async fn spent() -> Bench {
    let mut bench = bench(WIDE);
    bench.fake.lead(1, ME);
    bench.settle().await;
    let mut policy = Policy::new("p", Algorithm::FixedWindow { limit: 1, window: Span(1_000_000) });
    policy.id = PolicyId(1);
    bench.policies.send_replace(std::sync::Arc::new(PolicySet { version: PolicyVersion(1), policies: vec![policy] }));
    bench.settle().await;
    assert!(bench.fake.commit());
    for allowed in [true, false] {
        bench.ask(1, &[7]);
        bench.settle().await;
        assert!(bench.fake.commit(), "nothing was known yet: it is logged");
        assert_eq!(bench.verdicts().await, [(allowed, true)]);
    }
    bench
}

impl Bench {
    /// A frame of checks of those keys.
    fn ask(&self, tag: u64, keys: &[u64]) {
        self.send(tag, keys, true);
    }

    /// The same, sent before.
    fn ask_again(&self, tag: u64, keys: &[u64]) {
        self.send(tag, keys, false);
    }

    fn send(&self, tag: u64, keys: &[u64], first: bool) {
        let check = |key: u64| {
            let key = Fingerprint { ring: key, table: key };
            let limit = Limit { policy: PolicyId(1), key, cost: Cost::ONE };
            Command::Check(Check { limits: [limit].into_iter().collect(), ..Check::default() })
        };
        let group = Group { frame: None, commands: (0..).zip(keys.iter().copied().map(check)).collect() };
        let (deadline, reply) = (Monotonic(LONG), ReplySlot::new(tag, ShardId(1), self.to.clone()));
        self.sequencer.submit(Submission { group, deadline, first, reply });
    }

    /// Of each place of the next reply: whether it was allowed, and whether it is in the log.
    async fn verdicts(&mut self) -> Vec<(bool, bool)> {
        let answers = self.reply().await.outcome.unwrap();
        assert!(answers.iter().enumerate().all(|(at, answer)| answer.place as usize == at));
        let verdict = |answer: PlaceAnswer| match answer.answer {
            Answer::Decision(decision) => (decision.allowed, answer.receipt.is_logged()),
            other => panic!("{other:?}"),
        };
        answers.into_iter().map(verdict).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_denials_writes_nothing_to_the_log() {
    let mut bench = spent().await;
    let logged = bench.fake.inner().log.len();
    for round in 0..1_000 {
        bench.ask(round, &[7, 7, 7]);
        assert_eq!(bench.verdicts().await, [(false, false); 3]);
    }
    assert_eq!((bench.waiting(), bench.fake.inner().log.len()), (0, logged));
    // Until time has brought it back.
    bench.hand.advance(Span(1_000_000));
    bench.ask(1, &[7]);
    bench.settle().await;
    assert!(bench.fake.commit());
    assert_eq!(bench.verdicts().await, [(true, true)]);
}

#[tokio::test(start_paused = true)]
async fn a_frame_is_answered_whole_when_the_log_has_said_the_rest() {
    let mut bench = spent().await;
    bench.ask(1, &[7, 8, 7, 9]);
    bench.settle().await;
    assert_eq!(bench.replies.try_recv().unwrap_err(), mpsc::error::TryRecvError::Empty);
    assert_eq!(bench.fake.inner().waiting[0].1.commands(), 2);
    assert!(bench.fake.commit());
    assert_eq!(bench.verdicts().await, [(false, false), (true, true), (false, false), (true, true)]);
    // Where the rest is lost, all of it is.
    bench.ask(2, &[7, 10]);
    bench.settle().await;
    bench.fake.lead(2, OTHER);
    assert_eq!(bench.failure().await, (2, Failure::Unknown));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_denied_without_the_log_while_allowance_may_come_back_or_another_may_lead() {
    let mut bench = spent().await;
    let reset = Command::Reset { policy: PolicyId(1), key: Fingerprint { ring: 7, table: 7 } };
    let group = Group { frame: None, commands: vec![(0, reset)] };
    let reply = ReplySlot::new(1, ShardId(1), bench.to.clone());
    bench.sequencer.submit(Submission { group, deadline: Monotonic(LONG), first: true, reply });
    bench.settle().await;
    bench.ask(2, &[7]);
    bench.settle().await;
    assert_eq!(bench.waiting(), 2);
    while bench.fake.commit() {}
    assert_eq!(bench.reply().await.outcome.unwrap()[0].answer, Answer::Done);
    assert_eq!(bench.verdicts().await, [(true, true)]);

    bench.ask(3, &[7]);
    assert_eq!(bench.verdicts().await, [(false, false)]);
    // A copy of it may be on its way elsewhere, or come later.
    bench.ask_again(4, &[7]);
    bench.settle().await;
    assert!(bench.fake.commit());
    assert_eq!(bench.verdicts().await, [(false, true)]);
    bench.fake.inner().lease = false;
    bench.ask(4, &[7]);
    bench.settle().await;
    assert!(bench.fake.commit());
    assert_eq!(bench.verdicts().await, [(false, true)]);
}
