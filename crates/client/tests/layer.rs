//! `RateLimitLayer` in front of a service, on a cluster in memory: what callers and the service see.

#![allow(clippy::unwrap_used, reason = "a test")]

mod fake;

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use fake::Fake;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use quorate_client::identity::{Everyone, Header, Identify as _, Parts};
use quorate_client::layer::{Decided, Dialect, MissingKey, RateLimitLayer, ResponseBody};
use quorate_core::{Algorithm, Mode, Policy, PolicyId, Rate, Span};
use tokio::time::Instant;
use tower::{Layer as _, Service, ServiceExt as _};

/// Answers what is left, and the cost of its own.
async fn handle(request: Request<Full<Bytes>>) -> Result<Response<Full<Bytes>>, Infallible> {
    let left = request.extensions().get::<Decided>().map_or("-".into(), |decided| decided.remaining.to_string());
    Ok(Response::new(left.into()))
}

fn policies() -> Vec<Policy> {
    let minute = Span(60_000_000);
    let mut all = vec![
        Policy::new("per-user", Algorithm::FixedWindow { limit: 3, window: minute }),
        Policy::new("per-tenant", Algorithm::FixedWindow { limit: 100, window: minute }),
        Policy::new("bucket", Algorithm::TokenBucket { capacity: 200, refill: Rate { units: 100, period: minute } }),
        Policy::new("paced", Algorithm::LeakyBucket { queue: 2, rate: Rate { units: 1, period: minute } }),
        Policy::new("shadowed", Algorithm::FixedWindow { limit: 1, window: minute }),
        Policy::new("off", Algorithm::FixedWindow { limit: 1, window: minute }),
    ];
    all[4].mode = Mode::Shadow;
    all[5].mode = Mode::Disabled;
    for (at, policy) in all.iter_mut().enumerate() {
        policy.id = PolicyId(at as u32 + 100);
    }
    all
}

/// A cluster with those policies, 20 s into a minute, and a layer of one of them by the header `x-user`.
async fn by_user(policy: &str) -> (Fake, RateLimitLayer) {
    let fake = Fake::new(3);
    fake.install(policies());
    let layer = RateLimitLayer::new(fake.connect().await, policy).key(Header::new("x-user").unwrap());
    tokio::time::advance(Duration::from_secs(20)).await;
    (fake, layer)
}

fn from(user: &str) -> Request<Full<Bytes>> {
    Request::get("/").header("x-user", user).body(Full::default()).unwrap()
}

struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: String,
    decided: Option<Decided>,
}

impl Answer {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    fn headers(&self, names: [&str; 3]) -> [Option<&str>; 3] {
        names.map(|name| self.header(name))
    }

    fn json(&self) -> serde_json::Value {
        assert_eq!(self.header("content-type"), Some("application/problem+json"));
        serde_json::from_str(&self.body).unwrap()
    }
}

const X: [&str; 3] = ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"];

async fn ask(layer: &RateLimitLayer, request: Request<Full<Bytes>>) -> Answer {
    answer(layer.layer(tower::service_fn(handle)).oneshot(request).await.unwrap()).await
}

async fn answer(response: Response<ResponseBody<Full<Bytes>>>) -> Answer {
    let (parts, body) = response.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    Answer {
        status: parts.status,
        headers: parts.headers,
        body: String::from_utf8(body.to_vec()).unwrap(),
        decided: parts.extensions.get().cloned(),
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_granted_reaches_the_service_with_its_decision() {
    let (fake, layer) = by_user("per-user").await;
    for left in ["2", "1", "0"] {
        let granted = ask(&layer, from("alice")).await;
        assert_eq!((granted.status, granted.body.as_str()), (StatusCode::OK, left));
        assert_eq!(granted.headers(X), [Some("3"), Some(left), Some("40")]);
        assert_eq!(granted.header("retry-after"), None);
    }
    assert_eq!(fake.used("per-user", "alice"), 3);
}

#[tokio::test(start_paused = true)]
async fn what_is_denied_says_when_to_come_again() {
    let (_fake, layer) = by_user("per-user").await;
    for _ in 0..3 {
        ask(&layer, from("alice")).await;
    }
    let denied = ask(&layer, from("alice")).await;
    assert_eq!(denied.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(denied.headers(X), [Some("3"), Some("0"), Some("40")]);
    assert_eq!(denied.header("retry-after"), Some("40"), "39.99… rounded up");
    assert_eq!(denied.header("cache-control"), Some("no-store"));
    let expected = serde_json::json!({
        "type": "about:blank",
        "title": "Too Many Requests",
        "status": 429,
        "detail": "the limit per-user is used up; try again in 40 s",
        "policies": ["per-user"],
        "retry_after_seconds": 40,
    });
    let mut json = denied.json();
    json.as_object_mut().unwrap().entry("type").or_insert("about:blank".into());
    assert_eq!(json, expected);
    assert!(!denied.decided.unwrap().allowed);
    assert_eq!(ask(&layer, from("bob")).await.status, StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn a_wait_is_at_least_a_second_and_absent_where_it_never_helps() {
    let (_fake, layer) = by_user("per-user").await;
    let never = ask(&layer.clone().cost(4), from("alice")).await;
    assert_eq!((never.status, never.header("retry-after")), (StatusCode::TOO_MANY_REQUESTS, None));
    assert!(never.json().get("retry_after_seconds").is_none() && never.body.contains("waiting does not help"));

    ask(&layer.clone().cost(3), from("alice")).await;
    let waits = |answer: &Answer| answer.header("retry-after").unwrap().parse::<u64>().unwrap();
    let first = waits(&ask(&layer, from("alice")).await);
    tokio::time::advance(Duration::from_secs(first - 1)).await;
    tokio::time::advance(Duration::from_millis(900)).await;
    let last = ask(&layer, from("alice")).await;
    assert_eq!((last.status, waits(&last)), (StatusCode::TOO_MANY_REQUESTS, 1), "never 0");
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(ask(&layer, from("alice")).await.status, StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn all_dialects_say_the_same() {
    let (_fake, layer) = by_user("bucket").await;
    let layer = layer.headers([Dialect::Draft8, Dialect::Draft6, Dialect::XRateLimitEpoch]).cost(7);
    let seen = ask(&layer, from("alice")).await;
    assert_eq!(seen.header("ratelimit"), Some("\"bucket\";r=193;t=5"));
    let policies: Vec<_> = seen.headers.get_all("ratelimit-policy").iter().map(|v| v.to_str().unwrap()).collect();
    assert_eq!(policies, ["\"bucket\";q=200;w=120", "200;w=120"]);
    assert_eq!(
        seen.headers(["ratelimit-limit", "ratelimit-remaining", "ratelimit-reset"]),
        [Some("200"), Some("193"), Some("5")]
    );
    let reset: u64 = seen.header("x-ratelimit-reset").unwrap().parse().unwrap();
    assert!(reset > 1_700_000_000, "an epoch's second: {reset}");
    let none = ask(&layer.headers([]), from("bob")).await;
    assert!(none.headers.is_empty(), "{:?}", none.headers);
}

#[tokio::test(start_paused = true)]
async fn windows_follow_the_policies() {
    let (fake, layer) = by_user("per-user").await;
    let layer = layer.headers([Dialect::Draft8]);
    assert_eq!(ask(&layer, from("alice")).await.header("ratelimit-policy"), Some("\"per-user\";q=3;w=60"));
    let mut changed = policies();
    changed[0].algorithm = Algorithm::FixedWindow { limit: 9, window: Span(3_600_000_000) };
    fake.install(changed);
    let client = fake.connect().await;
    let layer = RateLimitLayer::new(client, "per-user").key(Everyone).headers([Dialect::Draft8]);
    assert_eq!(ask(&layer, from("alice")).await.header("ratelimit-policy"), Some("\"per-user\";q=9;w=3600"));
}

#[tokio::test(start_paused = true)]
async fn several_limits_are_all_or_nothing_and_all_told() {
    let (fake, layer) = by_user("per-user").await;
    let tenant = Header::new("x-tenant").unwrap().tagged();
    let user = (tenant.clone(), Header::new("x-user").unwrap());
    let layer = layer.key(user).also_costing("per-tenant", tenant, 10).headers([Dialect::XRateLimit, Dialect::Draft8]);
    let request = || {
        let mut request = from("alice");
        request.headers_mut().insert("x-tenant", "acme".parse().unwrap());
        request
    };
    let granted = ask(&layer, request()).await;
    assert_eq!(granted.headers(X), [Some("3"), Some("2"), Some("40")], "of the tightest");
    assert_eq!(granted.header("ratelimit"), Some("\"per-user\";r=2;t=40, \"per-tenant\";r=90;t=40"));
    assert_eq!((fake.used("per-tenant", "{acme}"), fake.used("per-user", "{acme}|alice")), (10, 1));
    let denied = ask(&layer.clone().cost(3), request()).await;
    assert_eq!(denied.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(denied.json()["policies"], serde_json::json!(["per-user"]));
    assert_eq!((fake.used("per-tenant", "{acme}"), fake.used("per-user", "{acme}|alice")), (10, 1));
}

#[tokio::test(start_paused = true)]
async fn a_request_that_names_nobody() {
    let (fake, layer) = by_user("per-user").await;
    let nobody = || Request::get("/").body(Full::default()).unwrap();
    for request in [nobody(), from(""), from("  ")] {
        let refused = ask(&layer, request).await;
        assert_eq!((refused.status, refused.header("retry-after")), (StatusCode::BAD_REQUEST, None));
        assert_eq!(refused.json()["policies"], serde_json::json!(["per-user"]));
    }
    let skipped = ask(&layer.clone().missing_key(MissingKey::Skip), nobody()).await;
    assert_eq!((skipped.status, skipped.body.as_str(), skipped.headers.len()), (StatusCode::OK, "-", 0));
    let anonymous = layer.clone().missing_key(MissingKey::Anonymous);
    for _ in 0..3 {
        assert_eq!(ask(&anonymous, nobody()).await.status, StatusCode::OK);
    }
    assert_eq!(ask(&anonymous, nobody()).await.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(fake.used("per-user", "anonymous"), 3);
    assert_eq!(ask(&anonymous, from("alice")).await.body, "2", "who says his name has his own");

    // One limit is left out, the other is asked.
    let both = layer.also("per-tenant", Everyone).missing_key(MissingKey::Skip);
    assert_eq!(ask(&both, nobody()).await.body, "99");
}

#[tokio::test(start_paused = true)]
async fn keys_of_any_size_are_limited() {
    let (_fake, layer) = by_user("per-user").await;
    let long = "x".repeat(50_000);
    for status in [200, 200, 200, 429] {
        assert_eq!(ask(&layer, from(&long)).await.status, status);
    }
    assert_eq!(ask(&layer, from(&long[1..])).await.status, StatusCode::OK, "another");
}

#[tokio::test(start_paused = true)]
async fn costs_are_taken_from_the_request() {
    let (fake, layer) = by_user("per-user").await;
    let layer = layer.cost(|request: &Parts| if request.method == "POST" { 2 } else { 0 });
    ask(&layer, from("alice")).await;
    let mut post = from("alice");
    *post.method_mut() = http::Method::POST;
    assert_eq!(ask(&layer, post).await.body, "1");
    assert_eq!(fake.used("per-user", "alice"), 2);
}

#[tokio::test(start_paused = true)]
async fn a_shadow_is_felt_by_nobody() {
    let (fake, layer) = by_user("per-user").await;
    let layer = layer.shadow(true);
    for left in ["2", "1", "0", "0", "0"] {
        let seen = ask(&layer, from("alice")).await;
        assert_eq!((seen.status, seen.body.as_str(), seen.headers.len()), (StatusCode::OK, left, 0));
    }
    assert_eq!(fake.used("per-user", "alice"), 3);
    let nobody = Request::get("/").body(Full::default()).unwrap();
    assert_eq!(ask(&layer, nobody).await.body, "-");
    let wrong = RateLimitLayer::new(fake.connect().await, "no-such").key(Everyone).shadow(true);
    assert_eq!(ask(&wrong, from("alice")).await.body, "-");
}

#[tokio::test(start_paused = true)]
async fn limits_that_are_not_enforced_are_not_told() {
    for policy in ["shadowed", "off"] {
        let (_fake, layer) = by_user(policy).await;
        let layer = layer.headers([Dialect::XRateLimit, Dialect::Draft6, Dialect::Draft8]);
        for _ in 0..3 {
            let seen = ask(&layer, from("alice")).await;
            assert_eq!((seen.status, seen.headers.len()), (StatusCode::OK, 0), "{policy}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_place_in_a_queue_is_waited_for() {
    let (_fake, layer) = by_user("paced").await;
    let took = |began: Instant| began.elapsed().as_millis() / 1000;
    let began = Instant::now();
    ask(&layer, from("alice")).await;
    assert_eq!(took(began), 0);
    let impatient = layer.clone().max_delay(Duration::from_secs(30));
    let denied = ask(&impatient, from("alice")).await;
    assert_eq!((denied.status, denied.header("retry-after")), (StatusCode::TOO_MANY_REQUESTS, Some("30")));
    let held = ask(&layer, from("alice")).await;
    assert_eq!((held.status, took(began)), (StatusCode::OK, 60));
    let told = ask(&layer.clone().wait_turn(false), from("alice")).await;
    assert_eq!((told.status, took(began)), (StatusCode::OK, 60), "the service waits for itself");
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_goes_away_gives_its_place_back() {
    let (fake, layer) = by_user("paced").await;
    ask(&layer, from("alice")).await;
    let service = layer.layer(tower::service_fn(handle));
    // It gets the place at 60 s, and goes at 5 s.
    let gone = tokio::time::timeout(Duration::from_secs(5), service.oneshot(from("alice"))).await;
    assert!(gone.is_err());
    let client = fake.connect().await;
    let began = Instant::now();
    while client.peek("paced", "alice").await.unwrap().delay > Some(Duration::from_secs(60)) {
        assert!(began.elapsed() < Duration::from_secs(20), "the place was not given back");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let next = ask(&layer, from("alice")).await;
    assert_eq!(next.status, StatusCode::OK);
    assert!(began.elapsed() < Duration::from_secs(61), "the next one has the place of the one that went");
}

/// May be called once for each time that it said it was ready; a clone has to become ready for itself.
struct Touchy {
    ready: bool,
    turns: u64,
    calls: Arc<AtomicU64>,
}

impl Clone for Touchy {
    fn clone(&self) -> Self {
        Touchy { ready: false, turns: 2, calls: self.calls.clone() }
    }
}

/// An error that is neither `Send` nor a standard error.
#[derive(Debug)]
struct Odd(std::rc::Rc<str>);

impl Service<Request<Full<Bytes>>> for Touchy {
    type Response = Response<Full<Bytes>>;
    type Error = &'static str;
    type Future = Ready<Result<Response<Full<Bytes>>, &'static str>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), &'static str>> {
        self.turns = self.turns.saturating_sub(1);
        if self.turns > 0 {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<Full<Bytes>>) -> Self::Future {
        assert!(std::mem::take(&mut self.ready), "called without being ready");
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.turns = 2;
        ready(Err("its own error"))
    }
}

#[tokio::test(start_paused = true)]
async fn readiness_and_errors_are_the_services_own() {
    let (_fake, layer) = by_user("per-user").await;
    let calls = Arc::new(AtomicU64::new(0));
    let mut service = layer.layer(Touchy { ready: false, turns: 2, calls: calls.clone() });
    for _ in 0..3 {
        let error: &'static str = service.ready().await.unwrap().call(from("alice")).await.unwrap_err();
        assert_eq!(error, "its own error");
    }
    let denied = service.ready().await.unwrap().call(from("alice")).await.unwrap();
    assert_eq!(denied.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(calls.load(Ordering::Relaxed), 3, "the service is not asked what was denied");

    // Whatever the error is, it stays.
    fn is_kept<S: Service<Request<()>, Error = Odd>>(_: &S) {}
    let odd = tower::service_fn(|_: Request<()>| Box::pin(async { Err::<Response<()>, _>("odd") }));
    let odd = layer.layer(odd.map_err(|text: &str| Odd(text.into())));
    is_kept(&odd);
    assert_eq!(&*Odd("odd".into()).0, "odd");
}

#[tokio::test(start_paused = true)]
async fn clones_share_one_limit() {
    let (fake, layer) = by_user("per-user").await;
    let layers: Vec<_> = (0..4).map(|_| layer.clone()).collect();
    let mut granted = 0;
    for layer in layers.iter().cycle().take(12) {
        granted += u64::from(ask(layer, from("alice")).await.status == StatusCode::OK);
    }
    assert_eq!((granted, fake.used("per-user", "alice")), (3, 3));
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_is_away_is_no_error_of_the_service() {
    let (fake, layer) = by_user("per-user").await;
    let layer = layer.deadline(Duration::from_millis(50));
    ask(&layer, from("alice")).await;
    for node in 1..=3 {
        fake.set_down(node, true);
    }
    let away = ask(&layer, from("alice")).await;
    assert_eq!((away.status, away.header("retry-after")), (StatusCode::SERVICE_UNAVAILABLE, Some("1")));
    assert_eq!(away.json()["policies"], serde_json::json!(["per-user"]));
    assert!(away.decided.is_none() && away.header("x-ratelimit-limit").is_none());
    let ours = layer.on_no_decision(|none, mut response| {
        *response.body_mut() = none.error.kind().to_string().into();
        response
    });
    let away = ask(&ours, from("alice")).await;
    assert!(["unavailable", "deadline", "no_leader", "unknown"].contains(&away.body.as_str()), "{}", away.body);
}

#[tokio::test(start_paused = true)]
async fn a_wrong_set_up_is_the_services_fault() {
    let (fake, layer) = by_user("no-such-policy").await;
    for layer in [layer, by_user("per-user").await.1.cost(1_000_000_000_001)] {
        let refused = ask(&layer, from("alice")).await;
        assert_eq!((refused.status, refused.header("retry-after")), (StatusCode::INTERNAL_SERVER_ERROR, None));
        assert!(refused.json().get("policies").is_none(), "callers need not know: {}", refused.body);
    }
    drop(fake);
}

#[tokio::test(start_paused = true)]
async fn a_denial_is_answered_as_the_service_likes() {
    let (_fake, layer) = by_user("per-user").await;
    let layer = layer.cost(2).on_denied(|denied, mut response| {
        assert_eq!(response.headers()["retry-after"], "40");
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        *response.body_mut() = format!("{} {}", denied.request.uri.path(), denied.decision.remaining).into();
        response
    });
    ask(&layer, from("alice")).await;
    let denied = ask(&layer, from("alice")).await;
    assert_eq!((denied.status, denied.body.as_str()), (StatusCode::SERVICE_UNAVAILABLE, "/ 1"));
    assert_eq!(denied.header("x-ratelimit-remaining"), Some("1"));
}

#[tokio::test(start_paused = true)]
async fn layers_within_each_other_tell_of_the_tighter() {
    let (fake, narrow) = by_user("per-user").await;
    let wide = RateLimitLayer::new(fake.connect().await, "per-tenant").key(Everyone);
    for (outer, inner) in [(&wide, &narrow), (&narrow, &wide)] {
        let both = (*outer).clone().headers([Dialect::XRateLimit, Dialect::Draft8]);
        let inner = inner.clone().headers([Dialect::XRateLimit, Dialect::Draft8]);
        let service = both.layer(tower::ServiceExt::<Request<Full<Bytes>>>::map_response(
            inner.layer(tower::service_fn(handle)),
            |response| response.map(|_| Full::default()),
        ));
        let seen = answer(service.oneshot(from("alice")).await.unwrap()).await;
        assert_eq!(seen.header("x-ratelimit-limit"), Some("3"));
        assert_eq!(seen.headers.get_all("ratelimit").iter().count(), 2, "the draft tells of both");
    }
}

#[tokio::test(start_paused = true)]
async fn a_charge_is_given_back_once() {
    let (fake, layer) = by_user("per-user").await;
    let client = fake.connect().await;
    let kept = Arc::new(std::sync::Mutex::new(None));
    let keep = kept.clone();
    let service = layer.layer(tower::service_fn(move |request: Request<Full<Bytes>>| {
        *keep.lock().unwrap() = request.extensions().get::<Decided>().cloned();
        handle(request)
    }));
    service.oneshot(from("alice")).await.unwrap();
    let decided = kept.lock().unwrap().take().unwrap();
    assert_eq!(fake.used("per-user", "alice"), 1);
    let charge = decided.clone().take_charge().unwrap();
    assert!(decided.take_charge().is_none());
    assert_eq!(client.refund(charge).await.unwrap(), 1);
    assert_eq!(fake.used("per-user", "alice"), 0);
}
