//! The operator's and the newcomer's tool for Quorate, as a library, so that tests reach every part of it.
//!
//! One file per command in [`commands`]; what they show is plain data in [`views`], rendered by pure functions. Talks to a
//! cluster through its public interface only. Nothing here decides a limit: `backtest` runs the core.

pub mod args;
pub mod backtest;
pub mod bench;
pub mod commands;
mod connect;
pub mod endpoints;
pub mod exit;
pub mod human;
pub mod output;
pub mod views;

use std::process::ExitCode;

use clap::Parser as _;

use crate::args::Cli;

/// Runs the tool on this process's arguments.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let code = match commands::run(cli) {
        Ok(code) => code,
        Err(failure) => {
            for line in failure.message.lines() {
                output::note(&format!("quorate: {line}"));
            }
            failure.code
        }
    };
    ExitCode::from(code as u8)
}
