//! What other nodes ask of a node itself, rather than of one of its groups: its clock, its status, and to propose a control
//! command.

use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use prost::Message;
use quorate_core::PolicyVersion;
use quorate_proto::v1;
use quorate_proto::v1::control_refusal::Kind as RefusalKind;
use quorate_proto::v1::control_reply::Reply;
use quorate_proto::v1::peer_request::Kind;
use quorate_proto::v1::policy_change::Kind as WireKind;

use super::admin::Cluster;
use crate::clock::{Clock, clock_to_wire};
use crate::control::{Change, ChangeKind, ControlAnswer, ControlCommand, ControlRefusal};
use crate::raft::ProposeError;

/// Answers the question of another node. The future only waits.
pub fn answer<C: Cluster>(
    cluster: &Arc<C>,
    clock: &dyn Clock,
    kind: Kind,
    body: Bytes,
) -> BoxFuture<'static, Result<Bytes, String>> {
    match kind {
        Kind::Clock => ready(Ok(clock_to_wire(clock))).boxed(),
        Kind::Status => ready(Ok(cluster.status().encode_to_vec().into())).boxed(),
        Kind::Control => {
            let command = match ControlCommand::decode(&body) {
                Ok(command) => command,
                Err(error) => return ready(Err(error.to_string())).boxed(),
            };
            let cluster = Arc::clone(cluster);
            async move { Ok(reply_to_wire(cluster.propose(command).await).encode_to_vec().into()) }.boxed()
        }
        other => ready(Err(format!("a question of kind {other:?} is for a group, not for a node"))).boxed(),
    }
}

/// What became of the policies, as it goes over the wire.
pub(super) fn change_to_wire(version: PolicyVersion, changes: &[Change]) -> v1::PolicyApplyResponse {
    let change = |change: &Change| {
        let kind = match change.kind {
            ChangeKind::Unchanged => WireKind::Unchanged,
            ChangeKind::Added => WireKind::Added,
            ChangeKind::Changed => WireKind::Changed,
            ChangeKind::Removed => WireKind::Removed,
        };
        v1::PolicyChange { name: change.name.clone(), kind: kind.into() }
    };
    v1::PolicyApplyResponse {
        version: version.0,
        changes: changes.iter().map(change).collect(),
        warnings: changes.iter().filter_map(|change| change.warning.clone()).collect(),
    }
}

/// The refusal's kind on the wire, and its text.
pub(super) fn refusal_to_wire(refusal: &ControlRefusal) -> (RefusalKind, String) {
    let kind = match refusal {
        ControlRefusal::Invalid(_) => RefusalKind::Invalid,
        ControlRefusal::NotFound(_) => RefusalKind::NotFound,
        ControlRefusal::Conflict(_) => RefusalKind::Conflict,
    };
    (kind, refusal.to_string())
}

/// What became of a control command, as it goes over the wire; the asker at home reads the same.
pub(super) fn reply_to_wire(answer: Result<ControlAnswer, ProposeError>) -> v1::ControlReply {
    let reply = match answer {
        Ok(ControlAnswer::Done) => Reply::Done(true),
        Ok(ControlAnswer::Policies { version, changes }) => Reply::Policies(change_to_wire(version, &changes)),
        Ok(ControlAnswer::Refused(refusal)) => {
            let (kind, message) = refusal_to_wire(&refusal);
            Reply::Refused(v1::ControlRefusal { kind: kind.into(), message })
        }
        Err(ProposeError::NotLeader { leader }) => {
            Reply::NotLeader(v1::NotControlLeader { leader: leader.map_or(0, |leader| leader.0) })
        }
        Err(ProposeError::Stopped(_)) => Reply::NotLeader(v1::NotControlLeader { leader: 0 }),
        Err(ProposeError::Unknown) => Reply::Unknown(true),
    };
    v1::ControlReply { reply: Some(reply) }
}
