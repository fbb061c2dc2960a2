//! Secrets: the host puts them into requests to the hosts that they are for, and takes them out of every response (P7). No guest
//! ever sees one.

use super::pattern::HttpPattern;
use agent_core::redaction::Redaction;
use hyper::header::{HeaderName, HeaderValue};
use std::fmt;
use url::Url;

/// Fewest bytes of a secret: fewer occur in any text, so that they could not be told from it.
const SHORTEST: usize = 8;
/// Most bytes of a secret.
const LONGEST: usize = 8 * 1024;

/// A credential with where it goes. It is never shown: `Debug` gives its name only.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret {
    name: String,
    value: String,
    hosts: Vec<HttpPattern>,
    header: HeaderName,
    filled: HeaderValue,
}

/// What a secret is put into, as it is written in the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretTemplate {
    /// What the plugin's manifest asks for it by.
    pub name: String,
    /// Where it may go: `api.example.com`, which is `https://api.example.com`, or a pattern without a method.
    pub hosts: Vec<String>,
    /// The header that it goes into.
    pub header: String,
    /// The header's value, with `{}` where the secret stands.
    pub format: String,
}

/// A secret that cannot be used. The messages never hold it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    /// Its value is none that could be kept secret.
    #[error("it has {0} bytes; a secret has {SHORTEST} to {LONGEST}")]
    Length(usize),
    /// Its value does not fit into a header.
    #[error("it holds characters that no header may have")]
    Value,
    /// The header's name.
    #[error("`{0}` is no header's name that a secret may go into")]
    Header(String),
    /// The template.
    #[error("`{0}` has no `{{}}` where the secret stands")]
    Format(String),
    /// A host.
    #[error(transparent)]
    Host(#[from] super::PatternError),
    /// No host.
    #[error("it names no hosts, so it could go nowhere")]
    NoHosts,
}

impl Secret {
    /// Puts a value into its template.
    pub fn new(template: SecretTemplate, value: &str) -> Result<Self, SecretError> {
        let SecretTemplate { name, hosts, header, format } = template;
        let value = value.trim().to_owned();
        if !(SHORTEST..=LONGEST).contains(&value.len()) {
            return Err(SecretError::Length(value.len()));
        }
        if !format.contains("{}") {
            return Err(SecretError::Format(format));
        }
        let taken = ["host", "content-length", "transfer-encoding", "connection", "upgrade", "accept-encoding"];
        let name_of_header = HeaderName::from_bytes(header.as_bytes()).ok();
        let header =
            name_of_header.filter(|name| !taken.contains(&name.as_str())).ok_or(SecretError::Header(header))?;
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

    /// What the plugin's manifest asks for it by.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where it may go.
    pub fn hosts(&self) -> &[HttpPattern] {
        &self.hosts
    }

    /// The header that it goes into.
    pub fn header(&self) -> &str {
        self.header.as_str()
    }

    /// Whether this request gets it.
    pub(crate) fn is_for(&self, method: &str, url: &Url) -> bool {
        self.hosts.iter().any(|host| host.allows(method, url))
    }

    /// The header with its value.
    pub(crate) fn filled(&self) -> (HeaderName, HeaderValue) {
        (self.header.clone(), self.filled.clone())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Secret({})", self.name)
    }
}

/// Everything that an agent keeps secret, and which servers know some of it: what comes back from any server has none of it, whichever
/// plugin asks (row 41).
#[derive(Clone, Debug, Default)]
pub struct KnownSecrets {
    redaction: Redaction,
    /// Where a secret may go.
    hosts: Vec<HttpPattern>,
    /// Hosts that are given secrets in another way than in a plugin's request.
    given_to: Vec<String>,
    /// Whether some secret may go anywhere, such as that of a program.
    anywhere: bool,
}

/// Who is given a secret by others than the plugins' requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GivenTo {
    /// Servers of this host, a name or an address as URLs have it.
    Host(String),
    /// A program, or somebody of whom it is not known whom they tell.
    Somebody,
}

impl KnownSecrets {
    /// Of these secrets for requests.
    pub fn new<'s>(secrets: impl IntoIterator<Item = &'s Secret>) -> Self {
        let secrets: Vec<_> = secrets.into_iter().collect();
        let redaction = Redaction::new(secrets.iter().map(|secret| secret.value.as_str()));
        let hosts = secrets.iter().flat_map(|secret| secret.hosts.iter().cloned()).collect();
        Self { redaction, hosts, ..Self::default() }
    }

    /// With these texts, which are secret, too, and who is given them.
    #[must_use]
    pub fn with(&self, redaction: &Redaction, given_to: &GivenTo) -> Self {
        if redaction.is_empty() {
            return self.clone();
        }
        let mut both = Self { redaction: self.redaction.and(redaction), ..self.clone() };
        match given_to {
            GivenTo::Host(host) => both.given_to.push(host.clone()),
            GivenTo::Somebody => both.anywhere = true,
        }
        both
    }

    /// With what others know.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        let mut both = Self { redaction: self.redaction.and(&other.redaction), ..self.clone() };
        both.hosts.extend(other.hosts.iter().filter(|host| !self.hosts.contains(host)).cloned());
        both.given_to.extend(other.given_to.iter().filter(|host| !self.given_to.contains(host)).cloned());
        both.anywhere |= other.anywhere;
        both
    }

    /// Takes the secrets out of texts.
    pub fn redaction(&self) -> &Redaction {
        &self.redaction
    }

    /// Whether the server may know a secret: some secret may go to its host, on whatever port and path.
    pub(crate) fn are_known_to(&self, url: &Url) -> bool {
        let is_given = || url.host_str().is_some_and(|host| self.given_to.iter().any(|given| given == host));
        self.anywhere || self.hosts.iter().any(|host| host.is_for_host(url)) || is_given()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template(hosts: &[&str], header: &str, format: &str) -> SecretTemplate {
        let hosts = hosts.iter().map(|host| (*host).to_owned()).collect();
        SecretTemplate { name: "TOKEN".to_owned(), hosts, header: header.to_owned(), format: format.to_owned() }
    }

    /// P7: a secret goes to its hosts, encrypted unless somebody wrote otherwise, and is never shown.
    #[test]
    fn p7_a_secret_goes_to_its_hosts_only() {
        let secret = Secret::new(template(&["api.example.com"], "Authorization", "Bearer {}"), "s3cret-value\n");
        let secret = secret.expect("a secret");
        let is_for = |url: &str| secret.is_for("GET", &Url::parse(url).expect(url));
        assert!(is_for("https://api.example.com/x"));
        for url in ["http://api.example.com/x", "https://example.com/", "https://api.example.com:444/"] {
            assert!(!is_for(url), "{url}");
        }
        assert_eq!(secret.filled().1.as_bytes(), b"Bearer s3cret-value");
        assert_eq!(format!("{secret:?} {:?}", secret.filled().1), "Secret(TOKEN) Sensitive");
    }

    /// P7: what is no secret says why, without saying what it is.
    #[test]
    fn p7_errors_never_hold_the_secret() {
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

    /// P7, row 41: a server that knows a secret for one path knows it for all of them.
    #[test]
    fn row_41_a_server_knows_its_secrets() {
        let secret = Secret::new(template(&["a.example/v1/"], "X-Key", "{}"), "abcabcabd").expect("a secret");
        let model = GivenTo::Host("model.example".to_owned());
        let other = KnownSecrets::default().with(&Redaction::new(["a model's key"]), &model);
        let known = KnownSecrets::new([&secret]).and(&other);
        assert!(known.are_known_to(&Url::parse("https://a.example/last").expect("a URL")));
        assert!(known.are_known_to(&Url::parse("http://a.example:8080/").expect("a URL")));
        assert!(known.are_known_to(&Url::parse("https://model.example/files").expect("a URL")));
        assert!(!known.are_known_to(&Url::parse("https://b.example/v1/").expect("a URL")));
        let program = known.with(&Redaction::new(["a program's key"]), &GivenTo::Somebody);
        assert!(program.are_known_to(&Url::parse("https://b.example/v1/").expect("a URL")));
        assert_eq!(known.redaction().whole("abcabcabd, a model's key".to_owned()), "(secret), (secret)");
    }
}
