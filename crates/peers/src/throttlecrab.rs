//! throttlecrab-server over its Redis protocol, the fastest of those that it speaks.

use std::process::Command;

use crate::cases::{CAPACITY, REFILL_PER_MINUTE};
use crate::measure::Caller;
use crate::resp::Connection;
use crate::servers::{Servers, free_ports};

/// Starts it. The port to ask.
pub(crate) async fn start(servers: &mut Servers) -> Result<u16, String> {
    let port = free_ports(1)?[0];
    let mut command = Command::new("throttlecrab-server");
    command.args(["--redis", "--redis-host", "127.0.0.1", "--redis-port", &port.to_string(), "--log-level", "error"]);
    servers.start(command, port).await?;
    Ok(port)
}

/// One connection that asks checks.
pub(crate) struct Throttles {
    connection: Connection,
    burst: String,
    per_minute: String,
}

impl Throttles {
    /// So many of them.
    pub(crate) async fn connect(port: u16, callers: usize) -> Result<Vec<Throttles>, String> {
        let mut all = Vec::with_capacity(callers);
        for _ in 0..callers {
            let connection = Connection::to(port).await?;
            let (burst, per_minute) = (CAPACITY.to_string(), REFILL_PER_MINUTE.to_string());
            all.push(Throttles { connection, burst, per_minute });
        }
        Ok(all)
    }
}

impl Caller for Throttles {
    async fn ask(&mut self, texts: &[String]) -> Result<usize, String> {
        for text in texts {
            self.connection.add(&["THROTTLE", text, &self.burst, &self.per_minute, "60", "1"]);
        }
        let integers = self.connection.call(texts.len()).await?;
        Ok(integers.iter().step_by(5).filter(|allowed| **allowed == 1).count())
    }
}
