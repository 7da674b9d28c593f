//! The operator's and the newcomer's tool for Quorate, as a library, so that tests reach every part of it.
//!
//! One file per command in [`commands`]; what they show is plain data in [`views`], rendered by pure functions. Talks to a
//! cluster through its public interface only. Nothing here decides a limit: `backtest` runs the core.

pub mod args;
pub mod backtest;
pub mod bench;
mod caps;
pub mod commands;
mod connect;
pub mod endpoints;
pub mod exit;
pub mod human;
pub mod output;
pub mod policies;
pub mod views;

use std::process::ExitCode;

use clap::Parser as _;

use crate::args::Cli;
use crate::exit::Code;

/// Runs the tool on this process's arguments.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
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

/// Help that was asked for, or what is wrong with the command line. That nobody reads it is no error.
fn usage(error: &clap::Error) -> ExitCode {
    if error.use_stderr() {
        // Without colours: it quotes what was typed or set, and what hides in that must not pass for one of them.
        error.render().to_string().lines().for_each(output::note);
    } else {
        let _ = error.print();
    }
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(Code::Usage as u8))
}
