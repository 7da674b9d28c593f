//! One node of the development cluster: a process, the file that its events go to, and when it is started again.

use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};

use tokio::process::Command;
use tokio::time::Instant;

use crate::args::PARENT;
use crate::dev::directory::Directory;
use crate::dev::restart::Restarts;

/// A log file that has grown beyond this is put aside when the node is started.
const LOG_BYTES: u64 = 8 << 20;
/// Bytes at the log's end in which the reason of a failure is looked for.
const TAIL_BYTES: usize = 8 << 10;

/// One node.
pub(super) struct Child {
    number: u8,
    address: String,
    data_dir: PathBuf,
    logging_level: String,
    restarts: Restarts,
    state: State,
}

enum State {
    Running { process: tokio::process::Child, since: Instant },
    Waiting { until: Instant },
    Gone,
}

impl Child {
    /// Starts a node; its log begins anew.
    pub(super) fn start(directory: &Directory, number: u8, logging_level: &str) -> Result<Child, String> {
        let mut child = Child {
            number,
            address: format!("127.0.0.1:{}", directory.layout().port(number)),
            data_dir: directory.of_node(number),
            logging_level: logging_level.into(),
            restarts: Restarts::default(),
            state: State::Gone,
        };
        let aside = set_aside(&child.log(), 0);
        aside.map_err(|error| format!("{}: cannot be used: {error}", child.data_dir.display()))?;
        child.spawn()?;
        Ok(child)
    }

    /// The node's number, from 1.
    pub(super) fn number(&self) -> u8 {
        self.number
    }

    /// The process, while there is one.
    pub(super) fn pid(&self) -> Option<u32> {
        if let State::Running { process, .. } = &self.state { process.id() } else { None }
    }

    fn log(&self) -> PathBuf {
        self.data_dir.join("quorated.log")
    }

    fn spawn(&mut self) -> Result<(), String> {
        let spawned = (|| {
            set_aside(&self.log(), LOG_BYTES)?;
            let log = OpenOptions::new().create(true).append(true).open(self.log())?;
            let mut command = Command::new(std::env::current_exe()?);
            command
                .arg(format!("--{PARENT}={}", std::process::id()))
                .arg("--data-dir")
                .arg(&self.data_dir)
                .args(["--listen", &self.address])
                .args(["--logging-level", &self.logging_level])
                .stdin(Stdio::null())
                .stdout(Stdio::from(log.try_clone()?))
                .stderr(Stdio::from(log))
                .process_group(0)
                .kill_on_drop(true);
            without_settings(&mut command).spawn()
        })();
        match spawned {
            Ok(process) => {
                self.state = State::Running { process, since: Instant::now() };
                Ok(())
            }
            Err(error) => Err(format!("node n{} cannot be started: {error}", self.number)),
        }
    }

    /// Waits until the process ends. If something killed it, it is started again, and what happened is said. An error
    /// if it ended by itself: why, as far as its log tells. Safe to drop at any time.
    pub(super) async fn ended(&mut self) -> Result<String, String> {
        let State::Running { process, .. } = &mut self.state else { return std::future::pending().await };
        let status = process.wait().await;
        self.state = State::Gone;
        let by_itself = !status.as_ref().is_ok_and(|status| status.code().is_none());
        let ended = format!("node n{} {}", self.number, outcome(status));
        if by_itself {
            let why = last_words(&self.log()).unwrap_or_else(|| format!("{} says more", self.log().display()));
            return Err(format!("{ended}: {why}"));
        }
        self.spawn()?;
        Ok(format!("{ended}; started again"))
    }

    /// Waits for the next thing that happens to the node and deals with it; says what it was. Safe to drop at any time.
    pub(super) async fn watch(&mut self) -> String {
        let (status, lived) = match &mut self.state {
            State::Running { process, since } => {
                let status = process.wait().await;
                (status, since.elapsed())
            }
            State::Waiting { until } => {
                tokio::time::sleep_until(*until).await;
                return self.again();
            }
            State::Gone => return std::future::pending().await,
        };
        let wait = self.restarts.after(lived);
        let ended = format!("node n{} {}", self.number, outcome(status));
        if wait.is_zero() {
            return format!("{ended}; {}", self.again());
        }
        self.state = State::Waiting { until: Instant::now() + wait };
        let why = last_words(&self.log()).filter(|_| self.restarts.failing()).map(|why| format!(" ({why})"));
        format!(
            "{ended} soon after its start{}; starting it again in {wait:?}; its log: {}",
            why.unwrap_or_default(),
            self.log().display()
        )
    }

    fn again(&mut self) -> String {
        match self.spawn() {
            Ok(()) => match self.pid() {
                Some(pid) => format!("node n{} started again (pid {pid})", self.number),
                None => format!("node n{} started again", self.number),
            },
            Err(problem) => {
                let wait = self.restarts.after(std::time::Duration::ZERO).max(std::time::Duration::from_secs(1));
                self.state = State::Waiting { until: Instant::now() + wait };
                format!("{problem}; trying again in {wait:?}")
            }
        }
    }

    /// Asks the process to stop in order.
    pub(super) fn ask_to_stop(&self) {
        let pid = self.pid().and_then(|pid| rustix::process::Pid::from_raw(pid.cast_signed()));
        if let Some(pid) = pid {
            // It may just have ended by itself; then there is nobody to ask.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
    }

    /// Waits until the process is gone.
    pub(super) async fn gone(&mut self) {
        if let State::Running { process, .. } = &mut self.state {
            let _ = process.wait().await;
        }
        self.state = State::Gone;
    }

    /// Ends the process now, if it still runs.
    pub(super) async fn kill(&mut self) {
        if let State::Running { process, .. } = &mut self.state {
            let _ = process.kill().await;
        }
        self.state = State::Gone;
    }
}

/// A node of the development cluster is set by flags alone: what the supervisor's environment says is meant for others.
fn without_settings(command: &mut Command) -> &mut Command {
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("QUORATE_")) {
        command.env_remove(name);
    }
    command
}

/// Makes the directory of a log file, and renames the file to `….1` if it is larger than `bytes`.
fn set_aside(log: &Path, bytes: u64) -> std::io::Result<()> {
    if let Some(parent) = log.parent() {
        fs::create_dir_all(parent)?;
    }
    match fs::metadata(log) {
        Ok(meta) if meta.len() > bytes => fs::rename(log, log.with_extension("log.1")),
        _ => Ok(()),
    }
}

fn outcome(status: std::io::Result<ExitStatus>) -> String {
    use std::os::unix::process::ExitStatusExt as _;
    match status {
        Ok(status) => match (status.code(), status.signal()) {
            (Some(code), _) => format!("ended with code {code}"),
            (None, Some(9)) => "was killed".into(),
            (None, Some(signal)) => format!("was ended by signal {signal}"),
            (None, None) => "ended".into(),
        },
        Err(error) => format!("is lost ({error})"),
    }
}

/// What the log says last about why the node stopped: its last complaint or error, else its last line.
fn last_words(log: &Path) -> Option<String> {
    use std::io::{Read as _, Seek as _, SeekFrom};
    let mut file = File::open(log).ok()?;
    let length = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES as u64))).ok()?;
    let mut tail = Vec::new();
    file.take(TAIL_BYTES as u64).read_to_end(&mut tail).ok()?;
    last_words_of(&String::from_utf8_lossy(&tail))
}

fn last_words_of(tail: &str) -> Option<String> {
    let line =
        |wanted: fn(&str) -> bool| tail.lines().rev().map(str::trim).find(|line| !line.is_empty() && wanted(line));
    let found = line(|line| line.starts_with("quorated: ")).or_else(|| line(|line| line.contains("ERROR")));
    let found = found.or_else(|| line(|line| line.contains("panicked"))).or_else(|| line(|_| true))?;
    Some(found.strip_prefix("quorated: ").unwrap_or(found).chars().take(400).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_complaint_is_the_reason() {
        let tail = "INFO started\nquorated: data directory n1 is in use by process 5\nINFO stopped\n";
        assert_eq!(last_words_of(tail).unwrap(), "data directory n1 is in use by process 5");
        assert_eq!(last_words_of("INFO a\nERROR disk: gone\nINFO b\n").unwrap(), "ERROR disk: gone");
        assert_eq!(last_words_of("INFO a\n\n").unwrap(), "INFO a");
        assert_eq!(last_words_of(""), None);
    }

    #[test]
    fn a_log_begins_anew_and_the_one_before_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("n1/quorated.log");
        set_aside(&log, 0).unwrap();
        fs::write(&log, "first").unwrap();
        set_aside(&log, 10).unwrap();
        assert!(log.exists());
        set_aside(&log, 0).unwrap();
        assert!(!log.exists());
        assert_eq!(fs::read_to_string(dir.path().join("n1/quorated.log.1")).unwrap(), "first");
    }
}
