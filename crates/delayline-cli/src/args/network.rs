//! Networks that arguments name.

use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

/// An address, or all that begin with the same bits: `10.0.0.0/8`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Network {
    first: u128,
    /// As many bits as the addresses have in common.
    mask: u128,
}

impl Network {
    pub(crate) fn contains(&self, address: IpAddr) -> bool {
        number(address) & self.mask == self.first
    }
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || "it is neither an address nor a network such as 10.0.0.0/8".to_owned();
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let most: u32 = if address.is_ipv4() { 32 } else { 128 };
        let length = length.map_or(Ok(most), |it| it.parse().map_err(|_| wrong()))?;
        let others = most.checked_sub(length).ok_or_else(wrong)?;
        let mask = u128::MAX.checked_shl(others).unwrap_or(0);
        let first = number(address);
        if first & mask != first {
            return Err(format!("the address has more than {length} bits"));
        }
        Ok(Self { first, mask })
    }
}

/// The same number for an IPv4 address and for its form in IPv6, which a server on [::] sees.
fn number(address: IpAddr) -> u128 {
    let mapped = match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    };
    Ipv6Addr::to_bits(mapped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_has_the_addresses_that_begin_like_it() {
        for (network, address, has_it) in [
            ("10.1.0.0/16", "10.1.255.255", true),
            ("10.1.0.0/16", "10.2.0.0", false),
            ("10.1.0.0/16", "::ffff:10.1.2.3", true),
            ("10.1.2.3", "10.1.2.3", true),
            ("10.1.2.3", "10.1.2.4", false),
            ("0.0.0.0/0", "255.0.0.1", true),
            ("0.0.0.0/0", "2001:db8::1", false),
            ("fd00::/8", "fdff::1", true),
            ("fd00::/8", "fe00::1", false),
            ("::/0", "2001:db8::1", true),
        ] {
            let network: Network = network.parse().unwrap();
            assert_eq!(network.contains(address.parse().unwrap()), has_it, "{network:?} {address}");
        }
        for wrong in ["", "proxy", "10.0.0.0/33", "10.0.0.0/", "10.0.0.1/8", "::/129", "10.0.0/8"] {
            assert!(wrong.parse::<Network>().is_err(), "{wrong}");
        }
    }
}
