//! A parsed TOML document. Each value records its location in the text, so that error messages can point to
//! this location.

use super::errors::{ConfigurationError, DESCRIBED_PROBLEMS, Problem, SHOWN_PROBLEMS};
use super::hidden_secrets::without_secrets;
use serde_json::{Map, Number, Value};
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::path::{Path, PathBuf};
use toml::Spanned;
use toml::de::{DeInteger, DeTable, DeValue};

/// The parser's error message for a key that is set twice.
const DUPLICATE: &str = "duplicate key";

/// A configuration file that is being read. Collects the problems that are found in the file.
pub(super) struct Document<'d> {
    text: &'d str,
    path: &'d Path,
    problems: RefCell<Vec<Problem>>,
    /// Number of problems that were found after so many others that they are not described.
    further: Cell<usize>,
    /// Byte ranges of secrets, which must not be shown in an excerpt.
    secrets: RefCell<Vec<Range<usize>>>,
    /// Byte offsets at which lines begin.
    lines: Vec<usize>,
    /// Files that were read because their paths are in the document.
    named_files: RefCell<Vec<PathBuf>>,
}

/// A table of the document, and the path of keys that leads to this table.
pub(super) struct Table<'d> {
    document: &'d Document<'d>,
    steps: Vec<String>,
    table: &'d DeTable<'d>,
}

/// A value in the document, and the path of keys that leads to this value.
pub(super) struct TomlValue<'d> {
    document: &'d Document<'d>,
    steps: Vec<String>,
    value: &'d Spanned<DeValue<'d>>,
}

/// A key of a table, with its value.
pub(super) struct Entry<'d> {
    /// The key, without the keys of the enclosing tables.
    pub(super) name: String,
    /// Byte range of the key in the text of the document.
    pub(super) span: Range<usize>,
    /// The value that the document sets for the key.
    pub(super) value: TomlValue<'d>,
}

impl<'d> Document<'d> {
    pub(super) fn new(text: &'d str, path: &'d Path) -> Self {
        let lines = text.match_indices('\n').map(|(end, _)| end + 1);
        let lines = std::iter::once(0).chain(lines).collect();
        Self {
            text,
            path,
            problems: RefCell::default(),
            further: Cell::default(),
            secrets: RefCell::default(),
            lines,
            named_files: RefCell::default(),
        }
    }

    /// Calls `read` with the root table, unless the text is not valid TOML.
    pub(super) fn read<T>(&self, read: impl FnOnce(&Table<'_>) -> T) -> Option<T> {
        let (root, errors) = DeTable::parse_recoverable(self.text);
        for error in errors.iter().take(SHOWN_PROBLEMS) {
            let span = error.span().unwrap_or(0..0);
            match error.message() {
                DUPLICATE => self.push(self.duplicate(span, root.get_ref())),
                message => {
                    let (message, allowed) =
                        (message.to_owned(), "the file must be valid TOML: see https://toml.io".to_owned());
                    self.push(Problem { span, message, allowed });
                }
            }
        }
        self.further.set(self.further.get() + errors.len().saturating_sub(SHOWN_PROBLEMS));
        // The parsed document is unreliable after a syntax error, but not after a duplicate key.
        if errors.iter().any(|error| error.message() != DUPLICATE) {
            return None;
        }
        // A new `Document` is needed here, because the tables borrow the parsed document, which does not outlive
        // this call.
        let document = Document::new(self.text, self.path);
        let value = read(&Table { document: &document, steps: Vec::new(), table: root.get_ref() });
        self.problems.borrow_mut().append(&mut document.problems.into_inner());
        self.further.set(self.further.get() + document.further.get());
        self.secrets.borrow_mut().append(&mut document.secrets.into_inner());
        self.named_files.borrow_mut().append(&mut document.named_files.into_inner());
        Some(value)
    }

    /// Returns `value`, or an error with all problems that were found.
    pub(super) fn finish<T>(self, value: Option<T>) -> Result<T, ConfigurationError> {
        let mut problems = self.problems.into_inner();
        match value {
            Some(value) if problems.is_empty() => Ok(value),
            _ => {
                problems.sort_by_key(|problem| problem.span.start);
                let text = without_secrets(self.text, &self.secrets.into_inner());
                let (path, further) = (self.path.to_owned(), self.further.get());
                Err(ConfigurationError::Invalid { path, text, problems, further })
            }
        }
    }

    /// Returns the files that were read because their paths are in the document.
    pub(super) fn named_files(&self) -> Vec<PathBuf> {
        self.named_files.borrow().clone()
    }

    pub(super) fn push(&self, problem: Problem) {
        if !self.counts_only() {
            self.problems.borrow_mut().push(problem);
        }
    }

    /// Returns whether so many problems were found that the next one is only counted, and counts it.
    fn counts_only(&self) -> bool {
        let counts_only = self.problems.borrow().len() >= DESCRIBED_PROBLEMS;
        self.further.set(self.further.get() + usize::from(counts_only));
        counts_only
    }

    /// Returns the line number of a byte offset. The first line has the number 1.
    fn line(&self, byte: usize) -> usize {
        self.lines.partition_point(|begin| *begin <= byte)
    }

    fn duplicate(&self, span: Range<usize>, root: &DeTable<'_>) -> Problem {
        let line = self.line(span.start);
        let line_text = self.text.lines().nth(line - 1).unwrap_or_default().trim();
        let name = self.text.get(span.clone()).unwrap_or_default();
        let header = line_text.starts_with('[');
        let first = if header {
            let same = |earlier: &&str| earlier.trim() == line_text;
            self.text.lines().take(line - 1).collect::<Vec<_>>().iter().position(same).map(|index| index + 1)
        } else {
            last_key_before(root, name.trim_matches(['"', '\'']), span.start).map(|byte| self.line(byte))
        };
        let name = if header { line_text } else { name };
        let allowed = if header { "write all keys of the table under one header" } else { "keep one of the two keys" };
        let first = first.map(|line| format!(", first in line {line}")).unwrap_or_default();
        Problem { span, message: format!("`{name}` is defined twice{first}"), allowed: allowed.to_owned() }
    }
}

/// Searches the table and its inner tables for keys that have the name `name` and are before the byte offset `before`.
/// Returns the byte offset of the last key that was found.
fn last_key_before(table: &DeTable<'_>, name: &str, before: usize) -> Option<usize> {
    let offsets = table.iter().filter_map(|(key, value)| {
        let own_offset = (key.get_ref() == name && key.span().start < before).then(|| key.span().start);
        own_offset.max(value.get_ref().as_table().and_then(|table| last_key_before(table, name, before)))
    });
    offsets.max()
}

impl<'d> Table<'d> {
    /// Returns the value of the key `name`, or None if the key is not set.
    pub(super) fn get(&self, name: &str) -> Option<TomlValue<'d>> {
        let value = self.table.get(name)?;
        Some(TomlValue { document: self.document, steps: self.steps_to(name), value })
    }

    /// Returns the table at the key `name`, or None if the key is not set or its value is not a table.
    pub(super) fn table(&self, name: &str) -> Option<Table<'d>> {
        self.get(name)?.table()
    }

    /// Returns all keys of the table with their values.
    pub(super) fn entries(&self) -> impl Iterator<Item = Entry<'d>> {
        self.table.iter().map(|(key, value)| {
            let value = TomlValue { document: self.document, steps: self.steps_to(key.get_ref()), value };
            Entry { name: key.get_ref().to_string(), span: key.span(), value }
        })
    }

    /// Reports a problem with one of the table's keys, which `describe` describes with a message and with what is allowed. It is not
    /// called if many problems were found before.
    pub(super) fn problem_described(&self, span: Range<usize>, describe: impl FnOnce() -> (String, String)) {
        if !self.document.counts_only() {
            let (message, allowed) = describe();
            self.document.problems.borrow_mut().push(Problem { span, message, allowed });
        }
    }

    /// Reports a problem with one of the table's keys.
    pub(super) fn problem(&self, span: Range<usize>, message: String, allowed: String) {
        self.document.push(Problem { span, message, allowed });
    }

    /// Returns the full path of the key `name` of this table, such as `retry.attempts`.
    pub(super) fn key_of(&self, name: &str) -> String {
        self.steps_to(name).join(".")
    }

    /// Returns the path of keys that leads to this table. The path contains the names that are written in the file, and
    /// not placeholders such as `NAME`.
    pub(super) fn steps(&self) -> &[String] {
        &self.steps
    }

    fn steps_to(&self, name: &str) -> Vec<String> {
        let bare = !name.is_empty() && name.chars().all(|char| char.is_ascii_alphanumeric() || "-_".contains(char));
        let name = if bare { name.to_owned() } else { toml::Value::from(name).to_string() };
        self.steps.iter().cloned().chain([name]).collect()
    }
}

impl<'d> TomlValue<'d> {
    /// Records that the file at `path` is read because this value contains its path.
    pub(super) fn record_named_file(&self, path: &Path) {
        self.document.named_files.borrow_mut().push(path.to_owned());
    }

    /// Returns the value if it is a string.
    pub(super) fn text(&self) -> Option<String> {
        self.value.get_ref().as_str().map(str::to_owned)
    }

    /// Returns the value if it is a whole number in the range of `u32`.
    pub(super) fn number(&self) -> Option<u32> {
        u32::try_from(parse_integer(self.value.get_ref().as_integer()?)?).ok()
    }

    /// Returns the value if it is a whole number in the range of `u64`.
    pub(super) fn number_u64(&self) -> Option<u64> {
        u64::try_from(parse_integer(self.value.get_ref().as_integer()?)?).ok()
    }

    /// Returns the value if it is a whole number in the range of `i32`.
    pub(super) fn number_i32(&self) -> Option<i32> {
        i32::try_from(parse_integer(self.value.get_ref().as_integer()?)?).ok()
    }

    /// Returns the value if it is a finite number. The number may have a fractional part.
    pub(super) fn number_f64(&self) -> Option<f64> {
        match self.value.get_ref() {
            DeValue::Integer(integer) => parse_integer(integer).map(|number| number as f64),
            DeValue::Float(float) => float.as_str().parse().ok().filter(|number: &f64| number.is_finite()),
            _ => None,
        }
    }

    /// Returns the value if it is a boolean.
    pub(super) fn flag(&self) -> Option<bool> {
        self.value.get_ref().as_bool()
    }

    /// Returns the items if the value is a list.
    pub(super) fn items(&self) -> Option<Vec<TomlValue<'d>>> {
        let items = self.value.get_ref().as_array()?.iter().enumerate();
        let item = |(index, value)| {
            let mut steps = self.steps.clone();
            if let Some(last) = steps.last_mut() {
                *last += &format!("[{index}]");
            }
            TomlValue { document: self.document, steps, value }
        };
        Some(items.map(item).collect())
    }

    /// Returns the value if it is a table.
    pub(super) fn table(&self) -> Option<Table<'d>> {
        let table = self.value.get_ref().as_table()?;
        Some(Table { document: self.document, steps: self.steps.clone(), table })
    }

    /// Converts the TOML value to JSON. Returns None if JSON cannot represent the value.
    pub(super) fn json(&self) -> Option<Value> {
        json(self.value.get_ref())
    }

    /// Reports a problem with the value. The message is the path of the key, followed by the text `what`, which is for
    /// example `is out of range`.
    pub(super) fn problem(&self, what: &str, allowed: &str) {
        let (message, allowed) = (format!("`{}` {what}", self.steps.join(".")), allowed.to_owned());
        self.document.push(Problem { span: self.value.span(), message, allowed });
    }

    /// Hides the value in all excerpts of the file.
    pub(super) fn hide(&self) {
        self.document.secrets.borrow_mut().push(self.value.span());
    }

    /// Whether the value is a floating-point number.
    pub(super) fn is_fraction(&self) -> bool {
        self.value.get_ref().is_float()
    }

    /// Returns the location of the value as `FILE:LINE: KEY`, for messages.
    pub(super) fn location(&self) -> String {
        let line = self.document.line(self.value.span().start);
        format!("{}:{line}: {}", self.document.path.display(), self.steps.join("."))
    }

    /// Returns the location of the value as `FILE:LINE`, for messages that already contain the key.
    pub(super) fn file_and_line(&self) -> String {
        format!("{}:{}", self.document.path.display(), self.document.line(self.value.span().start))
    }

    /// Returns the type of the value with its article, such as `a string`, for messages.
    pub(super) fn kind(&self) -> &'static str {
        match self.value.get_ref() {
            DeValue::String(_) => "a string",
            DeValue::Integer(_) | DeValue::Float(_) => "a number",
            DeValue::Boolean(_) => "true or false",
            DeValue::Datetime(_) => "a date",
            DeValue::Array(_) => "a list",
            DeValue::Table(_) => "a table",
        }
    }
}

fn parse_integer(integer: &DeInteger<'_>) -> Option<i64> {
    i64::from_str_radix(integer.as_str(), integer.radix()).ok()
}

fn json(value: &DeValue<'_>) -> Option<Value> {
    Some(match value {
        DeValue::String(text) => Value::String(text.to_string()),
        DeValue::Integer(integer) => Value::from(parse_integer(integer)?),
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
