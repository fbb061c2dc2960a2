//! An output validator for agents whose answer must be JSON: it repairs what has one meaning only, and explains the
//! rest.

pub mod candidate;
pub mod duplicates;
pub mod locate;
pub mod repair;

use agent_host_sdk::json::pointer_at;
use agent_host_sdk::output_validator::{Output, OutputValidator, Problem, Request, Verdict};
use agent_host_sdk::types::Failure;
use candidate::{Candidate, Found, find};
use duplicates::duplicate_keys;
use locate::Place;
use repair::repair;

/// What every rejection ends with.
const DEMAND: &str = "Answer with one JSON value and nothing else: no prose before or after it, no code fence.";

/// Problems told at once.
const MAX_PROBLEMS: usize = 10;

/// The plugin: one validator.
pub struct StrictJson;

impl OutputValidator for StrictJson {
    fn validate(request: Request) -> Result<Verdict, Failure> {
        Ok(judge(&request.text, Schema::of(&request)))
    }
}

agent_host_sdk::export_output_validator!(StrictJson);

/// Whether the agent has an output schema. The host checks it after the validators; here it only changes words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Schema {
    /// The host parses the text and checks it.
    Present,
    /// Without one, a text that is accepted as it is stays a text.
    Absent,
}

impl Schema {
    fn of(request: &Request) -> Self {
        if request.output_schema.is_some() { Schema::Present } else { Schema::Absent }
    }
}

/// Accepts strict JSON, accepts what can be repaired without a doubt in its repaired form, and rejects anything else.
pub fn judge(text: &str, schema: Schema) -> Verdict {
    let candidate = match find(text) {
        Found::One(candidate) => candidate,
        Found::None => return Verdict::reject("", no_json(text, schema)),
        Found::Several(places) => return Verdict::reject("", several(text, &places)),
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
    // Without a schema, text that is accepted as it is would stay a text: the agent's answer is JSON in every case.
    Verdict::AcceptAs(Output::Json(json))
}

/// The repaired JSON with its duplicate keys, if repairing is enough.
fn repaired(text: &str) -> Option<(String, Vec<String>)> {
    let json = repair(text)?;
    let duplicates = duplicate_keys(&json).ok()?;
    Some((json, duplicates))
}

fn no_json(text: &str, schema: Schema) -> String {
    let what = if text.trim().is_empty() { "The answer is empty." } else { "The answer is prose, not JSON." };
    let which = match schema {
        Schema::Present => " The value must satisfy the output schema.",
        Schema::Absent => "",
    };
    format!("{what} {DEMAND}{which}")
}

fn several(text: &str, places: &[usize]) -> String {
    let lines: Vec<String> = places.iter().map(|offset| Place::of(text, *offset).line.to_string()).collect();
    format!(
        "The answer holds more than one JSON value (at lines {}), and it is not clear which is meant. {DEMAND}",
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
        "Line {}, column {}: {what}, near `{}`.{hint} {DEMAND}",
        place.line,
        place.column,
        locate::excerpt(text, candidate.start + offset)
    );
    Problem { pointer, message }
}

fn ambiguous(pointer: String) -> Problem {
    Problem::new(pointer, "The object has this key twice, so its value is ambiguous. Give each key once.")
}
