//! From running processes to a cluster that works: made if it is new, and with the starter policies if it has none. Only
//! calls that every operator can make. Whatever is done already is left as it is, so an interrupted start is finished by
//! the next.

use std::time::Duration;

use quorate_core::policy_file;
use quorate_proto::convert::policy_to_wire;
use quorate_proto::v1;
use quorate_proto::v1::admin_client::AdminClient;
use tokio::time::Instant;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};

/// The policies of a new cluster.
const STARTER: &str = include_str!("../../../../deploy/starter-policies.toml");
/// How long the whole may take: nodes that go on where they were may have a log to read first.
const TIME: Duration = Duration::from_secs(60);
/// How long one call may take.
const CALL: Duration = Duration::from_secs(20);
/// How long to wait before a call that met a node, or a group without a leader, too early is made again.
const AGAIN: Duration = Duration::from_millis(100);

/// What was found or made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Started {
    /// The cluster was there before.
    pub(super) goes_on: bool,
    /// The names of the policies in force, sorted.
    pub(super) policies: Vec<String>,
}

/// Brings the cluster up. Says in one line what is wrong if it cannot.
pub(super) async fn run(addresses: &[String]) -> Result<Started, String> {
    let bring_up = async {
        let mut clients = Vec::new();
        for address in addresses {
            clients.push(connect(address).await?);
        }
        let mut admin = clients.swap_remove(0);
        let goes_on = init(&mut admin, addresses).await?;
        let policies = policies(&mut admin).await?;
        Ok(Started { goes_on, policies })
    };
    match tokio::time::timeout(TIME, bring_up).await {
        Ok(done) => done,
        Err(_) => Err(format!("the cluster does not work after {TIME:?}; the nodes' logs say more (n1/quorated.log)")),
    }
}

/// Waits until a node listens.
async fn connect(address: &str) -> Result<AdminClient<Channel>, String> {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).map_err(|error| format!("{address}: {error}"))?;
    loop {
        match endpoint.connect().await {
            Ok(channel) => return Ok(AdminClient::new(channel)),
            Err(_) => tokio::time::sleep(AGAIN).await,
        }
    }
}

/// Makes one cluster of the nodes, or finishes making it. Whether it was there before.
async fn init(admin: &mut AdminClient<Channel>, addresses: &[String]) -> Result<bool, String> {
    let known = patiently(async || admin.clone().cluster_status(timed(v1::ClusterStatusRequest {})).await);
    let known = known.await.map_err(|problem| format!("the cluster's status: {problem}"))?;
    let goes_on = !known.into_inner().cluster_id.is_empty();
    let request = v1::ClusterInitRequest { nodes: addresses.to_vec(), ..Default::default() };
    let made = patiently(async || admin.clone().cluster_init(timed(request.clone())).await);
    made.await.map_err(|problem| format!("the cluster cannot be made: {problem}"))?;
    Ok(goes_on)
}

/// Applies the starter policies to a cluster that never had any. The names of those in force.
async fn policies(admin: &mut AdminClient<Channel>) -> Result<Vec<String>, String> {
    let listed = patiently(async || admin.clone().policy_list(timed(v1::PolicyListRequest::default())).await);
    let listed = listed.await.map_err(|problem| format!("the policies cannot be listed: {problem}"))?;
    let set = listed.into_inner().policies.unwrap_or_default();
    let mut names: Vec<String> = set.policies.into_iter().map(|policy| policy.name).collect();
    if set.version == 0 {
        let starter = policy_file::parse(STARTER, "starter-policies.toml").expect("a test reads the starter policies");
        names = starter.iter().map(|policy| policy.name.clone()).collect();
        let policies = starter.iter().map(policy_to_wire).collect();
        let request = v1::PolicyApplyRequest { policies, ..Default::default() };
        let applied = patiently(async || admin.clone().policy_apply(timed(request.clone())).await);
        applied.await.map_err(|problem| format!("the starter policies cannot be applied: {problem}"))?;
    }
    names.sort();
    Ok(names)
}

fn timed<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(CALL);
    request
}

/// Makes a call until it is no longer too early for it. The bound is [`TIME`].
async fn patiently<T>(call: impl AsyncFn() -> Result<T, Status>) -> Result<T, String> {
    let began = Instant::now();
    loop {
        match call().await {
            Ok(answer) => return Ok(answer),
            Err(status) if is_early(status.code()) && began.elapsed() < TIME / 2 => tokio::time::sleep(AGAIN).await,
            Err(status) => return Err(status.message().lines().next().unwrap_or("no reason given").to_string()),
        }
    }
}

fn is_early(code: Code) -> bool {
    matches!(code, Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_starter_policies_show_every_algorithm() {
        let policies = policy_file::parse(STARTER, "starter-policies.toml").unwrap();
        let mut algorithms: Vec<&str> = policies.iter().map(|policy| policy.algorithm.name()).collect();
        algorithms.sort_unstable();
        assert_eq!(algorithms, ["fixed_window", "leaky_bucket", "sliding_counter", "sliding_log", "token_bucket"]);
        assert!(policies.iter().any(|policy| policy.name == "per-user"));
    }
}
