//! Who can reach an address: everybody, a private network, or this machine alone. A server may redirect us only to what it could
//! reach itself; otherwise it would use us to look into networks that it is not part of.

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;
use url::{Host, Url};

const LOOKUP: Duration = Duration::from_secs(10);

/// Who can reach an address, from everybody to this machine alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reach {
    /// Everybody.
    Public,
    /// The machines of one network.
    PrivateNetwork,
    /// This machine, and addresses where machines ask for secrets of their own, such as those of cloud metadata.
    ThisMachine,
}

/// Who can reach the URL's host, as far as the URL alone says. None for names that have to be resolved.
pub(crate) fn written(url: &Url) -> Option<Reach> {
    match url.host() {
        Some(Host::Domain(name)) => {
            let name = name.trim_end_matches('.');
            (name == "localhost" || name.ends_with(".localhost")).then_some(Reach::ThisMachine)
        }
        Some(Host::Ipv4(address)) => Some(of(IpAddr::V4(address))),
        Some(Host::Ipv6(address)) => Some(of(IpAddr::V6(address))),
        None => None,
    }
}

/// Who can reach a server that has just answered us. A name that cannot be resolved here, because a proxy does that, counts as
/// public, which permits the least.
pub(crate) async fn of_server(url: &Url) -> Reach {
    if let Some(reach) = written(url) {
        return reach;
    }
    let (host, port) = (url.host_str().unwrap_or_default(), url.port_or_known_default().unwrap_or_default());
    match tokio::time::timeout(LOOKUP, tokio::net::lookup_host((host, port))).await {
        Ok(Ok(addresses)) => addresses.map(|address| of(address.ip())).min().unwrap_or(Reach::Public),
        _ => Reach::Public,
    }
}

/// Resolves names to addresses that a server of this reach could reach itself.
pub(crate) struct Within(pub(crate) Reach);

impl Resolve for Within {
    fn resolve(&self, name: Name) -> Resolving {
        let most = self.0;
        Box::pin(async move {
            let addresses = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let within: Vec<_> = addresses.filter(|address| of(address.ip()) <= most).collect();
            if within.is_empty() {
                return Err("a redirect led to a name of an inner network, which is not followed".into());
            }
            Ok(Box::new(within.into_iter()) as Addrs)
        })
    }
}

fn of(address: IpAddr) -> Reach {
    match address {
        IpAddr::V4(address) => of_v4(address),
        IpAddr::V6(address) => of_v6(address),
    }
}

fn of_v4(address: Ipv4Addr) -> Reach {
    match address.octets() {
        [0 | 127, ..] | [169, 254, ..] => Reach::ThisMachine,
        // Metadata services of clouds outside of the link-local range.
        [100, 100, 100, 200] | [168, 63, 129, 16] | [192, 0, 0, _] => Reach::ThisMachine,
        [10, ..] | [192, 168, ..] | [198, 18 | 19, ..] | [224..=255, ..] => Reach::PrivateNetwork,
        [172, second, ..] if second & 0xf0 == 16 => Reach::PrivateNetwork,
        [100, second, ..] if second & 0xc0 == 64 => Reach::PrivateNetwork,
        _ => Reach::Public,
    }
}

fn of_v6(address: Ipv6Addr) -> Reach {
    match address.segments() {
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low] | [0x64, 0xff9b, _, _, _, _, high, low] => embedded(high, low),
        [0x2002, high, low, ..] => embedded(high, low),
        [first, ..] if first & 0xffc0 == 0xfe80 => Reach::ThisMachine,
        [0xfd00, 0x0ec2, ..] | [0xfd20, 0x00ce, ..] => Reach::ThisMachine,
        [first, ..] if first & 0xe000 == 0x2000 => Reach::Public,
        _ => Reach::PrivateNetwork,
    }
}

/// An IPv6 address that carries an IPv4 address reaches what that one does. `::` and `::1` are of this form.
fn embedded(high: u16, low: u16) -> Reach {
    let [[a, b], [c, d]] = [high, low].map(u16::to_be_bytes);
    of_v4(Ipv4Addr::new(a, b, c, d))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Row 42: what each address reaches, at the bounds of its range.
    #[test]
    fn addresses_are_told_apart() {
        use Reach::{PrivateNetwork, Public, ThisMachine};
        for (reach, addresses) in [
            (Public, "1.1.1.1 9.255.255.255 11.0.0.0 172.15.0.1 172.32.0.0 100.128.0.0 2606:4700::1 64:ff9b::1.1.1.1"),
            (
                PrivateNetwork,
                "10.0.0.0 10.255.255.255 172.16.0.1 172.31.255.255 192.168.0.1 100.64.0.1 fc00::1 fdff::1",
            ),
            (PrivateNetwork, "::ffff:10.0.0.1 64:ff9b::10.0.0.1 2002:a00:1:: fec0::1 224.0.0.1"),
            (ThisMachine, "127.0.0.1 127.9.9.9 0.0.0.0 169.254.169.254 100.100.100.200 168.63.129.16 :: ::1 fe80::1"),
            (ThisMachine, "::ffff:127.0.0.1 64:ff9b::7f00:1 2002:7f00:1:: fd00:ec2::254"),
        ] {
            for address in addresses.split(' ') {
                assert_eq!(of(address.parse().expect(address)), reach, "{address}");
            }
        }
    }

    // Row 42: names that resolve to inner addresses are refused when the connection is made.
    #[tokio::test]
    async fn names_are_resolved_within_a_reach() {
        let resolve = async |most, name: &str| {
            let resolved = Within(most).resolve(name.parse().expect("a name")).await;
            resolved.map(|addresses| addresses.count()).map_err(|error| error.to_string())
        };
        assert!(resolve(Reach::ThisMachine, "localhost").await.is_ok_and(|count| count > 0));
        for most in [Reach::Public, Reach::PrivateNetwork] {
            assert!(resolve(most, "localhost").await.is_err_and(|error| error.contains("inner network")));
        }
        let of = async |text: &str| of_server(&Url::parse(text).expect(text)).await;
        assert_eq!(of("http://localhost:5000/").await, Reach::ThisMachine);
        assert_eq!(of("https://10.0.0.1/").await, Reach::PrivateNetwork);
        assert_eq!(of("https://no-such-name.invalid/").await, Reach::Public);
    }
}
