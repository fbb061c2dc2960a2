//! Plans of a turn (L24): the format of a plan, the parser for the planner's reply, and the prompts for the planner,
//! for each step and for the final answer.

use crate::prompt::without_headings;
use crate::schema::Schema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Maximum number of steps in a plan.
pub const MAX_STEPS: usize = 32;
/// Maximum number of characters of a step's task.
const MAX_TASK_LENGTH: usize = 2_000;

const PLANNER: &str = "Make a plan for this before anything is done. Another model carries it out, one tool call a step, and sees \
    the results of the steps before; you then write the answer from all results. Reply with JSON and nothing else: \
    {\"steps\": [{\"tool\": \"NAME\", \"task\": \"what this step does, with every fact that it needs\"}]}. As few steps as \
    will do, at most 32; none where no tool is needed. The tools:";

const SYNTHESIS: &str = "All steps of the plan are done; their results stand above. No tool can be called any more. Write the \
    answer now.";

/// One step of a plan: a task, and the tool that the planner expects the executor to call for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanStep {
    /// Name of the tool as its author wrote it.
    pub tool: String,
    /// The task in the planner's words.
    pub task: String,
}

/// JSON Schema of a planner's reply.
pub fn schema() -> Value {
    let string = |max_length: usize| json!({"type": "string", "minLength": 1, "maxLength": max_length});
    json!({
        "type": "object",
        "required": ["steps"],
        "additionalProperties": false,
        "properties": {
            "steps": {
                "type": "array",
                "maxItems": MAX_STEPS,
                "items": {
                    "type": "object",
                    "required": ["tool", "task"],
                    "additionalProperties": false,
                    "properties": {"tool": string(128), "task": string(MAX_TASK_LENGTH)},
                },
            },
        },
    })
}

/// Parses a planner's reply and checks it against [`schema`]. The error is a message for users.
pub fn read(reply: &str) -> Result<Vec<PlanStep>, String> {
    #[derive(Deserialize)]
    struct Plan {
        steps: Vec<PlanStep>,
    }
    let json: Value = serde_json::from_str(unfenced(reply)).map_err(|error| format!("it is not JSON: {error}"))?;
    let schema = Schema::compile(&schema()).map_err(|error| error.to_string())?;
    schema.check(&json).map_err(|violations| {
        let lines = violations.iter().map(|violation| format!("{} {}", violation.pointer, violation.message));
        lines.collect::<Vec<_>>().join("; ").trim().to_owned()
    })?;
    serde_json::from_value::<Plan>(json).map(|plan| plan.steps).map_err(|error| error.to_string())
}

/// Returns the prompt for the planner, with the names and descriptions of all tools.
pub fn planner_prompt<'t>(tools: impl Iterator<Item = (&'t str, &'t str)>) -> String {
    let lines = tools.map(|(name, description)| format!("\n- `{name}`: {}", without_headings(description)));
    format!("{PLANNER}{}", lines.collect::<String>())
}

/// Returns the prompt for the executor in step `number` of a plan with `total` steps. The first step has number 1.
pub fn step_prompt(step: &PlanStep, number: u32, total: u32) -> String {
    let PlanStep { tool, task } = step;
    format!(
        "Step {number} of {total} of the plan: {task}\nCall exactly one tool for this step, probably `{tool}`. The results of \
         the steps before stand above."
    )
}

/// Returns the prompt that tells the planner to write the answer after all steps are done.
pub fn synthesis_prompt() -> &'static str {
    SYNTHESIS
}

/// Removes a code fence around JSON. Some models add a code fence although the prompt asks for JSON only.
fn unfenced(reply: &str) -> &str {
    let reply = reply.trim();
    let inside = reply.strip_prefix("```").and_then(|rest| rest.strip_suffix("```"));
    inside.map_or(reply, |inside| inside.strip_prefix("json").unwrap_or(inside))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(tool: &str, task: &str) -> PlanStep {
        PlanStep { tool: tool.into(), task: task.into() }
    }

    #[test]
    fn l24_a_plan_is_parsed() {
        let plan = r#"{"steps": [{"tool": "ocr.extract", "task": "read it"}]}"#;
        for reply in [plan.to_owned(), format!("\n```json\n{plan}\n```\n"), format!("```\n{plan}```")] {
            assert_eq!(read(&reply), Ok(vec![step("ocr.extract", "read it")]), "{reply}");
        }
        assert_eq!(read(r#"{"steps": []}"#), Ok(vec![]));
    }

    /// L24: a plan is checked against its schema.
    #[test]
    fn l24_an_invalid_plan_is_refused_with_the_reason() {
        let too_many = json!({"steps": vec![json!({"tool": "t", "task": "x"}); MAX_STEPS + 1]}).to_string();
        let cases = [
            ("I would first read the file.", "not JSON"),
            ("", "not JSON"),
            ("[]", "object"),
            ("{}", "steps"),
            (r#"{"steps": [{"tool": "t"}]}"#, "/steps/0"),
            (r#"{"steps": [{"tool": "t", "task": ""}]}"#, "/steps/0/task"),
            (r#"{"steps": [{"tool": 1, "task": "x"}]}"#, "/steps/0/tool"),
            (r#"{"steps": [], "answer": 42}"#, "answer"),
            (too_many.as_str(), "32"),
        ];
        for (reply, expected) in cases {
            let problem = read(reply).expect_err(reply);
            assert!(problem.contains(expected), "{reply}: {problem}");
        }
        assert!(read(&json!({"steps": vec![json!({"tool": "t", "task": "x"}); MAX_STEPS]}).to_string()).is_ok());
    }

    #[test]
    fn l24_prompts_contain_tools_and_steps() {
        let prompt = planner_prompt([("text.count", "Counts."), ("files.read", "Reads.")].into_iter());
        assert!(prompt.ends_with("The tools:\n- `text.count`: Counts.\n- `files.read`: Reads."), "{prompt}");
        let prompt = step_prompt(&step("text.count", "Count a.txt."), 2, 3);
        assert!(prompt.starts_with("Step 2 of 3 of the plan: Count a.txt.") && prompt.contains("`text.count`"));
    }
}
