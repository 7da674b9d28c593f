//! The cluster as the commands see it, over the client crate: calls that give a view's data, or a [`Failure`] with its code.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use quorate_client::admin::{Admin, Applied, Apply, ClusterStatus, MadeCluster, NewCluster, PolicyReports};
use quorate_client::{Client, Decision, Error, ErrorKind, Fallback, LimitDecision, Question, Receipt, limit};
use quorate_core::{PolicySet, PolicyVersion, Span};
use tokio::net::TcpStream;

use crate::args::Global;
use crate::bench::load::Ask;
use crate::bench::tally;
use crate::commands::check::Also;
use crate::exit::{Code, Failure};
use crate::views::check::{CheckView, LimitView, ReceiptView};
use crate::views::policy::{ChangeView, ChangesView};

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let code = match error.kind() {
            ErrorKind::UnknownPolicy | ErrorKind::NotFound => Code::NotFound,
            ErrorKind::Conflict => Code::Conflict,
            ErrorKind::Forbidden => Code::NotPermitted,
            ErrorKind::Unavailable | ErrorKind::Deadline => Code::Unreachable,
            ErrorKind::NoLeader => Code::NoLeader,
            _ => Code::Failed,
        };
        Failure::new(code, error)
    }
}

/// How long one node may take to accept a connection, when it is only asked whether it is there.
const KNOCK: Duration = Duration::from_secs(2);

/// The client waits for nodes that are not there yet, as a service should. A person wants to know at once.
async fn somebody_listens(nodes: &[String]) -> Result<(), Failure> {
    let mut refused = Vec::new();
    for node in nodes {
        match tokio::time::timeout(KNOCK, TcpStream::connect(node)).await {
            Ok(Ok(_)) => return Ok(()),
            Ok(Err(error)) => refused.push(format!("{node}: {error}")),
            Err(_) => return Ok(()),
        }
    }
    let message =
        format!("no node can be reached ({}); check the endpoints, and that the nodes run", refused.join("; "));
    Err(Failure::new(Code::Unreachable, message))
}

async fn client(global: &Global) -> Result<Client, Failure> {
    somebody_listens(&global.nodes()).await?;
    // Each call says that it waits for all of the time: longer than the client would, so through an open breaker too. And a
    // benchmark measures the cluster, not what this process remembers of it.
    let builder = Client::builder().endpoints(global.nodes()).connect_timeout(global.timeout);
    Ok(builder.remember_denials(Duration::ZERO).connect().await?)
}

fn admin(global: &Global, nodes: Vec<String>) -> Result<Admin, Failure> {
    Ok(Admin::new(nodes)?.deadline(global.timeout))
}

/// Asks the limits together.
pub(crate) async fn check(
    global: &Global,
    limits: &[Also],
    max_delay: Option<Span>,
    peek: bool,
) -> Result<CheckView, Failure> {
    let client = client(global).await?;
    let mut question: Question<'_> =
        limits.iter().map(|one| limit(&one.policy, one.key.as_str()).cost(one.cost)).collect();
    if peek {
        question = question.peek();
    }
    if let Some(span) = max_delay {
        question = question.max_delay(Duration::from_micros(span.0.unsigned_abs()));
    }
    // What the cluster says is asked for, and nothing in its place.
    let asked = client.check_many([question]).deadline(global.timeout).on_unavailable(Fallback::FailClosed);
    let decided = asked.await.pop();
    client.close().await;
    let decision = decided.ok_or_else(|| Failure::failed("the check was not answered"))??;
    Ok(view(decision, peek))
}

/// Makes a key as good as new.
pub(crate) async fn reset(global: &Global, policy: &str, key: &str) -> Result<(), Failure> {
    let client = client(global).await?;
    let done = client.reset(policy, key).deadline(global.timeout).await;
    client.close().await;
    Ok(done?)
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

fn view(decision: Decision, peek: bool) -> CheckView {
    let receipt = receipt_view(&decision.receipt);
    let receipts: Vec<_> = decision.receipts().map(receipt_view).collect();
    CheckView {
        allowed: decision.allowed,
        shadow_denied: decision.shadow_denied,
        degraded: decision.degraded,
        peek,
        retry_after_us: decision.retry_after.map(micros),
        delay_us: decision.delay.map(micros),
        limits: decision.limits.into_iter().map(limit_view).collect(),
        policy_version: Some(decision.policy_version.0),
        receipt: Some(receipt),
        receipts: if receipts.len() > 1 { receipts } else { Vec::new() },
    }
}

fn receipt_view(receipt: &Receipt) -> ReceiptView {
    ReceiptView {
        shard: receipt.shard.0,
        term: receipt.term.0,
        index: receipt.index.0,
        place: receipt.place,
        stamp_us: receipt.stamp.0,
    }
}

fn limit_view(limit: LimitDecision) -> LimitView {
    LimitView {
        policy: limit.policy.to_string(),
        key: limit.key,
        allowed: limit.allowed,
        charged: limit.charged,
        shadow: limit.shadow,
        cost: limit.cost,
        limit: limit.limit,
        remaining: limit.remaining,
        reset_after_us: micros(limit.reset_after),
        retry_after_us: limit.retry_after.map(micros),
        delay_us: limit.delay.map(micros),
    }
}

/// Makes one cluster of nodes. Asked of the nodes themselves, unless endpoints were given.
pub(crate) async fn cluster_init(global: &Global, new: NewCluster) -> Result<MadeCluster, Failure> {
    let ask = if global.endpoints.is_some() { global.nodes() } else { new.nodes.clone() };
    Ok(admin(global, ask)?.cluster_init(new).await?)
}

/// What every node says of itself and its shards.
pub(crate) async fn cluster_status(global: &Global) -> Result<ClusterStatus, Failure> {
    Ok(admin(global, global.nodes())?.status().await?)
}

/// The policies in force.
pub(crate) async fn policies(global: &Global) -> Result<PolicySet, Failure> {
    Ok(admin(global, global.nodes())?.policy_list().await?)
}

/// The policies in force, and what was reported of them.
pub(crate) async fn policy_reports(global: &Global) -> Result<PolicyReports, Failure> {
    Ok(admin(global, global.nodes())?.policy_reports().await?)
}

/// Puts policies in force.
pub(crate) async fn policy_apply(global: &Global, apply: Apply) -> Result<ChangesView, Failure> {
    let dry_run = apply.dry_run;
    Ok(changes(admin(global, global.nodes())?.policy_apply(apply).await?, dry_run))
}

/// Takes policies away.
pub(crate) async fn policy_remove(
    global: &Global,
    names: &[String],
    expected: Option<PolicyVersion>,
) -> Result<ChangesView, Failure> {
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    Ok(changes(admin(global, global.nodes())?.policy_remove(&names, expected).await?, false))
}

fn changes(applied: Applied, dry_run: bool) -> ChangesView {
    let change = |(name, change): (String, quorate_client::admin::Change)| ChangeView { name, change: change.as_str() };
    ChangesView {
        version: applied.version.0,
        dry_run,
        changes: applied.changes.into_iter().map(change).collect(),
        warnings: applied.warnings,
    }
}

/// Asks one policy for a benchmark.
#[derive(Clone)]
pub(crate) struct Asker {
    client: Client,
    policy: Arc<str>,
    cost: u64,
    timeout: Duration,
    last: Arc<Mutex<Option<Failure>>>,
}

impl Asker {
    /// Connects; makes sure that the policy is there before any load is made.
    pub(crate) async fn connect(global: &Global, policy: &str, cost: u64) -> Result<Asker, Failure> {
        let client = client(global).await?;
        let timeout = global.timeout;
        client.peek(policy, "bench").cost(cost).deadline(timeout).on_unavailable(Fallback::FailClosed).await?;
        Ok(Asker { client, policy: policy.into(), cost, timeout, last: Arc::default() })
    }

    /// The failure of a check that failed last, if one did.
    pub(crate) fn last_failure(&self) -> Option<Failure> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn result(&self, decided: Result<Decision, Error>) -> tally::Result {
        match decided {
            Ok(decision) if decision.allowed => tally::Result::Granted,
            Ok(_) => tally::Result::Denied,
            Err(error) => {
                let kind = error.kind().as_str();
                *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.into());
                tally::Result::Failed(kind)
            }
        }
    }
}

impl Ask for Asker {
    async fn ask(&self, keys: Vec<String>) -> Vec<tally::Result> {
        let mut keys = keys.into_iter();
        match (keys.next(), keys.len()) {
            (None, _) => Vec::new(),
            (Some(key), 0) => {
                let check = self.client.check(&self.policy, key).cost(self.cost).deadline(self.timeout);
                vec![self.result(check.on_unavailable(Fallback::FailClosed).await)]
            }
            (Some(first), _) => {
                let limits = std::iter::once(first).chain(keys).map(|key| limit(&self.policy, key).cost(self.cost));
                let checks = self.client.check_many(limits.collect::<Vec<_>>()).deadline(self.timeout);
                let decided = checks.on_unavailable(Fallback::FailClosed).await;
                decided.into_iter().map(|decided| self.result(decided)).collect()
            }
        }
    }
}
