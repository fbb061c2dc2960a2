//! Reads the tables `[outbox]`, `[outbox.server]`, `[schedules.NAME]`, `[webhooks.NAME]` and `[events.NAME]`.

use super::document::{Entry, Table, TomlValue};
use super::text_format::TextFormat;
use super::{Located, located_string, string_map};
use agent_runtime::{ContentMode, MissedRuns, ScheduleTimes, UserName};
use std::collections::BTreeMap;

/// The table `[outbox]`: where outgoing events are delivered, and which events are sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OutboxTable {
    /// Path of the folder for outgoing events, as it is spelled in the agent file.
    pub directory: Option<Located>,
    /// The server that receives outgoing events.
    pub server: Option<OutboxServerTable>,
    /// The subject of NATS to which outgoing events are published.
    pub subject: Option<String>,
    /// Whether the end of each turn is announced by an event.
    pub completions: Option<bool>,
    /// Whether approval requests are announced by events.
    pub approvals: Option<bool>,
}

/// The table `[outbox.server]`: the server that receives outgoing events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutboxServerTable {
    /// Address to which events are sent.
    pub url: Located,
    /// How an event is written into a request.
    pub mode: Option<ContentMode>,
    /// Values of the headers that are sent with every request, by the header's name.
    pub headers: BTreeMap<String, String>,
    /// Environment variables that contain the values of headers, by the header's name.
    pub header_env: BTreeMap<String, Located>,
    /// Environment variable that contains the key with which requests are signed.
    pub signing_key_env: Option<Located>,
    /// Maximum time of a request, in milliseconds.
    pub request_timeout_ms: Option<u32>,
}

/// A table `[schedules.NAME]`: times at which sessions begin.
#[derive(Clone, Debug, PartialEq)]
pub struct ScheduleTable {
    /// When sessions begin.
    pub times: ScheduleTimes,
    /// Prompt of the sessions.
    pub prompt: String,
    /// What happens to runs at which no host was running.
    pub missed: Option<MissedRuns>,
    /// User for whom the sessions work.
    pub user: Option<UserName>,
}

/// A table `[webhooks.NAME]`: an address at which requests begin sessions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WebhookTable {
    /// Text before the data of the request.
    pub prompt: Option<String>,
    /// Environment variable that contains the key with which requests are signed.
    pub key_env: Option<Located>,
    /// Whether the signature has the form of `X-Hub-Signature-256`.
    pub is_hub_signature: bool,
    /// User for whom the sessions work.
    pub user: Option<UserName>,
}

/// A table `[events.NAME]`: a subject of NATS whose events begin sessions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventTable {
    /// The subject, which may contain wildcards.
    pub subject: String,
    /// Name of the stream that contains the subject.
    pub stream: Option<String>,
    /// Text before the data of the event.
    pub prompt: Option<String>,
    /// User for whom the sessions work.
    pub user: Option<UserName>,
}

/// Reads the table `[outbox]`. A missing table has the same effect as an empty table.
pub(super) fn outbox(root: &Table<'_>) -> OutboxTable {
    let Some(table) = root.table("outbox") else { return OutboxTable::default() };
    OutboxTable {
        directory: table.get("directory").and_then(|value| located_string(&value)),
        server: table.get("server").and_then(|value| server(&value)),
        subject: table.get("subject").and_then(|value| value.text()),
        completions: table.get("completions").and_then(|value| value.flag()),
        approvals: table.get("approvals").and_then(|value| value.flag()),
    }
}

fn server(value: &TomlValue<'_>) -> Option<OutboxServerTable> {
    let table = value.table()?;
    let variables = table.table("header_env");
    let variables = variables.iter().flat_map(Table::entries);
    Some(OutboxServerTable {
        url: required(value, &table, "url", "\"https://events.example.com/agents\"")?,
        mode: table.get("mode").and_then(|value| {
            value.text().map(|word| if word == "binary" { ContentMode::Binary } else { ContentMode::Structured })
        }),
        headers: table.get("headers").map(|value| string_map(&value)).unwrap_or_default(),
        header_env: variables.filter_map(|entry| Some((entry.name, located_string(&entry.value)?))).collect(),
        signing_key_env: table.get("signing_key_env").and_then(|value| located_string(&value)),
        request_timeout_ms: table.get("request_timeout_ms").and_then(|value| value.number()),
    })
}

/// Reads all tables `[schedules.NAME]`.
pub(super) fn schedules(root: &Table<'_>) -> BTreeMap<String, ScheduleTable> {
    named_tables(root, "schedules", |value, table| {
        let times = required(value, table, "times", "\"0 7 * * mon-fri\"");
        let prompt = required(value, table, "prompt", "\"Summarise what changed since yesterday.\"");
        let time_zone = table.get("time_zone").and_then(|value| value.text());
        Some(ScheduleTable {
            // Invalid times and time zones are reported by the general check of the keys.
            times: ScheduleTimes::parse(&times?.value, time_zone.as_deref().unwrap_or("UTC")).ok()?,
            prompt: prompt?.value,
            missed: table.get("missed").and_then(|value| match value.text()?.as_str() {
                "skip" => Some(MissedRuns::Skip),
                "all" => Some(MissedRuns::All),
                _ => Some(MissedRuns::Latest),
            }),
            user: user(table),
        })
    })
}

/// Reads all tables `[webhooks.NAME]`.
pub(super) fn webhooks(root: &Table<'_>) -> BTreeMap<String, WebhookTable> {
    named_tables(root, "webhooks", |_, table| {
        let text = |key| table.get(key).and_then(|value| value.text());
        if let (Some(value), None) = (table.get("signature"), table.get("key_env")) {
            value.problem("needs `key_env`", "add `key_env`, or remove `signature`: without a key, a token is needed");
        }
        Some(WebhookTable {
            prompt: text("prompt"),
            key_env: table.get("key_env").and_then(|value| located_string(&value)),
            is_hub_signature: text("signature").is_some_and(|word| word == "hub"),
            user: user(table),
        })
    })
}

/// Reads all tables `[events.NAME]`.
pub(super) fn events(root: &Table<'_>) -> BTreeMap<String, EventTable> {
    named_tables(root, "events", |value, table| {
        let text = |key| table.get(key).and_then(|value| value.text());
        let subject = required(value, table, "subject", "\"shop.orders.*\"")?.value;
        Some(EventTable { subject, stream: text("stream"), prompt: text("prompt"), user: user(table) })
    })
}

/// Reads the tables in the table `key`, whose names the user chooses.
fn named_tables<T>(
    root: &Table<'_>,
    key: &str,
    read: impl Fn(&TomlValue<'_>, &Table<'_>) -> Option<T>,
) -> BTreeMap<String, T> {
    let Some(tables) = root.table(key) else { return BTreeMap::new() };
    let read_entry = |entry: Entry<'_>| {
        if let Some(problem) = TextFormat::Name.problem(&entry.name) {
            let message = format!("`{}` {problem}", tables.key_of(&entry.name));
            let allowed = format!("allowed as a name: {}", TextFormat::Name.description());
            tables.problem(entry.span.clone(), message, allowed);
        }
        let table = entry.value.table()?;
        Some((entry.name, read(&entry.value, &table)?))
    };
    tables.entries().filter_map(read_entry).collect()
}

fn required(value: &TomlValue<'_>, table: &Table<'_>, key: &str, example: &str) -> Option<Located> {
    match table.get(key) {
        Some(found) => located_string(&found),
        None => {
            value.problem(&format!("has no `{key}`"), &format!("add `{key} = {example}`"));
            None
        }
    }
}

fn user(table: &Table<'_>) -> Option<UserName> {
    let value = table.get("user")?;
    match UserName::new(&value.text()?) {
        Ok(user) => Some(user),
        Err(error) => {
            value.problem(&format!("is not a user name: {error}"), "allowed: 1 to 128 characters");
            None
        }
    }
}
