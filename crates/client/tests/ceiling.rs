//! The client's own ceiling: whatever the cluster says, and whatever the policies want.

#![allow(clippy::unwrap_used, reason = "a test")]

mod fake;

use std::future::IntoFuture as _;
use std::time::Duration;

use fake::{Fake, Fate, works};
use futures::FutureExt as _;
use quorate_client::{Client, ErrorKind, Fallback, limit};
use tokio::time::Instant;

async fn start(calls: usize, queue: usize) -> (Fake, Client) {
    let fake = Fake::new(1);
    let builder = fake.builder().max_in_flight(calls).queue(queue);
    let client = builder.connect_over(fake.wire(), 1).await.unwrap();
    works(&client, "warm").await.unwrap();
    (fake, client)
}

fn is_ceiling<T: std::fmt::Debug>(result: Option<Result<T, quorate_client::Error>>) -> bool {
    result.is_some_and(|result| result.unwrap_err().kind() == ErrorKind::Ceiling)
}

#[tokio::test(start_paused = true)]
async fn one_too_many_is_refused_at_once_and_no_policy_lets_it_in() {
    let (fake, client) = start(2, 1).await;
    fake.script([Fate::AnsweredLate(Duration::from_millis(200))]);
    let check = |key: &'static str| client.check("ten", key).on_unavailable(Fallback::FailOpen).into_future();
    let (mut first, mut second, mut waits) = (check("a"), check("b"), check("c"));
    assert!((&mut first).now_or_never().is_none() && (&mut second).now_or_never().is_none());
    assert!((&mut waits).now_or_never().is_none());
    let error = check("d").now_or_never().unwrap().unwrap_err();
    assert_eq!((error.kind(), error.may_have_charged()), (ErrorKind::Ceiling, false));
    assert!(error.kind().is_transient() && !error.kind().is_unavailable());
    assert!(error.to_string().contains("2 in flight and 1 waiting"), "{error}");
    assert!(is_ceiling(client.reserve("ten", "d").into_future().now_or_never()));
    let many = client.check_many([limit("ten", "d"), limit("ten", "e")]).into_future().now_or_never().unwrap();
    assert!(many.len() == 2 && many.into_iter().all(|one| is_ceiling(Some(one))));
    assert_eq!(fake.used("ten", "d"), 0);

    let (first, second, waits) = tokio::join!(first, second, waits);
    assert!(first.unwrap().allowed && second.unwrap().allowed && waits.unwrap().allowed);
    assert!(check("d").await.unwrap().allowed, "all places are free again");
}

#[tokio::test(start_paused = true)]
async fn a_place_is_free_when_its_check_was_dropped_or_has_failed() {
    let (fake, client) = start(1, 0).await;
    for fate in [Fate::Swallowed, Fate::Lost] {
        fake.script([fate]);
        let (mut dropped, before) = (client.check("ten", "a").into_future(), fake.frames().len());
        assert!((&mut dropped).now_or_never().is_none());
        while fake.frames().len() == before {
            tokio::task::yield_now().await;
        }
        assert!(is_ceiling(client.peek("ten", "a").into_future().now_or_never()));
        drop(dropped);
        assert!(client.peek("plenty", "b").await.is_ok());
        fake.script([fate]);
        assert!(client.check("ten", "a").deadline(Duration::from_millis(10)).await.is_err());
        fake.script([]);
        assert!(client.peek("plenty", "b").await.is_ok());
    }
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_a_place_waits_no_longer_than_it_said() {
    let (fake, client) = start(1, 5).await;
    fake.script([Fate::AnsweredLate(Duration::from_millis(500))]);
    let mut first = client.check("ten", "a").into_future();
    assert!((&mut first).now_or_never().is_none());
    let before = Instant::now();
    let error = client.check("ten", "b").deadline(Duration::from_millis(20)).await.unwrap_err();
    assert_eq!((error.kind(), before.elapsed()), (ErrorKind::Ceiling, Duration::from_millis(20)));
    assert!(first.await.unwrap().allowed);
}

#[tokio::test(start_paused = true)]
async fn a_ceiling_of_nothing_is_refused() {
    let fake = Fake::new(1);
    let connect = fake.builder().max_in_flight(0).connect_over(fake.wire(), 1);
    assert_eq!(connect.await.unwrap_err().kind(), ErrorKind::Invalid);
}
