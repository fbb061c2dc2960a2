//! Where a process keeps media and large parts of sessions in a shared database (F1). The variables contain an access key, so no
//! message repeats them.

use crate::error::ConfigError;
use crate::text::shell_word;
use agent_store::{ObjectStoreAddress, StoreError};
use std::fmt;

/// An S3-compatible object store with the media of a shared database. `Display` writes its address, which contains no secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MediaStore {
    address: ObjectStoreAddress,
    /// The value of the option `--media-store` that selects this object store. `None` if the environment selects it.
    option: Option<String>,
    /// What follows the bucket and the prefix, such as `?tls=disable`.
    choices: String,
}

impl MediaStore {
    /// Reads the value of the option `--media-store`. `variable` returns the values of environment variables, from which the access
    /// key, the region and the URL of the server come: [`ObjectStoreAddress::parse`] lists them. No error contains a part of the
    /// value or of a variable.
    ///
    /// ```
    /// use agent_config::MediaStore;
    ///
    /// let variable = |name: &str| name.starts_with("AWS_").then(|| "eu-central-1".to_owned()).filter(|_| !name.contains("URL"));
    /// let media = MediaStore::from_option("s3://media/agents", variable)?;
    /// assert_eq!((media.to_string().as_str(), media.flag().as_str()), ("s3://media/agents", " --media-store s3://media/agents"));
    /// # Ok::<(), agent_config::ConfigError>(())
    /// ```
    pub fn from_option(text: &str, variable: impl Fn(&str) -> Option<String>) -> Result<Self, ConfigError> {
        Ok(Self { option: Some(text.to_owned()), ..Self::parse(text, "the option --media-store", variable)? })
    }

    /// Reads the value of the variable `AGENT_HOST_MEDIA_STORE`, as [`MediaStore::from_option`].
    pub fn from_variable(text: &str, variable: impl Fn(&str) -> Option<String>) -> Result<Self, ConfigError> {
        Self::parse(text, "the variable AGENT_HOST_MEDIA_STORE", variable)
    }

    fn parse(text: &str, source: &str, variable: impl Fn(&str) -> Option<String>) -> Result<Self, ConfigError> {
        let address = ObjectStoreAddress::parse(text, variable).map_err(|error| {
            let problem = match error {
                StoreError::InvalidObjectStore { problem } => problem,
                other => other.to_string(),
            };
            ConfigError::MediaStore(format!("{source} does not select an object store: {problem}"))
        })?;
        let choices = text.split_once('?').map(|(_, choices)| format!("?{choices}")).unwrap_or_default();
        Ok(Self { address, option: None, choices })
    }

    /// Returns the object store that a database uses, with the access key of this process. `chosen` is the object store that this
    /// process uses otherwise; its choices hold for the other one, too.
    pub(crate) fn of_database(
        registered: &str,
        chosen: Option<&Self>,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, ConfigError> {
        let choices = chosen.map(|chosen| chosen.choices.as_str()).unwrap_or_default();
        Self::parse(&format!("{registered}{choices}"), "the database that is copied", variable)
    }

    /// Returns the address of the object store.
    pub fn address(&self) -> &ObjectStoreAddress {
        &self.address
    }

    /// Returns the option that selects this object store on a command line, such as ` --media-store s3://media`, or an empty string
    /// if the environment selects it.
    pub fn flag(&self) -> String {
        self.option.as_deref().map(|option| format!(" --media-store {}", shell_word(option))).unwrap_or_default()
    }
}

impl fmt::Display for MediaStore {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(formatter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// F1: no message contains the access key or the wrong value, and each says where the value came from.
    #[test]
    fn f1_object_stores_are_refused_without_naming_secrets() {
        let variable =
            |name: &str| name.starts_with("AWS_").then(|| "s3cret".to_owned()).filter(|_| !name.contains("URL"));
        let media = MediaStore::from_variable("s3://media/a?tls=disable", variable).expect("valid");
        assert_eq!((media.to_string().as_str(), media.flag().as_str()), ("s3://media/a", ""));
        assert!(!format!("{media:?}").contains("s3cret"));
        let other = MediaStore::of_database("s3://other/b", Some(&media), variable).expect("valid");
        assert_eq!((other.to_string().as_str(), other.choices.as_str()), ("s3://other/b", "?tls=disable"));
        for text in ["s3cret", "", "s3://media/?s3cret", "https://s3cret.example"] {
            let message = MediaStore::from_option(text, variable).expect_err(text).to_string();
            assert!(message.contains("--media-store") && !message.contains("s3cret"), "{message}");
            let message = MediaStore::from_variable(text, variable).expect_err(text).to_string();
            assert!(message.contains("AGENT_HOST_MEDIA_STORE") && !message.contains("s3cret"), "{message}");
        }
        let message = MediaStore::from_option("s3://media", |_| None).expect_err("no variables").to_string();
        assert!(message.contains("AWS_"), "{message}");
    }
}
