//! Where a process finds the NATS servers of its fleet (F1). The text may contain a password, so no message repeats it.

use crate::error::ConfigError;
use agent_fleet::NatsAddress;
use agent_plugins::read_regular_file;
use std::path::Path;

/// Reads the value of the option `--nats`. A password, or a token if the address names no user, comes from the variable
/// `NATS_PASSWORD`. An address that contains a password or a token is refused, because other users of the machine can read the
/// command lines of all processes.
///
/// ```
/// use agent_config::nats_from_option;
///
/// let address = nats_from_option("nats://ann@nats.example", Some("secret"))?;
/// assert_eq!(address.to_string(), "nats://nats.example:4222");
/// assert!(nats_from_option("nats://ann:secret@nats.example", None).is_err());
/// # Ok::<(), agent_config::ConfigError>(())
/// ```
pub fn nats_from_option(text: &str, password: Option<&str>) -> Result<NatsAddress, ConfigError> {
    let address = parse(text, "the option --nats")?;
    let password = password.filter(|password| !password.is_empty());
    if address.has_password() || (address.has_secret() && password.is_none()) {
        return Err(ConfigError::Nats(
            "the address of NATS contains a password or a token, which other users of this machine can see in the list of \
             processes: leave it out, and set the variable NATS_PASSWORD, or set AGENT_HOST_NATS to the whole address"
                .to_owned(),
        ));
    }
    Ok(match password {
        Some(password) => address.with_password(password),
        None => address,
    })
}

/// Reads the value of the variable `AGENT_HOST_NATS`, which may contain a password or a token. Otherwise, it comes from the
/// variable `NATS_PASSWORD`.
pub fn nats_from_variable(text: &str, password: Option<&str>) -> Result<NatsAddress, ConfigError> {
    let address = parse(text, "the variable AGENT_HOST_NATS")?;
    Ok(match password.filter(|password| !password.is_empty()) {
        Some(password) => address.with_password(password),
        None => address,
    })
}

/// Adds a file with which the process signs in: a credentials file, or a file with the seed of a user's NKey. Only regular files up to
/// 64 KiB are read.
pub fn nats_with_credentials(address: NatsAddress, file: &Path) -> Result<NatsAddress, ConfigError> {
    address
        .with_credentials_file(file.to_owned(), read_regular_file)
        .map_err(|error| ConfigError::Nats(error.to_string()))
}

/// Adds a certificate for servers that ask for one, and its private key, both in PEM format. Only regular files up to 256 KiB are
/// read.
pub fn nats_with_certificate(address: NatsAddress, certificate: &Path, key: &Path) -> Result<NatsAddress, ConfigError> {
    address
        .with_client_certificate(certificate.to_owned(), key.to_owned(), read_regular_file)
        .map_err(|error| ConfigError::Nats(error.to_string()))
}

fn parse(text: &str, source: &str) -> Result<NatsAddress, ConfigError> {
    NatsAddress::parse(text)
        .map_err(|error| ConfigError::Nats(format!("{source} is not the address of a NATS server: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// F1: a password or a token on the command line is refused, and no message contains it.
    #[test]
    fn f1_secrets_of_nats_come_from_the_environment_only() {
        for text in ["nats://ann:s3cret@h", "nats://s3cret@h", "s3cret", "", "nats://h?s3cret"] {
            let message = nats_from_option(text, None).expect_err(text).to_string();
            assert!(!message.contains("s3cret"), "{message}");
        }
        let address = nats_from_option("nats://ann@h", Some("s3cret")).expect("valid");
        assert!(address.has_password() && !format!("{address} {address:?}").contains("s3cret"));
        let token = nats_from_option("nats://127.0.0.1", Some("s3cret")).expect("valid");
        assert!(token.has_secret() && !token.has_password());
        for text in ["nats://ann:s3cret@h", "nats://s3cret@h"] {
            let address = nats_from_variable(text, None).expect("valid");
            assert!(address.has_secret() && !format!("{address} {address:?}").contains("s3cret"));
        }
        assert!(!nats_from_option("nats://127.0.0.1", Some("")).expect("valid").has_secret());
    }
}
