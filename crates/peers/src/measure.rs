//! Callers under load, and what is measured of them.
//!
//! All callers run on one thread, so that what they count needs no lock.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

use hdrhistogram::Histogram;
use quorate_cli::bench::cpu;
use serde::Serialize;
use tokio::task::LocalSet;
use tokio::time::Instant;

use crate::texts::Texts;

/// Latencies are kept in nanoseconds up to a minute, to three digits; longer ones count as that.
const LONGEST_NS: u64 = 60_000_000_000;

/// One that asks, waits for the answers, and asks again.
pub(crate) trait Caller: 'static {
    /// Asks one check for each text; how many were granted.
    fn ask(&mut self, texts: &[String]) -> impl Future<Output = Result<usize, String>>;
}

/// How long a case is asked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    pub(crate) warm: Duration,
    pub(crate) measured: Duration,
}

/// What one case came to in one turn.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Measured {
    pub(crate) decisions: u64,
    pub(crate) granted: u64,
    pub(crate) per_second: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) p99_9_us: f64,
    /// CPU time a decision of this process: client and load.
    pub(crate) client_us: f64,
    /// CPU time a decision of all servers together.
    pub(crate) servers_us: f64,
}

impl Measured {
    pub(crate) fn all_us(&self) -> f64 {
        self.client_us + self.servers_us
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Phase {
    Warm,
    Measured,
    Over,
}

struct Run {
    phase: Cell<Phase>,
    decisions: Cell<u64>,
    granted: Cell<u64>,
    latency: RefCell<Histogram<u64>>,
    failed: RefCell<Option<String>>,
}

/// Lets the callers ask, and measures once they are warm. `servers` are the processes whose CPU time counts.
pub(crate) async fn measure<C: Caller>(
    callers: Vec<C>,
    batch: usize,
    texts: &Texts,
    times: Times,
    servers: &[u32],
) -> Result<Measured, String> {
    let latency = Histogram::new_with_bounds(1, LONGEST_NS, 3).map_err(|error| error.to_string())?;
    let run = Rc::new(Run {
        phase: Cell::new(Phase::Warm),
        decisions: Cell::new(0),
        granted: Cell::new(0),
        latency: RefCell::new(latency),
        failed: RefCell::new(None),
    });
    let cpu_of_servers = || servers.iter().map(|pid| cpu::of(*pid).ok_or("a server has ended")).sum::<Result<_, _>>();
    let local = LocalSet::new();
    let timed = local.run_until(async {
        let calling = callers.into_iter().enumerate().map(|(number, caller)| {
            tokio::task::spawn_local(call(Rc::clone(&run), caller, number, batch, texts.clone()))
        });
        let calling: Vec<_> = calling.collect();
        tokio::time::sleep(times.warm).await;
        let before: (Duration, Duration, Instant) = (cpu::own(), cpu_of_servers()?, Instant::now());
        run.phase.set(Phase::Measured);
        tokio::time::sleep(times.measured).await;
        run.phase.set(Phase::Over);
        let spent = (cpu::own() - before.0, cpu_of_servers()?.saturating_sub(before.1), before.2.elapsed());
        for caller in calling {
            caller.await.map_err(|error| error.to_string())?;
        }
        Ok::<_, String>(spent)
    });
    let (client, servers, elapsed) = timed.await?;
    if let Some(failed) = run.failed.take() {
        return Err(failed);
    }
    let (decisions, latency) = (run.decisions.get(), run.latency.borrow());
    if decisions == 0 {
        return Err("nothing was decided in time".to_owned());
    }
    let each = |cpu: Duration| cpu.as_secs_f64() * 1e6 / decisions as f64;
    let quantile = |at: f64| latency.value_at_quantile(at) as f64 / 1e3;
    Ok(Measured {
        decisions,
        granted: run.granted.get(),
        per_second: decisions as f64 / elapsed.as_secs_f64(),
        p50_us: quantile(0.5),
        p99_us: quantile(0.99),
        p99_9_us: quantile(0.999),
        client_us: each(client),
        servers_us: each(servers),
    })
}

async fn call(run: Rc<Run>, mut caller: impl Caller, number: usize, batch: usize, texts: Texts) {
    let mut calls = 0;
    while run.phase.get() != Phase::Over {
        let texts = texts.of(number, calls, batch);
        let began = Instant::now();
        match caller.ask(texts).await {
            Ok(granted) if run.phase.get() == Phase::Measured => {
                let took = u64::try_from(began.elapsed().as_nanos()).unwrap_or(LONGEST_NS).clamp(1, LONGEST_NS);
                run.decisions.set(run.decisions.get() + batch as u64);
                run.granted.set(run.granted.get() + granted as u64);
                run.latency.borrow_mut().saturating_record_n(took, batch as u64);
            }
            Ok(_) => {}
            Err(problem) => {
                run.failed.borrow_mut().get_or_insert(problem);
                return;
            }
        }
        calls += 1;
    }
}
