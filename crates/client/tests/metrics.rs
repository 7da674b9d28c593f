//! What is counted, and under which names: dashboards lean on them.

#![cfg(feature = "metrics")]
#![allow(clippy::unwrap_used, reason = "a test")]

mod fake;

use std::collections::BTreeMap;
use std::time::Duration;

use fake::{Fake, Fate, works};
use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use quorate_client::{Fallback, limit};

/// Every counter and gauge that is not 0, as it would be written by hand, and how often checks were timed.
fn counted(snapshot: metrics_util::debugging::Snapshot) -> BTreeMap<String, i64> {
    let mut all = BTreeMap::new();
    for (key, _, _, value) in snapshot.into_vec() {
        let mut labels: Vec<_> = key.key().labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
        labels.sort();
        let name = format!("{} {}", key.key().name().trim_start_matches("quorate_client_"), labels.join(" "));
        let value = match value {
            DebugValue::Counter(count) => count as i64,
            DebugValue::Gauge(level) => level.into_inner() as i64,
            DebugValue::Histogram(times) => times.len() as i64,
        };
        if value != 0 {
            all.insert(name.trim_end().to_owned(), value);
        }
    }
    all
}

#[test]
fn everything_that_happens_is_counted_under_its_policy() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    metrics::with_local_recorder(&recorder, || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_time().start_paused(true).build().unwrap().block_on(story());
    });
    let counted: Vec<_> = counted(snapshotter.snapshot()).into_iter().collect();
    let told: Vec<_> = counted.iter().map(|(name, count)| format!("{name}: {count}")).collect();
    let expected = "\
breaker_changes_total to=open: 1
breakers_open: 1
ceiling_refusals_total: 1
check_seconds by=cluster: 5
check_seconds by=fail_open: 2
check_seconds by=local: 1
check_seconds by=none: 8
decisions_total by=cluster outcome=allowed policy=plenty: 2
decisions_total by=cluster outcome=allowed policy=shadowed: 1
decisions_total by=cluster outcome=allowed policy=ten: 2
decisions_total by=cluster outcome=denied policy=ten: 1
decisions_total by=cluster outcome=shadow_denied policy=shadowed: 1
decisions_total by=fail_open outcome=allowed policy=plenty: 1
decisions_total by=fail_open outcome=allowed policy=ten: 2
decisions_total by=local outcome=allowed policy=ten: 1
degraded_total by=fail_open policy=plenty reason=unavailable: 1
degraded_total by=fail_open policy=ten reason=unavailable: 2
degraded_total by=local policy=ten reason=unavailable: 1
errors_total kind=unavailable policy=ten: 5
frames_sent_again_total: 2";
    assert_eq!(told.join("\n"), expected);
}

/// One thing after another.
async fn story() {
    let fake = Fake::new(1);
    let builder = fake.builder().deadline(Duration::from_millis(50)).max_in_flight(1);
    let client = builder.connect_over(fake.wire(), 1).await.unwrap();
    works(&client, "warm").await.unwrap();
    // It goes to another node, and from there back to the one that leads.
    fake.script([Fate::BrokenBefore]);
    client.check("ten", "a").deadline(Duration::from_secs(5)).await.unwrap();
    client.check("ten", "a").cost(10).await.unwrap();
    client.check("shadowed", "a").await.unwrap();
    client.check_all([limit("shadowed", "{a}").cost(2), limit("ten", "{a}"), limit("plenty", "{a}")]).await.unwrap();
    // A name that is nobody's, and one call too many.
    client.check("nonesuch", "a").await.unwrap_err();
    let (one, other) = tokio::join!(
        std::future::IntoFuture::into_future(client.check("nonesuch", "a")),
        std::future::IntoFuture::into_future(client.check("nonesuch", "a")),
    );
    assert!(one.is_err() && other.is_err());
    for node in 1..=3 {
        fake.set_down(node, true);
    }
    for _ in 0..5 {
        client.check("ten", "a").await.unwrap_err();
    }
    client.check("ten", "a").on_unavailable(Fallback::FailOpen).await.unwrap();
    let both = [limit("ten", "{a}"), limit("plenty", "{a}")];
    client.check_all(both).on_unavailable(Fallback::FailOpen).await.unwrap();
    client.check("ten", "a").on_unavailable(Fallback::Local).await.unwrap();
    // Left as it is: what the recorder shows is what an operator would see now.
    std::mem::forget(client);
}
