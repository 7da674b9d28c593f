//! The client's address from headers, honest and hostile: a table of cases, and what holds for all.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::net::{IpAddr, Ipv6Addr};

use http::HeaderValue;
use proptest::prelude::*;
use quorate_client::identity::{
    ApiKey, ClientIp, FromExtension, Header, Identify, Parts, Peer, SignedHeader, SigningKeys,
};

const PROXIES: [&str; 3] = ["10.0.0.0/8", "fd00::/8", "192.0.2.1"];

fn request(peer: Option<&str>, headers: &[(&str, &str)]) -> Parts {
    let mut request = http::Request::get("/").body(()).unwrap();
    for (name, value) in headers {
        let name = http::HeaderName::from_bytes(name.as_bytes()).unwrap();
        request.headers_mut().append(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
    }
    if let Some(peer) = peer {
        let address = peer.parse().map(|ip: IpAddr| (ip, 4711).into()).or_else(|_| peer.parse());
        request.extensions_mut().insert(Peer(address.unwrap()));
    }
    request.into_parts().0
}

fn by_list(peer: &str, lines: &[&str]) -> String {
    let headers: Vec<_> = lines.iter().map(|line| ("x-forwarded-for", *line)).collect();
    ClientIp::trusted(PROXIES).unwrap().identify(&request(Some(peer), &headers)).unwrap()
}

fn by_parameters(peer: &str, lines: &[&str]) -> String {
    let headers: Vec<_> = lines.iter().map(|line| ("forwarded", *line)).collect();
    ClientIp::trusted(PROXIES).unwrap().forwarded().identify(&request(Some(peer), &headers)).unwrap()
}

#[test]
fn x_forwarded_for_is_walked_from_the_right() {
    let long = format!("{}, 203.0.113.7", "1.1.1.1, ".repeat(10_000));
    let own = format!("203.0.113.7{}", ", 10.0.0.9".repeat(31));
    let too_many = format!("203.0.113.7{}", ", 10.0.0.9".repeat(40));
    let wide = format!("203.0.113.7, {}10.0.0.9", " ".repeat(9_000));
    let commas = format!("203.0.113.7{}", ",".repeat(5_000));
    let cases: &[(&str, &[&str], &str)] = &[
        // Who connects directly is believed nothing.
        ("203.0.113.7", &["1.1.1.1"], "203.0.113.7"),
        ("203.0.113.7", &["1.1.1.1, 10.0.0.1"], "203.0.113.7"),
        // The rightmost that is not a proxy; the rest is invention.
        ("10.0.0.5", &["203.0.113.7"], "203.0.113.7"),
        ("10.0.0.5", &["1.1.1.1, 203.0.113.7"], "203.0.113.7"),
        ("10.0.0.5", &["1.1.1.1, 203.0.113.7, 10.0.0.9"], "203.0.113.7"),
        ("10.0.0.5", &["10.9.9.9, 203.0.113.7, 192.0.2.1 ,10.0.0.9"], "203.0.113.7"),
        ("10.0.0.5", &["1.1.1.1, 192.0.2.2"], "192.0.2.2"),
        // Several headers are one list.
        ("10.0.0.5", &["1.1.1.1", "203.0.113.7"], "203.0.113.7"),
        ("10.0.0.5", &["1.1.1.1, 203.0.113.7", "10.0.0.9, 10.0.0.8"], "203.0.113.7"),
        // Nothing to walk over, and nothing but proxies.
        ("10.0.0.5", &[], "10.0.0.5"),
        ("10.0.0.5", &[""], "10.0.0.5"),
        ("10.0.0.5", &[" , ,, "], "10.0.0.5"),
        ("10.0.0.5", &["10.0.0.9, 10.0.0.8"], "10.0.0.9"),
        ("10.0.0.5", &["203.0.113.7,, ,10.0.0.9,"], "203.0.113.7"),
        // A hop that writes no address stands for its clients.
        ("10.0.0.5", &["203.0.113.7, unknown"], "10.0.0.5"),
        ("10.0.0.5", &["203.0.113.7, _hidden, 10.0.0.9"], "10.0.0.9"),
        ("10.0.0.5", &["203.0.113.7, 10.0.0.9.1"], "10.0.0.5"),
        ("10.0.0.5", &["203.0.113.7, 010.0.0.9"], "10.0.0.5"),
        ("10.0.0.5", &["203.0.113.7, 10.0.0.256"], "10.0.0.5"),
        ("10.0.0.5", &["203.0.113.7, localhost"], "10.0.0.5"),
        ("10.0.0.5", &["203.0.113.7, 10.0.0.9 10.0.0.8"], "10.0.0.5"),
        ("10.0.0.5", &["203.0.113.7, \u{ff11}0.0.0.9"], "10.0.0.5"),
        // What is left of the client may be anything.
        ("10.0.0.5", &["\", unknown, \\\", 203.0.113.7"], "203.0.113.7"),
        ("10.0.0.5", &["\u{1f980}, 203.0.113.7"], "203.0.113.7"),
        ("10.0.0.5", &[&long], "203.0.113.7"),
        // Ports, quotes, brackets.
        ("10.0.0.5", &["203.0.113.7:80"], "203.0.113.7"),
        ("10.0.0.5", &["203.0.113.7:"], "10.0.0.5"),
        ("10.0.0.5", &["203.0.113.7:99999"], "10.0.0.5"),
        ("10.0.0.5", &["203.0.113.7:8a"], "10.0.0.5"),
        ("10.0.0.5", &["\"203.0.113.7\""], "203.0.113.7"),
        ("10.0.0.5", &["\"203.0.113.7"], "10.0.0.5"),
        ("10.0.0.5", &["\""], "10.0.0.5"),
        ("10.0.0.5", &["[203.0.113.7]"], "10.0.0.5"),
        // IPv6: its first 64 bits, whatever is written around it.
        ("10.0.0.5", &["2001:db8:1:2:3:4:5:6"], "2001:db8:1:2::/64"),
        ("10.0.0.5", &["[2001:db8:1:2::9]"], "2001:db8:1:2::/64"),
        ("10.0.0.5", &["[2001:DB8:1:2::9]:4711"], "2001:db8:1:2::/64"),
        ("10.0.0.5", &["\"[2001:db8:1:2::9]:4711\""], "2001:db8:1:2::/64"),
        ("10.0.0.5", &["[2001:db8:1:2::9]x"], "10.0.0.5"),
        ("10.0.0.5", &["[2001:db8:1:2::9"], "10.0.0.5"),
        ("10.0.0.5", &["[]"], "10.0.0.5"),
        ("10.0.0.5", &["2001:db8::1::2"], "10.0.0.5"),
        ("fd00::5", &["203.0.113.7, fd00::9"], "203.0.113.7"),
        // Zones are the business of who wrote them.
        ("10.0.0.5", &["fe80::1%eth0"], "fe80::/64"),
        ("10.0.0.5", &["[fe80::1%25eth0]:80"], "fe80::/64"),
        ("10.0.0.5", &["fe80::1%"], "10.0.0.5"),
        ("10.0.0.5", &["203.0.113.7%eth0"], "10.0.0.5"),
        // IPv4 within IPv6 is IPv4, on both sides.
        ("::ffff:10.0.0.5", &["203.0.113.7"], "203.0.113.7"),
        ("::ffff:203.0.113.7", &["1.1.1.1"], "203.0.113.7"),
        ("10.0.0.5", &["::ffff:203.0.113.7, ::ffff:10.0.0.9"], "203.0.113.7"),
        ("10.0.0.5", &["[::ffff:cb00:7107]"], "203.0.113.7"),
        // At the caps it stops at what it has.
        ("10.0.0.5", &[&own], "203.0.113.7"),
        ("10.0.0.5", &[&too_many], "10.0.0.9"),
        ("10.0.0.5", &[&wide], "10.0.0.5"),
        ("10.0.0.5", &[&commas], "10.0.0.5"),
    ];
    for (peer, lines, client) in cases {
        let shown: Vec<_> = lines.iter().map(|line| line.chars().take(80).collect::<String>()).collect();
        assert_eq!(by_list(peer, lines), *client, "from {peer}: {shown:?}");
    }
}

#[test]
fn forwarded_is_walked_from_the_right() {
    let padded = format!("for=203.0.113.7;x=\"{}\"", "y".repeat(2_000));
    let cases: &[(&str, &[&str], &str)] = &[
        ("203.0.113.7", &["for=1.1.1.1"], "203.0.113.7"),
        ("10.0.0.5", &["for=203.0.113.7"], "203.0.113.7"),
        ("10.0.0.5", &["FOR=203.0.113.7;proto=https;by=10.0.0.5"], "203.0.113.7"),
        ("10.0.0.5", &["proto=https ; for = \"203.0.113.7:80\""], "203.0.113.7"),
        ("10.0.0.5", &["for=1.1.1.1, for=203.0.113.7, for=10.0.0.9"], "203.0.113.7"),
        ("10.0.0.5", &["for=1.1.1.1", "for=203.0.113.7"], "203.0.113.7"),
        ("10.0.0.5", &["for=\"[2001:db8:cafe::17]:4711\""], "2001:db8:cafe::/64"),
        ("10.0.0.5", &["for=\"[2001:db8:cafe::17]:_gazonk\""], "2001:db8:cafe::/64"),
        // Nothing in quotes parts anything.
        ("10.0.0.5", &["for=203.0.113.7;host=\"a, for=1.1.1.1\""], "203.0.113.7"),
        ("10.0.0.5", &["for=203.0.113.7;host=\"a\\\", for=1.1.1.1\""], "203.0.113.7"),
        ("10.0.0.5", &["for=203.0.113.7;host=\"a\\\\\", for=10.0.0.9"], "203.0.113.7"),
        ("10.0.0.5", &["host=\"x;for=1.1.1.1\";for=203.0.113.7"], "203.0.113.7"),
        // A quote that a client leaves open swallows nothing of what proxies add.
        ("10.0.0.5", &["for=\"1.1.1.1, for=203.0.113.7"], "203.0.113.7"),
        ("10.0.0.5", &["for=1.1.1.1;host=\"\\, for=203.0.113.7, for=\"10.0.0.9\""], "203.0.113.7"),
        ("10.0.0.5", &["\"", "for=203.0.113.7"], "203.0.113.7"),
        // A hop that hides stands for its clients.
        ("10.0.0.5", &["for=203.0.113.7, for=unknown"], "10.0.0.5"),
        ("10.0.0.5", &["for=203.0.113.7, for=_SEVKISEK, for=10.0.0.9"], "10.0.0.9"),
        ("10.0.0.5", &["for=203.0.113.7, for=\"_hidden:_port\""], "10.0.0.5"),
        ("10.0.0.5", &["for=203.0.113.7, proto=http"], "10.0.0.5"),
        ("10.0.0.5", &["for=1.1.1.1;for=203.0.113.7"], "10.0.0.5"),
        ("10.0.0.5", &["for"], "10.0.0.5"),
        ("10.0.0.5", &["for="], "10.0.0.5"),
        ("10.0.0.5", &["for=\""], "10.0.0.5"),
        ("10.0.0.5", &["203.0.113.7"], "10.0.0.5"),
        ("10.0.0.5", &["forty=203.0.113.7"], "10.0.0.5"),
        ("10.0.0.5", &[&padded], "10.0.0.5"),
        ("10.0.0.5", &["for=203.0.113.7;;", "; ,"], "10.0.0.5"),
    ];
    for (peer, lines, client) in cases {
        assert_eq!(by_parameters(peer, lines), *client, "from {peer}: {lines:?}");
    }
}

#[test]
fn only_the_header_that_was_chosen_is_read() {
    let both = request(Some("10.0.0.5"), &[("forwarded", "for=1.1.1.1"), ("x-forwarded-for", "2.2.2.2")]);
    let client = ClientIp::trusted(PROXIES).unwrap();
    assert_eq!(client.identify(&both).as_deref(), Some("2.2.2.2"));
    assert_eq!(client.clone().forwarded().identify(&both).as_deref(), Some("1.1.1.1"));
    assert_eq!(ClientIp::peer().identify(&both).as_deref(), Some("10.0.0.5"));

    let single = client.single("CF-Connecting-IP").unwrap();
    let seen = |headers: &[(&str, &str)]| single.identify(&request(Some("10.0.0.5"), headers)).unwrap();
    assert_eq!(seen(&[("cf-connecting-ip", " 203.0.113.7 ")]), "203.0.113.7");
    assert_eq!(seen(&[("x-forwarded-for", "203.0.113.7")]), "10.0.0.5");
    assert_eq!(seen(&[("cf-connecting-ip", "203.0.113.7, 1.1.1.1")]), "10.0.0.5");
    assert_eq!(seen(&[("cf-connecting-ip", "203.0.113.7"), ("cf-connecting-ip", "1.1.1.1")]), "10.0.0.5");
    let direct = request(Some("198.51.100.1"), &[("cf-connecting-ip", "203.0.113.7")]);
    assert_eq!(single.identify(&direct).as_deref(), Some("198.51.100.1"));
}

#[test]
fn a_connection_without_an_address_is_believed_only_if_told() {
    let unknown = request(None, &[("x-forwarded-for", "1.1.1.1, 203.0.113.7")]);
    let client = ClientIp::trusted(PROXIES).unwrap();
    assert_eq!(client.identify(&unknown), None);
    let client = client.local_proxy();
    assert_eq!(client.identify(&unknown).as_deref(), Some("203.0.113.7"));
    assert_eq!(client.identify(&request(None, &[])), None);
    assert_eq!(client.identify(&request(Some("198.51.100.1"), &[])).as_deref(), Some("198.51.100.1"));
}

#[test]
fn prefixes_join_neighbours() {
    let key = |client: ClientIp, peer: &str| client.identify(&request(Some(peer), &[])).unwrap();
    assert_eq!(key(ClientIp::peer().ipv6_prefix(56), "[2001:db8:0:12ff::1]:9"), "2001:db8:0:1200::/56");
    assert_eq!(key(ClientIp::peer().ipv6_prefix(128), "2001:db8::1"), "2001:db8::1");
    assert_eq!(key(ClientIp::peer().ipv6_prefix(0), "ffff::1"), "8000::/1", "at least a bit");
    assert_eq!(key(ClientIp::peer().ipv4_prefix(24), "203.0.113.7"), "203.0.113.0/24");
    assert_eq!(key(ClientIp::peer().ipv4_prefix(255), "203.0.113.7"), "203.0.113.7");
    let whole = ClientIp::peer().address(&request(Some("2001:db8::1"), &[]));
    assert_eq!(whole, Some("2001:db8::1".parse().unwrap()));
}

#[test]
fn networks_are_read_or_refused() {
    for good in ["10.0.0.0/8", "10.1.2.3/8", "::1", "::1/128", "192.0.2.1", " fd00::/8 ", "0.0.0.0/0"] {
        assert!(ClientIp::trusted([good]).is_ok(), "{good}");
    }
    for bad in ["", "10.0.0.0/33", "10.0.0/8", "localhost", "10.0.0.0-10.0.0.9", "fd00::/129", "*"] {
        let error = ClientIp::trusted([bad]).unwrap_err().to_string();
        assert!(error.contains(&format!("{bad:?}")) && error.contains("10.0.0.0/8"), "{error}");
    }
    let many = (0..257).map(|i| format!("10.0.{}.{}", i / 256, i % 256));
    assert!(ClientIp::trusted(many).unwrap_err().to_string().contains("256"));
    let mapped = ClientIp::trusted(["::ffff:10.0.0.0/104"]).unwrap();
    let through = request(Some("10.0.0.5"), &[("x-forwarded-for", "203.0.113.7")]);
    assert_eq!(mapped.identify(&through).as_deref(), Some("203.0.113.7"));
}

#[test]
fn headers_and_api_keys() {
    let header = |headers: &[(&str, &str)]| Header::new("X-User").unwrap().identify(&request(None, headers));
    assert_eq!(header(&[("x-user", " alice ")]).as_deref(), Some("alice"));
    assert_eq!(header(&[("x-user", "Zoë")]).as_deref(), Some("Zoë"));
    assert_eq!(header(&[("x-user", "a{b}")]).as_deref(), Some("a%7Bb%7D"));
    assert_eq!(header(&[]), None);
    assert_eq!(header(&[("x-user", "  ")]), None);
    assert_eq!(header(&[("x-user", "alice"), ("x-user", "bob")]), None, "nobody knows which");
    assert!(Header::new("a b").unwrap_err().to_string().contains("a b"));
    let mut binary = request(None, &[]);
    binary.headers.insert("x-user", HeaderValue::from_bytes(b"\xff\xfe").unwrap());
    assert_eq!(Header::new("x-user").unwrap().identify(&binary), None);

    let bearer = |value: &str| ApiKey::bearer().raw().identify(&request(None, &[("authorization", value)]));
    assert_eq!(bearer("Bearer abc").as_deref(), Some("abc"));
    assert_eq!(bearer("bearer  abc").as_deref(), Some("abc"));
    assert_eq!([bearer("Basic abc"), bearer("Bearer"), bearer("Bearer "), bearer("abc")], [None, None, None, None]);
    let key = |value: &str| ApiKey::header("x-api-key").unwrap().identify(&request(None, &[("x-api-key", value)]));
    let (one, other) = (key("one").unwrap(), key("other").unwrap());
    assert!(one != other && one.len() == 32 && one.bytes().all(|byte| byte.is_ascii_hexdigit()));
    assert_eq!(key(&"x".repeat(60_000)).unwrap().len(), 32);
    assert_eq!(key(""), None);
}

#[test]
fn what_authentication_found() {
    struct User(Option<&'static str>);
    let by_user = FromExtension::new(|user: &User| user.0.map(str::to_owned));
    let seen = |user: Option<User>| {
        let mut request = request(None, &[]);
        user.map(|user| request.extensions.insert(std::sync::Arc::new(user)));
        FromExtension::new(|user: &std::sync::Arc<User>| user.0.map(str::to_owned)).identify(&request)
    };
    assert_eq!(seen(Some(User(Some("7")))).as_deref(), Some("7"));
    assert_eq!([seen(Some(User(Some("")))), seen(Some(User(None))), seen(None)], [None, None, None]);
    assert_eq!(by_user.identify(&request(None, &[])), None);
}

#[test]
fn a_signed_header_is_believed_until_it_ends() {
    use std::time::{Duration, SystemTime};
    let keys = SigningKeys::new("orders", [("k", [7; 32])]).unwrap();
    let signed = keys.sign("user-{7}", Duration::from_secs(3600)).unwrap();
    let header = SignedHeader::new("x-identity", keys).unwrap();
    let sent = |lines: &[&str]| {
        let headers: Vec<_> = lines.iter().map(|line| ("x-identity", *line)).collect();
        request(None, &headers)
    };
    assert_eq!(header.identify(&sent(&[&signed])).as_deref(), Some("user-%7B7%7D"));
    assert_eq!(header.identify(&sent(&[&signed])).as_deref(), Some("user-%7B7%7D"), "as often as it is sent");
    assert_eq!(header.identify(&sent(&[&signed, &signed])), None);
    assert_eq!(header.identify(&sent(&[&signed[..signed.len() - 1]])), None);
    assert_eq!(header.identify(&sent(&[])), None);
    let late = header.clone().clock(|| SystemTime::UNIX_EPOCH + Duration::from_secs(1 << 40));
    assert_eq!(late.identify(&sent(&[&signed])), None, "replayed after its end");
}

/// Whether it is one of the addresses that the tests trust.
fn is_proxy(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.octets()[0] == 10 || address.octets() == [192, 0, 2, 1],
        IpAddr::V6(address) => address.octets()[0] == 0xfd,
    }
}

fn any_address() -> impl Strategy<Value = IpAddr> {
    prop_oneof![
        any::<[u8; 4]>().prop_map(IpAddr::from),
        any::<[u8; 3]>().prop_map(|[a, b, c]| IpAddr::from([10, a, b, c])),
        any::<[u8; 16]>().prop_map(IpAddr::from),
        any::<[u8; 15]>().prop_map(|rest| {
            let mut octets = [0xfd; 16];
            octets[1..].copy_from_slice(&rest);
            IpAddr::from(octets)
        }),
    ]
}

/// The same address in one of the ways that proxies write it.
fn written(address: IpAddr, style: u8) -> String {
    match (address, style % 4) {
        (IpAddr::V4(address), 0) => address.to_string(),
        (IpAddr::V4(address), 1) => format!("{address}:4711"),
        (IpAddr::V4(address), 2) => format!("\"{address}\""),
        (IpAddr::V4(address), _) => format!("::ffff:{address}"),
        (IpAddr::V6(address), 0) => address.to_string(),
        (IpAddr::V6(address), 1) => format!("[{address}]:80"),
        (IpAddr::V6(address), 2) => format!("\"[{address}]\""),
        (IpAddr::V6(address), _) => format!("[{address}%eth0]"),
    }
}

proptest! {
    #[test]
    fn the_client_is_the_rightmost_that_is_no_proxy(
        hops in prop::collection::vec((any_address(), any::<u8>()), 1..20),
        noise in "[ -~]{0,60}",
    ) {
        let text: Vec<_> = hops.iter().map(|(address, style)| written(*address, *style)).collect();
        let expected = hops.iter().rev().map(|(address, _)| address.to_canonical()).find(|address| !is_proxy(*address));
        let expected = expected.unwrap_or(hops[0].0.to_canonical());
        let client = ClientIp::trusted(PROXIES).unwrap();
        let honest = request(Some("10.0.0.5"), &[("x-forwarded-for", &text.join(", "))]);
        prop_assert_eq!(client.address(&honest), Some(expected));
        // Whatever the client put left of it changes nothing, if there is a client at all.
        if hops.iter().any(|(address, _)| !is_proxy(address.to_canonical())) {
            let noisy = request(Some("10.0.0.5"), &[("x-forwarded-for", &format!("{noise}, {}", text.join(",")))]);
            prop_assert_eq!(client.address(&noisy), Some(expected));
            let element = |text: &String| if text.starts_with('"') { format!("for={text}") } else { format!("for=\"{text}\"") };
            let parameters: Vec<_> = text.iter().map(element).collect();
            let noisy = request(Some("10.0.0.5"), &[("forwarded", &format!("{noise}, {}", parameters.join(",")))]);
            prop_assert_eq!(client.forwarded().address(&noisy), Some(expected));
        }
    }

    #[test]
    fn no_header_panics_or_makes_a_key_too_long(lines in prop::collection::vec("[\\x20-\\x7e\u{80}-\u{ff}]{0,200}", 0..4)) {
        for name in ["x-forwarded-for", "forwarded"] {
            let headers: Vec<_> = lines.iter().map(|line| (name, line.as_str())).collect();
            let request = request(Some("10.0.0.5"), &headers);
            let client = ClientIp::trusted(PROXIES).unwrap();
            let client = if name == "forwarded" { client.forwarded() } else { client };
            let key = client.identify(&request).unwrap();
            prop_assert!(key.len() <= 43, "{}", key);
            let seen = client.address(&request).unwrap();
            prop_assert!(seen.is_ipv4() || key.ends_with("/64"));
        }
    }

    #[test]
    fn a_direct_client_is_never_anyone_else(peer in any::<[u8; 16]>(), line in "[ -~]{0,100}") {
        let peer = Ipv6Addr::from(peer);
        prop_assume!(!is_proxy(IpAddr::from(peer).to_canonical()));
        let request = request(Some(&peer.to_string()), &[("x-forwarded-for", &line), ("forwarded", &line)]);
        let client = ClientIp::trusted(PROXIES).unwrap();
        prop_assert_eq!(client.address(&request), Some(IpAddr::from(peer).to_canonical()));
        prop_assert_eq!(client.forwarded().address(&request), Some(IpAddr::from(peer).to_canonical()));
    }
}
