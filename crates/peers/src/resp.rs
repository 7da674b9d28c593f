//! The protocol of Redis, as far as scripts and small answers need it.
//!
//! By hand and not by the `redis` crate: each caller here owns its connection, writes a call's commands in one packet and
//! reads the answers where they come, with no channel, task or value tree between. So what is measured of the others is
//! never the price of a client that one could do without.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// A connection with one call under way at a time.
pub(crate) struct Connection {
    stream: TcpStream,
    out: Vec<u8>,
    input: Vec<u8>,
    /// Integers of the answers of the call, nested or not, in order.
    integers: Vec<i64>,
}

impl Connection {
    pub(crate) async fn to(port: u16) -> Result<Connection, String> {
        let told = |error: std::io::Error| format!("127.0.0.1:{port}: {error}");
        let stream = TcpStream::connect(("127.0.0.1", port)).await.map_err(told)?;
        stream.set_nodelay(true).map_err(told)?;
        Ok(Connection { stream, out: Vec::new(), input: Vec::new(), integers: Vec::new() })
    }

    /// Adds a command to the next call.
    pub(crate) fn add(&mut self, words: &[&str]) {
        self.out.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
        for word in words {
            self.out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            self.out.extend_from_slice(word.as_bytes());
            self.out.extend_from_slice(b"\r\n");
        }
    }

    /// Adds a command that was encoded before.
    pub(crate) fn add_encoded(&mut self, parts: &[&[u8]]) {
        parts.iter().for_each(|part| self.out.extend_from_slice(part));
    }

    /// Sends what was added and waits for so many answers; the integers in them.
    pub(crate) async fn call(&mut self, answers: usize) -> Result<&[i64], String> {
        let told = |error: std::io::Error| format!("the server is gone: {error}");
        self.stream.write_all(&self.out).await.map_err(told)?;
        self.out.clear();
        self.input.clear();
        self.integers.clear();
        let (mut got, mut at) = (0, 0);
        while got < answers {
            match read(&self.input[at..], &mut self.integers)? {
                Some(used) => {
                    got += 1;
                    at += used;
                }
                None => {
                    if self.stream.read_buf(&mut self.input).await.map_err(told)? == 0 {
                        return Err("the server has closed the connection".to_owned());
                    }
                }
            }
        }
        Ok(&self.integers)
    }

    /// Sends one command; its answer if that is a string.
    pub(crate) async fn text(&mut self, words: &[&str]) -> Result<String, String> {
        self.add(words);
        self.call(1).await?;
        Ok(String::from_utf8_lossy(&self.input).lines().last().unwrap_or_default().to_owned())
    }
}

/// Reads one answer: adds its integers, and tells how many bytes it had; none where it is not all there.
fn read(input: &[u8], integers: &mut Vec<i64>) -> Result<Option<usize>, String> {
    let Some(end) = input.windows(2).position(|two| two == b"\r\n") else { return Ok(None) };
    let (line, used) = (String::from_utf8_lossy(&input[1..end]), end + 2);
    let number = || line.parse::<i64>().map_err(|_| format!("an answer that makes no sense: {line}"));
    match input[0] {
        b'+' => Ok(Some(used)),
        b'-' => Err(format!("the server answered: {line}")),
        b':' => {
            integers.push(number()?);
            Ok(Some(used))
        }
        b'$' => {
            let all = used + usize::try_from(number()?).map_or(0, |length| length + 2);
            Ok((input.len() >= all).then_some(all))
        }
        b'*' => {
            let before = integers.len();
            let mut at = used;
            for _ in 0..number()?.max(0) {
                match read(&input[at..], integers)? {
                    Some(used) => at += used,
                    None => {
                        integers.truncate(before);
                        return Ok(None);
                    }
                }
            }
            Ok(Some(at))
        }
        other => Err(format!("an answer of an unknown kind: {}", char::from(other))),
    }
}
