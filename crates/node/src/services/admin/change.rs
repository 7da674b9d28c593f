//! Changing the policies: from the request to every shard that enforces the new set.
//!
//! ```text
//! request ─► checked whole ─► proposed by the control group's leader ─► each shard's leader brings it into its log ─► done
//!                               here, or asked over the peer stream        asked again and again, for a bounded time
//! ```

use std::collections::BTreeMap;
use std::time::Duration;

use prost::Message;
use quorate_core::{NodeId, PolicyVersion, ShardId, Stamp};
use quorate_proto::convert::policy_from_wire;
use quorate_proto::v1::control_refusal::Kind as RefusalKind;
use quorate_proto::v1::control_reply::Reply;
use quorate_proto::v1::{self, peer_request::Kind};
use tokio::time::{Instant, sleep};
use tonic::Status;

use super::Cluster;
use super::status::gather;
use crate::caps;
use crate::control::{ControlCommand, ControlState, PutPolicies};
use crate::services::peer_calls::{change_to_wire, refusal_to_wire, reply_to_wire};
use crate::transport::CallError;

fn expected(version: u64) -> Option<PolicyVersion> {
    (version > 0).then_some(PolicyVersion(version))
}

/// Reads the request; all that is wrong with its policies comes back together.
pub(super) fn apply_from_wire(request: v1::PolicyApplyRequest, at: Stamp) -> Result<PutPolicies, Status> {
    let most = quorate_core::caps::POLICIES;
    if request.policies.len() > most {
        let is = request.policies.len();
        return Err(Status::invalid_argument(format!("{is} policies; a cluster has at most {most}")));
    }
    if request.policies.is_empty() && !request.prune {
        return Err(Status::invalid_argument("no policy is given; give at least one, or prune to take all away"));
    }
    let (mut policies, mut problems) = (Vec::new(), Vec::new());
    for (at, wire) in request.policies.iter().enumerate() {
        let shown: String = wire.name.chars().take(quorate_core::caps::POLICY_NAME_BYTES).collect();
        let read = policy_from_wire(wire).map_err(|problem| problem.to_string());
        match read.and_then(|policy| policy.validate().map(|()| policy).map_err(|problem| problem.to_string())) {
            Ok(policy) => policies.push(policy),
            Err(problem) => problems.push(format!("policies[{at}] {shown:?}: {problem}")),
        }
    }
    if problems.is_empty() {
        let expected_version = expected(request.expected_version);
        return Ok(PutPolicies { policies, prune: request.prune, remove: Vec::new(), expected_version, at });
    }
    let more = problems.len().saturating_sub(caps::PROBLEMS_TOLD);
    problems.truncate(caps::PROBLEMS_TOLD);
    if more > 0 {
        problems.push(format!("and {more} more are wrong"));
    }
    Err(Status::invalid_argument(format!("{}; nothing was applied", problems.join("; "))))
}

pub(super) fn remove_from_wire(request: v1::PolicyRemoveRequest, at: Stamp) -> Result<PutPolicies, Status> {
    let most = quorate_core::caps::POLICIES;
    if !(1..=most).contains(&request.names.len()) {
        let is = request.names.len();
        return Err(Status::invalid_argument(format!("{is} names; give 1 to {most}")));
    }
    let expected_version = expected(request.expected_version);
    Ok(PutPolicies { remove: request.names, expected_version, at, ..PutPolicies::default() })
}

/// What the change would do.
pub(super) fn preview(state: &ControlState, put: &PutPolicies) -> Result<v1::PolicyApplyResponse, Status> {
    let changes = state.preview(put).map_err(|refusal| {
        let (kind, message) = refusal_to_wire(&refusal);
        refused(kind, message)
    })?;
    Ok(change_to_wire(state.policies.version, &changes))
}

fn refused(kind: RefusalKind, message: String) -> Status {
    match kind {
        RefusalKind::Invalid => Status::invalid_argument(message),
        RefusalKind::NotFound => Status::not_found(message),
        RefusalKind::Conflict => Status::aborted(message),
    }
}

/// Makes the change, within that time; returns once every shard enforces it.
pub(super) async fn put_policies(
    cluster: &impl Cluster,
    put: PutPolicies,
    patience: Duration,
) -> Result<v1::PolicyApplyResponse, Status> {
    let deadline = Instant::now() + patience;
    // Done twice it is the same as done once, so that it may be asked again where nobody knows whether it was done.
    let safe_twice = put.expected_version.is_none() && put.remove.is_empty();
    let command = ControlCommand::PutPolicies(put);
    let done = loop {
        let problem = match propose(cluster, &command).await {
            Ok(Reply::Policies(done)) => break done,
            Ok(Reply::Refused(refusal)) => return Err(refused(refusal.kind(), refusal.message)),
            Ok(Reply::Done(_)) => return Err(Status::internal("the control group gave the answer to another command")),
            Ok(Reply::NotLeader(_)) => "its leader has just changed".to_owned(),
            Ok(Reply::Unknown(_)) if safe_twice => "its leader was lost".to_owned(),
            Ok(Reply::Unknown(_)) => return Err(unknown("the control group's leader was lost")),
            Err(Unasked::Unsent(problem)) => problem,
            Err(Unasked::Lost(problem)) if safe_twice => problem,
            Err(Unasked::Lost(problem)) => return Err(unknown(&problem)),
        };
        if Instant::now() + caps::ADMIN_RETRY >= deadline {
            let text =
                format!("the control group cannot be asked ({problem}); try again, or look at the cluster's status");
            return Err(Status::unavailable(text));
        }
        sleep(caps::ADMIN_RETRY).await;
    };
    until_enforced(cluster, PolicyVersion(done.version), deadline).await?;
    Ok(done)
}

fn unknown(problem: &str) -> Status {
    Status::unknown(format!("whether it was done is not known ({problem}); list the policies to see, then ask again"))
}

/// Why the control group's leader could not be asked.
#[derive(Debug)]
pub(crate) enum Unasked {
    /// It was not proposed.
    Unsent(String),
    /// Whether it was is not known.
    Lost(String),
}

/// Has the control group's leader propose a command, wherever that is.
pub(crate) async fn propose(cluster: &impl Cluster, command: &ControlCommand) -> Result<Reply, Unasked> {
    let leadership = *cluster.leadership().borrow();
    let reply = if leadership.is_self {
        reply_to_wire(cluster.propose(command.clone()).await)
    } else {
        let Some(leader) = leadership.leader.filter(|leader| Some(*leader) != cluster.me()) else {
            return Err(Unasked::Unsent("it has no leader that is known here".to_owned()));
        };
        let answer = cluster.call(leader, Kind::Control, command.encode().into(), caps::FORWARD_PATIENCE).await;
        let body = answer.map_err(|error| match error {
            CallError::Lost { .. } => Unasked::Lost(error.to_string()),
            CallError::Unreachable { .. } | CallError::Remote { .. } => Unasked::Unsent(error.to_string()),
        })?;
        v1::ControlReply::decode(body).map_err(|error| Unasked::Lost(error.to_string()))?
    };
    reply.reply.ok_or_else(|| Unasked::Lost("its reply is of a kind that is not known here".to_owned()))
}

/// Returns once each shard's leader has applied that version.
async fn until_enforced(cluster: &impl Cluster, version: PolicyVersion, deadline: Instant) -> Result<(), Status> {
    until_none_lags(cluster, version, deadline).await.map_err(|lagging| {
        Status::deadline_exceeded(format!(
            "the policies are stored as {version}, and these shards do not enforce them yet: {lagging}; they will once they \
             have a leader: look at the cluster's status, and apply the same again to wait for them"
        ))
    })
}

/// Returns once each shard has a leader that has applied that policy version; at the deadline, which have not, in words.
pub(crate) async fn until_none_lags(
    cluster: &impl Cluster,
    version: PolicyVersion,
    deadline: Instant,
) -> Result<(), String> {
    loop {
        let state = cluster.state();
        let statuses = match &state {
            Some(state) => gather(cluster, state, caps::STATUS_PATIENCE).await,
            None => Vec::new(),
        };
        let enforced = enforced(statuses.iter().filter_map(|(_, status)| status.as_ref().ok()));
        let lags = |shard: &ShardId| enforced.get(shard).is_none_or(|has| *has < version);
        let shards = state.iter().flat_map(|state| &state.shards).map(|shard| shard.id);
        let lagging: Vec<String> = shards.filter(lags).map(|shard| shard.to_string()).collect();
        if state.is_some() && lagging.is_empty() {
            return Ok(());
        }
        if Instant::now() + caps::ADMIN_RETRY >= deadline {
            let silent = statuses.iter().filter(|(_, status)| status.is_err());
            let silent: Vec<String> = silent.map(|(node, _)| node.to_string()).collect();
            let silent =
                if silent.is_empty() { String::new() } else { format!(" ({} cannot be reached)", silent.join(", ")) };
            return Err(format!("{}{silent}", lagging.join(", ")));
        }
        sleep(caps::ADMIN_RETRY).await;
    }
}

/// The policy version that each shard's leader has applied: of several that take themselves for it, the latest one's.
fn enforced<'a>(statuses: impl Iterator<Item = &'a v1::NodeStatus>) -> BTreeMap<ShardId, PolicyVersion> {
    let mut leaders: BTreeMap<ShardId, (u64, PolicyVersion)> = BTreeMap::new();
    for status in statuses {
        for replica in
            status.replicas.iter().filter(|replica| replica.shard > 0 && NodeId(replica.leader) == NodeId(status.id))
        {
            let claim = (replica.term, PolicyVersion(replica.policy_version));
            let newest = leaders.entry(ShardId(replica.shard)).or_default();
            *newest = (*newest).max(claim);
        }
    }
    leaders.into_iter().map(|(shard, (_, version))| (shard, version)).collect()
}
