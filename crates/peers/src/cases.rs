//! What is measured: who is started, and how each is asked.

use std::path::PathBuf;

use clap::ValueEnum;

use crate::measure::{Caller, Measured, Times, measure};
use crate::servers::{Servers, runs};
use crate::texts::Texts;
use crate::{echo, quorate, redis, throttlecrab};

/// Units of everybody's bucket: nothing is denied, but by the flooded one.
pub(crate) const CAPACITY: u64 = 1_000_000;
/// Units that come back in a minute: slow enough that every key stays.
pub(crate) const REFILL_PER_MINUTE: u64 = 100;

/// Checks of one call where many are asked together.
const MANY: usize = 128;
/// Commands of one packet, where Redis is asked so.
const PIPELINED: usize = 16;
/// Connections to those that have one for each caller.
const CONNECTIONS: usize = 50;

/// Where data directories are, and the node.
pub(crate) struct Directories {
    pub(crate) disk: PathBuf,
    pub(crate) tmpfs: PathBuf,
    pub(crate) quorated: PathBuf,
}

/// Servers that are started together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Stand {
    /// Three nodes on a disk.
    Quorate,
    /// Three nodes in memory.
    QuorateTmpfs,
    /// Redis, in memory.
    Redis,
    /// Redis with `appendfsync always`.
    RedisFsync,
    /// Redis with `appendfsync always` and two replicas.
    RedisReplicas,
    /// throttlecrab-server.
    Throttlecrab,
    /// A bare tonic server.
    Echo,
}

/// What is measured in one way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Case {
    /// Unique.
    pub(crate) name: &'static str,
    /// At the same time.
    pub(crate) callers: usize,
    /// Checks of one call.
    pub(crate) batch: usize,
}

const fn case(name: &'static str, callers: usize, batch: usize) -> Case {
    Case { name, callers, batch }
}

pub(crate) const CHECK_1024: Case = case("quorate check(), 1024 callers", 1024, 1);
pub(crate) const CHECK_256: Case = case("quorate check(), 256 callers", 256, 1);
pub(crate) const CHECK_64: Case = case("quorate check(), 64 callers", 64, 1);
pub(crate) const CHECK_1: Case = case("quorate check(), one caller, disk", 1, 1);
pub(crate) const CHECK_1_TMPFS: Case = case("quorate check(), one caller, tmpfs", 1, 1);
pub(crate) const CHECK_MANY: Case = case("quorate check_many() of 128", 32, MANY);
pub(crate) const DENIALS: Case = case("quorate check_many() of 128, one flooded key", 32, MANY);
pub(crate) const REDIS: Case = case("redis lua", CONNECTIONS, 1);
pub(crate) const REDIS_PIPELINED: Case = case("redis lua, pipelined by 16", CONNECTIONS, PIPELINED);
pub(crate) const REDIS_FSYNC: Case = case("redis lua, fsync", CONNECTIONS, 1);
pub(crate) const REDIS_FSYNC_PIPELINED: Case = case("redis lua, fsync, pipelined by 16", CONNECTIONS, PIPELINED);
pub(crate) const REDIS_REPLICAS: Case = case("redis lua, fsync, WAIT 1", CONNECTIONS, 1);
pub(crate) const REDIS_REPLICAS_PIPELINED: Case =
    case("redis lua, fsync, WAIT 1, pipelined by 16", CONNECTIONS, PIPELINED);
pub(crate) const REDIS_REPLICAS_1: Case = case("redis lua, fsync, WAIT 1, one caller, disk", 1, 1);
pub(crate) const THROTTLECRAB: Case = case("throttlecrab RESP", CONNECTIONS, 1);
pub(crate) const THROTTLECRAB_PIPELINED: Case = case("throttlecrab RESP, pipelined by 16", CONNECTIONS, PIPELINED);
pub(crate) const ECHO_1: Case = case("tonic unary echo, one caller", 1, 1);

impl Stand {
    pub(crate) const ALL: [Stand; 7] = [
        Stand::Quorate,
        Stand::Redis,
        Stand::RedisFsync,
        Stand::RedisReplicas,
        Stand::Throttlecrab,
        Stand::QuorateTmpfs,
        Stand::Echo,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Stand::Quorate => "quorate",
            Stand::QuorateTmpfs => "quorate-tmpfs",
            Stand::Redis => "redis",
            Stand::RedisFsync => "redis-fsync",
            Stand::RedisReplicas => "redis-replicas",
            Stand::Throttlecrab => "throttlecrab",
            Stand::Echo => "echo",
        }
    }

    /// What it needs and is not there, if anything.
    pub(crate) fn missing(self, directories: &Directories) -> Option<String> {
        match self {
            Stand::Quorate | Stand::QuorateTmpfs if !directories.quorated.exists() => Some(format!(
                "there is no {}: build it, or name another with --quorated",
                directories.quorated.display()
            )),
            Stand::Redis | Stand::RedisFsync | Stand::RedisReplicas if !runs("redis-server") => {
                Some("there is no redis-server (Debian: apt-get install redis-server)".to_owned())
            }
            Stand::Throttlecrab if !runs("throttlecrab-server") => {
                Some("there is no throttlecrab-server (cargo install throttlecrab-server --locked)".to_owned())
            }
            _ => None,
        }
    }

    /// One turn: starts the servers, measures every case of theirs, stops them.
    pub(crate) fn run(
        self,
        directories: &Directories,
        texts: &Texts,
        times: Times,
    ) -> Result<Vec<(Case, Measured)>, String> {
        // As the nodes and the others' servers are: one thread.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.map_err(|error| error.to_string())?.block_on(self.turn(directories, texts, times))
    }

    async fn turn(
        self,
        directories: &Directories,
        texts: &Texts,
        times: Times,
    ) -> Result<Vec<(Case, Measured)>, String> {
        let in_memory = matches!(self, Stand::QuorateTmpfs);
        let flooded = Texts::one();
        let servers = Servers::under(if in_memory { &directories.tmpfs } else { &directories.disk })?;
        let mut turn = Turn { servers, texts, times, results: Vec::new() };
        match self {
            Stand::Quorate => {
                let client = quorate::start(&mut turn.servers, &directories.quorated).await?;
                for case in [CHECK_1024, CHECK_256, CHECK_64, CHECK_1, CHECK_MANY] {
                    turn.measure(case, quorate::Checks::of(&client, case.callers, false)).await?;
                }
                turn.texts = &flooded;
                turn.measure(DENIALS, quorate::Checks::of(&client, DENIALS.callers, true)).await?;
                client.close().await;
            }
            Stand::QuorateTmpfs => {
                let client = quorate::start(&mut turn.servers, &directories.quorated).await?;
                turn.measure(CHECK_1_TMPFS, quorate::Checks::of(&client, 1, false)).await?;
                client.close().await;
            }
            Stand::Redis => turn.redis(redis::Safety::Memory, &[REDIS, REDIS_PIPELINED]).await?,
            Stand::RedisFsync => turn.redis(redis::Safety::Disk, &[REDIS_FSYNC, REDIS_FSYNC_PIPELINED]).await?,
            Stand::RedisReplicas => {
                let cases = [REDIS_REPLICAS, REDIS_REPLICAS_PIPELINED, REDIS_REPLICAS_1];
                turn.redis(redis::Safety::Replicas, &cases).await?;
            }
            Stand::Throttlecrab => {
                let port = throttlecrab::start(&mut turn.servers).await?;
                for case in [THROTTLECRAB, THROTTLECRAB_PIPELINED] {
                    turn.measure(case, throttlecrab::Throttles::connect(port, case.callers).await?).await?;
                }
            }
            Stand::Echo => {
                let port = echo::start(&mut turn.servers).await?;
                turn.measure(ECHO_1, echo::Calls::connect(port, 1).await?).await?;
            }
        }
        Ok(turn.results)
    }
}

/// One turn of a stand.
struct Turn<'a> {
    servers: Servers,
    texts: &'a Texts,
    times: Times,
    results: Vec<(Case, Measured)>,
}

impl Turn<'_> {
    async fn redis(&mut self, safety: redis::Safety, cases: &[Case]) -> Result<(), String> {
        let port = redis::start(&mut self.servers, safety).await?;
        for &case in cases {
            let wait = safety == redis::Safety::Replicas;
            self.measure(case, redis::Scripts::connect(port, case.callers, wait).await?).await?;
        }
        Ok(())
    }

    async fn measure<C: Caller>(&mut self, case: Case, callers: Vec<C>) -> Result<(), String> {
        let measured = measure(callers, case.batch, self.texts, self.times, &self.servers.pids()).await;
        let measured = measured.map_err(|problem| format!("{}: {problem}", case.name))?;
        self.results.push((case, measured));
        Ok(())
    }
}
