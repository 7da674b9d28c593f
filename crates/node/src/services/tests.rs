//! Ingress and the stream of frames, before a shard that commits by itself.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures::{StreamExt, stream};
use quorate_core::*;
use quorate_proto::convert::{FrameHead, FramePacker, LimitRef, Outcome, unpack_answer};
use quorate_proto::v1::{self, ErrorCode};
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::UnboundedReceiverStream;

use super::*;
use crate::caps;
use crate::clock::{ClusterClock, HandClock, Wall};
use crate::raft::{Leadership, ProposeError};
use crate::sequencer::{Proposer, QueueCaps, Sequencer, Suspect};

const ME: NodeId = NodeId(1);
const SECRET: RingSecret = RingSecret([7; 16]);

/// A shard that applies what is proposed at once; paused, it keeps everything waiting.
#[derive(Clone)]
pub(super) struct Instant {
    id: ShardId,
    state: Arc<Mutex<(Shard, u64)>>,
    leadership: watch::Receiver<Leadership>,
    paused: watch::Receiver<bool>,
}

impl Instant {
    /// Led by this node, for as long as the sender lives.
    pub(super) fn new(id: ShardId, arc: quorate_core::Arc) -> (Instant, watch::Sender<Leadership>) {
        let (sender, leadership) = watch::channel(led_by(ME));
        let state = Arc::new(Mutex::new((Shard::new(id, arc), 0)));
        (Instant { id, state, leadership, paused: watch::channel(false).1 }, sender)
    }
}

impl Proposer for Instant {
    type Ticket = std::pin::Pin<Box<dyn Future<Output = std::result::Result<Applied, ProposeError>> + Send>>;

    fn id(&self) -> ShardId {
        self.id
    }

    fn leadership(&self) -> watch::Receiver<Leadership> {
        self.leadership.clone()
    }

    async fn propose(&self, batch: Bytes) -> std::result::Result<Self::Ticket, ProposeError> {
        let (state, mut paused) = (Arc::clone(&self.state), self.paused.clone());
        Ok(Box::pin(async move {
            let _ = paused.wait_for(|paused| !paused).await;
            let mut state = state.lock().unwrap();
            state.1 += 1;
            let index = Index(state.1);
            Ok(state.0.apply(Term(1), index, &Batch::decode(&batch).unwrap(), true))
        }))
    }

    fn stamp(&self) -> Stamp {
        self.state.lock().unwrap().0.stamp()
    }

    fn policy_version(&self) -> PolicyVersion {
        self.state.lock().unwrap().0.policies().version
    }

    fn deny(&self, _: Term, _: Stamp, _: u64, suspects: &[Suspect<'_>]) -> Vec<Option<PlaceAnswer>> {
        vec![None; suspects.len()]
    }

    fn expires_at(&self) -> Option<Stamp> {
        None
    }
}

struct Bench {
    ingress: Arc<Ingress>,
    leadership: watch::Sender<Leadership>,
    paused: watch::Sender<bool>,
    state: Arc<Mutex<(Shard, u64)>>,
    _policies: watch::Sender<Arc<PolicySet>>,
}

fn led_by(node: NodeId) -> Leadership {
    Leadership { term: Term(node.0), leader: Some(node), is_self: node == ME }
}

/// A node that leads shard 1, the lower half of the ring; shard 2 is elsewhere.
async fn bench() -> Bench {
    let clock = Arc::new(HandClock::at(Wall(5_000_000)));
    let cluster = ClusterClock::new(ME, Arc::clone(&clock) as _);
    cluster.set_voters(vec![ME]);
    let mut policy = Policy::new("p", Algorithm::FixedWindow { limit: 3, window: Span(60_000_000) });
    policy.id = PolicyId(1);
    let set = PolicySet { version: PolicyVersion(4), policies: vec![policy] };
    let (policies, follow) = watch::channel(Arc::new(set));
    let arc = Ring::even(2).arcs()[0].0;
    let state = Arc::new(Mutex::new((Shard::new(ShardId(1), arc), 0)));
    let (leadership, watched) = watch::channel(led_by(ME));
    let (paused, pausing) = watch::channel(false);
    let shard = Instant { id: ShardId(1), state: Arc::clone(&state), leadership: watched, paused: pausing };
    let (sequencer, _) = Sequencer::start(shard, cluster, follow, QueueCaps { commands: 4096, bytes: 1 << 20 });
    let ingress = Arc::new(Ingress::new(clock));
    let applied = Arc::clone(&state);
    let policy_version = Box::new(move || applied.lock().unwrap().0.policies().version);
    ingress.add_door(Door { sequencer, arc, policy_version });
    ingress.set_view(ClusterView {
        epoch: Epoch(6),
        ring_secret: SECRET,
        table_secret: TableSecret([8; 16]),
        shards: BTreeSet::from([ShardId(1), ShardId(2)]),
    });
    while state.lock().unwrap().0.policies().version < PolicyVersion(4) {
        tokio::task::yield_now().await;
    }
    Bench { ingress, leadership, paused, state, _policies: policies }
}

/// The first keys that shard 1 owns, or does not.
fn keys(owned: bool) -> impl Iterator<Item = String> {
    let arc = Ring::even(2).arcs()[0].0;
    (0..).map(|i| format!("key-{i}")).filter(move |key| arc.contains(SECRET.hash(key.as_bytes())) == owned)
}

fn head(tag: u64) -> FrameHead {
    FrameHead { tag, shard: ShardId(1), policy_version: PolicyVersion(4), ..FrameHead::default() }
}

fn frame(head: &FrameHead, keys: impl IntoIterator<Item = String>) -> v1::Frame {
    let mut packer = FramePacker::default();
    for (place, key) in keys.into_iter().enumerate() {
        let limit = LimitRef { policy: PolicyId(1), key: key.as_bytes(), cost: Cost::ONE };
        packer.check(place as u32, &[limit], false, None);
    }
    packer.pack(head)
}

async fn ask(bench: &Bench, frames: Vec<v1::Frame>) -> Vec<v1::FrameAnswer> {
    Frames::new(Arc::clone(&bench.ingress), stream::iter(frames)).collect().await
}

fn code(answer: &v1::FrameAnswer) -> ErrorCode {
    answer.error.as_ref().map_or(ErrorCode::Unspecified, v1::Error::code)
}

#[tokio::test(start_paused = true)]
async fn frames_are_answered_by_places() {
    let bench = bench().await;
    let key = keys(true).next().unwrap();
    let frames = vec![frame(&head(1), vec![key.clone(); 2]), frame(&head(2), vec![key; 2])];
    let answers = ask(&bench, frames).await;
    let mut allowed = Vec::new();
    for answer in &answers {
        for outcome in unpack_answer(answer).unwrap() {
            match outcome.outcome {
                Outcome::Answer(Answer::Decision(decision)) => allowed.push((answer.tag, decision.allowed)),
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!(allowed, [(1, true), (1, true), (2, true), (2, false)]);
}

#[tokio::test(start_paused = true)]
async fn each_hostile_frame_is_told_what_is_wrong_and_the_stream_goes_on() {
    let bench = bench().await;
    let key = || keys(true).take(1);
    let good = frame(&head(9), key());
    let cases = [
        (frame(&head(1), []), ErrorCode::Invalid, "1 to 1024"),
        (v1::Frame { costs: vec![u64::MAX], ..good.clone() }, ErrorCode::Invalid, "costs[0]"),
        (v1::Frame { keys: Bytes::new(), ..good.clone() }, ErrorCode::Invalid, "keys: 0 bytes"),
        (v1::Frame { shard: 0, ..good.clone() }, ErrorCode::Invalid, "shard: it is 0"),
        (v1::Frame { session: 3, ..good.clone() }, ErrorCode::Invalid, "sequence: it is 0"),
        (frame(&FrameHead { shard: ShardId(2), ..head(1) }, key()), ErrorCode::NotLeader, "does not lead s2"),
        (frame(&FrameHead { shard: ShardId(3), ..head(1) }, key()), ErrorCode::WrongShard, "no shard s3"),
        (frame(&head(1), key().chain(keys(false).take(1))), ErrorCode::WrongShard, "place 1"),
        (
            frame(&FrameHead { policy_version: PolicyVersion(5), ..head(1) }, key()),
            ErrorCode::PoliciesBehind,
            "not yet those of v5",
        ),
        (
            frame(&head(1), (0..1025).map(|i| format!("{{{}}}{i}", key().next().unwrap()))),
            ErrorCode::Invalid,
            "1025 commands",
        ),
    ];
    let frames = cases.iter().map(|(frame, ..)| frame.clone()).chain([good]).collect();
    let mut answers = ask(&bench, frames).await;
    let last = answers.pop().unwrap();
    assert_eq!((last.tag, code(&last), last.verdicts), (9, ErrorCode::Unspecified, vec![1]));
    assert_eq!(answers.len(), cases.len());
    for ((_, wanted, text), answer) in cases.iter().zip(&answers) {
        let error = answer.error.as_ref().unwrap();
        assert_eq!((error.code(), error.epoch), (*wanted, 6), "{error:?}");
        assert!(error.message.contains(text), "{error:?}");
    }
    assert_eq!(bench.state.lock().unwrap().0.keys(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_unknown_policy_is_a_refusal_of_its_place() {
    let bench = bench().await;
    let mut frame = frame(&head(1), keys(true).take(2));
    frame.policies[1] = 77;
    let answers = ask(&bench, vec![frame]).await;
    let outcomes: Vec<_> = answers.iter().flat_map(|answer| unpack_answer(answer).unwrap()).collect();
    let refused = outcomes.iter().find(|outcome| outcome.place == 1).unwrap();
    assert!(matches!(&refused.outcome, Outcome::Error(error) if error.code() == ErrorCode::UnknownPolicy));
    assert_eq!(outcomes.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn who_leads_is_told() {
    let bench = bench().await;
    bench.leadership.send_replace(led_by(NodeId(2)));
    while bench.ingress.take_in(&frame(&head(1), keys(true).take(1)), &mpsc::unbounded_channel().0).is_ok() {
        tokio::task::yield_now().await;
    }
    let answers = ask(&bench, vec![frame(&head(1), keys(true).take(1))]).await;
    assert_eq!((code(&answers[0]), answers[0].error.as_ref().unwrap().leader), (ErrorCode::NotLeader, 2));
}

#[tokio::test(start_paused = true)]
async fn a_node_in_no_cluster_takes_nothing() {
    let ingress = Arc::new(Ingress::new(Arc::new(HandClock::default())));
    let frames = stream::iter([frame(&head(3), keys(true).take(1))]);
    let answers: Vec<_> = Frames::new(ingress, frames).collect().await;
    assert_eq!((answers[0].tag, code(&answers[0])), (3, ErrorCode::Unavailable));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_read_is_not_read_from() {
    let bench = bench().await;
    bench.paused.send_replace(true);
    let (sender, input) = mpsc::unbounded_channel();
    let key = keys(true).next().unwrap();
    let most = caps::FRAMES_IN_FLIGHT;
    for tag in 0..most as u64 + 10 {
        sender.send(frame(&head(tag), [key.clone()])).unwrap();
    }
    drop(sender);
    let read = std::cell::Cell::new(0);
    let input = UnboundedReceiverStream::new(input).inspect(|_| read.set(read.get() + 1));
    let mut frames = Frames::new(Arc::clone(&bench.ingress), input);
    // A task may do only so much at once, so that it is polled again until nothing more is read.
    for _ in 0..most {
        assert!(futures::poll!(frames.next()).is_pending());
        tokio::task::yield_now().await;
    }
    assert_eq!(read.get(), most);
    bench.paused.send_replace(false);
    let answers: Vec<_> = frames.collect().await;
    assert_eq!(answers.len(), most + 10);
    assert!(answers.iter().all(|answer| code(answer) == ErrorCode::Unspecified));
    let allowed = answers.iter().filter(|answer| answer.verdicts == [1]).count();
    assert_eq!(allowed, 3);
}
