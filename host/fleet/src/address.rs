//! The address of NATS servers. Error messages and logs contain only the parts of the address that are not secret.

use crate::client_certificate::ClientCertificate;
use crate::credentials::{CredentialsFile, ReadFile};
use crate::error::FleetError;
use crate::subjects::decoded;
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use url::{Host, Url};

/// Name of a fleet whose address contains none.
const DEFAULT_FLEET: &str = "agent-host";
/// Maximum number of characters of a fleet's name.
const LONGEST_FLEET: usize = 32;
/// Maximum number of servers.
const MAX_SERVERS: usize = 16;

const ADVICE: &str = "write nats://HOST:4222, or nats://HOST:4222,HOST:4222,HOST:4222/FLEET for several servers and a fleet's \
                      name of letters, digits, `-` and `_`";

/// The address of NATS servers, such as `nats://HOST:4222` or `tls://HOST:4222,HOST:4222/FLEET`. `Display` and `Debug` write only
/// the servers and the fleet.
///
/// ```
/// use agent_fleet::NatsAddress;
///
/// let address = NatsAddress::parse("nats://ann:secret@nats.example/agents")?;
/// assert_eq!(address.to_string(), "nats://nats.example:4222/agents");
/// assert!(address.has_secret());
/// # Ok::<(), agent_fleet::FleetError>(())
/// ```
#[derive(Clone)]
pub struct NatsAddress {
    pub(crate) servers: Vec<Url>,
    /// Beginning of all subjects of the fleet.
    pub(crate) fleet: String,
    pub(crate) credentials: Option<Credentials>,
    pub(crate) certificate: Option<ClientCertificate>,
    pub(crate) requires_tls: bool,
}

/// How a process signs in.
#[derive(Clone)]
pub(crate) enum Credentials {
    Token(String),
    User { user: String, password: String },
    File(CredentialsFile),
}

impl NatsAddress {
    /// Parses an address. In front of the first host, `USER:PASSWORD@` or `TOKEN@` may be written, with special characters
    /// encoded with `%`. Connections to other machines use TLS, unless the address ends with `?tls=disable`. The error never
    /// contains a part of the address.
    pub fn parse(text: &str) -> Result<Self, FleetError> {
        let invalid = || FleetError::InvalidAddress(ADVICE);
        let (scheme, rest) = text.split_once("://").ok_or_else(invalid)?;
        if !matches!(scheme, "nats" | "tls") || text.chars().any(|c| c.is_control() || c.is_whitespace()) {
            return Err(invalid());
        }
        let (rest, is_tls_disabled) = match rest.split_once('?') {
            None => (rest, false),
            Some((rest, "tls=disable")) if scheme == "nats" => (rest, true),
            Some(_) => return Err(invalid()),
        };
        let (credentials, rest) = match rest.rsplit_once('@') {
            Some((credentials, rest)) => (Some(Credentials::parse(credentials).ok_or_else(invalid)?), rest),
            None => (None, rest),
        };
        // Further servers may be written with the scheme, as other programs write them.
        let rest = rest.replace(&format!(",{scheme}://"), ",");
        let (hosts, fleet) = rest.split_once('/').unwrap_or((&rest, DEFAULT_FLEET));
        let servers: Option<Vec<Url>> = hosts.split(',').map(server).collect();
        let servers = servers.filter(|servers| servers.len() <= MAX_SERVERS).ok_or_else(invalid)?;
        let is_name = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
        if fleet.is_empty() || fleet.len() > LONGEST_FLEET || !fleet.chars().all(is_name) {
            return Err(invalid());
        }
        let is_local = servers.iter().all(is_local);
        let requires_tls = scheme == "tls" || (!is_local && !is_tls_disabled);
        Ok(Self { servers, fleet: fleet.to_owned(), credentials, certificate: None, requires_tls })
    }

    /// Returns whether the address contains a password or a token. A user without a password counts as a token, as for NATS's own
    /// programs.
    pub fn has_secret(&self) -> bool {
        self.credentials.is_some()
    }

    /// Returns the address with this password, if it contains a user without a password. Without a user, the password is the
    /// token.
    pub fn with_password(mut self, password: &str) -> Self {
        self.credentials = Some(match self.credentials {
            Some(Credentials::Token(user)) => Credentials::User { user, password: password.to_owned() },
            None => Credentials::Token(password.to_owned()),
            Some(complete @ (Credentials::User { .. } | Credentials::File(_))) => complete,
        });
        self
    }

    /// Returns the address with a file with which the process signs in: a credentials file, or a file with the seed of a user's NKey.
    /// `read` reads the file now and for each connection. Fails if the file cannot be used, or if the address or a variable already
    /// contains a password or a token.
    pub fn with_credentials_file(mut self, path: PathBuf, read: ReadFile) -> Result<Self, FleetError> {
        if self.credentials.is_some() {
            return Err(FleetError::Credentials(format!(
                "there are two ways to sign in at NATS: leave out the file `{}`, or the password and the token",
                path.display()
            )));
        }
        let file = CredentialsFile::new(path, read);
        file.user_key().map_err(FleetError::Credentials)?;
        self.credentials = Some(Credentials::File(file));
        Ok(self)
    }

    /// Returns the address with a certificate for servers that ask for one, and its private key, both in PEM format. Connections then
    /// use TLS, on this machine, too. `read` reads the files now and for each connection. Fails if they cannot be used.
    pub fn with_client_certificate(
        mut self,
        certificate: PathBuf,
        key: PathBuf,
        read: ReadFile,
    ) -> Result<Self, FleetError> {
        let certificate = ClientCertificate::new(certificate, key, read);
        certificate.load().map_err(FleetError::Credentials)?;
        self.certificate = Some(certificate);
        self.requires_tls = true;
        Ok(self)
    }

    /// Returns whether the address contains a user and a password.
    pub fn has_password(&self) -> bool {
        matches!(self.credentials, Some(Credentials::User { .. }))
    }
}

impl Credentials {
    fn parse(text: &str) -> Option<Self> {
        // A second `@` or a `,` would mean that a part of the secret is taken for something else.
        if text.contains(['@', '/', ',']) {
            return None;
        }
        match text.split_once(':') {
            Some((user, password)) => Some(Self::User { user: filled(user)?, password: filled(password)? }),
            None => Some(Self::Token(filled(text)?)),
        }
    }
}

fn filled(text: &str) -> Option<String> {
    decoded(text).filter(|text| !text.is_empty())
}

fn server(host: &str) -> Option<Url> {
    let mut url = Url::parse(&format!("nats://{host}")).ok()?;
    let is_plain = |c: char| c.is_alphanumeric() || "-_.:[]".contains(c);
    let has_only_host = url.host().is_some() && matches!(url.path(), "" | "/") && host.chars().all(is_plain);
    if !has_only_host {
        return None;
    }
    if url.port().is_none() {
        url.set_port(Some(4222)).ok()?;
    }
    Some(url)
}

/// Whether connections to the server stay on this machine.
fn is_local(server: &Url) -> bool {
    match server.host() {
        // Other schemes than HTTP keep addresses as names.
        Some(Host::Domain(name)) => {
            name == "localhost" || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
        }
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

impl fmt::Display for NatsAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("nats://")?;
        for (number, server) in self.servers.iter().enumerate() {
            let comma = if number == 0 { "" } else { "," };
            write!(formatter, "{comma}{}:{}", server.host_str().unwrap_or_default(), server.port().unwrap_or(4222))?;
        }
        if self.fleet == DEFAULT_FLEET { Ok(()) } else { write!(formatter, "/{}", self.fleet) }
    }
}

impl fmt::Debug for NatsAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("NatsAddress").field(&self.to_string()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// F1: several servers, a fleet and credentials are read, and no message contains the credentials.
    #[test]
    fn f1_addresses_are_shown_without_secrets() {
        let address = NatsAddress::parse("nats://ann:s3cret%40@a.example:4223,nats://b.example,c/prod").expect("valid");
        assert_eq!(address.to_string(), "nats://a.example:4223,b.example:4222,c:4222/prod");
        assert!(address.has_secret() && address.has_password() && address.requires_tls);
        assert!(!format!("{address:?}").contains("s3cret"));
        let token = NatsAddress::parse("nats://s3cret@127.0.0.1").expect("valid");
        assert_eq!((token.to_string().as_str(), token.has_password()), ("nats://127.0.0.1:4222", false));
        assert!(matches!(&token.credentials, Some(Credentials::Token(token)) if token == "s3cret"));
        let user = token.with_password("more");
        let Some(Credentials::User { user, password }) = &user.credentials else { panic!("a user with a password") };
        assert_eq!((user.as_str(), password.as_str()), ("s3cret", "more"));
        let local = ["nats://127.0.0.1:4222", "nats://localhost", "nats://[::1]:1,127.0.0.2:5", "nats://h?tls=disable"];
        for text in local {
            let address = NatsAddress::parse(text).expect(text);
            assert!(!address.requires_tls && !address.has_secret(), "{text}");
        }
        assert!(NatsAddress::parse("tls://127.0.0.1").expect("valid").requires_tls);
    }

    #[test]
    fn f1_wrong_addresses_are_refused_without_naming_them() {
        let wrong = [
            "s3cret",
            "nats://",
            "http://s3cret@h",
            "nats://s3cret:@h",
            "nats://:s3cret@h",
            "nats://ann:s3cret@",
            "nats://h,",
            "nats://h:s3cret",
            "nats://h/s3cret/x",
            "nats://h/",
            "nats://h/a.b",
            "nats://h?s3cret",
            "tls://h?tls=disable",
            "nats://a@b,s3cret@c",
            "nats://h/s3cret name",
            "ws://h",
        ];
        for text in wrong {
            let refused = NatsAddress::parse(text).expect_err(text).to_string();
            assert!(!refused.contains("s3cret"), "{refused}");
        }
        assert!(NatsAddress::parse(&format!("nats://{}", ["h"; 17].join(","))).is_err());
    }
}
