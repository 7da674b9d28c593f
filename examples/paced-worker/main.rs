//! Workers that call a fragile API together, no faster than it bears, however many of them there are on however many machines.
//!
//! A leaky bucket gives each call its place in one queue. A worker waits for its turn; where the queue is full it stands back
//! for as long as it is told.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "what an example shows")]

use std::error::Error;
use std::time::Duration;

use quorate_client::{Client, ErrorKind};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

/// How long a worker waits for its turn before it says so and tries again.
const PATIENCE: Duration = Duration::from_secs(30);

/// Waits until the next call may be made.
async fn turn(client: &Client) -> Result<(), Box<dyn Error + Send + Sync>> {
    loop {
        match client.acquire("fragile-api", "partner").deadline(PATIENCE).await {
            Ok(turn) if turn.allowed => return Ok(()),
            Ok(busy) => println!("no turn within {PATIENCE:?}; it would take {:?}", busy.retry_after),
            // A place may be taken and lost. It is better lost than called twice as fast.
            Err(error) if error.kind().is_transient() => {
                println!("{error}; again in a second");
                sleep(Duration::from_secs(1)).await;
            }
            Err(error) if error.kind() == ErrorKind::UnknownPolicy => {
                return Err(format!("{error}: quorate policy apply -f examples/paced-worker/policies.toml").into());
            }
            Err(error) => return Err(error.into()),
        }
    }
}

async fn work(
    name: usize,
    client: Client,
    jobs: async_jobs::Jobs,
    done: mpsc::UnboundedSender<Instant>,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    while let Some(job) = jobs.next().await {
        turn(&client).await?;
        let called = Instant::now();
        println!("worker {name} calls for job {job}");
        // The call itself would stand here; it may take as long as it likes.
        sleep(Duration::from_millis(300)).await;
        if done.send(called).is_err() {
            break;
        }
    }
    Ok(())
}

/// Jobs that workers share.
mod async_jobs {
    use std::sync::Arc;

    use tokio::sync::{Mutex, mpsc};

    /// Each job is given to one worker.
    #[derive(Clone)]
    pub(super) struct Jobs(Arc<Mutex<mpsc::Receiver<usize>>>);

    impl Jobs {
        pub(super) fn new(jobs: mpsc::Receiver<usize>) -> Jobs {
            Jobs(Arc::new(Mutex::new(jobs)))
        }

        pub(super) async fn next(&self) -> Option<usize> {
            self.0.lock().await.recv().await
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    tracing_subscriber::fmt().init();
    let mut numbers = std::env::args().skip(1).map(|text| text.parse::<usize>());
    let jobs = numbers.next().unwrap_or(Ok(25))?;
    let workers = numbers.next().unwrap_or(Ok(4))?;
    let endpoints = std::env::var("QUORATE_ENDPOINTS").unwrap_or_else(|_| "127.0.0.1:7600".into());
    let client = Client::builder().endpoints(endpoints.split(',')).connect().await?;

    let (queue, taken) = mpsc::channel(16);
    let (done, mut calls) = mpsc::unbounded_channel();
    let shared = async_jobs::Jobs::new(taken);
    let crew: Vec<_> =
        (1..=workers).map(|name| tokio::spawn(work(name, client.clone(), shared.clone(), done.clone()))).collect();
    drop(done);
    for job in 1..=jobs {
        queue.send(job).await?;
    }
    drop(queue);
    for worker in crew {
        worker.await??;
    }

    let mut times = Vec::new();
    while let Some(at) = calls.recv().await {
        times.push(at);
    }
    times.sort();
    if let (Some(first), Some(last)) = (times.first(), times.last()) {
        let span = last.duration_since(*first);
        let gaps = times.windows(2).map(|pair| pair[1].duration_since(pair[0]));
        println!("{} calls in {span:?}; the closest two {:?} apart", times.len(), gaps.min().unwrap_or_default());
    }
    client.close().await;
    Ok(())
}
