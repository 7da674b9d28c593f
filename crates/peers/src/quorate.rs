//! Quorate on three processes, asked through the client crate.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use quorate_client::admin::{Admin, Apply, NewCluster};
use quorate_client::{Client, limit};
use quorate_core::{Algorithm, Policy, Rate, Span};
use tokio::time::Instant;

use crate::cases::{CAPACITY, REFILL_PER_MINUTE};
use crate::measure::Caller;
use crate::servers::{Servers, free_ports};

/// How long the cluster may take until it decides.
const START: Duration = Duration::from_secs(30);

/// The bucket that grants.
const PLENTY: &str = "plenty";
/// The bucket that denies.
const FLOODED: &str = "flooded";

/// Starts three nodes, makes them a cluster with two policies, and connects to it once every shard decides.
pub(crate) async fn start(servers: &mut Servers, quorated: &Path) -> Result<Client, String> {
    let ports = free_ports(3)?;
    let addresses: Vec<String> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
    for (port, address) in ports.iter().zip(&addresses) {
        let mut command = Command::new(quorated);
        command.arg("--data-dir").arg(servers.directory().join(port.to_string())).args(["--listen", address]);
        servers.start(command, *port).await?;
    }
    let told = |error: quorate_client::Error| format!("quorate: {error}");
    let admin = Admin::new(addresses.clone()).map_err(told)?.deadline(START);
    make(&admin, &addresses).await?;
    let minute = Span(60_000_000);
    let refill = |units, period| Rate { units, period };
    let bucket = |name, capacity, refill| Policy::new(name, Algorithm::TokenBucket { capacity, refill });
    let policies = vec![
        bucket(PLENTY, CAPACITY, refill(REFILL_PER_MINUTE, minute)),
        bucket(FLOODED, 1, refill(1, Span(60 * minute.0))),
    ];
    admin.policy_apply(Apply { policies, ..Apply::default() }).await.map_err(told)?;
    let client = Client::builder().endpoints(addresses).connect_timeout(START).connect().await.map_err(told)?;
    settle(&client).await?;
    Ok(client)
}

/// Makes the cluster; asked again, a call that ended early goes on where it was.
async fn make(admin: &Admin, addresses: &[String]) -> Result<(), String> {
    let until = Instant::now() + START;
    loop {
        let new = NewCluster { nodes: addresses.to_vec(), ..NewCluster::default() };
        match admin.cluster_init(new).await {
            Ok(_) => return Ok(()),
            Err(error) if Instant::now() > until => return Err(format!("quorate: {error}")),
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

/// Returns once so many keys, of all shards, were decided without an error.
async fn settle(client: &Client) -> Result<(), String> {
    let until = Instant::now() + START;
    loop {
        let keys = (0..512).map(|number| format!("warm:{number}"));
        let decided = client.check_many(keys.map(|key| limit(PLENTY, key))).await;
        match decided.into_iter().find_map(Result::err) {
            None => return Ok(()),
            Some(error) if Instant::now() > until => return Err(format!("quorate: {error}")),
            Some(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

/// Asks through `check()` where a call has one text, else through `check_many()`.
#[derive(Clone)]
pub(crate) struct Checks {
    client: Client,
    policy: &'static str,
}

impl Checks {
    /// So many callers of one client, under a policy that denies or one that does not.
    pub(crate) fn of(client: &Client, callers: usize, flooded: bool) -> Vec<Checks> {
        vec![Checks { client: client.clone(), policy: if flooded { FLOODED } else { PLENTY } }; callers]
    }
}

impl Caller for Checks {
    async fn ask(&mut self, texts: &[String]) -> Result<usize, String> {
        let told = |error: quorate_client::Error| format!("quorate: {error}");
        if let [text] = texts {
            return Ok(usize::from(self.client.check(self.policy, text.as_str()).await.map_err(told)?.allowed));
        }
        let decided = self.client.check_many(texts.iter().map(|text| limit(self.policy, text.as_str()))).await;
        let mut granted = 0;
        for decision in decided {
            granted += usize::from(decision.map_err(told)?.allowed);
        }
        Ok(granted)
    }
}
