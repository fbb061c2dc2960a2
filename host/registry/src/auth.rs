//! Authentication after a `401` response, with Basic credentials or with the bearer tokens of registries.

use crate::error::{RegistryError, display_text};
use crate::http::{Http, Request, Route, check_redirect_target, error_text, read_body, route};
use crate::network_scope::{NetworkScope, scope_of_server};
use crate::origin::{OriginCredential, OriginLogin, TokenServers};
use reqwest::header::WWW_AUTHENTICATE;
use reqwest::{Method, Response, StatusCode};
use serde::Deserialize;
use url::Url;

/// Maximum size of a token server's response, in bytes.
const MAX_TOKEN_BYTES: u64 = 1024 * 1024;

/// The kind of authentication that a registry requires, according to the registry's `401` response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Challenge {
    Basic,
    Bearer { realm: String, service: Option<String>, scope: Option<String> },
}

#[derive(Deserialize)]
struct Token {
    token: Option<String>,
    access_token: Option<String>,
}

/// Reads the challenge from a response: the authentication that the registry requires. Returns `None` if a redirect led
/// to another origin, because the challenge may then come from a server other than the registry (row 42).
pub(crate) fn read_challenge(response: &Response) -> Option<Challenge> {
    if route(response) != Route::SameOrigin {
        return None;
    }
    let challenges = response.headers().get_all(WWW_AUTHENTICATE);
    challenges.iter().filter_map(|value| parse_challenge(value.to_str().ok()?)).next()
}

/// Parses a `WWW-Authenticate` header. Returns `None` if the authentication scheme is unknown.
pub(crate) fn parse_challenge(header: &str) -> Option<Challenge> {
    let (scheme, rest) = header.trim().split_once(' ').unwrap_or((header.trim(), ""));
    if scheme.eq_ignore_ascii_case("basic") {
        return Some(Challenge::Basic);
    }
    if !scheme.eq_ignore_ascii_case("bearer") {
        return None;
    }
    let parameters = parameters(rest);
    let value = |name: &str| {
        let found = parameters.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.clone()).filter(|value| !value.is_empty())
    };
    Some(Challenge::Bearer { realm: value("realm")?, service: value("service"), scope: value("scope") })
}

/// Parses a challenge's parameters, which have the form `name="value", name=value`. A comma inside quotes is part of
/// the value.
fn parameters(text: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut rest = text.trim();
    while let Some((name, after)) = rest.split_once('=') {
        let name = name.trim().trim_start_matches(',').trim().to_owned();
        let after = after.trim_start();
        let (value, next) = match after.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').unwrap_or((quoted, "")),
            None => after.split_once(',').unwrap_or((after, "")),
        };
        found.push((name, value.trim().to_owned()));
        rest = next;
    }
    found
}

/// A request for which a registry requires authentication.
pub(crate) struct AuthContext<'a> {
    pub(crate) http: &'a Http,
    /// The requested URL. The origin of this URL is the origin of the registry.
    pub(crate) url: &'a Url,
    /// The scope of the token to request.
    pub(crate) scope: &'a str,
    /// The address or reference that was requested, such as `host/name:version`. Error messages contain it.
    pub(crate) place: &'a str,
    /// Token servers that the user allowed to receive the login.
    pub(crate) token_servers: &'a TokenServers,
}

/// Obtains a credential that meets the challenge. The credential is only for requests to the registry's origin. Returns
/// `None` if there is no login or the token server refuses it.
pub(crate) async fn authenticate(
    context: &AuthContext<'_>,
    challenge: &Challenge,
    login: Option<&OriginLogin>,
) -> Result<Option<OriginCredential>, RegistryError> {
    let Challenge::Bearer { realm, service, scope } = challenge else {
        return Ok(login.and_then(OriginLogin::basic));
    };
    let server = |message: String| RegistryError::Server { place: context.place.to_owned(), message };
    let network_scope = scope_of_server(context.url).await;
    let url = token_server_url((context.url, network_scope), realm).map_err(server)?;
    context.http.check(&url, context.place)?;
    let login = login.map(|login| login_for_token_server(context, login, &url)).transpose()?;
    let scope = scope.as_deref().unwrap_or(context.scope);
    let request =
        Request { named_by: Some(network_scope), ..token_request(url, (service.as_deref(), scope), login.as_ref()) };
    let response = context.http.send(request, context.place).await?;
    // Fail after a redirect to another server: the login was not sent to that server, so its token is not valid for
    // the registry.
    if route(&response) == Route::OtherOrigin {
        return Err(server("its token server redirects to another server; the redirect was not followed".to_owned()));
    }
    match response.status() {
        StatusCode::OK => {}
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => return Ok(None),
        _ => {
            return Err(server(format!("the request for a token failed: {}", error_text(response).await)));
        }
    }
    let bytes = read_body(response, MAX_TOKEN_BYTES, context.place).await?;
    let token: Option<Token> = serde_json::from_slice(&bytes).ok();
    let token = token.and_then(|token| token.token.or(token.access_token));
    Ok(token.map(|token| OriginCredential::bearer(&token, context.url)))
}

/// Returns the login for the registry, so that it can be sent to the token server. The registry has sent the address of
/// the token server. Fails if the login must not be sent to this address.
fn login_for_token_server(
    context: &AuthContext<'_>,
    login: &OriginLogin,
    realm: &Url,
) -> Result<OriginLogin, RegistryError> {
    login.for_token_server(context.url, realm, context.token_servers).ok_or_else(|| {
        let (registry, server) = (context.url.origin().ascii_serialization(), realm.origin().ascii_serialization());
        RegistryError::Unauthorised {
            place: context.place.to_owned(),
            message: format!("{registry} asks to send its login to {server}, which is another server"),
            advice: format!(
                "nothing was sent; if {server} checks the logins of {registry}, allow it with `--token-server {server}`"
            ),
        }
    })
}

/// Builds the request for a token. If the login is a refresh token, the request contains a form with this token. If the
/// login is a password, the request contains the user name and the password. Without a login, the request is anonymous.
fn token_request(mut url: Url, (service, scope): (Option<&str>, &str), login: Option<&OriginLogin>) -> Request {
    if let Some(token) = login.and_then(|login| login.refresh_token_for(&url)) {
        let mut form = url::form_urlencoded::Serializer::new(String::new());
        form.append_pair("grant_type", "refresh_token").append_pair("refresh_token", token);
        form.append_pair("client_id", "agent-host").append_pair("scope", scope);
        if let Some(service) = service {
            form.append_pair("service", service);
        }
        let secret = Some(token.to_owned());
        return Request { secret, ..Request::new(Method::POST, url) }
            .with_body(form.finish(), "application/x-www-form-urlencoded");
    }
    if let Some(service) = service {
        url.query_pairs_mut().append_pair("service", service);
    }
    url.query_pairs_mut().append_pair("scope", scope);
    Request { credential: login.and_then(OriginLogin::basic), ..Request::get(url) }
}

/// Parses and checks the URL of a token server that a registry names.
pub(crate) fn token_server_url(context: (&Url, NetworkScope), realm: &str) -> Result<Url, String> {
    let url = Url::parse(realm).map_err(|_| "it does not contain a valid address of a token server".to_owned())?;
    let host = display_text(url.host_str().unwrap_or_default());
    check_redirect_target(context, &url)
        .map_err(|why| format!("it asks to send a login to `{host}`, {why}; nothing was sent"))?;
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    // P11: all forms of `WWW-Authenticate` that registries send are parsed.
    #[test]
    fn challenges_with_commas_are_parsed() {
        let read = parse_challenge(
            r#"Bearer realm="https://auth.example/token",service="registry.example",scope="repository:a/b:pull,push""#,
        );
        let expected = Challenge::Bearer {
            realm: "https://auth.example/token".to_owned(),
            service: Some("registry.example".to_owned()),
            scope: Some("repository:a/b:pull,push".to_owned()),
        };
        assert_eq!(read, Some(expected));
        assert_eq!(parse_challenge(r#"Basic realm="Registry""#), Some(Challenge::Basic));
        assert_eq!(parse_challenge("basic"), Some(Challenge::Basic));
        let unquoted = parse_challenge("bearer realm=https://a.example/t, service=s");
        assert!(matches!(unquoted, Some(Challenge::Bearer { service: Some(service), .. }) if service == "s"));
        for invalid in ["", "Negotiate", "Bearer", "Bearer service=\"s\"", "Bearer realm=\"\"", "Bearer realm"] {
            assert_eq!(parse_challenge(invalid), None, "{invalid}");
        }
    }

    // Rows 16 and 18: if a public registry uses TLS, its login is sent only to token servers that use TLS and have no
    // private address.
    #[test]
    fn logins_are_not_sent_to_private_addresses() {
        let url_for = |context: &str, realm| {
            let context = Url::parse(context).expect(context);
            token_server_url(
                (&context, crate::network_scope::scope_in_url(&context).unwrap_or(NetworkScope::Public)),
                realm,
            )
        };
        assert!(url_for("https://registry.example/", "https://auth.example/token").is_ok());
        assert!(url_for("http://127.0.0.1:5000/", "http://127.0.0.1:5001/token").is_ok());
        for private in
            ["http://auth.example/token", "https://127.0.0.1/token", "https://10.0.0.1/", "https://[::1]/", "file:///x"]
        {
            assert!(
                url_for("https://registry.example/", private)
                    .is_err_and(|message| message.contains("nothing was sent")),
                "{private}"
            );
        }
        assert!(url_for("https://registry.example/", "token").is_err());
    }
}
