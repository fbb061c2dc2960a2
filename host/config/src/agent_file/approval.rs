//! Reads `[approval]`: the rules that decide which tool calls need an approval (L17).

use super::document::{Table, TomlValue};
use agent_core::approval::{ApprovalPolicy, ApprovalRules};
use std::collections::BTreeMap;

/// The rules, and the file, line and key of each rule about single tools.
pub(super) fn rules(table: &Table<'_>) -> (ApprovalRules, BTreeMap<String, String>) {
    let of = |key| table.get(key).and_then(|value| policy(&value)).unwrap_or_default();
    let mut rules = ApprovalRules {
        default: of("default"),
        destructive: of("destructive"),
        open_world: of("open_world"),
        ..ApprovalRules::default()
    };
    let mut places = BTreeMap::new();
    for value in table.get("bind_arguments").and_then(|value| value.items()).unwrap_or_default() {
        if let Some(pattern) = value.text() {
            places.insert(pattern.clone(), value.place());
            rules.bind_arguments.push(pattern);
        }
    }
    for entry in table.table("tools").iter().flat_map(Table::entries) {
        places.insert(entry.name.clone(), entry.value.place());
        // An invalid policy is reported as an error and nothing runs. `Deny` only makes sure that nothing is allowed by it.
        rules.tools.insert(entry.name, policy(&entry.value).unwrap_or(ApprovalPolicy::Deny));
    }
    (rules, places)
}

fn policy(value: &TomlValue<'_>) -> Option<ApprovalPolicy> {
    match value.text()?.as_str() {
        "allow" => Some(ApprovalPolicy::Allow),
        "ask" => Some(ApprovalPolicy::Ask),
        "deny" => Some(ApprovalPolicy::Deny),
        _ => None,
    }
}
