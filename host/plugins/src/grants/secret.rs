//! Secrets, such as API keys, that plugins use without seeing them. The host adds a secret to requests that plugins
//! send to the secret's hosts, and removes it from every response (P7). Guests never see secrets.

use super::http_pattern::HttpPattern;
use agent_core::redaction::Redaction;
use hyper::header::{HeaderName, HeaderValue};
use std::fmt;
use url::Url;

/// Minimum size of a secret, in bytes. A shorter value could occur in ordinary text by chance, so removing it would
/// damage the text.
const MIN_BYTES: usize = 8;
/// Maximum size of a secret, in bytes.
const MAX_BYTES: usize = 8 * 1024;

/// A credential, the header that contains it, and the hosts that may receive it. The credential's value is never shown:
/// `Debug` prints only the name.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret {
    name: String,
    value: String,
    hosts: Vec<HttpPattern>,
    header: HeaderName,
    /// Complete value of the header, including the secret.
    filled: HeaderValue,
}

/// The configuration of a secret, without its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretTemplate {
    /// Name by which the plugin's manifest asks for the secret.
    pub name: String,
    /// Hosts that may receive the secret. Each item is a host name (`api.example.com` means
    /// `https://api.example.com`) or an HTTP pattern without a method.
    pub hosts: Vec<String>,
    /// Name of the header that contains the secret.
    pub header: String,
    /// Value of the header, with `{}` in place of the secret.
    pub format: String,
}

/// The error for a secret that cannot be used. Messages never contain the value of the secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    /// The value is too short or too long. The number is the size of the value in bytes.
    #[error("it has {0} bytes; a secret must have {MIN_BYTES} to {MAX_BYTES}")]
    Length(usize),
    /// The secret contains characters that are not allowed in a header value.
    #[error("it contains characters that are not allowed in a header")]
    Value,
    /// The header's name is invalid or reserved for the host.
    #[error("`{0}` is not the name of a header that may contain a secret")]
    Header(String),
    /// The configured value of the header has no `{}`.
    #[error("`{0}` has no `{{}}` in place of the secret")]
    Format(String),
    /// An entry in the list of hosts is not a valid pattern.
    #[error(transparent)]
    Host(#[from] crate::grants::http_pattern::PatternError),
    /// The list of hosts is empty.
    #[error("it has no hosts that may receive it")]
    NoHosts,
}

impl Secret {
    /// Combines the configuration of a secret with its value. Removes white space around the value.
    pub fn new(template: SecretTemplate, value: &str) -> Result<Self, SecretError> {
        let SecretTemplate { name, hosts, header, format } = template;
        let value = value.trim().to_owned();
        if !(MIN_BYTES..=MAX_BYTES).contains(&value.len()) {
            return Err(SecretError::Length(value.len()));
        }
        if !format.contains("{}") {
            return Err(SecretError::Format(format));
        }
        let reserved = ["host", "content-length", "transfer-encoding", "connection", "upgrade", "accept-encoding"];
        let name_of_header = HeaderName::from_bytes(header.as_bytes()).ok();
        let header =
            name_of_header.filter(|name| !reserved.contains(&name.as_str())).ok_or(SecretError::Header(header))?;
        let mut filled = HeaderValue::from_str(&format.replace("{}", &value)).map_err(|_| SecretError::Value)?;
        filled.set_sensitive(true);
        if hosts.is_empty() {
            return Err(SecretError::NoHosts);
        }
        let hosts = hosts
            .iter()
            .map(|host| if host.contains("://") { host.parse() } else { format!("https://{host}").parse() });
        Ok(Self { name, value, hosts: hosts.collect::<Result<_, _>>()?, header, filled })
    }

    /// Name by which the plugin's manifest asks for the secret.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Hosts that may receive the secret.
    pub fn hosts(&self) -> &[HttpPattern] {
        &self.hosts
    }

    /// Name of the header that contains the secret.
    pub fn header(&self) -> &str {
        self.header.as_str()
    }

    /// Whether the host adds the secret to this request.
    pub(crate) fn is_for(&self, method: &str, url: &Url) -> bool {
        self.hosts.iter().any(|host| host.allows(method, url))
    }

    /// Returns the name and the complete value of the header.
    pub(crate) fn name_and_value(&self) -> (HeaderName, HeaderValue) {
        (self.header.clone(), self.filled.clone())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Secret({})", self.name)
    }
}

/// All secrets of an agent, and the servers that may receive them. The host removes the secrets from every response
/// that any plugin receives from these servers (row 41).
#[derive(Clone, Debug, Default)]
pub struct KnownSecrets {
    redaction: Redaction,
    /// Hosts that may receive a secret.
    hosts: Vec<HttpPattern>,
    /// Hosts that receive secrets from agent-host itself instead of in the requests of plugins, for example a
    /// model provider.
    given_to: Vec<String>,
    /// Whether any server may know a secret, for example because a program received the secret and may have
    /// forwarded it.
    anywhere: bool,
}

/// A server or program that receives a secret from agent-host itself instead of in the request of a plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretHolder {
    /// All servers on this host. The name or address of the host is written as in a URL.
    Host(String),
    /// A receiver, for example a program, that may forward the secret to any server.
    Anyone,
}

impl KnownSecrets {
    /// Creates the set of the secrets that plugins use in requests.
    pub fn new<'s>(secrets: impl IntoIterator<Item = &'s Secret>) -> Self {
        let secrets: Vec<_> = secrets.into_iter().collect();
        let redaction = Redaction::new(secrets.iter().map(|secret| secret.value.as_str()));
        let hosts = secrets.iter().flat_map(|secret| secret.hosts.iter().cloned()).collect();
        Self { redaction, hosts, ..Self::default() }
    }

    /// Adds secret texts to this set, together with the server or program that receives these texts.
    #[must_use]
    pub fn with(&self, redaction: &Redaction, given_to: &SecretHolder) -> Self {
        if redaction.is_empty() {
            return self.clone();
        }
        let mut combined = Self { redaction: self.redaction.and(redaction), ..self.clone() };
        match given_to {
            SecretHolder::Host(host) => combined.given_to.push(host.clone()),
            SecretHolder::Anyone => combined.anywhere = true,
        }
        combined
    }

    /// Returns the union of `self` and `other`.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        let mut combined = Self { redaction: self.redaction.and(&other.redaction), ..self.clone() };
        combined.hosts.extend(other.hosts.iter().filter(|host| !self.hosts.contains(host)).cloned());
        combined.given_to.extend(other.given_to.iter().filter(|host| !self.given_to.contains(host)).cloned());
        combined.anywhere |= other.anywhere;
        combined
    }

    /// The object that removes the secrets from texts.
    pub fn redaction(&self) -> &Redaction {
        &self.redaction
    }

    /// Whether the server may know at least one of these secrets. A server counts as knowing a secret if the secret may
    /// be sent to the server's host, on any port and path.
    pub(crate) fn are_known_to(&self, url: &Url) -> bool {
        let is_listed = || url.host_str().is_some_and(|host| self.given_to.iter().any(|given| given == host));
        self.anywhere || self.hosts.iter().any(|host| host.matches_host(url)) || is_listed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template(hosts: &[&str], header: &str, format: &str) -> SecretTemplate {
        let hosts = hosts.iter().map(|host| (*host).to_owned()).collect();
        SecretTemplate { name: "TOKEN".to_owned(), hosts, header: header.to_owned(), format: format.to_owned() }
    }

    /// P7: a secret is sent only to its hosts, over HTTPS unless configured otherwise, and is never shown.
    #[test]
    fn p7_secret_is_sent_to_its_hosts_only() {
        let secret = Secret::new(template(&["api.example.com"], "Authorization", "Bearer {}"), "s3cret-value\n");
        let secret = secret.expect("a secret");
        let is_for = |url: &str| secret.is_for("GET", &Url::parse(url).expect(url));
        assert!(is_for("https://api.example.com/x"));
        for url in ["http://api.example.com/x", "https://example.com/", "https://api.example.com:444/"] {
            assert!(!is_for(url), "{url}");
        }
        assert_eq!(secret.name_and_value().1.as_bytes(), b"Bearer s3cret-value");
        assert_eq!(format!("{secret:?} {:?}", secret.name_and_value().1), "Secret(TOKEN) Sensitive");
    }

    /// P7: the error for an unusable secret explains the reason and does not contain the secret's value.
    #[test]
    fn p7_errors_never_contain_the_secret() {
        let error = |template, value| Secret::new(template, value).expect_err("refused").to_string();
        let good = || template(&["a.example"], "X-Key", "{}");
        let messages = [
            error(good(), "short"),
            error(good(), "zażółć\u{1}gęślą"),
            error(template(&["a.example"], "X Key", "{}"), "12345678"),
            error(template(&["a.example"], "Host", "{}"), "12345678"),
            error(template(&["a.example"], "X-Key", "Bearer"), "12345678"),
            error(template(&[], "X-Key", "{}"), "12345678"),
            error(template(&["a b"], "X-Key", "{}"), "12345678"),
        ];
        for message in messages {
            assert!(!["short", "zażółć", "12345678"].iter().any(|value| message.contains(value)), "{message}");
        }
    }

    /// P7, row 41: a server that may receive a secret on one path counts as knowing the secret on every path.
    #[test]
    fn row_41_server_knows_secrets_sent_to_its_host() {
        let secret = Secret::new(template(&["a.example/v1/"], "X-Key", "{}"), "abcabcabd").expect("a secret");
        let model = SecretHolder::Host("model.example".to_owned());
        let other = KnownSecrets::default().with(&Redaction::new(["a model's key"]), &model);
        let known = KnownSecrets::new([&secret]).and(&other);
        assert!(known.are_known_to(&Url::parse("https://a.example/last").expect("a URL")));
        assert!(known.are_known_to(&Url::parse("http://a.example:8080/").expect("a URL")));
        assert!(known.are_known_to(&Url::parse("https://model.example/files").expect("a URL")));
        assert!(!known.are_known_to(&Url::parse("https://b.example/v1/").expect("a URL")));
        let program = known.with(&Redaction::new(["a program's key"]), &SecretHolder::Anyone);
        assert!(program.are_known_to(&Url::parse("https://b.example/v1/").expect("a URL")));
        assert_eq!(known.redaction().whole("abcabcabd, a model's key".to_owned()), "(secret), (secret)");
    }
}
