//! Settings, text in, text out.

use super::*;

fn sources(file: &str, env: &[(&str, &str)], flags: &[(&'static str, &str)]) -> Sources {
    Sources {
        file: Some(("node.toml".into(), file.into())),
        env: env.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect(),
        flags: flags.iter().map(|(name, value)| (*name, value.to_string())).collect(),
    }
}

fn problems(file: &str, env: &[(&str, &str)], flags: &[(&'static str, &str)]) -> String {
    load(&sources(file, env, flags)).expect_err("something is wrong").to_string()
}

#[test]
fn a_flag_beats_the_environment_beats_the_file_beats_the_default() {
    let file = "data_dir = \"f\"\nzone = \"file\"\nthreads = 2\n[raft]\nheartbeat_ms = 150\n";
    let env = [("QUORATE_ZONE", "env"), ("QUORATE_THREADS", "3"), ("HOME", "/root")];
    let settings = load(&sources(file, &env, &[("zone", "flag")])).unwrap();
    assert_eq!(settings.zone, "flag");
    assert_eq!(settings.threads, 3);
    assert_eq!(settings.raft.heartbeat, Duration::from_millis(150));
    assert_eq!(settings.raft.election_max, Duration::from_millis(1000));
    assert_eq!(settings.data_dir, PathBuf::from("f"));
    assert_eq!(settings.advertise, "127.0.0.1:7600");
}

#[test]
fn everything_that_is_wrong_is_said_at_once() {
    let file = "\
data_dir = 7
thread = 4
listen = \"nowhere\"
color = true

[log]
sync = \"interval\"
segment_bytes = 12
[raft]
heartbeat_ms = -5
election_min_ms = 900.5
[rafd]
x = 1
";
    let env = [("QUORATE_LOG_SEGMENT_BITES", "1"), ("QUORATE_INSECURE", "yes"), ("QUORATE_ENDPOINTS", "a:1")];
    assert_eq!(
        problems(file, &env, &[("threads", "0")]),
        "\
node.toml:1: data_dir cannot be 7; it must be a path
node.toml:2: thread is not a setting; threads was probably meant
node.toml:3: listen cannot be \"nowhere\"; it must be an IP address and a port, such as 127.0.0.1:7600
node.toml:4: color is not a setting; `quorated --help` lists all
node.toml:7: log.sync cannot be \"interval\"; it must be \"always\"
node.toml:8: log.segment_bytes cannot be 12; it must be a whole number from 1048576 to 1073741824
node.toml:10: raft.heartbeat_ms cannot be -5; it must be a whole number from 10 to 10000
node.toml:11: raft.election_min_ms cannot be a float; it must be a whole number from 30 to 60000
node.toml:12: rafd is not a setting; raft was probably meant
QUORATE_INSECURE: insecure cannot be \"yes\"; it must be true or false
QUORATE_LOG_SEGMENT_BITES: QUORATE_LOG_SEGMENT_BITES is not a setting; QUORATE_LOG_SEGMENT_BYTES was probably meant
--threads: threads cannot be \"0\"; it must be a whole number from 1 to 256"
    );
}

#[test]
fn a_setting_outside_its_table_is_found() {
    assert_eq!(
        problems("data_dir = \"d\"\nsegment_bytes = 67108864\nlog = 3\n", &[], &[]),
        "node.toml:2: segment_bytes is not a setting; log.segment_bytes was probably meant
node.toml:3: log is a table: write [log] and what it holds below"
    );
}

#[test]
fn a_file_that_is_not_toml_says_where() {
    let said = problems("data_dir = \"d\"\nzone = \n", &[], &[]);
    assert!(said.starts_with("node.toml:2: not TOML: "), "{said}");
    let said = problems("data_dir = \"d\"\nzone = \"a\"\nzone = \"b\"\n", &[], &[]);
    assert!(said.starts_with("node.toml:3: not TOML: duplicate key"), "{said}");
}

#[test]
fn a_network_is_opened_only_when_it_is_said() {
    let said = problems("data_dir = \"d\"\nlisten = \"0.0.0.0:7600\"\n", &[], &[]);
    assert_eq!(
        said,
        "node.toml:2: listen is 0.0.0.0:7600, which is not loopback: nothing on it would be encrypted and anybody who \
         reaches it could call; if that is what you want, say so with --insecure (insecure = true)"
    );
    let said = problems("data_dir = \"d\"\n", &[("QUORATE_ADVERTISE", "node-1:7600")], &[]);
    assert!(said.starts_with("QUORATE_ADVERTISE: advertise is node-1:7600, which is not loopback"), "{said}");
    let said = problems("data_dir = \"d\"\nlisten = \"0.0.0.0:7600\"\n", &[], &[("insecure", "true")]);
    assert!(said.ends_with("set advertise to the host:port by which others reach this node"), "{said}");
    let file = "data_dir = \"d\"\nlisten = \"0.0.0.0:7600\"\nadvertise = \"node-1:7600\"\ninsecure = true\n";
    assert_eq!(load(&sources(file, &[], &[])).unwrap().advertise, "node-1:7600");
    for loopback in ["127.0.0.2:1", "[::1]:7600"] {
        load(&sources("data_dir = \"d\"", &[("QUORATE_LISTEN", loopback)], &[])).unwrap();
    }
}

#[test]
fn timings_that_do_not_fit_each_other_are_refused() {
    assert_eq!(
        problems("data_dir = \"d\"\n[raft]\nheartbeat_ms = 400\nelection_max_ms = 500\n", &[], &[]),
        "node.toml:3: raft.heartbeat_ms (400) must be at most a third of raft.election_min_ms (500)
node.toml:4: raft.election_max_ms (500) must be more than raft.election_min_ms (500)"
    );
}

#[test]
fn a_node_needs_a_directory() {
    let said = load(&Sources::default()).unwrap_err().to_string();
    assert!(said.starts_with("settings: data_dir is not set"), "{said}");
}

#[test]
fn what_kubernetes_puts_into_the_environment_is_not_taken_for_a_setting() {
    let env = [
        ("QUORATE_SERVICE_HOST", "10.0.0.1"),
        ("QUORATE_PORT", "tcp://10.0.0.1:7600"),
        ("QUORATE_PORT_7600_TCP_ADDR", "x"),
    ];
    load(&sources("data_dir = \"d\"", &env, &[])).unwrap();
}

#[test]
fn addresses_that_nobody_can_reach_are_not_advertised() {
    for good in ["a:1", "node-1.example.com:7600", "10.0.0.1:7600", "[::1]:7600", "localhost:7600"] {
        assert!(is_advertisable(good), "{good}");
    }
    for bad in
        ["", "a", ":7600", "a:0", "a:70000", "0.0.0.0:7600", "[::]:7600", "1.2.3:5", "a b:1", "http://a:1", "-a:1"]
    {
        assert!(!is_advertisable(bad), "{bad}");
    }
}

#[test]
fn levels_are_levels() {
    for (level, good) in [
        ("info", true),
        ("DEBUG", true),
        ("info,quorate_node::raft=debug", true),
        ("inof", false),
        ("", false),
        ("a=b", false),
    ] {
        assert_eq!(load(&sources("data_dir = \"d\"", &[], &[("logging.level", level)])).is_ok(), good, "{level}");
    }
}

#[test]
fn mistakes_are_told_once_and_not_without_end() {
    let told = |text: &str| problems(text, &[], &[]);
    let deep = told(&"[".repeat(200_000));
    assert!(deep.lines().count() <= 3, "{deep}");
    let hordes: String = (0..200).map(|i| format!("nonsense_{i} = 1\n")).collect();
    let hordes = told(&hordes);
    assert_eq!(hordes.lines().count(), quorate_core::caps::MISTAKES_TOLD + 1);
    assert_eq!(hordes.lines().last().unwrap(), "node.toml:51: and 151 more mistakes");
    let long = told(&format!("{} = 1\n", "x".repeat(100_000)));
    assert!(long.len() < 500, "{} bytes", long.len());
}

#[test]
fn a_port_is_digits() {
    for bad in ["a:+1", "a:-1", "a: 1", "a:", "a:0", "a:65536"] {
        assert!(!is_advertisable(bad), "{bad}");
    }
    assert!(is_advertisable("a:7600"));
}

/// The annotated example names every setting once, says its true default, and is accepted as it stands.
#[test]
fn the_annotated_example_is_complete() {
    let example = include_str!("../../../../deploy/node.toml");
    let is_setting = |line: &str| {
        line.split_once(" = ").is_some_and(|(name, _)| name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'))
    };
    let full: Vec<&str> =
        example.lines().map(|line| line.strip_prefix('#').filter(|rest| is_setting(rest)).unwrap_or(line)).collect();
    let table: toml::Table = full.join("\n").parse().unwrap();
    let mut found = std::collections::BTreeMap::new();
    for (name, value) in &table {
        match value {
            toml::Value::Table(inner) => {
                found.extend(inner.iter().map(|(leaf, value)| (format!("{name}.{leaf}"), value)))
            }
            value => _ = found.insert(name.clone(), value),
        }
    }
    for setting in SETTINGS {
        let value = found.remove(setting.name).unwrap_or_else(|| panic!("{} is missing", setting.name));
        let shown = value.as_str().map_or_else(|| value.to_string(), str::to_string);
        assert!(setting.default.is_empty() || shown == setting.default, "{}: {shown}", setting.name);
    }
    assert!(found.is_empty(), "not settings: {found:?}");
    let settings = load(&sources(example, &[], &[])).unwrap();
    assert_eq!(settings, Settings::in_dir("/var/lib/quorate"));
}

/// `docs/settings.md` is written from the table: `BLESS=1 cargo test -p quorate-node --lib settings`.
#[test]
fn the_page_of_settings_is_the_table() {
    let row = |setting: &Setting| {
        let default = if setting.default.is_empty() { String::new() } else { format!("`{}`", setting.default) };
        let (name, env, flag) = (setting.name, setting.env(), setting.flag());
        format!("| `{name}`<br>`{env}`<br>`--{flag}` | {default} | {} | {} |\n", setting.allowed(), setting.meaning)
    };
    let rows: String = SETTINGS.iter().map(row).collect();
    let page = format!(
        "# Settings of a node\n\nA setting is taken from its flag, else from its environment variable, else from the file named by `--config`, else it\n\
         has its default. [deploy/node.toml](../deploy/node.toml) is a file to start from. An unknown name or an impossible value is\n\
         refused at the start, all of them at once, each with where it stands.\n\n\
         | setting | default | allowed | meaning |\n|---|---|---|---|\n{rows}"
    );
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/settings.md");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&file, &page).unwrap();
    }
    assert_eq!(std::fs::read_to_string(&file).unwrap_or_default(), page);
}
