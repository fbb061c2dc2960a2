//! Decides which tool a prose prompt means, if that is clear.

use super::arguments::{self, Arguments, Certainty};
use super::prompt_reader::{self, ParsedPrompt, Token, TokenKind};
use super::tool_schema::{self, Kind, Presence, Property};
use agent_core::model::OfferedTool;
use agent_core::nearest::{FUNCTION_WORDS, Index, terms};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Ratio by which the best tool's score must exceed the next one's. Only tools whose arguments are in the prompt count
/// as rivals. A tool whose arguments are not in the prompt may score higher by at most this ratio.
const MIN_SCORE_RATIO: f32 = 1.2;

/// Maximum number of suggested tools.
const MAX_SUGGESTIONS: usize = 3;

/// Words that phrase a request without saying what it is about, in addition to function words.
const REQUEST_WORDS: &[&str] = &[
    "about", "all", "also", "answer", "any", "could", "equal", "give", "hello", "hey", "hi", "i", "just", "kindly",
    "let", "like", "many", "much", "need", "number", "now", "result", "say", "see", "shall", "should", "show", "so",
    "tell", "thank", "thanks", "us", "use", "using", "value", "want", "we", "would",
];

/// Words about arithmetic. Any other word, as in "half of" or "the square root of", changes what must be calculated.
const ARITHMETIC_WORDS: &[&str] =
    &["arithmetic", "calc", "calculate", "compute", "evaluate", "exactly", "expression", "out", "solve", "work"];

/// A tool and the arguments that were found for it.
pub(super) struct Candidate<'a> {
    /// The tool.
    pub(super) tool: &'a OfferedTool,
    /// BM25 score, for the step record.
    pub(super) score: f32,
    properties: Vec<Property>,
    /// Arguments found in the prompt.
    arguments: Arguments,
    /// The path in the prompt, if there is exactly one.
    path: Option<String>,
}

/// The decision for a prompt.
pub(super) enum Route<'a> {
    /// Call this tool.
    Call(Candidate<'a>),
    /// Suggest at most three tools, the best first. The list is empty if no tool shares a word with the prompt.
    Suggest(Vec<Candidate<'a>>),
}

/// Routes a prose prompt.
pub(super) fn route<'a>(prompt: &str, tools: &'a [OfferedTool]) -> Route<'a> {
    let names: Vec<&str> = tools.iter().flat_map(|tool| [tool.author_name.as_str(), tool.name.as_str()]).collect();
    let parsed = prompt_reader::read(prompt, &names);
    let index = Index::new(tools.iter().map(|tool| (&tool.author_name, &tool.description)));
    let mut candidates: Vec<Candidate> = index
        .nearest(&query(&parsed), tools.len())
        .into_iter()
        .map(|(position, score)| candidate(&tools[position], score, &parsed))
        .collect();
    let mut callable = candidates.iter().enumerate().filter(|(_, candidate)| candidate.is_callable(&parsed));
    let first = callable.next().map(|(position, candidate)| (position, candidate.score));
    let second = callable.next().map_or(0.0, |(_, candidate)| candidate.score);
    if let Some((position, score)) = first
        && score >= second * MIN_SCORE_RATIO
        && score * MIN_SCORE_RATIO >= candidates[0].score
        && covers_prompt(&candidates[position], &parsed)
    {
        return Route::Call(candidates.swap_remove(position));
    }
    candidates.truncate(MAX_SUGGESTIONS);
    Route::Suggest(candidates)
}

/// Returns the three tools closest to a name.
pub(super) fn nearest<'a>(name: &str, tools: &'a [OfferedTool]) -> Vec<Candidate<'a>> {
    let index = Index::new(tools.iter().map(|tool| (&tool.author_name, &tool.description)));
    let nearest = index.nearest(name, MAX_SUGGESTIONS).into_iter();
    nearest.map(|(position, score)| candidate(&tools[position], score, &ParsedPrompt::default())).collect()
}

impl Candidate<'_> {
    /// Returns the arguments of an unambiguous call as JSON.
    pub(super) fn arguments(&self) -> String {
        Value::Object(self.arguments.values.clone()).to_string()
    }

    /// Returns the arguments to type: found values, and placeholders for other required arguments.
    pub(super) fn template(&self) -> Value {
        let shown = self.properties.iter().filter_map(|property| {
            let value = match (self.arguments.values.get(&property.name), property.presence) {
                (Some(value), _) => value.clone(),
                (None, Presence::Required) => property.kind.placeholder(self.path.as_deref()),
                (None, Presence::Optional) => return None,
            };
            Some((property.name.clone(), value))
        });
        json!(shown.collect::<serde_json::Map<_, _>>())
    }

    /// Returns whether all arguments are in the prompt. A tool without required arguments must be mentioned with all
    /// words of its name.
    fn is_callable(&self, parsed: &ParsedPrompt) -> bool {
        let requires = self.properties.iter().any(|property| property.presence == Presence::Required);
        let mentioned: BTreeSet<String> = parsed.words.iter().flat_map(|word| terms(word)).collect();
        let named = || terms(&self.tool.author_name).iter().all(|term| mentioned.contains(term));
        self.arguments.certainty == Certainty::Clear && (requires || named())
    }
}

fn candidate<'a>(tool: &'a OfferedTool, score: f32, parsed: &ParsedPrompt) -> Candidate<'a> {
    let properties = tool_schema::properties(&tool.input_schema);
    let arguments = arguments::fill(&properties, parsed);
    Candidate { tool, score, properties, arguments, path: only_path(parsed) }
}

fn only_path(parsed: &ParsedPrompt) -> Option<String> {
    let mut paths = parsed.tokens.iter().filter(|token| token.kind == TokenKind::Path);
    paths.next().filter(|_| paths.next().is_none()).map(|token| token.text.clone())
}

/// Builds the search query from the plain words and hints from the tokens. Quoted text is not part of the query.
fn query(parsed: &ParsedPrompt) -> String {
    let mut query = parsed.words.join(" ");
    for token in &parsed.tokens {
        query.push(' ');
        query.push_str(hint(token));
    }
    query
}

fn hint(token: &Token) -> &str {
    match token.kind {
        TokenKind::Expression => "calculate evaluate arithmetic expression",
        TokenKind::Url => "url web address",
        TokenKind::Path if token.text.ends_with('/') => "directory",
        TokenKind::Path => token.text.rsplit(['.', '/']).next().unwrap_or_default(),
        TokenKind::Quoted | TokenKind::Number => "",
    }
}

/// Returns whether the whole prompt is about the tool: each word that is not a mere request word occurs in its name,
/// description or schema, and there is at least one such word or arithmetic.
fn covers_prompt(candidate: &Candidate, parsed: &ParsedPrompt) -> bool {
    let tool = candidate.tool;
    let arithmetic = parsed.tokens.iter().any(|token| token.kind == TokenKind::Expression);
    let mut known: BTreeSet<String> = terms(&tool.author_name).into_iter().collect();
    match arithmetic {
        true => known.extend(ARITHMETIC_WORDS.iter().map(|word| (*word).to_owned())),
        false => known.extend(terms(&tool.description)),
    }
    for property in &candidate.properties {
        known.extend(terms(&property.name));
        if let Kind::Choice(values) = &property.kind {
            known.extend(values.iter().filter_map(Value::as_str).flat_map(terms));
        }
    }
    let requested = parsed.words.iter().flat_map(|word| terms(word));
    let requested: Vec<String> = requested
        .filter(|term| !REQUEST_WORDS.contains(&term.as_str()) && !FUNCTION_WORDS.contains(&term.as_str()))
        .collect();
    (arithmetic || !requested.is_empty()) && requested.iter().all(|term| known.contains(term))
}
