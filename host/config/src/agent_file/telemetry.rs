//! Reads the table `[telemetry]`.

use super::document::Table;
use super::{Located, located_string, located_strings, string_map};
use agent_telemetry::ContentLevel;
use std::collections::BTreeMap;

/// The table `[telemetry]`: the collector that receives the traces of the agent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TelemetryTable {
    /// Address of the collector.
    pub endpoint: Option<Located>,
    /// How much content is exported.
    pub content: Option<ContentLevel>,
    /// Regular expressions whose matches are removed.
    pub redact: Vec<Located>,
    /// Name under which viewers group the traces.
    pub project: Option<String>,
    /// Whether metrics are sent, too.
    pub metrics: bool,
    /// Values of the headers that are sent with every request, by the header's name.
    pub headers: BTreeMap<String, String>,
    /// Environment variables that contain the values of headers, by the header's name.
    pub header_env: BTreeMap<String, Located>,
    /// Maximum time of a request, in milliseconds.
    pub request_timeout_ms: Option<u32>,
    /// Age in hours above which spans are not sent.
    pub max_age_hours: Option<u32>,
}

/// Reads the table `[telemetry]`. A missing table has the same effect as an empty table.
pub(super) fn telemetry(root: &Table<'_>) -> TelemetryTable {
    let Some(table) = root.table("telemetry") else { return TelemetryTable::default() };
    let variables = table.table("header_env");
    let variables = variables.iter().flat_map(Table::entries);
    TelemetryTable {
        endpoint: table.get("endpoint").and_then(|value| located_string(&value)),
        content: table.get("content").and_then(|value| value.text()).map(|word| match word.as_str() {
            "off" => ContentLevel::Off,
            "complete" => ContentLevel::Complete,
            _ => ContentLevel::Shortened,
        }),
        redact: table.get("redact").map(|value| located_strings(&value)).unwrap_or_default(),
        project: table.get("project").and_then(|value| value.text()),
        metrics: table.get("metrics").and_then(|value| value.flag()).unwrap_or_default(),
        headers: table.get("headers").map(|value| string_map(&value)).unwrap_or_default(),
        header_env: variables.filter_map(|entry| Some((entry.name, located_string(&entry.value)?))).collect(),
        request_timeout_ms: table.get("request_timeout_ms").and_then(|value| value.number()),
        max_age_hours: table.get("max_age_hours").and_then(|value| value.number()),
    }
}
