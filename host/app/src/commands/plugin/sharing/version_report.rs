//! The report about a newer version of a plugin: what it changes, and what lets the plugin do more than before.

use super::folder::summary;
use crate::terminal::{BOLD, DIM, YELLOW, text};
use agent_registry::{Difference, ListChange, LockedPlugin, VersionChanges, VersionOrder, compare_versions};
use serde_json::{Value, json};

/// Maximum displayed length of a value that a version changes, in characters.
const VALUE_CHARACTERS: usize = 120;
/// Maximum number of differences that are shown for one tool.
const SHOWN_DIFFERENCES: usize = 12;

/// A newer version of a plugin, compared with the version in the lock file.
pub(super) struct VersionReport<'r> {
    /// The version in the lock file.
    pub(super) locked: &'r LockedPlugin,
    /// The newer version.
    pub(super) new: &'r LockedPlugin,
    /// What the newer version changes. None if the version in the lock file is not available for a comparison.
    pub(super) changes: Option<VersionChanges>,
}

impl VersionReport<'_> {
    /// Whether the content has changed, but not the version.
    fn is_same_version(&self) -> bool {
        compare_versions(&self.new.version, &self.locked.version) == VersionOrder::Same
            && self.new.component != self.locked.component
    }

    /// Returns what a user should notice before anything else, in addition to what the changes widen.
    fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if self.is_same_version() {
            warnings.push("the version is the same, but the content has changed".to_owned());
        }
        if self.new.signer != self.locked.signer {
            let key = |plugin: &LockedPlugin| plugin.signer.clone().unwrap_or_else(|| "no trusted key".to_owned());
            warnings.push(format!("signed by {}, previously by {}", key(self.new), key(self.locked)));
        }
        warnings
    }

    /// Formats the report as lines of at most `columns`. Lines that start with `!` need attention.
    pub(super) fn lines(&self, columns: usize) -> String {
        let to = text::one_line(&self.new.version, 100);
        let heading =
            format!("{} → {BOLD}{to}{BOLD:#} {DIM}{}{DIM:#}", summary(self.locked), self.new.component.short());
        let mut lines: Vec<String> = self.warnings().iter().map(|warning| attention(warning)).collect();
        match &self.changes {
            Some(changes) => lines.extend(change_lines(changes)),
            None => lines.push(format!(
                "  {DIM}the installed version is missing, so its tools and requests cannot be compared{DIM:#}"
            )),
        }
        let lines = lines.iter().map(|line| text::wrapped_entry(line, columns));
        std::iter::once(text::wrapped_entry(&heading, columns)).chain(lines).collect::<Vec<_>>().join("\n")
    }

    /// Returns the report as a JSON document.
    pub(super) fn document(&self) -> Value {
        let side = |plugin: &LockedPlugin| json!({"version": plugin.version, "digest": plugin.component, "signer": plugin.signer});
        json!({
            "name": self.locked.name,
            "reference": self.locked.reference,
            "status": "newer",
            "before": side(self.locked),
            "after": side(self.new),
            "warnings": self.warnings(),
            "changes": self.changes,
        })
    }
}

/// Returns the JSON document for a plugin without a newer version.
pub(super) fn current(locked: &LockedPlugin) -> Value {
    json!({"name": locked.name, "reference": locked.reference, "status": "current"})
}

/// Returns the JSON document for a plugin whose newer version cannot be found out or may not be used.
pub(super) fn failed(locked: &LockedPlugin, error: &str) -> Value {
    json!({"name": locked.name, "reference": locked.reference, "status": "failed", "error": error})
}

fn attention(line: &str) -> String {
    format!("{YELLOW}!{YELLOW:#} {}", text::one_line(line, 300))
}

fn change_lines(changes: &VersionChanges) -> Vec<String> {
    let mut lines: Vec<String> = changes.widens.iter().map(|change| attention(change)).collect();
    lines.extend(list_lines("asks for", &changes.requests));
    lines.extend(list_lines("imports", &changes.imports));
    let tools = ListChange { added: changes.tools_added.clone(), removed: changes.tools_removed.clone() };
    lines.extend(list_lines("offers", &tools));
    for tool in &changes.tools_changed {
        lines.push(format!("  ~ changes {BOLD}{}{BOLD:#}", text::one_line(&tool.name, 128)));
        lines.extend(tool.differences.iter().take(SHOWN_DIFFERENCES).map(difference_line));
        let more = tool.differences.len().saturating_sub(SHOWN_DIFFERENCES) + tool.unlisted;
        if more > 0 {
            lines.push(format!("      {DIM}and {more} more; --json lists them{DIM:#}"));
        }
    }
    let size = changes.size;
    if size.before != size.after {
        lines.push(format!("  size {} → {}", text::size(size.before), text::size(size.after)));
    }
    if changes.is_empty() {
        lines.push(format!("  {DIM}its tools, requests and imports are the same{DIM:#}"));
    }
    lines
}

/// Returns a line with `+` for each entry that only the new version has, and a line with `-` for each entry that only
/// the old version has.
fn list_lines(what: &str, change: &ListChange) -> Vec<String> {
    let line = |sign: char, entry: &String| format!("  {sign} {what} {}", text::one_line(entry, 200));
    let added = change.added.iter().map(|entry| line('+', entry));
    added.chain(change.removed.iter().map(|entry| line('-', entry))).collect()
}

fn difference_line(difference: &Difference) -> String {
    let shown = |value: &Value| match value {
        Value::String(text) => text::one_line(text, VALUE_CHARACTERS),
        value => text::json_line(value, VALUE_CHARACTERS),
    };
    let change = match (&difference.before, &difference.after) {
        (None, Some(after)) => format!("+ {}", shown(after)),
        (Some(before), None) => format!("- {}", shown(before)),
        (Some(before), Some(after)) => format!("{} → {}", shown(before), shown(after)),
        (None, None) => String::new(),
    };
    format!("      {} {DIM}{change}{DIM:#}", text::one_line(&difference.pointer, 200))
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_registry::{SizeChange, ToolChange};

    /// P11: an update shows its changes in lines that fit a narrow terminal, and marks what needs attention.
    #[test]
    fn p11_report_fits_sixty_columns_and_marks_what_widens() {
        let owned = |things: &[&str]| things.iter().map(|thing| (*thing).to_owned()).collect::<Vec<_>>();
        let difference = |pointer: &str, before: Option<Value>, after: Option<Value>| Difference {
            pointer: pointer.to_owned(),
            before,
            after,
        };
        let changes = VersionChanges {
            size: SizeChange { before: 1_000, after: 204_800 },
            requests: ListChange { added: owned(&["the request GET https://b"]), removed: owned(&["reading files"]) },
            tools_added: owned(&["tides.write"]),
            tools_changed: vec![ToolChange {
                name: "tides.find".to_owned(),
                differences: vec![
                    difference(
                        "/description",
                        Some(json!("Finds tides.")),
                        Some(json!("Finds\u{1b}[2J tides, and the moon.")),
                    ),
                    difference("/input_schema/properties/limit", None, Some(json!({"type": "integer", "minimum": 1}))),
                ],
                unlisted: 3,
            }],
            widens: owned(&["it asks for the request GET https://b", "its new tool tides.write is not read-only"]),
            ..VersionChanges::default()
        };
        let plugin = |version: &str, signer: Option<&str>| LockedPlugin {
            name: "tides".to_owned(),
            version: version.to_owned(),
            reference: "registry.example/team/tides:latest".to_owned(),
            manifest: None,
            component: agent_plugins::digest_of(version.as_bytes()),
            signer: signer.map(str::to_owned),
            signature: None,
        };
        let (locked, new) = (plugin("1.0.0", Some("RWQkey")), plugin("1.1.0", None));
        let report = VersionReport { locked: &locked, new: &new, changes: Some(changes) };
        let shown = anstream::adapter::strip_str(&report.lines(60)).to_string();
        for line in [
            "! signed by no trusted key, previously by RWQkey",
            "! it asks for the request GET https://b",
            "! its new tool tides.write is not read-only",
            "  + asks for the request GET https://b",
            "  - asks for reading files",
            "  + offers tides.write",
            "  ~ changes tides.find",
            "      and 3 more; --json lists them",
            "  size 1000 bytes → 200.0 KiB",
        ] {
            assert!(shown.lines().any(|shown| shown == line), "{line}: {shown}");
        }
        assert!(shown.starts_with("tides 1.0.0 ") && shown.contains("→ 1.1.0") && !shown.contains('\u{1b}'), "{shown}");
        assert!(shown.lines().all(|line| line.chars().count() <= 60), "{shown}");
        let document = report.document();
        assert_eq!(document["changes"]["widens"][0], "it asks for the request GET https://b");
        assert_eq!((&document["before"]["signer"], &document["after"]["signer"]), (&json!("RWQkey"), &Value::Null));
        let without = VersionReport { changes: None, ..report };
        assert!(without.lines(200).contains("cannot be compared"));
    }
}
