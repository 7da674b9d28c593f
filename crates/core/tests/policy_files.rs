//! Policy files with mistakes, and what is said of them: `policy_files/*.toml` beside `*.txt`.
//!
//! `QUORATE_BLESS=1 cargo test -p quorate-core --test policy_files` writes the texts anew, to be read before they are committed.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;

use proptest::prelude::*;
use quorate_core::{Algorithm, Cost, Mode, OnFull, OnUnavailable, Policy, Rate, Span, caps, policy_file};

#[test]
fn mistakes_are_told_all_at_once_with_file_line_and_what_is_allowed() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/policy_files");
    let mut seen = 0;
    for entry in fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "toml") {
            continue;
        }
        seen += 1;
        let name = path.file_name().unwrap().to_str().unwrap();
        let problems = policy_file::parse(&fs::read_to_string(&path).unwrap(), name).unwrap_err();
        let said: String = problems.iter().map(|problem| format!("{problem}\n")).collect();
        let golden = path.with_extension("txt");
        if std::env::var_os("QUORATE_BLESS").is_some() {
            fs::write(&golden, &said).unwrap();
        }
        assert_eq!(said, fs::read_to_string(&golden).unwrap(), "{name}; QUORATE_BLESS=1 writes the text anew");
    }
    assert_eq!(seen, 3);
}

fn said(text: &str) -> Vec<String> {
    policy_file::parse(text, "p.toml").unwrap_err().iter().map(ToString::to_string).collect()
}

#[test]
fn too_many_policies_are_one_mistake_and_none_of_them_is_read() {
    let many = |count: usize| "[[policy]]\nlimit = -1\n".repeat(count);
    assert_eq!(said(&many(caps::POLICIES + 1)), ["p.toml:1: the file has 4097 policies; allowed are 4096"]);
    assert_eq!(said(&many(caps::POLICIES)).len(), caps::MISTAKES_TOLD + 1);
}

#[test]
fn the_same_mistake_is_told_once_and_mistakes_end() {
    let deep = said(&"[".repeat(200_000));
    assert!((1..=2).contains(&deep.len()) && deep[0].starts_with("p.toml:1: not TOML: "), "{deep:?}");
    let wrong: Vec<String> = said(&"[[policy]]\n".repeat(100));
    assert_eq!(wrong.len(), caps::MISTAKES_TOLD + 1);
    assert_eq!(wrong[2], "p.toml:2: the policy has no name");
    assert_eq!(wrong.last().unwrap(), "p.toml:26: and 150 more mistakes");
}

#[test]
fn a_policy_with_a_horde_of_fields_is_one_mistake() {
    let fields: String = (0..10_000).map(|i| format!("f{i} = 1\n")).collect();
    assert_eq!(
        said(&format!("[[policy]]\n{fields}")),
        ["p.toml:1: the policy has 10000 fields; no policy has more than 64"]
    );
}

#[test]
fn what_a_terminal_would_obey_is_written_out_and_reads_back() {
    let mut policy = Policy::new("p", Algorithm::FixedWindow { limit: 1, window: Span(1_000_000) });
    policy.description = "\u{1b}]0;t\u{7} \"a\\b\" \u{9b}\u{202e}\u{e0041}\r\n\t'''é".into();
    let text = policy_file::to_toml(std::slice::from_ref(&policy));
    assert!(text.chars().all(|c| c == '\n' || c == 'é' || (' '..='~').contains(&c)), "{text}");
    assert_eq!(policy_file::parse(&text, "p.toml"), Ok(vec![policy]), "{text}");
}

fn spans() -> impl Strategy<Value = Span> {
    prop_oneof![
        (caps::SPAN_MIN_US..=caps::SPAN_MAX_US).prop_map(Span),
        prop_oneof![Just("1ms"), Just("250ms"), Just("10s"), Just("5m"), Just("1h"), Just("1d"), Just("366d")]
            .prop_map(|text| Span::parse(text).unwrap()),
    ]
}

fn algorithms() -> impl Strategy<Value = Algorithm> {
    let rates = || (1..=caps::UNITS, spans()).prop_map(|(units, period)| Rate { units, period });
    prop_oneof![
        (0..=caps::UNITS, spans()).prop_map(|(limit, window)| Algorithm::FixedWindow { limit, window }),
        (0..=caps::SLIDING_LOG_LIMIT, spans()).prop_map(|(limit, window)| Algorithm::SlidingLog { limit, window }),
        (0..=caps::UNITS, spans()).prop_map(|(limit, window)| Algorithm::SlidingCounter { limit, window }),
        (0..=caps::UNITS, rates()).prop_map(|(capacity, refill)| Algorithm::TokenBucket { capacity, refill }),
        (0..=caps::UNITS, rates()).prop_map(|(queue, rate)| Algorithm::LeakyBucket { queue, rate }),
    ]
}

fn policies() -> impl Strategy<Value = Policy> {
    let modes = prop_oneof![Just(Mode::Enforce), Just(Mode::Shadow), Just(Mode::Disabled)];
    let unavailable = prop_oneof![
        Just(OnUnavailable::FailClosed),
        Just(OnUnavailable::FailOpen),
        prop::option::of(1..=1_000_000_u32).prop_map(|share_ppm| OnUnavailable::Local { share_ppm }),
    ];
    let rest =
        (prop::option::of(1..=caps::UNITS), prop_oneof![Just(OnFull::Refuse), Just(OnFull::Evict)], "\\PC{0,40}");
    ("[a-zA-Z0-9._/-]{1,30}", algorithms(), modes, unavailable, rest).prop_map(
        |(name, algorithm, mode, unavailable, rest)| {
            let mut policy = Policy::new(name, algorithm);
            policy.mode = mode;
            policy.on_unavailable = unavailable;
            policy.max_cost = rest.0.and_then(Cost::new);
            policy.on_full = rest.1;
            policy.description = rest.2;
            policy
        },
    )
}

proptest! {
    #[test]
    fn what_is_written_reads_back(policies in prop::collection::vec(policies(), 0..5)) {
        let mut policies: Vec<Policy> = policies.into_iter().filter(|policy| policy.validate().is_ok()).collect();
        policies.sort_by(|a, b| a.name.cmp(&b.name));
        policies.dedup_by(|a, b| a.name == b.name);
        let text = policy_file::to_toml(&policies);
        prop_assert_eq!(policy_file::parse(&text, "p.toml"), Ok(policies), "{}", text);
    }

    #[test]
    fn no_text_makes_the_reader_panic(text in "([\\[\\]=\"#.,\\-0-9a-z \n]|policy|name|limit|é){0,120}") {
        let _ = policy_file::parse(&text, "p.toml");
    }
}
