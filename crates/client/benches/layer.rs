//! What the layer costs over a bare check, in nanoseconds of CPU time: `cargo bench -p quorate-client --bench layer`.
//!
//! A request through the layer takes what the request and its service take by themselves, what the check takes, and what the
//! layer adds: whom the request is for, the decision among its extensions, the headers of its answer. All run in this process,
//! on a cluster in memory, in turns; the median of the rounds is told. What a remembered denial costs with its answer, 429 and
//! problem included, is told apart.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a measurement")]

mod cpu;

use std::convert::Infallible;
use std::hint::black_box;
use std::time::Duration;

use http::{Request, Response};
use quorate_client::Client;
use quorate_client::identity::Header;
use quorate_client::layer::{Dialect, RateLimitLayer};
use quorate_client::testing::FakeCluster;
use tower::{Layer as _, Service, ServiceExt as _};

const ROUNDS: usize = 7;
const TIMES: u32 = 4_000;
const KEY: &str = "customer-4711";

fn request() -> Request<()> {
    Request::get("/orders/7").header("x-user", KEY).header("accept", "application/json").body(()).unwrap()
}

async fn handle(request: Request<()>) -> Result<Response<()>, Infallible> {
    black_box(request);
    Ok(Response::new(()))
}

async fn through<S: Service<Request<()>, Error = Infallible> + Clone>(service: &S) -> u64 {
    cpu::each(TIMES, || {
        let service = service.clone();
        async move { drop(black_box(service.oneshot(request()).await.unwrap())) }
    })
    .await
}

async fn checked(client: &Client, policy: &str) -> u64 {
    cpu::each(TIMES, || async { drop(black_box(client.check(policy, KEY).await.unwrap())) }).await
}

fn median(mut all: Vec<i64>) -> i64 {
    all.sort_unstable();
    all[all.len() / 2]
}

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let cluster = FakeCluster::from_toml(
            "[[policy]]\nname = \"plenty\"\nalgorithm = \"token_bucket\"\ncapacity = 1000000000\nrefill = \"1000000/s\"\n\
             [[policy]]\nname = \"none\"\nalgorithm = \"fixed_window\"\nlimit = 0\nwindow = \"1h\"\n",
        )
        .unwrap();
        let remembering = Client::builder().remember_denials(Duration::from_secs(3_600));
        let client = cluster.connect_with(remembering).await.unwrap();
        let layer = |policy: &str, dialects: &[Dialect]| {
            let layer = RateLimitLayer::new(client.clone(), policy).key(Header::new("x-user").unwrap());
            layer.headers(dialects.iter().copied()).layer(tower::service_fn(handle))
        };
        let bare = tower::service_fn(handle);
        for (name, policy, dialects) in [
            ("granted, X-RateLimit", "plenty", &[Dialect::XRateLimit][..]),
            ("granted, X-RateLimit and draft 8", "plenty", &[Dialect::XRateLimit, Dialect::Draft8]),
            ("granted, no headers", "plenty", &[]),
            ("denied from memory, with its answer", "none", &[Dialect::XRateLimit]),
        ] {
            let layered = layer(policy, dialects);
            let (mut checks, mut costs) = (Vec::new(), Vec::new());
            for _ in 0..ROUNDS {
                let (service, check) = (through(&bare).await as i64, checked(&client, policy).await as i64);
                checks.push(check);
                costs.push(through(&layered).await as i64 - service - check);
            }
            println!("{name}: the layer {} ns over a check of {} ns", median(costs), median(checks));
        }
    });
}
