//! A machine: a runtime on virtual time, a disk that outlives it, and what runs there.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use quorate_node::control::{ControlStore, MemoryControlStore};
use quorate_node::disk::MemoryDisk;
use quorate_node::disk::memory::Faults;
use quorate_node::node::Node;
use quorate_node::node::Parts;
use quorate_node::random::SeededRandom;
use quorate_node::settings::Settings;
use tokio::runtime::{Builder, RngSeed, Runtime, UnhandledPanic};

use crate::clock::{Error, MachineClock};
use crate::fired::Fired;
use crate::net::{Deed, Machine, Net};
use crate::peers::{Nodes, Peers, address};
use crate::tap::Tap;
use crate::trace::Trace;

/// A runtime whose chance and whose time are its own.
pub fn runtime(seed: u64) -> Runtime {
    Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .rng_seed(RngSeed::from_bytes(&seed.to_le_bytes()))
        .unhandled_panic(UnhandledPanic::ShutdownRuntime)
        .build()
        .expect("a runtime needs nothing that could be missing")
}

/// What all machines of a world share.
#[derive(Clone)]
pub struct Shared {
    /// The network.
    pub net: Net,
    /// The nodes that run.
    pub nodes: Nodes,
    /// What is seen of them.
    pub tap: Tap,
    /// The story.
    pub trace: Trace,
    /// The faults that struck.
    pub fired: Fired,
}

/// Why a node does not run.
type Problem = Arc<Mutex<Option<String>>>;

/// A machine that a node runs on.
pub struct NodeMachine {
    here: Machine,
    shared: Shared,
    disk: MemoryDisk,
    store: MemoryControlStore,
    /// How wrong its wall clock is.
    pub clock: Error,
    seed: u64,
    boots: u64,
    running: Option<Runtime>,
    problem: Problem,
    /// How long it has slept.
    behind: Duration,
    /// Whether it sleeps.
    asleep: bool,
    /// How long its disk takes.
    latency: (Duration, Duration),
}

impl NodeMachine {
    /// The machine of that place, which was never started.
    pub fn new(here: Machine, seed: u64, shared: Shared) -> NodeMachine {
        NodeMachine {
            here,
            shared,
            disk: MemoryDisk::new(seed ^ 0xd15c),
            store: MemoryControlStore::default(),
            clock: Error::default(),
            seed,
            boots: 0,
            running: None,
            problem: Problem::default(),
            behind: Duration::ZERO,
            asleep: false,
            latency: (Duration::from_micros(200), Duration::from_millis(3)),
        }
    }

    /// Whether it is up.
    pub fn is_up(&self) -> bool {
        self.running.is_some()
    }

    /// How often it was started.
    pub fn boots(&self) -> u64 {
        self.boots
    }

    /// Whether it sleeps.
    pub fn is_asleep(&self) -> bool {
        self.asleep
    }

    /// Starts the node on what the disk holds.
    pub fn start(&mut self, settings: Settings) {
        self.boots += 1;
        let seed = self.seed.wrapping_add(self.boots.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let runtime = runtime(seed);
        let disk = self.disk.mount().expect("the process before it is gone");
        self.set_disk(None);
        self.shared.net.start(self.here, Some(self.disk.clone()));
        self.shared.trace.line(format_args!("machine {} starts", self.here));
        let (shared, here) = (self.shared.clone(), self.here);
        let peers = Peers {
            here,
            net: shared.net.clone(),
            nodes: shared.nodes.clone(),
            tap: shared.tap.clone(),
            fired: shared.fired.clone(),
        };
        let (store, error, problem) = (self.store.clone(), self.clock.clone(), Problem::default());
        self.problem = Arc::clone(&problem);
        let started_at = shared.trace.now();
        let node = async move {
            let newcomers = Arc::new(peers.clone());
            let parts = Parts {
                clock: Arc::new(MachineClock::new(started_at, error)),
                random: Arc::new(SeededRandom::new(seed ^ 0x5ec2e7)),
                disk,
                store: Arc::new(move || {
                    let store = store.clone();
                    async move { Ok(Arc::new(store) as Arc<dyn ControlStore>) }.boxed()
                }),
                transport: Arc::new(move |me, directory| Arc::new(peers.clone().links(me, directory))),
                newcomers,
            };
            let fail = |why: String| *problem.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
            match Node::start(settings, parts).await {
                Err(why) => fail(format!("it does not start: {why}")),
                Ok(node) => {
                    shared.nodes.set(here, Some(Arc::clone(&node)));
                    tokio::spawn(shared.tap.watch(here, Arc::clone(&node)));
                    fail(format!("it has failed: {}", node.failed().await));
                }
            }
        };
        {
            let _inside = runtime.enter();
            tokio::spawn(node);
        }
        self.running = Some(runtime);
    }

    /// Sets the disk's pace, and when its power fails.
    pub fn set_disk(&mut self, power_after: Option<u64>) {
        let faults = Faults { latency: Some(self.latency), power_after, ..Faults::default() };
        self.disk.set_faults(faults);
    }

    /// How long a job of the disk takes, from now on.
    pub fn set_latency(&mut self, least: Duration, most: Duration) {
        self.latency = (least, most);
        if self.is_up() {
            self.set_disk(None);
        }
    }

    /// Whether the power of its disk has failed.
    pub fn has_no_power(&self) -> bool {
        self.disk.is_dead()
    }

    /// The process dies. With the power, what was not synced is lost or torn.
    pub fn stop(&mut self, power: bool) {
        let Some(runtime) = self.running.take() else { return };
        self.shared.net.stop(self.here);
        if power {
            self.disk.crash()
        } else {
            self.disk.kill()
        }
        self.shared.nodes.set(self.here, None);
        drop(runtime);
        (self.asleep, self.behind) = (false, Duration::ZERO);
        self.shared.trace.line(format_args!(
            "machine {} {}",
            self.here,
            if power { "loses its power" } else { "is killed" }
        ));
    }

    /// Does nothing from now on, until it is woken.
    pub fn sleep(&mut self) {
        self.asleep = true;
        self.shared.net.set_asleep(self.here, true);
        self.shared.trace.line(format_args!("machine {} is paused", self.here));
    }

    /// Goes on, and finds out how late it is.
    pub fn wake(&mut self) {
        if !std::mem::take(&mut self.asleep) {
            return;
        }
        self.shared.net.set_asleep(self.here, false);
        self.shared.trace.line(format_args!("machine {} goes on", self.here));
        let behind = std::mem::take(&mut self.behind);
        if let Some(runtime) = &self.running {
            runtime.block_on(async move { tokio::time::advance(behind).await });
        }
    }

    /// Something arrives.
    pub fn take_in(&self, deed: Deed) {
        if let Some(runtime) = &self.running {
            let _inside = runtime.enter();
            deed();
        }
    }

    /// Lets time pass on it.
    pub fn pass(&mut self, span: Duration) {
        if self.asleep {
            self.behind += span;
        } else if let Some(runtime) = &self.running {
            runtime.block_on(async move { tokio::time::sleep(span).await });
        }
    }

    /// Runs something on it, in the background.
    pub fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        if let Some(runtime) = &self.running {
            let _inside = runtime.enter();
            tokio::spawn(work);
        }
    }

    /// Why its node does not run, although it should.
    pub fn problem(&self) -> Option<String> {
        self.problem.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The node's settings: what is large in earnest is small here, so that it happens.
    pub fn settings(here: Machine) -> Settings {
        let mut settings = Settings::in_dir("/");
        settings.advertise = address(here);
        settings.log.segment_bytes = 128 << 10;
        // As slow as the election timeouts allow: beats are most of what an idle cluster does.
        settings.snapshot.log_bytes = 6 << 10;
        settings
    }
}
