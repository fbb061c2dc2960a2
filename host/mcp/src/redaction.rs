//! Removes the credentials of a server from all data that the server sends (row 16): tools, results, errors,
//! notifications and log lines.

use crate::configuration::{ServerConfig, Transport};
use agent_core::redaction::Redaction;
use rmcp::RoleClient;
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use serde_json::Value;
use url::Url;

/// If the name of an environment variable or header contains one of these words, the value of the variable or header is
/// treated as a secret.
const SECRET_NAME_PARTS: [&str; 9] =
    ["TOKEN", "KEY", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL", "AUTHORIZATION", "COOKIE"];

/// Returns a redaction that masks the server's secrets: the configured secrets, the credentials in the server's URL,
/// and the value of each environment variable or header whose name looks like the name of a secret.
pub fn redaction_for(config: &ServerConfig) -> Redaction {
    let values = match &config.transport {
        Transport::Stdio(command) => &command.env,
        Transport::Http(address) => &address.headers,
    };
    let named = values.iter().filter(|(name, _)| is_secret_name(name)).map(|(_, value)| value.clone());
    let address = match &config.transport {
        Transport::Stdio(_) => None,
        Transport::Http(address) => Url::parse(address.url.trim()).ok(),
    };
    let in_address = address.iter().flat_map(|url| {
        let query = url.query_pairs().map(|(_, value)| value.into_owned());
        url.password().map(str::to_owned).into_iter().chain(query)
    });
    let secrets: Vec<String> = config.secrets.values().map(str::to_owned).chain(named).chain(in_address).collect();
    Redaction::new(secrets.iter().map(String::as_str))
}

/// Returns the host name of an HTTP server, or `None` for a child process.
pub fn remote_host(config: &ServerConfig) -> Option<String> {
    match &config.transport {
        Transport::Stdio(_) => None,
        Transport::Http(address) => Url::parse(address.url.trim()).ok()?.host_str().map(str::to_owned),
    }
}

fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    SECRET_NAME_PARTS.iter().any(|part| name.contains(part))
}

/// Wraps a transport and removes the secrets from all messages that the server sends.
pub(crate) struct RedactingTransport<T> {
    inner: T,
    redaction: Redaction,
}

impl<T> RedactingTransport<T> {
    pub(crate) fn new(inner: T, redaction: Redaction) -> Self {
        Self { inner, redaction }
    }
}

impl<T: rmcp::transport::Transport<RoleClient>> rmcp::transport::Transport<RoleClient> for RedactingTransport<T> {
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
            match redact_message(&self.redaction, message) {
                Ok(message) => return Some(message),
                Err(error) => {
                    tracing::warn!(%error, "dropped a message of an MCP server that is invalid after its secrets were removed")
                }
            }
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.inner.close().await
    }
}

/// Removes the secrets from a message that the server sent. A message without secrets is returned unchanged.
fn redact_message(
    redaction: &Redaction,
    message: RxJsonRpcMessage<RoleClient>,
) -> Result<RxJsonRpcMessage<RoleClient>, serde_json::Error> {
    if redaction.is_empty() {
        return Ok(message);
    }
    let json: Value = serde_json::to_value(&message)?;
    if redaction.is_clean(&json) { Ok(message) } else { serde_json::from_value(redaction.value(json)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::configuration::{ChildCommand, HttpAddress, Secrets};
    use std::collections::BTreeMap;

    fn pairs(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn row16_all_credentials_of_a_server_are_redacted() {
        let url = "https://me:pass-in-url@x.example/mcp?code=query-secret".to_owned();
        let headers = pairs(&[("Authorization", "Bearer canary-one"), ("X-Title", "agent-host")]);
        let http = ServerConfig::new("a", Transport::Http(HttpAddress { url, headers }));
        let text = "canary-one agent-host pass-in-url query-secret";
        assert_eq!(redaction_for(&http).text(text.into()), "(secret) agent-host (secret) (secret)");
        let env = pairs(&[("NOTES_TOKEN", "canary-two"), ("NODE_ENV", "production"), ("PASSED", "canary-three")]);
        let command = ChildCommand { env, ..ChildCommand::default() };
        let mut child = ServerConfig::new("a", Transport::Stdio(command));
        child.secrets = Secrets::new(["canary-three".to_owned()]);
        let text = "canary-two in production, canary-three";
        assert_eq!(redaction_for(&child).text(text.into()), "(secret) in production, (secret)");
        assert!(!format!("{child:?}").contains("canary"), "{child:?}");
    }
}
