//! The command line, text in, text out: what needs no cluster. Each file of `tests/golden` shows one command with its exit
//! code and both outputs; `BLESS=1 cargo test -p quorate-cli --test golden` writes them anew.

#![allow(clippy::unwrap_used)]

use std::path::PathBuf;
use std::process::{Command, Stdio};

use quorate_core::visible;

/// Runs `quorate` in `tests/golden` and compares.
fn check(name: &str, args: &[&str]) {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let output = Command::new(env!("CARGO_BIN_EXE_quorate"))
        .args(args)
        .current_dir(&folder)
        .env_clear()
        .env("COLUMNS", "100")
        .stdin(Stdio::null())
        .output()
        .expect("quorate can be started");
    let words: Vec<String> =
        args.iter().map(|arg| if arg.contains(' ') { format!("'{arg}'") } else { visible::line(arg).into() }).collect();
    let shown = format!(
        "$ quorate {}\nexit {}\n---- stdout\n{}---- stderr\n{}",
        words.join(" "),
        output.status.code().expect("it ended by itself"),
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    let file = folder.join(format!("{name}.txt"));
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&file, &shown).expect("the golden file can be written");
    }
    let golden = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(golden == shown, "{} differs; bless it with BLESS=1 if this is right:\n{shown}", file.display());
}

#[test]
fn help_of_everything() {
    check("help", &["--help"]);
    for command in ["check", "peek", "reset", "policy", "cluster", "backtest", "bench", "completions"] {
        check(&format!("help-{command}"), &[command, "--help"]);
    }
    check("help-policy-apply", &["policy", "apply", "--help"]);
    check("help-cluster-init", &["cluster", "init", "--help"]);
}

#[test]
fn wrong_usage() {
    check("usage-no-command", &[]);
    check("usage-unknown-command", &["chekc", "a", "b"]);
    check("usage-cost", &["check", "per-user", "alice", "--cost", "many"]);
    check("usage-also", &["check", "per-user", "alice", "--also", "login"]);
    check("usage-timeout", &["check", "per-user", "alice", "--timeout", "0s"]);
    check("usage-max-delay", &["check", "per-user", "alice", "--max-delay", "fast"]);
    check("usage-endpoints", &["cluster", "status", "--endpoints", "localhost"]);
    check("usage-jsonl", &["-o", "jsonl", "version"]);
    check("usage-replicas", &["cluster", "init", "--nodes", "a:1,b:1", "--replicas", "3"]);
    check("usage-nodes-twice", &["cluster", "init", "--nodes", "a:1,b:1,a:1"]);
    check("usage-terminal", &["check", "p", "k", "--cost", "\u{1b}[31m1\u{7}\u{202e}"]);
    check("usage-bench", &["bench", "--policy", "p", "--callers", "0"]);
}

#[test]
fn version() {
    check("version", &["version"]);
    check("version-json", &["version", "-o", "json"]);
}

#[test]
fn a_policy_file_is_validated() {
    check("validate-good", &["policy", "validate", "-f", "../../../../deploy/starter-policies.toml"]);
    check("validate-good-json", &["policy", "validate", "-f", "one.toml", "-o", "json"]);
    check("validate-bad", &["policy", "validate", "-f", "bad.toml"]);
    check("validate-empty", &["policy", "validate", "-f", "-"]);
    check("validate-terminal", &["policy", "validate", "-f", "terminal.toml"]);
    check("validate-not-utf8", &["policy", "validate", "-f", "latin1.toml"]);
    check("validate-missing", &["policy", "validate", "-f", "nowhere.toml"]);
    check("apply-empty", &["policy", "apply", "--prune", "-f", "-"]);
    check("apply-bad", &["policy", "apply", "-f", "bad.toml"]);
}

#[test]
fn a_trace_is_run() {
    for format in ["table", "json", "jsonl"] {
        let args = ["backtest", "--policies", "one.toml", "--trace", "trace.jsonl", "--output", format];
        check(&format!("backtest-{format}"), &args);
    }
    check("backtest-bad", &["backtest", "--policies", "one.toml", "--trace", "one.toml"]);
}

#[test]
fn nobody_there() {
    // Nothing can listen on port 1 without being root, and nothing does.
    check("unreachable", &["cluster", "status", "--endpoints", "127.0.0.1:1"]);
    check("unreachable-check", &["check", "per-user", "alice", "--endpoints", "127.0.0.1:1"]);
    check("unreachable-policy", &["policy", "ls", "--endpoints", "127.0.0.1:1,2"]);
    check("unreachable-init", &["cluster", "init", "--nodes", "127.0.0.1:1"]);
}

/// Whoever reads the output may stop early: `quorate … | head`.
#[test]
fn a_closed_pipe_is_no_error() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_quorate"))
        .args(["completions", "bash"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("quorate can be started");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("quorate ends");
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()), (Some(0), ""));
}

#[test]
fn every_shell_has_completions() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = Command::new(env!("CARGO_BIN_EXE_quorate"))
            .args(["completions", shell])
            .output()
            .expect("quorate can be started");
        assert!(output.status.success() && String::from_utf8_lossy(&output.stdout).contains("backtest"), "{shell}");
    }
}
