//! Where a command finds the host's data: in the data folder, and in a shared database if the sessions are there (F1).

use crate::error::ConfigError;
use crate::media_location::MediaStore;
use crate::text::shell_word;
use agent_store::{PostgresAddress, PostgresOptions};
use std::fmt;
use std::path::Path;
use std::time::Duration;

/// The data folder and the database that a command line and its environment select.
#[derive(Clone, Copy, Debug, Default)]
pub struct DataLocation<'l> {
    /// The data folder. `None` means the default folder of the environment.
    pub folder: Option<&'l Path>,
    /// The database with the sessions. `None` means the SQLite database in the data folder.
    pub database: Option<&'l SharedDatabase>,
}

impl<'l, P: AsRef<Path> + ?Sized> From<Option<&'l P>> for DataLocation<'l> {
    fn from(folder: Option<&'l P>) -> Self {
        Self { folder: folder.map(AsRef::as_ref), database: None }
    }
}

/// A PostgreSQL database with the sessions of several processes. `Display` writes its address without user and password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedDatabase {
    address: PostgresAddress,
    /// The value of the option `--store` that selects this database. `None` if the environment selects it.
    option: Option<String>,
    lease: Duration,
    /// Where media and large parts are. `None` means in the database.
    media: Option<MediaStore>,
}

/// Default time after which other processes take over the sessions of a process that no longer renews its leases.
const DEFAULT_LEASE: Duration = Duration::from_secs(15);

impl SharedDatabase {
    /// Reads the value of the option `--store`. A password comes from the variable `PGPASSWORD`. An address that contains a
    /// password is refused, because other users of the machine can read the command lines of all processes. No error contains
    /// a part of the value.
    ///
    /// ```
    /// use agent_config::SharedDatabase;
    ///
    /// let database = SharedDatabase::from_option("postgres://ann@db.example/agents", Some("secret"))?;
    /// assert_eq!(database.to_string(), "postgres://db.example:5432/agents");
    /// assert!(SharedDatabase::from_option("postgres://ann:secret@db.example/agents", None).is_err());
    /// # Ok::<(), agent_config::ConfigError>(())
    /// ```
    pub fn from_option(text: &str, password: Option<&str>) -> Result<Self, ConfigError> {
        let database = Self::parse(text, "the option --store")?;
        if database.address.has_password() {
            return Err(ConfigError::Database(
                "the address of the database contains a password, which other users of this machine can see in the list of \
                 processes: leave it out, and set the variable PGPASSWORD, or set AGENT_HOST_STORE to the whole address"
                    .to_owned(),
            ));
        }
        Ok(Self { option: Some(text.to_owned()), ..database.or_password(password) })
    }

    /// Reads the value of the variable `AGENT_HOST_STORE`, which may contain a password. Otherwise, the password comes from the
    /// variable `PGPASSWORD`.
    pub fn from_variable(text: &str, password: Option<&str>) -> Result<Self, ConfigError> {
        Ok(Self::parse(text, "the variable AGENT_HOST_STORE")?.or_password(password))
    }

    fn parse(text: &str, source: &str) -> Result<Self, ConfigError> {
        let address = PostgresAddress::parse(text)
            .map_err(|error| ConfigError::Database(format!("{source} does not select a database: {error}")))?;
        Ok(Self { address, option: None, lease: DEFAULT_LEASE, media: None })
    }

    fn or_password(self, password: Option<&str>) -> Self {
        match password.filter(|password| !password.is_empty()) {
            Some(password) => Self { address: self.address.or_password(password), ..self },
            None => self,
        }
    }

    /// Sets the lease from the value of the variable `AGENT_HOST_LEASE`: the seconds after which other processes take over the
    /// sessions of a process that was killed, paused or cut off from the database. From 2 to 300 seconds are allowed.
    pub fn with_lease(self, seconds: &str) -> Result<Self, ConfigError> {
        match seconds.trim().parse::<u64>() {
            Ok(seconds @ 2..=300) => Ok(Self { lease: Duration::from_secs(seconds), ..self }),
            _ => Err(ConfigError::Database(
                "the variable AGENT_HOST_LEASE must be a number of seconds from 2 to 300".to_owned(),
            )),
        }
    }

    /// Selects the object store for media and large parts.
    pub fn with_media(self, media: Option<MediaStore>) -> Self {
        Self { media, ..self }
    }

    /// Returns the object store for media and large parts.
    pub fn media(&self) -> Option<&MediaStore> {
        self.media.as_ref()
    }

    /// Returns how to open the database.
    pub(crate) fn options(&self) -> PostgresOptions {
        let object_store = self.media.as_ref().map(|media| media.address().clone());
        PostgresOptions { lease: self.lease, object_store, ..PostgresOptions::default() }
    }

    /// Returns the address of the database.
    pub fn address(&self) -> &PostgresAddress {
        &self.address
    }

    /// Returns the options that select this database and its object store on a command line, such as
    /// ` --store postgres://db/agents`, or an empty string if the environment selects them.
    pub fn flag(&self) -> String {
        let store = self.option.as_deref().map(|option| format!(" --store {}", shell_word(option))).unwrap_or_default();
        store + &self.media.as_ref().map(MediaStore::flag).unwrap_or_default()
    }
}

impl fmt::Display for SharedDatabase {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(formatter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// F1: a password on the command line is refused, and no message contains it.
    #[test]
    fn f1_passwords_come_from_the_environment_only() {
        for text in ["postgres://ann:s3cret@db/agents", "postgres://ann@db/agents?password=s3cret", "s3cret", ""] {
            let message = SharedDatabase::from_option(text, None).expect_err(text).to_string();
            assert!(!message.contains("s3cret"), "{message}");
        }
        let named = SharedDatabase::from_option("postgres://ann@db/agents", Some("s3cret")).expect("valid");
        assert!(named.address().has_password());
        assert_eq!(named.flag(), " --store postgres://ann@db/agents");
        let variable = SharedDatabase::from_variable("postgres://ann:s3cret@db/agents", Some("other")).expect("valid");
        assert_eq!((variable.flag().as_str(), variable.to_string().as_str()), ("", "postgres://db:5432/agents"));
        assert!(!format!("{named:?} {variable:?}").contains("s3cret"));
        let leased = variable.with_lease("2").expect("2 seconds");
        assert_eq!(leased.options().lease, Duration::from_secs(2));
        for wrong in ["", "1", "301", "2s", "-5"] {
            let message = leased.clone().with_lease(wrong).expect_err(wrong).to_string();
            assert!(message.contains("AGENT_HOST_LEASE"), "{message}");
        }
        let empty = SharedDatabase::from_variable("postgres://ann@db/agents", Some("")).expect("valid");
        assert!(!empty.address().has_password(), "an empty variable counts as unset");
    }
}
