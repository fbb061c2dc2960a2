//! Entry points for the fuzz targets in `tests/fuzz`. This module exists only in builds for fuzzing.

use crate::auth::{Challenge, parse_challenge, token_server_url};
use crate::credentials::Login;
use crate::http::check_redirect_target;
use crate::network_scope::NetworkScope;
use crate::origin::{OriginLogin, TokenServers};
use url::Url;

/// Returns the target of a redirect by a public registry, or `None` if the host would not follow the redirect.
pub fn redirect(registry: &Url, location: &str) -> Option<Url> {
    let url = registry.join(location).ok()?;
    check_redirect_target((registry, NetworkScope::Public), &url).is_ok().then_some(url)
}

/// Returns whether a request to the URL would contain the registry's credential.
pub fn is_credential_sent(registry: &Url, url: &Url) -> bool {
    let credential = login(registry).basic();
    credential.is_some_and(|credential| credential.authorization_for(url).is_some())
}

/// Returns the URL of the token server in a public registry's challenge, and whether the registry's login would be sent
/// to that server.
pub fn token_server(registry: &Url, header: &str) -> Option<(Url, bool)> {
    let Challenge::Bearer { realm, .. } = parse_challenge(header)? else { return None };
    let url = token_server_url((registry, NetworkScope::Public), &realm).ok()?;
    let login = login(registry).for_token_server(registry, &url, &TokenServers::default());
    Some((url, login.is_some()))
}

fn login(registry: &Url) -> OriginLogin {
    OriginLogin::new(Login::Password { user: "user".to_owned(), password: "password".to_owned() }, registry)
}
