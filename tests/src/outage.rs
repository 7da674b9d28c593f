//! A service behind `RateLimitLayer`, asked at an even pace while its cluster is killed, paused, and back again.
//!
//! Three services, one for each failure policy; each request is for one of [`KEYS`] keys. What became of each is kept with the
//! phase that it began in, so that a test can judge the numbers and a measurement the times.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::{Request, Response, StatusCode};
use quorate_client::admin::{Admin, Apply, NewCluster};
use quorate_client::identity::Header;
use quorate_client::layer::{Decided, RateLimitLayer};
use quorate_client::{Client, DecidedBy};
use tokio::time::{Instant, MissedTickBehavior, interval};
use tower::{Layer as _, ServiceExt as _, service_fn};

use crate::{Cluster, until};

/// How many keys each policy has.
pub const KEYS: usize = 4;
/// What each key is granted in a year, by the cluster.
pub const LIMIT: u64 = 400;
/// What this process may grant of that by itself.
pub const SHARE: u64 = LIMIT / 10;
/// The policies, each named as its failure policy.
pub const POLICIES: [&str; 3] = ["fail_closed", "fail_open", "local"];

/// What happened to the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// It works.
    Up,
    /// All nodes were killed.
    Killed,
    /// They were started again.
    BackFromDeath,
    /// All nodes hang.
    Paused,
    /// They go on.
    BackFromPause,
    /// Two of three nodes were killed: no majority.
    Halved,
    /// The two were started again.
    Healed,
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fate {
    /// Passed, by whom.
    Passed(By),
    /// 429, by whom.
    Denied(By),
    /// 503.
    Unavailable,
    /// Anything else: there is no such answer here.
    Odd(u16),
}

/// Who decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the names say it")]
pub enum By {
    Cluster,
    Local,
    FailOpen,
    /// The decision did not say that it was degraded, or was, though the cluster decided.
    Unmarked,
}

/// A request that has ended.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// When it began.
    pub phase: Phase,
    /// The place in [`POLICIES`].
    pub policy: usize,
    /// The number of its key.
    pub key: usize,
    /// What became of it.
    pub fate: Fate,
    /// From its beginning to its answer; the service itself takes nothing.
    pub took: Duration,
    /// Since the phase began, when it was answered.
    pub at: Duration,
}

/// How it is run.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Between two requests.
    pub every: Duration,
    /// How many requests each phase has at least.
    pub requests: usize,
}

/// Makes the cluster, runs all phases, and tells of every request.
///
/// # Panics
/// Where something that has to come does not: the cluster, or an answer of it after it is back.
pub async fn run(pace: Pace) -> Vec<Ended> {
    let mut cluster = Cluster::start(3);
    let client = client_of(&cluster).await;
    let driver = Driver::new(&client);
    driver.phase(Phase::Up, pace, true).await;
    (0..3).for_each(|node| cluster.kill(node));
    driver.phase(Phase::Killed, pace, false).await;
    (0..3).for_each(|node| cluster.restart(node));
    driver.phase(Phase::BackFromDeath, pace, true).await;
    (0..3).for_each(|node| cluster.pause(node));
    driver.phase(Phase::Paused, pace, false).await;
    (0..3).for_each(|node| cluster.resume(node));
    driver.phase(Phase::BackFromPause, pace, true).await;
    (0..2).for_each(|node| cluster.kill(node));
    driver.phase(Phase::Halved, pace, false).await;
    (0..2).for_each(|node| cluster.restart(node));
    driver.phase(Phase::Healed, pace, true).await;
    driver.ended()
}

async fn client_of(cluster: &Cluster) -> Client {
    let admin = Admin::new(cluster.endpoints()).expect("endpoints are addresses").deadline(Duration::from_secs(30));
    let new = NewCluster { nodes: cluster.endpoints(), ..NewCluster::default() };
    until("the cluster is made", || async { admin.cluster_init(new.clone()).await.ok() }).await;
    let policy = |name: &&str| {
        let share = if *name == "local" { "share = 0.1\n" } else { "" };
        let head = format!("[[policy]]\nname = \"{name}\"\nalgorithm = \"fixed_window\"\nlimit = {LIMIT}\n");
        format!("{head}window = \"366d\"\non_unavailable = \"{name}\"\n{share}")
    };
    let file: String = POLICIES.iter().map(policy).collect();
    let policies = quorate_core::policy_file::parse(&file, "policies.toml").expect("the policies are right");
    admin.policy_apply(Apply { policies, ..Apply::default() }).await.expect("policies are applied");
    // Nothing is remembered, so that every request asks.
    let builder = Client::builder().endpoints(cluster.endpoints()).remember_denials(Duration::ZERO);
    builder.connect().await.expect("the cluster can be reached")
}

#[derive(Clone)]
struct Driver {
    layers: Arc<Vec<RateLimitLayer>>,
    ended: Arc<Mutex<Vec<Ended>>>,
}

impl Driver {
    fn new(client: &Client) -> Driver {
        let user = Header::new("x-user").expect("it is the name of a header");
        let layer = |policy: &&str| RateLimitLayer::new(client.clone(), *policy).key(user.clone());
        Driver { layers: Arc::new(POLICIES.iter().map(layer).collect()), ended: Arc::default() }
    }

    fn ended(&self) -> Vec<Ended> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Asks at that pace; `answers` says whether the phase lasts until each policy was decided by the cluster again.
    async fn phase(&self, phase: Phase, pace: Pace, answers: bool) {
        let began = Instant::now();
        let mut ticks = interval(pace.every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut running = tokio::task::JoinSet::new();
        for number in 0.. {
            let enough = number >= pace.requests && (!answers || self.is_answered(phase));
            if enough {
                break;
            }
            assert!(began.elapsed() < Duration::from_secs(90), "{phase:?}: the cluster does not answer again");
            ticks.tick().await;
            let driver = self.clone();
            running.spawn(async move { driver.request(phase, began, number).await });
            while running.try_join_next().is_some() {}
        }
        running.join_all().await;
    }

    fn is_answered(&self, phase: Phase) -> bool {
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        let by_cluster = |one: &&Ended| matches!(one.fate, Fate::Passed(By::Cluster) | Fate::Denied(By::Cluster));
        let mut seen = [false; POLICIES.len()];
        for one in ended.iter().filter(|one| one.phase == phase).filter(by_cluster) {
            seen[one.policy] = true;
        }
        seen == [true; POLICIES.len()]
    }

    async fn request(&self, phase: Phase, began: Instant, number: usize) {
        let (policy, key) = (number % POLICIES.len(), number / POLICIES.len() % KEYS);
        let by = Arc::new(Mutex::new(None));
        let seen = Arc::clone(&by);
        let service = self.layers[policy].layer(service_fn(move |request: Request<()>| {
            *seen.lock().unwrap_or_else(PoisonError::into_inner) = request.extensions().get::<Decided>().map(by_whom);
            async { Ok::<_, Infallible>(Response::new(())) }
        }));
        let request = Request::get("/").header("x-user", format!("user-{key}")).body(()).expect("the request is right");
        let start = Instant::now();
        let response = service.oneshot(request).await.unwrap_or_else(|never| match never {});
        let took = start.elapsed();
        let by = by.lock().unwrap_or_else(PoisonError::into_inner).take();
        let fate = match (response.status(), by) {
            (StatusCode::OK, Some(by)) => Fate::Passed(by),
            (StatusCode::TOO_MANY_REQUESTS, None) => {
                Fate::Denied(response.extensions().get::<Decided>().map_or(By::Unmarked, by_whom))
            }
            (StatusCode::SERVICE_UNAVAILABLE, None) => Fate::Unavailable,
            (other, _) => Fate::Odd(other.as_u16()),
        };
        let one = Ended { phase, policy, key, fate, took, at: began.elapsed() };
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).push(one);
    }
}

fn by_whom(decided: &Decided) -> By {
    match (decided.decided_by, decided.degraded) {
        (DecidedBy::Cluster, false) => By::Cluster,
        (DecidedBy::Local, true) => By::Local,
        (DecidedBy::FailOpen, true) => By::FailOpen,
        _ => By::Unmarked,
    }
}

/// How many passed by that hand, by policy's name and key.
pub fn passed(ended: &[Ended], by: By) -> BTreeMap<(&'static str, usize), u64> {
    let mut counts = BTreeMap::new();
    for one in ended.iter().filter(|one| one.fate == Fate::Passed(by)) {
        *counts.entry((POLICIES[one.policy], one.key)).or_default() += 1;
    }
    counts
}
