//! Redis with a token bucket in Lua: what most people use.

use std::process::Command;
use std::time::Duration;

use tokio::time::Instant;

use crate::cases::{CAPACITY, REFILL_PER_MINUTE};
use crate::measure::Caller;
use crate::resp::Connection;
use crate::servers::{Servers, free_ports};

/// The same bucket as everybody's: full at first, `ARGV[1]` units at most, `ARGV[2]` more a microsecond, `ARGV[3]` taken.
const SCRIPT: &str = r"
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local capacity, rate, cost = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local state = redis.call('HMGET', KEYS[1], 'level', 'at')
local level = capacity
if state[1] then
  level = math.min(capacity, tonumber(state[1]) + math.max(0, now - tonumber(state[2])) * rate)
end
local allowed = 0
if level >= cost then
  level = level - cost
  allowed = 1
  redis.call('HSET', KEYS[1], 'level', level, 'at', now)
  redis.call('PEXPIRE', KEYS[1], math.ceil((capacity - level) / rate / 1000) + 1)
end
return {allowed, math.floor(level)}
";

/// How safe an answer is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Safety {
    /// In the memory of one process.
    Memory,
    /// On its disk: `appendfsync always`.
    Disk,
    /// On its disk, and two replicas follow, each with a disk of its own.
    Replicas,
}

/// Starts a master, and replicas where that is wanted. The port to ask.
pub(crate) async fn start(servers: &mut Servers, safety: Safety) -> Result<u16, String> {
    let count = if safety == Safety::Replicas { 3 } else { 1 };
    let ports = free_ports(count)?;
    let master = ports[0];
    for &port in &ports {
        let directory = servers.directory().join(port.to_string());
        std::fs::create_dir(&directory).map_err(|error| format!("{}: {error}", directory.display()))?;
        let mut command = Command::new("redis-server");
        command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--daemonize", "no"]);
        command.arg("--dir").arg(directory);
        match safety {
            Safety::Memory => command.args(["--appendonly", "no"]),
            Safety::Disk | Safety::Replicas => command.args(["--appendonly", "yes", "--appendfsync", "always"]),
        };
        if port != master {
            command.args(["--replicaof", &format!("127.0.0.1 {master}"), "--repl-diskless-sync-delay", "0"]);
        }
        servers.start(command, port).await?;
    }
    if safety == Safety::Replicas {
        wait_for_replicas(master).await?;
    }
    Ok(master)
}

/// Returns once both replicas have acknowledged a write.
async fn wait_for_replicas(master: u16) -> Result<(), String> {
    let mut connection = Connection::to(master).await?;
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        connection.add(&["SET", "ready", "1"]);
        connection.add(&["WAIT", "2", "200"]);
        if connection.call(2).await?.last() == Some(&2) {
            return Ok(());
        }
        if Instant::now() > until {
            return Err("redis: its replicas do not follow".to_owned());
        }
    }
}

/// One connection that asks checks, each a script.
pub(crate) struct Scripts {
    connection: Connection,
    before_key: Vec<u8>,
    after_key: Vec<u8>,
    wait: bool,
}

impl Scripts {
    /// So many of them. With `wait`, an answer counts once a replica has it, too.
    pub(crate) async fn connect(port: u16, callers: usize, wait: bool) -> Result<Vec<Scripts>, String> {
        let mut all = Vec::with_capacity(callers);
        for _ in 0..callers {
            let mut connection = Connection::to(port).await?;
            let sha = connection.text(&["SCRIPT", "LOAD", SCRIPT]).await?;
            let word = |word: &str| format!("${}\r\n{word}\r\n", word.len());
            let before_key = ["*7\r\n".to_owned(), word("EVALSHA"), word(&sha), word("1")].concat().into_bytes();
            let rate = format!("{:.12}", REFILL_PER_MINUTE as f64 / 60e6);
            let after_key = [word(&CAPACITY.to_string()), word(&rate), word("1")].concat().into_bytes();
            all.push(Scripts { connection, before_key, after_key, wait });
        }
        Ok(all)
    }
}

impl Caller for Scripts {
    async fn ask(&mut self, texts: &[String]) -> Result<usize, String> {
        for text in texts {
            let length = format!("${}\r\n", text.len());
            self.connection.add_encoded(&[
                &self.before_key,
                length.as_bytes(),
                text.as_bytes(),
                b"\r\n",
                &self.after_key,
            ]);
        }
        if self.wait {
            self.connection.add(&["WAIT", "1", "1000"]);
        }
        let integers = self.connection.call(texts.len() + usize::from(self.wait)).await?;
        let (checks, replicas) = integers.split_at(2 * texts.len());
        if self.wait && replicas.first().is_none_or(|acknowledged| *acknowledged < 1) {
            return Err("redis: no replica has acknowledged within a second".to_owned());
        }
        Ok(checks.iter().step_by(2).filter(|allowed| **allowed == 1).count())
    }
}
