//! Finds the values of a tool's arguments in a prompt. A value is used only if the rules below determine it uniquely,
//! and each token is used for at most one property.

use super::prompt_reader::{ParsedPrompt, Token, TokenKind, is_path};
use super::tool_schema::{Kind, Presence, Property};
use serde_json::{Map, Number, Value, json};

/// The arguments for one tool that were found in a prompt.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Arguments {
    /// Values of the arguments that were found, in the order of the schema.
    pub(super) values: Map<String, Value>,
    /// Whether the prompt clearly determines these arguments.
    pub(super) certainty: Certainty,
}

/// Whether a prompt clearly determines the arguments of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Certainty {
    /// The prompt is clear, all required arguments were found, and all tokens of the prompt were used.
    Clear,
    /// A required argument is missing, a token is unused, or the prompt is unclear.
    Ambiguous,
}

/// Finds values for the properties among the tokens and words of the prompt. These rules for tokens are applied
/// in order:
///
/// 1. A token that directly follows the name of a property is the value of this property.
/// 2. If exactly one required property and exactly one token have the same kind, the token is the value of
///    the property.
/// 3. If exactly one optional property and exactly one token have the same kind, and if this kind is path, URL or
///    expression, the token is the value of the property.
pub(super) fn fill(properties: &[Property], prompt: &ParsedPrompt) -> Arguments {
    let mut filler = ArgumentFiller {
        properties,
        prompt,
        claimed: vec![false; prompt.tokens.len()],
        claimed_words: Vec::new(),
        values: vec![None; properties.len()],
    };
    filler.fill_by_name();
    filler.fill_by_kind(Presence::Required);
    filler.fill_choices(Presence::Required);
    filler.fill_by_kind(Presence::Optional);
    filler.fill_choices(Presence::Optional);
    let is_missing =
        |(property, value): (&Property, &Option<Value>)| property.presence == Presence::Required && value.is_none();
    let has_missing = properties.iter().zip(&filler.values).any(is_missing);
    let has_unused_tokens = filler.claimed.contains(&false);
    let is_ambiguous = has_missing || has_unused_tokens || prompt.unclear.is_some();
    let values = properties.iter().zip(filler.values);
    Arguments {
        values: values.filter_map(|(property, value)| Some((property.name.clone(), value?))).collect(),
        certainty: if is_ambiguous { Certainty::Ambiguous } else { Certainty::Clear },
    }
}

struct ArgumentFiller<'a> {
    properties: &'a [Property],
    prompt: &'a ParsedPrompt,
    /// States for each token of the prompt whether the token was used.
    claimed: Vec<bool>,
    /// Indexes of the prompt's words that were used as values of properties that allow only listed values.
    claimed_words: Vec<usize>,
    /// Value of each property, or `None` for a property without a value.
    values: Vec<Option<Value>>,
}

impl ArgumentFiller<'_> {
    fn fill_by_name(&mut self) {
        for (index, property) in self.properties.iter().enumerate() {
            let name = property.name.to_lowercase();
            // `first 10` may be a count or a start position, so a number requires `first=10` or `first: 10`.
            let is_numeric = matches!(property.kind, Kind::Number | Kind::Integer);
            let follows_name = |token: &Token| match token.before.strip_suffix('=') {
                Some(before) => before == name,
                None => token.before == name && !is_numeric,
            };
            if let Some((token, value)) = self.only_token(&property.kind, &follows_name) {
                self.claim(index, token, value);
            }
        }
    }

    fn fill_by_kind(&mut self, presence: Presence) {
        let open_properties: Vec<usize> =
            (0..self.properties.len()).filter(|&index| self.is_open(index, presence)).collect();
        for &index in &open_properties {
            let kind = &self.properties[index].kind;
            let candidates =
                open_properties.iter().filter(|&&other| accept_same_tokens(kind, &self.properties[other].kind)).count();
            let is_distinctive = matches!(kind, Kind::Path | Kind::Url | Kind::Expression);
            if candidates > 1 || (presence == Presence::Optional && !is_distinctive) {
                continue;
            }
            if let Some((token, value)) = self.only_token(kind, &|_| true) {
                self.claim(index, token, value);
            }
        }
    }

    /// If a property allows only certain values and the prompt mentions exactly one of them exactly once, this value is
    /// the value of the property. A required property that allows only one value always gets this value.
    fn fill_choices(&mut self, presence: Presence) {
        for index in 0..self.properties.len() {
            let Kind::Choice(values) = &self.properties[index].kind else {
                continue;
            };
            if !self.is_open(index, presence) {
                continue;
            }
            if let ([only], Presence::Required) = (values.as_slice(), presence) {
                self.values[index] = Some(only.clone());
                continue;
            }
            let mentions: Vec<(usize, &Value)> = values.iter().flat_map(|value| self.mentions(value)).collect();
            if let [(word, value)] = mentions[..]
                && !self.claimed_words.contains(&word)
            {
                self.claimed_words.push(word);
                self.values[index] = Some(value.clone());
            }
        }
    }

    /// Finds the words of the prompt that equal `value` without regard to case. The result contains the index of each
    /// such word, paired with `value`.
    fn mentions<'a>(&self, value: &'a Value) -> Vec<(usize, &'a Value)> {
        let Some(text) = value.as_str().map(str::to_lowercase) else {
            return Vec::new();
        };
        let words = self.prompt.words.iter().enumerate();
        words.filter(|(_, word)| **word == text).map(|(index, _)| (index, value)).collect()
    }

    fn is_open(&self, index: usize, presence: Presence) -> bool {
        self.values[index].is_none() && self.properties[index].presence == presence
    }

    fn claim(&mut self, index: usize, token: usize, value: Value) {
        self.claimed[token] = true;
        self.values[index] = Some(value);
    }

    /// If exactly one unused token has this kind and matches `filter`, returns the index and the value of this token. A
    /// path in quotation marks is considered only if no other path matches.
    fn only_token(&self, kind: &Kind, filter: &dyn Fn(&Token) -> bool) -> Option<(usize, Value)> {
        let unused = || {
            let tokens = self.prompt.tokens.iter().enumerate();
            tokens.filter(|(index, token)| !self.claimed[*index] && filter(token))
        };
        let only = |mut matches: Vec<(usize, Value)>| (matches.len() == 1).then(|| matches.remove(0));
        let unquoted: Vec<_> = unused().filter_map(|(index, token)| Some((index, value(kind, token)?))).collect();
        if !unquoted.is_empty() || *kind != Kind::Path {
            return only(unquoted);
        }
        let quoted = unused().filter(|(_, token)| token.kind == TokenKind::Quoted && is_path(&token.text));
        only(quoted.map(|(index, token)| (index, json!(token.text))).collect())
    }
}

/// Returns whether properties of the two kinds accept the same tokens.
fn accept_same_tokens(left: &Kind, right: &Kind) -> bool {
    let is_numeric = |kind: &Kind| matches!(kind, Kind::Number | Kind::Integer);
    left == right || (is_numeric(left) && is_numeric(right))
}

/// Converts a token to the value of a property of this kind. Returns `None` if properties of this kind do not accept
/// the token.
fn value(kind: &Kind, token: &Token) -> Option<Value> {
    match (kind, token.kind) {
        (Kind::Path, TokenKind::Path)
        | (Kind::Url, TokenKind::Url)
        | (Kind::Expression, TokenKind::Expression)
        | (Kind::Text, TokenKind::Quoted) => Some(json!(token.text)),
        (Kind::Integer, TokenKind::Number) => token.text.parse::<i64>().ok().map(|number| json!(number)),
        (Kind::Number, TokenKind::Number) => match token.text.parse::<i64>() {
            Ok(number) => Some(json!(number)),
            Err(_) => token.text.parse().ok().and_then(Number::from_f64).map(Value::Number),
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::offline::{prompt_reader, tool_schema};

    /// Returns the arguments that were found, as JSON. If the prompt is ambiguous, a question mark precedes the JSON.
    fn filled(tool_schema: &Value, prompt: &str) -> String {
        let arguments = fill(&tool_schema::properties(tool_schema), &prompt_reader::read(prompt, &[]));
        let mark = if arguments.certainty == Certainty::Clear { "" } else { "? " };
        format!("{mark}{}", Value::Object(arguments.values))
    }

    fn check(tool_schema: Value, cases: &[(&str, &str)]) {
        for (prompt, expected) in cases {
            assert_eq!(filled(&tool_schema, prompt), *expected, "{prompt}");
        }
    }

    #[test]
    fn a_file_name_in_the_prompt_becomes_a_path_argument() {
        let tool_schema = json!({"properties": {"path": {"type": "string"}}, "required": ["path"]});
        check(
            tool_schema,
            &[
                ("count the words in README.md", r#"{"path":"README.md"}"#),
                ("count the words in \"my notes.txt\"", r#"{"path":"my notes.txt"}"#),
                ("count the words", "? {}"),
                ("count README.md and LICENSE.txt", "? {}"),
                ("the first 10 of README.md", r#"? {"path":"README.md"}"#),
                ("do not count README.md", r#"? {"path":"README.md"}"#),
            ],
        );
    }

    #[test]
    fn two_paths_are_distinguished_by_name() {
        let path = json!({"type": "string"});
        let tool_schema = json!({"properties": {"from": path, "to": path}, "required": ["from", "to"]});
        check(
            tool_schema,
            &[
                ("move a.txt to b.txt", r#"{"from":"a.txt","to":"b.txt"}"#),
                ("move from a.txt to b.txt", r#"{"from":"a.txt","to":"b.txt"}"#),
                ("move a.txt b.txt", "? {}"),
                ("move a.txt", "? {}"),
            ],
        );
    }

    #[test]
    fn quoted_strings_and_optional_properties_are_filled() {
        let tool_schema = json!({
            "properties": {"pattern": {"type": "string"}, "path": {"type": ["string", "null"]}, "limit": {"type": "integer"}},
            "required": ["pattern"],
        });
        check(
            tool_schema,
            &[
                ("search \"foo.bar\" in src/", r#"{"pattern":"foo.bar","path":"src/"}"#),
                ("search \"foo.rs\"", r#"{"pattern":"foo.rs"}"#),
                ("search \"a\" and \"b\"", "? {}"),
                ("search \"a\" limit=5", r#"{"pattern":"a","limit":5}"#),
                ("search \"a\" in src, limit: 5", r#"{"pattern":"a","limit":5}"#),
                ("search \"a\" limit 5", r#"? {"pattern":"a"}"#),
                ("search \"a\" 5 times", r#"? {"pattern":"a"}"#),
                ("search \"a\" limit=5.5", r#"? {"pattern":"a"}"#),
            ],
        );
    }

    #[test]
    fn arguments_of_supported_kinds_are_filled() {
        let number = json!({"properties": {"value": {"type": "number"}}, "required": ["value"]});
        check(number, &[("double 2.5", r#"{"value":2.5}"#), ("double 7", r#"{"value":7}"#), ("add 1 and 2", "? {}")]);
        let two = json!({"properties": {"a": {"type": "number"}, "b": {"type": "integer"}}, "required": ["a", "b"]});
        check(two, &[("add 1", "? {}"), ("add a=1 b=2", r#"{"a":1,"b":2}"#)]);
        let sum = json!({"properties": {"expression": {"type": "string"}}, "required": ["expression"]});
        check(sum, &[("what is 2 + 2?", r#"{"expression":"2 + 2"}"#), ("2+2 and 3+3", "? {}"), ("what is 7?", "? {}")]);
        let unit = json!({"properties": {"unit": {"enum": ["words", "lines"]}}, "required": ["unit"]});
        check(
            unit,
            &[
                ("count the lines", r#"{"unit":"lines"}"#),
                ("count lines and words", "? {}"),
                ("lines of lines", "? {}"),
            ],
        );
        let units = json!({
            "properties": {"a": {"enum": ["words", "lines"]}, "b": {"enum": ["words"]}, "c": {"enum": ["x", "lines"]}},
            "required": ["a", "b", "c"],
        });
        check(units, &[("count the lines", r#"? {"a":"lines","b":"words"}"#)]);
    }

    #[test]
    fn unsupported_kinds_are_never_filled() {
        let tool_schema = json!({
            "properties": {"flag": {"type": "boolean"}, "list": {"type": "array"}, "object": {"type": "object"}},
            "required": ["flag", "list", "object"],
        });
        check(tool_schema, &[("set flag true for \"a\" and b.txt", "? {}")]);
    }
}
