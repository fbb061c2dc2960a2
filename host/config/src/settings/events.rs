//! Builds the receiver of outgoing events, the schedules, the webhooks and the sources of events of an agent from `agent.toml` and the
//! environment. Values of environment variables are never shown.

use super::Variables;
use crate::agent_file::{AgentFile, EventTable, Located, OutboxServerTable, WebhookTable};
use agent_fleet::EventSource;
use agent_runtime::{EventInput, HttpSink, HttpSinkConfig, Schedule, SigningKey, Webhook, WebhookAuthentication};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Default of `request_timeout_ms`, in milliseconds.
pub(crate) const DEFAULT_TIMEOUT_MS: u32 = 10_000;

/// What an agent sends to other programs, and what begins its sessions without a user (I9).
#[derive(Clone, Debug, Default)]
pub struct EventSettings {
    /// The server that receives outgoing events.
    pub server: Option<Arc<HttpSink>>,
    /// Schedules that begin sessions, by name.
    pub schedules: BTreeMap<String, Schedule>,
    /// Webhooks through which requests begin sessions, by name.
    pub webhooks: BTreeMap<String, Webhook>,
    /// Subjects of NATS whose events begin sessions, by name.
    pub events: BTreeMap<String, EventInput>,
}

/// Returns the settings. Problems are added to `problems`, each with its location, and the tables that have problems are
/// left out.
pub(super) fn events(file: &AgentFile, variable: Variables<'_>, problems: &mut Vec<String>) -> EventSettings {
    let schedules = file.schedules.iter().map(|(name, table)| {
        let prompt = table.prompt.as_str().into();
        let missed = table.missed.unwrap_or_default();
        (name.clone(), Schedule { times: table.times.clone(), prompt, missed, user: table.user.clone() })
    });
    let schedules = schedules.collect();
    let server = file.outbox.server.as_ref().and_then(|table| server(table, variable, problems));
    let webhooks =
        file.webhooks.iter().filter_map(|(name, table)| Some((name.clone(), webhook(table, variable, problems)?)));
    let webhooks = webhooks.collect();
    let events = file.events.iter().map(|(name, table)| (name.clone(), event_input(table))).collect();
    EventSettings { server, schedules, webhooks, events }
}

fn event_input(table: &EventTable) -> EventInput {
    let source = EventSource { subject: table.subject.clone(), stream: table.stream.clone() };
    EventInput { source, prompt: table.prompt.as_deref().map(Into::into), user: table.user.clone() }
}

fn server(table: &OutboxServerTable, variable: Variables<'_>, problems: &mut Vec<String>) -> Option<Arc<HttpSink>> {
    let mut secret_headers = BTreeMap::new();
    for (name, located) in &table.header_env {
        secret_headers.insert(name.clone(), required_variable(located, variable, problems)?);
    }
    let signing_key = match &table.signing_key_env {
        Some(located) => Some(signing_key(located, variable, problems)?),
        None => None,
    };
    let url = match table.url.value.parse() {
        Ok(url) => url,
        Err(error) => {
            problems.push(format!("{}: `{}` is not an address: {error}", table.url.location, table.url.value));
            return None;
        }
    };
    let config = HttpSinkConfig {
        url,
        mode: table.mode.unwrap_or_default(),
        headers: table.headers.clone(),
        secret_headers,
        signing_key,
        timeout: Duration::from_millis(u64::from(table.request_timeout_ms.unwrap_or(DEFAULT_TIMEOUT_MS))),
    };
    match HttpSink::new(config) {
        Ok(sink) => Some(Arc::new(sink)),
        Err(error) => {
            problems.push(format!("the server for events cannot be used: {error}"));
            None
        }
    }
}

fn webhook(table: &WebhookTable, variable: Variables<'_>, problems: &mut Vec<String>) -> Option<Webhook> {
    let authentication = match &table.key_env {
        None => WebhookAuthentication::Token,
        Some(located) => {
            let key = signing_key(located, variable, problems)?;
            match table.is_hub_signature {
                true => WebhookAuthentication::Hub(key),
                false => WebhookAuthentication::Standard(key),
            }
        }
    };
    let prompt = table.prompt.as_deref().map(Into::into);
    Some(Webhook { prompt, authentication, user: table.user.clone() })
}

fn signing_key(located: &Located, variable: Variables<'_>, problems: &mut Vec<String>) -> Option<SigningKey> {
    let value = required_variable(located, variable, problems)?;
    match SigningKey::parse(&value) {
        Ok(key) => Some(key),
        Err(error) => {
            let Located { value, location } = located;
            problems.push(format!("{location}: the value of the environment variable `{value}` is no key: {error}"));
            None
        }
    }
}

pub(super) fn required_variable(
    located: &Located,
    variable: Variables<'_>,
    problems: &mut Vec<String>,
) -> Option<String> {
    let Located { value: name, location } = located;
    match variable(name).filter(|value| !value.trim().is_empty()) {
        Some(value) if !value.trim().contains(char::is_control) => Some(value.trim().to_owned()),
        Some(_) => {
            problems.push(format!(
                "{location}: the value of the environment variable `{name}` contains a control character"
            ));
            None
        }
        None => {
            problems.push(format!("{location}: the environment variable `{name}` is not set; set it"));
            None
        }
    }
}
