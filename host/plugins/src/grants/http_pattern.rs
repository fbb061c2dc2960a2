//! Request patterns: methods, scheme, host, port and path prefix of the HTTP requests that a plugin may send.

use super::address::{Class, class};
use super::request_rules::ambiguous_path;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;
use url::{Host, Url};

/// A pattern for HTTP requests that are granted to a plugin or that a plugin asks for:
/// `[private ][METHOD[,METHOD] ]SCHEME://HOST[:PORT][/PREFIX]`.
///
/// Without a method, the pattern matches every method. Without a port, the pattern matches the default port of the
/// scheme; the port `*` matches every port. HOST is a name, `*.NAME` for all names below it, `*` for every name, or
/// an IP address. The word `private` also allows addresses of this machine and of private networks. An example is
/// `GET https://*.example.com/v1/`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpPattern {
    network: NetworkReach,
    /// HTTP methods that the pattern matches. If the list is empty, the pattern matches every method.
    methods: Vec<String>,
    scheme: Scheme,
    host: HostPattern,
    /// The host of the granted pattern, if the host is an IP address. `None` means that the pattern does not contain an
    /// IP address.
    named: Option<IpAddr>,
    port: Port,
    /// Prefix that the path of a request must have. The prefix starts with `/`, and the prefix `/` alone matches
    /// every path.
    prefix: String,
}

/// The error for text that is not a request pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a request pattern: {reason}; write for example `GET https://api.example.com/v1/`")]
pub struct PatternError {
    text: String,
    reason: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NetworkReach {
    Public,
    Private,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Port {
    Any,
    Is(u16),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scheme {
    Http,
    Https,
}

/// The requests that the manifest of a plugin asks for. `None` if the component has no manifest.
pub(crate) type AskedRequests = Option<Arc<[HttpPattern]>>;

#[derive(Clone, Debug, PartialEq, Eq)]
enum HostPattern {
    /// Any host, written as `*`.
    Any,
    /// Any name below a domain, written as `*.example.com` and stored as `.example.com`.
    Below(String),
    Name(String),
    Address(IpAddr),
}

impl HttpPattern {
    /// Whether the pattern matches this request. The path of a parsed URL has no `.` or `..` segments.
    pub(crate) fn allows(&self, method: &str, url: &Url) -> bool {
        self.matches_method(method) && self.matches_destination(url) && self.matches_path(url.path())
    }

    /// Returns whether the pattern would match this request if every server interpreted paths in the same way as
    /// the host.
    pub(crate) fn would_allow_literal_path(&self, method: &str, url: &Url) -> bool {
        self.matches_method(method) && self.matches_destination(url) && self.starts_with_prefix(url.path())
    }

    /// Whether the pattern matches every path.
    pub(crate) fn matches_every_path(&self) -> bool {
        self.prefix == "/"
    }

    /// Whether the pattern also allows addresses of this machine and of private networks.
    pub fn is_private(&self) -> bool {
        self.network == NetworkReach::Private
    }

    /// Whether the pattern matches every method.
    pub(crate) fn matches_every_method(&self) -> bool {
        self.methods.is_empty()
    }

    fn matches_method(&self, method: &str) -> bool {
        self.methods.is_empty() || self.methods.iter().any(|allowed| allowed == method)
    }

    /// The methods in the pattern that are not standard methods and therefore probably typos.
    pub fn unusual_methods(&self) -> impl Iterator<Item = &str> {
        self.methods.iter().map(String::as_str).filter(|method| !METHODS.contains(method))
    }

    /// Whether the pattern matches the scheme, host and port of the URL. The path of the URL is ignored.
    pub(crate) fn matches_destination(&self, url: &Url) -> bool {
        let scheme_fits = self.scheme.as_str() == url.scheme();
        scheme_fits
            && self.port.matches(url.port_or_known_default())
            && url.host().is_some_and(|host| self.host.matches(&host))
    }

    /// Whether the pattern matches the host of the URL. The scheme, port and path of the URL are not compared.
    pub(crate) fn matches_host(&self, url: &Url) -> bool {
        url.host().is_some_and(|host| self.host.matches(&host))
    }

    /// Checks that the pattern allows connections to this address. If the pattern does not allow these connections, the
    /// error is the class of the address.
    pub(crate) fn admits(&self, address: IpAddr) -> Result<(), &'static str> {
        match (class(address), self.network) {
            (Class::Public, _) | (Class::Private(_), NetworkReach::Private) => Ok(()),
            _ if self.named == Some(address) => Ok(()),
            (Class::Private(what) | Class::Special(what), _) => Err(what),
        }
    }

    /// Whether the pattern's host is an address that is not public, or a name of this machine: for example `127.0.0.1`,
    /// `[fe80::1]` or `localhost`.
    pub fn is_inside(&self) -> bool {
        let address = self.named.or(match &self.host {
            HostPattern::Address(address) => Some(*address),
            _ => None,
        });
        match (address, &self.host) {
            (Some(address), _) => !matches!(class(address), Class::Public),
            (None, HostPattern::Name(name)) => name == "localhost" || name.ends_with(".localhost"),
            _ => false,
        }
    }

    /// Returns a pattern for the requests that match both `self`, which comes from a grant, and `asked`, which comes
    /// from a need in a manifest. Returns None if no request matches both patterns.
    fn intersect(&self, asked: &Self) -> Option<Self> {
        let methods: Vec<_> = match (self.methods.is_empty(), asked.methods.is_empty()) {
            (true, _) => asked.methods.clone(),
            (false, true) => self.methods.clone(),
            (false, false) => self.methods.iter().filter(|one| asked.methods.contains(one)).cloned().collect(),
        };
        let no_method_left = methods.is_empty() && !(self.methods.is_empty() && asked.methods.is_empty());
        if no_method_left || self.scheme != asked.scheme {
            return None;
        }
        let port = self.port.intersect(asked.port)?;
        let prefix = if self.matches_path(&asked.prefix) {
            &asked.prefix
        } else if asked.matches_path(&self.prefix) {
            &self.prefix
        } else {
            return None;
        };
        let host = self.host.intersect(&asked.host)?;
        // A plugin must not get access to an address by naming it in its manifest, so `named` is copied from the grant.
        Some(Self { methods, host, port, prefix: prefix.clone(), ..self.clone() })
    }

    /// Whether every request that this pattern matches is granted by one of the patterns in `parts`.
    pub(crate) fn is_covered_by(&self, parts: &[Self]) -> bool {
        let is_same = |part: &&Self| (&part.host, part.port, &part.prefix) == (&self.host, self.port, &self.prefix);
        let of_any_method = |part: &Self| part.methods.is_empty() || part.methods == self.methods;
        let whole: Vec<_> = parts.iter().filter(is_same).collect();
        let has_method = |method: &String| whole.iter().any(|part| part.methods.contains(method));
        whole.iter().any(|part| of_any_method(part)) || !self.methods.is_empty() && self.methods.iter().all(has_method)
    }

    /// Whether the pattern matches the path. An ambiguous path matches no prefix except `/`, because a server could
    /// resolve it to another path.
    fn matches_path(&self, path: &str) -> bool {
        self.prefix == "/" || self.starts_with_prefix(path) && ambiguous_path(path).is_none()
    }

    fn starts_with_prefix(&self, path: &str) -> bool {
        if self.prefix == "/" {
            return true;
        }
        let Some(rest) = path.strip_prefix(&self.prefix) else { return false };
        rest.is_empty() || self.prefix.ends_with('/') || rest.starts_with('/')
    }
}

/// The patterns, without duplicates, for the requests that are both granted and asked for.
pub fn within(granted: &[HttpPattern], asked: &[HttpPattern]) -> Vec<HttpPattern> {
    let mut common = Vec::new();
    for pattern in granted.iter().flat_map(|granted| asked.iter().filter_map(|asked| granted.intersect(asked))) {
        if !common.contains(&pattern) {
            common.push(pattern);
        }
    }
    common
}

/// The patterns for the requests that both lists of grants allow. A request to a private network is included only if
/// both lists allow it.
pub(crate) fn granted_by_both(one: &[HttpPattern], two: &[HttpPattern]) -> Vec<HttpPattern> {
    let pairs = one.iter().flat_map(|one| two.iter().map(move |two| (one, two)));
    let common = pairs.filter_map(|(one, two)| {
        let network = if one.network == two.network { one.network } else { NetworkReach::Public };
        let named = one.named.filter(|_| one.named == two.named);
        Some(HttpPattern { network, named, ..one.intersect(two)? })
    });
    common.collect()
}

impl Port {
    fn matches(self, port: Option<u16>) -> bool {
        match self {
            Port::Any => port.is_some(),
            Port::Is(named) => port == Some(named),
        }
    }

    fn intersect(self, other: Self) -> Option<Self> {
        match (self, other) {
            (Port::Any, port) | (port, Port::Any) => Some(port),
            (one, two) => (one == two).then_some(one),
        }
    }
}

impl Scheme {
    fn as_str(self) -> &'static str {
        match self {
            Scheme::Http => "http",
            Scheme::Https => "https",
        }
    }
}

impl HostPattern {
    fn matches(&self, host: &Host<&str>) -> bool {
        match (self, host) {
            (HostPattern::Any, _) => true,
            (HostPattern::Below(suffix), Host::Domain(name)) => {
                let name = without_trailing_dot(name);
                name.len() > suffix.len() && name.ends_with(suffix.as_str())
            }
            (HostPattern::Name(named), Host::Domain(name)) => without_trailing_dot(name) == named,
            (HostPattern::Address(named), Host::Ipv4(address)) => *named == IpAddr::V4(*address),
            (HostPattern::Address(named), Host::Ipv6(address)) => *named == IpAddr::V6(*address),
            _ => false,
        }
    }

    fn intersect(&self, other: &Self) -> Option<Self> {
        match (self, other) {
            (HostPattern::Any, host) | (host, HostPattern::Any) => Some(host.clone()),
            (HostPattern::Below(one), HostPattern::Below(two)) => {
                let (short, long) = if one.len() <= two.len() { (one, two) } else { (two, one) };
                long.ends_with(short.as_str()).then(|| HostPattern::Below(long.clone()))
            }
            (HostPattern::Below(suffix), HostPattern::Name(name))
            | (HostPattern::Name(name), HostPattern::Below(suffix)) => {
                let is_below = name.len() > suffix.len() && name.ends_with(suffix.as_str());
                is_below.then(|| HostPattern::Name(name.clone()))
            }
            (one, two) => (one == two).then(|| one.clone()),
        }
    }
}

/// Removes the trailing dot of a fully qualified name, because the name means the same without it.
fn without_trailing_dot(name: &str) -> &str {
    name.strip_suffix('.').unwrap_or(name)
}

impl FromStr for HttpPattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, PatternError> {
        parse(text.trim()).map_err(|reason| PatternError { text: without_credentials(text), reason })
    }
}

/// Removes credentials between the scheme and the host of a URL, because they must not be shown.
fn without_credentials(text: &str) -> String {
    let Some((before, rest)) = text.split_once("://") else { return text.to_owned() };
    let end = rest.find('/').unwrap_or(rest.len());
    // The `@` after the credentials may come after the first slash, because a password may contain a slash.
    match rest[..end].rfind('@').or_else(|| rest.rfind('@')) {
        Some(at) => format!("{before}://…{}", &rest[at..]),
        None => text.to_owned(),
    }
}

/// The methods of RFC 9110, and PATCH.
const METHODS: [&str; 9] = ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT"];

fn parse(text: &str) -> Result<HttpPattern, &'static str> {
    let (network, text) = match text.strip_prefix("private ") {
        Some(rest) => (NetworkReach::Private, rest.trim_start()),
        None => (NetworkReach::Public, text),
    };
    let (methods, url) = match text.split_once(' ') {
        Some((methods, url)) => (methods.split(',').map(str::to_owned).collect(), url.trim_start()),
        None => (Vec::new(), text),
    };
    if methods.iter().any(|method| method.is_empty() || !method.bytes().all(|byte| byte.is_ascii_uppercase())) {
        return Err("methods are written in capital letters and separated by commas");
    }
    let (scheme, rest) = url.split_once("://").ok_or("it does not contain `://`")?;
    let scheme = match scheme {
        "http" => Scheme::Http,
        "https" => Scheme::Https,
        _ => return Err("its scheme is neither http nor https"),
    };
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let (authority, any_port) = authority.strip_suffix(":*").map_or((authority, false), |host| (host, true));
    let without_port = format!("{authority}{path}");
    // The URL parser does not accept wildcards, so a wildcard is removed or replaced with a name before parsing.
    let (parsable, below) = match (without_port.strip_prefix("*."), without_port.strip_prefix('*')) {
        (Some(rest), _) => (rest.to_owned(), Some(true)),
        (None, Some(rest)) => (format!("any{rest}"), Some(false)),
        (None, None) => (without_port.clone(), None),
    };
    let url =
        Url::parse(&format!("{}://{parsable}", scheme.as_str())).map_err(|_| "its host, port or path is not valid")?;
    if !url.username().is_empty() || url.password().is_some() || url.query().is_some() || url.fragment().is_some() {
        return Err("it has more parts than a host, a port and a path");
    }
    if let Some(reason) = ambiguous_path(url.path()) {
        return Err(reason);
    }
    let host = match (below, url.host().ok_or("it has no host")?) {
        (Some(true), Host::Domain(name)) => HostPattern::Below(format!(".{}", without_trailing_dot(name))),
        (Some(false), Host::Domain("any")) => HostPattern::Any,
        (None, Host::Domain(name)) if !name.contains('*') => HostPattern::Name(without_trailing_dot(name).to_owned()),
        (None, Host::Ipv4(address)) => HostPattern::Address(IpAddr::V4(address)),
        (None, Host::Ipv6(address)) => HostPattern::Address(IpAddr::V6(address)),
        _ => return Err("a `*` must be the whole host or come before its first dot"),
    };
    let port = match any_port {
        true => Port::Any,
        false => Port::Is(url.port_or_known_default().ok_or("it has no port")?),
    };
    let named = match &host {
        HostPattern::Address(address) => Some(*address),
        _ => None,
    };
    Ok(HttpPattern { network, methods, scheme, host, named, port, prefix: url.path().to_owned() })
}

impl fmt::Display for HttpPattern {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.network == NetworkReach::Private {
            formatter.write_str("private ")?;
        }
        if !self.methods.is_empty() {
            write!(formatter, "{} ", self.methods.join(","))?;
        }
        write!(formatter, "{}://", self.scheme.as_str())?;
        match &self.host {
            HostPattern::Any => formatter.write_str("*")?,
            HostPattern::Below(suffix) => write!(formatter, "*{suffix}")?,
            HostPattern::Name(name) => formatter.write_str(name)?,
            HostPattern::Address(IpAddr::V4(address)) => write!(formatter, "{address}")?,
            HostPattern::Address(IpAddr::V6(address)) => write!(formatter, "[{address}]")?,
        }
        let default_port = if self.scheme == Scheme::Https { 443 } else { 80 };
        match self.port {
            Port::Any => formatter.write_str(":*")?,
            Port::Is(port) if port != default_port => write!(formatter, ":{port}")?,
            Port::Is(_) => {}
        }
        if self.prefix == "/" { Ok(()) } else { formatter.write_str(&self.prefix) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> HttpPattern {
        text.parse().unwrap_or_else(|error| panic!("{error}"))
    }

    fn allows(text: &str, method: &str, url: &str) -> bool {
        pattern(text).allows(method, &Url::parse(url).expect(url))
    }

    /// P6: an unknown method in a pattern is reported, and error messages about patterns show no credentials.
    #[test]
    fn p6_unusual_methods_are_reported_and_credentials_are_hidden() {
        assert_eq!(pattern("GETT,POST https://a.example").unusual_methods().collect::<Vec<_>>(), ["GETT"]);
        for text in ["GET https://user:canary@a.example/v1", "https://user:can/ary@a.example"] {
            let error = text.parse::<HttpPattern>().expect_err(text).to_string();
            assert!(error.contains("://…@a.example") && !error.contains("can"), "{error}");
        }
    }

    /// P6: a pattern matches requests by host, port, method and path. The host and the port of a pattern may
    /// be wildcards.
    #[test]
    fn p6_patterns_match_method_host_port_and_path() {
        let allowed = [
            ("GET https://api.example.com", "GET", "https://api.example.com/any/path?query"),
            ("GET,POST https://api.example.com", "POST", "https://API.example.com./"),
            ("https://*.example.com:8443/v1/", "DELETE", "https://a.b.example.com:8443/v1/x"),
            ("https://a.example/v1", "GET", "https://a.example/v1"),
            ("https://a.example/v1", "GET", "https://a.example/v1/x"),
            ("https://*", "GET", "https://anything.example/"),
            ("https://*:*", "GET", "https://anything.example:8443/"),
            ("http://127.0.0.1:80", "GET", "http://2130706433/"),
            ("http://[::1]:81", "GET", "http://[0:0::1]:81/"),
        ];
        for (text, method, url) in allowed {
            assert!(allows(text, method, url), "{text}: {method} {url}");
        }
        let refused = [
            ("GET https://api.example.com", "POST", "https://api.example.com/"),
            ("GET https://api.example.com", "GET", "http://api.example.com/"),
            ("GET https://api.example.com", "GET", "https://api.example.com:444/"),
            ("https://*.example.com", "GET", "https://example.com/"),
            ("https://*.example.com", "GET", "https://evilexample.com/"),
            ("https://example.com", "GET", "https://example.com.evil.example/"),
            ("https://example.com", "GET", "https://evil.example/example.com"),
            ("https://a.example/v1/", "GET", "https://a.example/v1/../admin"),
            ("https://a.example/v1/", "GET", "https://a.example/v1/%2e%2e/admin"),
            ("https://a.example/v1/", "GET", "https://a.example/v1/..%2Fadmin"),
            ("https://a.example/v1/", "GET", "https://a.example/v1/..%5cadmin"),
            ("https://a.example/v1", "GET", "https://a.example/v10"),
            ("https://a.example/v1/", "GET", "https://a.example/v1/..;/admin"),
            ("https://a.example/v1/", "GET", "https://a.example/v1/.%252e/admin"),
            ("https://a.example", "GET", "https://user:password@b.example/"),
            ("http://*:81", "GET", "http://a.example/"),
        ];
        for (text, method, url) in refused {
            assert!(!allows(text, method, url), "{text}: {method} {url}");
        }
    }

    /// P6: parsing the displayed form of a pattern returns the same pattern, and texts that are not
    /// patterns are refused.
    #[test]
    fn p6_patterns_round_trip_and_invalid_texts_are_refused() {
        let texts = [
            "https://*",
            "https://*:*",
            "http://[::1]:*/a",
            "private GET http://intranet",
            "GET,PUT https://*.example.com:8443/v1/",
            "http://[::1]:81",
            "http://10.0.0.1",
        ];
        for text in texts {
            assert_eq!(pattern(text).to_string(), text);
        }
        let wrong = [
            "",
            "example.com",
            "ftp://a.example",
            "get https://a.example",
            "https://",
            "https://a.*.example",
            "https://*example.com",
            "https://user@a.example",
            "https://a.example?x=1",
            "GET  ",
            "https://*.10.0.0.1",
            "https://a.example/v1/..;/",
            "https://a.example/v1%2fadmin/",
        ];
        for text in wrong {
            assert!(text.parse::<HttpPattern>().is_err(), "{text}");
        }
    }

    /// P6: a plugin may send only requests that its manifest asks for and that are granted.
    #[test]
    fn p6_within_is_the_intersection_of_granted_and_asked() {
        let cases = [
            ("GET https://a.example", "https://*", "GET https://a.example"),
            ("https://*.example.com", "GET https://api.example.com/v1/", "GET https://api.example.com/v1/"),
            ("private https://*", "https://a.example", "private https://a.example"),
            ("http://127.0.0.1:81", "http://*:*", "http://127.0.0.1:81"),
            ("https://a.example", "private https://*", "https://a.example"),
            ("https://*.a.example", "https://*.b.a.example", "https://*.b.a.example"),
            ("GET,POST https://a.example/v1", "POST,PUT https://a.example/v1/x", "POST https://a.example/v1/x"),
        ];
        for (granted, asked, both) in cases {
            assert_eq!(within(&[pattern(granted)], &[pattern(asked)]), [pattern(both)], "{granted} ∩ {asked}");
        }
        let nothing = [
            ("GET https://a.example", "POST https://*"),
            ("https://a.example", "http://a.example"),
            ("https://a.example", "https://b.example"),
            ("https://a.example/v1/", "https://a.example/v2/"),
        ];
        for (granted, asked) in nothing {
            assert_eq!(within(&[pattern(granted)], &[pattern(asked)]), [], "{granted} ∩ {asked}");
        }
    }

    /// Row 15: a private address needs its own pattern or the word `private`; a cloud's metadata address needs its own
    /// pattern.
    #[test]
    fn row_15_private_addresses_need_an_explicit_grant() {
        let admits = |text: &str, address: &str| pattern(text).admits(address.parse().expect(address)).is_ok();
        assert!(admits("https://*", "1.1.1.1") && !admits("https://*", "10.0.0.1"));
        assert!(!admits("http://localhost", "127.0.0.1") && admits("private http://localhost", "127.0.0.1"));
        assert!(admits("http://127.0.0.1", "127.0.0.1") && !admits("http://127.0.0.1", "127.0.0.2"));
        assert!(!admits("private http://*", "169.254.169.254"));
        assert!(admits("http://169.254.169.254", "169.254.169.254"));
        assert!(!admits("private https://*", "::ffff:127.0.0.1"));
        let asked_only = within(&[pattern("http://*")], &[pattern("http://127.0.0.1")]);
        assert!(
            asked_only[0].admits("127.0.0.1".parse().expect("an address")).is_err(),
            "a plugin cannot grant itself an address"
        );
    }
}
