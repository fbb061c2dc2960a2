//! Classifies IP addresses as public, private or special (row 15).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Class of an address to which a guest sends a request. The text of a variant describes the address for users.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// An address on the internet.
    Public,
    /// An address of this machine or of a private network. A pattern allows such an address only if the pattern
    /// contains the word `private` or names exactly this address.
    Private(&'static str),
    /// An address that is allowed only if a pattern names exactly this address.
    Special(&'static str),
}

/// Determines the class of an address. The class of an IPv6 address that contains an IPv4 address is always `Special`,
/// because a translator outside of the host decides which machine receives the request.
pub(crate) fn class(address: IpAddr) -> Class {
    match address {
        IpAddr::V4(address) => ipv4_class(address),
        IpAddr::V6(address) => ipv6_class(address),
    }
}

fn ipv4_class(address: Ipv4Addr) -> Class {
    use Class::{Private, Public, Special};
    match address.octets() {
        [0, ..] => Special("an address of this network"),
        [100, 100, 100, 200] | [168, 63, 129, 16] | [192, 0, 0, 192] => Special("a cloud's metadata service"),
        [169, 254, ..] => Special("a link-local address, where clouds serve metadata"),
        [10, ..] | [192, 168, ..] => Private("a private address"),
        [172, second, ..] if second & 0xf0 == 16 => Private("a private address"),
        [100, second, ..] if second & 0xc0 == 64 => Private("an address of a provider's internal network"),
        [127, ..] => Private("an address of this machine"),
        [192, 0, 0, _] | [192, 0, 2, _] | [198, 51, 100, _] | [203, 0, 113, _] => Special("a reserved address"),
        [192, 88, 99, _] => Special("a 6to4 relay"),
        [198, 18 | 19, ..] => Special("an address for benchmarks"),
        [224..=239, ..] => Special("a multicast address"),
        [240..=255, ..] => Special("a reserved address"),
        _ => Public,
    }
}

fn ipv6_class(address: Ipv6Addr) -> Class {
    use Class::{Private, Public, Special};
    const CONTAINS_IPV4: &str = "an IPv6 address that contains an IPv4 address";
    if address == Ipv6Addr::LOCALHOST {
        return Private("an address of this machine");
    }
    match address.segments() {
        [0, 0, 0, 0, 0, 0, ..] | [0, 0, 0, 0, 0, 0xffff, ..] | [0, 0, 0, 0, 0xffff, 0, ..] => Special(CONTAINS_IPV4),
        [0x64, 0xff9b, ..] | [0x2002, ..] | [0x2001, 0, ..] => Special(CONTAINS_IPV4),
        [_, _, _, _, 0 | 0x200, 0x5efe, ..] => Special(CONTAINS_IPV4),
        [0xfd00, 0x0ec2, 0, 0, 0, 0, 0, 0x0254] | [0xfd20, 0x00ce, 0, 0, 0, 0, 0, 0x0254] => {
            Special("a cloud's metadata service")
        }
        [first, ..] if first & 0xfe00 == 0xfc00 => Private("a private address"),
        [first, ..] if first & 0xffc0 == 0xfe80 => Special("a link-local address"),
        [first, ..] if first & 0xff00 == 0xff00 => Special("a multicast address"),
        [0x2001, 0x0001..=0x01ff, ..] | [0x2001, 0x0db8, ..] | [0x3fff, 0..=0x0fff, ..] => {
            Special("a reserved address")
        }
        [first, ..] if first & 0xe000 == 0x2000 => Public,
        _ => Special("a reserved address"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class_of(text: &str) -> Class {
        class(text.parse().unwrap_or_else(|_| panic!("{text} is not an address")))
    }

    /// Row 15: private, loopback, link-local and metadata addresses, and IPv6 addresses that contain an IPv4 address,
    /// are not classified as public.
    #[test]
    fn row_15_addresses_are_classified_at_range_bounds() {
        let public = [
            "1.1.1.1",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.0",
            "169.253.255.255",
            "169.255.0.0",
            "172.15.255.255",
            "172.32.0.0",
            "192.167.255.255",
            "192.169.0.0",
            "198.17.255.255",
            "198.20.0.0",
            "223.255.255.255",
            "2606:4700::1111",
            "2001:4860:4860::8888",
            "2a00:1450::1",
        ];
        for address in public {
            assert_eq!(class_of(address), Class::Public, "{address}");
        }
        let private = [
            "10.0.0.0",
            "10.255.255.255",
            "172.16.0.0",
            "172.31.255.255",
            "192.168.0.0",
            "192.168.255.255",
            "127.0.0.1",
            "127.255.255.255",
            "100.64.0.0",
            "100.127.255.255",
            "::1",
            "fc00::",
            "fdff:ffff::1",
        ];
        for address in private {
            assert!(matches!(class_of(address), Class::Private(_)), "{address}: {:?}", class_of(address));
        }
        let special = [
            "0.0.0.0",
            "0.1.2.3",
            "169.254.0.0",
            "169.254.169.254",
            "169.254.255.255",
            "100.100.100.200",
            "168.63.129.16",
            "192.0.0.192",
            "192.0.2.1",
            "198.18.0.1",
            "198.19.255.255",
            "203.0.113.9",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::ffff:1.1.1.1",
            "::ffff:127.0.0.1",
            "::1.1.1.1",
            "::ffff:0:10.0.0.1",
            "64:ff9b::10.0.0.1",
            "64:ff9b::1.1.1.1",
            "64:ff9b:1::1",
            "2002:a00:1::",
            "2001::1",
            "2001:db8::1",
            "2001:4860::5efe:10.0.0.1",
            "2001:4860::200:5efe:10.0.0.1",
            "fe80::1",
            "febf::1",
            "fec0::1",
            "ff02::1",
            "fd00:ec2::254",
            "fd20:ce::254",
            "100::1",
            "3fff::1",
            "4000::1",
        ];
        for address in special {
            assert!(matches!(class_of(address), Class::Special(_)), "{address}: {:?}", class_of(address));
        }
    }
}
