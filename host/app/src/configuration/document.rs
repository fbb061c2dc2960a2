//! A TOML document whose values know their place, so that every problem can be shown where it is.

use super::form::is_secret;
use super::report::{ConfigurationError, Problem, SHOWN_PROBLEMS};
use serde_json::{Map, Number, Value};
use std::cell::RefCell;
use std::ops::Range;
use std::path::{Path, PathBuf};
use toml::Spanned;
use toml::de::{DeInteger, DeTable, DeValue};

/// What the parser calls a key that is there twice.
const DUPLICATE: &str = "duplicate key";

/// One file while it is being read. Problems gather in it.
pub(super) struct Document<'d> {
    text: &'d str,
    path: &'d Path,
    problems: RefCell<Vec<Problem>>,
    /// What must not be shown beside a problem.
    secrets: RefCell<Vec<Range<usize>>>,
    /// Where lines begin.
    lines: Vec<usize>,
    /// Files that it names and that are read with it.
    named_files: RefCell<Vec<PathBuf>>,
}

/// A table with its own key.
pub(super) struct Table<'d> {
    document: &'d Document<'d>,
    steps: Vec<String>,
    table: &'d DeTable<'d>,
}

/// A value with its key.
pub(super) struct Found<'d> {
    document: &'d Document<'d>,
    steps: Vec<String>,
    value: &'d Spanned<DeValue<'d>>,
}

/// An entry of a table.
pub(super) struct Entry<'d> {
    /// Without those of the tables around it.
    pub(super) name: String,
    /// Of the name.
    pub(super) span: Range<usize>,
    /// What stands behind it.
    pub(super) found: Found<'d>,
}

impl<'d> Document<'d> {
    pub(super) fn new(text: &'d str, path: &'d Path) -> Self {
        let lines = text.match_indices('\n').map(|(end, _)| end + 1);
        let lines = std::iter::once(0).chain(lines).collect();
        Self {
            text,
            path,
            problems: RefCell::default(),
            secrets: RefCell::default(),
            lines,
            named_files: RefCell::default(),
        }
    }

    /// Reads the whole document with `read`, unless it is no TOML.
    pub(super) fn read<T>(&self, read: impl FnOnce(&Table<'_>) -> T) -> Option<T> {
        let (root, errors) = DeTable::parse_recoverable(self.text);
        for error in errors.iter().take(SHOWN_PROBLEMS) {
            let span = error.span().unwrap_or(0..0);
            match error.message() {
                DUPLICATE => self.push(self.twice(span, root.get_ref())),
                message => {
                    let (message, allowed) = (message.to_owned(), "the file is TOML: https://toml.io".to_owned());
                    self.push(Problem { span, message, allowed });
                }
            }
        }
        // What stands behind a broken line is guessed; behind a second key it is not.
        if errors.iter().any(|error| error.message() != DUPLICATE) {
            return None;
        }
        // The tables borrow the parsed one, which lives no longer than this call.
        let document = Document::new(self.text, self.path);
        let value = read(&Table { document: &document, steps: Vec::new(), table: root.get_ref() });
        self.problems.borrow_mut().append(&mut document.problems.into_inner());
        self.secrets.borrow_mut().append(&mut document.secrets.into_inner());
        self.named_files.borrow_mut().append(&mut document.named_files.into_inner());
        Some(value)
    }

    /// What was read, or every problem that was found on the way.
    pub(super) fn finish<T>(self, value: Option<T>) -> Result<T, ConfigurationError> {
        let mut problems = self.problems.into_inner();
        match value {
            Some(value) if problems.is_empty() => Ok(value),
            _ => {
                problems.sort_by_key(|problem| problem.span.start);
                let text = without_secrets(self.text, &self.secrets.into_inner());
                Err(ConfigurationError::Invalid { path: self.path.to_owned(), text, problems })
            }
        }
    }

    /// Files that it names and that were read with it.
    pub(super) fn named_files(&self) -> Vec<PathBuf> {
        self.named_files.borrow().clone()
    }

    pub(super) fn push(&self, problem: Problem) {
        self.problems.borrow_mut().push(problem);
    }

    /// From 1.
    fn line(&self, byte: usize) -> usize {
        self.lines.partition_point(|begin| *begin <= byte)
    }

    fn twice(&self, span: Range<usize>, root: &DeTable<'_>) -> Problem {
        let line = self.line(span.start);
        let written = self.text.lines().nth(line - 1).unwrap_or_default().trim();
        let name = self.text.get(span.clone()).unwrap_or_default();
        let header = written.starts_with('[');
        let first = if header {
            let same = |earlier: &&str| earlier.trim() == written;
            self.text.lines().take(line - 1).collect::<Vec<_>>().iter().position(same).map(|index| index + 1)
        } else {
            latest(root, name.trim_matches(['"', '\'']), span.start).map(|byte| self.line(byte))
        };
        let name = if header { written } else { name };
        let allowed = if header { "write its keys under one header" } else { "keep one of them" };
        let first = first.map(|line| format!(": first in line {line}")).unwrap_or_default();
        Problem { span, message: format!("`{name}` is there twice{first}"), allowed: allowed.to_owned() }
    }
}

/// The text with `*` for each byte of a secret, so that places stay. A file that is no TOML says nothing of its keys: there
/// the rest of every line that sets one counts.
pub(super) fn without_secrets(text: &str, secrets: &[Range<usize>]) -> String {
    let mut hidden = vec![false; text.len()];
    let mut hide = |range: Range<usize>| hidden.get_mut(range).into_iter().for_each(|bytes| bytes.fill(true));
    secrets.iter().cloned().for_each(&mut hide);
    let mut begin = 0;
    for line in text.split_inclusive('\n') {
        let key = line.split('=').next().unwrap_or_default();
        if is_secret(key.trim().trim_matches(['"', '\''])) {
            hide(begin + key.len()..begin + line.len());
        }
        begin += line.len();
    }
    let shown = text.char_indices().map(|(index, character)| match character {
        '\n' | '\r' | ' ' | '=' => character.to_string(),
        _ if hidden[index] => "*".repeat(character.len_utf8()),
        _ => character.to_string(),
    });
    shown.collect()
}

/// Where a key of that name stands last before a place.
fn latest(table: &DeTable<'_>, name: &str, before: usize) -> Option<usize> {
    let below = table.iter().filter_map(|(key, value)| {
        let here = (key.get_ref() == name && key.span().start < before).then(|| key.span().start);
        here.max(value.get_ref().as_table().and_then(|table| latest(table, name, before)))
    });
    below.max()
}

impl<'d> Table<'d> {
    /// The value of a key.
    pub(super) fn get(&self, name: &str) -> Option<Found<'d>> {
        let value = self.table.get(name)?;
        Some(Found { document: self.document, steps: self.steps_to(name), value })
    }

    /// The table of a key.
    pub(super) fn table(&self, name: &str) -> Option<Table<'d>> {
        self.get(name)?.table()
    }

    /// All that stands in it.
    pub(super) fn entries(&self) -> impl Iterator<Item = Entry<'d>> {
        self.table.iter().map(|(key, value)| {
            let found = Found { document: self.document, steps: self.steps_to(key.get_ref()), value };
            Entry { name: key.get_ref().to_string(), span: key.span(), found }
        })
    }

    /// Reports what is wrong with one of its keys.
    pub(super) fn problem(&self, span: Range<usize>, message: String, allowed: String) {
        self.document.push(Problem { span, message, allowed });
    }

    /// A key of it, with those of the tables around it.
    pub(super) fn key_of(&self, name: &str) -> String {
        self.steps_to(name).join(".")
    }

    /// The keys of the tables around it and its own, as they are written.
    pub(super) fn steps(&self) -> &[String] {
        &self.steps
    }

    fn steps_to(&self, name: &str) -> Vec<String> {
        let bare = !name.is_empty() && name.chars().all(|char| char.is_ascii_alphanumeric() || "-_".contains(char));
        let name = if bare { name.to_owned() } else { toml::Value::from(name).to_string() };
        self.steps.iter().cloned().chain([name]).collect()
    }
}

impl<'d> Found<'d> {
    /// Notes a file that is read with the document.
    pub(super) fn names_file(&self, path: &Path) {
        self.document.named_files.borrow_mut().push(path.to_owned());
    }

    /// A text.
    pub(super) fn text(&self) -> Option<String> {
        self.value.get_ref().as_str().map(str::to_owned)
    }

    /// A whole number.
    pub(super) fn number(&self) -> Option<u32> {
        u32::try_from(whole(self.value.get_ref().as_integer()?)?).ok()
    }

    /// A whole number that may be large.
    pub(super) fn large(&self) -> Option<u64> {
        u64::try_from(whole(self.value.get_ref().as_integer()?)?).ok()
    }

    /// A whole number that may be negative.
    pub(super) fn signed(&self) -> Option<i32> {
        i32::try_from(whole(self.value.get_ref().as_integer()?)?).ok()
    }

    /// Any number.
    pub(super) fn amount(&self) -> Option<f64> {
        match self.value.get_ref() {
            DeValue::Integer(integer) => whole(integer).map(|number| number as f64),
            DeValue::Float(float) => float.as_str().parse().ok().filter(|number: &f64| number.is_finite()),
            _ => None,
        }
    }

    /// `true` or `false`.
    pub(super) fn flag(&self) -> Option<bool> {
        self.value.get_ref().as_bool()
    }

    /// The items of a list.
    pub(super) fn items(&self) -> Option<Vec<Found<'d>>> {
        let items = self.value.get_ref().as_array()?.iter().enumerate();
        let item = |(index, value)| {
            let mut steps = self.steps.clone();
            if let Some(last) = steps.last_mut() {
                *last += &format!("[{index}]");
            }
            Found { document: self.document, steps, value }
        };
        Some(items.map(item).collect())
    }

    /// A table.
    pub(super) fn table(&self) -> Option<Table<'d>> {
        let table = self.value.get_ref().as_table()?;
        Some(Table { document: self.document, steps: self.steps.clone(), table })
    }

    /// The value as JSON; none where JSON has no such value.
    pub(super) fn json(&self) -> Option<Value> {
        json(self.value.get_ref())
    }

    /// Reports what is wrong with the value.
    pub(super) fn problem(&self, what: &str, allowed: &str) {
        let (message, allowed) = (format!("`{}` {what}", self.steps.join(".")), allowed.to_owned());
        self.document.push(Problem { span: self.value.span(), message, allowed });
    }

    /// The value is shown to nobody.
    pub(super) fn hide(&self) {
        self.document.secrets.borrow_mut().push(self.value.span());
    }

    /// Whether it is a number with a point.
    pub(super) fn is_fraction(&self) -> bool {
        self.value.get_ref().is_float()
    }

    /// `file:line: key`, for messages.
    pub(super) fn place(&self) -> String {
        let line = self.document.line(self.value.span().start);
        format!("{}:{line}: {}", self.document.path.display(), self.steps.join("."))
    }

    /// `file:line`, for messages that name the key themselves.
    pub(super) fn line(&self) -> String {
        format!("{}:{}", self.document.path.display(), self.document.line(self.value.span().start))
    }

    /// What the value is, in words.
    pub(super) fn kind(&self) -> &'static str {
        match self.value.get_ref() {
            DeValue::String(_) => "a text",
            DeValue::Integer(_) | DeValue::Float(_) => "a number",
            DeValue::Boolean(_) => "true or false",
            DeValue::Datetime(_) => "a date",
            DeValue::Array(_) => "a list",
            DeValue::Table(_) => "a table",
        }
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
