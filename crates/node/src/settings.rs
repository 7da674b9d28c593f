//! A node's settings: from flags, then `QUORATE_*` environment variables, then a TOML file, then defaults.
//!
//! Invariants: every setting is one row of `table`, which alone gives its name, bounds, default and meaning; what is
//! read here is valid, nobody checks it again; a name that is not in the table is refused, and all problems are reported
//! at once, each with where it stands. Reads no file and no environment by itself: [`Sources`] is passed in.

mod layers;
mod problem;
mod table;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

pub use layers::{Sources, load};
pub use problem::{Problem, Problems, Source};
pub use table::{Kind, SETTINGS, Setting, is_advertisable};

/// Everything that an operator can set of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The directory that holds this node's state, and no other's.
    pub data_dir: PathBuf,
    /// The address that clients and other nodes connect to, as this machine names it.
    pub listen: SocketAddr,
    /// The same, `host:port`, as the others name it.
    pub advertise: String,
    /// Where the node stands; replicas of a shard are spread over zones. Empty: nowhere in particular.
    pub zone: String,
    /// Whether an address that is not loopback is accepted without encryption.
    pub insecure: bool,
    /// Threads of the runtime; with 1 it runs on the main thread alone.
    pub threads: usize,
    /// Connections that are served at once.
    pub connections: usize,
    /// The write-ahead log.
    pub log: LogSettings,
    /// Snapshots.
    pub snapshot: SnapshotSettings,
    /// Raft's timing.
    pub raft: RaftSettings,
    /// The way in for checks.
    pub checks: CheckSettings,
    /// What the node writes about itself.
    pub logging: LoggingSettings,
}

/// The write-ahead log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogSettings {
    /// When an answer may be given: only after its entry is on stable storage.
    pub sync: Sync,
    /// Bytes of one segment file.
    pub segment_bytes: u64,
}

/// When the log is synced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sync {
    /// Before anything that it holds is acknowledged.
    #[default]
    Always,
}

/// Snapshots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotSettings {
    /// A shard whose log has grown by this many bytes since its last snapshot gets another.
    pub log_bytes: u64,
}

/// Raft's timing. `heartbeat` is at most a third of `election_min`, which is less than `election_max`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RaftSettings {
    /// How often an idle leader shows that it lives.
    pub heartbeat: Duration,
    /// The shortest wait without a leader before a node stands for election.
    pub election_min: Duration,
    /// The longest such wait.
    pub election_max: Duration,
}

/// The way in for checks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckSettings {
    /// Commands that may wait for one shard; beyond it a check is answered `overloaded` at once.
    pub queue: usize,
}

/// What the node writes about itself, to standard error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggingSettings {
    /// How an event is written.
    pub format: LogFormat,
    /// What is written: a level, or directives such as `info,quorate_node::raft=debug`.
    pub level: String,
}

/// How an event is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// A line for people.
    #[default]
    Text,
    /// A JSON object a line.
    Json,
}

impl Settings {
    /// The defaults, for a node whose state is in `data_dir`.
    ///
    /// ```
    /// let settings = quorate_node::settings::Settings::in_dir("quorate-data");
    /// assert_eq!(settings.advertise, "127.0.0.1:7600");
    /// ```
    pub fn in_dir(data_dir: impl Into<PathBuf>) -> Settings {
        let mut settings = Settings::blank();
        for setting in SETTINGS.iter().filter(|setting| !setting.default.is_empty()) {
            setting.set_default(&mut settings);
        }
        settings.data_dir = data_dir.into();
        settings.advertise = settings.listen.to_string();
        settings
    }

    /// Nothing set yet: the ground on which the table's defaults are put.
    fn blank() -> Settings {
        Settings {
            data_dir: PathBuf::new(),
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            advertise: String::new(),
            zone: String::new(),
            insecure: false,
            threads: 1,
            connections: 0,
            log: LogSettings { sync: Sync::Always, segment_bytes: 0 },
            snapshot: SnapshotSettings { log_bytes: 0 },
            raft: RaftSettings {
                heartbeat: Duration::ZERO,
                election_min: Duration::ZERO,
                election_max: Duration::ZERO,
            },
            checks: CheckSettings { queue: 0 },
            logging: LoggingSettings { format: LogFormat::Text, level: String::new() },
        }
    }
}
