//! The commands, one a file.

pub mod backtest;
pub mod bench;
pub mod check;
pub mod cluster;
pub mod completions;
pub mod policy;
pub mod reset;
pub mod version;

use std::future::Future;

use crate::args::{Cli, Command, Global};
use crate::exit::{Code, Failure, Outcome};
use crate::output::Format;

/// Runs one command.
///
/// # Errors
/// Whatever made it fail, with the exit code that says so.
pub fn run(cli: Cli) -> Outcome {
    let Cli { global, command } = cli;
    if global.output == Format::Jsonl && !matches!(command, Command::Backtest(_)) {
        return Err(Failure::usage("--output jsonl is for backtest; here it is table or json"));
    }
    let named = match &command {
        Command::Cluster(cluster::ClusterCommand::Init(_)) => true,
        Command::Bench(args) => args.asks_a_service() || global.endpoints.is_some(),
        _ => global.endpoints.is_some(),
    };
    dispatch(&global, command).map_err(|mut failure| {
        if failure.code == Code::Unreachable && !named {
            failure.message +=
                "\n`quorated dev` starts a cluster on this machine; --endpoints names the nodes of another";
        }
        failure
    })
}

fn dispatch(global: &Global, command: Command) -> Outcome {
    match command {
        Command::Check(args) => on_runtime(check::run(global, args, false)),
        Command::Peek(args) => on_runtime(check::run(global, args, true)),
        Command::Reset(args) => on_runtime(reset::run(global, args)),
        Command::Policy(command) => policy::run(global, command),
        Command::Cluster(command) => on_runtime(cluster::run(global, command)),
        Command::Backtest(args) => backtest::run(global, args),
        Command::Bench(args) => bench::run(global, args),
        Command::Completions(args) => completions::run(args),
        Command::Version => version::run(global),
    }
}

/// Runs a command that talks to a cluster.
pub(crate) fn on_runtime(command: impl Future<Output = Outcome>) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| Failure::failed(format!("cannot start: {error}")))?.block_on(command)
}
