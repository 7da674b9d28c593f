//! Asks a limit until it says no. Start a cluster first: `cargo run --release --bin quorated -- dev`.

#![allow(clippy::print_stdout)]

use quorate_client::Client;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let endpoints = std::env::var("QUORATE_ENDPOINTS").unwrap_or_else(|_| "127.0.0.1:7600".to_owned());
    // How long a call may take, all told. A service chooses what its requests can wait for: 50 ms unless set.
    let patience = std::time::Duration::from_secs(1);
    let client = Client::builder().endpoints(endpoints.split(',')).deadline(patience).connect().await?;

    let decision = client.check("per-user", "alice").cost(3).await?;
    if decision.allowed {
        println!("go ahead; {} of {} left", decision.remaining, decision.limit);
    } else if let Some(wait) = decision.retry_after {
        println!("not yet: try again in {wait:?}");
    } else {
        println!("never: that costs more than the limit");
    }

    client.close().await;
    Ok(())
}
