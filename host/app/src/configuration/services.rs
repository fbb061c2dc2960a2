//! The tables `[services.NAME]` and `[outbox]`.

use super::document::{Found, Table};
use super::output_schema::output_schema;
use super::{Placed, placed};
use agent_core::event_type::{ServiceEventType, is_reserved};
use agent_core::schema::Schema;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// What the file says of one service.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ServiceTable {
    /// CloudEvent type of its requests; by default the table's name. None: the file has a problem there.
    pub(crate) event_type: Option<ServiceEventType>,
    /// For the model.
    pub(crate) description: Option<String>,
    /// JSON Schema of a request's data.
    pub(crate) accepts: Option<Value>,
    /// JSON Schemas of answers' data, by their type or `*`.
    pub(crate) emits: BTreeMap<String, Value>,
    /// Routing.
    pub(crate) domain: Option<String>,
    /// Until it is waited for no longer.
    pub(crate) answer_within_ms: Option<u32>,
    /// Of its calls.
    pub(crate) priority: Option<i32>,
    /// Where the table stands.
    pub(crate) place: String,
}

/// Where events go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct OutboxTable {
    /// The folder, as it is written.
    pub(crate) directory: Option<Placed>,
    /// Whether ends of turns are events.
    pub(crate) completions: Option<bool>,
    /// Whether approval requests are events.
    pub(crate) approvals: Option<bool>,
}

/// All services; files of schemas are relative to `folder`.
pub(super) fn services(root: &Table<'_>, folder: &Path) -> BTreeMap<String, ServiceTable> {
    let services = root.table("services");
    let entries = services.iter().flat_map(Table::entries);
    let all = entries.filter_map(|entry| {
        let service = service(&entry.name, &entry.found, folder)?;
        Some((entry.name, service))
    });
    all.collect()
}

/// The outbox.
pub(super) fn outbox(root: &Table<'_>) -> OutboxTable {
    let Some(table) = root.table("outbox") else { return OutboxTable::default() };
    OutboxTable {
        directory: table.get("directory").and_then(|found| placed(&found)),
        completions: table.get("completions").and_then(|found| found.flag()),
        approvals: table.get("approvals").and_then(|found| found.flag()),
    }
}

fn service(name: &str, found: &Found<'_>, folder: &Path) -> Option<ServiceTable> {
    let table = found.table()?;
    let text = |key| table.get(key).and_then(|found| found.text());
    Some(ServiceTable {
        event_type: event_type(name, found, text("type")),
        description: text("description"),
        accepts: table.get("accepts").and_then(|found| accepts(&found, folder)),
        emits: table.get("emits").map(|found| emits(&found, folder)).unwrap_or_default(),
        domain: text("domain"),
        answer_within_ms: table.get("answer_within_ms").and_then(|found| found.number()),
        priority: table.get("priority").and_then(|found| found.signed()),
        place: found.place(),
    })
}

/// A type that is written is judged where all keys are; the name of the table, which stands for it, is judged here.
fn event_type(name: &str, found: &Found<'_>, written: Option<String>) -> Option<ServiceEventType> {
    if let Some(written) = written {
        return ServiceEventType::parse(&written).ok();
    }
    match ServiceEventType::parse(name) {
        Ok(event_type) => Some(event_type),
        Err(error) => {
            found.problem(
                &format!("has no `type`, and its name cannot stand for one: {error}"),
                "allowed: a `type` such as \"com.example.payment.requested\"",
            );
            None
        }
    }
}

fn accepts(found: &Found<'_>, folder: &Path) -> Option<Value> {
    let schema = usable(found, folder)?;
    match schema.get("type") {
        None => Some(schema),
        Some(kind) if kind == "object" => Some(schema),
        Some(_) => {
            found.problem(
                "is no schema of objects",
                "allowed: a JSON Schema with `type = \"object\"`, or without a type",
            );
            None
        }
    }
}

/// One schema for all answers, as the path of a file, or one for each type of them.
fn emits(found: &Found<'_>, folder: &Path) -> BTreeMap<String, Value> {
    if found.text().is_some() {
        return usable(found, folder).map(|schema| BTreeMap::from([("*".to_owned(), schema)])).unwrap_or_default();
    }
    let Some(types) = found.table() else {
        let allowed = "allowed: a table with the answers' types (`\"*\"`: every other type) and a JSON Schema for each, or \
                       the path of a JSON file with one for all";
        found.problem(&format!("is {}", found.kind()), allowed);
        return BTreeMap::new();
    };
    let entries = types.entries().filter(|entry| {
        let reserved = is_reserved(&entry.name);
        if reserved {
            entry
                .found
                .problem("is a type of the host, with which no service answers", "allowed: types of the service's own");
        }
        !reserved
    });
    entries.filter_map(|entry| Some((entry.name, usable(&entry.found, folder)?))).collect()
}

/// A schema that can be checked with: nothing in it is fetched, and no check takes for ever.
fn usable(found: &Found<'_>, folder: &Path) -> Option<Value> {
    let schema = output_schema(found, folder)?;
    match Schema::compile(&schema) {
        Ok(_) => Some(schema),
        Err(error) => {
            found.problem(
                &format!("cannot be used: {error}"),
                "allowed: a JSON Schema without references to other files",
            );
            None
        }
    }
}
