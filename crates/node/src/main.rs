//! `quorated`: a node, the cluster for one machine, and what can be done with a node's files while it is down.
//!
//! This file only picks the command and turns its end into an exit code: 0 ended as asked, 1 failed, 2 wrong usage or
//! settings. Whatever goes wrong is one line on standard error (settings: one for each problem).

mod args;
mod daemon;
mod dev;
mod dump;
mod observe;

use std::fmt;
use std::io::Write as _;
use std::process::ExitCode;

use quorate_core::visible;

/// glibc's keeps what a spike of keys took for good; this one gives it back, and costs less CPU time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Why the process ends with another code than 0.
#[derive(Debug)]
pub(crate) struct Failure {
    code: u8,
    message: String,
}

impl Failure {
    /// It was asked rightly and did not work.
    pub(crate) fn failed(message: impl fmt::Display) -> Failure {
        Failure { code: 1, message: message.to_string() }
    }

    /// It was asked wrongly.
    pub(crate) fn usage(message: impl fmt::Display) -> Failure {
        Failure { code: 2, message: message.to_string() }
    }
}

fn main() -> ExitCode {
    let matches = match args::command().try_get_matches() {
        Ok(matches) => matches,
        Err(error) => return usage(&error),
    };
    let done = match matches.subcommand() {
        Some(("dev", matches)) => dev::run(matches),
        Some(("log", matches)) => match matches.subcommand() {
            Some(("dump", matches)) => dump::run(matches),
            _ => Err(Failure::usage("log: name what to do; `quorated log --help` lists it")),
        },
        _ => daemon::run(&matches),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            for line in failure.message.lines() {
                complain(line);
            }
            ExitCode::from(failure.code)
        }
    }
}

/// Help that was asked for, or what is wrong with the command line. That nobody reads it is no error.
fn usage(error: &clap::Error) -> ExitCode {
    if error.use_stderr() {
        // Without colours: it quotes what was typed or set, and what hides in that must not pass for one of them.
        let _ = write!(std::io::stderr().lock(), "{}", visible::lines(&error.render().to_string()));
    } else {
        let _ = error.print();
    }
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
}

/// A line for the operator, on standard error, with what a terminal would obey written out. If nobody reads it any more, it is
/// dropped.
pub(crate) fn complain(line: impl fmt::Display) {
    let _ = writeln!(std::io::stderr().lock(), "quorated: {}", visible::line(&line.to_string()));
}
