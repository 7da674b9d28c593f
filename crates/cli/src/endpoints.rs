//! Where nodes are: `host:port,host:port`; a port alone means the host before it.

use std::fmt;
use std::str::FromStr;

use quorate_client::address;

/// Nodes to ask, in this order; never empty. One that is named twice is asked once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoints(Vec<String>);

/// The nodes that a cluster is to be made of; never empty, and none named twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nodes(Vec<String>);

/// Each address, as it was named.
fn read(text: &str) -> Result<Vec<String>, String> {
    let mut all: Vec<String> = Vec::new();
    for part in text.split(',').map(str::trim) {
        let host_before = all.last().and_then(|last| last.rsplit_once(':')).map(|(host, _)| host);
        let whole = match host_before {
            Some(host) if !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()) => format!("{host}:{part}"),
            _ => part.to_owned(),
        };
        all.push(address::read(&whole).map_err(|error| error.to_string())?);
    }
    Ok(all)
}

impl Endpoints {
    /// `host:port` of each.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }
}

impl Nodes {
    /// `host:port` of each.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }
}

impl FromStr for Endpoints {
    type Err = String;

    /// ```
    /// let endpoints: quorate_cli::endpoints::Endpoints = "127.0.0.1:7600,7601".parse().unwrap();
    /// assert_eq!(endpoints.to_string(), "127.0.0.1:7600,127.0.0.1:7601");
    /// ```
    fn from_str(text: &str) -> Result<Self, String> {
        let mut all: Vec<String> = Vec::new();
        for endpoint in read(text)? {
            if !all.iter().any(|other| address::is_same(other, &endpoint)) {
                all.push(endpoint);
            }
        }
        Ok(Endpoints(all))
    }
}

impl FromStr for Nodes {
    type Err = String;

    /// ```
    /// let twice = "a:7600,b:7600,a:7600".parse::<quorate_cli::endpoints::Nodes>();
    /// assert_eq!(twice.unwrap_err(), "a:7600 is named twice; name each node once");
    /// ```
    fn from_str(text: &str) -> Result<Self, String> {
        let all = read(text)?;
        for (at, node) in all.iter().enumerate() {
            if all[..at].iter().any(|other| address::is_same(other, node)) {
                return Err(format!("{node} is named twice; name each node once"));
            }
        }
        Ok(Nodes(all))
    }
}

impl fmt::Display for Endpoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_alone_means_the_host_before_it() {
        let parsed = |text: &str| text.parse::<Endpoints>().map(|e| e.to_string());
        assert_eq!(parsed("127.0.0.1:7600,7601, 7602").unwrap(), "127.0.0.1:7600,127.0.0.1:7601,127.0.0.1:7602");
        assert_eq!(parsed("[::1]:7600,7601").unwrap(), "[::1]:7600,[::1]:7601");
        assert_eq!(parsed("http://a:1/,a:1,b:2,A:1").unwrap(), "a:1,b:2");
        for bad in ["", "7600", "a", "a:", "a:0", "a:70000", ":1", "a:1,,b:2", "::1:7600", "a b:1", "a:+1", "a:1,70000"]
        {
            assert!(parsed(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_node_is_named_once() {
        let parsed = |text: &str| text.parse::<Nodes>().map(|nodes| nodes.0.join(","));
        assert_eq!(parsed("a:1,2, b:1"), Ok("a:1,a:2,b:1".into()));
        for twice in ["a:1,a:1", "a:1,1", "a:1,b:1,http://a:1", "[::1]:1,[0:0::1]:1", "a:1,A:01"] {
            assert!(parsed(twice).unwrap_err().ends_with(" is named twice; name each node once"), "{twice}");
        }
        assert!(parsed("a").is_err());
    }
}
