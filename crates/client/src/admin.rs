//! The operator's calls: making a cluster, looking at it, its policies.
//!
//! A thin layer over the `Admin` service: it finds a node that answers, waits out an election within its deadline (`admin/call.rs`),
//! and gives errors of the same kinds as the rest of this crate.

use std::collections::BTreeMap;
use std::time::Duration;

use quorate_core::{Policy, PolicySet, PolicyVersion};
use quorate_proto::convert;
use quorate_proto::v1;

use crate::address;
use crate::caps;
use crate::error::{Error, ErrorKind};

mod call;
mod status;

use call::Twice;

pub use status::{ClusterStatus, NodeStatus, ReplicaStatus, ShardStatus};

/// Makes and runs a cluster.
///
/// Each call connects anew: an operator's calls are few, and the nodes may have changed in between.
///
/// ```no_run
/// # async fn f() -> Result<(), quorate_client::Error> {
/// use quorate_client::admin::Admin;
/// let admin = Admin::new(["127.0.0.1:7600"])?;
/// for node in admin.status().await?.nodes {
///     println!("{} {}", node.address, if node.reachable { "up" } else { "down" });
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Admin {
    endpoints: Vec<String>,
    deadline: Duration,
}

/// How to make a cluster: see [`Admin::cluster_init`].
///
/// ```
/// use quorate_client::admin::NewCluster;
/// let new = NewCluster { nodes: vec!["10.0.0.1:7600".into()], ..NewCluster::default() };
/// assert_eq!(new.shards, None);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewCluster {
    /// host:port of every node.
    pub nodes: Vec<String>,
    /// Letters, digits and `-`; `quorate` if none.
    pub name: Option<String>,
    /// 12 if none.
    pub shards: Option<u32>,
    /// Replicas of each shard; 3 if none, or as many as there are nodes if fewer.
    pub replicas: Option<u32>,
}

/// The cluster that was made.
///
/// ```no_run
/// # async fn f(admin: quorate_client::admin::Admin) -> Result<(), quorate_client::Error> {
/// use quorate_client::admin::NewCluster;
/// let nodes = vec!["10.0.0.1:7600".to_owned(), "10.0.0.2:7600".to_owned(), "10.0.0.3:7600".to_owned()];
/// let made = admin.cluster_init(NewCluster { nodes, ..NewCluster::default() }).await?;
/// println!("{} with {} shards", made.name, made.shards);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MadeCluster {
    /// 16 bytes, drawn when it was made.
    pub cluster_id: Vec<u8>,
    /// Its name.
    pub name: String,
    /// The numbers its nodes were given, in the order they were named.
    pub nodes: Vec<u64>,
    /// How many shards it has.
    pub shards: u32,
}

/// A change of the policies: see [`Admin::policy_apply`].
///
/// ```
/// use quorate_client::admin::Apply;
/// let apply = Apply { dry_run: true, ..Apply::default() };
/// assert!(!apply.prune);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Apply {
    /// Put in place of those of their names, or added. Their ids are not looked at.
    pub policies: Vec<Policy>,
    /// Also take away every policy that is not named.
    pub prune: bool,
    /// Only if this is the version in force; none: whatever it is.
    pub expected_version: Option<PolicyVersion>,
    /// Say what would change, and change nothing.
    pub dry_run: bool,
}

/// What a change of the policies came to.
///
/// ```no_run
/// # async fn f(admin: quorate_client::admin::Admin) -> Result<(), quorate_client::Error> {
/// let applied = admin.policy_remove(&["per-user"], None).await?;
/// println!("now at {}", applied.version);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Applied {
    /// The version now in force.
    pub version: PolicyVersion,
    /// What became of each policy.
    pub changes: Vec<(String, Change)>,
    /// What the operator ought to know.
    pub warnings: Vec<String>,
}

/// What became of one policy.
///
/// ```
/// use quorate_client::admin::Change;
/// assert_eq!(Change::Added.as_str(), "added");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Change {
    /// It was so already.
    Unchanged,
    /// It is new.
    Added,
    /// It is another than before.
    Changed,
    /// It is gone, and its keys' states with it.
    Removed,
}

impl Change {
    /// In one lower-case word.
    pub fn as_str(self) -> &'static str {
        match self {
            Change::Unchanged => "unchanged",
            Change::Added => "added",
            Change::Changed => "changed",
            Change::Removed => "removed",
        }
    }
}

/// Policies, and what was said of them: see [`Admin::policy_reports`].
///
/// ```no_run
/// # async fn f(admin: quorate_client::admin::Admin) -> Result<(), quorate_client::Error> {
/// for (policy, reports) in admin.policy_reports().await?.false_positives {
///     println!("{policy}: {reports} denials were reported as wrong");
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PolicyReports {
    /// The set in force.
    pub policies: PolicySet,
    /// By policy's name: denials that were [reported as wrong](crate::Client::report_false_positive), over all nodes that answered,
    /// each since it started. Policies without a report are not among them.
    pub false_positives: BTreeMap<String, u64>,
    /// The addresses of the nodes that did not answer, so that their reports are not counted here.
    pub unheard: Vec<String>,
}

impl Admin {
    /// For the cluster of these nodes (`host:port`); any that answers will do.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] where an endpoint cannot be one.
    pub fn new<E: Into<String>>(endpoints: impl IntoIterator<Item = E>) -> Result<Admin, Error> {
        let endpoints: Vec<_> = endpoints.into_iter().take(caps::ENDPOINTS + 1).map(Into::into).collect();
        Ok(Admin { endpoints: address::endpoints(&endpoints)?, deadline: caps::ADMIN })
    }

    /// How long a call may take: 10 s if not set, at most an hour.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline.min(caps::DEADLINE_MAX);
        self
    }

    /// Makes one cluster of nodes that belong to none yet. Sent again with the same nodes, it finishes what was interrupted.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] where a node is named twice; [`ErrorKind::Conflict`] where a node belongs to a cluster with other
    /// members; [`ErrorKind::Unavailable`] where a node cannot be reached.
    pub async fn cluster_init(&self, new: NewCluster) -> Result<MadeCluster, Error> {
        let request = v1::ClusterInitRequest {
            nodes: address::nodes(&new.nodes)?,
            name: new.name.unwrap_or_default(),
            shards: new.shards.unwrap_or(0),
            replicas: new.replicas.unwrap_or(0),
        };
        let made = self.call(Twice::Safe, request, async |mut admin, request| admin.cluster_init(request).await).await;
        // Of a cluster that is being made nobody can say that it has no leader: a node that is needed was not reached.
        let made = made.map_err(|error| match error.kind() {
            ErrorKind::NoLeader => Error::new(ErrorKind::Unavailable, error.to_string()),
            _ => error,
        })?;
        let v1::ClusterInitResponse { cluster_id, name, nodes, shards } = made;
        Ok(MadeCluster { cluster_id: cluster_id.to_vec(), name, nodes, shards })
    }

    /// What every node says of itself and its shards.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] where no node answers, or none belongs to a cluster.
    pub async fn status(&self) -> Result<ClusterStatus, Error> {
        let request = v1::ClusterStatusRequest {};
        let status =
            self.call(Twice::Reads, request, async |mut admin, request| admin.cluster_status(request).await).await?;
        Ok(status.into())
    }

    /// Puts policies in force; returns once every shard enforces the new set.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] where a policy is wrong, then nothing was applied; [`ErrorKind::Conflict`] where another version
    /// is in force than was expected. After a [`ErrorKind::Deadline`] it may have been applied: applying the same again is safe.
    pub async fn policy_apply(&self, apply: Apply) -> Result<Applied, Error> {
        let request = v1::PolicyApplyRequest {
            policies: apply.policies.iter().map(convert::policy_to_wire).collect(),
            prune: apply.prune,
            expected_version: apply.expected_version.map_or(0, |version| version.0),
            dry_run: apply.dry_run,
        };
        let twice = match (apply.dry_run, apply.expected_version) {
            (true, _) => Twice::Reads,
            (false, None) => Twice::Safe,
            (false, Some(_)) => Twice::Differs,
        };
        Ok(applied(self.call(twice, request, async |mut admin, request| admin.policy_apply(request).await).await?))
    }

    /// All policies in force.
    ///
    /// # Errors
    /// As [`status`](Self::status).
    pub async fn policy_list(&self) -> Result<PolicySet, Error> {
        Ok(self.list(false).await?.policies)
    }

    /// All policies in force, and how many of each one's denials were reported as wrong.
    ///
    /// # Errors
    /// As [`status`](Self::status).
    pub async fn policy_reports(&self) -> Result<PolicyReports, Error> {
        self.list(true).await
    }

    async fn list(&self, false_positives: bool) -> Result<PolicyReports, Error> {
        let request = v1::PolicyListRequest { false_positives };
        let list =
            self.call(Twice::Reads, request, async |mut admin, request| admin.policy_list(request).await).await?;
        let policies = convert::policy_set_from_wire(&list.policies.unwrap_or_default()).map_err(|e| malformed(&e))?;
        let false_positives = list.false_positives.into_iter().collect();
        Ok(PolicyReports { policies, false_positives, unheard: list.unheard })
    }

    /// One policy, and the version of the set that it is in.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] where no policy has that name.
    pub async fn policy_get(&self, name: &str) -> Result<(Policy, PolicyVersion), Error> {
        let request = v1::PolicyGetRequest { name: name.to_owned() };
        let got = self.call(Twice::Reads, request, async |mut admin, request| admin.policy_get(request).await).await?;
        let policy = convert::policy_from_wire(&got.policy.unwrap_or_default()).map_err(|e| malformed(&e))?;
        Ok((policy, PolicyVersion(got.version)))
    }

    /// Takes policies away, and their keys' states with them; all that are named, or none.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] where a name is not in force; [`ErrorKind::Conflict`] where another version is in force than was
    /// expected.
    pub async fn policy_remove(
        &self,
        names: &[&str],
        expected_version: Option<PolicyVersion>,
    ) -> Result<Applied, Error> {
        let request = v1::PolicyRemoveRequest {
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            expected_version: expected_version.map_or(0, |version| version.0),
        };
        let twice = Twice::Differs;
        Ok(applied(self.call(twice, request, async |mut admin, request| admin.policy_remove(request).await).await?))
    }
}

fn malformed(problem: &convert::Malformed) -> Error {
    Error::new(ErrorKind::Protocol, format!("the node's answer means nothing ({problem}); check its version"))
}

fn applied(answer: v1::PolicyApplyResponse) -> Applied {
    let change = |change: v1::PolicyChange| {
        let kind = match change.kind() {
            v1::policy_change::Kind::Unchanged => Change::Unchanged,
            v1::policy_change::Kind::Added => Change::Added,
            v1::policy_change::Kind::Changed => Change::Changed,
            v1::policy_change::Kind::Removed => Change::Removed,
        };
        (change.name, kind)
    };
    Applied {
        version: PolicyVersion(answer.version),
        changes: answer.changes.into_iter().map(change).collect(),
        warnings: answer.warnings,
    }
}
