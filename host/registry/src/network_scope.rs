//! The network scope of an address: public, a private network, or this machine. A server may redirect requests only to
//! addresses that it could reach itself. Otherwise, a server could use redirects to explore networks of the host that
//! the server does not belong to.

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;
use url::{Host, Url};

const LOOKUP_TIMEOUT: Duration = Duration::from_secs(10);

/// The part of the network from which an address can be reached. The variants are ordered from the largest part to
/// the smallest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum NetworkScope {
    /// The address can be reached from everywhere.
    Public,
    /// The address can be reached from the machines of a private network.
    PrivateNetwork,
    /// The address can be reached only from this machine. The addresses of cloud metadata services, which provide
    /// secrets to the machines in a cloud, are in this scope, too.
    ThisMachine,
}

/// Returns the network scope of the URL's host, if the URL alone determines it. Returns `None` for a name that must be
/// resolved.
pub(crate) fn scope_in_url(url: &Url) -> Option<NetworkScope> {
    match url.host() {
        Some(Host::Domain(name)) => {
            let name = name.trim_end_matches('.');
            (name == "localhost" || name.ends_with(".localhost")).then_some(NetworkScope::ThisMachine)
        }
        Some(Host::Ipv4(address)) => Some(scope_of(IpAddr::V4(address))),
        Some(Host::Ipv6(address)) => Some(scope_of(IpAddr::V6(address))),
        None => None,
    }
}

/// Returns the network scope of a server that has just sent a response. If the server's name cannot be resolved on this
/// machine, for example because a proxy resolves it, returns [`NetworkScope::Public`], because redirects by
/// a server in this scope are restricted most.
pub(crate) async fn scope_of_server(url: &Url) -> NetworkScope {
    if let Some(scope) = scope_in_url(url) {
        return scope;
    }
    let (host, port) = (url.host_str().unwrap_or_default(), url.port_or_known_default().unwrap_or_default());
    match tokio::time::timeout(LOOKUP_TIMEOUT, tokio::net::lookup_host((host, port))).await {
        Ok(Ok(addresses)) => addresses.map(|address| scope_of(address.ip())).min().unwrap_or(NetworkScope::Public),
        _ => NetworkScope::Public,
    }
}

/// A resolver for host names that returns only addresses that a server in the given network scope can reach.
pub(crate) struct ScopedResolver(pub(crate) NetworkScope);

impl Resolve for ScopedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let scope = self.0;
        Box::pin(async move {
            let addresses = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let allowed: Vec<_> = addresses.filter(|address| scope_of(address.ip()) <= scope).collect();
            if allowed.is_empty() {
                return Err("a redirect leads to a name in a private network, which is not allowed".into());
            }
            Ok(Box::new(allowed.into_iter()) as Addrs)
        })
    }
}

fn scope_of(address: IpAddr) -> NetworkScope {
    match address {
        IpAddr::V4(address) => scope_of_v4(address),
        IpAddr::V6(address) => scope_of_v6(address),
    }
}

fn scope_of_v4(address: Ipv4Addr) -> NetworkScope {
    match address.octets() {
        [0 | 127, ..] | [169, 254, ..] => NetworkScope::ThisMachine,
        // Addresses of cloud metadata services that are not in the link-local range.
        [100, 100, 100, 200] | [168, 63, 129, 16] | [192, 0, 0, _] => NetworkScope::ThisMachine,
        [10, ..] | [192, 168, ..] | [198, 18 | 19, ..] | [224..=255, ..] => NetworkScope::PrivateNetwork,
        [172, second, ..] if second & 0xf0 == 16 => NetworkScope::PrivateNetwork,
        [100, second, ..] if second & 0xc0 == 64 => NetworkScope::PrivateNetwork,
        _ => NetworkScope::Public,
    }
}

fn scope_of_v6(address: Ipv6Addr) -> NetworkScope {
    match address.segments() {
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low] | [0x64, 0xff9b, _, _, _, _, high, low] => scope_of_embedded(high, low),
        [0x2002, high, low, ..] => scope_of_embedded(high, low),
        [first, ..] if first & 0xffc0 == 0xfe80 => NetworkScope::ThisMachine,
        [0xfd00, 0x0ec2, ..] | [0xfd20, 0x00ce, ..] => NetworkScope::ThisMachine,
        [first, ..] if first & 0xe000 == 0x2000 => NetworkScope::Public,
        _ => NetworkScope::PrivateNetwork,
    }
}

/// Returns the scope of the IPv4 address that an IPv6 address contains, given the two halves of the IPv4 address. The
/// IPv6 addresses `::` and `::1` are treated as if they contained an IPv4 address.
fn scope_of_embedded(high: u16, low: u16) -> NetworkScope {
    let [[a, b], [c, d]] = [high, low].map(u16::to_be_bytes);
    scope_of_v4(Ipv4Addr::new(a, b, c, d))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Row 42: addresses in each special range, and public addresses next to these ranges, have the expected scope.
    #[test]
    fn addresses_have_the_expected_scope() {
        use NetworkScope::{PrivateNetwork, Public, ThisMachine};
        for (scope, addresses) in [
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
                assert_eq!(scope_of(address.parse().expect(address)), scope, "{address}");
            }
        }
    }

    // Row 42: a name that resolves to a private address is refused when the connection is made.
    #[tokio::test]
    async fn names_are_resolved_within_a_scope() {
        let resolve = async |scope, name: &str| {
            let resolved = ScopedResolver(scope).resolve(name.parse().expect("the name is valid")).await;
            resolved.map(|addresses| addresses.count()).map_err(|error| error.to_string())
        };
        assert!(resolve(NetworkScope::ThisMachine, "localhost").await.is_ok_and(|count| count > 0));
        for scope in [NetworkScope::Public, NetworkScope::PrivateNetwork] {
            assert!(resolve(scope, "localhost").await.is_err_and(|error| error.contains("private network")));
        }
        let server_scope = async |text: &str| scope_of_server(&Url::parse(text).expect(text)).await;
        assert_eq!(server_scope("http://localhost:5000/").await, NetworkScope::ThisMachine);
        assert_eq!(server_scope("https://10.0.0.1/").await, NetworkScope::PrivateNetwork);
        assert_eq!(server_scope("https://no-such-name.invalid/").await, NetworkScope::Public);
    }
}
