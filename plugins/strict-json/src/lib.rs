//! An output validator for agents whose answers must be JSON. The validator repairs errors if the text has a single
//! possible meaning, and explains all other errors.

pub mod candidate;
pub mod duplicates;
pub mod locate;
pub mod repair;

use agent_host_sdk::json::pointer_at;
use agent_host_sdk::output_validator::{Output, OutputValidator, Problem, Request, Verdict};
use agent_host_sdk::types::Failure;
use candidate::{Candidate, SearchResult, find};
use duplicates::duplicate_keys;
use locate::Position;
use repair::repair;

/// The sentence that tells the model what to answer. Most rejections contain this sentence.
const REQUIREMENT: &str = "Answer with one JSON value and nothing else: no prose before or after it, no code fence.";

/// Maximum number of problems in one rejection.
const MAX_PROBLEMS: usize = 10;

/// The plugin, which is an output validator.
pub struct StrictJson;

impl OutputValidator for StrictJson {
    fn validate(request: Request) -> Result<Verdict, Failure> {
        Ok(judge(&request.text, Schema::of(&request)))
    }
}

agent_host_sdk::export_output_validator!(StrictJson);

/// Whether the agent has an output schema. This plugin does not check the output, because the host checks the output
/// against the schema after the validators. If there is a schema, the plugin mentions the schema when it rejects prose,
/// and accepts valid JSON without returning a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Schema {
    /// The agent has a schema. The host parses the text and checks it against the schema.
    Present,
    /// The agent has no schema. The host does not parse the text.
    Absent,
}

impl Schema {
    fn of(request: &Request) -> Self {
        if request.output_schema.is_some() { Schema::Present } else { Schema::Absent }
    }
}

/// Accepts valid JSON, repairs text with a single possible meaning, and rejects all other text.
pub fn judge(text: &str, schema: Schema) -> Verdict {
    let candidate = match find(text) {
        SearchResult::One(candidate) => candidate,
        SearchResult::None => return Verdict::reject("", no_json_message(text, schema)),
        SearchResult::Several(offsets) => return Verdict::reject("", several_values_message(text, &offsets)),
    };
    let (json, duplicates) = match duplicate_keys(candidate.text) {
        Ok(duplicates) => (candidate.text.to_owned(), duplicates),
        Err(error) => match repaired_json(candidate.text) {
            Some(repaired_json) => repaired_json,
            None => return Verdict::Reject(vec![malformed(text, candidate, &error)]),
        },
    };
    let problems: Vec<Problem> = duplicates.into_iter().take(MAX_PROBLEMS).map(ambiguous).collect();
    if !problems.is_empty() {
        return Verdict::Reject(problems);
    }
    if json == text && schema == Schema::Present {
        return Verdict::Accept;
    }
    // Without a schema, the host treats an accepted text as a string. The JSON is therefore returned explicitly, even
    // if the text did not change.
    Verdict::AcceptAs(Output::Json(json))
}

/// Tries to repair a text. Returns the repaired JSON, and the JSON pointers of all duplicate keys. Returns None if the
/// text cannot be repaired.
fn repaired_json(text: &str) -> Option<(String, Vec<String>)> {
    let json = repair(text)?;
    let duplicates = duplicate_keys(&json).ok()?;
    Some((json, duplicates))
}

fn no_json_message(text: &str, schema: Schema) -> String {
    let problem = if text.trim().is_empty() { "The answer is empty." } else { "The answer is prose, not JSON." };
    let schema_note = match schema {
        Schema::Present => " The value must satisfy the output schema.",
        Schema::Absent => "",
    };
    format!("{problem} {REQUIREMENT}{schema_note}")
}

fn several_values_message(text: &str, offsets: &[usize]) -> String {
    let lines: Vec<String> = offsets.iter().map(|offset| Position::of(text, *offset).line.to_string()).collect();
    format!(
        "The answer contains more than one JSON value (at lines {}), and it is not clear which one is meant. {REQUIREMENT}",
        lines.join(", ")
    )
}

fn malformed(text: &str, candidate: Candidate<'_>, error: &serde_json::Error) -> Problem {
    let offset = locate::offset_of(candidate.text, error.line(), error.column());
    let position = Position::of(text, candidate.start + offset);
    let problem = error.to_string();
    let problem = problem.rfind(" at line ").map_or(problem.as_str(), |at| &problem[..at]);
    let pointer = pointer_at(candidate.text, offset);
    let hint = if error.is_eof() { " The JSON is cut off; shorten it if it is too long." } else { "" };
    let message = format!(
        "Line {}, column {}: {problem}, near `{}`.{hint} {REQUIREMENT}",
        position.line,
        position.column,
        locate::excerpt(text, candidate.start + offset)
    );
    Problem { pointer, message }
}

fn ambiguous(pointer: String) -> Problem {
    Problem::new(pointer, "The object has this key twice, so its value is ambiguous. Give each key once.")
}
