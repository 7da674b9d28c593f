//! What a node takes from the machine that it runs on. A simulator gives its own.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use futures::future::{BoxFuture, FutureExt};

use crate::clock::{Clock, SystemClock};
use crate::control::{ControlStore, SledControlStore, StoreError};
use crate::disk::{Disk, RealDisk};
use crate::identity::Identity;
use crate::random::{Random, SystemRandom};
use crate::transport::{Directory, Newcomers, TonicNewcomers, TonicPeers, Transport};

/// The control database's directory in the data directory.
pub(super) const CONTROL_DIR: &str = "control";

/// Opens the control database.
pub type OpenStore = dyn Fn() -> BoxFuture<'static, Result<Arc<dyn ControlStore>, StoreError>> + Send + Sync;
/// Makes the way to the other nodes.
pub type MakeTransport = dyn Fn(Identity, Directory) -> Arc<dyn Transport> + Send + Sync;

/// Clocks, randomness, disk and network.
#[derive(Clone)]
pub struct Parts {
    /// The node's own clocks.
    pub clock: Arc<dyn Clock>,
    /// What secrets and ids are drawn from.
    pub random: Arc<dyn Random>,
    /// The data directory.
    pub disk: Disk,
    /// Opens the control database; called once a process at most.
    pub store: Arc<OpenStore>,
    /// Makes the way to the other members.
    pub transport: Arc<MakeTransport>,
    /// The way to nodes that are in no cluster yet.
    pub newcomers: Arc<dyn Newcomers>,
}

impl fmt::Debug for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parts").field("clock", &self.clock).field("disk", &self.disk).finish_non_exhaustive()
    }
}

impl Parts {
    /// The real ones, with that data directory, which is locked for as long as they are there.
    ///
    /// # Errors
    ///
    /// The directory cannot be used, or another process uses it.
    pub async fn real(data_dir: &Path) -> std::io::Result<Parts> {
        let disk = RealDisk::open(data_dir).await?;
        let control = data_dir.join(CONTROL_DIR);
        let store = move || {
            let control = control.clone();
            async move { Ok(Arc::new(SledControlStore::open(&control).await?) as Arc<dyn ControlStore>) }.boxed()
        };
        Ok(Parts {
            clock: Arc::new(SystemClock),
            random: Arc::new(SystemRandom),
            disk,
            store: Arc::new(store),
            transport: Arc::new(|me, directory| Arc::new(TonicPeers::new(me, directory))),
            newcomers: Arc::new(TonicNewcomers),
        })
    }
}
