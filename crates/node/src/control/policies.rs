//! How a change of the policies turns one set into the next.
//!
//! Pure, and the same on every node: ids are given here, in the order of the request, and never given again.

use std::collections::BTreeSet;

use quorate_core::{Policy, PolicyId, PolicySet, PolicyVersion, Stamp, caps};

use super::command::PutPolicies;
use super::state::ControlRefusal;

/// What became of one policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// It was so already.
    Unchanged,
    /// There was none of its name.
    Added,
    /// It was different.
    Changed,
    /// It was taken away, and its keys' states with it.
    Removed,
}

/// What became of the policy of that name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The policy's name.
    pub name: String,
    /// What became of it.
    pub kind: ChangeKind,
    /// What the operator ought to know of it.
    pub warning: Option<String>,
}

/// One change of the policies, kept for the history.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicyRecord {
    /// The version that it made.
    pub version: PolicyVersion,
    /// When it was asked.
    pub at: Stamp,
    /// Names of what was added.
    pub added: Vec<String>,
    /// Names of what was changed.
    pub changed: Vec<String>,
    /// Names of what was taken away.
    pub removed: Vec<String>,
}

/// The next set, the last id given by then, and what became of each policy named. Nothing changes where an error comes back;
/// where nothing would change, the set keeps its version.
pub fn next_set(
    set: &PolicySet,
    last_id: PolicyId,
    put: &PutPolicies,
) -> Result<(PolicySet, PolicyId, Vec<Change>), ControlRefusal> {
    if let Some(expected) = put.expected_version.filter(|expected| *expected != set.version) {
        return Err(ControlRefusal::Conflict(format!(
            "the policies are at {}, not at {expected}: list them again, and apply to what is there",
            set.version
        )));
    }
    validate(put)?;
    let mut policies = set.policies.clone();
    let mut changes = Vec::new();
    for name in &put.remove {
        let Some(at) = policies.iter().position(|policy| policy.name == *name) else {
            return Err(ControlRefusal::NotFound(format!("no policy is named `{name}`; nothing was changed")));
        };
        policies.remove(at);
        changes.push(Change { name: name.clone(), kind: ChangeKind::Removed, warning: None });
    }
    let mut last_id = last_id;
    for policy in &put.policies {
        changes.push(place(&mut policies, policy, &mut last_id));
    }
    if put.prune {
        let named: BTreeSet<&str> = put.policies.iter().map(|policy| policy.name.as_str()).collect();
        let gone = policies.iter().filter(|policy| !named.contains(policy.name.as_str()));
        changes.extend(gone.map(|policy| Change { name: policy.name.clone(), kind: ChangeKind::Removed, warning: None }));
        policies.retain(|policy| named.contains(policy.name.as_str()));
    }
    if policies.len() > caps::POLICIES {
        return Err(ControlRefusal::Invalid(format!(
            "that would make {} policies, and a cluster has at most {}: remove some first",
            policies.len(),
            caps::POLICIES
        )));
    }
    policies.sort_by_key(|policy| policy.id);
    let changed = changes.iter().any(|change| change.kind != ChangeKind::Unchanged);
    let version = PolicyVersion(set.version.0 + u64::from(changed));
    Ok((PolicySet { version, policies }, last_id, changes))
}

fn validate(put: &PutPolicies) -> Result<(), ControlRefusal> {
    let mut names = BTreeSet::new();
    for policy in &put.policies {
        if let Err(problem) = policy.validate() {
            return Err(ControlRefusal::Invalid(format!("policy `{}`: {problem}", policy.name)));
        }
        if !names.insert(policy.name.as_str()) {
            return Err(ControlRefusal::Invalid(format!("policy `{}` is named twice", policy.name)));
        }
    }
    match put.remove.iter().find(|name| names.contains(name.as_str())) {
        Some(name) => Err(ControlRefusal::Invalid(format!("policy `{name}` is to be applied and to be removed"))),
        None => Ok(()),
    }
}

/// Puts one policy in its place, with the id that its name has, or a new one.
fn place(policies: &mut Vec<Policy>, policy: &Policy, last_id: &mut PolicyId) -> Change {
    let name = policy.name.clone();
    let Some(old) = policies.iter_mut().find(|old| old.name == policy.name) else {
        *last_id = PolicyId(last_id.0 + 1);
        policies.push(Policy { id: *last_id, ..policy.clone() });
        return Change { name, kind: ChangeKind::Added, warning: None };
    };
    let new = Policy { id: old.id, ..policy.clone() };
    if *old == new {
        return Change { name, kind: ChangeKind::Unchanged, warning: None };
    }
    let (before, after) = (old.algorithm.name(), new.algorithm.name());
    let warning = (before != after)
        .then(|| format!("policy `{name}` changes from {before} to {after}: every key of it starts as good as new"));
    *old = new;
    Change { name, kind: ChangeKind::Changed, warning }
}

impl PolicyRecord {
    pub(super) fn new(version: PolicyVersion, at: Stamp, changes: &[Change]) -> Self {
        let of = |kind| changes.iter().filter(|change| change.kind == kind).map(|change| change.name.clone()).collect();
        PolicyRecord {
            version,
            at,
            added: of(ChangeKind::Added),
            changed: of(ChangeKind::Changed),
            removed: of(ChangeKind::Removed),
        }
    }
}
