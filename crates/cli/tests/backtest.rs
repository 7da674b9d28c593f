//! What `quorate backtest` says of traces and policies that cannot be run, and what it sums up of those that can.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;

use quorate_cli::backtest::{self, BacktestArgs, Output};

const POLICIES: &str = r#"
[[policy]]
name = "user"
algorithm = "fixed_window"
limit = 2
window = "1s"
max_cost = 10

[[policy]]
name = "tenant"
algorithm = "fixed_window"
limit = 3
window = "1s"
"#;

fn backtest(policies: &str, trace: &[u8], output: Output) -> (String, Option<String>) {
    let folder = tempfile::tempdir().unwrap();
    let args = BacktestArgs { policies: folder.path().join("p.toml"), trace: folder.path().join("t.jsonl"), output };
    fs::write(&args.policies, policies).unwrap();
    fs::write(&args.trace, trace).unwrap();
    let mut out = Vec::new();
    let done = backtest::run(&args, &mut out);
    let here = format!("{}/", folder.path().display());
    (String::from_utf8(out).unwrap(), done.err().map(|error| error.to_string().replace(&here, "")))
}

#[test]
fn a_line_that_cannot_be_run_is_named_by_file_and_line_after_the_answers_before_it() {
    let good = r#"{"at_us": 0, "policy": "user", "key": "k"}"#;
    let twice = r#"{"at_us": 0, "limits": [{"policy": "tenant", "key": "k", "cost": 1000000000000}, {"policy": "tenant", "key": "k"}]}"#;
    for (bad, says) in [
        ("{", "t.jsonl:2: not JSON: EOF while parsing an object (column 1)"),
        (
            r#"{"at_us": 0, "policy": "usr", "key": "k"}"#,
            "t.jsonl:2: there is no policy \"usr\" in force here; there are user, tenant",
        ),
        (
            r#"{"at_us": 0, "policy": "user", "key": "k", "cost": 11}"#,
            "t.jsonl:2: the cost 11 is above the policy's max_cost 10",
        ),
        (
            r#"{"at_us": 0, "refund": 1}"#,
            "t.jsonl:2: refund names line 1, counted from 0; this is line 1: name an earlier one",
        ),
        (
            r#"{"at_us": 0, "apply": {"name": "user", "algorithm": "fixed_window", "limit": 1}}"#,
            "t.jsonl:2: apply: the policy has no window",
        ),
        (twice, "t.jsonl:2: the costs of one limit add up to more than 1000000000000"),
    ] {
        let (out, error) = backtest(POLICIES, format!("{good}\n{bad}\n{good}\n").as_bytes(), Output::Jsonl);
        let error = error.unwrap();
        assert!(error.starts_with(says), "{bad}: {error}");
        assert_eq!(out.lines().count(), 1, "{bad}");
    }
    let (_, error) = backtest(POLICIES, b"{\"at_us\": 0, \"policy\": \"\xff\"}\n", Output::Jsonl);
    assert_eq!(error.unwrap(), "t.jsonl:1: byte 25 of the line is 0xff, which is not UTF-8; save the file as UTF-8");
    let (_, error) = backtest("# a\n# b\n", b"{\"at_us\": 0}\n", Output::Jsonl);
    assert!(error.unwrap().starts_with("t.jsonl:1: the check has no policy"));
    let (_, error) = backtest(POLICIES, &vec![b' '; 2 << 20], Output::Jsonl);
    assert_eq!(error.unwrap(), "t.jsonl:1: the line is longer than 1048576 bytes");
}

#[test]
fn a_last_line_without_an_end_and_empty_lines_are_fine() {
    let trace = b"{\"at_us\": 0, \"policy\": \"user\", \"key\": \"k\"}\n\n{\"at_us\": 0, \"refund\": 0}";
    let (out, error) = backtest(POLICIES, trace, Output::Jsonl);
    assert_eq!((out.lines().count(), error), (2, None));
}

#[test]
fn a_charge_is_refunded_once() {
    let check = |key: &str| format!(r#"{{"at_us": 0, "policy": "user", "key": "{key}", "cost": 2}}"#);
    let refund = |line: usize| format!(r#"{{"at_us": 0, "refund": {line}}}"#);
    // A charge, one that is denied, and refunds of both; then the key has room for one charge again, not for two.
    let trace = [check("k"), check("k"), refund(0), refund(0), refund(1), check("k"), check("k"), refund(0)];
    let (out, error) = backtest(POLICIES, trace.join("\n").as_bytes(), Output::Jsonl);
    assert_eq!(error, None);
    let told: Vec<serde_json::Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let refunds: Vec<_> = [2, 3, 4, 7].map(|line: usize| told[line]["refunded"].as_bool().unwrap()).to_vec();
    assert_eq!(refunds, [true, false, true, false], "{out}");
    let allowed: Vec<_> = [0, 1, 5, 6].map(|line: usize| told[line]["allowed"].as_bool().unwrap()).to_vec();
    assert_eq!(allowed, [true, false, true, false], "{out}");
}

#[test]
fn a_field_given_twice_is_refused_by_line() {
    let trace = b"{\"at_us\": 0, \"policy\": \"user\", \"key\": \"a\"}\n{\"at_us\": 0, \"policy\": \"user\", \"key\": \"a\", \"key\": \"b\"}\n";
    let (out, error) = backtest(POLICIES, trace, Output::Jsonl);
    assert_eq!(
        (out.lines().count(), error.unwrap().as_str()),
        (1, "t.jsonl:2: the field \"key\" is given twice (column 48)")
    );
}

#[test]
fn policies_that_are_no_text_are_told_by_line() {
    let folder = tempfile::tempdir().unwrap();
    let args = BacktestArgs { policies: folder.path().join("p.toml"), trace: "t".into(), output: Output::Jsonl };
    fs::write(&args.policies, b"[[policy]]\nname = \"\xe9\"\n").unwrap();
    let error = backtest::run(&args, &mut Vec::new()).unwrap_err().to_string();
    assert!(
        error.ends_with("p.toml:2: byte 9 of the line is 0xe9, which is not UTF-8; save the file as UTF-8"),
        "{error}"
    );
}

#[test]
fn keys_cannot_command_a_terminal() {
    let trace = [r#"{"at_us": 0, "policy": "user", "key": "\u001b[2J", "cost": 9}"#; 1];
    let (table, error) = backtest(POLICIES, trace[0].as_bytes(), Output::Table);
    assert!(error.is_none() && table.contains("\"\\u001b[2J\" 1") && !table.contains('\u{1b}'), "{table}");
}

#[test]
fn another_algorithm_is_warned_of() {
    let apply = |rest: &str| format!(r#"{{"at_us": 0, "apply": {{"name": "user", {rest}}}}}"#);
    let same = apply(r#""algorithm": "fixed_window", "limit": 1, "window": "1s""#);
    let other = apply(r#""algorithm": "sliding_log", "limit": 1, "window": "1s""#);
    let (out, error) = backtest(POLICIES, format!("{same}\n{other}\n").as_bytes(), Output::Jsonl);
    assert_eq!(error, None);
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines[0], r#"{"applied":true}"#);
    assert!(lines[1].contains("fixed_window to sliding_log: every key of it starts as good as new"), "{out}");
}

#[test]
fn policies_with_mistakes_are_told_all_at_once() {
    let (_, error) = backtest("[[policy]]\nname = \"p\"\nalgorithm = \"fixed\"\n[[policy]]\n", b"", Output::Table);
    let error = error.unwrap();
    assert_eq!(error.lines().count(), 3, "{error}");
    assert!(error.lines().all(|line| line.starts_with("p.toml:")), "{error}");
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let args =
        BacktestArgs { policies: "/nowhere/p.toml".into(), trace: "/nowhere/t.jsonl".into(), output: Output::Json };
    let error = backtest::run(&args, &mut Vec::new()).unwrap_err();
    assert!(error.to_string().starts_with("/nowhere/p.toml cannot be read: "), "{error}");
    let policies = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/one.toml").into();
    let args = BacktestArgs { policies, trace: "/no\nwhere\u{1b}".into(), output: Output::Json };
    let error = backtest::run(&args, &mut Vec::new()).unwrap_err();
    assert!(error.to_string().starts_with("/no\\nwhere\\u001b cannot be read: "), "{error}");
}

#[test]
fn the_summary_says_who_was_denied_and_by_what() {
    let check = |key: &str| {
        format!(
            r#"{{"at_us": 0, "limits": [{{"policy": "user", "key": "{key}"}}, {{"policy": "tenant", "key": "t"}}]}}"#
        )
    };
    let trace: Vec<String> = ["a", "a", "a", "a", "b", "b"].iter().map(|key| check(key)).collect();
    let (out, error) = backtest(POLICIES, trace.join("\n").as_bytes(), Output::Json);
    assert_eq!(error, None);
    let summary: serde_json::Value = serde_json::from_str(&out).unwrap();
    let user = serde_json::json!({
        "policy": "user", "mode": "enforce", "asked": 6, "granted": 3, "denied": 2, "denied_elsewhere": 1,
        "keys_denied": 1, "most_denied": [{"key": "a", "denied": 2}],
    });
    let tenant = serde_json::json!({
        "policy": "tenant", "mode": "enforce", "asked": 6, "granted": 3, "denied": 1, "denied_elsewhere": 2,
        "keys_denied": 1, "most_denied": [{"key": "t", "denied": 1}],
    });
    assert_eq!(summary, serde_json::json!({ "policies": [user, tenant] }));
    let (table, _) = backtest(POLICIES, trace.join("\n").as_bytes(), Output::Table);
    assert!(table.contains("denied elsewhere") && table.contains("\"a\" 2"), "{table}");
}
