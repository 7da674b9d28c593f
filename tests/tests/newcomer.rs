//! What the README promises to someone who has just cloned this: one command, a cluster, and the example.

use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};

use quorate_tests::tool::{Ended, run};
use quorate_tests::{command, until};
use rustix::process::{Pid, Signal};

/// A `quorated dev` of this test's own.
struct Dev {
    process: Option<Child>,
    directory: PathBuf,
    port: u16,
}

impl Dev {
    fn start(directory: &Path, port: u16) -> Dev {
        fs::create_dir_all(directory).expect("a directory can be made");
        let log =
            File::options().create(true).append(true).open(directory.join("dev.out")).expect("a log can be opened");
        let errors = log.try_clone().expect("a file handle can be cloned");
        let process = command("quorated")
            .args(["dev", "--port", &port.to_string(), "--data-dir"])
            .arg(directory.join("data"))
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(errors)
            .spawn()
            .expect("quorated can be started");
        Dev { process: Some(process), directory: directory.to_owned(), port }
    }

    fn printed(&self) -> String {
        fs::read_to_string(self.directory.join("dev.out")).unwrap_or_default()
    }

    fn endpoints(&self) -> String {
        (0..3).map(|node| format!("127.0.0.1:{}", self.port + node)).collect::<Vec<_>>().join(",")
    }

    fn quorate(&self, arguments: &[&str]) -> Ended {
        let endpoints = self.endpoints();
        run("quorate", ["--endpoints", &endpoints, "--timeout", "10s"].iter().chain(arguments))
    }

    async fn answers(&self) {
        until("the starter policies are there", || async {
            (self.quorate(&["peek", "per-user", "nobody"]).code == 0).then_some(())
        })
        .await;
    }

    fn signal(&self, signal: Signal) {
        let process = self.process.as_ref().expect("it runs");
        rustix::process::kill_process(Pid::from_child(process), signal).expect("it takes signals");
    }

    fn wait(&mut self) -> Option<i32> {
        self.process.take().and_then(|mut process| process.wait().expect("it ends").code())
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().ok();
            process.wait().ok();
        }
    }
}

/// Three ports in a row that nobody listens on, and that no other test of this process was given.
fn three_ports() -> u16 {
    static STEP: AtomicU16 = AtomicU16::new(0);
    let free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
    let base = (std::process::id() % 1_000) as u16 * 12;
    let mut candidates = (0..2_000).map(|_| 20_000 + (base + 3 * STEP.fetch_add(1, Ordering::Relaxed)) % 12_000);
    candidates.find(|port| (0..3).all(|node| free(port + node))).expect("three free ports in a row")
}

/// Pids whose command line names this directory.
fn processes_in(directory: &Path) -> Vec<i32> {
    let needle = directory.to_string_lossy().into_owned();
    let entries = fs::read_dir("/proc").expect("/proc is there").flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| {
        fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| String::from_utf8_lossy(&line).contains(&needle))
    })
    .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_command_gives_a_cluster_that_goes_on_where_it_was() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let port = three_ports();
    let mut dev = Dev::start(directory.path(), port);
    dev.answers().await;

    // What time gives back would say how fast this machine is.
    let file = directory.path().join("year.toml");
    let year = "[[policy]]\nname = \"year\"\nalgorithm = \"fixed_window\"\nlimit = 100\nwindow = \"366d\"\n";
    fs::write(&file, year).expect("a file can be written");
    let applied = dev.quorate(&["policy", "apply", "-f", file.to_str().expect("a path of letters")]);
    assert_eq!(applied.code, 0, "{applied:?}");
    let spent = dev.quorate(&["check", "year", "alice", "--cost", "7", "-o", "json"]);
    assert_eq!(spent.code, 0, "{spent:?}");
    assert_eq!(spent.json()["limits"][0]["remaining"], 93, "{spent:?}");

    let again = Dev::start(&directory.path().join("other"), port);
    let mut again = again;
    let code = again.wait();
    assert!(code.is_some_and(|code| code != 0), "a taken port is refused; it printed: {}", again.printed());
    assert_eq!(again.printed().lines().count(), 1, "in one line: {}", again.printed());

    dev.signal(Signal::INT);
    assert_eq!(dev.wait(), Some(0), "Ctrl-C stops it cleanly; it printed: {}", dev.printed());
    assert!(processes_in(directory.path()).is_empty(), "no node outlives it");

    let dev = Dev::start(directory.path(), port);
    dev.answers().await;
    let seen = dev.quorate(&["peek", "year", "alice", "-o", "json"]);
    assert_eq!(seen.json()["limits"][0]["remaining"], 93, "what was charged is remembered: {seen:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_come_back_and_end_with_their_parent() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut dev = Dev::start(directory.path(), three_ports());
    dev.answers().await;

    let parent = dev.process.as_ref().expect("it runs").id() as i32;
    let children = || processes_in(directory.path()).into_iter().filter(|pid| *pid != parent).collect::<Vec<_>>();
    let before = children();
    assert_eq!(before.len(), 3, "three nodes: {before:?}");
    let victim = Pid::from_raw(before[0]).expect("a pid is not 0");
    rustix::process::kill_process(victim, Signal::KILL).expect("a child can be killed");
    until("the killed node is started again", || async {
        let now = children();
        (now.len() == 3 && !now.contains(&before[0])).then_some(())
    })
    .await;
    dev.answers().await;

    dev.signal(Signal::KILL);
    dev.wait();
    until("the nodes end with their parent", || async { processes_in(directory.path()).is_empty().then_some(()) })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_example_in_the_readme_runs() {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let readme = fs::read_to_string(root.join("README.md")).expect("there is a README");
    let example = fs::read_to_string(root.join("crates/client/examples/quickstart.rs")).expect("there is an example");
    let block = readme
        .split("```rust\n")
        .nth(1)
        .and_then(|rest| rest.split("```").next())
        .expect("the README has a Rust block");
    assert!(example.ends_with(block), "the README shows crates/client/examples/quickstart.rs as it is");

    let directory = tempfile::tempdir().expect("a temporary directory");
    let dev = Dev::start(directory.path(), three_ports());
    dev.answers().await;
    let mut quickstart = command("quickstart");
    let ran = quickstart.env("QUORATE_ENDPOINTS", dev.endpoints()).output().expect("the example can be run");
    let printed = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    assert_eq!(printed.trim(), "go ahead; 197 of 200 left");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_tool_tells_outcomes_by_its_exit_code() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let dev = Dev::start(directory.path(), three_ports());
    dev.answers().await;

    let file = directory.path().join("two.toml");
    fs::write(
        &file,
        "[[policy]]\nname = \"two\"\nalgorithm = \"fixed_window\"\nlimit = 2\nwindow = \"366d\"\nmax_cost = 5\n",
    )
    .expect("a file can be written");
    let file = file.to_str().expect("a path of letters");
    let cases: &[(&[&str], i32)] = &[
        (&["policy", "apply", "-f", file], 0),
        (&["check", "two", "k", "--cost", "2"], 0),
        (&["check", "two", "k"], 8),
        (&["peek", "two", "k"], 8),
        (&["reset", "two", "k"], 0),
        (&["check", "two", "k"], 0),
        (&["check", "two", "k", "--cost", "6"], 1),
        (&["check", "no-such-policy", "k"], 6),
        (&["policy", "get", "no-such-policy"], 6),
        (&["policy", "rm", "two"], 0),
        (&["check", "two", "k"], 6),
        (&["check", "two"], 2),
        (&["cluster", "init", "--nodes", "127.0.0.1:1"], 7),
        (&["cluster", "status"], 0),
    ];
    for (arguments, code) in cases {
        let ended = dev.quorate(arguments);
        assert_eq!(ended.code, *code, "quorate {}: {ended:?}", arguments.join(" "));
    }
    let nobody = run("quorate", ["--endpoints", "127.0.0.1:1", "--timeout", "1s", "check", "per-user", "k"]);
    assert_eq!(nobody.code, 3, "{nobody:?}");
}
