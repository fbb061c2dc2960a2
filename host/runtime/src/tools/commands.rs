//! The tool `run_command`, which runs all command-line programs of an agent by name. A model that has many programs gets
//! one tool for them instead of one tool each.
//!
//! A call of this tool becomes a call of the program's own tool when it is resolved. Grants, approvals, limits and stored
//! calls therefore belong to the program, as without this tool. The prompt shows such calls as the model has written them.

use super::builtins::name::RUN_COMMAND;
use agent_core::message::{Message, Part};
use agent_core::tool::{ToolDefinition, Traits};
use agent_plugins::ProgramTool;
use serde_json::{Map, Value, json};
use std::fmt::Write;

/// Maximum size of the description in bytes. A prompt contains at most 2 KiB of a description.
const DESCRIPTION_BYTES: usize = 2_000;
/// Maximum size of the text about one program in bytes.
const ABOUT_BYTES: usize = 160;
/// Name of the argument that names the program.
const COMMAND: &str = "command";

/// How the command-line programs among the plugins are offered to the model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CommandTools {
    /// Each program is a tool with the name of its plugin.
    #[default]
    Each,
    /// The tool `run_command` runs all programs by name.
    One,
}

/// Returns the definition of `run_command` for these programs, which must not be empty.
pub(crate) fn definition(programs: &[ProgramTool<'_>]) -> ToolDefinition {
    let names: Vec<&str> = programs.iter().map(|program| program.name).collect();
    ToolDefinition {
        name: RUN_COMMAND.to_owned(),
        title: None,
        description: description(programs),
        input_schema: json!({
            "type": "object",
            "properties": {
                COMMAND: {"type": "string", "enum": names, "description": "The program."},
                "args": {
                    "type": "array", "items": {"type": "string"},
                    "description": "The program's arguments, without its own name. No shell reads them.",
                },
                "stdin": {"type": "string", "description": "What the program reads on standard input."},
            },
            "required": [COMMAND],
            "additionalProperties": false,
        }),
        output_schema: None,
        traits: Traits::default(),
        priority: 0,
    }
}

fn description(programs: &[ProgramTool<'_>]) -> String {
    let mut text =
        "Runs one of these command-line programs once and returns what it prints to standard output. Many programs \
                    explain themselves with the argument `--help`."
            .to_owned();
    for (index, program) in programs.iter().enumerate() {
        let about = program.about.map(|about| about.lines().next().unwrap_or_default()).unwrap_or_default();
        let about = &about[..about.floor_char_boundary(ABOUT_BYTES)];
        let line =
            if about.is_empty() { format!("\n- {}", program.name) } else { format!("\n- {}: {about}", program.name) };
        if text.len() + line.len() > DESCRIPTION_BYTES {
            let _ = write!(text, "\nand {} more, which the schema names", programs.len() - index);
            break;
        }
        text.push_str(&line);
    }
    text
}

/// Splits the arguments of `run_command` into the name of the program and the arguments of the program's own tool.
/// Returns None if the arguments name no program.
pub(crate) fn split(arguments: &Value) -> Option<(String, Value)> {
    let mut fields = arguments.as_object()?.clone();
    let command = fields.remove(COMMAND)?.as_str()?.to_owned();
    Some((command, Value::Object(fields)))
}

/// Shows the calls of programs in a message, and their results, as calls of `run_command`. `is_program` returns whether a
/// tool is a program that `run_command` runs.
pub(crate) fn as_calls_of_one_tool(mut message: Message, is_program: impl Fn(&str) -> bool) -> Message {
    for part in &mut message.parts {
        match part {
            Part::ToolCall(call) if is_program(&call.name) => {
                // Arguments that are not an object are the text of a call that cannot be read.
                if let Value::Object(fields) = &mut call.arguments {
                    let mut all = Map::from_iter([(COMMAND.to_owned(), json!(call.name))]);
                    all.append(fields);
                    *fields = all;
                    call.name = RUN_COMMAND.to_owned();
                }
            }
            Part::ToolResult(result) if is_program(&result.name) => result.name = RUN_COMMAND.to_owned(),
            _ => {}
        }
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_core::message::{CallId, Role, ToolCall, ToolResult};

    #[test]
    fn p3_the_description_names_all_programs_within_the_limit() {
        let about = "Counts lines. ".repeat(40);
        let names: Vec<String> = (0..60).map(|number| format!("program-{number}")).collect();
        let programs: Vec<_> = names.iter().map(|name| ProgramTool { name, about: Some(about.as_str()) }).collect();
        let tool = definition(&programs);
        assert!(tool.description.len() <= 2 * 1024 && tool.description.contains("- program-0: Counts lines."));
        assert!(tool.description.contains(" more, which the schema names"), "{}", tool.description);
        assert_eq!(tool.input_schema["properties"]["command"]["enum"].as_array().map(Vec::len), Some(60));
        let short = definition(&[ProgramTool { name: "wc", about: None }]);
        assert!(short.description.ends_with("\n- wc"), "{}", short.description);
    }

    #[test]
    fn p3_a_call_is_shown_to_the_model_as_it_was_written() {
        let written = json!({"command": "wc", "args": ["-l"], "stdin": "a\n"});
        let (program, arguments) = split(&written).expect("the arguments name a program");
        assert_eq!((program.as_str(), &arguments), ("wc", &json!({"args": ["-l"], "stdin": "a\n"})));
        assert_eq!(split(&json!({"args": []})), None);
        let id = CallId("1.1.1".to_owned());
        let call = |name: &str, arguments: Value| {
            Part::ToolCall(ToolCall { id: id.clone(), name: name.to_owned(), arguments })
        };
        let result = ToolResult { call_id: id.clone(), name: "wc".to_owned(), content: Vec::new(), is_error: false };
        let parts = vec![call("wc", arguments), call("other", json!({})), Part::ToolResult(result)];
        let message = Message { role: Role::Assistant, parts, seen_count: 0 };
        let shown = as_calls_of_one_tool(message, |name| name == "wc");
        assert_eq!(shown.parts[0], call("run_command", written));
        assert_eq!(shown.parts[1], call("other", json!({})));
        assert!(matches!(&shown.parts[2], Part::ToolResult(result) if result.name == "run_command"));
    }
}
