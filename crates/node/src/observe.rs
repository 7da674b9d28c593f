//! Where a node's events go: standard error, as lines or as JSON. Nothing else in the process writes there while a node runs.

use std::io::IsTerminal as _;

use quorate_node::settings::{LogFormat, LoggingSettings};
use tracing_subscriber::EnvFilter;

/// Libraries that would tell an operator more than can be used; a directive of the setting's own overrides each. openraft warns
/// at every heartbeat that a dead node does not answer; that a link broke is told by this program, once.
const QUIET: &str = "openraft=error,sled=warn,h2=warn,hyper=warn,hyper_util=warn,tower=warn,tonic=warn";

/// Starts writing events. Once a process.
pub(crate) fn start(logging: &LoggingSettings) {
    let filter = EnvFilter::new(format!("{QUIET},{}", logging.level));
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match logging.format {
        LogFormat::Text => lines.with_ansi(std::io::stderr().is_terminal()).init(),
        LogFormat::Json => lines.json().flatten_event(true).with_current_span(true).with_span_list(false).init(),
    }
}
