//! The differences between two versions of a plugin: its tools, the access that it asks for, its imports and its size
//! (P11). The comparison uses only what the host knows about loaded plugins; no function of a plugin is called.

mod json;

pub use json::Difference;

use agent_core::tool::{ToolDefinition, Traits};
use agent_plugins::LoadedPlugin;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The request of a plugin without a manifest.
pub const EVERYTHING: &str = "everything that it is granted";

/// The differences between two versions of a plugin.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct VersionChanges {
    /// Size of the component in bytes.
    pub size: SizeChange,
    /// The access that the plugin asks for, as text for users. A plugin without a manifest asks for [`EVERYTHING`].
    pub requests: ListChange,
    /// Names of the imported interfaces.
    pub imports: ListChange,
    /// Names of the tools that only the new version has.
    pub tools_added: Vec<String>,
    /// Names of the tools that only the old version has.
    pub tools_removed: Vec<String>,
    /// The tools that both versions have, but with different definitions.
    pub tools_changed: Vec<ToolChange>,
    /// What the new version may do and the old version may not, as text for users.
    pub widens: Vec<String>,
}

/// The size of both versions in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SizeChange {
    /// Size of the old version.
    pub before: u64,
    /// Size of the new version.
    pub after: u64,
}

/// The entries of a list that only one of two versions has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ListChange {
    /// Entries that only the new version has.
    pub added: Vec<String>,
    /// Entries that only the old version has.
    pub removed: Vec<String>,
}

/// The differences between two definitions of a tool.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ToolChange {
    /// Name of the tool.
    pub name: String,
    /// The differences, each with a JSON pointer into the definition of the tool, as `plugin inspect --json` shows it.
    pub differences: Vec<Difference>,
    /// Number of further differences, which are not listed.
    pub unlisted: usize,
}

/// The facts about one version of a plugin that are compared.
#[derive(Clone, Debug, Default)]
pub struct VersionFacts<'p> {
    /// Size of the component in bytes.
    pub size: u64,
    /// The access that the plugin asks for, as text for users. None if the plugin has no manifest.
    pub requests: Option<Vec<String>>,
    /// Names of the imported interfaces.
    pub imports: &'p [String],
    /// The definitions of the tools.
    pub tools: &'p [ToolDefinition],
}

impl<'p> VersionFacts<'p> {
    /// Returns the facts about a loaded plugin. `requests` describes what its manifest asks for.
    pub fn of(plugin: &'p LoadedPlugin, requests: Option<Vec<String>>) -> Self {
        Self { size: plugin.size(), requests, imports: plugin.imports(), tools: plugin.tools() }
    }
}

impl VersionChanges {
    /// Compares two versions of a plugin.
    pub fn between(before: &VersionFacts<'_>, after: &VersionFacts<'_>) -> Self {
        let requests = |facts: &VersionFacts<'_>| facts.requests.clone().unwrap_or_else(|| vec![EVERYTHING.to_owned()]);
        let mut changes = Self {
            size: SizeChange { before: before.size, after: after.size },
            requests: ListChange::between(&requests(before), &requests(after)),
            imports: ListChange::between(before.imports, after.imports),
            ..Self::default()
        };
        // A plugin without a manifest could use every grant, so a manifest only takes access away.
        if before.requests.is_some() {
            changes.widens.extend(changes.requests.added.iter().map(|request| format!("it asks for {request}")));
        }
        changes.compare_tools(before.tools, after.tools);
        changes
    }

    /// Whether nothing that is compared has changed, apart from the size.
    pub fn is_empty(&self) -> bool {
        let lists = [&self.requests, &self.imports];
        lists.iter().all(|list| list.added.is_empty() && list.removed.is_empty())
            && self.tools_added.is_empty()
            && self.tools_removed.is_empty()
            && self.tools_changed.is_empty()
    }

    fn compare_tools(&mut self, before: &[ToolDefinition], after: &[ToolDefinition]) {
        let by_name = |tools| -> BTreeMap<&str, &ToolDefinition> {
            let tools: &[ToolDefinition] = tools;
            tools.iter().map(|tool| (tool.name.as_str(), tool)).collect()
        };
        let (old_tools, new_tools) = (by_name(before), by_name(after));
        for (name, tool) in &new_tools {
            let Some(old) = old_tools.get(name) else {
                self.tools_added.push((*name).to_owned());
                if !tool.traits.read_only {
                    self.widens.push(format!("its new tool {name} is not read-only"));
                }
                continue;
            };
            self.widens.extend(wider_traits(old.traits, tool.traits).map(|change| format!("its tool {name} {change}")));
            let (differences, unlisted) = json::differences(&document(old), &document(tool));
            if !differences.is_empty() {
                self.tools_changed.push(ToolChange { name: (*name).to_owned(), differences, unlisted });
            }
        }
        self.tools_removed =
            old_tools.keys().filter(|name| !new_tools.contains_key(*name)).map(|name| (*name).to_owned()).collect();
    }
}

impl ListChange {
    fn between(before: &[String], after: &[String]) -> Self {
        let (before, after): (BTreeSet<_>, BTreeSet<_>) = (before.iter().collect(), after.iter().collect());
        Self {
            added: after.difference(&before).map(|entry| (*entry).clone()).collect(),
            removed: before.difference(&after).map(|entry| (*entry).clone()).collect(),
        }
    }
}

fn document(tool: &ToolDefinition) -> Value {
    serde_json::to_value(tool).unwrap_or_else(|error| json!({"error": error.to_string()}))
}

/// The traits that make the host less careful with a tool than before, or that say that the tool can do more.
fn wider_traits(before: Traits, after: Traits) -> impl Iterator<Item = &'static str> {
    let changes = [
        (before.read_only && !after.read_only, "is no longer read-only"),
        (!before.destructive && after.destructive, "may now delete or overwrite something"),
        (!before.open_world && after.open_world, "now accesses systems outside the host, such as the web"),
        (before.needs_approval && !after.needs_approval, "no longer needs an approval"),
    ];
    changes.into_iter().filter_map(|(is_wider, text)| is_wider.then_some(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(name: &str, traits: Traits) -> ToolDefinition {
        ToolDefinition {
            name: name.to_owned(),
            title: None,
            description: "Finds words.".to_owned(),
            input_schema: json!({"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}),
            output_schema: None,
            traits,
            priority: 0,
        }
    }

    fn owned(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    const READ_ONLY: Traits = Traits {
        read_only: true,
        destructive: false,
        idempotent: false,
        sequential: false,
        open_world: false,
        needs_approval: false,
    };

    // P11: an update reports what changes, and separately what lets the plugin do more than before.
    #[test]
    fn p11_changes_name_what_a_version_adds_and_what_it_widens() {
        let old = [tool("find", READ_ONLY), tool("old", READ_ONLY), tool("same", READ_ONLY)];
        let mut find = tool("find", Traits { destructive: true, ..Traits::default() });
        find.input_schema["properties"]["limit"] = json!({"type": "integer"});
        let new = [find, tool("same", READ_ONLY), tool("write", Traits::default()), tool("look", READ_ONLY)];
        let imports = owned(&["wasi:io/poll@0.2.0"]);
        let before = VersionFacts { size: 10, requests: Some(owned(&["reading files"])), imports: &[], tools: &old };
        let after =
            VersionFacts { size: 12, requests: Some(owned(&["the variable A"])), imports: &imports, tools: &new };
        let changes = VersionChanges::between(&before, &after);
        assert_eq!(changes.size, SizeChange { before: 10, after: 12 });
        assert_eq!(
            changes.requests,
            ListChange { added: owned(&["the variable A"]), removed: owned(&["reading files"]) }
        );
        assert_eq!(changes.imports.added, imports);
        assert_eq!(
            (changes.tools_added.clone(), changes.tools_removed.clone()),
            (owned(&["look", "write"]), owned(&["old"]))
        );
        let [changed] = changes.tools_changed.as_slice() else { panic!("one changed tool: {changes:?}") };
        let pointers: Vec<_> = changed.differences.iter().map(|difference| difference.pointer.as_str()).collect();
        assert_eq!(pointers, ["/input_schema/properties/limit", "/traits/destructive", "/traits/read_only"]);
        let widens = [
            "it asks for the variable A",
            "its tool find is no longer read-only",
            "its tool find may now delete or overwrite something",
            "its new tool write is not read-only",
        ];
        assert_eq!(changes.widens, widens);
        assert!(!changes.is_empty() && VersionChanges::between(&before, &before).is_empty());
    }

    // P6, decision 0003: a plugin without a manifest may use everything that it is granted, so a manifest only narrows.
    #[test]
    fn p6_removing_the_manifest_widens_and_adding_one_does_not() {
        let without = VersionFacts::default();
        let with = VersionFacts { requests: Some(owned(&["reading files"])), ..VersionFacts::default() };
        assert_eq!(VersionChanges::between(&without, &with).widens, [""; 0]);
        assert_eq!(VersionChanges::between(&with, &without).widens, ["it asks for everything that it is granted"]);
    }
}
