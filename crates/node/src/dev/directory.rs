//! The directory of a development cluster: who uses it, and what its cluster was made with.
//!
//! `dev.lock` is locked by the supervisor that runs there and holds its process id. `dev.toml` is written once the
//! cluster works; from then on its ports are fixed, because the cluster knows its nodes by them.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{Read as _, Seek as _, Write as _};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};

/// The nodes and their ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// The first node's port.
    pub(super) port: u16,
    /// How many nodes.
    pub(super) nodes: u8,
}

/// A directory that this process alone uses.
#[derive(Debug)]
pub(super) struct Directory {
    root: PathBuf,
    layout: Layout,
    recorded: bool,
    _lock: File,
}

impl Layout {
    /// The port of a node, numbered from 1.
    pub(super) fn port(&self, number: u8) -> u16 {
        self.port + u16::from(number) - 1
    }

    /// `host:port` of every node.
    pub(super) fn addresses(&self) -> Vec<String> {
        (1..=self.nodes).map(|number| format!("127.0.0.1:{}", self.port(number))).collect()
    }

    /// Whether each port can be listened on.
    pub(super) fn ports_are_free(&self) -> Result<(), String> {
        for number in 1..=self.nodes {
            let port = self.port(number);
            TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_err(|error| match error.kind() {
                std::io::ErrorKind::AddrInUse => {
                    format!("port {port} is taken by another process; stop that, or choose other ports with --port")
                }
                _ => format!("cannot listen on port {port}: {error}; choose other ports with --port"),
            })?;
        }
        Ok(())
    }

    fn to_toml(self) -> String {
        format!(
            "# Written by `quorated dev`: what the cluster in this directory was made with.\nport = {}\nnodes = {}\n",
            self.port, self.nodes
        )
    }

    fn from_toml(text: &str) -> Option<Layout> {
        let table: toml::Table = text.parse().ok()?;
        let number = |name| table.get(name)?.as_integer();
        Some(Layout { port: u16::try_from(number("port")?).ok()?, nodes: u8::try_from(number("nodes")?).ok()? })
    }

    /// What is run in a directory: as recorded, else as asked. Refused where a flag says otherwise than the record.
    fn choose(recorded: Option<Layout>, port: Option<u16>, nodes: Option<u8>, asked: Layout) -> Result<Layout, String> {
        let Some(recorded) = recorded else { return Ok(asked) };
        if port.is_some_and(|port| port != recorded.port) || nodes.is_some_and(|nodes| nodes != recorded.nodes) {
            return Err(format!(
                "holds a cluster of {} nodes from port {} on; leave --port and --nodes out, or name another --data-dir",
                recorded.nodes, recorded.port
            ));
        }
        Ok(recorded)
    }
}

impl Directory {
    /// Takes the directory, making it if need be. `port` and `nodes` are the flags that were given, `asked` what is
    /// made of a new directory.
    pub(super) fn open(root: &Path, port: Option<u16>, nodes: Option<u8>, asked: Layout) -> Result<Directory, String> {
        let at = |problem: String| format!("{}: {problem}", root.display());
        let io = |error: std::io::Error| at(format!("cannot be used: {error}"));
        fs::create_dir_all(root).map_err(io)?;
        let root = root.canonicalize().map_err(io)?;
        let foreign = !root.join("dev.lock").exists() && fs::read_dir(&root).map_err(io)?.next().is_some();
        if foreign {
            return Err(at("is not empty and was not made by `quorated dev`; name another --data-dir".into()));
        }
        let lock = lock(&root.join("dev.lock")).map_err(at)?;
        let recorded = match fs::read_to_string(root.join("dev.toml")) {
            Ok(text) => Some(Layout::from_toml(&text).ok_or_else(|| {
                at("dev.toml does not say port and nodes; put it right, or name another --data-dir".into())
            })?),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => return Err(io(error)),
        };
        let layout = Layout::choose(recorded, port, nodes, asked).map_err(at)?;
        Ok(Directory { root, layout, recorded: recorded.is_some(), _lock: lock })
    }

    /// What is run here.
    pub(super) fn layout(&self) -> Layout {
        self.layout
    }

    /// The directory itself.
    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// A node's own directory.
    pub(super) fn of_node(&self, number: u8) -> PathBuf {
        self.root.join(format!("n{number}"))
    }

    /// Writes down what the cluster was made with, once it works.
    pub(super) fn record(&self) -> Result<(), String> {
        if self.recorded {
            return Ok(());
        }
        let (aside, path) = (self.root.join("dev.toml.new"), self.root.join("dev.toml"));
        let written = fs::write(&aside, self.layout.to_toml()).and_then(|()| fs::rename(&aside, &path));
        written.map_err(|error| format!("{}: cannot be written: {error}", path.display()))
    }
}

/// Locks the file, and writes who holds it.
fn lock(path: &Path) -> Result<File, String> {
    let io = |error: std::io::Error| format!("cannot be locked: {error}");
    let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).map_err(io)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::Error(error)) => return Err(io(error)),
        Err(TryLockError::WouldBlock) => {
            let mut holder = String::new();
            let _ = file.read_to_string(&mut holder);
            let holder = holder.trim().parse::<u32>().map_or("another process".into(), |pid| format!("process {pid}"));
            return Err(format!(
                "is in use by {holder}, another `quorated dev`; stop that, or name another --data-dir"
            ));
        }
    }
    file.set_len(0).and_then(|()| file.rewind()).and_then(|()| writeln!(file, "{}", std::process::id())).map_err(io)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASKED: Layout = Layout { port: 7600, nodes: 3 };

    #[test]
    fn a_directory_goes_on_with_what_it_was_made_with() {
        let dir = tempfile::tempdir().unwrap();
        let made = Layout { port: 9000, nodes: 5 };
        let first = Directory::open(dir.path(), Some(9000), Some(5), made).unwrap();
        assert_eq!(first.layout(), made);
        first.record().unwrap();
        drop(first);
        assert_eq!(Directory::open(dir.path(), None, None, ASKED).unwrap().layout(), made);
        let problem = Directory::open(dir.path(), Some(7600), None, ASKED).unwrap_err();
        assert!(problem.ends_with(
            "holds a cluster of 5 nodes from port 9000 on; leave --port and --nodes out, or name another --data-dir"
        ));
    }

    #[test]
    fn a_directory_in_use_says_by_whom() {
        let dir = tempfile::tempdir().unwrap();
        let _held = Directory::open(dir.path(), None, None, ASKED).unwrap();
        let problem = Directory::open(dir.path(), None, None, ASKED).unwrap_err();
        assert!(problem.contains(&format!("is in use by process {}", std::process::id())), "{problem}");
    }

    #[test]
    fn a_foreign_directory_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("thesis.tex"), "x").unwrap();
        assert!(Directory::open(dir.path(), None, None, ASKED).unwrap_err().contains("was not made by `quorated dev`"));
        assert!(!dir.path().join("dev.lock").exists());
    }

    #[test]
    fn a_taken_port_is_named() {
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = taken.local_addr().unwrap().port();
        let problem = Layout { port, nodes: 1 }.ports_are_free().unwrap_err();
        assert_eq!(
            problem,
            format!("port {port} is taken by another process; stop that, or choose other ports with --port")
        );
    }
}
