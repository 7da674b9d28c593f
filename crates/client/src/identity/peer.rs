//! The address at the other end of the connection.

use std::net::{IpAddr, SocketAddr};

use http::Extensions;

/// The address of the connection that a request came by, as a request's extension: for servers that put none of their own
/// there. Those of axum (`into_make_service_with_connect_info`) and tonic are found without it.
///
/// ```
/// use quorate_client::identity::{ClientIp, Identify, Peer};
/// let mut request = http::Request::get("/").body(()).unwrap();
/// request.extensions_mut().insert(Peer("203.0.113.7:4711".parse().unwrap()));
/// let (parts, ()) = request.into_parts();
/// assert_eq!(ClientIp::peer().identify(&parts).as_deref(), Some("203.0.113.7"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer(
    /// The address and port of the other end.
    pub SocketAddr,
);

/// The other end's address, whoever put it there.
pub(super) fn peer(extensions: &Extensions) -> Option<IpAddr> {
    let own = extensions.get::<Peer>().map(|peer| peer.0);
    let found = own.or_else(|| of_axum(extensions)).or_else(|| of_tonic(extensions))?;
    Some(found.ip().to_canonical())
}

#[cfg(feature = "axum")]
fn of_axum(extensions: &Extensions) -> Option<SocketAddr> {
    extensions.get::<axum::extract::ConnectInfo<SocketAddr>>().map(|info| info.0)
}

#[cfg(not(feature = "axum"))]
fn of_axum(_: &Extensions) -> Option<SocketAddr> {
    None
}

#[cfg(feature = "tonic")]
fn of_tonic(extensions: &Extensions) -> Option<SocketAddr> {
    extensions.get::<tonic::transport::server::TcpConnectInfo>().and_then(|info| info.remote_addr())
}

#[cfg(not(feature = "tonic"))]
fn of_tonic(_: &Extensions) -> Option<SocketAddr> {
    None
}
