//! A gateway to a language model that limits by tokens: it reserves what an answer may use, and settles what it did use.
//!
//! Nobody knows the price of an answer before it is written. Charging afterwards lets a burst through unpaid; charging the most
//! it may be makes callers pay for what they never got. A reservation does neither.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "what an example shows")]

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use quorate_client::Client;
use quorate_client::identity::Header;
use quorate_client::layer::{RateLimitLayer, service_unavailable, too_many_requests};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::net::TcpListener;

/// The policy that counts tokens.
const TOKENS: &str = "llm-tokens";
/// The most that one answer may have.
const MOST_TOKENS: u64 = 4_000;
/// How long an answer may take; a reservation that is not settled by then is taken as used up.
const ANSWER: Duration = Duration::from_secs(120);

#[derive(Deserialize)]
struct Prompt {
    prompt: String,
    #[serde(default = "usual")]
    max_tokens: u64,
}

fn usual() -> u64 {
    500
}

async fn complete(State(client): State<Arc<Client>>, headers: HeaderMap, Json(asked): Json<Prompt>) -> Response {
    let Some(tenant) = headers.get("x-tenant").and_then(|value| value.to_str().ok()) else {
        return (StatusCode::BAD_REQUEST, "say for whom in X-Tenant\n").into_response();
    };
    // What the prompt has, and the most that the answer may add.
    let most = tokens(&asked.prompt) + asked.max_tokens.min(MOST_TOKENS);
    let reservation = match client.reserve(TOKENS, tenant).cost(most).ttl(ANSWER).await {
        Ok(reservation) if reservation.allowed() => reservation,
        Ok(denied) => return too_many_requests(denied.decision()).map(Body::from),
        Err(error) => {
            eprintln!("no tokens could be reserved: {error}");
            return service_unavailable(TOKENS).map(Body::from);
        }
    };
    let remaining = reservation.decision().remaining;
    let Some((answer, used)) = model(&asked).await else {
        // It gave nothing, so it costs nothing. Where the refund fails, the tokens stay charged: it errs on the limit's side.
        if let Err(error) = reservation.refund().await {
            eprintln!("{most} tokens of {tenant} stay reserved: {error}");
        }
        return (StatusCode::BAD_GATEWAY, "the model did not answer\n").into_response();
    };
    if let Err(error) = reservation.settle(used).await {
        eprintln!("{most} tokens of {tenant} stay reserved instead of {used}: {error}");
    }
    Json(report(&answer, most, used, remaining)).into_response()
}

fn report(answer: &str, reserved: u64, used: u64, remaining: u64) -> Value {
    json!({ "answer": answer, "tokens": { "reserved": reserved, "used": used, "remaining": remaining + reserved.saturating_sub(used) } })
}

/// Four characters a token, as a rule of thumb.
fn tokens(text: &str) -> u64 {
    (text.chars().count() as u64).div_ceil(4)
}

/// Stands for the model: an answer and the tokens it took, or nothing where it fails.
async fn model(asked: &Prompt) -> Option<(String, u64)> {
    tokio::time::sleep(Duration::from_millis(50)).await;
    if asked.prompt.contains("fail") {
        return None;
    }
    let answer = format!("You said: {}", asked.prompt);
    let used = tokens(&asked.prompt) + tokens(&answer).min(asked.max_tokens);
    Some((answer, used))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().init();
    let endpoints = std::env::var("QUORATE_ENDPOINTS").unwrap_or_else(|_| "127.0.0.1:7600".into());
    let client = Client::builder().endpoints(endpoints.split(',')).connect().await?;
    // Requests are cheap to count, and stop a flood before any prompt is read. The header is taken from a gateway in front
    // that has authenticated the tenant and overwrites it.
    let by_tenant = RateLimitLayer::new(client.clone(), "llm-requests").key(Header::new("x-tenant")?);
    let app = Router::new().route("/v1/complete", post(complete)).layer(by_tenant).with_state(Arc::new(client.clone()));
    let listen = std::env::var("LISTEN").unwrap_or_else(|_| "127.0.0.1:8081".into());
    let listener = TcpListener::bind(listen).await?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await?;
    Ok(())
}
