//! Clients behind proxies.

use std::net::{IpAddr, SocketAddr};

use axum::http::HeaderMap;
use axum::http::header::HeaderValue;

use ipnet::IpNet;

/// Who sent a request. Each proxy appends the address that it was asked from to the header.
/// Addresses before that of the first client that is no proxy may be invented.
pub(super) fn client(peer: IpAddr, headers: &HeaderMap, proxies: &[IpNet]) -> IpAddr {
    let values = headers.get_all("x-forwarded-for").iter().rev();
    let texts = values.map(|value| HeaderValue::to_str(value).unwrap_or_default());
    let mut hops = texts.flat_map(|text| text.rsplit(','));
    let mut client = peer;
    // A server on [::] sees IPv4 addresses in their form of IPv6.
    while proxies.iter().any(|proxy| proxy.contains(&client.to_canonical())) {
        let Some(address) = hops.next().and_then(address) else { break };
        client = address;
    }
    client
}

/// An address, which some proxies write with the port, or in brackets.
fn address(hop: &str) -> Option<IpAddr> {
    let hop = hop.trim();
    let alone = hop.strip_prefix('[').and_then(|it| it.strip_suffix(']')).unwrap_or(hop);
    alone.parse().ok().or_else(|| Some(hop.parse::<SocketAddr>().ok()?.ip()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_proxy_names_the_client() {
        let proxies = ["10.0.0.0/8".parse().unwrap(), "::1/128".parse().unwrap()];
        for (peer, values, expected) in [
            ("10.0.0.1", &["192.0.2.1"][..], "192.0.2.1"),
            ("10.0.0.1", &["192.0.2.9, 192.0.2.1"], "192.0.2.1"),
            ("10.0.0.1", &["192.0.2.1:5000,10.0.0.2"], "192.0.2.1"),
            ("10.0.0.1", &["192.0.2.9", "192.0.2.1"], "192.0.2.1"),
            ("::ffff:10.0.0.1", &["192.0.2.1"], "192.0.2.1"),
            ("::1", &["[2001:db8::1]:5000"], "2001:db8::1"),
            ("::1", &["[2001:db8::1]"], "2001:db8::1"),
            ("10.0.0.1", &["192.0.2.1, unknown"], "10.0.0.1"),
            ("10.0.0.1", &[], "10.0.0.1"),
            ("192.0.2.5", &["192.0.2.1"], "192.0.2.5"),
        ] {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append("x-forwarded-for", HeaderValue::from_static(value));
            }
            let client = client(peer.parse().unwrap(), &headers, &proxies);
            assert_eq!(client.to_string(), expected, "{headers:?}");
        }
    }
}
