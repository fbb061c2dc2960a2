//! From `401` to an `Authorization`: basic, and the bearer tokens of registries.

use crate::credentials::Login;
use crate::error::{ShareError, shown};
use crate::http::{Http, Request, body, explained, may_lead};
use reqwest::{Method, StatusCode};
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

/// What answers a challenge of `asker`. None: there is nothing to answer it with.
pub(crate) async fn answer(
    (http, asker): (&Http, &Url),
    challenge: &Challenge,
    (scope, place): (&str, &str),
    login: Option<&Login>,
) -> Result<Option<String>, ShareError> {
    let Challenge::Bearer { realm, service, scope: asked } = challenge else {
        return Ok(login.and_then(Login::basic));
    };
    let mut url = tokens_at(asker, realm).map_err(|said| ShareError::Server { place: place.to_owned(), said })?;
    let scope = asked.as_deref().unwrap_or(scope);
    let request = match login {
        Some(Login::Identity(token)) => {
            let mut form = url::form_urlencoded::Serializer::new(String::new());
            form.append_pair("grant_type", "refresh_token").append_pair("refresh_token", token);
            form.append_pair("client_id", "agent-host").append_pair("scope", scope);
            if let Some(service) = service {
                form.append_pair("service", service);
            }
            let request = Request::new(Method::POST, url);
            Request { secret: Some(token.clone()), ..request }
                .with_body(form.finish(), "application/x-www-form-urlencoded")
        }
        _ => {
            if let Some(service) = service {
                url.query_pairs_mut().append_pair("service", service);
            }
            url.query_pairs_mut().append_pair("scope", scope);
            Request { authorization: login.and_then(Login::basic), ..Request::get(url) }
        }
    };
    let response = http.send(request, place).await?;
    match response.status() {
        StatusCode::OK => {}
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => return Ok(None),
        _ => {
            let said = format!("its token server answers otherwise than it should: {}", explained(response).await);
            return Err(ShareError::Server { place: place.to_owned(), said });
        }
    }
    let bytes = body(response, TOKEN_BYTES, place).await?;
    let token: Option<Token> = serde_json::from_slice(&bytes).ok();
    Ok(token.and_then(|token| token.token.or(token.access_token)).map(|token| format!("Bearer {token}")))
}

/// Where a registry has its tokens given out.
fn tokens_at(asker: &Url, realm: &str) -> Result<Url, String> {
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
        let at = |asker: &str, realm| tokens_at(&Url::parse(asker).expect(asker), realm);
        assert!(at("https://registry.example/", "https://auth.example/token").is_ok());
        assert!(at("http://127.0.0.1:5000/", "http://127.0.0.1:5001/token").is_ok());
        for inside in ["http://auth.example/token", "https://127.0.0.1/token", "https://[::1]/", "file:///x"] {
            assert!(at("https://registry.example/", inside).is_err_and(|said| said.contains("it is not")), "{inside}");
        }
        assert!(at("https://registry.example/", "token").is_err());
    }
}
