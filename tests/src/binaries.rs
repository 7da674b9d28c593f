//! The shipped programs, built once for the tests of this run.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// Where cargo put the program of that name, or the example: built in the tests' own profile, and with all that ships and its
/// examples, as `cargo test` has built them already.
///
/// # Panics
///
/// When it does not build: there is nothing to test then.
fn binary(name: &str) -> PathBuf {
    static BUILT: OnceLock<BTreeMap<String, PathBuf>> = OnceLock::new();
    let built = BUILT.get_or_init(build);
    built.get(name).unwrap_or_else(|| panic!("cargo built no program `{name}`")).clone()
}

/// The program of that name, to be run with what the test says alone: the surroundings' settings are not its own.
pub fn command(name: &str) -> Command {
    let mut command = Command::new(binary(name));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("QUORATE_")) {
        command.env_remove(name);
    }
    command
}

fn build() -> BTreeMap<String, PathBuf> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args([
        "build",
        "--message-format=json-render-diagnostics",
        "--workspace",
        "--exclude=quorate-sim",
        "--exclude=quorate-bench",
        "--exclude=quorate-peers",
        "--bins",
        "--examples",
    ]);
    cargo.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    if !cfg!(debug_assertions) {
        cargo.arg("--release");
    }
    let output = cargo.stderr(Stdio::inherit()).output().expect("cargo, which runs this test, can be run");
    assert!(output.status.success(), "the programs under test do not build");
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().filter_map(program).collect()
}

/// The name and path in one line of cargo's messages, if it tells of a program.
fn program(line: &str) -> Option<(String, PathBuf)> {
    let message: serde_json::Value = serde_json::from_str(line).ok()?;
    let path = message.get("executable")?.as_str()?;
    let name = message.get("target")?.get("name")?.as_str()?;
    Some((name.to_owned(), PathBuf::from(path)))
}
