//! `quorate bench`.

use std::io::IsTerminal as _;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};

use crate::args::{Global, duration};
use crate::bench::cpu;
use crate::bench::keys::{Distribution, Keys};
use crate::bench::load::{self, Plan, Run};
use crate::connect;
use crate::exit::{Code, Failure, Outcome};
use crate::human::count;
use crate::output::show;
use crate::views::bench::BenchView;

/// What `bench` takes.
#[derive(Debug, Args)]
#[command(
    after_help = "Exits 0 once anything was decided, whatever it was; else as the last failure does. Ctrl-C ends it and reports."
)]
pub struct BenchArgs {
    /// The policy that is asked
    #[arg(long)]
    policy: String,
    /// How many ask at the same time
    #[arg(long, value_name = "COUNT", default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    callers: u64,
    /// How many keys there are
    #[arg(long, value_name = "COUNT", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    keys: u64,
    /// What every key begins with
    #[arg(long, value_name = "TEXT", default_value = "bench-")]
    key_prefix: String,
    /// How checks are spread over the keys
    #[arg(long, value_enum, default_value = "uniform")]
    distribution: Distribution,
    /// Of zipf: how uneven it is
    #[arg(long, value_name = "NUMBER", default_value_t = 1.1, value_parser = skew)]
    skew: f64,
    /// What each check costs
    #[arg(long, value_name = "UNITS", default_value_t = 1)]
    cost: u64,
    /// Checks a second of all callers together; latency then counts from when a check was due [default: as many as can be]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    rate: Option<u64>,
    /// How long [default: 10s, unless --checks is given]
    #[arg(long, value_name = "SPAN", value_parser = duration)]
    duration: Option<Duration>,
    /// How many checks, at the most
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    checks: Option<u64>,
    /// Checks that a caller asks in one call
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1024))]
    batch: u64,
    /// Threads of this tool
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=64))]
    threads: u64,
    /// Draws other keys, the same ones for the same seed
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
    /// Report the CPU time of these processes of this machine as well: the nodes
    #[arg(long, value_name = "PID,PID", value_delimiter = ',')]
    cpu_of: Vec<u32>,
}

fn skew(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|skew| (0.01..=10.0).contains(skew))
        .ok_or_else(|| "must be a number from 0.01 to 10".into())
}

/// Runs the load and reports.
///
/// # Errors
/// Nothing was decided.
pub fn run(global: &Global, args: BenchArgs) -> Outcome {
    let mut builder = match args.threads {
        1 => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    let threads = usize::try_from(args.threads).unwrap_or(1);
    let runtime = builder.worker_threads(threads).enable_all().build();
    runtime.map_err(|error| Failure::failed(format!("cannot start: {error}")))?.block_on(bench(global, args))
}

async fn bench(global: &Global, args: BenchArgs) -> Outcome {
    let unbounded = args.duration.is_none() && args.checks.is_none();
    let plan = Plan {
        callers: args.callers as usize,
        batch: args.batch as usize,
        rate: args.rate,
        duration: if unbounded { Some(Duration::from_secs(10)) } else { args.duration },
        checks: args.checks,
    };
    let others = || args.cpu_of.iter().map(|pid| cpu_of(*pid)).sum::<Result<Duration, Failure>>();
    let asker = connect::Asker::connect(global, &args.policy, args.cost).await?;
    let under_way = Arc::new(Run::default());
    let (own_before, others_before) = (cpu::own(), others()?);
    let keys = |caller: usize| {
        Keys::new(&args.key_prefix, args.keys, args.distribution, args.skew, args.seed.wrapping_add(caller as u64))
    };
    let elapsed = tokio::select! {
        elapsed = load::run(&under_way, &plan, asker.clone(), keys) => elapsed,
        never = watch(&under_way, &plan) => match never {},
    };
    let (own, others) = (cpu::own().saturating_sub(own_before), others()?.saturating_sub(others_before));
    let tally = under_way.tallies.total();
    let view = BenchView {
        policy: args.policy,
        callers: plan.callers,
        batch: plan.batch,
        keys: args.keys,
        distribution: format!("{:?}", args.distribution).to_lowercase(),
        cost: args.cost,
        rate_per_second: args.rate,
        ..BenchView::default()
    };
    let others = (!args.cpu_of.is_empty()).then_some(others);
    show(global.output, &view.measured(&tally, elapsed, own, others))?;
    match asker.last_failure() {
        Some(failure) if tally.decided() == 0 => Err(failure),
        _ => Ok(Code::Ok),
    }
}

fn cpu_of(pid: u32) -> Result<Duration, Failure> {
    cpu::of(pid).ok_or_else(|| Failure::usage(format!("--cpu-of: process {pid} does not run on this machine")))
}

/// Shows how it goes, on a terminal, and stops the run at Ctrl-C; never ends by itself.
async fn watch(run: &Run, plan: &Plan) -> std::convert::Infallible {
    let bar = if std::io::stderr().is_terminal() { ProgressBar::new_spinner() } else { ProgressBar::hidden() };
    bar.set_style(ProgressStyle::with_template("{elapsed} {msg}").unwrap_or_else(|_| ProgressStyle::default_spinner()));
    let mut every = tokio::time::interval(Duration::from_millis(500));
    let mut before = 0;
    loop {
        tokio::select! {
            _ = every.tick() => {}
            interrupted = tokio::signal::ctrl_c() => {
                if interrupted.is_ok() {
                    run.stop();
                }
            }
        }
        let (decided, failed) = run.tallies.so_far();
        let of = plan.checks.map_or(String::new(), |checks| format!(" of {}", count(checks)));
        bar.set_message(format!(
            "{} decisions{of}, {}/s, {} failed",
            count(decided),
            count((decided - before) * 2),
            count(failed)
        ));
        before = decided;
    }
}
