//! Servers as processes of this machine, in a directory of their own.

use std::fs::File;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::time::Instant;

/// How long a server may take until it listens.
const START: Duration = Duration::from_secs(20);

/// Some servers; all killed, and their directory removed, when this is dropped.
pub(crate) struct Servers {
    directory: TempDir,
    children: Vec<Child>,
}

impl Servers {
    /// None yet, with an empty directory under `under`.
    pub(crate) fn under(under: &Path) -> Result<Servers, String> {
        let directory = tempfile::Builder::new().prefix("bench-peers-").tempdir_in(under);
        let directory = directory.map_err(|error| format!("{}: {error}", under.display()))?;
        Ok(Servers { directory, children: Vec::new() })
    }

    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Starts one and waits until it listens on that port.
    pub(crate) async fn start(&mut self, mut command: Command, port: u16) -> Result<(), String> {
        let name = command.get_program().to_string_lossy().into_owned();
        let log = self.directory().join(format!("{}.log", self.children.len()));
        let told = |error: std::io::Error| format!("{name}: {error}");
        let output = File::create(&log).map_err(told)?;
        let errors = output.try_clone().map_err(told)?;
        // What is set in the surroundings is no part of the measurement.
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("QUORATE_")) {
            command.env_remove(name);
        }
        let child = command.stdin(Stdio::null()).stdout(output).stderr(errors).spawn().map_err(told)?;
        self.children.push(child);
        let until = Instant::now() + START;
        while TcpStream::connect(("127.0.0.1", port)).await.is_err() {
            let ended = self.children.last_mut().is_none_or(|child| !matches!(child.try_wait(), Ok(None)));
            if ended || Instant::now() > until {
                let said = std::fs::read_to_string(&log).unwrap_or_default();
                return Err(format!("{name} does not listen on port {port}; it said: {said}"));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    pub(crate) fn pids(&self) -> Vec<u32> {
        self.children.iter().map(Child::id).collect()
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        for child in &mut self.children {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// So many ports on which nobody listens now.
pub(crate) fn free_ports(count: usize) -> Result<Vec<u16>, String> {
    let told = |error: std::io::Error| format!("no free port: {error}");
    let listeners =
        (0..count).map(|_| TcpListener::bind("127.0.0.1:0")).collect::<Result<Vec<_>, _>>().map_err(told)?;
    listeners.iter().map(|listener| Ok(listener.local_addr().map_err(told)?.port())).collect()
}

/// Whether there is a program of that name that can be run.
pub(crate) fn runs(program: &str) -> bool {
    Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}
