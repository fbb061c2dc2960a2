//! Refuses HTTP requests that a server could interpret differently from the host (row 43). If the server and the host
//! interpreted a request differently, a plugin could use a path or method that is not granted.

use hyper::HeaderMap;
use hyper::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HOST};
use url::Url;

/// Methods that the host never sends, because the server would return the request's headers or open a tunnel.
const FORBIDDEN_METHODS: [&str; 3] = ["CONNECT", "TRACE", "TRACK"];

/// Methods whose requests have no body.
const METHODS_WITHOUT_BODY: [&str; 2] = ["GET", "HEAD"];

/// Headers that apply only to one connection. The next proxy or server removes these headers, and any other
/// headers that are listed in `connection`.
const CONNECTION_HEADERS: [&str; 8] =
    ["connection", "expect", "http2-settings", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"];

/// Headers in which a proxy describes the original request. A server that trusts these headers would handle a different
/// request from the one that the host has checked.
const PROXY_HEADERS: [&str; 26] = [
    "base-url",
    "cf-connecting-ip",
    "client-ip",
    "fastly-client-ip",
    "forwarded",
    "request-uri",
    "true-client-ip",
    "x-accel-redirect",
    "x-client-ip",
    "x-cluster-client-ip",
    "x-custom-ip-authorization",
    "x-host",
    "x-http-host-override",
    "x-originating-ip",
    "x-override-url",
    "x-proxy-url",
    "x-real-ip",
    "x-remote-addr",
    "x-remote-ip",
    "x-server-name",
    "x-waws-unencoded-url",
    "x-sendfile-type",
    "x-backend-host",
    "x-request-uri",
    "x-uri",
    "x-url",
];

/// Prefixes of the names of headers that proxies add, in addition to the names in `PROXY_HEADERS`.
const PROXY_HEADER_PREFIXES: [&str; 6] =
    ["proxy-", "x-envoy-", "x-forwarded", "x-middleware-", "x-original-", "x-rewrite-"];

/// Headers that a request must not contain twice, because servers disagree about which of the two values applies.
const UNREPEATABLE_HEADERS: [hyper::header::HeaderName; 4] = [AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HOST];

/// Non-ASCII characters that some servers interpret as `.`, `/`, `\`, `%` or `;`.
const LOOK_ALIKES: [char; 23] = [
    '\u{037e}', '\u{2024}', '\u{2025}', '\u{2026}', '\u{2044}', '\u{2215}', '\u{2216}', '\u{29f5}', '\u{29f8}',
    '\u{29f9}', '\u{3002}', '\u{fe19}', '\u{fe30}', '\u{fe52}', '\u{fe54}', '\u{fe68}', '\u{fe6a}', '\u{ff05}',
    '\u{ff0e}', '\u{ff0f}', '\u{ff1b}', '\u{ff3c}', '\u{ff61}',
];

/// Invisible characters that some servers remove from a path.
const INVISIBLE: [char; 10] = [
    '\u{ad}', '\u{180e}', '\u{200b}', '\u{200c}', '\u{200d}', '\u{200e}', '\u{200f}', '\u{2060}', '\u{2061}',
    '\u{feff}',
];

/// What is known about the size of a request body that has not been read yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodySize {
    /// The body has at least one byte.
    NonEmpty,
    /// It is not known whether the body is empty.
    Unknown,
}

/// Whether requests with this method have a body.
pub(crate) fn has_body(method: &str) -> bool {
    !METHODS_WITHOUT_BODY.contains(&method)
}

/// The reason why a request is refused even if a grant allows it. `None` means that the request may be sent if it
/// is granted.
pub(crate) fn reason_to_refuse(method: &str, headers: &HeaderMap, body: BodySize) -> Option<String> {
    if FORBIDDEN_METHODS.contains(&method) || !method.bytes().all(|byte| byte.is_ascii_uppercase()) {
        return Some(format!("plugins cannot send the method {method:?}"));
    }
    for name in headers.keys() {
        let plain = plain_name(name.as_str());
        let is_of_proxies = PROXY_HEADERS.contains(&&*plain);
        if is_of_proxies || PROXY_HEADER_PREFIXES.iter().any(|begin| plain.starts_with(begin)) {
            return Some(format!("the header `{name}` could make a server handle a different request"));
        }
        if CONNECTION_HEADERS.contains(&&*plain) {
            return Some(format!("the header `{name}` describes the connection, which only the host controls"));
        }
    }
    if let Some(repeated) = UNREPEATABLE_HEADERS.iter().find(|name| headers.get_all(*name).iter().count() > 1) {
        return Some(format!("it has the header `{repeated}` more than once"));
    }
    let length = headers.get(CONTENT_LENGTH).map(|value| value.as_bytes());
    if length.is_some_and(|length| length.is_empty() || !length.iter().all(u8::is_ascii_digit)) {
        return Some("its `content-length` is not a number".to_owned());
    }
    let has_length = length.is_some_and(|length| length.iter().any(|digit| *digit != b'0'));
    if !has_body(method) && (has_length || body == BodySize::NonEmpty) {
        return Some(format!("a {method} request cannot have a body"));
    }
    None
}

/// Describes the part of a request that names a second path (RFC 4918, section 9.8), because a grant for one path does
/// not cover a second path. `None` means that the request has only one path.
pub(crate) fn second_path(method: &str, headers: &HeaderMap) -> Option<String> {
    if matches!(method, "COPY" | "MOVE") {
        return Some(format!("a {method} request has a second path"));
    }
    let is_second =
        |plain: &str| plain == "destination" || plain.ends_with("copy-source") || plain.ends_with("copy-from");
    let name = headers.keys().find(|name| is_second(&plain_name(name.as_str())))?;
    Some(format!("the header `{name}` names a second path"))
}

/// Describes the part of a request that could make a server handle the request with a different method. Returns `None`
/// if the request has no such part.
pub(crate) fn method_override(url: &Url, headers: &HeaderMap) -> Option<String> {
    if let Some(name) = headers.keys().find(|name| is_method_field(name.as_str())) {
        return Some(format!("the header `{name}` could override the method"));
    }
    let mut fields = url.query_pairs().map(|(name, _)| name);
    let field = fields.find(|name| is_method_field(name))?;
    Some(format!("the query parameter `{}` could override the method", crate::text::clean(&field, 64)))
}

/// Whether a server could read the request's method from a header or form field with this name. PHP replaces `.`, `[`
/// and spaces with `_` and ends a name at a NUL byte. Rack, a library for web servers in Ruby, removes brackets from
/// a name.
pub(crate) fn is_method_field(name: &str) -> bool {
    let plain = plain_name(name.split('\0').next().unwrap_or_default());
    let core = plain.trim_matches('-');
    plain.starts_with('-') && core == "method" || is_override(core)
}

/// Whether a header or field with this name overrides the method of the request on some servers.
fn is_override(plain: &str) -> bool {
    let is_method = plain.starts_with("x-") && (plain.contains("method") || plain.ends_with("verb"));
    is_method || plain.contains("method-override") || matches!(plain, "http-method" | "httpmethod" | "http-verb")
}

/// Replaces each special character with `-`, because servers that pass headers as CGI variables do not distinguish
/// special characters.
fn plain_name(name: &str) -> String {
    let plain = |character: char| if character.is_ascii_alphanumeric() { character.to_ascii_lowercase() } else { '-' };
    name.chars().map(plain).collect()
}

/// The reason why servers could interpret a path differently from the host. `None` means that the path is unambiguous.
/// `path` comes from a parsed URL, so it has no literal `.` or `..` segments.
pub(crate) fn ambiguous_path(path: &str) -> Option<&'static str> {
    let bytes = path.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        if *byte != b'%' {
            if matches!(byte, b';' | b'\\') {
                return Some("its path has a `;` or a `\\`, where some servers cut the path");
            }
            decoded.push(*byte);
            at += 1;
            continue;
        }
        let digits = bytes.get(at + 1..at + 3).and_then(|digits| std::str::from_utf8(digits).ok());
        let is_hexadecimal = digits.is_some_and(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
        let byte = digits.filter(|_| is_hexadecimal).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match byte {
            None => return Some("its path has a `%` without two hexadecimal digits"),
            Some(b'/' | b'\\' | b'.' | b';' | b'%') => {
                return Some(
                    "its path has an encoded `/`, `\\`, `.`, `;` or `%`, which some servers decode a second time",
                );
            }
            Some(byte) if byte.is_ascii_control() => return Some("its path has an encoded control character"),
            Some(byte) => decoded.push(byte),
        }
        at += 3;
    }
    let Ok(text) = String::from_utf8(decoded) else {
        return Some("its path is not UTF-8, which servers decode differently");
    };
    if text.contains(LOOK_ALIKES) {
        return Some("its path has a character that some servers interpret as a dot or a slash");
    }
    let is_dots = |part: &str| {
        let mut shown = part.chars().filter(|char| !char.is_whitespace() && !INVISIBLE.contains(char));
        !part.is_empty() && shown.all(|char| char == '.')
    };
    text.split('/').any(is_dots).then_some("a segment of its path consists only of dots or spaces")
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::{HeaderName, HeaderValue};

    /// Row 43: ambiguous paths are refused, and unambiguous paths are accepted.
    #[test]
    fn row_43_ambiguous_paths_are_refused() {
        let refused = [
            "/pub/..;/admin",
            "/pub/%2e%2e;/admin",
            "/pub/.%252e/admin",
            "/pub/%252e%252e/admin",
            "/pub/x%2fy",
            "/pub/..%2Fadmin",
            "/pub/..%252fadmin",
            "/pub/..%5cadmin",
            "/pub/x\\y",
            "/pub/%00",
            "/pub/..%00/admin",
            "/pub/x%0d%0ay",
            "/pub/..%09/admin",
            "/pub/%c0%ae%c0%ae/admin",
            "/pub/%c0%afadmin",
            "/pub/%e0%80%ae%e0%80%ae/admin",
            "/pub/%ff",
            "/pub/;a=b/x",
            "/pub;/x",
            "/pub/%3b/x",
            "/pub/%u002e%u002e/admin",
            "/pub/%",
            "/pub/%2",
            "/pub/%+2",
            "/pub/..%20/admin",
            "/pub/.../admin",
            "/pub/.%e2%80%8b./admin",
            "/pub/%ef%bc%8e%ef%bc%8e/admin",
            "/pub/..%ef%bc%8fadmin",
            "/pub/%e2%80%a5/admin",
            "/pub/%20/admin",
            "/pub/%EF%B8%B0/admin",
        ];
        for path in refused {
            assert!(ambiguous_path(path).is_some(), "{path}");
        }
        let accepted = [
            "/",
            "/pub/",
            "/pub/a.b/c..d/.e/f.",
            "/pub/caf%C3%A9",
            "/pub/a%20b",
            "/pub/C%23",
            "/pub/what%3f",
            "/pub//x",
            "/pub/https://x.example/",
            "/pub/~a/@b/c:d/e,f/g=h/(i)/!j/$k/&l/*m/+n/'o'",
            "/pub/%E6%97%A5%E6%9C%AC",
            "/pub/a|b%22%3Cc%3E%7Bd%7D",
        ];
        for path in accepted {
            assert_eq!(ambiguous_path(path), None, "{path}");
        }
    }

    fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            let name = HeaderName::from_bytes(name.as_bytes()).expect("a name");
            headers.append(name, HeaderValue::from_str(value).expect("a value"));
        }
        headers
    }

    /// Row 43: requests with proxy headers, connection headers, repeated headers or unusual methods, and GET requests
    /// with a body, are refused.
    #[test]
    fn row_43_unsafe_requests_are_refused_regardless_of_grants() {
        let refused = |method: &str, pairs: &[(&str, &str)]| {
            reason_to_refuse(method, &headers(pairs), BodySize::Unknown).is_some()
        };
        for (name, value) in [
            ("X-Original-URL", "/admin"),
            ("X-Rewrite-URL", "/admin"),
            ("x_original_url", "/admin"),
            ("X~Original~URL", "/admin"),
            ("X!Forwarded!For", "127.0.0.1"),
            ("X-Forwarded-Host", "b.example"),
            ("X-Forwarded-For", "127.0.0.1"),
            ("X-Forwarded-Prefix", "/admin"),
            ("Forwarded", "for=127.0.0.1"),
            ("X-Real-IP", "127.0.0.1"),
            ("True-Client-IP", "127.0.0.1"),
            ("Connection", "close, authorization"),
            ("Transfer-Encoding", "chunked"),
            ("Upgrade", "h2c"),
            ("Proxy-Authorization", "x"),
            ("TE", "trailers"),
            ("Expect", "100-continue"),
            ("Content-Length", "+5"),
        ] {
            assert!(refused("POST", &[(name, value)]), "{name}: {value}");
        }
        assert!(refused("POST", &[("content-length", "5"), ("content-length", "6")]));
        assert!(refused("POST", &[("content-type", "a/b"), ("content-type", "c/d")]));
        for method in ["TRACE", "CONNECT", "get", "G-T", "TRACK"] {
            assert!(refused(method, &[]), "{method}");
        }
        assert!(refused("GET", &[("content-length", "5")]) && refused("HEAD", &[("content-length", "05")]));
        assert!(reason_to_refuse("GET", &headers(&[]), BodySize::NonEmpty).is_some());
        assert!(reason_to_refuse("POST", &headers(&[]), BodySize::NonEmpty).is_none());
        assert!(!refused("GET", &[("content-length", "0"), ("accept", "a/b"), ("accept", "c/d"), ("x-key", "y")]));
    }

    /// Row 43: a grant for one path does not allow a request whose headers name a second path.
    #[test]
    fn row_43_second_paths_are_detected() {
        for (method, name) in
            [("COPY", "accept"), ("PUT", "Destination"), ("PUT", "X-Copy-From"), ("PUT", "x-amz-copy-source")]
        {
            assert!(second_path(method, &headers(&[(name, "/admin")])).is_some(), "{method} {name}");
        }
        assert_eq!(second_path("PUT", &headers(&[("accept", "/admin")])), None);
    }

    /// Row 43: a header or a query parameter that could override the method is recognised.
    #[test]
    fn row_43_method_overrides_are_detected() {
        let found = |url: &str, pairs: &[(&str, &str)]| {
            method_override(&Url::parse(url).expect(url), &headers(pairs)).is_some()
        };
        for name in [
            "X-HTTP-Method-Override",
            "X-HTTP-Method",
            "X-Method-Override",
            "x_http_method_override",
            "X.HTTP.Method.Override",
            "X-HTTP-Verb",
        ] {
            assert!(found("http://a.example/", &[(name, "DELETE")]), "{name}");
        }
        for query in [
            "_method=DELETE",
            "a=b&_METHOD=PUT",
            "%5Fmethod=PUT",
            ".method=PUT",
            "a=b&+%5Bmethod=PUT",
            "x-http-method-override=PUT",
        ] {
            assert!(found(&format!("http://a.example/?{query}"), &[]), "{query}");
        }
        assert!(!found("http://a.example/?method=a&payment_method=b", &[("access-control-request-method", "PUT")]));
    }
}
