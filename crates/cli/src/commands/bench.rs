//! `quorate bench`: load on a cluster, or on a service that it protects.

use std::io::IsTerminal as _;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use http::Method;
use indicatif::{ProgressBar, ProgressStyle};

use crate::args::{Global, duration};
use crate::bench::keys::{Distribution, Keys};
use crate::bench::load::{self, Plan, Run};
use crate::bench::url::target::Template;
use crate::bench::{cpu, url};
use crate::connect;
use crate::exit::{Code, Failure, Outcome};
use crate::human::count;
use crate::output::{note, show};
use crate::views::bench::BenchView;
use crate::views::bench_url::BenchUrlView;

/// What `bench` takes.
#[derive(Debug, Args)]
#[command(
    after_help = "Exits 0 once anything was decided, whatever it was; else as the last failure does. Ctrl-C ends it and reports."
)]
pub struct BenchArgs {
    /// The policy that is asked
    #[arg(long, required_unless_present = "url", conflicts_with = "url")]
    policy: Option<String>,
    /// Ask a protected service over HTTP/1.1 instead; who is denied waits as Retry-After says, and it is reported whether that
    /// was true. {caller} stands for a caller's number, here and in --header
    #[arg(long, conflicts_with_all = NOT_OF_URL)]
    url: Option<String>,
    /// Of --url: a header to send, 'Name: value'
    #[arg(short = 'H', long = "header", value_name = "HEADER", requires = "url", conflicts_with = "policy")]
    headers: Vec<String>,
    /// Of --url: the method
    #[arg(short = 'X', long, value_name = "METHOD", requires = "url", default_value = "GET")]
    method: Method,
    /// Of --url: the body to send
    #[arg(long, value_name = "TEXT", requires = "url", default_value = "", hide_default_value = true)]
    body: String,
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

/// Options that say nothing where a URL is asked.
const NOT_OF_URL: [&str; 9] =
    ["policy", "keys", "key_prefix", "distribution", "skew", "cost", "rate", "batch", "cpu_of"];

fn skew(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|skew| (0.01..=10.0).contains(skew))
        .ok_or_else(|| "must be a number from 0.01 to 10".into())
}

impl BenchArgs {
    /// Whether a service is asked, and no node.
    pub(crate) fn asks_a_service(&self) -> bool {
        self.url.is_some()
    }
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
    let runtime = runtime.map_err(|error| Failure::failed(format!("cannot start: {error}")))?;
    match (&args.url, &args.policy) {
        (Some(url), _) => runtime.block_on(bench_url(global, url.clone(), &args)),
        (None, Some(policy)) => runtime.block_on(bench(global, policy.clone(), &args)),
        (None, None) => Err(Failure::usage("say --policy or --url")),
    }
}

async fn bench_url(global: &Global, url: String, args: &BenchArgs) -> Outcome {
    let (headers, body) = (args.headers.clone(), args.body.clone());
    let template = Template { url: url.clone(), headers, method: args.method.clone(), body };
    let callers = args.callers as usize;
    let targets = (1..=callers).map(|caller| template.of(caller)).collect::<Result<Vec<_>, _>>();
    let targets = targets.map_err(Failure::usage)?;
    if callers > 1 && !template.tells_callers_apart() {
        note(
            "all callers may be one to the service, and then take what others wait for: put {caller} into --url or --header, or say --callers 1",
        );
    }
    let duration = args.duration.unwrap_or(Duration::from_secs(10));
    let plan = url::Plan { duration, requests: args.checks, timeout: global.timeout };
    let under_way = Arc::new(url::Run::default());
    let so_far = || under_way.tally(|tally| (tally.answered(), tally.failed()));
    let elapsed = tokio::select! {
        elapsed = url::run(&under_way, plan, targets) => elapsed,
        never = watch("answers", so_far, || under_way.stop(), args.checks) => match never {},
    };
    let tally = under_way.tally(std::mem::take);
    show(global.output, &BenchUrlView { url, callers, ..Default::default() }.measured(&tally, elapsed))?;
    match tally.failures.keys().next() {
        Some(kind) if tally.answered() == 0 => Err(Failure::new(Code::Unreachable, format!("no answer came: {kind}"))),
        _ => Ok(Code::Ok),
    }
}

async fn bench(global: &Global, policy: String, args: &BenchArgs) -> Outcome {
    let unbounded = args.duration.is_none() && args.checks.is_none();
    let plan = Plan {
        callers: args.callers as usize,
        batch: args.batch as usize,
        rate: args.rate,
        duration: if unbounded { Some(Duration::from_secs(10)) } else { args.duration },
        checks: args.checks,
    };
    let others = || args.cpu_of.iter().map(|pid| cpu_of(*pid)).sum::<Result<Duration, Failure>>();
    let asker = connect::Asker::connect(global, &policy, args.cost).await?;
    let under_way = Arc::new(Run::default());
    let (own_before, others_before) = (cpu::own(), others()?);
    let keys = |caller: usize| {
        Keys::new(&args.key_prefix, args.keys, args.distribution, args.skew, args.seed.wrapping_add(caller as u64))
    };
    let elapsed = tokio::select! {
        elapsed = load::run(&under_way, &plan, asker.clone(), keys) => elapsed,
        never = watch("decisions", || under_way.tallies.so_far(), || under_way.stop(), plan.checks) => match never {},
    };
    let (own, others) = (cpu::own().saturating_sub(own_before), others()?.saturating_sub(others_before));
    let tally = under_way.tallies.total();
    let view = BenchView {
        policy,
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
async fn watch(
    what: &str,
    so_far: impl Fn() -> (u64, u64),
    stop: impl Fn(),
    most: Option<u64>,
) -> std::convert::Infallible {
    let bar = if std::io::stderr().is_terminal() { ProgressBar::new_spinner() } else { ProgressBar::hidden() };
    bar.set_style(ProgressStyle::with_template("{elapsed} {msg}").unwrap_or_else(|_| ProgressStyle::default_spinner()));
    let mut every = tokio::time::interval(Duration::from_millis(500));
    let mut before = 0;
    loop {
        tokio::select! {
            _ = every.tick() => {}
            interrupted = tokio::signal::ctrl_c() => {
                if interrupted.is_ok() {
                    stop();
                }
            }
        }
        let (done, failed) = so_far();
        let of = most.map_or(String::new(), |most| format!(" of {}", count(most)));
        bar.set_message(format!(
            "{} {what}{of}, {}/s, {} failed",
            count(done),
            count((done - before) * 2),
            count(failed)
        ));
        before = done;
    }
}
