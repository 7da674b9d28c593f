//! The table of all settings. A new setting is a field of [`Settings`], a row here, and a paragraph of
//! `deploy/node.toml`; a test holds the three together.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use crate::settings::{LogFormat, Settings, Sync};

/// One setting.
#[derive(Debug)]
pub struct Setting {
    /// Its name in the file; dots part the tables.
    pub name: &'static str,
    /// What values it takes.
    pub kind: Kind,
    /// What it is if nobody sets it, as an environment variable would say it; empty: none.
    pub default: &'static str,
    /// What it means, in one sentence.
    pub meaning: &'static str,
    set: fn(&mut Settings, Value),
}

/// What values a setting takes.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// `true` or `false`.
    Bool,
    /// A whole number from the first to the last.
    Whole(u64, u64),
    /// One of these words.
    Word(&'static [&'static str]),
    /// A text that passes the test; described by the first.
    Text(&'static str, fn(&str) -> bool),
}

/// A value that its setting's kind has accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Bool(bool),
    Whole(u64),
    Text(String),
}

const MIB: u64 = 1 << 20;

/// All settings, in the order of `deploy/node.toml`.
pub const SETTINGS: &[Setting] = &[
    Setting {
        name: "data_dir",
        kind: Kind::Text("a path", |text| !text.is_empty()),
        default: "",
        meaning: "The directory that holds this node's state. It belongs to one node of one cluster for good.",
        set: |settings, value| settings.data_dir = PathBuf::from(value.text()),
    },
    Setting {
        name: "listen",
        kind: Kind::Text("an IP address and a port, such as 127.0.0.1:7600", |text| text.parse::<SocketAddr>().is_ok()),
        default: "127.0.0.1:7600",
        meaning: "Where clients and other nodes connect. An address that is not loopback needs `insecure`.",
        set: |settings, value| settings.listen = value.text().parse().expect("the kind has parsed it"),
    },
    Setting {
        name: "advertise",
        kind: Kind::Text("a host and a port, such as node-1.example.com:7600", is_advertisable),
        default: "",
        meaning: "The same address as the others name it; `listen` unless set.",
        set: |settings, value| settings.advertise = value.text(),
    },
    Setting {
        name: "zone",
        kind: Kind::Text("at most 64 letters, digits, - _ and .", is_zone),
        default: "",
        meaning: "Where the node stands: replicas of a shard are spread over zones.",
        set: |settings, value| settings.zone = value.text(),
    },
    Setting {
        name: "insecure",
        kind: Kind::Bool,
        default: "false",
        meaning: "Accept an address that is not loopback, although nothing on it is encrypted and anybody may call.",
        set: |settings, value| settings.insecure = value.bool(),
    },
    Setting {
        name: "threads",
        kind: Kind::Whole(1, 256),
        default: "1",
        meaning: "Threads that serve calls and Raft; the log and the control database have their own. One thread spends \
                  the least CPU time on a check; more serve more of them.",
        set: |settings, value| settings.threads = value.whole() as usize,
    },
    Setting {
        name: "connections",
        kind: Kind::Whole(crate::caps::CONNECTIONS_MIN as u64, 1 << 20),
        default: "4096",
        meaning: "Connections that are served at once, clients' and other nodes' together; a further one is closed at once.",
        set: |settings, value| settings.connections = value.whole() as usize,
    },
    Setting {
        name: "log.sync",
        kind: Kind::Word(&["always"]),
        default: "always",
        meaning: "When the log reaches stable storage: always before anything in it is acknowledged.",
        set: |settings, _| settings.log.sync = Sync::Always,
    },
    Setting {
        name: "log.segment_bytes",
        kind: Kind::Whole(MIB, 1024 * MIB),
        default: "67108864",
        meaning: "Bytes of one file of the log; it is laid out in full when it is begun, and given back as a whole.",
        set: |settings, value| settings.log.segment_bytes = value.whole(),
    },
    Setting {
        name: "snapshot.log_bytes",
        kind: Kind::Whole(MIB, 64 * 1024 * MIB),
        default: "67108864",
        meaning: "A shard gets a snapshot when its log has grown by this many bytes since the last one.",
        set: |settings, value| settings.snapshot.log_bytes = value.whole(),
    },
    Setting {
        name: "raft.heartbeat_ms",
        kind: Kind::Whole(10, 10_000),
        default: "100",
        meaning: "Milliseconds between an idle leader's signs of life; at most a third of `raft.election_min_ms`.",
        set: |settings, value| settings.raft.heartbeat = Duration::from_millis(value.whole()),
    },
    Setting {
        name: "raft.election_min_ms",
        kind: Kind::Whole(30, 60_000),
        default: "500",
        meaning: "Milliseconds without a leader before a node may stand for election, at the least.",
        set: |settings, value| settings.raft.election_min = Duration::from_millis(value.whole()),
    },
    Setting {
        name: "raft.election_max_ms",
        kind: Kind::Whole(31, 120_000),
        default: "1000",
        meaning: "The same, at the most; each node draws its own wait between the two.",
        set: |settings, value| settings.raft.election_max = Duration::from_millis(value.whole()),
    },
    Setting {
        name: "checks.queue",
        kind: Kind::Whole(64, 1 << 20),
        default: "16384",
        meaning: "Commands that may wait for one shard; beyond it a check is answered `overloaded` at once.",
        set: |settings, value| settings.checks.queue = value.whole() as usize,
    },
    Setting {
        name: "logging.format",
        kind: Kind::Word(&["text", "json"]),
        default: "text",
        meaning: "How the node writes its events to standard error: lines for people, or a JSON object a line.",
        set: |settings, value| {
            settings.logging.format = if value.text() == "json" { LogFormat::Json } else { LogFormat::Text }
        },
    },
    Setting {
        name: "logging.level",
        kind: Kind::Text(
            "error, warn, info, debug or trace, or directives such as info,quorate_node::raft=debug",
            is_filter,
        ),
        default: "info",
        meaning: "Which events are written.",
        set: |settings, value| settings.logging.level = value.text(),
    },
];

impl Setting {
    /// The environment variable that sets it.
    pub fn env(&self) -> String {
        format!("QUORATE_{}", self.name.replace('.', "_").to_uppercase())
    }

    /// The flag that sets it, without its dashes.
    pub fn flag(&self) -> String {
        self.name.replace(['.', '_'], "-")
    }

    /// What is allowed, in words that follow "it must be".
    pub fn allowed(&self) -> String {
        match self.kind {
            Kind::Bool => "true or false".into(),
            Kind::Whole(least, most) => format!("a whole number from {least} to {most}"),
            Kind::Word([only]) => format!("\"{only}\""),
            Kind::Word(words) => words.iter().map(|word| format!("\"{word}\"")).collect::<Vec<_>>().join(" or "),
            Kind::Text(allowed, _) => allowed.into(),
        }
    }

    /// Takes a value as text, from a flag or a variable. False: it is not allowed.
    pub(super) fn set_text(&self, settings: &mut Settings, text: &str) -> bool {
        let value = match self.kind {
            Kind::Bool => text.parse().ok().map(Value::Bool),
            Kind::Whole(..) => text.replace('_', "").parse().ok().map(Value::Whole),
            Kind::Word(_) | Kind::Text(..) => Some(Value::Text(text.into())),
        };
        value.is_some_and(|value| self.set_value(settings, value))
    }

    /// Takes a value of whatever type. False: it is not allowed.
    pub(super) fn set_value(&self, settings: &mut Settings, value: Value) -> bool {
        let ok = match (&self.kind, &value) {
            (Kind::Bool, Value::Bool(_)) => true,
            (Kind::Whole(least, most), Value::Whole(number)) => (least..=most).contains(&number),
            (Kind::Word(words), Value::Text(text)) => words.contains(&text.as_str()),
            (Kind::Text(_, test), Value::Text(text)) => test(text),
            _ => false,
        };
        if ok {
            (self.set)(settings, value);
        }
        ok
    }

    pub(super) fn set_default(&self, settings: &mut Settings) {
        let ok = self.set_text(settings, self.default);
        assert!(ok, "the default of {} is allowed", self.name);
    }
}

impl Value {
    fn bool(&self) -> bool {
        matches!(self, Value::Bool(true))
    }

    fn whole(&self) -> u64 {
        if let Value::Whole(number) = self { *number } else { 0 }
    }

    fn text(self) -> String {
        if let Value::Text(text) = self { text } else { String::new() }
    }
}

/// Whether a text is a `host:port` that others can connect to. A host is an IP address (v6 in brackets) or a DNS name.
pub fn is_advertisable(text: &str) -> bool {
    if let Ok(address) = text.parse::<SocketAddr>() {
        return address.port() != 0 && !address.ip().is_unspecified();
    }
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
            && !label.starts_with('-')
    };
    let numbers_only = host.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    host.len() <= 253 && !numbers_only && host.split('.').all(label) && is_port(port)
}

fn is_port(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_digit()) && text.parse::<u16>().is_ok_and(|port| port != 0)
}

/// Whether a `host:port` stays on this machine.
pub(super) fn is_loopback(text: &str) -> bool {
    let host = text.rsplit_once(':').map_or(text, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

fn is_zone(text: &str) -> bool {
    text.len() <= 64 && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

fn is_filter(text: &str) -> bool {
    !text.trim().is_empty() && tracing_subscriber::EnvFilter::try_new(text).is_ok() && directives_have_levels(text)
}

/// A misspelt level ("inof") would be taken for the name of a module that nobody has; a directive of one word has to be a
/// level.
fn directives_have_levels(text: &str) -> bool {
    let level = |word: &str| word.parse::<tracing_subscriber::filter::LevelFilter>().is_ok();
    text.split(',').all(|directive| match directive.rsplit_once('=') {
        Some((_, last)) => level(last.trim()),
        None => level(directive.trim()),
    })
}
