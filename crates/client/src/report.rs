//! Denials that callers say were wrong, told to a node that can be reached.

use std::collections::BTreeSet;

use quorate_proto::convert::receipt_to_wire;
use quorate_proto::v1;
use tokio::time::timeout;

use crate::caps;
use crate::client::Inner;
use crate::decision::Decision;
use crate::error::{Error, ErrorKind};
use crate::topology::Topology;
use crate::wire::ReportError;

/// Tells the leader that decided, or whoever else can be reached. A node that may have counted it is the last that is told.
pub(crate) async fn send(inner: &Inner, decision: &Decision, note: &str) -> Result<(), Error> {
    let report = report(decision, note)?;
    let topology = inner.shared.routes.load().as_ref().map(|routes| routes.topology.clone()).unwrap_or_default();
    let told = async {
        let mut problem = "the client knows of no node".to_owned();
        for address in addresses(&topology, decision) {
            match inner.wire.report(address, report.clone()).await {
                Ok(()) => return Ok(()),
                Err(ReportError::NotReached(why)) => problem = format!("{address}: {why}"),
                Err(ReportError::Refused(why)) => return Err(Error::invalid(why.to_string())),
                Err(ReportError::Unknown(why)) => {
                    let text = format!("{address}: {why}; whether the report was counted is not known");
                    return Err(Error::new(ErrorKind::Unavailable, text));
                }
            }
        }
        Err(Error::new(ErrorKind::Unavailable, format!("no node could be told; the last: {problem}")))
    };
    let late = |_| {
        let text = format!("no node took the report within {:?}; whether it was counted is not known", caps::REPORT);
        Err(Error::new(ErrorKind::Deadline, text))
    };
    timeout(caps::REPORT, told).await.unwrap_or_else(late)
}

fn report(decision: &Decision, note: &str) -> Result<v1::FalsePositiveReport, Error> {
    if note.len() > caps::REPORT_NOTE {
        let (long, most) = (note.len(), caps::REPORT_NOTE);
        return Err(Error::invalid(format!("the note has {long} bytes; a report's note has at most {most}")));
    }
    let denied: BTreeSet<_> =
        decision.limits.iter().filter(|limit| !limit.allowed).map(|limit| &limit.policy).collect();
    if denied.is_empty() {
        return Err(Error::invalid("no limit of this decision denied, so there is nothing to report"));
    }
    let policies = denied.into_iter().map(ToString::to_string).collect();
    Ok(v1::FalsePositiveReport { policies, note: note.to_owned(), receipt: Some(receipt_to_wire(&decision.receipt)) })
}

/// Every node's, that of the shard's leader first.
fn addresses<'t>(topology: &'t Topology, decision: &Decision) -> impl Iterator<Item = &'t str> {
    let leader = topology.shard(decision.receipt.shard).and_then(|shard| shard.leader);
    let (first, rest): (Vec<_>, Vec<_>) = topology.nodes.iter().partition(|node| Some(node.id) == leader);
    first.into_iter().chain(rest).map(|node| node.address.as_str())
}

#[cfg(test)]
mod tests {
    use crate::client::Client;
    use crate::error::ErrorKind;
    use crate::testing::FakeCluster;

    const POLICY: &str = "[[policy]]\nname = \"one\"\nalgorithm = \"fixed_window\"\nlimit = 1\nwindow = \"1h\"\n";

    async fn denied(client: &Client) -> crate::Decision {
        client.check("one", "alice").await.unwrap();
        let decision = client.check("one", "alice").await.unwrap();
        assert!(!decision.allowed);
        decision
    }

    #[tokio::test(start_paused = true)]
    async fn a_denial_is_reported_by_its_policy_and_a_grant_is_not() {
        let cluster = FakeCluster::from_toml(POLICY).unwrap();
        let client = cluster.connect().await.unwrap();
        let granted = client.check("one", "bob").await.unwrap();
        let refused = client.report_false_positive(&granted, "").await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid);
        let decision = denied(&client).await;
        let long = client.report_false_positive(&decision, &"x".repeat(1_025)).await.unwrap_err();
        assert_eq!(long.kind(), ErrorKind::Invalid);
        assert_eq!(cluster.false_positives("one"), 0);
        client.report_false_positive(&decision, "he is no robot").await.unwrap();
        client.report_false_positive(&decision, "").await.unwrap();
        assert_eq!(cluster.false_positives("one"), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn where_no_node_is_reached_it_says_so() {
        let cluster = FakeCluster::from_toml(POLICY).unwrap();
        let client = cluster.connect().await.unwrap();
        let decision = denied(&client).await;
        cluster.set_unavailable(true);
        let error = client.report_false_positive(&decision, "").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.to_string().contains("no node could be told"), "{error}");
    }
}
