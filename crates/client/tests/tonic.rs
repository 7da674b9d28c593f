//! The layer in a real tonic server, asked by a real tonic client.

#![allow(clippy::unwrap_used, reason = "a test")]

mod fake;

use std::net::SocketAddr;
use std::time::Duration;

use fake::Fake;
use quorate_client::identity::{ClientIp, Header, Identify as _};
use quorate_client::layer::RateLimitLayer;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::{Channel, Server};
use tonic::{Code, Request, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_types::StatusExt as _;

async fn serve(layer: RateLimitLayer) -> HealthClient<Channel> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address: SocketAddr = listener.local_addr().unwrap();
    let (_, health) = tonic_health::server::health_reporter();
    let server = Server::builder().layer(layer).add_service(health);
    tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
    let channel = Channel::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap();
    HealthClient::new(channel)
}

async fn call(client: &mut HealthClient<Channel>, user: Option<&'static str>) -> Result<http::HeaderMap, Status> {
    let mut request = Request::new(HealthCheckRequest::default());
    if let Some(user) = user {
        request.metadata_mut().insert("x-user", user.parse().unwrap());
    }
    Ok(client.check(request).await?.metadata().clone().into_headers())
}

#[tokio::test]
async fn a_denial_is_a_status_with_its_details() {
    let fake = Fake::new(3);
    let by_user = Header::new("x-user").unwrap().or_else(ClientIp::peer());
    let mut client = serve(RateLimitLayer::new(fake.connect().await, "ten").key(by_user)).await;
    for left in (0..10).rev() {
        let headers = call(&mut client, Some("alice")).await.unwrap();
        assert_eq!(headers["x-ratelimit-remaining"], left.to_string());
    }
    let denied = call(&mut client, Some("alice")).await.unwrap_err();
    assert_eq!(denied.code(), Code::ResourceExhausted);
    assert!(denied.message().starts_with("the limit ten is used up"), "{}", denied.message());
    let wait = denied.get_details_retry_info().unwrap().retry_delay.unwrap();
    assert!(wait > Duration::from_secs(1), "the exact wait: {wait:?}");
    let quota = denied.get_details_quota_failure().unwrap();
    assert_eq!(quota.violations.len(), 1);
    assert_eq!(quota.violations[0].subject, "policy:ten");
    assert_eq!(denied.metadata().get("x-ratelimit-remaining").unwrap(), "0");

    call(&mut client, None).await.unwrap();
    assert_eq!(fake.used("ten", "127.0.0.1"), 1, "the connection's address is known");
}

#[tokio::test]
async fn what_waiting_does_not_help_says_no_wait() {
    let fake = Fake::new(3);
    let layer = RateLimitLayer::new(fake.connect().await, "ten").key(Header::new("x-user").unwrap());
    let mut client = serve(layer.cost(11)).await;
    let never = call(&mut client, Some("alice")).await.unwrap_err();
    assert_eq!((never.code(), never.get_details_retry_info().is_none()), (Code::ResourceExhausted, true));
    let nobody = call(&mut client, None).await.unwrap_err();
    assert_eq!(nobody.code(), Code::InvalidArgument);
}

#[tokio::test]
async fn a_cluster_that_is_away_is_unavailable() {
    let fake = Fake::new(3);
    let layer = RateLimitLayer::new(fake.connect().await, "ten").key(ClientIp::peer());
    let mut client = serve(layer.deadline(Duration::from_millis(50))).await;
    call(&mut client, None).await.unwrap();
    for node in 1..=3 {
        fake.set_down(node, true);
    }
    let away = call(&mut client, None).await.unwrap_err();
    assert_eq!(away.code(), Code::Unavailable);
    assert_eq!(away.get_details_retry_info().unwrap().retry_delay, Some(Duration::from_secs(1)));
    assert!(away.get_details_quota_failure().is_none());

    let layer = RateLimitLayer::new(Fake::new(1).connect().await, "no-such-policy").key(ClientIp::peer());
    let wrong = call(&mut serve(layer).await, None).await.unwrap_err();
    assert_eq!(wrong.code(), Code::Internal);
}
