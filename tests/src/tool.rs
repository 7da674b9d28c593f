//! The shipped programs run to their end, and what they printed.

use std::ffi::OsStr;
use std::process::Stdio;

use crate::command;

/// What a program left behind.
#[derive(Debug)]
pub struct Ended {
    /// Its exit code.
    pub code: i32,
    /// What it printed as data.
    pub stdout: String,
    /// What else it said.
    pub stderr: String,
}

impl Ended {
    /// Its data, read as JSON.
    ///
    /// # Panics
    ///
    /// When it is none.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("no JSON ({error}) in {self:?}"))
    }
}

/// Runs a program to its end, with nothing of the environment that could change what it does.
pub fn run<A: AsRef<OsStr>>(program: &str, arguments: impl IntoIterator<Item = A>) -> Ended {
    let output =
        command(program).args(arguments).stdin(Stdio::null()).output().expect("a program that was built can be run");
    Ended {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}
