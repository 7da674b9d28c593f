//! A service and its limits while the cluster is taken away from it, again and again, and given back.
//!
//! ```text
//!   well ─► killed ─► back ─► paused ─► back ─► majority paused ─► back ─► cut off ─► back ─► slow ─► back
//! ```
//!
//! Each stretch lasts until there is enough to judge it by: away, until every key of every policy was answered often enough
//! without the cluster; back, until the cluster has answered every key again and no breaker is open. What was seen is judged by
//! the test, and timed by the measurement, of this name.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use quorate_client::admin::{Admin, Apply, NewCluster};
use quorate_client::{Client, ErrorKind, Policy};
use tokio::time::Instant;

use crate::health::has_recovered;
use crate::recorder::Counted;
use crate::service::{Answer, Load, Pace};
use crate::{Cluster, until};

/// A policy for each thing that can be wanted while the cluster is away, by that name.
pub const POLICIES: [&str; 3] = ["fail_closed", "fail_open", "local"];
/// Their limits. While the cluster is away, this process has a tenth of the third, rounded down: two of twenty-five.
pub const POLICY_FILE: &str = r#"
[[policy]]
name = "fail_closed"
algorithm = "token_bucket"
capacity = 20
refill = "5/s"
on_unavailable = "fail_closed"
[[policy]]
name = "fail_open"
algorithm = "token_bucket"
capacity = 20
refill = "5/s"
on_unavailable = "fail_open"
[[policy]]
name = "local"
algorithm = "token_bucket"
capacity = 25
refill = "5/s"
on_unavailable = "local"
share = 0.1
"#;

const OPEN_BREAKERS: &str = "quorate_client_breakers_open";
/// How often it is looked for what is timed.
const GLANCE: Duration = Duration::from_millis(1);

/// How a cluster is taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Away {
    /// Every node dies at once, and starts again on its disk.
    Killed,
    /// Every node hangs: its connections stay open.
    Paused,
    /// All nodes but one hang.
    MajorityPaused,
    /// No node hears another, nor is heard by clients, though all run and every connection stays open.
    CutOff,
    /// Every node hangs for three deadlines of the client's, works for half of one, and hangs again.
    Slow,
}

impl Away {
    /// All of them, in the order they are tried.
    pub const ALL: [Away; 5] = [Away::Killed, Away::Paused, Away::MajorityPaused, Away::CutOff, Away::Slow];

    /// In a few words.
    pub fn name(self) -> &'static str {
        match self {
            Away::Killed => "killed",
            Away::Paused => "paused",
            Away::MajorityPaused => "majority paused",
            Away::CutOff => "cut off",
            Away::Slow => "slow",
        }
    }

    fn begin(self, cluster: &mut Cluster) {
        match self {
            Away::Killed => (0..cluster.len()).for_each(|node| cluster.kill(node)),
            Away::Paused | Away::Slow => (0..cluster.len()).for_each(|node| cluster.pause(node)),
            Away::MajorityPaused => (1..cluster.len()).for_each(|node| cluster.pause(node)),
            Away::CutOff => (0..cluster.len()).for_each(|node| cluster.cut(node, true)),
        }
    }

    fn end(self, cluster: &mut Cluster) {
        match self {
            Away::Killed => (0..cluster.len()).for_each(|node| cluster.restart(node)),
            Away::CutOff => (0..cluster.len()).for_each(|node| cluster.cut(node, false)),
            Away::Paused | Away::MajorityPaused | Away::Slow => {
                (0..cluster.len()).for_each(|node| cluster.resume(node));
            }
        }
    }
}

/// How much of it.
#[derive(Clone, Copy, Debug)]
pub struct Form {
    /// What is asked.
    pub pace: Pace,
    /// How long a check waits for the cluster.
    pub deadline: Duration,
    /// How often, at least, every key of every policy is answered by the cluster while all is well, and without it while it
    /// is away.
    pub times: usize,
}

/// A stretch of a run.
#[derive(Clone, Debug)]
pub struct Phase {
    /// How the cluster is away; none while it is not.
    pub away: Option<Away>,
    /// When it began: before the nodes were killed or paused, or when they had been started or resumed.
    pub began: Instant,
    /// When every breaker was open that the requests meet; none where that did not happen in this phase.
    pub all_open: Option<Instant>,
    /// When the cluster said itself that every replica follows a leader, after it was away.
    pub recovered: Option<Instant>,
}

/// What a run has left behind.
pub struct Run {
    /// As it is now, all nodes running.
    pub cluster: Cluster,
    /// For whoever looks at it.
    pub admin: Admin,
    /// The policies that were asked.
    pub policies: Vec<Policy>,
    /// [`Answer::phase`] is a place in here: what was under way when the cluster was taken away counts as asked while it was away.
    pub phases: Vec<Phase>,
    /// Every request.
    pub answers: Vec<Answer>,
    /// How many of them the service got to see.
    pub served: u64,
    /// From before the first request until after the last answer.
    pub took: Duration,
}

impl Run {
    /// The whole of it, on a cluster of its own.
    ///
    /// # Panics
    ///
    /// When the cluster cannot be made, or what has to come does not come.
    pub async fn of(form: Form) -> Run {
        let counted = Counted::here();
        let mut cluster = Cluster::start_linked(3).await;
        let admin = Admin::new(cluster.endpoints()).expect("endpoints are addresses").deadline(Duration::from_secs(30));
        let new = NewCluster { nodes: cluster.endpoints(), ..NewCluster::default() };
        until("the cluster is made", || async { admin.cluster_init(new.clone()).await.ok() }).await;
        let policies = quorate_core::policy_file::parse(POLICY_FILE, "policies.toml").expect("the policies are right");
        let apply = Apply { policies: policies.clone(), ..Apply::default() };
        admin.policy_apply(apply).await.expect("policies are applied");
        let client = Client::builder().endpoints(cluster.endpoints()).deadline(form.deadline);
        let client = client.connect().await.expect("the cluster can be reached");
        until("the client knows the policies", || async {
            (client.policies().policies.len() == POLICIES.len()).then_some(())
        })
        .await;

        let begun = Instant::now();
        let load = Load::begin(&client, &POLICIES, form.pace).expect("a header's name is one");
        let mut run = Stretches { form, load: &load, counted, phases: Vec::new(), shards: 0 };
        run.well().await;
        for away in Away::ALL {
            run.away(away, &mut cluster).await;
            run.back(away, &mut cluster, &admin).await;
        }
        let phases = run.phases;
        let (mut answers, served) = load.end().await;
        let took = begun.elapsed();
        for answer in &mut answers {
            let next = phases.get(answer.phase + 1).filter(|next| next.away.is_some());
            answer.phase += usize::from(next.is_some_and(|next| answer.at() >= next.began));
        }
        // A breaker that a busy machine has opened once more closes without any request.
        until("no breaker is open", || async { (counted.level(OPEN_BREAKERS) == 0.0).then_some(()) }).await;
        client.close().await;
        Run { cluster, admin, policies, phases, answers, served, took }
    }

    /// The answers to what was asked in a phase.
    pub fn of_phase(&self, phase: usize) -> impl Iterator<Item = &Answer> {
        self.answers.iter().filter(move |answer| answer.phase == phase)
    }
}

/// A run under way.
struct Stretches<'a> {
    form: Form,
    load: &'a Load,
    counted: &'static Counted,
    phases: Vec<Phase>,
    /// How many shards hold the keys that are asked: there is a breaker for each.
    shards: usize,
}

impl Stretches<'_> {
    fn enter(&mut self, away: Option<Away>) {
        self.load.phase(self.phases.len());
        self.phases.push(Phase { away, began: Instant::now(), all_open: None, recovered: None });
    }

    fn last(&mut self) -> &mut Phase {
        self.phases.last_mut().expect("a phase was entered")
    }

    async fn well(&mut self) {
        self.enter(None);
        until("the cluster answers every key", || async {
            self.every_key(self.form.times, Answer::is_of_cluster).then_some(())
        })
        .await;
        self.shards = self.load.look(|answers| {
            let shards = answers.iter().filter(|answer| answer.is_of_cluster()).filter_map(Answer::decided);
            shards.map(|decided| decided.receipt.shard).collect::<BTreeSet<_>>().len()
        });
    }

    async fn away(&mut self, away: Away, cluster: &mut Cluster) {
        self.enter(Some(away));
        away.begin(cluster);
        let this = &*self;
        let enough = || this.every_key(this.form.times, Answer::is_without_cluster);
        let lasts = async {
            until("every key is answered without the cluster", || async {
                if away == Away::Slow {
                    slowly(cluster, this.form.deadline).await;
                }
                enough().then_some(())
            })
            .await;
        };
        let mut all_open = None;
        tokio::select! {
            () = lasts => {}
            () = async {
                all_open = Some(this.all_open().await);
                std::future::pending().await
            } => {}
        }
        self.last().all_open = all_open;
    }

    async fn back(&mut self, away: Away, cluster: &mut Cluster, admin: &Admin) {
        away.end(cluster);
        self.enter(None);
        let recovered = async {
            has_recovered(admin).await;
            Instant::now()
        };
        let answered = until("the cluster answers every key again, and no breaker is open", || async {
            let answered = self.every_key(1, Answer::is_of_cluster);
            (answered && self.counted.level(OPEN_BREAKERS) == 0.0).then_some(())
        });
        let (recovered, ()) = tokio::join!(recovered, answered);
        self.last().recovered = Some(recovered);
    }

    /// Whether every key of every policy has so many answers of that sort in this phase.
    fn every_key(&self, times: usize, sort: impl Fn(&Answer) -> bool) -> bool {
        let phase = self.phases.len() - 1;
        self.load.look(|answers| {
            let mut counts = BTreeMap::<(usize, usize), usize>::new();
            for answer in answers.iter().filter(|answer| answer.phase == phase && sort(answer)) {
                *counts.entry((answer.policy, answer.key)).or_default() += 1;
            }
            counts.len() == POLICIES.len() * self.form.pace.keys && counts.values().all(|count| *count >= times)
        })
    }

    /// Waits until every breaker is open that the requests meet.
    async fn all_open(&self) -> Instant {
        while self.counted.level(OPEN_BREAKERS) < self.shards as f64 {
            tokio::time::sleep(GLANCE).await;
        }
        Instant::now()
    }
}

/// The nodes hang for longer than anybody waits, and work for a moment; they hang when it returns.
async fn slowly(cluster: &Cluster, deadline: Duration) {
    tokio::time::sleep(3 * deadline).await;
    (0..cluster.len()).for_each(|node| cluster.resume(node));
    tokio::time::sleep(deadline / 2).await;
    (0..cluster.len()).for_each(|node| cluster.pause(node));
}

/// Who decided, why not the cluster, and what came of it, for each limit that was asked: what the client should have counted.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// `quorate_client_decisions_total`.
    pub decisions: BTreeMap<String, u64>,
    /// `quorate_client_errors_total`.
    pub errors: BTreeMap<String, u64>,
    /// `quorate_client_degraded_total`.
    pub degraded: BTreeMap<String, u64>,
    /// How often `quorate_client_check_seconds` was recorded.
    pub checks: BTreeMap<String, u64>,
}

impl Counts {
    /// What the client has counted.
    pub fn counted() -> Counts {
        let of = |name: &str| Counted::here().of(&format!("quorate_client_{name}"));
        Counts {
            decisions: of("decisions_total"),
            errors: of("errors_total"),
            degraded: of("degraded_total"),
            checks: of("check_seconds"),
        }
    }

    /// What these answers should have been counted as.
    pub fn of(answers: &[Answer]) -> Counts {
        let mut counts = Counts::default();
        for answer in answers {
            counts.add(answer);
        }
        counts
    }

    fn add(&mut self, answer: &Answer) {
        let policy = POLICIES[answer.policy];
        let one_more = |counts: &mut BTreeMap<String, u64>, labels: String| *counts.entry(labels).or_default() += 1;
        match &answer.said {
            crate::service::Said::Decided(decided) => {
                let (by, outcome) = (decided.decided_by, if decided.allowed { "allowed" } else { "denied" });
                one_more(&mut self.decisions, format!("by={by} outcome={outcome} policy={policy}"));
                one_more(&mut self.checks, format!("by={by}"));
                if decided.degraded {
                    let reason = decided.cause().map_or("none", |cause| cause.kind().as_str());
                    one_more(&mut self.degraded, format!("by={by} policy={policy} reason={reason}"));
                }
            }
            crate::service::Said::Nothing(kind) => self.add_error(policy, *kind),
            crate::service::Said::Unmarked => {}
        }
    }

    fn add_error(&mut self, policy: &str, kind: ErrorKind) {
        *self.errors.entry(format!("kind={kind} policy={policy}")).or_default() += 1;
        *self.checks.entry("by=none".to_owned()).or_default() += 1;
    }
}
