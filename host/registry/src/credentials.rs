//! Reads credentials that `docker login` stored in Docker's `config.json`, or in a credential helper that
//! `config.json` names.

use crate::error::{RegistryError, display_text};
use crate::reference::is_loopback;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;

/// Maximum size in bytes of Docker's `config.json`, and also of the output of a credential helper.
const MAX_BYTES: u64 = 1024 * 1024;
/// Time limit for a credential helper. The helper may ask the user for the password of a keyring, which takes time.
const HELPER_TIMEOUT: Duration = Duration::from_secs(60);
/// User name that a credential helper returns if the secret is a refresh token instead of a password.
const TOKEN_USER: &str = "<token>";

/// The location of stored credentials. The host reads the credentials only when a registry requires a login.
#[derive(Clone, Debug, Default)]
pub struct Credentials {
    /// Path of Docker's `config.json`. If the path is `None`, all requests are anonymous.
    pub file: Option<PathBuf>,
}

/// A stored login, which must never be displayed.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Login {
    Password {
        user: String,
        password: String,
    },
    /// A refresh token, which is exchanged for a bearer token.
    Identity(String),
}

impl std::fmt::Debug for Login {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Login")
    }
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Configuration {
    auths: BTreeMap<String, Entry>,
    creds_store: Option<String>,
    cred_helpers: BTreeMap<String, String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Entry {
    auth: Option<String>,
    username: Option<String>,
    password: Option<String>,
    identitytoken: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct HelperOutput {
    username: String,
    secret: String,
}

impl Credentials {
    /// Returns the stored login for a registry, or `None` if there is no login. If a login was stored for an
    /// `https://…` address, it is not used for requests without TLS, unless the registry is on this machine.
    pub(crate) async fn login(&self, host: &str, scheme: &str) -> Result<Option<Login>, RegistryError> {
        let Some(file) = &self.file else { return Ok(None) };
        let refused = |reason: String| RegistryError::Credentials { host: host.to_owned(), reason };
        let text = match tokio::fs::metadata(file).await {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Ok(metadata) if metadata.len() > MAX_BYTES => {
                return Err(refused(format!("{} is too large", file.display())));
            }
            _ => tokio::fs::read(file).await.map_err(|error| refused(format!("{}: {error}", file.display())))?,
        };
        // Report only the line of the error, because the parser's message could quote secrets from the file.
        let configuration: Configuration = serde_json::from_slice(&text).map_err(|error| {
            refused(format!(
                "{}:{}: it is not a valid Docker configuration; log in again with `docker login`",
                file.display(),
                error.line()
            ))
        })?;
        let helper = configuration.cred_helpers.get(host).or(configuration.creds_store.as_ref());
        if let Some(helper) = helper.filter(|helper| !helper.is_empty()) {
            return run_helper(helper, host).await.map_err(refused);
        }
        let is_downgraded = |key: &str| key.starts_with("https://") && scheme != "https" && !is_loopback(host);
        let mut matching = configuration.auths.iter().filter(|(key, _)| host_of(key) == host && !is_downgraded(key));
        let exact = configuration.auths.get(host);
        Ok(exact.or_else(|| matching.next().map(|(_, entry)| entry)).and_then(login_of))
    }
}

/// Returns the host of a key in `auths`. A key is a host or, in a file of an older Docker version, a URL.
fn host_of(key: &str) -> &str {
    let rest = key.split_once("://").map_or(key, |(_, rest)| rest);
    rest.split('/').next().unwrap_or(rest)
}

fn login_of(entry: &Entry) -> Option<Login> {
    if let Some(token) = entry.identitytoken.as_ref().filter(|token| !token.is_empty()) {
        return Some(Login::Identity(token.clone()));
    }
    if let (Some(user), Some(password)) = (&entry.username, &entry.password) {
        return Some(Login::Password { user: user.clone(), password: password.clone() });
    }
    let decoded = STANDARD.decode(entry.auth.as_ref()?.trim()).ok()?;
    let text = String::from_utf8(decoded).ok()?;
    let (user, password) = text.split_once(':')?;
    // Docker pads passwords with zero bytes.
    Some(Login::Password { user: user.to_owned(), password: password.trim_end_matches('\0').to_owned() })
}

/// Runs the credential helper with `docker-credential-NAME get`. The helper reads the registry's host from stdin and
/// writes JSON to stdout.
async fn run_helper(helper: &str, host: &str) -> Result<Option<Login>, String> {
    if helper.contains(std::path::is_separator) {
        return Err(format!("`{}` is not a valid name of a credential helper", display_text(helper)));
    }
    let program = format!("docker-credential-{helper}");
    let failed = |error: std::io::Error| {
        format!("the credential helper `{program}` from the Docker configuration failed: {error}")
    };
    let mut child = Command::new(&program)
        .arg("get")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(failed)?;
    let exchange = async {
        if let Some(mut stdin) = child.stdin.take() {
            // Ignore a broken pipe, because a helper may write its output and exit without reading its input.
            match stdin.write_all(host.as_bytes()).await {
                Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {}
                written => written?,
            }
        }
        let mut output = Vec::new();
        if let Some(stdout) = child.stdout.take() {
            stdout.take(MAX_BYTES).read_to_end(&mut output).await?;
        }
        Ok::<_, std::io::Error>((child.wait().await?, output))
    };
    let exchanged = tokio::time::timeout(HELPER_TIMEOUT, exchange)
        .await
        .map_err(|_| format!("`{program}` did not respond in time"))?;
    let (status, output) = exchanged.map_err(failed)?;
    if !status.success() {
        // If the helper has no credentials for the host, it writes `credentials not found` to stdout.
        let message = String::from_utf8_lossy(&output);
        if message.contains("credentials not found") || message.trim().is_empty() {
            return Ok(None);
        }
        return Err(format!("`{program}` failed: {}", display_text(&message)));
    }
    let login: HelperOutput =
        serde_json::from_slice(&output).map_err(|_| format!("`{program}` did not return credentials"))?;
    Ok(Some(match login.username.as_str() {
        TOKEN_USER => Login::Identity(login.secret),
        _ => Login::Password { user: login.username, password: login.secret },
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn stored_login(configuration: &str, host: &str) -> Result<Option<Login>, String> {
        let directory = tempfile::tempdir().expect("the directory is created");
        let file = directory.path().join("config.json");
        std::fs::write(&file, configuration).expect("the file is written");
        Credentials { file: Some(file) }.login(host, "https").await.map_err(|error| error.to_string())
    }

    fn password(user: &str, password: &str) -> Option<Login> {
        Some(Login::Password { user: user.to_owned(), password: password.to_owned() })
    }

    // P11: credentials are read from each form that an entry in Docker's `config.json` can have.
    #[tokio::test]
    async fn logins_are_found_by_host() {
        let auths = r#"{"auths": {"registry.example": {"auth": "YW5uOnNlY3JldA=="},
            "https://old.example/v1/": {"username": "bob", "password": "b"}, "token.example": {"identitytoken": "t"},
            "empty.example": {}}}"#;
        assert_eq!(stored_login(auths, "registry.example").await, Ok(password("ann", "secret")));
        assert_eq!(stored_login(auths, "old.example").await, Ok(password("bob", "b")));
        assert_eq!(stored_login(auths, "token.example").await, Ok(Some(Login::Identity("t".to_owned()))));
        for host in ["empty.example", "other.example", "registry.example:5000"] {
            assert_eq!(stored_login(auths, host).await, Ok(None), "{host}");
        }
        assert_eq!(Credentials::default().login("a.example", "https").await.ok(), Some(None));
        // Row 42: a login that was stored for TLS is not sent without TLS.
        let directory = tempfile::tempdir().expect("the directory is created");
        let file = directory.path().join("config.json");
        std::fs::write(&file, auths).expect("the file is written");
        let stored = Credentials { file: Some(file) };
        assert_eq!(stored.login("old.example", "http").await.ok(), Some(None));
        assert_eq!(stored.login("registry.example", "http").await.ok(), Some(password("ann", "secret")));
        let absent = Credentials { file: Some(PathBuf::from("/nowhere/config.json")) };
        assert_eq!(absent.login("a.example", "https").await.ok(), Some(None));
    }

    // Row 16: an error never contains the content of the file.
    #[tokio::test]
    async fn errors_do_not_show_credentials() {
        let broken = r#"{"auths": {"a.example": {"auth": "c2VjcmV0" "#;
        let error = stored_login(broken, "a.example").await.expect_err("it is refused");
        assert!(error.contains("config.json:1") && !error.contains("c2VjcmV0"), "{error}");
        let error =
            stored_login(r#"{"credHelpers": {"a.example": "../sh"}}"#, "a.example").await.expect_err("it is refused");
        assert!(error.contains("not a valid name of a credential helper"), "{error}");
        let error =
            stored_login(r#"{"credsStore": "not-installed-here"}"#, "a.example").await.expect_err("it is refused");
        assert!(error.contains("docker-credential-not-installed-here"), "{error}");
        let login = password("ann", "secret").expect("there is a login");
        assert_eq!(format!("{login:?}"), "Login");
    }
}
