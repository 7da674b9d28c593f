//! An HTTP API with limits by address, by user, by tenant, and for the service as a whole.
//!
//! A request passes the limit by address, then authentication, and then the other three in one check: all of them grant it, or
//! none is charged.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "what an example shows")]

use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use axum::extract::{Extension, Request};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use quorate_client::Client;
use quorate_client::identity::{ClientIp, Everyone, FromExtension, Identify as _};
use quorate_client::layer::{Decided, Dialect, RateLimitLayer};
use serde_json::json;
use tokio::net::TcpListener;

/// Who asks, once that is known.
#[derive(Clone)]
struct User {
    tenant: &'static str,
    name: &'static str,
}

/// The users of this example: key, tenant, name.
const USERS: [(&str, &str, &str); 4] = [
    ("key-alice", "acme", "alice"),
    ("key-bob", "acme", "bob"),
    ("key-carol", "acme", "carol"),
    ("key-dave", "globex", "dave"),
];

/// Authentication. The limits after it rely on what it finds, never on what a request says of itself.
async fn authenticate(mut request: Request, next: Next) -> Response {
    let key = request.headers().get("x-api-key").and_then(|value| value.to_str().ok());
    let Some((_, tenant, name)) = USERS.iter().find(|(known, ..)| Some(*known) == key) else {
        return (StatusCode::UNAUTHORIZED, "send an X-Api-Key that this service knows\n").into_response();
    };
    request.extensions_mut().insert(User { tenant, name });
    next.run(request).await
}

async fn hello(Extension(user): Extension<User>, decided: Decided) -> Json<serde_json::Value> {
    Json(json!({ "hello": user.name, "of": user.tenant, "remaining": decided.remaining }))
}

async fn export(Extension(user): Extension<User>) -> Json<serde_json::Value> {
    Json(json!({ "exported": user.tenant }))
}

fn app(client: &Client) -> Result<Router, Box<dyn Error>> {
    // Name the networks of your own proxies here: whoever is in them is believed.
    let by_address =
        RateLimitLayer::new(client.clone(), "api-address").key(ClientIp::trusted(["127.0.0.0/8", "::1"])?).headers([]);

    // The tenant in braces puts both keys on one shard, where one command decides both. The key of the whole service falls to
    // another: it is asked at the same time, and what was charged is given back if the other denies.
    let tenant = FromExtension::new(|user: &User| Some(user.tenant.into())).tagged();
    let user = FromExtension::new(|user: &User| Some(user.name.into()));
    let by_user = RateLimitLayer::new(client.clone(), "api-user")
        .key((tenant.clone(), user))
        .also("api-tenant", tenant.clone())
        .also("api-global", Everyone)
        .headers([Dialect::XRateLimit, Dialect::Draft8]);
    let exports = RateLimitLayer::new(client.clone(), "api-export").key(tenant);

    // Layers that are added later are met first.
    let api = Router::new()
        .route("/hello", get(hello).layer(by_user))
        .route("/export", post(export).layer(exports))
        .layer(from_fn(authenticate))
        .layer(by_address);
    Ok(Router::new().merge(api).route("/healthz", get(|| async { "ok\n" })))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().init();
    let endpoints = std::env::var("QUORATE_ENDPOINTS").unwrap_or_else(|_| "127.0.0.1:7600".into());
    // Longer than a cluster usually takes, and short enough that nobody minds waiting for it.
    let deadline = std::env::var("DEADLINE_MS").map_or(Ok(250), |text| text.parse())?;
    let builder = Client::builder().endpoints(endpoints.split(',')).deadline(Duration::from_millis(deadline));
    let client = builder.connect().await?;
    let listen = std::env::var("LISTEN").unwrap_or_else(|_| "127.0.0.1:8080".into());
    let listener = TcpListener::bind(listen).await?;
    println!("listening on http://{}", listener.local_addr()?);
    // So that the address of each connection is known.
    let service = app(&client)?.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, service).with_graceful_shutdown(interrupted()).await?;
    client.close().await;
    Ok(())
}

async fn interrupted() {
    // Where the signal cannot be waited for, it ends the process as it does by itself.
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending::<()>().await;
    }
}
