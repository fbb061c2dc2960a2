//! A TOML document whose values know their place, so that every problem can be shown where it is.

use super::report::{ConfigurationError, Problem};
use serde_json::{Map, Number, Value};
use std::cell::RefCell;
use std::ops::{Range, RangeInclusive};
use std::path::Path;
use toml::Spanned;
use toml::de::{DeInteger, DeTable, DeValue};

/// One file while it is being read. Problems gather in it.
pub(super) struct Document<'d> {
    text: &'d str,
    path: &'d Path,
    problems: RefCell<Vec<Problem>>,
}

/// A table whose keys are being asked for; those that nobody asks for are unknown.
pub(super) struct Keys<'d> {
    document: &'d Document<'d>,
    prefix: String,
    table: &'d DeTable<'d>,
    known: RefCell<Vec<String>>,
}

/// A value with its key.
pub(super) struct Found<'d> {
    document: &'d Document<'d>,
    key: String,
    value: &'d Spanned<DeValue<'d>>,
}

impl<'d> Document<'d> {
    pub(super) fn new(text: &'d str, path: &'d Path) -> Self {
        Self { text, path, problems: RefCell::default() }
    }

    /// Reads the whole document with `read`, unless it is no TOML.
    pub(super) fn read<T>(&self, read: impl FnOnce(&Keys<'_>) -> T) -> Option<T> {
        let (root, errors) = DeTable::parse_recoverable(self.text);
        for error in &errors {
            let span = error.span().unwrap_or(0..0);
            self.push(span, error.message().to_owned(), "the file is TOML: https://toml.io".to_owned());
        }
        if !errors.is_empty() {
            return None;
        }
        // The keys borrow the parsed table, which lives no longer than this call.
        let document = Document { text: self.text, path: self.path, problems: RefCell::default() };
        let keys =
            Keys { document: &document, prefix: String::new(), table: root.get_ref(), known: RefCell::default() };
        let value = read(&keys);
        drop(keys);
        self.problems.borrow_mut().append(&mut document.problems.into_inner());
        Some(value)
    }

    /// What was read, or every problem that was found on the way.
    pub(super) fn finish<T>(self, value: Option<T>) -> Result<T, ConfigurationError> {
        let mut problems = self.problems.into_inner();
        match value {
            Some(value) if problems.is_empty() => Ok(value),
            _ => {
                problems.sort_by_key(|problem| problem.span.start);
                Err(ConfigurationError::Invalid { path: self.path.to_owned(), text: self.text.to_owned(), problems })
            }
        }
    }

    fn line(&self, byte: usize) -> String {
        let (line, _) = super::report::position(self.text, byte);
        format!("{}:{line}", self.path.display())
    }

    fn push(&self, span: Range<usize>, message: String, allowed: String) {
        self.problems.borrow_mut().push(Problem { span, message, allowed });
    }
}

impl<'d> Keys<'d> {
    /// The value of a key that may stand here.
    pub(super) fn get(&self, key: &str) -> Option<Found<'d>> {
        self.known.borrow_mut().push(key.to_owned());
        let value = self.table.get(key)?;
        Some(Found { document: self.document, key: format!("{}{key}", self.prefix), value })
    }

    /// `file:line` of a key, for messages that name the key themselves.
    pub(super) fn line(&self, key: &str) -> Option<String> {
        self.table.get(key).map(|value| self.document.line(value.span().start))
    }

    /// Reports the keys that nobody asked for.
    pub(super) fn finish(&self) {
        let known = self.known.borrow();
        for key in self.table.keys() {
            if !known.iter().any(|known| known == key.get_ref()) {
                let message = format!("unknown key `{}{}`", self.prefix, key.get_ref());
                self.document.push(key.span(), message, format!("allowed here: {}", known.join(", ")));
            }
        }
    }
}

impl<'d> Found<'d> {
    /// A text that is not empty.
    pub(super) fn text(&self) -> Option<String> {
        match self.value.get_ref() {
            DeValue::String(text) if !text.trim().is_empty() => Some(text.to_string()),
            DeValue::String(_) => self.refuse("is empty", "a text"),
            _ => self.wrong_type("a text in quotes"),
        }
    }

    /// A name: letters, digits, `-`, `_`, `.`.
    pub(super) fn name(&self) -> Option<String> {
        let text = self.text()?;
        let allowed = |character: char| character.is_alphanumeric() || "-_.".contains(character);
        if text.chars().count() <= 64 && text.chars().all(allowed) {
            return Some(text);
        }
        self.refuse("is no name", "1 to 64 letters, digits, `-`, `_` or `.`")
    }

    /// A whole number in a range.
    pub(super) fn number(&self, range: RangeInclusive<u32>) -> Option<u32> {
        let allowed = format!("a whole number from {} to {}", range.start(), range.end());
        let DeValue::Integer(integer) = self.value.get_ref() else {
            return self.wrong_type(&allowed);
        };
        let number = whole(integer).and_then(|number| u32::try_from(number).ok());
        match number.filter(|number| range.contains(number)) {
            Some(number) => Some(number),
            None => self.refuse("is out of range", &allowed),
        }
    }

    /// `true` or `false`.
    pub(super) fn flag(&self) -> Option<bool> {
        match self.value.get_ref() {
            DeValue::Boolean(flag) => Some(*flag),
            _ => self.wrong_type("true or false"),
        }
    }

    /// One of some words.
    pub(super) fn choice<T: Copy>(&self, choices: &[(&str, T)]) -> Option<T> {
        let words: Vec<_> = choices.iter().map(|(word, _)| format!("\"{word}\"")).collect();
        let allowed = words.join(" or ");
        let DeValue::String(text) = self.value.get_ref() else {
            return self.wrong_type(&allowed);
        };
        match choices.iter().find(|(word, _)| word == text) {
            Some((_, choice)) => Some(*choice),
            None => self.refuse("has an unknown value", &allowed),
        }
    }

    /// A list of texts, each with its place for messages.
    pub(super) fn texts(&self) -> Option<Vec<(String, String)>> {
        let DeValue::Array(items) = self.value.get_ref() else {
            return self.wrong_type("a list of texts, such as [\"one\", \"two\"]");
        };
        let item = |(index, value)| {
            let item = Found { document: self.document, key: format!("{}[{index}]", self.key), value };
            Some((item.text()?, item.place()))
        };
        items.iter().enumerate().map(item).collect()
    }

    /// A table of known keys.
    pub(super) fn keys(&self) -> Option<Keys<'d>> {
        let DeValue::Table(table) = self.value.get_ref() else {
            return self.wrong_type("a table");
        };
        let prefix = format!("{}.", self.key);
        Some(Keys { document: self.document, prefix, table, known: RefCell::default() })
    }

    /// A table whose keys are the author's own.
    pub(super) fn map(&self) -> Option<Vec<(String, Found<'d>)>> {
        let DeValue::Table(table) = self.value.get_ref() else {
            return self.wrong_type("a table");
        };
        let entry = |(key, value): (&'d Spanned<_>, &'d Spanned<_>)| {
            let name: &std::borrow::Cow<'d, str> = key.get_ref();
            let key = format!("{}.{name}", self.key);
            (name.to_string(), Found { document: self.document, key, value })
        };
        Some(table.iter().map(entry).collect())
    }

    /// Whether it is a text.
    pub(super) fn is_text(&self) -> bool {
        self.value.get_ref().is_str()
    }

    /// The value as JSON.
    pub(super) fn json(&self) -> Option<Value> {
        let value = json(self.value.get_ref());
        if value.is_none() {
            self.problem("holds a date or a number that JSON has not", "what JSON has");
        }
        value
    }

    /// Reports what is wrong with the value.
    pub(super) fn problem(&self, what: &str, allowed: &str) {
        self.document.push(self.value.span(), format!("`{}` {what}", self.key), allowed.to_owned());
    }

    /// `file:line: key`, for messages.
    pub(super) fn place(&self) -> String {
        format!("{}: {}", self.document.line(self.value.span().start), self.key)
    }

    fn refuse<T>(&self, what: &str, allowed: &str) -> Option<T> {
        self.problem(what, &format!("allowed: {allowed}"));
        None
    }

    fn wrong_type<T>(&self, allowed: &str) -> Option<T> {
        let found = match self.value.get_ref() {
            DeValue::String(_) => "a text",
            DeValue::Integer(_) | DeValue::Float(_) => "a number",
            DeValue::Boolean(_) => "true or false",
            DeValue::Datetime(_) => "a date",
            DeValue::Array(_) => "a list",
            DeValue::Table(_) => "a table",
        };
        self.refuse(&format!("is {found}"), allowed)
    }
}

fn whole(integer: &DeInteger<'_>) -> Option<i64> {
    i64::from_str_radix(integer.as_str(), integer.radix()).ok()
}

fn json(value: &DeValue<'_>) -> Option<Value> {
    Some(match value {
        DeValue::String(text) => Value::String(text.to_string()),
        DeValue::Integer(integer) => Value::from(whole(integer)?),
        DeValue::Float(float) => Value::Number(Number::from_f64(float.as_str().parse().ok()?)?),
        DeValue::Boolean(flag) => Value::Bool(*flag),
        DeValue::Datetime(_) => return None,
        DeValue::Array(items) => items.iter().map(|item| json(item.get_ref())).collect::<Option<Vec<_>>>()?.into(),
        DeValue::Table(table) => {
            let entry = |(key, value): (&Spanned<_>, &Spanned<DeValue<'_>>)| {
                let name: &std::borrow::Cow<'_, str> = key.get_ref();
                Some((name.to_string(), json(value.get_ref())?))
            };
            Value::Object(table.iter().map(entry).collect::<Option<Map<_, _>>>()?)
        }
    })
}
