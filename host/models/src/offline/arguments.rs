//! Fills a tool's arguments from a prompt, by rules that never guess. Two properties never get the same token.

use super::reading::{Reading, Token, TokenKind, is_path};
use super::schema::{Kind, Presence, Property};
use serde_json::{Map, Number, Value, json};

/// What could be read for one tool.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Arguments {
    /// As far as they could be read, in the order of the schema.
    pub(super) read: Map<String, Value>,
    /// Whether every required one is there and nothing in the prompt is left over.
    pub(super) certainty: Certainty,
}

/// Whether a call may be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Certainty {
    /// There is one way to read the prompt.
    Certain,
    /// Something is missing, left over, or not clear.
    Doubtful,
}

/// Fills the properties: first what stands right after a property's name; then the only token for the only required
/// property of its kind; then a path, URL or expression for the only optional property of its kind.
pub(super) fn fill(properties: &[Property], reading: &Reading) -> Arguments {
    let mut filling = Filling {
        properties,
        reading,
        claimed: vec![false; reading.tokens.len()],
        claimed_words: Vec::new(),
        values: vec![None; properties.len()],
    };
    filling.by_name();
    filling.by_kind(Presence::Required);
    filling.choices(Presence::Required);
    filling.by_kind(Presence::Optional);
    filling.choices(Presence::Optional);
    let missing =
        |(property, value): (&Property, &Option<Value>)| property.presence == Presence::Required && value.is_none();
    let incomplete = properties.iter().zip(&filling.values).any(missing);
    let left_over = filling.claimed.contains(&false);
    let doubtful = incomplete || left_over || reading.unclear.is_some();
    let read = properties.iter().zip(filling.values);
    Arguments {
        read: read.filter_map(|(property, value)| Some((property.name.clone(), value?))).collect(),
        certainty: if doubtful { Certainty::Doubtful } else { Certainty::Certain },
    }
}

struct Filling<'a> {
    properties: &'a [Property],
    reading: &'a Reading,
    claimed: Vec<bool>,
    claimed_words: Vec<usize>,
    values: Vec<Option<Value>>,
}

impl Filling<'_> {
    fn by_name(&mut self) {
        for (place, property) in self.properties.iter().enumerate() {
            let name = property.name.to_lowercase();
            // `first 10` may be how many or where to begin: a number wants `first=10` or `first: 10`.
            let numeric = matches!(property.kind, Kind::Number | Kind::Integer);
            let named = |token: &Token| match token.before.strip_suffix('=') {
                Some(before) => before == name,
                None => token.before == name && !numeric,
            };
            if let Some((token, value)) = self.only_token(&property.kind, &named) {
                self.claim(place, token, value);
            }
        }
    }

    fn by_kind(&mut self, presence: Presence) {
        let open: Vec<usize> = (0..self.properties.len()).filter(|&place| self.is_open(place, presence)).collect();
        for &place in &open {
            let kind = &self.properties[place].kind;
            let rivals = open.iter().filter(|&&other| same_tokens(kind, &self.properties[other].kind)).count();
            let strong = matches!(kind, Kind::Path | Kind::Url | Kind::Expression);
            if rivals > 1 || (presence == Presence::Optional && !strong) {
                continue;
            }
            if let Some((token, value)) = self.only_token(kind, &|_| true) {
                self.claim(place, token, value);
            }
        }
    }

    /// A choice is taken where exactly one of its values is mentioned, exactly once.
    fn choices(&mut self, presence: Presence) {
        for place in 0..self.properties.len() {
            let Kind::Choice(values) = &self.properties[place].kind else {
                continue;
            };
            if !self.is_open(place, presence) {
                continue;
            }
            if let ([only], Presence::Required) = (values.as_slice(), presence) {
                self.values[place] = Some(only.clone());
                continue;
            }
            let mentions: Vec<(usize, &Value)> = values.iter().flat_map(|value| self.mentions(value)).collect();
            if let [(word, value)] = mentions[..]
                && !self.claimed_words.contains(&word)
            {
                self.claimed_words.push(word);
                self.values[place] = Some(value.clone());
            }
        }
    }

    fn mentions<'a>(&self, value: &'a Value) -> Vec<(usize, &'a Value)> {
        let Some(text) = value.as_str().map(str::to_lowercase) else {
            return Vec::new();
        };
        let words = self.reading.words.iter().enumerate();
        words.filter(|(_, word)| **word == text).map(|(place, _)| (place, value)).collect()
    }

    fn is_open(&self, place: usize, presence: Presence) -> bool {
        self.values[place].is_none() && self.properties[place].presence == presence
    }

    fn claim(&mut self, place: usize, token: usize, value: Value) {
        self.claimed[token] = true;
        self.values[place] = Some(value);
    }

    /// The only token that is still free and fits. A quoted path counts where no plain one is there.
    fn only_token(&self, kind: &Kind, wanted: &dyn Fn(&Token) -> bool) -> Option<(usize, Value)> {
        let free = || {
            let tokens = self.reading.tokens.iter().enumerate();
            tokens.filter(|(place, token)| !self.claimed[*place] && wanted(token))
        };
        let only = |mut found: Vec<(usize, Value)>| (found.len() == 1).then(|| found.remove(0));
        let plain: Vec<_> = free().filter_map(|(place, token)| Some((place, value(kind, token)?))).collect();
        if !plain.is_empty() || *kind != Kind::Path {
            return only(plain);
        }
        let quoted = free().filter(|(_, token)| token.kind == TokenKind::Quoted && is_path(&token.text));
        only(quoted.map(|(place, token)| (place, json!(token.text))).collect())
    }
}

/// Whether both would take the same tokens.
fn same_tokens(left: &Kind, right: &Kind) -> bool {
    let numeric = |kind: &Kind| matches!(kind, Kind::Number | Kind::Integer);
    left == right || (numeric(left) && numeric(right))
}

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
    use crate::offline::{reading, schema};

    fn filled(schema: &Value, prompt: &str) -> String {
        let found = fill(&schema::properties(schema), &reading::read(prompt, &[]));
        let mark = if found.certainty == Certainty::Certain { "" } else { "? " };
        format!("{mark}{}", Value::Object(found.read))
    }

    fn check(schema: Value, cases: &[(&str, &str)]) {
        for (prompt, expected) in cases {
            assert_eq!(filled(&schema, prompt), *expected, "{prompt}");
        }
    }

    #[test]
    fn a_path() {
        let schema = json!({"properties": {"path": {"type": "string"}}, "required": ["path"]});
        check(
            schema,
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
    fn two_paths_by_name() {
        let path = json!({"type": "string"});
        let schema = json!({"properties": {"from": path, "to": path}, "required": ["from", "to"]});
        check(
            schema,
            &[
                ("move a.txt to b.txt", r#"{"from":"a.txt","to":"b.txt"}"#),
                ("move from a.txt to b.txt", r#"{"from":"a.txt","to":"b.txt"}"#),
                ("move a.txt b.txt", "? {}"),
                ("move a.txt", "? {}"),
            ],
        );
    }

    #[test]
    fn quoted_strings_and_optional_properties() {
        let schema = json!({
            "properties": {"pattern": {"type": "string"}, "path": {"type": ["string", "null"]}, "limit": {"type": "integer"}},
            "required": ["pattern"],
        });
        check(
            schema,
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
    fn numbers_expressions_and_choices() {
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
    fn what_cannot_be_read_is_never_made_up() {
        let schema = json!({
            "properties": {"flag": {"type": "boolean"}, "list": {"type": "array"}, "object": {"type": "object"}},
            "required": ["flag", "list", "object"],
        });
        check(schema, &[("set flag true for \"a\" and b.txt", "? {}")]);
    }
}
