//! The command line of `quorate`.

use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use quorate_core::Span;

use crate::commands;
use crate::endpoints::Endpoints;
use crate::exit;
use crate::output::Format;

/// Asks and operates a Quorate cluster.
#[derive(Debug, Parser)]
#[command(name = "quorate", version, about, after_help = exit::HELP, max_term_width = 110)]
#[command(propagate_version = false, subcommand_required = true, arg_required_else_help = true)]
pub struct Cli {
    /// Options of every command.
    #[command(flatten)]
    pub global: Global,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Options of every command.
#[derive(Clone, Debug, Args)]
pub struct Global {
    /// Nodes of the cluster, if any were named.
    #[arg(
        long,
        global = true,
        help_heading = COMMON,
        value_name = "NODES",
        env = "QUORATE_ENDPOINTS",
        hide_env_values = true,
        help = format!("Nodes of the cluster, host:port,host:port; a port alone means the host before it [default: {DEFAULT_ENDPOINTS}]")
    )]
    pub endpoints: Option<Endpoints>,
    /// How long to wait for the answer
    #[arg(long, global = true, help_heading = COMMON, value_name = "SPAN", env = "QUORATE_TIMEOUT", default_value = "10s", value_parser = duration, hide_env_values = true)]
    pub timeout: Duration,
    /// How to write data to standard output; everything else goes to standard error
    #[arg(short, long, global = true, help_heading = COMMON, value_enum, value_name = "FORMAT", default_value_t)]
    pub output: Format,
}

/// Over the options that every command has.
const COMMON: &str = "Common options";

/// Where `quorated dev` runs its nodes.
const DEFAULT_ENDPOINTS: &str = "127.0.0.1:7600,7601,7602";

impl Global {
    /// `host:port` of the nodes to ask: those named, else those of `quorated dev`.
    pub fn nodes(&self) -> Vec<String> {
        let default = || DEFAULT_ENDPOINTS.parse().expect("the default is well formed");
        self.endpoints.clone().unwrap_or_else(default).iter().map(str::to_string).collect()
    }
}

/// What `quorate` can do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Ask a limit, and charge it if it grants
    Check(commands::check::CheckArgs),
    /// Ask a limit, and charge nothing
    Peek(commands::check::CheckArgs),
    /// Make a key as good as new
    Reset(commands::reset::ResetArgs),
    /// Look at policies, and change them
    #[command(subcommand)]
    Policy(commands::policy::PolicyCommand),
    /// Make a cluster, and see how it is
    #[command(subcommand)]
    Cluster(commands::cluster::ClusterCommand),
    /// Run a recorded trace through policies, offline
    Backtest(commands::backtest::BacktestArgs),
    /// Put load on a cluster and measure it
    Bench(commands::bench::BenchArgs),
    /// Print a script that completes this tool's command line
    Completions(commands::completions::CompletionsArgs),
    /// Print this tool's version
    Version,
}

/// A span such as `250ms`, `10s`, `5m`; not zero.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let span = span(text)?;
    if span.0 == 0 { Err("must be more than zero".into()) } else { Ok(Duration::from_micros(span.0.unsigned_abs())) }
}

/// A span such as `250ms`, `10s`, `5m`, or `0s`.
pub(crate) fn span(text: &str) -> Result<Span, String> {
    Span::parse(text).map_err(|error| error.to_string())
}
