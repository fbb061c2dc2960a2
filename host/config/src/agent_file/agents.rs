//! Reads the tables `[agents.NAME]`: the agents that this agent may delegate to (L16).

use super::document::{Entry, Table, TomlValue};
use super::text_format::TextFormat;
use super::{Located, located_string, output_schema};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// A table `[agents.NAME]`, which configures an agent that this agent may delegate to.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentTable {
    /// Configuration file of the delegate, relative to the folder of the file that contains this table.
    pub agent: Located,
    /// Description of the delegate, for the model that calls the delegate as a tool.
    pub description: String,
    /// JSON Schema of the arguments of the tool that calls the delegate. If no schema is set, the arguments are an
    /// object with the string `task`.
    pub input_schema: Option<Value>,
    /// File, line and key of the table.
    pub location: String,
}

/// Reads all tables `[agents.NAME]`. In the returned map, each key is the NAME of a table, which is also the name of
/// the tool.
pub(super) fn read(root: &Table<'_>, folder: &Path) -> BTreeMap<String, AgentTable> {
    let agents = root.table("agents");
    let entries = agents.iter().flat_map(Table::entries);
    entries.filter_map(|entry| Some((entry.name, agent(&entry.value, folder)?))).collect()
}

fn agent(value: &TomlValue<'_>, folder: &Path) -> Option<AgentTable> {
    let table = value.table()?;
    let schema = table.get("input_schema");
    let input_schema = schema.as_ref().and_then(|value| output_schema::read_schema(value, folder));
    if let (Some(value), Some(schema)) = (&schema, &input_schema)
        && schema.get("type").and_then(Value::as_str) != Some("object")
    {
        value.problem(
            "is not a JSON Schema for an object",
            "allowed: a JSON Schema with `type = \"object\"`, because tools take an object",
        );
    }
    Some(AgentTable {
        agent: table.get("agent").and_then(|value| located_string(&value))?,
        description: table.get("description").and_then(|value| value.text())?,
        input_schema,
        location: value.location(),
    })
}

/// Checks the format of the name, and checks that the required keys are set. The list of keys contains no rules about
/// names and required keys, so this function checks both.
pub(super) fn check(parent: &Table<'_>, entry: &Entry<'_>, table: &Table<'_>) {
    let key = parent.key_of(&entry.name);
    if let Some(problem) = TextFormat::Name.problem(&entry.name) {
        let allowed = format!("allowed as a tool's name: {}", TextFormat::Name.description());
        parent.problem(entry.span.clone(), format!("`{key}` {problem}"), allowed);
    }
    for (needed, example) in [("agent", "agent = \"researcher.toml\""), ("description", "description = \"…\"")] {
        if table.get(needed).is_none() {
            let message = format!("`{key}` has no `{needed}`");
            parent.problem(entry.span.clone(), message, format!("add `{example}`"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::AgentFile;
    use super::*;

    fn parse(text: &str) -> Result<AgentFile, String> {
        AgentFile::parse(text, Path::new("agents/lead.toml")).map_err(|error| error.to_string())
    }

    /// L16, I2: a table `[agents.NAME]` is read with its file, description and input schema.
    #[test]
    fn l16_reads_delegates_with_file_and_description() {
        let file = parse("[agents.researcher]\nagent = \"researcher.toml\"\ndescription = \"Finds sources.\"\n");
        let file = file.expect("a valid file");
        let researcher = &file.agents["researcher"];
        assert_eq!(researcher.agent.value, "researcher.toml");
        assert_eq!(researcher.agent.location, "agents/lead.toml:2: agents.researcher.agent");
        assert_eq!((researcher.description.as_str(), &researcher.input_schema), ("Finds sources.", &None));
        let schema = "input_schema = { type = \"object\", required = [\"topic\"] }";
        let file = parse(&format!("[agents.a]\nagent = \"a.toml\"\ndescription = \"d\"\n{schema}\n"));
        assert_eq!(
            file.expect("a valid file").agents["a"].input_schema.as_ref().expect("read")["required"][0],
            "topic"
        );
    }

    /// I2: every error names the line, the key and the allowed values.
    #[test]
    fn l16_rejects_missing_and_wrong_keys() {
        for (text, expected) in [
            ("[agents.a]\ndescription = \"d\"\n", "`agents.a` has no `agent`"),
            ("[agents.a]\nagent = \"a.toml\"\n", "`agents.a` has no `description`"),
            ("[agents.\"a b\"]\nagent = \"a.toml\"\ndescription = \"d\"\n", "`agents.\"a b\"` is not a valid name"),
            ("[agents.a]\nagent = 3\ndescription = \"d\"\n", "`agents.a.agent` is a number"),
            (
                "[agents.a]\nagent = \"a.toml\"\ndescription = \"d\"\ninput_schema = { type = \"string\" }\n",
                "for an object",
            ),
            (
                "[agents.a]\nagent = \"a.toml\"\ndescription = \"d\"\nmodel = \"offline\"\n",
                "unknown key `agents.a.model`",
            ),
            ("agents = \"a.toml\"\n", "`agents` is a string"),
        ] {
            let message = parse(text).expect_err(text);
            assert!(message.contains(expected) && message.contains("agents/lead.toml:"), "{text}: {message}");
        }
    }
}
