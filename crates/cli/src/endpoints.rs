//! Where the cluster is: `host:port,host:port`; a port alone means the host before it.

use std::fmt;
use std::str::FromStr;

/// Nodes to ask, in this order; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoints(Vec<String>);

impl Endpoints {
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
        for part in text.split(',').map(str::trim) {
            let part = part.strip_prefix("http://").unwrap_or(part).trim_end_matches('/');
            let host_before = all.last().and_then(|last| last.rsplit_once(':')).map(|(host, _)| host);
            let (host, port) = match (part.rsplit_once(':'), host_before) {
                (Some((host, port)), _) => (host, port),
                (None, Some(host)) if part.bytes().all(|b| b.is_ascii_digit()) => (host, part),
                (None, _) => return Err(format!("{part:?} is not host:port, such as 127.0.0.1:7600")),
            };
            let port_is_good = port.parse::<u16>().is_ok_and(|port| port != 0);
            let host_is_good =
                !host.is_empty() && host.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.[]:".contains(&b));
            if !host_is_good || !port_is_good || (host.contains(':') && !host.starts_with('[')) {
                return Err(format!("{part:?} is not host:port, such as 127.0.0.1:7600"));
            }
            let endpoint = format!("{host}:{port}");
            if !all.contains(&endpoint) {
                all.push(endpoint);
            }
        }
        Ok(Endpoints(all))
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
        assert_eq!(parsed("http://a:1/,a:1,b:2").unwrap(), "a:1,b:2");
        for bad in ["", "7600", "a", "a:", "a:0", "a:70000", ":1", "a:1,,b:2", "::1:7600", "a b:1"] {
            assert!(parsed(bad).is_err(), "{bad:?}");
        }
    }
}
