//! An output validator for agents whose answer must be JSON. It repairs text with only one possible meaning, and
//! explains all other errors.

pub mod candidate;
pub mod duplicates;
pub mod locate;
pub mod repair;

use agent_host_sdk::json::pointer_at;
use agent_host_sdk::output_validator::{Output, OutputValidator, Problem, Request, Verdict};
use agent_host_sdk::types::Failure;
use candidate::{Candidate, SearchResult, find};
use duplicates::duplicate_keys;
use locate::Place;
use repair::repair;

/// The end of every rejection.
const REQUIREMENT: &str = "Answer with one JSON value and nothing else: no prose before or after it, no code fence.";

/// Maximum number of problems in one rejection.
const MAX_PROBLEMS: usize = 10;

/// The plugin, an output validator.
pub struct StrictJson;

impl OutputValidator for StrictJson {
    fn validate(request: Request) -> Result<Verdict, Failure> {
        Ok(judge(&request.text, Schema::of(&request)))
    }
}

agent_host_sdk::export_output_validator!(StrictJson);

/// Whether the agent has an output schema. The host checks the schema after the validators; here it only affects
/// messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Schema {
    /// The host parses the text and checks it against the schema.
    Present,
    /// The host does not parse the text.
    Absent,
}

impl Schema {
    fn of(request: &Request) -> Self {
        if request.output_schema.is_some() { Schema::Present } else { Schema::Absent }
    }
}

/// Accepts valid JSON, repairs text with only one possible meaning, and rejects everything else.
pub fn judge(text: &str, schema: Schema) -> Verdict {
    let candidate = match find(text) {
        SearchResult::One(candidate) => candidate,
        SearchResult::None => return Verdict::reject("", no_json(text, schema)),
        SearchResult::Several(places) => return Verdict::reject("", several(text, &places)),
    };
    let (json, duplicates) = match duplicate_keys(candidate.text) {
        Ok(duplicates) => (candidate.text.to_owned(), duplicates),
        Err(error) => match repaired(candidate.text) {
            Some(repaired) => repaired,
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
    // Without a schema, accepted text would stay a string, but the answer of this agent is always JSON.
    Verdict::AcceptAs(Output::Json(json))
}

/// The repaired JSON and its duplicate keys; None if it cannot be repaired.
fn repaired(text: &str) -> Option<(String, Vec<String>)> {
    let json = repair(text)?;
    let duplicates = duplicate_keys(&json).ok()?;
    Some((json, duplicates))
}

fn no_json(text: &str, schema: Schema) -> String {
    let what = if text.trim().is_empty() { "The answer is empty." } else { "The answer is prose, not JSON." };
    let schema_note = match schema {
        Schema::Present => " The value must satisfy the output schema.",
        Schema::Absent => "",
    };
    format!("{what} {REQUIREMENT}{schema_note}")
}

fn several(text: &str, places: &[usize]) -> String {
    let lines: Vec<String> = places.iter().map(|offset| Place::of(text, *offset).line.to_string()).collect();
    format!(
        "The answer contains more than one JSON value (at lines {}), and it is not clear which one is meant. {REQUIREMENT}",
        lines.join(", ")
    )
}

fn malformed(text: &str, candidate: Candidate<'_>, error: &serde_json::Error) -> Problem {
    let offset = locate::offset_of(candidate.text, error.line(), error.column());
    let place = Place::of(text, candidate.start + offset);
    let what = error.to_string();
    let what = what.rfind(" at line ").map_or(what.as_str(), |at| &what[..at]);
    let pointer = pointer_at(candidate.text, offset);
    let hint = if error.is_eof() { " The JSON is cut off; shorten it if it is too long." } else { "" };
    let message = format!(
        "Line {}, column {}: {what}, near `{}`.{hint} {REQUIREMENT}",
        place.line,
        place.column,
        locate::excerpt(text, candidate.start + offset)
    );
    Problem { pointer, message }
}

fn ambiguous(pointer: String) -> Problem {
    Problem::new(pointer, "The object has this key twice, so its value is ambiguous. Give each key once.")
}
