//! Every line of every trace under `vectors/` gets exactly the answer that stands beside it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};

use quorate_cli::backtest::{self, BacktestArgs, Output};
use serde_json::Value;

fn folders() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors");
    let mut folders: Vec<_> =
        fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()).collect();
    folders.sort();
    folders
}

/// Fields whose absence is part of the answer.
const TELLING: [&str; 4] = ["retry_after_us", "delay_us", "shadow_denied", "limits"];

/// Where `got` is not the answer `want`, if anywhere.
fn differs(got: &Value, want: &Value) -> Option<String> {
    match (got, want) {
        (Value::Object(got), Value::Object(want)) => {
            if let Some(extra) = TELLING.iter().find(|field| got.contains_key(**field) && !want.contains_key(**field)) {
                return Some(format!("has {extra}"));
            }
            want.iter().find_map(|(name, want)| match got.get(name) {
                Some(got) => differs(got, want).map(|why| format!("{name}: {why}")),
                None => Some(format!("has no {name}")),
            })
        }
        (Value::Array(got), Value::Array(want)) if got.len() == want.len() => got
            .iter()
            .zip(want)
            .enumerate()
            .find_map(|(i, (got, want))| differs(got, want).map(|why| format!("[{i}] {why}"))),
        _ => (got != want).then(|| format!("is {got}, has to be {want}")),
    }
}

#[test]
fn every_line_of_every_trace_is_answered_exactly() {
    let mut lines = 0;
    for folder in folders() {
        let name = folder.file_name().unwrap().to_str().unwrap();
        let (policies, trace) = (folder.join("policies.toml"), folder.join("trace.jsonl"));
        let mut out = Vec::new();
        let done = backtest::run(&BacktestArgs { policies, trace, output: Output::Jsonl }, &mut out);
        let out = String::from_utf8(out).unwrap();
        let got: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let events = fs::read_to_string(folder.join("trace.jsonl")).unwrap();
        let expect = fs::read_to_string(folder.join("expect.jsonl")).unwrap();
        for (i, ((got, want), event)) in got.iter().zip(expect.lines()).zip(events.lines()).enumerate() {
            let why = differs(got, &serde_json::from_str(want).unwrap());
            assert!(why.is_none(), "{name} line {i}: {}\n  event {event}\n  got   {got}\n  want  {want}", why.unwrap());
            lines += 1;
        }
        assert!(done.is_ok(), "{name}: {}", done.unwrap_err());
        assert_eq!(got.len(), expect.lines().count(), "{name}: every event has an answer");
    }
    assert!(lines >= 3000, "only {lines} lines were found");
}

#[test]
fn the_summary_of_a_trace_adds_up() {
    for folder in folders() {
        let (policies, trace) = (folder.join("policies.toml"), folder.join("trace.jsonl"));
        let mut out = Vec::new();
        let args = BacktestArgs { policies, trace, output: Output::Json };
        backtest::run(&args, &mut out).unwrap();
        let summary: Value = serde_json::from_slice(&out).unwrap();
        for row in summary["policies"].as_array().unwrap() {
            let count = |name: &str| row[name].as_u64().unwrap();
            assert_eq!(count("asked"), count("granted") + count("denied") + count("denied_elsewhere"), "{row}");
        }
        backtest::run(&BacktestArgs { output: Output::Table, ..args }, &mut out).unwrap();
    }
}
