//! The tables of agents that this one may delegate to (L16).

use super::document::{Entry, Found, Table};
use super::form::Form;
use super::{Placed, output_schema, placed};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// What the file says of one of them.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AgentTable {
    /// Its own file, relative to the folder of this one.
    pub(crate) agent: Placed,
    /// For the model that delegates.
    pub(crate) description: String,
    /// JSON Schema of what it is asked.
    pub(crate) input_schema: Option<Value>,
    /// Where the table stands.
    pub(crate) place: String,
}

/// All of them, by the name of their tool.
pub(super) fn read(root: &Table<'_>, folder: &Path) -> BTreeMap<String, AgentTable> {
    let agents = root.table("agents");
    let entries = agents.iter().flat_map(Table::entries);
    entries.filter_map(|entry| Some((entry.name, agent(&entry.found, folder)?))).collect()
}

fn agent(found: &Found<'_>, folder: &Path) -> Option<AgentTable> {
    let table = found.table()?;
    let schema = table.get("input_schema");
    let input_schema = schema.as_ref().and_then(|found| output_schema::output_schema(found, folder));
    if let (Some(found), Some(schema)) = (&schema, &input_schema)
        && schema.get("type").and_then(Value::as_str) != Some("object")
    {
        found.problem("is no schema of an object", "allowed: a JSON Schema with `type = \"object\"`, as of every tool");
    }
    Some(AgentTable {
        agent: table.get("agent").and_then(|found| placed(&found))?,
        description: table.get("description").and_then(|found| found.text())?,
        input_schema,
        place: found.place(),
    })
}

/// Looks for what the list of keys cannot say: the form of the name, and what must be there.
pub(super) fn check(around: &Table<'_>, entry: &Entry<'_>, table: &Table<'_>) {
    let (name, key) = (entry.name.as_str(), around.key_of(&entry.name));
    if let Some(problem) = Form::Name.problem(name) {
        let allowed = format!("allowed as a tool's name: {}", Form::Name.words());
        around.problem(entry.span.clone(), format!("`{key}`: its name {problem}"), allowed);
    }
    for (needed, example) in [("agent", "agent = \"researcher.toml\""), ("description", "description = \"…\"")] {
        if table.get(needed).is_none() {
            let message = format!("`{key}` has no `{needed}`");
            around.problem(entry.span.clone(), message, format!("add `{example}`"));
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

    /// L16, I2
    #[test]
    fn l16_an_agent_as_a_tool_has_a_file_and_a_description() {
        let file = parse("[agents.researcher]\nagent = \"researcher.toml\"\ndescription = \"Finds sources.\"\n");
        let file = file.expect("a right file");
        let researcher = &file.agents["researcher"];
        assert_eq!(researcher.agent.value, "researcher.toml");
        assert_eq!(researcher.agent.place, "agents/lead.toml:2: agents.researcher.agent");
        assert_eq!((researcher.description.as_str(), &researcher.input_schema), ("Finds sources.", &None));
        let schema = "input_schema = { type = \"object\", required = [\"topic\"] }";
        let file = parse(&format!("[agents.a]\nagent = \"a.toml\"\ndescription = \"d\"\n{schema}\n"));
        assert_eq!(
            file.expect("a right file").agents["a"].input_schema.as_ref().expect("read")["required"][0],
            "topic"
        );
    }

    /// I2: every refusal names the line, the key and what is allowed.
    #[test]
    fn l16_what_is_missing_or_wrong_is_named() {
        for (text, expected) in [
            ("[agents.a]\ndescription = \"d\"\n", "`agents.a` has no `agent`"),
            ("[agents.a]\nagent = \"a.toml\"\n", "`agents.a` has no `description`"),
            ("[agents.\"a b\"]\nagent = \"a.toml\"\ndescription = \"d\"\n", "its name is no name"),
            ("[agents.a]\nagent = 3\ndescription = \"d\"\n", "`agents.a.agent` is a number"),
            (
                "[agents.a]\nagent = \"a.toml\"\ndescription = \"d\"\ninput_schema = { type = \"string\" }\n",
                "of an object",
            ),
            (
                "[agents.a]\nagent = \"a.toml\"\ndescription = \"d\"\nmodel = \"offline\"\n",
                "unknown key `agents.a.model`",
            ),
            ("agents = \"a.toml\"\n", "`agents` is a text"),
        ] {
            let message = parse(text).expect_err(text);
            assert!(message.contains(expected) && message.contains("agents/lead.toml:"), "{text}: {message}");
        }
    }
}
