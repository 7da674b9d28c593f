//! Runs a node until it is told to stop or fails.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ArgMatches;
use quorate_core::mistakes;
use quorate_node::node::{Node, Parts};
use quorate_node::settings::{self, Settings, Sources};
use quorate_node::{caps, services};
use rustix::process::{Pid, Signal};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

use crate::args::{PARENT, given};
use crate::{Failure, observe};

/// How long a stop may take: leaderships are handed over, answers given, the log synced.
const STOP: Duration = Duration::from_secs(10);

/// How long a node that has failed tries to hand its leaderships over.
const HAND_OVER: Duration = Duration::from_secs(2);

/// Runs the node that the command line, the environment and the settings file describe.
pub(crate) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    if let Some(parent) = matches.get_one::<i32>(PARENT) {
        die_with(*parent)?;
    }
    let settings = read_settings(matches)?;
    observe::start(&settings.logging);
    let mut builder = match settings.threads {
        1 => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    let runtime = builder.worker_threads(settings.threads).enable_all().build();
    let runtime = runtime.map_err(|error| Failure::failed(format!("cannot start: {error}")))?;
    let done = runtime.block_on(serve(settings));
    // Whatever still runs has nothing more to say to anybody.
    runtime.shutdown_timeout(Duration::from_secs(1));
    done
}

fn read_settings(matches: &ArgMatches) -> Result<Settings, Failure> {
    let file = match matches.get_one::<PathBuf>("config") {
        None => None,
        Some(path) => Some((path.display().to_string(), read_file(path)?)),
    };
    let env = std::env::vars_os().filter_map(|(name, value)| {
        let name = name.into_string().ok().filter(|name| name.starts_with("QUORATE_"))?;
        Some((name, value.to_string_lossy().into_owned()))
    });
    settings::load(&Sources { file, env: env.collect(), flags: given(matches) }).map_err(Failure::usage)
}

fn read_file(path: &Path) -> Result<String, Failure> {
    let name = path.display();
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(caps::SETTINGS_BYTES + 1).read_to_end(&mut bytes));
    read.map_err(|error| Failure::usage(format!("{name}: cannot be read: {error}")))?;
    if bytes.len() as u64 > caps::SETTINGS_BYTES {
        return Err(Failure::usage(format!(
            "{name}: larger than a settings file may be ({} bytes)",
            caps::SETTINGS_BYTES
        )));
    }
    let text = mistakes::text(&bytes).map_err(|not| Failure::usage(format!("{name}:{}: {not}", not.line)))?;
    Ok(text.to_owned())
}

/// Asks the kernel to kill this process as soon as `parent` is gone, however it goes.
fn die_with(parent: i32) -> Result<(), Failure> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|error| Failure::failed(format!("cannot be bound to process {parent}: {error}")))?;
    // It may have gone before it was asked; then nobody would tell.
    if rustix::process::getppid().map(Pid::as_raw_nonzero).is_none_or(|pid| pid.get() != parent) {
        return Err(Failure::failed(format!("process {parent}, which this node belongs to, is gone")));
    }
    Ok(())
}

async fn serve(settings: Settings) -> Result<(), Failure> {
    let listen = |kind| signal(kind).map_err(|error| Failure::failed(format!("cannot listen for signals: {error}")));
    let (mut terminate, mut interrupt) = (listen(SignalKind::terminate())?, listen(SignalKind::interrupt())?);
    let room = services::room(settings.connections).map_err(Failure::failed)?;
    let listener = TcpListener::bind(settings.listen).await.map_err(|error| cannot_listen(settings.listen, &error))?;
    let parts = Parts::real(&settings.data_dir).await.map_err(Failure::failed)?;
    tracing::info!(listen = %settings.listen, data_dir = %settings.data_dir.display(), "starting");
    let node = Node::start(settings, parts).await.map_err(Failure::failed)?;
    let (stop, stopped) = oneshot::channel::<()>();
    let stopped = async move {
        // A sender that is gone stops the server, too.
        let _ = stopped.await;
    };
    let mut server = tokio::spawn(services::serve(listener, room, node.routes(), stopped));
    let failed = tokio::select! {
        _ = terminate.recv() => None,
        _ = interrupt.recv() => None,
        why = node.failed() => Some(why),
        ended = &mut server => Some(match ended {
            Ok(Ok(())) => "the server has ended".to_owned(),
            Ok(Err(error)) => format!("the server has failed: {error}"),
            Err(error) => format!("the server has failed: {error}"),
        }),
    };
    if let Some(why) = failed {
        tracing::error!("the node has failed and stops: {why}");
        // What it leads and can still hand over need not wait for an election.
        let _ = tokio::time::timeout(HAND_OVER, node.hand_over()).await;
        return Err(Failure::failed(why));
    }
    tracing::info!("stopping");
    let stopping = async {
        node.hand_over().await;
        drop(stop);
        let _ = server.await;
        node.shutdown().await;
    };
    match tokio::time::timeout(STOP, stopping).await {
        Ok(()) => Ok(()),
        Err(_) => Err(Failure::failed(format!("did not stop within {STOP:?}; nothing that was answered is lost"))),
    }
}

fn cannot_listen(address: std::net::SocketAddr, error: &std::io::Error) -> Failure {
    Failure::failed(match error.kind() {
        std::io::ErrorKind::AddrInUse => {
            format!("{address} is taken by another process; stop that, or set another `listen`")
        }
        _ => format!("cannot listen on {address}: {error}; set another `listen`"),
    })
}
