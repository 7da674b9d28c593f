//! `quorate backtest`.

use std::io::ErrorKind;
use std::path::PathBuf;

use clap::Args;

use crate::args::Global;
use crate::backtest::{self, BacktestError, Output};
use crate::exit::{Code, Failure, Outcome};
use crate::output::Format;

/// What `backtest` takes.
#[derive(Debug, Args)]
#[command(after_help = "The trace has one JSON object a line:
  {\"at_us\": 0, \"policy\": \"per-user\", \"key\": \"alice\", \"cost\": 2}      a check (also: \"peek\", \"max_delay_us\")
  {\"at_us\": 0, \"limits\": [{\"policy\": …, \"key\": …, \"cost\": …}, …]}     a check of several limits
  {\"at_us\": 0, \"refund\": 17}                                          undoes the check on line 17, counted from 0
  {\"at_us\": 0, \"apply\": {\"name\": …, \"algorithm\": …, …}}               puts a policy in force
Logical time never goes back: an earlier at_us counts as the last one. Costs and applied limits may go up to
4000000000000, as far as the arithmetic is exact; a cluster takes a quarter of that. A charge is undone once: a
second refund of it answers false. --output jsonl prints every answer.")]
pub struct BacktestArgs {
    /// The policies in force at the trace's start
    #[arg(long, value_name = "FILE")]
    policies: PathBuf,
    /// The trace: JSON lines
    #[arg(long, value_name = "FILE")]
    trace: PathBuf,
}

/// Runs the trace.
///
/// # Errors
/// A file cannot be read, or says what cannot be run.
pub fn run(global: &Global, args: BacktestArgs) -> Outcome {
    let output = match global.output {
        Format::Table => Output::Table,
        Format::Json => Output::Json,
        Format::Jsonl => Output::Jsonl,
    };
    let args = backtest::BacktestArgs { policies: args.policies, trace: args.trace, output };
    match backtest::run(&args, &mut std::io::stdout().lock()) {
        Ok(()) => Ok(Code::Ok),
        Err(BacktestError::Write(error)) if error.kind() == ErrorKind::BrokenPipe => Ok(Code::Ok),
        Err(error) => Err(Failure::failed(error)),
    }
}
