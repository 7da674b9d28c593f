//! The breaker: a dead cluster costs no check its deadline for long, and its return is noticed without a storm.

#![allow(clippy::unwrap_used, reason = "a test")]

mod fake;

use std::time::Duration;

use fake::{Fake, Fate, works};
use futures::FutureExt as _;
use quorate_client::{Client, ErrorKind};
use quorate_proto::v1;
use quorate_proto::v1::ErrorCode;
use std::future::IntoFuture as _;
use tokio::time::{Instant, sleep};

const DEADLINE: Duration = Duration::from_millis(50);
/// A second has so many of them: some request at every moment.
const PACE: Duration = Duration::from_millis(5);

async fn start(shards: u32) -> (Fake, Client) {
    let fake = Fake::new(shards);
    let client = fake.builder().deadline(DEADLINE).connect_over(fake.wire(), 1).await.unwrap();
    for i in 0..8 * shards {
        works(&client, &i.to_string()).await.unwrap();
    }
    (fake, client)
}

fn set_dead(fake: &Fake, dead: bool) {
    for node in 1..=3 {
        fake.set_down(node, dead);
    }
}

/// Asks for a while, one task for each check; gives how long each took, and whether it was answered.
async fn traffic(client: &Client, span: Duration) -> Vec<(Duration, bool)> {
    let until = Instant::now() + span;
    let mut checks = Vec::new();
    while Instant::now() < until {
        let client = client.clone();
        checks.push(tokio::spawn(async move {
            let before = Instant::now();
            let answered = works(&client, &format!("{:?}", before)).await.is_ok();
            (before.elapsed(), answered)
        }));
        sleep(PACE).await;
    }
    let mut all = Vec::with_capacity(checks.len());
    for check in checks {
        all.push(check.await.unwrap());
    }
    all
}

/// A check that is refused without waiting.
fn refused_at_once(client: &Client, key: &str) -> Option<quorate_client::Error> {
    client.check("ten", key).into_future().now_or_never().map(|result| result.unwrap_err())
}

#[tokio::test(start_paused = true)]
async fn a_dead_cluster_costs_the_deadline_for_a_moment_then_nothing() {
    let (fake, client) = start(1).await;
    set_dead(&fake, true);
    let dead = traffic(&client, Duration::from_secs(10)).await;
    assert!(dead.iter().all(|(took, answered)| !answered && *took <= DEADLINE + Duration::from_millis(2)));
    let waited = dead.iter().filter(|(took, _)| *took > Duration::ZERO).count();
    let first = Duration::from_millis(160).as_millis() / PACE.as_millis();
    assert!(waited as u128 <= first, "{waited} of {} waited", dead.len());
    assert!(dead.iter().rev().take(1_900).all(|(took, _)| took.is_zero()));

    let error = refused_at_once(&client, "a").unwrap();
    assert_eq!((error.kind(), error.may_have_charged()), (ErrorKind::Unavailable, false));
    assert!(error.to_string().contains("connection refused"), "it says what is wrong: {error}");
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_returns_is_asked_again_within_two_seconds() {
    let (fake, client) = start(3).await;
    for away in [1, 7, 60] {
        set_dead(&fake, true);
        traffic(&client, Duration::from_secs(away)).await;
        set_dead(&fake, false);
        let back = Instant::now();
        let mut seen = traffic(&client, Duration::from_secs(2)).await;
        let last = seen.split_off(seen.len() - 10);
        assert!(
            last.iter().all(|(_, answered)| *answered),
            "after {away} s away, {:?} after its return",
            back.elapsed()
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_return_is_no_storm() {
    let fake = Fake::new(4);
    let mut clients = Vec::new();
    for seed in 0..20 {
        let client = fake.builder().deadline(DEADLINE).connect_over(fake.wire(), seed).await.unwrap();
        for i in 0..40 {
            works(&client, &i.to_string()).await.unwrap();
        }
        clients.push(client);
    }
    set_dead(&fake, true);
    futures::future::join_all(clients.iter().map(|client| traffic(client, Duration::from_secs(20)))).await;
    let before = fake.frames().len();
    assert!(clients.iter().all(|client| refused_at_once(client, "a").is_some()));
    set_dead(&fake, false);
    // Nobody asks: what comes now is what the clients do by themselves.
    sleep(Duration::from_secs(2)).await;
    let frames = fake.frames().split_off(before);
    let pairs = clients.len() * 4;
    assert!(
        frames.len() >= pairs && frames.len() <= 3 * pairs,
        "{} frames for {pairs} shards of clients",
        frames.len()
    );
    assert!(frames.iter().all(|frame| frame.keys.is_empty()), "not one check is sent again");
    let first = frames.len();
    sleep(Duration::from_secs(60)).await;
    assert_eq!(fake.frames().len() - before, first, "and then there is silence");
    for client in &clients {
        assert!(works(client, "again").await.unwrap());
    }
}

#[tokio::test(start_paused = true)]
async fn probes_are_few_and_never_more_than_one_at_once() {
    let (fake, client) = start(1).await;
    let before = fake.frames().len();
    fake.set_hung(1);
    traffic(&client, Duration::from_secs(10)).await;
    let probes = |frames: Vec<v1::Frame>| frames.into_iter().filter(|frame| frame.keys.is_empty()).count();
    let sent = probes(fake.frames().split_off(before));
    assert!((5..=60).contains(&sent), "{sent} probes in ten seconds");
}

#[tokio::test(start_paused = true)]
async fn a_shard_that_answers_too_late_is_not_asked_until_it_answers_in_time() {
    let (fake, client) = start(1).await;
    let late = Fate::AnsweredLate(Duration::from_millis(200));
    fake.script(std::iter::repeat_n(late, 100_000));
    traffic(&client, Duration::from_millis(400)).await;
    // Probes are in no session, so they are answered in time at once: the breaker opens and closes again.
    fake.set_slow(Duration::from_millis(200));
    traffic(&client, Duration::from_secs(1)).await;
    let slow = traffic(&client, Duration::from_secs(5)).await;
    assert!(slow.iter().all(|(took, answered)| took.is_zero() && !answered), "late answers are no answers");
    fake.set_slow(Duration::ZERO);
    fake.script([]);
    let mut well = traffic(&client, Duration::from_secs(2)).await;
    assert!(well.split_off(well.len() - 100).iter().all(|(_, answered)| *answered));
}

#[tokio::test(start_paused = true)]
async fn one_shard_without_a_leader_is_no_reason_not_to_ask_the_others() {
    let (fake, client) = start(3).await;
    let key = |shard| (0..).map(|i| format!("k{i}")).find(|key| fake.shard_of(key) == shard).unwrap();
    fake.elect(1, 0);
    let (headless, well) = (key(1), key(2));
    for _ in 0..40 {
        let _ = works(&client, &headless).await;
        assert!(works(&client, &well).await.unwrap());
    }
    let error = refused_at_once(&client, &headless).unwrap();
    assert_eq!(error.kind(), ErrorKind::NoLeader, "{error}");
    assert!(works(&client, &well).await.unwrap());
    fake.elect(1, 2);
    fake.publish();
    sleep(Duration::from_secs(1)).await;
    assert!(works(&client, &headless).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn one_hiccup_opens_nothing() {
    let (fake, client) = start(1).await;
    fake.script([Fate::Delayed(Duration::from_millis(90))]);
    let results = client.check_many((0..1_000).map(|i| quorate_client::limit("ten", i.to_string()))).await;
    assert!(results.iter().all(|result| result.is_err()));
    assert!(refused_at_once(&client, "a").is_none());
    sleep(Duration::from_millis(100)).await;
    assert!(works(&client, "a").await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn an_overloaded_shard_is_spared() {
    let (fake, client) = start(1).await;
    fake.script(std::iter::repeat_n(Fate::Refused(ErrorCode::Overloaded), 10_000));
    traffic(&client, Duration::from_secs(1)).await;
    let before = fake.frames().len();
    fake.set_slow(Duration::from_secs(9));
    traffic(&client, Duration::from_secs(5)).await;
    let sent = fake.frames().len() - before;
    assert!(sent < 200, "{sent} frames in five seconds");
}

#[tokio::test(start_paused = true)]
async fn a_client_closes_while_its_breaker_is_open() {
    let (fake, client) = start(1).await;
    set_dead(&fake, true);
    traffic(&client, Duration::from_secs(1)).await;
    let before = Instant::now();
    client.close().await;
    assert!(before.elapsed() <= Duration::from_secs(1));
}
