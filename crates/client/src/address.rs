//! Where a node is: `host:port`, read in one place for whoever takes one from a person.

use crate::caps;
use crate::error::Error;

/// Reads an endpoint, such as `127.0.0.1:7600`, `[::1]:7600` or `http://node-1.example:7600/`: its `host:port`.
///
/// # Errors
/// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) where it cannot be one, saying why.
///
/// ```
/// use quorate_client::address;
/// assert_eq!(address::read("http://node-1.example:7600/").unwrap(), "node-1.example:7600");
/// assert!(address::read("node-1.example").unwrap_err().to_string().contains("it has no port"));
/// ```
pub fn read(endpoint: &str) -> Result<String, Error> {
    let wrong = |why: &str| {
        let shown: String = endpoint.chars().take(caps::ADDRESS_SHOWN).collect();
        Error::invalid(format!("{shown:?} is no endpoint: {why}; write host:port, as 127.0.0.1:7600"))
    };
    if endpoint.starts_with("https://") {
        return Err(wrong("TLS is not supported"));
    }
    let address = endpoint.strip_prefix("http://").unwrap_or(endpoint).trim_end_matches('/');
    let (host, port) = address.rsplit_once(':').ok_or_else(|| wrong("it has no port"))?;
    let digits = port.bytes().all(|byte| byte.is_ascii_digit());
    if !digits || !port.parse::<u16>().is_ok_and(|port| port > 0) {
        return Err(wrong("its port is not a number from 1 to 65535"));
    }
    let is_v6 = host.starts_with('[') && host.ends_with(']');
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c) || (is_v6 && "[]:%".contains(c));
    if host.is_empty() || host.len() > caps::HOST_BYTES || !host.chars().all(allowed) {
        return Err(wrong("its host is not a name or an address"));
    }
    Ok(address.to_owned())
}

/// Whether two addresses are the same but for how they are written: `Node-1:7600` and `node-1:07600`, or two forms of one IP
/// address. Names are not looked up.
///
/// ```
/// use quorate_client::address;
/// assert!(address::is_same("[::1]:7600", "[0:0:0:0:0:0:0:1]:7600"));
/// assert!(!address::is_same("node-1:7600", "node-1:7601"));
/// ```
pub fn is_same(a: &str, b: &str) -> bool {
    canonical(a) == canonical(b)
}

fn canonical(address: &str) -> String {
    if let Ok(ip) = address.parse::<std::net::SocketAddr>() {
        return ip.to_string();
    }
    let (host, port) = address.rsplit_once(':').unwrap_or((address, ""));
    format!("{}:{}", host.to_ascii_lowercase(), port.trim_start_matches('0'))
}

/// Places to ask, each once however often it was named.
pub(crate) fn endpoints(named: &[String]) -> Result<Vec<String>, Error> {
    let mut all: Vec<String> = Vec::with_capacity(named.len());
    for endpoint in named {
        let address = read(endpoint)?;
        if !all.iter().any(|other| is_same(other, &address)) {
            all.push(address);
        }
    }
    match all.len() {
        0 => Err(Error::invalid("no endpoint is given; name at least one node as host:port")),
        n if n > caps::ENDPOINTS => Err(Error::invalid(format!(
            "more than {} endpoints; a few are enough, the rest is learned",
            caps::ENDPOINTS
        ))),
        _ => Ok(all),
    }
}

/// The nodes that a cluster is to be made of: one named twice is a mistake, and leaving it out would make another cluster than
/// the one that was meant.
pub(crate) fn nodes(named: &[String]) -> Result<Vec<String>, Error> {
    let mut all: Vec<String> = Vec::with_capacity(named.len());
    for node in named {
        let address = read(node)?;
        if all.iter().any(|other| is_same(other, &address)) {
            return Err(Error::invalid(format!("node {address} is named twice; name each node once")));
        }
        all.push(address);
    }
    if all.is_empty() { Err(Error::invalid("no node is named; name each node as host:port")) } else { Ok(all) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    fn texts(all: &[&str]) -> Vec<String> {
        all.iter().map(|one| (*one).to_owned()).collect()
    }

    #[test]
    fn endpoints_are_addresses() {
        for good in ["127.0.0.1:7600", "http://node-1.example:7600/", "[::1]:7600", "localhost:1", "[fe80::1%eth0]:1"] {
            assert!(read(good).is_ok(), "{good}");
        }
        let long = format!("{}:1", "a".repeat(300));
        for bad in [
            "",
            "localhost",
            "localhost:",
            "localhost:0",
            "localhost:+7600",
            "localhost:-1",
            "localhost:70000",
            "localhost:7600\n",
            ":7600",
            "https://a:1",
            "a b:1",
            "::1:7600",
            "a/b:1",
            "\u{1b}[31m:1",
            &long,
        ] {
            let error = read(bad).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{bad}");
            assert!(error.to_string().contains("host:port") && error.to_string().len() < 400, "{error}");
        }
    }

    #[test]
    fn an_endpoint_named_twice_is_asked_once() {
        assert_eq!(endpoints(&texts(&["a:1", "http://a:1", "A:01", "a:2"])).unwrap(), ["a:1", "a:2"]);
        assert!(endpoints(&[]).is_err());
        assert!(endpoints(&(0..65).map(|i| format!("a{i}:1")).collect::<Vec<_>>()).is_err());
    }

    #[test]
    fn a_node_named_twice_is_a_mistake() {
        assert_eq!(nodes(&texts(&["a:1", "http://b:1"])).unwrap(), ["a:1", "b:1"]);
        for twice in [["a:1", "a:1"], ["a:1", "http://A:1/"], ["[::1]:7", "[0::1]:7"], ["a:1", "a:01"]] {
            let error = nodes(&texts(&twice)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid);
            assert!(error.to_string().contains("is named twice; name each node once"), "{error}");
        }
        assert!(nodes(&[]).is_err());
    }
}
