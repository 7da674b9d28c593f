//! The layer in a real axum server, asked over real HTTP.

#![allow(clippy::unwrap_used, reason = "a test")]

mod fake;

use std::net::SocketAddr;

use axum::Router;
use axum::routing::get;
use bytes::Bytes;
use fake::Fake;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client as Http;
use hyper_util::rt::TokioExecutor;
use quorate_client::identity::{ClientIp, Header, Identify as _};
use quorate_client::layer::{Decided, RateLimitLayer};
use quorate_client::limit;
use tokio::net::TcpListener;

async fn serve(app: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async move { axum::serve(listener, service).await.unwrap() });
    address
}

async fn fetch(address: SocketAddr, path: &str, headers: &[(&str, &str)]) -> (StatusCode, http::HeaderMap, String) {
    let http = Http::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
    let mut request = Request::get(format!("http://{address}{path}"));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let response: Response<_> = http.request(request.body(Full::default()).unwrap()).await.unwrap();
    let (parts, body) = response.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    (parts.status, parts.headers, String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test]
async fn each_route_has_its_policy() {
    let fake = Fake::new(3);
    let client = fake.connect().await;
    let by_user = || Header::new("x-user").unwrap().or_else(ClientIp::trusted(["127.0.0.0/8"]).unwrap());
    let ten = RateLimitLayer::new(client.clone(), "ten").key(by_user());
    let plenty = RateLimitLayer::new(client.clone(), "plenty").key(by_user());
    let left = |decided: Decided| async move { decided.remaining.to_string() };
    let maybe = |decided: Option<Decided>| async move { decided.map_or("none", |_| "some") };
    let app = Router::new()
        .route("/few", get(left).layer(ten))
        .route("/many", get(left).layer(plenty))
        .route("/free", get(maybe))
        .route("/wrong", get(left));
    let address = serve(app).await;

    for remaining in (0..10).rev() {
        let (status, headers, body) = fetch(address, "/few", &[("x-user", "alice")]).await;
        assert_eq!((status, body), (StatusCode::OK, remaining.to_string()));
        assert_eq!(headers["x-ratelimit-limit"], "10");
    }
    let (status, headers, body) = fetch(address, "/few", &[("x-user", "alice")]).await;
    assert_eq!(status, StatusCode::TOO_MANY_REQUESTS);
    assert!(headers.contains_key("retry-after") && body.contains("\"policies\":[\"ten\"]"), "{headers:?} {body}");
    assert_eq!(headers["content-length"], body.len().to_string());
    assert_eq!(fetch(address, "/many", &[("x-user", "alice")]).await.0, StatusCode::OK);
    assert_eq!(fetch(address, "/free", &[]).await.2, "none");
    assert_eq!(fetch(address, "/wrong", &[]).await.0, StatusCode::INTERNAL_SERVER_ERROR);

    // Who names nobody is known by his address, as the proxy in front of him saw it.
    fetch(address, "/few", &[]).await;
    fetch(address, "/few", &[("x-forwarded-for", "1.1.1.1, 203.0.113.7")]).await;
    assert_eq!((fake.used("ten", "127.0.0.1"), fake.used("ten", "203.0.113.7")), (1, 1));
    drop(client);
}

#[tokio::test]
async fn the_exact_limit_is_granted_to_a_crowd() {
    let fake = Fake::new(3);
    let client = fake.connect().await;
    let layer = RateLimitLayer::new(client.clone(), "ten").key(Header::new("x-user").unwrap());
    let address = serve(Router::new().route("/", get(|| async { "hello" })).layer(layer)).await;
    let asked = (0..100).map(|i| {
        tokio::spawn(async move {
            let user = format!("user-{}", i % 4);
            (fetch(address, "/", &[("x-user", &user)]).await.0, user)
        })
    });
    let mut granted = std::collections::BTreeMap::new();
    for answer in asked.collect::<Vec<_>>() {
        let (status, user) = answer.await.unwrap();
        assert!([StatusCode::OK, StatusCode::TOO_MANY_REQUESTS].contains(&status), "{status}");
        *granted.entry(user).or_insert(0) += u64::from(status == StatusCode::OK);
    }
    assert_eq!(granted.values().copied().collect::<Vec<_>>(), [10, 10, 10, 10]);
    assert!(!client.check_all([limit("ten", "user-0")]).await.unwrap().allowed);
}
