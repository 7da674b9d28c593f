//! `quorated dev`: a whole cluster on this machine.
//!
//! Each node is a child process of this same binary, with a data directory of its own, on a port of its own on loopback.
//! The supervisor does nothing that an operator could not do: it starts the nodes, makes one cluster of them and applies
//! the starter policies through the public admin calls, then watches. Invariants:
//!
//! - A child never outlives the supervisor, not even when that is killed with -9: each child asks the kernel for its own
//!   death with its parent's ([`daemon`](crate::daemon)). So the supervisor runs on the main thread alone: the kernel
//!   means the thread that started the child.
//! - A child that ends is started again, at once if it had lived for a while, more and more rarely if not.
//! - Ctrl-C reaches the supervisor only (children have a process group each), so that a stop is in order.
//! - A directory goes on where it was: its record says which ports its cluster was made with.

mod banner;
mod bootstrap;
mod child;
mod directory;
mod restart;

use std::path::PathBuf;
use std::pin::pin;
use std::time::Duration;

use clap::{ArgMatches, Args, FromArgMatches as _};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::dev::child::Child;
use crate::dev::directory::{Directory, Layout};
use crate::{Failure, complain};

/// How long children may take to stop before they are killed.
const STOP: Duration = Duration::from_secs(15);
/// Nodes of the cluster.
const NODES: std::ops::RangeInclusive<i64> = 1..=9;

/// What `quorated dev` takes.
#[derive(Debug, Args)]
pub(crate) struct DevArgs {
    /// Where the nodes keep their data; a cluster that is there goes on
    #[arg(long, value_name = "DIR", default_value = "./quorate-dev")]
    data_dir: PathBuf,
    /// The first node's port; the others take the ones after it [default: 7600, or what the cluster was made with]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..=65_000))]
    port: Option<u16>,
    /// How many nodes [default: 3, or what the cluster was made with]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u8).range(NODES))]
    nodes: Option<u8>,
    /// What the nodes write into their logs: error, warn, info, debug, trace, or directives
    #[arg(long, value_name = "TEXT", default_value = "info")]
    logging_level: String,
}

/// Runs the cluster until it is told to stop.
pub(crate) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let args = DevArgs::from_arg_matches(matches).map_err(Failure::usage)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::failed(format!("dev: cannot start: {error}")))?;
    runtime.block_on(supervise(args)).map_err(|problem| Failure::failed(format!("dev: {problem}")))
}

/// Signals that mean "stop".
struct Stop {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Stop {
    fn listen() -> Result<Stop, String> {
        let listen = |kind| signal(kind).map_err(|error| format!("cannot listen for signals: {error}"));
        Ok(Stop {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hangup: listen(SignalKind::hangup())?,
        })
    }

    async fn asked(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = self.hangup.recv() => {}
        }
    }
}

async fn supervise(args: DevArgs) -> Result<(), String> {
    let mut stop = Stop::listen()?;
    let asked = Layout { port: args.port.unwrap_or(7600), nodes: args.nodes.unwrap_or(3) };
    let directory = Directory::open(&args.data_dir, args.port, args.nodes, asked)?;
    let layout = directory.layout();
    layout.ports_are_free()?;
    let mut children = Vec::new();
    for number in 1..=layout.nodes {
        children.push(Child::start(&directory, number, &args.logging_level)?);
    }
    let ready = tokio::select! {
        ready = bring_up(&layout, &mut children) => ready,
        () = stop.asked() => {
            stop_all(&mut children, &mut stop).await;
            return Ok(());
        }
    };
    let started = match ready {
        Ok(started) => started,
        Err(problem) => {
            stop_all(&mut children, &mut stop).await;
            return Err(problem);
        }
    };
    directory.record()?;
    banner::show(&banner::Running {
        data_dir: directory.root().display().to_string(),
        nodes: children.iter().map(|child| (child.number(), child.pid(), layout.port(child.number()))).collect(),
        started,
        default_port: layout.port(1) == 7600 && layout.nodes == 3,
        endpoints: layout.addresses().join(","),
        tool: banner::tool(),
    });
    watch(&mut children, &mut stop).await;
    complain("dev: stopping");
    if stop_all(&mut children, &mut stop).await {
        complain("dev: stopped; start it again to go on where it was");
        Ok(())
    } else {
        Err("not every node stopped by itself; the rest were killed (nothing that was answered is lost)".into())
    }
}

/// Waits until the cluster works. A child that ends by itself before it does is fatal: whatever stopped it would stop it
/// again. One that was killed is started again, as ever.
async fn bring_up(layout: &Layout, children: &mut [Child]) -> Result<bootstrap::Started, String> {
    let addresses = layout.addresses();
    let mut bootstrap = pin!(bootstrap::run(&addresses));
    loop {
        let ends = futures::future::select_all(children.iter_mut().map(|child| Box::pin(child.ended())));
        tokio::select! {
            started = &mut bootstrap => return started,
            (ended, _, _) = ends => complain(format!("dev: {}", ended?)),
        }
    }
}

/// Starts children again as they end, until told to stop.
async fn watch(children: &mut [Child], stop: &mut Stop) {
    loop {
        let ends = futures::future::select_all(children.iter_mut().map(|child| Box::pin(child.watch())));
        tokio::select! {
            () = stop.asked() => return,
            (line, _, _) = ends => complain(format!("dev: {line}")),
        }
    }
}

/// Asks all children to stop, and kills those that take too long, or all when asked a second time. Whether all ended
/// by themselves.
async fn stop_all(children: &mut [Child], stop: &mut Stop) -> bool {
    children.iter().for_each(Child::ask_to_stop);
    let all = futures::future::join_all(children.iter_mut().map(Child::gone));
    let in_time = tokio::select! {
        done = tokio::time::timeout(STOP, all) => done.is_ok(),
        () = stop.asked() => false,
    };
    for child in children.iter_mut() {
        child.kill().await;
    }
    in_time
}
