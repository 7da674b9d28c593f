//! A gRPC service with a limit for each API key, and a caller that backs off as it is told.
//!
//! `tonic-service` serves; `tonic-service call COUNT` asks it that often, one after the other.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "what an example shows")]

use std::error::Error;
use std::time::Duration;

use quorate_client::Client;
use quorate_client::identity::{ApiKey, ClientIp, Identify as _};
use quorate_client::layer::RateLimitLayer;
use tonic::transport::Server;
use tonic::{Code, Request, Response, Status};
use tonic_types::StatusExt as _;

#[allow(missing_docs, unreachable_pub, clippy::all)]
mod v1 {
    tonic::include_proto!("quotes.v1");
}

use v1::quotes_client::QuotesClient;
use v1::quotes_server::{Quotes, QuotesServer};
use v1::{GetRequest, GetResponse};

struct Exchange;

#[tonic::async_trait]
impl Quotes for Exchange {
    async fn get(&self, request: Request<GetRequest>) -> Result<Response<GetResponse>, Status> {
        let symbol = request.into_inner().symbol;
        let price = symbol.bytes().map(u64::from).sum();
        Ok(Response::new(GetResponse { price }))
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().init();
    let mut arguments = std::env::args().skip(1);
    match arguments.next().as_deref() {
        Some("call") => call(arguments.next().unwrap_or_else(|| "10".into()).parse()?).await,
        Some(other) => Err(format!("what is {other}? Say nothing to serve, or: call COUNT").into()),
        None => serve().await,
    }
}

fn address() -> String {
    std::env::var("LISTEN").unwrap_or_else(|_| "127.0.0.1:50051".into())
}

async fn serve() -> Result<(), Box<dyn Error>> {
    let endpoints = std::env::var("QUORATE_ENDPOINTS").unwrap_or_else(|_| "127.0.0.1:7600".into());
    let client = Client::builder().endpoints(endpoints.split(',')).connect().await?;
    // A real service would check the key first: here anybody can make one up, and has an allowance for it.
    let by_key = ApiKey::header("x-api-key")?.or_else(ClientIp::peer());
    let limit = RateLimitLayer::new(client, "quotes-per-key").key(by_key);
    println!("serving on {}", address());
    Server::builder().layer(limit).add_service(QuotesServer::new(Exchange)).serve(address().parse()?).await?;
    Ok(())
}

async fn call(count: usize) -> Result<(), Box<dyn Error>> {
    let mut quotes = QuotesClient::connect(format!("http://{}", address())).await?;
    for number in 1..=count {
        let price = get(&mut quotes).await?;
        println!("{number}: {price}");
    }
    Ok(())
}

/// Asks until there is an answer, and never before it may.
async fn get(quotes: &mut QuotesClient<tonic::transport::Channel>) -> Result<u64, Status> {
    loop {
        let mut request = Request::new(GetRequest { symbol: "ACME".into() });
        request.metadata_mut().insert("x-api-key", tonic::metadata::MetadataValue::from_static("demo"));
        let status = match quotes.get(request).await {
            Ok(answer) => return Ok(answer.into_inner().price),
            Err(status) => status,
        };
        match wait(&status) {
            Some(wait) => {
                println!("{}: {} (again in {wait:?})", status.code(), status.message());
                tokio::time::sleep(wait).await;
            }
            None => return Err(status),
        }
    }
}

/// How long the service asks a caller to wait; none where waiting does not help.
fn wait(status: &Status) -> Option<Duration> {
    let is_temporary = matches!(status.code(), Code::ResourceExhausted | Code::Unavailable);
    status.get_details_retry_info().filter(|_| is_temporary)?.retry_delay
}
