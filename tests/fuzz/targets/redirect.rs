//! Follows a redirect of a registry and parses the registry's challenge.

#![no_main]

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use url::{Host, Url};

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    location: &'a str,
    challenge: &'a str,
}

fn is_internal(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(address)) => address.is_loopback() || address.is_private() || address.is_link_local(),
        Some(Host::Ipv6(address)) => {
            let mapped = address.to_ipv4_mapped();
            address.is_loopback() || mapped.is_some_and(|address| address.is_loopback() || address.is_private())
        }
        Some(Host::Domain(name)) => {
            let name = name.trim_end_matches('.').to_ascii_lowercase();
            name == "localhost" || name.ends_with(".localhost")
        }
        None => true,
    }
}

fuzz_target!(|input: Input<'_>| {
    let registry = Url::parse("https://registry.example/v2/team/calc/manifests/1").expect("the URL is valid");
    if let Some(url) = agent_registry::fuzzing::redirect(&registry, input.location) {
        assert_eq!(url.scheme(), "https", "{url}");
        assert!(!is_internal(&url), "{url}");
        assert!(url.username().is_empty() && url.password().is_none(), "{url}");
        let is_sent = agent_registry::fuzzing::is_credential_sent(&registry, &url);
        assert_eq!(is_sent, url.origin() == registry.origin(), "{url}");
    }
    if let Some((server, is_sent)) = agent_registry::fuzzing::token_server(&registry, input.challenge) {
        assert!(server.scheme() == "https" && !is_internal(&server), "{server}");
        let is_same_owner = server.host_str().is_some_and(|host| {
            let host = host.trim_end_matches('.');
            host == "registry.example" || host.ends_with(".registry.example")
        });
        assert!(!is_sent || is_same_owner && server.port().is_none(), "{server}");
    }
});
