//! How a change of the policies turns one set into the next.
//!
//! Pure, and the same on every node: ids are given here, in the order of the request, and never given again.

use std::collections::{BTreeSet, HashMap};

use quorate_core::{Policy, PolicyId, PolicySet, PolicyVersion, Stamp, caps};

use super::command::PutPolicies;
use super::state::ControlRefusal;
use crate::caps::POLICY_RECORD_NAMES;

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
    /// How many names more it concerned than are listed.
    pub unlisted: u32,
}

/// The next set, the last id given by then, and what became of each policy named. Where nothing would change, the set keeps
/// its version.
///
/// # Errors
/// The change is wrong, or does not fit what is there; nothing changes then.
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
    let mut next = Next::new(set, last_id);
    for name in &put.remove {
        next.remove(name)?;
    }
    for policy in &put.policies {
        next.place(policy)?;
    }
    if put.prune {
        let named: BTreeSet<&str> = put.policies.iter().map(|policy| policy.name.as_str()).collect();
        next.prune(&named);
    }
    next.finish(set.version)
}

fn validate(put: &PutPolicies) -> Result<(), ControlRefusal> {
    let mut names = BTreeSet::new();
    for policy in &put.policies {
        if let Err(problem) = policy.validate() {
            return Err(ControlRefusal::Invalid(format!("policy {}: {problem}", shown(&policy.name))));
        }
        if !names.insert(policy.name.as_str()) {
            return Err(ControlRefusal::Invalid(format!("policy {} is given twice", shown(&policy.name))));
        }
    }
    for name in &put.remove {
        if !names.insert(name) {
            return Err(ControlRefusal::Invalid(format!(
                "policy {} is named twice, or to be applied and to be removed",
                shown(name)
            )));
        }
    }
    Ok(())
}

/// A name as it may be shown, whatever it holds.
fn shown(name: &str) -> String {
    format!("{:?}", name.chars().take(caps::POLICY_NAME_BYTES).collect::<String>())
}

/// The set that is being made.
struct Next {
    /// By name.
    policies: HashMap<String, Policy>,
    last_id: PolicyId,
    changes: Vec<Change>,
}

impl Next {
    fn new(set: &PolicySet, last_id: PolicyId) -> Next {
        let policies = set.policies.iter().map(|policy| (policy.name.clone(), policy.clone())).collect();
        Next { policies, last_id, changes: Vec::new() }
    }

    fn note(&mut self, name: &str, kind: ChangeKind, warning: Option<String>) {
        self.changes.push(Change { name: name.to_owned(), kind, warning });
    }

    fn remove(&mut self, name: &str) -> Result<(), ControlRefusal> {
        if self.policies.remove(name).is_none() {
            let name = shown(name);
            return Err(ControlRefusal::NotFound(format!(
                "no policy is named {name}; nothing was changed: list the policies to see their names"
            )));
        }
        self.note(name, ChangeKind::Removed, None);
        Ok(())
    }

    /// Puts one policy in its place, with the id that its name has, or a new one.
    fn place(&mut self, policy: &Policy) -> Result<(), ControlRefusal> {
        let old = self.policies.get(&policy.name);
        let new = match old {
            Some(old) => Policy { id: old.id, ..policy.clone() },
            None => {
                let spent = || ControlRefusal::Invalid("no policy ids are left: make another cluster".to_owned());
                self.last_id = PolicyId(self.last_id.0.checked_add(1).ok_or_else(spent)?);
                Policy { id: self.last_id, ..policy.clone() }
            }
        };
        let (kind, warning) = match old {
            None => (ChangeKind::Added, None),
            Some(old) if *old == new => (ChangeKind::Unchanged, None),
            Some(old) => (ChangeKind::Changed, new.warning_over(old)),
        };
        self.policies.insert(new.name.clone(), new);
        self.note(&policy.name, kind, warning);
        Ok(())
    }

    fn prune(&mut self, named: &BTreeSet<&str>) {
        let gone = self.policies.keys().filter(|name| !named.contains(name.as_str()));
        let gone: BTreeSet<String> = gone.cloned().collect();
        for name in gone {
            self.policies.remove(&name);
            self.note(&name, ChangeKind::Removed, None);
        }
    }

    fn finish(self, version: PolicyVersion) -> Result<(PolicySet, PolicyId, Vec<Change>), ControlRefusal> {
        if self.policies.len() > caps::POLICIES {
            return Err(ControlRefusal::Invalid(format!(
                "that would make {} policies, and a cluster has at most {}: remove some first",
                self.policies.len(),
                caps::POLICIES
            )));
        }
        let mut policies: Vec<Policy> = self.policies.into_values().collect();
        policies.sort_by_key(|policy| policy.id);
        let changed = self.changes.iter().any(|change| change.kind != ChangeKind::Unchanged);
        let version = PolicyVersion(version.0 + u64::from(changed));
        Ok((PolicySet { version, policies }, self.last_id, self.changes))
    }
}

impl PolicyRecord {
    /// The record of a change; at most [`POLICY_RECORD_NAMES`] names of each kind.
    pub(super) fn new(version: PolicyVersion, at: Stamp, changes: &[Change]) -> Self {
        let mut unlisted = 0;
        let mut of = |kind| {
            let mut names: Vec<String> =
                changes.iter().filter(|change| change.kind == kind).map(|change| change.name.clone()).collect();
            unlisted += names.len().saturating_sub(POLICY_RECORD_NAMES) as u32;
            names.truncate(POLICY_RECORD_NAMES);
            names
        };
        let (added, changed) = (of(ChangeKind::Added), of(ChangeKind::Changed));
        let removed = of(ChangeKind::Removed);
        PolicyRecord { version, at, added, changed, removed, unlisted }
    }
}

#[cfg(test)]
mod tests {
    use quorate_core::{Algorithm, Span};

    use super::*;

    fn window(name: &str, limit: u64) -> Policy {
        Policy::new(name, Algorithm::FixedWindow { limit, window: Span(1_000_000) })
    }

    fn put(policies: Vec<Policy>) -> PutPolicies {
        PutPolicies { policies, ..PutPolicies::default() }
    }

    fn kinds(changes: &[Change]) -> Vec<ChangeKind> {
        changes.iter().map(|change| change.kind).collect()
    }

    #[test]
    fn ids_are_given_in_order_and_never_again() {
        let (set, last, changes) =
            next_set(&PolicySet::default(), PolicyId(0), &put(vec![window("a", 1), window("b", 2)])).unwrap();
        assert_eq!((set.version, last), (PolicyVersion(1), PolicyId(2)));
        assert_eq!(kinds(&changes), [ChangeKind::Added; 2]);
        let remove = PutPolicies { remove: vec!["a".into()], ..put(vec![]) };
        let (set, last, _) = next_set(&set, last, &remove).unwrap();
        let (set, last, changes) = next_set(&set, last, &put(vec![window("a", 1), window("b", 3)])).unwrap();
        assert_eq!((set.version, last), (PolicyVersion(3), PolicyId(3)));
        assert_eq!(kinds(&changes), [ChangeKind::Added, ChangeKind::Changed]);
        let ids: Vec<_> = set.policies.iter().map(|policy| (policy.name.as_str(), policy.id.0)).collect();
        assert_eq!(ids, [("b", 2), ("a", 3)]);
    }

    #[test]
    fn what_changes_nothing_keeps_the_version() {
        let (set, last, _) = next_set(&PolicySet::default(), PolicyId(0), &put(vec![window("a", 1)])).unwrap();
        let (again, _, changes) = next_set(&set, last, &put(vec![window("a", 1)])).unwrap();
        assert_eq!((again, kinds(&changes)), (set, vec![ChangeKind::Unchanged]));
    }

    #[test]
    fn pruning_takes_away_what_is_not_named() {
        let (set, last, _) =
            next_set(&PolicySet::default(), PolicyId(0), &put(vec![window("a", 1), window("b", 2)])).unwrap();
        let prune = PutPolicies { prune: true, ..put(vec![window("b", 2)]) };
        let (set, _, changes) = next_set(&set, last, &prune).unwrap();
        assert_eq!(set.policies.len(), 1);
        assert_eq!(kinds(&changes), [ChangeKind::Unchanged, ChangeKind::Removed]);
    }

    #[test]
    fn a_wrong_change_is_refused_whole() {
        let (set, last, _) = next_set(&PolicySet::default(), PolicyId(0), &put(vec![window("a", 1)])).unwrap();
        let refused = |put: PutPolicies| next_set(&set, last, &put).unwrap_err();
        let expected = PutPolicies { expected_version: Some(PolicyVersion(7)), ..put(vec![window("a", 2)]) };
        assert!(matches!(refused(expected), ControlRefusal::Conflict(_)));
        assert!(matches!(refused(put(vec![window("a b", 1)])), ControlRefusal::Invalid(_)));
        assert!(matches!(refused(put(vec![window("b", 1), window("b", 2)])), ControlRefusal::Invalid(_)));
        let both = PutPolicies { remove: vec!["a".into()], ..put(vec![window("a", 2)]) };
        assert!(matches!(refused(both), ControlRefusal::Invalid(_)));
        let twice = PutPolicies { remove: vec!["a".into(), "a".into()], ..put(vec![]) };
        assert!(matches!(refused(twice), ControlRefusal::Invalid(_)));
        let hostile = PutPolicies { remove: vec!["\u{1b}[2J".repeat(400)], ..put(vec![]) };
        let error = refused(hostile);
        assert!(matches!(error, ControlRefusal::NotFound(_)));
        assert!(!error.to_string().contains('\u{1b}') && error.to_string().len() < 1500, "{error}");
        let many = (0..4096).map(|i| window(&format!("p{i}"), 1)).collect();
        assert!(matches!(refused(put(many)), ControlRefusal::Invalid(_)));
    }

    #[test]
    fn an_algorithm_that_changes_is_warned_of() {
        let (set, last, _) = next_set(&PolicySet::default(), PolicyId(0), &put(vec![window("a", 1)])).unwrap();
        let log = Policy::new("a", Algorithm::SlidingLog { limit: 1, window: Span(1_000_000) });
        let (_, _, changes) = next_set(&set, last, &put(vec![log])).unwrap();
        assert!(changes[0].warning.as_ref().unwrap().contains("as good as new"));
    }

    #[test]
    fn a_record_is_bounded() {
        let changes: Vec<Change> =
            (0..500).map(|i| Change { name: format!("p{i}"), kind: ChangeKind::Added, warning: None }).collect();
        let record = PolicyRecord::new(PolicyVersion(1), Stamp(5), &changes);
        assert_eq!((record.added.len(), record.unlisted as usize), (POLICY_RECORD_NAMES, 500 - POLICY_RECORD_NAMES));
    }
}
