//! The address of a database. Error messages and logs contain only the parts of the address that are not secret.

use crate::StoreError;
use std::fmt;
use std::path::PathBuf;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};

/// The address of a PostgreSQL database, such as `postgres://USER:PASSWORD@HOST:5432/DATABASE`. `Display` and `Debug` write
/// only the hosts and the database.
///
/// ```
/// use agent_store::PostgresAddress;
///
/// let address = PostgresAddress::parse("postgres://ann:secret@db.example/agents")?;
/// assert_eq!(address.to_string(), "postgres://db.example:5432/agents");
/// assert!(address.has_password());
/// # Ok::<(), agent_store::StoreError>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct PostgresAddress {
    pub(super) config: Config,
    /// The address without user, password and options, for messages.
    pub(super) shown: String,
}

impl fmt::Display for PostgresAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.shown)
    }
}

impl fmt::Debug for PostgresAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("PostgresAddress").field(&self.shown).finish()
    }
}

const ADVICE: &str = "write postgres://USER@HOST:5432/DATABASE, set the variable PGPASSWORD to the password, and encode special \
                      characters in the address with %, for example @ as %40";

impl PostgresAddress {
    /// Parses an address. The error never contains a part of the address, because a wrong address may contain the
    /// password in any place.
    ///
    /// Connections to other machines use TLS, unless the address contains `sslmode=disable`.
    pub fn parse(text: &str) -> Result<Self, StoreError> {
        let refuse = || StoreError::InvalidAddress { problem: ADVICE.to_owned() };
        // With a second `@`, a part of the password would be taken for the host.
        if !Self::is_meant(text) || text.matches('@').count() > 1 || text.contains(char::is_control) {
            return Err(refuse());
        }
        let mut config: Config = text.parse().map_err(|_| refuse())?;
        if config.get_hosts().is_empty() || config.get_dbname().is_none() {
            return Err(refuse());
        }
        let is_local = config.get_hosts().iter().all(is_local);
        if !text.contains("sslmode=") && !is_local {
            config.ssl_mode(SslMode::Require);
        }
        // After a failover, the standby accepts no writes until it is promoted.
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        config.application_name("agent-host");
        config.connect_timeout(std::time::Duration::from_secs(10));
        config.keepalives_idle(std::time::Duration::from_secs(15));
        config.tcp_user_timeout(std::time::Duration::from_secs(20));
        let shown = shown(&config).ok_or_else(refuse)?;
        Ok(Self { config, shown })
    }

    /// Returns whether a text is meant as an address of a PostgreSQL database, and not as a path. The address may contain
    /// mistakes, which [`PostgresAddress::parse`] reports.
    pub fn is_meant(text: &str) -> bool {
        text.starts_with("postgres://") || text.starts_with("postgresql://")
    }

    /// Returns whether the address contains a password.
    pub fn has_password(&self) -> bool {
        self.config.get_password().is_some()
    }

    /// Returns the address with this password, unless it already contains a password.
    pub fn or_password(mut self, password: &str) -> Self {
        if !self.has_password() {
            self.config.password(password);
        }
        self
    }

    /// Returns the address without secrets, in the form that [`StoreError`] expects.
    pub(super) fn path(&self) -> PathBuf {
        PathBuf::from(&self.shown)
    }
}

/// Whether connections to the host stay on this machine.
fn is_local(host: &Host) -> bool {
    match host {
        Host::Tcp(name) => {
            name == "localhost" || name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
        }
        Host::Unix(_) => true,
    }
}

/// Returns the address without user, password and options. Returns `None` if a part has characters that no host name or
/// database name needs.
fn shown(config: &Config) -> Option<String> {
    let ports = config.get_ports();
    let hosts = config.get_hosts().iter().enumerate().map(|(index, host)| {
        let name = match host {
            Host::Tcp(name) => name.clone(),
            Host::Unix(folder) => folder.display().to_string(),
        };
        let port = ports.get(index).or(ports.first()).copied().unwrap_or(5432);
        let is_plain = |character: char| character.is_alphanumeric() || "-_.:/[]%".contains(character);
        name.chars().all(is_plain).then(|| format!("{name}:{port}"))
    });
    let hosts = hosts.collect::<Option<Vec<String>>>()?.join(",");
    let database = config.get_dbname()?;
    let is_plain = |character: char| character.is_alphanumeric() || "-_.".contains(character);
    database.chars().all(is_plain).then(|| format!("postgres://{hosts}/{database}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// F1: no message contains the password of the address.
    #[test]
    fn address_is_shown_without_secrets() {
        let address =
            PostgresAddress::parse("postgres://ann:s3cret%40@db.example:6432/agents?connect_timeout=3").unwrap();
        assert_eq!(address.shown, "postgres://db.example:6432/agents");
        assert!(!format!("{address:?}").contains("s3cret"));
        assert_eq!(address.config.get_ssl_mode(), SslMode::Require);
        for local in
            ["postgres://ann:s3cret@127.0.0.1/a", "postgres://ann:s3cret@localhost/a", "postgres://ann@%2Frun%2Fpg/a"]
        {
            assert_eq!(PostgresAddress::parse(local).unwrap().config.get_ssl_mode(), SslMode::Prefer, "{local}");
        }
        let known = PostgresAddress::parse("postgres://ann@db.example/agents").unwrap();
        assert!(!known.has_password() && known.clone().or_password("s3cret").has_password());
        assert!(!format!("{known} {:?}", known.clone().or_password("s3cret")).contains("s3cret"));
        assert_eq!(address.clone().or_password("other"), address);
        let chosen = PostgresAddress::parse("postgres://ann:s3cret@db.example/agents?sslmode=disable").unwrap();
        assert_eq!(chosen.config.get_ssl_mode(), SslMode::Disable);
    }

    #[test]
    fn wrong_addresses_are_refused_without_naming_them() {
        let wrong = [
            "s3cret",
            "host=h password=s3cret dbname=d",
            "postgres://ann:s3@cret@db/agents",
            "postgres://db",
            "postgres://ann:x@s3cret word/agents",
            "postgres://ann:x@db:s3cret/agents",
            "postgres://ann:x@db/a?s3cret=1",
            "postgres://ann:x@db/s3cret!",
            "mysql://ann:s3cret@db/agents",
            "",
        ];
        for address in wrong {
            let refused = PostgresAddress::parse(address).unwrap_err();
            assert!(matches!(refused, StoreError::InvalidAddress { .. }), "{address}");
            assert!(!refused.to_string().contains("s3"), "{refused}");
        }
    }
}
