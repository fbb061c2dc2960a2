//! Decides who may send a request: the checks of the headers `Host` and `Origin`, and the tokens (row 24).

use crate::problem::Problem;
use crate::sign_ins::{self, SignIns};
use crate::tokens::{Right, Token, digest};
use agent_core::plugin::TraceContext;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use std::collections::HashSet;
use url::Url;

/// The names under which clients may reach the server, and the web pages that may use it from a browser.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllowedOrigins {
    /// Host names, without ports, in addition to the names of this machine for itself (`localhost`, `127.0.0.1` and
    /// `[::1]`).
    pub hosts: Vec<String>,
    /// Origins of web pages, such as `https://console.example.com`, in addition to pages that this server itself serves.
    pub origins: Vec<String>,
}

/// Names by which a machine reaches itself.
const LOOPBACK_NAMES: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

impl AllowedOrigins {
    /// Checks the headers that a browser sets and that a page cannot forge. A page of another site, or a name that was
    /// rebound to this machine, is refused even if the browser has a token.
    pub(crate) fn check(&self, headers: &HeaderMap) -> Result<(), Problem> {
        let forbidden = |code, detail: String| Err(Problem::new(StatusCode::FORBIDDEN, code, detail));
        let host = single(headers, header::HOST.as_str())?;
        let Some(name) = host.and_then(host_name) else {
            return forbidden("wrong_host", "the request has no valid `Host` header".to_owned());
        };
        let is_own = |own: &str| own.eq_ignore_ascii_case(&name);
        if !LOOPBACK_NAMES.into_iter().any(is_own) && !self.hosts.iter().any(|own| is_own(own)) {
            let detail =
                format!("this server is not named `{name}`; to allow this name, start it with --host-name {name}");
            return forbidden("wrong_host", detail);
        }
        let Some(origin) = single(headers, header::ORIGIN.as_str())? else { return Ok(()) };
        let is_same = Url::parse(origin).is_ok_and(|origin| {
            let authority = &origin[url::Position::BeforeHost..url::Position::AfterPort];
            matches!(origin.scheme(), "http" | "https") && host.is_some_and(|host| host.eq_ignore_ascii_case(authority))
        });
        if is_same || self.origins.iter().any(|allowed| allowed == origin) {
            return Ok(());
        }
        let detail =
            format!("web pages of `{origin}` may not use this server; to allow them, start it with --origin {origin}");
        forbidden("wrong_origin", detail)
    }
}

impl AllowedOrigins {
    /// Returns the origin of the page that sends the request, if it is one of the configured origins.
    pub(crate) fn page_of(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        let origin = headers.get(header::ORIGIN)?;
        self.origins.iter().any(|allowed| allowed.as_bytes() == origin.as_bytes()).then(|| origin.clone())
    }
}

/// Returns the only value of a header. A header that occurs twice is refused, because proxies and servers may read
/// different values.
pub(crate) fn single<'h>(headers: &'h HeaderMap, name: &str) -> Result<Option<&'h str>, Problem> {
    let mut values = headers.get_all(name).iter();
    let (first, second) = (values.next(), values.next());
    let invalid = |detail: String| Problem::new(StatusCode::BAD_REQUEST, "bad_request", detail);
    if second.is_some() {
        return Err(invalid(format!("the header `{name}` occurs more than once")));
    }
    first.map(|value| value.to_str().map_err(|_| invalid(format!("the header `{name}` is not text")))).transpose()
}

/// Returns the name in a `Host` header, without the port.
fn host_name(host: &str) -> Option<String> {
    let url = Url::parse(&format!("http://{host}/")).ok()?;
    let is_only_host =
        url.username().is_empty() && url.password().is_none() && url.path() == "/" && url.query().is_none();
    url.host_str().filter(|_| is_only_host && url.fragment().is_none()).map(str::to_owned)
}

/// Returns the trace context of a request. As W3C Trace Context requires, a header that occurs twice is ignored.
fn trace_of(headers: &HeaderMap) -> Option<TraceContext> {
    let text = |name| single(headers, name).ok().flatten().map(str::to_owned);
    Some(TraceContext { traceparent: text("traceparent")?, tracestate: text("tracestate") })
}

/// The sender of a request, whose token was checked.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) token: Token,
    /// The trace context in the headers `traceparent` and `tracestate`, to which a turn of this request belongs (I6). If it is
    /// not valid, the turn begins a trace.
    pub(crate) trace: Option<TraceContext>,
    /// Digest of the sign-in that replaces the token, if the request has a sign-in instead of the token itself.
    pub(crate) sign_in: Option<String>,
}

impl Caller {
    /// Finds the token of a request among the server's tokens. A request may have a sign-in instead of a token.
    pub(crate) fn of(headers: &HeaderMap, tokens: &[Token], sign_ins: &SignIns) -> Result<Self, Problem> {
        let unauthorized = |detail: &str| Problem::new(StatusCode::UNAUTHORIZED, "unauthorized", detail);
        let value = single(headers, header::AUTHORIZATION.as_str())?;
        let value = value.ok_or_else(|| unauthorized("send a token in the header `Authorization: Bearer TOKEN`"))?;
        let (scheme, presented) = value.split_once(' ').unwrap_or((value, ""));
        if !scheme.eq_ignore_ascii_case("bearer") {
            return Err(unauthorized("the header `Authorization` must have the form `Bearer TOKEN`"));
        }
        let presented = presented.trim();
        let presented_digest = digest(presented);
        let sign_in = presented.starts_with(sign_ins::PREFIX).then(|| presented_digest.clone());
        let token_digest = match &sign_in {
            Some(sign_in) => {
                sign_ins.token_of(sign_in).ok_or_else(|| unauthorized("this sign-in has ended; sign in again"))?
            }
            None => presented_digest,
        };
        let token = tokens.iter().find(|token| token.digest == token_digest);
        let token = token.ok_or_else(|| unauthorized("this token does not exist, or it was revoked"))?;
        Ok(Self { token: token.clone(), trace: trace_of(headers), sign_in })
    }

    /// Checks that the token has a right.
    pub(crate) fn require(&self, right: Right) -> Result<(), Problem> {
        if self.token.rights.contains(&right) {
            return Ok(());
        }
        let (name, right) = (&self.token.name, serde_json::to_value(right).unwrap_or_default());
        let detail = format!("the token `{name}` does not have the right {right}");
        Err(Problem::new(StatusCode::FORBIDDEN, "forbidden", detail))
    }

    /// Returns the agents of this server that the token may use.
    pub(crate) fn agents<'a>(&self, agents: impl Iterator<Item = &'a String>) -> HashSet<&'a str> {
        agents.map(String::as_str).filter(|agent| self.token.allows_agent(agent)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    /// Row 24: a page of another site, a rebound name and forged headers are refused.
    #[test]
    fn row_24_foreign_hosts_and_origins_are_refused() {
        let allowed = AllowedOrigins {
            hosts: vec!["agents.example.com".to_owned()],
            origins: vec!["https://console.example.com".to_owned()],
        };
        let code = |pairs: &[(&'static str, &str)]| allowed.check(&headers(pairs)).map_err(|problem| problem.code);
        for host in
            ["localhost:8080", "127.0.0.1", "[::1]:8080", "LOCALHOST:1", "agents.example.com", "Agents.Example.com:443"]
        {
            assert_eq!(code(&[("host", host)]), Ok(()), "{host}");
        }
        for host in [
            "evil.com",
            "localhost.evil.com",
            "127.0.0.1.evil.com",
            "evil.com@localhost",
            "localhost/x",
            "127.0.0.2",
            "0.0.0.0",
            "",
            "a b",
        ] {
            assert_eq!(code(&[("host", host)]), Err("wrong_host"), "{host}");
        }
        assert_eq!(code(&[]), Err("wrong_host"));
        assert_eq!(code(&[("host", "localhost"), ("host", "evil.com")]), Err("bad_request"));
        let from = |origin: &str| code(&[("host", "localhost:8080"), ("origin", origin)]);
        for origin in ["http://localhost:8080", "https://localhost:8080", "https://console.example.com"] {
            assert_eq!(from(origin), Ok(()), "{origin}");
        }
        for origin in [
            "null",
            "http://evil.com",
            "http://localhost:9090",
            "http://localhost",
            "file://localhost:8080",
            "http://console.example.com",
        ] {
            assert_eq!(from(origin), Err("wrong_origin"), "{origin}");
        }
    }

    /// I3: only an existing token with the right is accepted.
    #[test]
    fn i3_a_token_is_needed() {
        let token = Token {
            name: "reader".to_owned(),
            digest: digest("aht_1"),
            agents: Vec::new(),
            rights: [Right::Read].into(),
            user: None,
            created: String::new(),
        };
        let sign_ins = SignIns::default();
        let caller =
            |value: &str| Caller::of(&headers(&[("authorization", value)]), std::slice::from_ref(&token), &sign_ins);
        let reader = caller("Bearer aht_1").unwrap();
        assert!(reader.require(Right::Read).is_ok());
        assert_eq!(reader.require(Right::Talk).map_err(|problem| problem.status), Err(403));
        let secret = sign_ins.begin(&token.digest);
        let signed_in = caller(&format!("Bearer {secret}")).unwrap();
        assert_eq!((signed_in.token.name.as_str(), signed_in.sign_in), ("reader", Some(digest(&secret))));
        let revoked = Caller::of(&headers(&[("authorization", &format!("Bearer {secret}"))]), &[], &sign_ins);
        assert_eq!(revoked.map(|_| ()).map_err(|problem| problem.status), Err(401), "its token was revoked");
        sign_ins.end(&digest(&secret));
        assert_eq!(caller(&format!("Bearer {secret}")).map(|_| ()).map_err(|problem| problem.status), Err(401));
        for value in ["", "Bearer", "Bearer ", "Bearer aht_2", "Basic aht_1", "aht_1", "Bearer aht_1 aht_1"] {
            assert_eq!(caller(value).map(|_| ()).map_err(|problem| problem.status), Err(401), "{value}");
        }
        assert_eq!(
            Caller::of(&headers(&[]), std::slice::from_ref(&token), &sign_ins)
                .map(|_| ())
                .map_err(|problem| problem.status),
            Err(401)
        );
    }
}
