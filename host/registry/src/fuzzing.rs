//! What the fuzz targets in `tests/fuzz` call; it is not part of any other build.

use crate::auth::{Challenge, challenge, tokens_at};
use crate::credentials::Login;
use crate::http::may_lead;
use crate::origin::{OriginLogin, TokenServers};
use crate::reach::Reach;
use url::Url;

/// Where a public registry's `Location` leads, if the redirect is followed.
pub fn redirect(registry: &Url, location: &str) -> Option<Url> {
    let url = registry.join(location).ok()?;
    may_lead((registry, Reach::Public), &url).is_ok().then_some(url)
}

/// Whether a request to the URL carries the registry's credential.
pub fn is_credential_sent(registry: &Url, url: &Url) -> bool {
    let credential = login(registry).basic();
    credential.is_some_and(|credential| credential.authorization_for(url).is_some())
}

/// The token server that a public registry's challenge names, and whether the registry's login is sent there.
pub fn token_server(registry: &Url, header: &str) -> Option<(Url, bool)> {
    let Challenge::Bearer { realm, .. } = challenge(header)? else { return None };
    let url = tokens_at((registry, Reach::Public), &realm).ok()?;
    let login = login(registry).for_token_server(registry, &url, &TokenServers::default());
    Some((url, login.is_some()))
}

fn login(registry: &Url) -> OriginLogin {
    OriginLogin::new(Login::Password { user: "user".to_owned(), password: "password".to_owned() }, registry)
}
