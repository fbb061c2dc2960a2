//! Reads `[approval]`: the rules that decide which tool calls need an approval (L17).

use super::document::{Table, TomlValue};
use agent_core::approval::{ApprovalPolicy, ApprovalRules};
use std::collections::BTreeMap;

/// Returns the approval rules, and the location (file, line and key) of each rule for a single tool.
pub(super) fn rules(table: &Table<'_>) -> (ApprovalRules, BTreeMap<String, String>) {
    let policy_of = |key| table.get(key).and_then(|value| policy(&value));
    let mut rules = ApprovalRules::default();
    rules.default = policy_of("default").unwrap_or(rules.default);
    rules.destructive = policy_of("destructive").unwrap_or(rules.destructive);
    rules.open_world = policy_of("open_world").unwrap_or(rules.open_world);
    let mut locations = BTreeMap::new();
    for value in table.get("bind_arguments").and_then(|value| value.items()).unwrap_or_default() {
        if let Some(pattern) = value.text() {
            locations.insert(pattern.clone(), value.location());
            rules.bind_arguments.push(pattern);
        }
    }
    for entry in table.table("tools").iter().flat_map(Table::entries) {
        locations.insert(entry.name.clone(), entry.value.location());
        // If the policy is invalid, the file is rejected with an error, so the placeholder `Deny` never takes effect.
        rules.tools.insert(entry.name, policy(&entry.value).unwrap_or(ApprovalPolicy::Deny));
    }
    (rules, locations)
}

fn policy(value: &TomlValue<'_>) -> Option<ApprovalPolicy> {
    match value.text()?.as_str() {
        "allow" => Some(ApprovalPolicy::Allow),
        "ask" => Some(ApprovalPolicy::Ask),
        "deny" => Some(ApprovalPolicy::Deny),
        _ => None,
    }
}
