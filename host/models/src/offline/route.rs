//! Which tool a prompt in prose means, if there is no doubt about it.

use super::arguments::{self, Arguments, Certainty};
use super::reading::{self, Reading, Token, TokenKind};
use super::schema::{self, Kind, Presence, Property};
use agent_core::model::OfferedTool;
use agent_core::nearest::{FUNCTION_WORDS, Index, terms};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// How many times nearer than the next one a tool must be to be clearly the nearest. Only tools whose arguments are in
/// the prompt as well count as rivals; one whose arguments are not may be nearer by no more than this.
const MARGIN: f32 = 1.2;

/// Tools that are shown where none is taken.
const SHOWN: usize = 3;

/// Words in which a prompt asks, whatever it asks for, besides function words.
const ASKING_WORDS: &[&str] = &[
    "about", "all", "also", "answer", "any", "could", "equal", "give", "hello", "hey", "hi", "i", "just", "kindly",
    "let", "like", "many", "much", "need", "number", "now", "result", "say", "see", "shall", "should", "show", "so",
    "tell", "thank", "thanks", "us", "use", "using", "value", "want", "we", "would",
];

/// Words about arithmetic; any other one (half of, the square root of) changes what is to be calculated.
const ARITHMETIC_WORDS: &[&str] =
    &["arithmetic", "calc", "calculate", "compute", "evaluate", "exactly", "expression", "out", "solve", "work"];

/// A tool with what was read for it.
pub(super) struct Candidate<'a> {
    /// Which.
    pub(super) tool: &'a OfferedTool,
    /// Of BM25; for the step record.
    pub(super) score: f32,
    properties: Vec<Property>,
    /// What could be read.
    arguments: Arguments,
    /// The only path in the prompt.
    path: Option<String>,
}

/// Where a prompt leads.
pub(super) enum Route<'a> {
    /// Call this one.
    Take(Candidate<'a>),
    /// At most three, the nearest first; empty where none has a word in common with the prompt.
    Choose(Vec<Candidate<'a>>),
}

/// Routes a prompt in prose.
pub(super) fn route<'a>(prompt: &str, tools: &'a [OfferedTool]) -> Route<'a> {
    let names: Vec<&str> = tools.iter().flat_map(|tool| [tool.author_name.as_str(), tool.name.as_str()]).collect();
    let reading = reading::read(prompt, &names);
    let index = Index::new(tools.iter().map(|tool| (&tool.author_name, &tool.description)));
    let mut candidates: Vec<Candidate> = index
        .nearest(&query(&reading), tools.len())
        .into_iter()
        .map(|(place, score)| candidate(&tools[place], score, &reading))
        .collect();
    let mut callable = candidates.iter().enumerate().filter(|(_, candidate)| candidate.is_callable(&reading));
    let first = callable.next().map(|(place, candidate)| (place, candidate.score));
    let second = callable.next().map_or(0.0, |(_, candidate)| candidate.score);
    if let Some((place, score)) = first
        && score >= second * MARGIN
        && score * MARGIN >= candidates[0].score
        && covers(&candidates[place], &reading)
    {
        return Route::Take(candidates.swap_remove(place));
    }
    candidates.truncate(SHOWN);
    Route::Choose(candidates)
}

/// The three tools nearest to a name.
pub(super) fn nearest<'a>(name: &str, tools: &'a [OfferedTool]) -> Vec<Candidate<'a>> {
    let index = Index::new(tools.iter().map(|tool| (&tool.author_name, &tool.description)));
    let nearest = index.nearest(name, SHOWN).into_iter();
    nearest.map(|(place, score)| candidate(&tools[place], score, &Reading::default())).collect()
}

impl Candidate<'_> {
    /// The arguments of a certain call.
    pub(super) fn arguments(&self) -> String {
        Value::Object(self.arguments.read.clone()).to_string()
    }

    /// What to type: values that were read, placeholders for the other required ones.
    pub(super) fn template(&self) -> Value {
        let shown = self.properties.iter().filter_map(|property| {
            let value = match (self.arguments.read.get(&property.name), property.presence) {
                (Some(value), _) => value.clone(),
                (None, Presence::Required) => property.kind.placeholder(self.path.as_deref()),
                (None, Presence::Optional) => return None,
            };
            Some((property.name.clone(), value))
        });
        json!(shown.collect::<serde_json::Map<_, _>>())
    }

    /// Whether its arguments are in the prompt. A tool that requires none must be called by all words of its name.
    fn is_callable(&self, reading: &Reading) -> bool {
        let requires = self.properties.iter().any(|property| property.presence == Presence::Required);
        let said: BTreeSet<String> = reading.words.iter().flat_map(|word| terms(word)).collect();
        let named = || terms(&self.tool.author_name).iter().all(|term| said.contains(term));
        self.arguments.certainty == Certainty::Certain && (requires || named())
    }
}

fn candidate<'a>(tool: &'a OfferedTool, score: f32, reading: &Reading) -> Candidate<'a> {
    let properties = schema::properties(&tool.input_schema);
    let arguments = arguments::fill(&properties, reading);
    Candidate { tool, score, properties, arguments, path: only_path(reading) }
}

fn only_path(reading: &Reading) -> Option<String> {
    let mut paths = reading.tokens.iter().filter(|token| token.kind == TokenKind::Path);
    paths.next().filter(|_| paths.next().is_none()).map(|token| token.text.clone())
}

/// The plain words, and what the tokens say about themselves. What stands in quotation marks is not asked for.
fn query(reading: &Reading) -> String {
    let mut query = reading.words.join(" ");
    for token in &reading.tokens {
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

/// Whether all that the prompt asks for is about the tool: each word that is not a mere word of asking stands in its
/// name, its description or its schema, and there is such a word, or arithmetic.
fn covers(candidate: &Candidate, reading: &Reading) -> bool {
    let tool = candidate.tool;
    let arithmetic = reading.tokens.iter().any(|token| token.kind == TokenKind::Expression);
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
    let asked = reading.words.iter().flat_map(|word| terms(word));
    let asked: Vec<String> = asked
        .filter(|term| !ASKING_WORDS.contains(&term.as_str()) && !FUNCTION_WORDS.contains(&term.as_str()))
        .collect();
    (arithmetic || !asked.is_empty()) && asked.iter().all(|term| known.contains(term))
}
