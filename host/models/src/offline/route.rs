//! Decides which tool a prompt in prose means, or suggests tools if the prompt is not clear.

use super::arguments::{self, Arguments, Certainty};
use super::prompt_reader::{self, ParsedPrompt, Token, TokenKind};
use super::tool_schema::{self, Kind, Presence, Property};
use agent_core::model::OfferedTool;
use agent_core::nearest::{FUNCTION_WORDS, Index, terms};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Minimum ratio between the score of the chosen tool and the second-highest score. In this comparison, only tools
/// whose arguments are in the prompt count. In addition, no tool may have a score that exceeds the score of the chosen
/// tool by more than this factor, even if the arguments of that tool are not in the prompt.
const MIN_SCORE_RATIO: f32 = 1.2;

/// Maximum number of suggested tools.
const MAX_SUGGESTIONS: usize = 3;

/// Words that are common in requests and do not describe the subject of a request. They are ignored, like
/// function words.
const REQUEST_WORDS: &[&str] = &[
    "about", "all", "also", "answer", "any", "could", "equal", "give", "hello", "hey", "hi", "i", "just", "kindly",
    "let", "like", "many", "much", "need", "number", "now", "result", "say", "see", "shall", "should", "show", "so",
    "tell", "thank", "thanks", "us", "use", "using", "value", "want", "we", "would",
];

/// Words that may accompany an arithmetic expression. Other words, as in "half of" or "the square root of", would
/// change the calculation.
const ARITHMETIC_WORDS: &[&str] =
    &["arithmetic", "calc", "calculate", "compute", "evaluate", "exactly", "expression", "out", "solve", "work"];

/// A tool and the arguments that were found for it.
pub(super) struct Candidate<'a> {
    pub(super) tool: &'a OfferedTool,
    /// BM25 score of the tool for the prompt.
    pub(super) score: f32,
    properties: Vec<Property>,
    /// Arguments that were found in the prompt.
    arguments: Arguments,
    /// The path in the prompt, if there is exactly one.
    path: Option<String>,
}

/// Decision about the tool that a prompt means.
pub(super) enum Route<'a> {
    /// The prompt clearly means this tool.
    Call(Candidate<'a>),
    /// The prompt is not clear. Contains at most three suggested tools, the best first. The list is empty if no tool
    /// shares a word with the prompt.
    Suggest(Vec<Candidate<'a>>),
}

/// Decides which tool a prompt in prose means.
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
    /// Returns the arguments that were found in the prompt, as JSON.
    pub(super) fn arguments(&self) -> String {
        Value::Object(self.arguments.values.clone()).to_string()
    }

    /// Returns the arguments for a suggested call line: the values that were found, and placeholders for the other
    /// required arguments.
    pub(super) fn template(&self) -> Value {
        let arguments = self.properties.iter().filter_map(|property| {
            let value = match (self.arguments.values.get(&property.name), property.presence) {
                (Some(value), _) => value.clone(),
                (None, Presence::Required) => property.kind.placeholder(self.path.as_deref()),
                (None, Presence::Optional) => return None,
            };
            Some((property.name.clone(), value))
        });
        json!(arguments.collect::<serde_json::Map<_, _>>())
    }

    /// Returns whether the prompt contains all required arguments. If the tool has no required arguments, the prompt
    /// must instead contain all words of its name.
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

/// Builds a query that finds the tools for the prompt. The query consists of the words of the prompt and the words that
/// [`hint`] returns for each token. Quoted text is not part of the query.
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

/// Returns whether the whole prompt is about the tool. Apart from request words and function words, each word of the
/// prompt must occur in the tool's name, schema or description. If the prompt contains an arithmetic expression,
/// [`ARITHMETIC_WORDS`] are allowed instead of the words of the description. Otherwise, the prompt must contain at
/// least one word that is neither a request word nor a function word.
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
