//! Some `quorated` processes that make one cluster.

use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use rustix::process::{Pid, Signal};

use crate::command;
use crate::link::Link;

/// Nodes as processes, each with a directory and a port; all killed when this is dropped.
pub struct Cluster {
    directory: tempfile::TempDir,
    nodes: Vec<Node>,
    flags: Vec<String>,
}

struct Node {
    port: u16,
    process: Option<Child>,
    /// What everybody else reaches it through, if not directly.
    link: Option<Link>,
}

impl Node {
    fn reached_at(&self) -> u16 {
        self.link.as_ref().map_or(self.port, Link::port)
    }
}

impl Cluster {
    /// Starts so many processes; they belong to no cluster yet.
    pub fn start(nodes: usize) -> Cluster {
        Self::start_with(nodes, &[])
    }

    /// The same, with more flags for each.
    pub fn start_with(nodes: usize, flags: &[&str]) -> Cluster {
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        let nodes = free_ports(nodes).into_iter().map(|port| Node { port, process: None, link: None }).collect();
        let cluster = Cluster { directory, nodes, flags: flags.iter().map(|flag| (*flag).to_owned()).collect() };
        cluster.started()
    }

    /// The same, with a link before each node that can be cut. Needs a tokio runtime for as long as the cluster runs.
    ///
    /// # Panics
    ///
    /// When no link can be made.
    pub async fn start_linked(nodes: usize) -> Cluster {
        let mut cluster = Cluster {
            directory: tempfile::tempdir().expect("a directory can be made"),
            nodes: Vec::new(),
            flags: Vec::new(),
        };
        for port in free_ports(nodes) {
            let link = Some(Link::to(port).await.expect("a link can be made"));
            cluster.nodes.push(Node { port, process: None, link });
        }
        cluster.started()
    }

    fn started(mut self) -> Cluster {
        for node in 0..self.nodes.len() {
            self.restart(node);
        }
        self
    }

    /// How many nodes there are, running or not.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// `host:port` of every node.
    pub fn endpoints(&self) -> Vec<String> {
        self.nodes.iter().map(|node| format!("127.0.0.1:{}", node.reached_at())).collect()
    }

    /// A node's data directory.
    pub fn data_directory(&self, node: usize) -> PathBuf {
        self.directory.path().join(format!("n{}", node + 1))
    }

    /// What a node has printed so far.
    pub fn log(&self, node: usize) -> String {
        fs::read_to_string(self.log_path(node)).unwrap_or_default()
    }

    /// Kills a node as a machine would die: no goodbye. Returns when it is gone.
    pub fn kill(&mut self, node: usize) {
        if let Some(mut process) = self.nodes[node].process.take() {
            process.kill().expect("a process that was started can be killed");
            process.wait().expect("a killed process ends");
        }
    }

    /// Asks a node to stop and waits until it has; returns whether it ended with exit code 0.
    pub fn stop(&mut self, node: usize) -> bool {
        let Some(mut process) = self.nodes[node].process.take() else { return true };
        let pid = Pid::from_child(&process);
        rustix::process::kill_process(pid, Signal::TERM).expect("a running process takes signals");
        process.wait().expect("a stopped process ends").success()
    }

    /// Stops a node where it stands, as a machine would that hangs: its connections stay open, and nothing is answered.
    pub fn pause(&self, node: usize) {
        self.signal(node, Signal::STOP);
    }

    /// Lets a paused node go on.
    pub fn resume(&self, node: usize) {
        self.signal(node, Signal::CONT);
    }

    /// Cuts everybody off from a node, or joins them again: connections stay open, and nothing comes through, to it or from it.
    /// What it sends over connections that it made itself still leaves.
    ///
    /// # Panics
    ///
    /// When it was started without a link.
    pub fn cut(&self, node: usize, is_cut: bool) {
        self.nodes[node].link.as_ref().expect("a cluster with links").cut(is_cut);
    }

    fn signal(&self, node: usize, signal: Signal) {
        if let Some(process) = &self.nodes[node].process {
            rustix::process::kill_process(Pid::from_child(process), signal).expect("a running process takes signals");
        }
    }

    /// Starts a node on whatever its directory holds.
    pub fn restart(&mut self, node: usize) {
        self.kill(node);
        let log =
            File::options().create(true).append(true).open(self.log_path(node)).expect("the log file can be opened");
        let errors = log.try_clone().expect("a file handle can be cloned");
        let process = command("quorated")
            .arg("--data-dir")
            .arg(self.data_directory(node))
            .args(["--listen", &format!("127.0.0.1:{}", self.nodes[node].port)])
            .args(["--advertise", &format!("127.0.0.1:{}", self.nodes[node].reached_at())])
            .args(&self.flags)
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(errors)
            .spawn()
            .expect("quorated can be started");
        self.nodes[node].process = Some(process);
    }

    /// The process of a node that runs.
    pub fn pid(&self, node: usize) -> Option<u32> {
        self.nodes[node].process.as_ref().map(Child::id)
    }

    fn log_path(&self, node: usize) -> PathBuf {
        self.directory.path().join(format!("n{}.log", node + 1))
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for node in 0..self.nodes.len() {
            self.kill(node);
        }
        if std::thread::panicking() {
            for node in 0..self.nodes.len() {
                report(&self.log_path(node));
            }
        }
    }
}

/// Shows the end of a failed test's log, which goes with its directory.
#[allow(clippy::print_stderr)]
fn report(path: &Path) {
    const LINES: usize = 40;
    let text = fs::read_to_string(path).unwrap_or_default();
    let from = text.lines().count().saturating_sub(LINES);
    eprintln!("---- {}", path.display());
    text.lines().skip(from).for_each(|line| eprintln!("{line}"));
}

/// Ports that nobody listens on; held together while they are chosen, so that they differ.
fn free_ports(count: usize) -> Vec<u16> {
    let listeners: Vec<TcpListener> =
        (0..count).map(|_| TcpListener::bind("127.0.0.1:0").expect("the system has a free port")).collect();
    let port = |listener: &TcpListener| listener.local_addr().expect("a bound listener has an address").port();
    listeners.iter().map(port).collect()
}
