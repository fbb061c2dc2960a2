//! Keeps the credentials that a server was given out of all that it says: its tools, results, errors, notes and log (row 16).

use crate::configuration::{ServerConfig, Transport};
use agent_core::redaction::Redaction;
use rmcp::RoleClient;
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use serde_json::Value;
use url::Url;

/// Parts of names of variables and headers whose values are secrets, wherever they were written.
const SECRET_NAMES: [&str; 9] =
    ["TOKEN", "KEY", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL", "AUTHORIZATION", "COOKIE"];

/// What a server was given that nobody else is to see: what its configuration calls secret, what is named like one, and the
/// credentials in its address.
pub fn of(config: &ServerConfig) -> Redaction {
    let given = match &config.transport {
        Transport::Stdio(command) => &command.env,
        Transport::Http(address) => &address.headers,
    };
    let named = given.iter().filter(|(name, _)| is_secret(name)).map(|(_, value)| value.clone());
    let address = match &config.transport {
        Transport::Stdio(_) => None,
        Transport::Http(address) => Url::parse(address.url.trim()).ok(),
    };
    let in_address = address.iter().flat_map(|url| {
        let query = url.query_pairs().map(|(_, value)| value.into_owned());
        url.password().map(str::to_owned).into_iter().chain(query)
    });
    let all: Vec<String> = config.secrets.values().map(str::to_owned).chain(named).chain(in_address).collect();
    Redaction::new(all.iter().map(String::as_str))
}

/// The host of a server over HTTP. None: it is a program.
pub fn host_of(config: &ServerConfig) -> Option<String> {
    match &config.transport {
        Transport::Stdio(_) => None,
        Transport::Http(address) => Url::parse(address.url.trim()).ok()?.host_str().map(str::to_owned),
    }
}

fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    SECRET_NAMES.iter().any(|part| name.contains(part))
}

/// A transport whose messages have none of the secrets when they are heard.
pub(crate) struct Redacting<T> {
    inner: T,
    redaction: Redaction,
}

impl<T> Redacting<T> {
    pub(crate) fn new(inner: T, redaction: Redaction) -> Self {
        Self { inner, redaction }
    }
}

impl<T: rmcp::transport::Transport<RoleClient>> rmcp::transport::Transport<RoleClient> for Redacting<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        self.inner.send(message)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        loop {
            let message = self.inner.receive().await?;
            match heard(&self.redaction, message) {
                Ok(message) => return Some(message),
                Err(error) => tracing::warn!(%error, "a message of an MCP server is no message without its secrets"),
            }
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.inner.close().await
    }
}

/// The message itself, where it has none of them.
fn heard(
    redaction: &Redaction,
    message: RxJsonRpcMessage<RoleClient>,
) -> Result<RxJsonRpcMessage<RoleClient>, serde_json::Error> {
    if redaction.is_empty() {
        return Ok(message);
    }
    let said: Value = serde_json::to_value(&message)?;
    if redaction.is_clean(&said) { Ok(message) } else { serde_json::from_value(redaction.value(said)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::configuration::{ChildCommand, HttpAddress, Secrets};
    use std::collections::BTreeMap;

    fn pairs(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    /// Row 16
    #[test]
    fn row16_what_a_server_was_given_is_known() {
        let url = "https://me:pass-in-url@x.example/mcp?code=query-secret".to_owned();
        let headers = pairs(&[("Authorization", "Bearer canary-one"), ("X-Title", "agent-host")]);
        let http = ServerConfig::new("a", Transport::Http(HttpAddress { url, headers }));
        let text = "canary-one agent-host pass-in-url query-secret";
        assert_eq!(of(&http).text(text.into()), "(secret) agent-host (secret) (secret)");
        let env = pairs(&[("NOTES_TOKEN", "canary-two"), ("NODE_ENV", "production"), ("PASSED", "canary-three")]);
        let command = ChildCommand { env, ..ChildCommand::default() };
        let mut child = ServerConfig::new("a", Transport::Stdio(command));
        child.secrets = Secrets::new(["canary-three".to_owned()]);
        let text = "canary-two in production, canary-three";
        assert_eq!(of(&child).text(text.into()), "(secret) in production, (secret)");
        assert!(!format!("{child:?}").contains("canary"), "{child:?}");
    }
}
