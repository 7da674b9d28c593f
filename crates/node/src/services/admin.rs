//! The operator's calls: making a cluster, looking at it, and its policies.
//!
//! Any node answers: what changes the cluster is proposed by the control group's leader, wherever that is; what is asked of
//! other nodes is asked for a bounded time, and who does not answer is named.

pub(crate) mod change;
mod patience;
mod status;
#[cfg(test)]
pub(in crate::services) mod tests;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use quorate_core::{NodeId, Stamp};
use quorate_proto::convert::{policy_set_to_wire, policy_to_wire};
use quorate_proto::v1::peer_request::Kind;
use quorate_proto::v1::{self, admin_server};
use tokio::sync::watch;
use tonic::{Request, Response, Status};

pub use status::assemble;

use patience::patience;

use crate::caps;

use crate::control::{ControlAnswer, ControlCommand, ControlState};
use crate::raft::{Leadership, ProposeError};
use crate::transport::CallError;

/// What the operator's calls need of the node that they come to.
#[tonic::async_trait]
pub trait Cluster: Send + Sync + 'static {
    /// Which node this is; none while it is in no cluster.
    fn me(&self) -> Option<NodeId>;
    /// What the cluster has agreed on, as far as it is known here; none before its genesis is.
    fn state(&self) -> Option<Arc<ControlState>>;
    /// Who leads the control group.
    fn leadership(&self) -> watch::Receiver<Leadership>;
    /// Proposes to the control group, if this node leads it.
    async fn propose(&self, command: ControlCommand) -> Result<ControlAnswer, ProposeError>;
    /// Asks another node.
    fn call(
        &self,
        node: NodeId,
        kind: Kind,
        body: Bytes,
        patience: Duration,
    ) -> BoxFuture<'static, Result<Bytes, CallError>>;
    /// What this node says of itself.
    fn status(&self) -> v1::NodeStatus;
    /// The cluster's time.
    fn now(&self) -> Stamp;
    /// Makes a cluster of nodes that are in none.
    async fn found(&self, request: v1::ClusterInitRequest) -> Result<v1::ClusterInitResponse, Status>;
}

/// The service.
#[derive(Debug)]
pub struct Admin<C> {
    cluster: Arc<C>,
}

impl<C: Cluster> Admin<C> {
    /// The service on that node.
    pub fn new(cluster: Arc<C>) -> Admin<C> {
        Admin { cluster }
    }

    /// The cluster's state, or what to do to have one.
    fn state(&self) -> Result<Arc<ControlState>, Status> {
        match (self.cluster.state(), self.cluster.me()) {
            (Some(state), _) => Ok(state),
            (None, None) => Err(Status::failed_precondition(super::NO_CLUSTER)),
            (None, Some(_)) => Err(Status::unavailable(super::JOINING)),
        }
    }
}

#[tonic::async_trait]
impl<C: Cluster> admin_server::Admin for Admin<C> {
    async fn cluster_init(
        &self,
        request: Request<v1::ClusterInitRequest>,
    ) -> Result<Response<v1::ClusterInitResponse>, Status> {
        self.cluster.found(request.into_inner()).await.map(Response::new)
    }

    async fn cluster_status(
        &self,
        _: Request<v1::ClusterStatusRequest>,
    ) -> Result<Response<v1::ClusterStatusResponse>, Status> {
        Ok(Response::new(status::cluster_status(&*self.cluster).await))
    }

    async fn policy_apply(
        &self,
        request: Request<v1::PolicyApplyRequest>,
    ) -> Result<Response<v1::PolicyApplyResponse>, Status> {
        let state = self.state()?;
        let patience = patience(request.metadata(), caps::ADMIN_PATIENCE);
        let request = request.into_inner();
        let dry_run = request.dry_run;
        let put = change::apply_from_wire(request, self.cluster.now())?;
        if dry_run {
            return change::preview(&state, &put).map(Response::new);
        }
        change::put_policies(&*self.cluster, put, patience).await.map(Response::new)
    }

    async fn policy_list(
        &self,
        request: Request<v1::PolicyListRequest>,
    ) -> Result<Response<v1::PolicyListResponse>, Status> {
        let state = self.state()?;
        let mut list =
            v1::PolicyListResponse { policies: Some(policy_set_to_wire(&state.policies)), ..Default::default() };
        if request.into_inner().false_positives {
            (list.false_positives, list.unheard) = status::false_positives(&*self.cluster, &state).await;
        }
        Ok(Response::new(list))
    }

    async fn policy_get(
        &self,
        request: Request<v1::PolicyGetRequest>,
    ) -> Result<Response<v1::PolicyGetResponse>, Status> {
        let (state, name) = (self.state()?, request.into_inner().name);
        let Some(policy) = state.policies.policies.iter().find(|policy| policy.name == name) else {
            let shown: String = name.chars().take(quorate_core::caps::POLICY_NAME_BYTES).collect();
            return Err(Status::not_found(format!(
                "no policy is named {shown:?}; list the policies to see their names"
            )));
        };
        let policy = Some(policy_to_wire(policy));
        Ok(Response::new(v1::PolicyGetResponse { policy, version: state.policies.version.0 }))
    }

    async fn policy_remove(
        &self,
        request: Request<v1::PolicyRemoveRequest>,
    ) -> Result<Response<v1::PolicyApplyResponse>, Status> {
        self.state()?;
        let patience = patience(request.metadata(), caps::ADMIN_PATIENCE);
        let put = change::remove_from_wire(request.into_inner(), self.cluster.now())?;
        change::put_policies(&*self.cluster, put, patience).await.map(Response::new)
    }
}
