//! From `401` to an `Authorization`: basic, and the bearer tokens of registries.

use crate::error::{ShareError, shown};
use crate::http::{Http, Request, Route, body, explained, may_lead, route};
use crate::origin::{OriginCredential, OriginLogin, TokenServers};
use crate::reach::{Reach, of_server};
use reqwest::header::WWW_AUTHENTICATE;
use reqwest::{Method, Response, StatusCode};
use serde::Deserialize;
use url::Url;

/// Largest answer of a token server.
const TOKEN_BYTES: u64 = 1024 * 1024;

/// What a registry asks for.
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

/// What the registry asks for in this answer. An answer that a redirect through another origin has led to asks for nothing: it
/// is not the registry that speaks there (row 42).
pub(crate) fn challenge_of(response: &Response) -> Option<Challenge> {
    if route(response) != Route::SameOrigin {
        return None;
    }
    let challenges = response.headers().get_all(WWW_AUTHENTICATE);
    challenges.iter().filter_map(|value| challenge(value.to_str().ok()?)).next()
}

/// Reads `WWW-Authenticate`; nothing where it asks for something that is not known here.
pub(crate) fn challenge(header: &str) -> Option<Challenge> {
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

/// `name="value", name=value`; a comma inside of quotes is part of the value.
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

/// A registry that wants to know who asks.
pub(crate) struct Asker<'a> {
    pub(crate) http: &'a Http,
    /// The URL that it was asked for; its origin is the registry's.
    pub(crate) url: &'a Url,
    /// What is to be done there.
    pub(crate) scope: &'a str,
    /// For messages.
    pub(crate) place: &'a str,
    /// Token servers that a person has named.
    pub(crate) token_servers: &'a TokenServers,
}

/// What answers a challenge: a credential for the registry's origin. None: there is nothing to answer it with.
pub(crate) async fn answer(
    asker: &Asker<'_>,
    challenge: &Challenge,
    login: Option<&OriginLogin>,
) -> Result<Option<OriginCredential>, ShareError> {
    let Challenge::Bearer { realm, service, scope } = challenge else {
        return Ok(login.and_then(OriginLogin::basic));
    };
    let server = |said: String| ShareError::Server { place: asker.place.to_owned(), said };
    let reach = of_server(asker.url).await;
    let url = tokens_at((asker.url, reach), realm).map_err(server)?;
    asker.http.check(&url, asker.place)?;
    let login = login.map(|login| for_token_server(asker, login, &url)).transpose()?;
    let scope = scope.as_deref().unwrap_or(asker.scope);
    let request = Request { led_by: Some(reach), ..token_request(url, (service.as_deref(), scope), login.as_ref()) };
    let response = asker.http.send(request, asker.place).await?;
    // A login was not sent along, and a token of somebody else is none of the registry's.
    if route(&response) == Route::OtherOrigin {
        return Err(server("its token server redirects to another server, which is not followed".to_owned()));
    }
    match response.status() {
        StatusCode::OK => {}
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => return Ok(None),
        _ => {
            return Err(server(format!(
                "its token server answers otherwise than it should: {}",
                explained(response).await
            )));
        }
    }
    let bytes = body(response, TOKEN_BYTES, asker.place).await?;
    let token: Option<Token> = serde_json::from_slice(&bytes).ok();
    let token = token.and_then(|token| token.token.or(token.access_token));
    Ok(token.map(|token| OriginCredential::bearer(&token, asker.url)))
}

/// The registry's login for the token server that it has named, if it may go there.
fn for_token_server(asker: &Asker<'_>, login: &OriginLogin, realm: &Url) -> Result<OriginLogin, ShareError> {
    login.for_token_server(asker.url, realm, asker.token_servers).ok_or_else(|| {
        let (registry, server) = (asker.url.origin().ascii_serialization(), realm.origin().ascii_serialization());
        ShareError::Unauthorised {
            place: asker.place.to_owned(),
            said: format!("{registry} wants its login to be sent to {server}, which is another server"),
            advice: format!("nothing was sent; if {server} is where {registry} checks its logins, say so with `--token-server {server}`"),
        }
    })
}

/// Asks for a token: with a refresh token in a form, with a password, or as nobody.
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

/// Where a registry has its tokens given out.
pub(crate) fn tokens_at(asker: (&Url, Reach), realm: &str) -> Result<Url, String> {
    let url = Url::parse(realm).map_err(|_| "it names no address for its tokens".to_owned())?;
    let host = shown(url.host_str().unwrap_or_default());
    may_lead(asker, &url).map_err(|why| format!("it wants a login to be sent to `{host}`, {why}; it is not"))?;
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    // P11: what registries write into `WWW-Authenticate`.
    #[test]
    fn challenges_are_read_also_with_commas_in_them() {
        let read = challenge(
            r#"Bearer realm="https://auth.example/token",service="registry.example",scope="repository:a/b:pull,push""#,
        );
        let expected = Challenge::Bearer {
            realm: "https://auth.example/token".to_owned(),
            service: Some("registry.example".to_owned()),
            scope: Some("repository:a/b:pull,push".to_owned()),
        };
        assert_eq!(read, Some(expected));
        assert_eq!(challenge(r#"Basic realm="Registry""#), Some(Challenge::Basic));
        assert_eq!(challenge("basic"), Some(Challenge::Basic));
        let bare = challenge("bearer realm=https://a.example/t, service=s");
        assert!(matches!(bare, Some(Challenge::Bearer { service: Some(service), .. }) if service == "s"));
        for nothing in ["", "Negotiate", "Bearer", "Bearer service=\"s\"", "Bearer realm=\"\"", "Bearer realm"] {
            assert_eq!(challenge(nothing), None, "{nothing}");
        }
    }

    // Row 18, row 16: a login goes over TLS where the registry is asked over TLS, and not inside.
    #[test]
    fn logins_are_not_sent_inside() {
        let at = |asker: &str, realm| {
            let asker = Url::parse(asker).expect(asker);
            tokens_at((&asker, crate::reach::written(&asker).unwrap_or(Reach::Public)), realm)
        };
        assert!(at("https://registry.example/", "https://auth.example/token").is_ok());
        assert!(at("http://127.0.0.1:5000/", "http://127.0.0.1:5001/token").is_ok());
        for inside in
            ["http://auth.example/token", "https://127.0.0.1/token", "https://10.0.0.1/", "https://[::1]/", "file:///x"]
        {
            assert!(at("https://registry.example/", inside).is_err_and(|said| said.contains("it is not")), "{inside}");
        }
        assert!(at("https://registry.example/", "token").is_err());
    }
}
