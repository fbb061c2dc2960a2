//! `[approval]`: the rules that say which tools run unasked (L17).

use super::document::{Found, Table};
use agent_core::approval::{ApprovalPolicy, ApprovalRules};
use std::collections::BTreeMap;

/// The rules, and where those about single tools stand.
pub(super) fn rules(table: &Table<'_>) -> (ApprovalRules, BTreeMap<String, String>) {
    let of = |key| table.get(key).and_then(|found| policy(&found)).unwrap_or_default();
    let mut rules = ApprovalRules {
        default: of("default"),
        destructive: of("destructive"),
        open_world: of("open_world"),
        ..ApprovalRules::default()
    };
    let mut places = BTreeMap::new();
    for found in table.get("bind_arguments").and_then(|found| found.items()).unwrap_or_default() {
        if let Some(pattern) = found.text() {
            places.insert(pattern.clone(), found.place());
            rules.bind_arguments.push(pattern);
        }
    }
    for entry in table.table("tools").iter().flat_map(Table::entries) {
        places.insert(entry.name.clone(), entry.found.place());
        // One that cannot be read is reported, and nothing runs: what stands here meanwhile must only not be more.
        rules.tools.insert(entry.name, policy(&entry.found).unwrap_or(ApprovalPolicy::Deny));
    }
    (rules, places)
}

fn policy(found: &Found<'_>) -> Option<ApprovalPolicy> {
    match found.text()?.as_str() {
        "allow" => Some(ApprovalPolicy::Allow),
        "ask" => Some(ApprovalPolicy::Ask),
        "deny" => Some(ApprovalPolicy::Deny),
        _ => None,
    }
}
