//! The way of a question: the policies that it names, looked up, and the shards that its keys fall to.

use quorate_core::{Algorithm, PolicyId, ShardId};

use crate::client::Inner;
use crate::error::{Error, ErrorKind};
use crate::question::{Limit, Question};
use crate::queue::{Failure, Queue};
use crate::routes::Routes;

const MOVED_APART: &str = "the keys have moved to different shards meanwhile; nothing was charged: ask again";

impl Inner {
    /// Whether the keys fall to several shards, so that it takes several commands.
    pub(crate) fn is_split(&self, question: &Question<'_>) -> bool {
        if question.limits.len() < 2 {
            return false;
        }
        let routes = self.shared.routes.load();
        routes.as_ref().is_some_and(|routes| apart(routes, question).is_some())
    }

    /// Refuses a question that takes several commands.
    pub(crate) fn on_one_shard(&self, question: &Question<'_>) -> Result<(), Error> {
        let routes = self.shared.routes.load();
        let Some((first, other)) = routes.as_ref().and_then(|routes| apart(routes, question)) else { return Ok(()) };
        Err(Error::invalid(format!(
            "the keys {:?} ({}) and {:?} ({}) fall to different shards, and one command cannot charge both; give them a hash \
             tag: write the part that they share in braces, as in {{acme}} and {{acme}}/7",
            first.key, first.policy, other.key, other.policy
        )))
    }

    /// The shard of each limit, all policies looked up.
    pub(crate) fn shards_of(&self, question: &mut Question<'_>) -> Result<Vec<ShardId>, Failure> {
        let routes = self.shared.routes.load();
        let Some(routes) = routes.as_ref() else { return Err(self.unheard()) };
        resolve(routes, question)?;
        Ok(question.limits.iter().map(|limit| routes.shard_of(limit.key.as_bytes())).collect())
    }

    /// What the policy does.
    pub(crate) fn algorithm(&self, policy: PolicyId) -> Option<Algorithm> {
        let routes = self.shared.routes.load();
        Some(routes.as_ref()?.policies.set.get(policy)?.algorithm)
    }
}

/// The first limit, and one on another shard than it, if there is any.
fn apart<'q, 'a>(routes: &Routes, question: &'q Question<'a>) -> Option<(&'q Limit<'a>, &'q Limit<'a>)> {
    let [first, others @ ..] = &question.limits[..] else { return None };
    if others.is_empty() {
        return None;
    }
    let shard = routes.shard_of(first.key.as_bytes());
    Some((first, others.iter().find(|limit| routes.shard_of(limit.key.as_bytes()) != shard)?))
}

/// The queue of the shard that decides the question; its policies are looked up then.
pub(crate) fn way<'r>(routes: &'r Routes, question: &mut Question<'_>) -> Result<&'r Queue, Failure> {
    resolve(routes, question)?;
    let shard = match question.limits.first() {
        Some(first) if apart(routes, question).is_none() => routes.shard_of(first.key.as_bytes()),
        Some(_) => return Err(Failure::Moved(Error::new(ErrorKind::Unavailable, MOVED_APART))),
        None => return Err(Failure::Final(Error::invalid("a check has to name at least one limit"))),
    };
    let queue = routes.queue(shard).map(|queue| &**queue);
    queue.ok_or_else(|| Failure::Final(Error::new(ErrorKind::Protocol, "the topology names an arc without its shard")))
}

fn resolve(routes: &Routes, question: &mut Question<'_>) -> Result<(), Failure> {
    question.resolve(&routes.policies).map_err(|name| Failure::Moved(unknown_policy(routes, &name)))
}

fn unknown_policy(routes: &Routes, name: &str) -> Error {
    let names = || routes.policies.set.policies.iter().map(|policy| policy.name.as_str());
    let near = names().min_by_key(|other| distance(name, other)).filter(|other| distance(name, other) <= 2);
    let hint = match near {
        Some(near) => format!("did you mean {near:?}?"),
        None => "list the policies in force, or apply it first".to_owned(),
    };
    let text = format!("policy {name:?} is not in force in policy set {}; {hint}", routes.policies.set.version);
    Error::new(ErrorKind::UnknownPolicy, text)
}

/// Where two names first differ counted from either end: enough to find a slip, without a dictionary.
fn distance(a: &str, b: &str) -> usize {
    let prefix = a.bytes().zip(b.bytes()).take_while(|(x, y)| x == y).count();
    let (a, b) = (&a.as_bytes()[prefix..], &b.as_bytes()[prefix..]);
    let suffix = a.iter().rev().zip(b.iter().rev()).take_while(|(x, y)| x == y).count();
    a.len().max(b.len()) - suffix
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_near() {
        assert!(distance("per-user", "per-usr") <= 2 && distance("per-user", "per-user") == 0);
        assert!(distance("per-user", "tenant") > 2);
    }
}
