//! Credentials that are bound to one origin (scheme, host and port) and are available only for URLs of that origin.

use crate::credentials::Login;
use crate::reference::is_loopback;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::fmt;
use url::{Origin, Url};

/// The value of an `Authorization` header and the only origin that may receive it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct OriginCredential {
    origin: Origin,
    authorization: String,
}

/// A login and the only origin that may receive it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct OriginLogin {
    origin: Origin,
    login: Login,
}

/// Origins of the token servers that the user allowed to receive the login of a registry with a different origin.
#[derive(Clone, Debug, Default)]
pub(crate) struct TokenServers(Vec<Origin>);

impl OriginCredential {
    /// Creates a bearer credential for the origin of this URL.
    pub(crate) fn bearer(token: &str, url: &Url) -> Self {
        Self { origin: url.origin(), authorization: format!("Bearer {token}") }
    }

    /// Returns the value of the `Authorization` header if the URL has the credential's origin, and `None` otherwise.
    pub(crate) fn authorization_for(&self, url: &Url) -> Option<&str> {
        (url.origin() == self.origin).then_some(self.authorization.as_str())
    }

    /// Returns all texts that must not be displayed: the value of the header, the part after the scheme name and, for
    /// Basic authentication, the decoded login and its password.
    pub(crate) fn secrets(&self) -> Vec<String> {
        let mut secrets = vec![self.authorization.clone()];
        secrets.extend(self.authorization.split_once(' ').map(|(_, value)| value.to_owned()));
        let basic = self.authorization.strip_prefix("Basic ").and_then(|header| STANDARD.decode(header).ok());
        let login = basic.and_then(|bytes| String::from_utf8(bytes).ok());
        secrets.extend(login.as_ref().and_then(|login| Some(login.split_once(':')?.1.to_owned())));
        secrets.extend(login);
        secrets.retain(|secret| !secret.is_empty());
        secrets
    }
}

impl OriginLogin {
    /// Binds a login to the origin of the registry for which it was stored.
    pub(crate) fn new(login: Login, registry: &Url) -> Self {
        Self { origin: registry.origin(), login }
    }

    /// Returns the credential for Basic authentication. Returns `None` for a refresh token, which only token servers
    /// accept.
    pub(crate) fn basic(&self) -> Option<OriginCredential> {
        let Login::Password { user, password } = &self.login else { return None };
        let authorization = format!("Basic {}", STANDARD.encode(format!("{user}:{password}")));
        Some(OriginCredential { origin: self.origin.clone(), authorization })
    }

    /// Returns the refresh token. Returns `None` if this login is a password or the URL does not have the
    /// login's origin.
    pub(crate) fn refresh_token_for(&self, url: &Url) -> Option<&str> {
        match &self.login {
            Login::Identity(token) if url.origin() == self.origin => Some(token),
            _ => None,
        }
    }

    /// Returns a copy of the login that may be sent to the token server `realm`, which the registry itself named.
    /// Returns `None` if [`TokenServers::may_receive_login`] does not allow this. This is the only function that
    /// returns a login for an origin other than the registry's origin.
    pub(crate) fn for_token_server(&self, registry: &Url, realm: &Url, servers: &TokenServers) -> Option<Self> {
        let is_allowed = registry.origin() == self.origin && servers.may_receive_login(registry, realm);
        is_allowed.then(|| Self { origin: realm.origin(), login: self.login.clone() })
    }
}

impl TokenServers {
    pub(crate) fn of(urls: &[Url]) -> Self {
        Self(urls.iter().map(Url::origin).collect())
    }

    /// Returns whether a registry's login may be sent to this token server. The login may be sent if the server has the
    /// registry's origin, if the user allowed the server, or if the server and the registry both use HTTPS and have the
    /// same registrable domain, as `registry-1.docker.io` and `auth.docker.io` do. If only the registrable domain is
    /// the same, the token server must also use the standard port, because another port may belong to somebody who does
    /// not own the domain.
    fn may_receive_login(&self, registry: &Url, realm: &Url) -> bool {
        if realm.origin() == registry.origin() || self.0.contains(&realm.origin()) {
            return true;
        }
        let both_https = registry.scheme() == "https" && realm.scheme() == "https" && realm.port().is_none();
        let (Some(registry), Some(realm)) = (registry.domain(), realm.domain()) else { return false };
        both_https
            && !is_loopback(realm)
            && registrable_domain(registry).is_some_and(|domain| registrable_domain(realm) == Some(domain))
    }
}

/// Returns the registrable domain of a host according to the public suffix list, such as `docker.io` for
/// `auth.docker.io`. Returns `None` if the list does not contain the host's suffix, for example for names in a
/// local network.
fn registrable_domain(host: &str) -> Option<&str> {
    let host = host.strip_suffix('.').unwrap_or(host);
    let domain = psl::domain(host.as_bytes())?;
    domain.suffix().is_known().then(|| std::str::from_utf8(domain.as_bytes()).ok())?
}

impl fmt::Debug for OriginCredential {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "OriginCredential({})", self.origin.ascii_serialization())
    }
}

impl fmt::Debug for OriginLogin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "OriginLogin({})", self.origin.ascii_serialization())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).expect(text)
    }

    fn login() -> Login {
        Login::Password { user: "ann".to_owned(), password: "very secret".to_owned() }
    }

    // Row 42: a credential is available only for URLs with the scheme, host and port of the credential's origin.
    #[test]
    fn credential_is_available_for_its_origin_only() {
        let registry = url("https://registry.example:5000/v2/");
        let basic = OriginLogin::new(login(), &registry).basic().expect("the login has a password");
        let bearer = OriginCredential::bearer("token", &registry);
        for credential in [&basic, &bearer] {
            assert!(credential.authorization_for(&url("https://registry.example:5000/other?x=y")).is_some());
            for other in [
                "http://registry.example:5000/v2/",
                "https://registry.example/v2/",
                "https://registry.example:5001/v2/",
                "https://evil.registry.example:5000/v2/",
                "https://registry.example.:5000/v2/",
                "https://registry.example.evil:5000/",
                "file:///v2/",
                "data:,x",
            ] {
                assert_eq!(credential.authorization_for(&url(other)), None, "{other}");
            }
        }
        let token = OriginLogin::new(Login::Identity("refresh".to_owned()), &registry);
        assert_eq!(token.refresh_token_for(&registry), Some("refresh"));
        assert_eq!(token.refresh_token_for(&url("https://registry.example/")), None);
        assert!(!format!("{basic:?} {token:?} {bearer:?}").contains("secret"), "row 16");
    }

    // P11, row 42: the token servers of existing registries are accepted, and other token servers are refused.
    #[test]
    fn login_is_sent_to_token_servers_of_the_same_owner() {
        let is_accepted = |registry: &str, realm: &str| {
            let registry = url(registry);
            let login = OriginLogin::new(login(), &registry);
            login.for_token_server(&registry, &url(realm), &TokenServers::default()).is_some()
        };
        for (registry, realm) in [
            ("https://registry-1.docker.io/", "https://auth.docker.io/token"),
            ("https://registry.gitlab.com/", "https://gitlab.com/jwt/auth"),
            ("https://ghcr.io/", "https://ghcr.io/token"),
            ("https://registry.example.co.uk:5000/", "https://auth.example.co.uk/token"),
            ("http://127.0.0.1:5000/", "http://127.0.0.1:5000/token"),
        ] {
            assert!(is_accepted(registry, realm), "{registry} {realm}");
        }
        for (registry, realm) in [
            ("https://registry-1.docker.io/", "http://auth.docker.io/token"),
            ("https://registry-1.docker.io/", "https://auth.docker.io:8443/token"),
            ("https://registry-1.docker.io/", "https://auth.docker.io.evil.com/token"),
            ("https://registry.example.com/", "https://example.org/token"),
            ("https://registry.one.co.uk/", "https://auth.two.co.uk/token"),
            ("https://one.github.io/", "https://two.github.io/token"),
            ("https://registry.intranet/", "https://auth.intranet/token"),
            ("https://10.0.0.1/", "https://10.0.0.2/token"),
            ("https://registry.example.com/", "https://registry.example.com:5001/token"),
            ("http://127.0.0.1:5000/", "http://127.0.0.1:5001/token"),
            ("http://localhost:5000/", "http://localhost:5001/token"),
            ("http://localhost:5000/", "https://localhost/token"),
        ] {
            assert!(!is_accepted(registry, realm), "{registry} {realm}");
        }
        let allowed = TokenServers::of(&[url("http://127.0.0.1:5001/ignored")]);
        let registry = url("http://127.0.0.1:5000/");
        let login_for =
            |realm: &str| OriginLogin::new(login(), &registry).for_token_server(&registry, &url(realm), &allowed);
        assert!(
            login_for("http://127.0.0.1:5001/token").is_some() && login_for("http://127.0.0.1:5002/token").is_none()
        );
        let other = OriginLogin::new(login(), &url("https://other.example/"));
        assert!(
            other.for_token_server(&registry, &registry, &allowed).is_none(),
            "the login belongs to another registry"
        );
    }
}
