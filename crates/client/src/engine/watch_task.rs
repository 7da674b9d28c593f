//! Keeps one topology stream open, to whichever node answers.
//!
//! It goes from endpoint to endpoint: those the client was given, and every node that the topology names. It moves on when
//! a stream ends or says nothing at first, and when the engine asks it to, because a shard's leader does not answer and
//! another node may know of a newer one.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use futures::StreamExt as _;
use quorate_proto::v1;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use crate::backoff::Chance;
use crate::caps;
use crate::routes::Routes;
use crate::wire::{Incoming, Wire, WireError};

/// What a node reported.
pub(crate) struct Report {
    pub(crate) address: String,
    pub(crate) update: v1::TopologyUpdate,
}

/// What each endpoint answered last, where it was no topology.
#[derive(Debug, Default)]
pub(crate) struct Tried(Mutex<BTreeMap<String, String>>);

impl Tried {
    pub(crate) fn note(&self, address: &str, problem: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(address.to_owned(), problem.to_owned());
    }

    pub(crate) fn text(&self) -> String {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().map(|(address, problem)| format!("{address}: {problem}")).collect::<Vec<_>>().join("; ")
    }
}

/// Asks the watch to go elsewhere.
pub(crate) enum MoveOn {
    /// That node does not answer.
    Stalled,
    /// What this address reported cannot be used.
    Unusable,
}

pub(crate) struct Watch {
    pub(crate) wire: Arc<dyn Wire>,
    pub(crate) endpoints: Vec<String>,
    pub(crate) routes: Arc<ArcSwapOption<Routes>>,
    pub(crate) reports: mpsc::Sender<Report>,
    pub(crate) move_on: mpsc::Receiver<MoveOn>,
    pub(crate) tried: Arc<Tried>,
    pub(crate) chance: Chance,
}

/// Why a stream was left.
enum Left {
    /// The engine is gone.
    Over,
    /// To look elsewhere at once.
    Asked,
    Failed,
}

impl Watch {
    /// Ends when the engine does.
    pub(crate) async fn run(mut self) {
        let mut at = self.chance.below(self.endpoints.len().max(1));
        let mut failures: u32 = 0;
        loop {
            let address = self.candidate(at);
            at = at.wrapping_add(1);
            match self.follow(&address, &mut failures).await {
                Left::Over => return,
                Left::Asked => {}
                Left::Failed => {
                    failures = failures.saturating_add(1);
                    let wait = self.pause(failures);
                    tokio::select! {
                        biased;
                        () = sleep(wait) => {}
                        asked = self.move_on.recv() => if asked.is_none() { return },
                    }
                }
            }
        }
    }

    /// Every endpoint is tried once before the waits begin to grow.
    fn pause(&mut self, failures: u32) -> Duration {
        let rounds = failures / self.endpoints.len().max(1) as u32;
        self.chance.wait(rounds + 1)
    }

    fn candidate(&self, at: usize) -> String {
        let mut all = self.endpoints.clone();
        if let Some(routes) = self.routes.load().as_ref() {
            all.extend(
                routes
                    .topology
                    .nodes
                    .iter()
                    .map(|node| node.address.clone())
                    .filter(|one| !self.endpoints.contains(one)),
            );
        }
        let at = at % all.len().max(1);
        all.into_iter().nth(at).unwrap_or_default()
    }

    async fn follow(&mut self, address: &str, failures: &mut u32) -> Left {
        let mut updates = match self.open(address).await {
            Ok(updates) => updates,
            Err(why) => return self.failed(address, &why),
        };
        let mut first = true;
        loop {
            let next = async {
                if first { timeout(caps::DIAL, updates.next()).await.ok() } else { Some(updates.next().await) }
            };
            tokio::select! {
                biased;
                asked = self.move_on.recv() => match asked {
                    None => return Left::Over,
                    Some(MoveOn::Stalled) => return Left::Asked,
                    Some(MoveOn::Unusable) => return Left::Failed,
                },
                next = next => match next {
                    Some(Some(Ok(update))) => {
                        (first, *failures) = (false, 0);
                        if self.reports.send(Report { address: address.to_owned(), update }).await.is_err() {
                            return Left::Over;
                        }
                    }
                    Some(Some(Err(why))) => return self.failed(address, &why),
                    Some(None) => return self.failed(address, &WireError::new("it ended the topology stream")),
                    None => return self.failed(address, &WireError::new(format!("no topology within {:?}", caps::DIAL))),
                },
            }
        }
    }

    async fn open(&self, address: &str) -> Result<Incoming<v1::TopologyUpdate>, WireError> {
        match timeout(caps::DIAL, self.wire.watch(address)).await {
            Ok(opened) => opened,
            Err(_) => Err(WireError::new(format!("no answer within {:?}", caps::DIAL))),
        }
    }

    fn failed(&self, address: &str, why: &WireError) -> Left {
        tracing::debug!(address, %why, "no topology from this node; trying the next");
        self.tried.note(address, &why.0);
        Left::Failed
    }
}
