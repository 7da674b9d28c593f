//! The client's address, through as many proxies as are trusted.

use std::net::IpAddr;

use http::header::{FORWARDED, HeaderName};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::forwarded::{self, Syntax, address, from_the_right};
use super::headers::{header_name, only};
use super::peer::peer;
use super::{Identify, IdentityError, Parts};
use crate::caps;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The client's IP address: that of the connection or, where that is a trusted proxy's, the one that it wrote down.
///
/// The header is read from the right, over the addresses of trusted proxies; the first one that is not trusted is the client.
/// What stands left of it is whatever the client sent, and is never looked at. A trusted hop that wrote something else than
/// an address (`unknown`, `_hidden`) stands for its clients itself.
///
/// One header is read, `X-Forwarded-For` unless [`forwarded`](Self::forwarded) says otherwise: a proxy that writes one lets a
/// client's other one pass, so who reads both believes the client.
///
/// A key is an IPv4 address, or the first 64 bits of an IPv6 address, because one customer has so many addresses; addresses
/// of IPv4 within IPv6 are IPv4. The address has to be known to the server: see [`Peer`](super::Peer).
///
/// ```
/// use quorate_client::identity::{ClientIp, Identify, Peer};
/// # fn main() -> Result<(), quorate_client::identity::IdentityError> {
/// let client = ClientIp::trusted(["10.0.0.0/8", "fd00::/8"])?;
/// let mut request = http::Request::get("/").body(()).unwrap();
/// request.headers_mut().insert("x-forwarded-for", "1.1.1.1, 203.0.113.7, 10.0.0.9".parse().unwrap());
/// request.extensions_mut().insert(Peer("10.0.0.5:4711".parse().unwrap()));
/// let (parts, ()) = request.into_parts();
/// assert_eq!(client.identify(&parts).as_deref(), Some("203.0.113.7"), "1.1.1.1 is what the client made up");
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct ClientIp {
    trusted: Vec<IpNet>,
    source: Source,
    v4_prefix: u8,
    v6_prefix: u8,
    local_proxy: bool,
}

#[derive(Clone, Debug)]
enum Source {
    List(HeaderName, Syntax),
    /// One address, the whole value.
    One(HeaderName),
}

impl ClientIp {
    /// The address of the connection, whatever headers say: where clients connect directly.
    pub fn peer() -> ClientIp {
        ClientIp {
            trusted: Vec::new(),
            source: Source::List(X_FORWARDED_FOR, Syntax::Plain),
            v4_prefix: 32,
            v6_prefix: 64,
            local_proxy: false,
        }
    }

    /// Believes proxies of those networks, written `10.0.0.0/8`, `fd00::/8` or as single addresses; at most 256. Name those
    /// that hold nothing but your proxies: a client from a trusted network can be whoever it likes.
    ///
    /// # Errors
    /// Where one is no network.
    pub fn trusted<N: AsRef<str>>(networks: impl IntoIterator<Item = N>) -> Result<ClientIp, IdentityError> {
        let networks = networks.into_iter().take(caps::TRUSTED_NETWORKS + 1);
        let trusted = networks.map(|one| network(one.as_ref())).collect::<Result<Vec<_>, _>>()?;
        if trusted.len() > caps::TRUSTED_NETWORKS {
            let text = format!("more than {} trusted networks; name larger ones", caps::TRUSTED_NETWORKS);
            return Err(IdentityError::new(text));
        }
        Ok(ClientIp { trusted, ..ClientIp::peer() })
    }

    /// Reads `Forwarded` (RFC 7239) instead of `X-Forwarded-For`.
    #[must_use]
    pub fn forwarded(mut self) -> ClientIp {
        self.source = Source::List(FORWARDED, Syntax::Parameters);
        self
    }

    /// Reads one address from a header that the trusted proxy overwrites on every request, such as `cf-connecting-ip` or
    /// `x-real-ip`, instead of a list. Where it is no address, or stands there twice, the proxy stands for its clients.
    ///
    /// # Errors
    /// Where no header can have that name.
    pub fn single(mut self, name: &str) -> Result<ClientIp, IdentityError> {
        self.source = Source::One(header_name(name)?);
        Ok(self)
    }

    /// How many bits of an IPv6 address make the key, 1 to 128; 64 if not set. A household often has 56, a customer of a
    /// hoster 48; a shorter prefix joins more strangers.
    #[must_use]
    pub fn ipv6_prefix(mut self, bits: u8) -> ClientIp {
        self.v6_prefix = bits.clamp(1, 128);
        self
    }

    /// How many bits of an IPv4 address make the key, 1 to 32; 32 if not set.
    #[must_use]
    pub fn ipv4_prefix(mut self, bits: u8) -> ClientIp {
        self.v4_prefix = bits.clamp(1, 32);
        self
    }

    /// Trusts a connection without an address, such as that of a proxy over a Unix socket.
    #[must_use]
    pub fn local_proxy(mut self) -> ClientIp {
        self.local_proxy = true;
        self
    }

    /// The client's whole address, for a log; none where the server does not know the connection's.
    pub fn address(&self, request: &Parts) -> Option<IpAddr> {
        let peer = peer(&request.extensions);
        match peer {
            Some(peer) if !self.trusts(peer) => return Some(peer),
            None if !self.local_proxy => return None,
            _ => {}
        }
        match &self.source {
            Source::One(name) => only(&request.headers, name).and_then(|value| address(value.trim())).or(peer),
            Source::List(name, syntax) => {
                let mut believed = peer;
                for hop in from_the_right(&request.headers, name, *syntax) {
                    let Some(hop) = hop else { break };
                    believed = Some(hop);
                    if !self.trusts(hop) {
                        break;
                    }
                }
                believed
            }
        }
    }

    fn trusts(&self, address: IpAddr) -> bool {
        self.trusted.iter().any(|network| network.contains(&address))
    }
}

impl Identify for ClientIp {
    fn identify(&self, request: &Parts) -> Option<String> {
        let address = self.address(request)?;
        let prefix = if address.is_ipv4() { self.v4_prefix } else { self.v6_prefix };
        let network = IpNet::new(address, prefix).ok()?.trunc();
        let is_whole = network.prefix_len() == network.max_prefix_len();
        Some(if is_whole { address.to_string() } else { network.to_string() })
    }
}

fn network(text: &str) -> Result<IpNet, IdentityError> {
    let text = text.trim();
    let whole = || forwarded::address(text).map(IpNet::from);
    let network = text.parse().ok().or_else(whole).ok_or_else(|| {
        IdentityError::new(format!("{text:?} is no network; write an address and its bits, as 10.0.0.0/8 or fd00::/8"))
    })?;
    Ok(unmapped(network))
}

/// A network of IPv4 addresses within IPv6 as one of IPv4, as addresses are compared.
fn unmapped(network: IpNet) -> IpNet {
    let as_v4 = |network: Ipv6Net| {
        let bits = network.prefix_len().checked_sub(96)?;
        Ipv4Net::new(network.addr().to_ipv4_mapped()?, bits).ok()
    };
    match network {
        IpNet::V6(network) => as_v4(network).map_or(IpNet::V6(network), IpNet::V4),
        v4 => v4,
    }
}
