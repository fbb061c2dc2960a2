//! Reads the tables `[services.NAME]`.

use super::document::{Table, TomlValue};
use super::output_schema::read_schema;
use agent_core::event_type::{ServiceEventType, is_reserved};
use agent_core::schema::Schema;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// A table `[services.NAME]`, which configures one service.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServiceTable {
    /// CloudEvent type of the service's requests. The default is the name of the table. `None` if the type is invalid.
    /// An invalid type has already been reported as a problem.
    pub event_type: Option<ServiceEventType>,
    /// Description of the service for the model.
    pub description: Option<String>,
    /// JSON Schema of a request's data.
    pub accepts: Option<Value>,
    /// For each CloudEvent type of an answer, the JSON Schema of the answer's data. The schema of the key `*` applies
    /// to all types that are not listed.
    pub emits: BTreeMap<String, Value>,
    /// Attribute `domain` of the requests, for routing.
    pub domain: Option<String>,
    /// Maximum time to wait for an answer, in milliseconds. If the time is `None`, the host waits without a limit.
    pub answer_within_ms: Option<u32>,
    /// Priority of calls to the service. Of all calls in one model reply, only the calls with the highest priority run.
    pub priority: Option<i32>,
    /// File, line and key of the table.
    pub location: String,
}

/// Reads all tables `[services.NAME]`. Paths of schemas are relative to `folder`.
pub(super) fn services(root: &Table<'_>, folder: &Path) -> BTreeMap<String, ServiceTable> {
    let services = root.table("services");
    let entries = services.iter().flat_map(Table::entries);
    let services = entries.filter_map(|entry| {
        let service = service(&entry.name, &entry.value, folder)?;
        Some((entry.name, service))
    });
    services.collect()
}

fn service(name: &str, value: &TomlValue<'_>, folder: &Path) -> Option<ServiceTable> {
    let table = value.table()?;
    let text = |key| table.get(key).and_then(|value| value.text());
    Some(ServiceTable {
        event_type: event_type(name, value, text("type")),
        description: text("description"),
        accepts: table.get("accepts").and_then(|value| accepts(&value, folder)),
        emits: table.get("emits").map(|value| emits(&value, folder)).unwrap_or_default(),
        domain: text("domain"),
        answer_within_ms: table.get("answer_within_ms").and_then(|value| value.number()),
        priority: table.get("priority").and_then(|value| value.number_i32()),
        location: value.location(),
    })
}

/// Returns the event type of a service. An invalid value of the key `type` is reported by the general check of the
/// keys. If the key is not set, the name of the table is the type, and this function checks whether the name is a
/// valid type.
fn event_type(name: &str, value: &TomlValue<'_>, configured_type: Option<String>) -> Option<ServiceEventType> {
    if let Some(configured_type) = configured_type {
        return ServiceEventType::parse(&configured_type).ok();
    }
    match ServiceEventType::parse(name) {
        Ok(event_type) => Some(event_type),
        Err(error) => {
            value.problem(
                &format!("has no `type`, and its name cannot be used as the type: {error}"),
                "add a `type`, such as `type = \"com.example.payment.requested\"`",
            );
            None
        }
    }
}

fn accepts(value: &TomlValue<'_>, folder: &Path) -> Option<Value> {
    let schema = read_usable_schema(value, folder)?;
    match schema.get("type") {
        None => Some(schema),
        Some(kind) if kind == "object" => Some(schema),
        Some(_) => {
            value.problem(
                "is not a JSON Schema for an object",
                "allowed: a JSON Schema with `type = \"object\"`, or without a type",
            );
            None
        }
    }
}

/// Reads the schemas of a service's answers. The value is either a table with one schema for each type, or the path of
/// a file with one schema for all types.
fn emits(value: &TomlValue<'_>, folder: &Path) -> BTreeMap<String, Value> {
    if value.text().is_some() {
        return read_usable_schema(value, folder)
            .map(|schema| BTreeMap::from([("*".to_owned(), schema)]))
            .unwrap_or_default();
    }
    let Some(types) = value.table() else {
        let allowed = "allowed: a table with a JSON Schema for each type of answer (`\"*\"`: every other type), or the path of a \
                       JSON file with one schema for all types";
        value.problem(&format!("is {}", value.kind()), allowed);
        return BTreeMap::new();
    };
    let entries = types.entries().filter(|entry| {
        let reserved = is_reserved(&entry.name);
        if reserved {
            entry
                .value
                .problem("is a type that is reserved for the host", "allowed: types that the service defines itself");
        }
        !reserved
    });
    entries.filter_map(|entry| Some((entry.name, read_usable_schema(&entry.value, folder)?))).collect()
}

/// Reads a JSON Schema and checks that the schema compiles. If a schema compiles, it does not refer to other documents,
/// and validation with it always terminates.
fn read_usable_schema(value: &TomlValue<'_>, folder: &Path) -> Option<Value> {
    let schema = read_schema(value, folder)?;
    match Schema::compile(&schema) {
        Ok(_) => Some(schema),
        Err(error) => {
            value.problem(
                &format!("cannot be used: {error}"),
                "allowed: a JSON Schema without references to other files",
            );
            None
        }
    }
}
