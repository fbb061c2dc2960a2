//! Decides which tool a prompt in prose means, or suggests several tools if this is not clear.

use super::arguments::{self, Arguments, Certainty};
use super::prompt_reader::{self, ParsedPrompt, Token, TokenKind};
use super::tool_schema::{self, Kind, Presence, Property};
use agent_core::model::OfferedTool;
use agent_core::nearest::{FUNCTION_WORDS, Index, terms};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Factor by which the score of the chosen tool must exceed the scores of all other tools whose arguments are in the
/// prompt. A tool whose arguments are not in the prompt may have a higher score than the chosen tool, but by at most
/// this factor.
const MIN_SCORE_RATIO: f32 = 1.2;

/// Maximum number of tools that an answer suggests.
const MAX_SUGGESTIONS: usize = 3;

/// Words that are common in requests and do not describe the subject of a request. The router ignores these words in
/// addition to function words.
const REQUEST_WORDS: &[&str] = &[
    "about", "all", "also", "answer", "any", "could", "equal", "give", "hello", "hey", "hi", "i", "just", "kindly",
    "let", "like", "many", "much", "need", "number", "now", "result", "say", "see", "shall", "should", "show", "so",
    "tell", "thank", "thanks", "us", "use", "using", "value", "want", "we", "would",
];

/// Words that may accompany an arithmetic expression without changing the calculation. The words of phrases such as
/// "half of" or "the square root of" are left out, because such phrases change the calculation.
const ARITHMETIC_WORDS: &[&str] =
    &["arithmetic", "calc", "calculate", "compute", "evaluate", "exactly", "expression", "out", "solve", "work"];

/// A tool that the prompt may mean, and the arguments for this tool that were found in the prompt.
pub(super) struct Candidate<'a> {
    pub(super) tool: &'a OfferedTool,
    /// BM25 score of the tool's name and description for the prompt. A higher score is a better match.
    pub(super) score: f32,
    properties: Vec<Property>,
    /// Arguments for the tool that were found in the prompt.
    arguments: Arguments,
    /// The path in the prompt, if the prompt contains exactly one path.
    path: Option<String>,
}

/// The decision about which tool a prompt means.
pub(super) enum Route<'a> {
    /// The prompt clearly means this tool.
    Call(Candidate<'a>),
    /// It is not clear which tool the prompt means. The list contains at most three suggested tools, the best match
    /// first. If no tool shares a word with the prompt, the list is empty.
    Suggest(Vec<Candidate<'a>>),
}

/// Decides which of the tools a prompt in prose refers to.
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

/// Returns at most three tools whose names and descriptions are most similar to `name`.
pub(super) fn nearest<'a>(name: &str, tools: &'a [OfferedTool]) -> Vec<Candidate<'a>> {
    let index = Index::new(tools.iter().map(|tool| (&tool.author_name, &tool.description)));
    let nearest = index.nearest(name, MAX_SUGGESTIONS).into_iter();
    nearest.map(|(position, score)| candidate(&tools[position], score, &ParsedPrompt::default())).collect()
}

impl Candidate<'_> {
    /// Returns the arguments for the tool that were found in the prompt, as JSON.
    pub(super) fn arguments(&self) -> String {
        Value::Object(self.arguments.values.clone()).to_string()
    }

    /// Returns the arguments for a call line that the router suggests to the user: the values that were found in the
    /// prompt, and placeholders for the other required arguments.
    pub(super) fn template(&self) -> Value {
        let arguments = self.properties.iter().filter_map(|property| {
            let value = match (self.arguments.values.get(&property.name), property.presence) {
                (Some(value), _) => value.clone(),
                (None, Presence::Required) => property.placeholder(self.path.as_deref()),
                (None, Presence::Optional) => return None,
            };
            Some((property.name.clone(), value))
        });
        json!(arguments.collect::<serde_json::Map<_, _>>())
    }

    /// Returns whether the prompt clearly determines the arguments of the tool. For a tool without required arguments,
    /// the prompt must also contain all words of the tool's name.
    fn is_callable(&self, parsed: &ParsedPrompt) -> bool {
        let has_required = self.properties.iter().any(|property| property.presence == Presence::Required);
        let mentioned: BTreeSet<String> = parsed.words.iter().flat_map(|word| terms(word)).collect();
        let is_named = || terms(&self.tool.author_name).iter().all(|term| mentioned.contains(term));
        self.arguments.certainty == Certainty::Clear && (has_required || is_named())
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

/// Builds the query that is used to search for tools for the prompt. The query consists of the words of the prompt and
/// the words that [`hint`] returns for each token. Text in quotation marks is not part of the query.
fn query(parsed: &ParsedPrompt) -> String {
    let mut query = parsed.words.join(" ");
    for token in &parsed.tokens {
        query.push(' ');
        query.push_str(hint(token));
    }
    query
}

/// Returns words that are likely to occur in the description of a tool that accepts the token.
fn hint(token: &Token) -> &str {
    match token.kind {
        TokenKind::Expression => "calculate evaluate arithmetic expression",
        TokenKind::Url => "url web address",
        TokenKind::Path if token.text.ends_with('/') => "directory",
        TokenKind::Path => token.text.rsplit(['.', '/']).next().unwrap_or_default(),
        TokenKind::Quoted | TokenKind::Number => "",
    }
}

/// Returns whether the whole prompt is about the tool. This function ignores request words and function words. Each
/// other word of the prompt must occur in the tool's name, schema or description. If the prompt contains an arithmetic
/// expression, [`ARITHMETIC_WORDS`] replaces the description in this comparison. Without an arithmetic expression, the
/// prompt must contain at least one word that is not ignored.
fn covers_prompt(candidate: &Candidate, parsed: &ParsedPrompt) -> bool {
    let tool = candidate.tool;
    let has_arithmetic = parsed.tokens.iter().any(|token| token.kind == TokenKind::Expression);
    let mut known: BTreeSet<String> = terms(&tool.author_name).into_iter().collect();
    match has_arithmetic {
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
    (has_arithmetic || !requested.is_empty()) && requested.iter().all(|term| known.contains(term))
}
