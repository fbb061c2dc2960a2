//! What a person has answered, written into their agent.toml: its comments and its layout stay as they are, and nothing
//! else changes.

use super::{AgentFile, read_bounded};
use crate::grants::{Grant, Kind, Receiver};
use std::io::Write;
use std::path::{Path, PathBuf};
use toml_edit::{Array, DocumentMut, InlineTable, Item, Table, Value};

/// Largest file that is changed.
const MOST_BYTES: u64 = 1024 * 1024;

/// What comes into the tables of one plugin.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Addition<'g> {
    /// These are granted.
    Grants(&'g [Grant]),
    /// What is not granted is refused unasked.
    AskNoMore,
}

/// Why a file was left as it is.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EditError {
    /// It cannot be read or written.
    #[error("`{}` cannot be changed: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Somebody else has changed it since it was read.
    #[error("`{}` has changed in the meantime", .0.display())]
    Changed(PathBuf),
    /// It is written in a way that this cannot add to.
    #[error("`{}` is written in a way that nothing can be added to {table} by itself", path.display())]
    Form {
        /// Which.
        path: PathBuf,
        /// The table.
        table: String,
    },
}

/// An agent.toml as it was when somebody was asked.
#[derive(Debug)]
pub(crate) struct Draft {
    /// The file itself, where a link leads to it.
    path: PathBuf,
    text: String,
}

impl Draft {
    /// Reads it.
    pub(crate) fn read(path: &Path) -> Result<Self, EditError> {
        let failed = |source| EditError::File { path: path.to_owned(), source };
        let whole = std::fs::canonicalize(path).map_err(failed)?;
        let text = read_bounded(&whole, MOST_BYTES).map_err(failed)?;
        Ok(Self { path: whole, text })
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes it with that, whole or not at all, and only if it is still what was read.
    pub(crate) fn add(&self, plugin: &str, addition: &Addition<'_>) -> Result<(), EditError> {
        let text = self.with(plugin, addition)?;
        let failed = |source| EditError::File { path: self.path.clone(), source };
        let mut draft = Unfinished::beside(&self.path).map_err(failed)?;
        draft.fill(&text, &self.path).map_err(failed)?;
        if read_bounded(&self.path, MOST_BYTES).map_err(failed)? != self.text {
            return Err(EditError::Changed(self.path.clone()));
        }
        draft.put(&self.path).map_err(failed)
    }

    /// Its text with that.
    fn with(&self, plugin: &str, addition: &Addition<'_>) -> Result<String, EditError> {
        let unfit = || EditError::Form { path: self.path.clone(), table: format!("[plugins.{plugin}.grants]") };
        let mut document: DocumentMut = self.text.parse().map_err(|_| unfit())?;
        let mut item = document.as_item_mut();
        for key in ["plugins", plugin, "grants"] {
            item = table(item, key).ok_or_else(unfit)?;
        }
        match addition {
            Addition::Grants(grants) => grants.iter().try_for_each(|grant| add(item, grant)).ok_or_else(unfit)?,
            Addition::AskNoMore => {
                item.as_table_like_mut().ok_or_else(unfit)?.insert("ask", toml_edit::value(false));
            }
        }
        let text = self.in_order(&mut document, plugin);
        if self.is_all_that_changed(&text, plugin, addition) { Ok(text) } else { Err(unfit()) }
    }

    /// The document's text. A new table that comes last stands behind the comments at the file's end, too: they speak of what
    /// is above them.
    fn in_order(&self, document: &mut DocumentMut, plugin: &str) -> String {
        let end = document.trailing().as_str().unwrap_or_default().to_owned();
        let last_header = |text: &str| text.lines().rfind(|line| line.starts_with('[')).map(str::to_owned);
        let text = document.to_string();
        let is_last = last_header(&text) != last_header(&self.text);
        let table = document.get_mut("plugins").and_then(|all| all.get_mut(plugin)?.get_mut("grants")?.as_table_mut());
        let Some(table) = table.filter(|_| is_last && !end.trim().is_empty()) else { return text };
        table.decor_mut().set_prefix(format!("{}\n\n", end.trim_end()));
        document.set_trailing("");
        document.to_string()
    }

    /// What is written is what was shown: read again, the file says what it said and that, and no more.
    fn is_all_that_changed(&self, text: &str, plugin: &str, addition: &Addition<'_>) -> bool {
        let read = |text: &str| AgentFile::parse(text, &self.path).ok();
        let (Some(mut before), Some(after)) = (read(&self.text), read(text)) else { return false };
        match addition {
            Addition::Grants(grants) => before.grants.extend_from_slice(grants),
            Addition::AskNoMore => drop(before.unasked.insert(plugin.to_owned())),
        }
        said(&before) == said(&after)
            && before.unasked == after.unasked
            && beside_grants(&self.text, plugin) == beside_grants(text, plugin)
    }
}

/// All that a file grants.
fn said(file: &AgentFile) -> Vec<(&Receiver, Kind, &str)> {
    let grants = file.grants.iter().map(|grant| (&grant.receiver, grant.kind, grant.value.as_str()));
    let mut grants: Vec<_> = grants.collect();
    grants.sort();
    grants
}

/// All that a file says beside the grants of that plugin.
fn beside_grants(text: &str, plugin: &str) -> Option<toml::Table> {
    let mut all: toml::Table = text.parse().ok()?;
    if let Some(plugins) = all.get_mut("plugins").and_then(toml::Value::as_table_mut) {
        let is_empty = plugins.get_mut(plugin).and_then(toml::Value::as_table_mut).is_some_and(|table| {
            table.remove("grants");
            table.is_empty()
        });
        if is_empty {
            plugins.remove(plugin);
        }
        if plugins.is_empty() {
            all.remove("plugins");
        }
    }
    Some(all)
}

/// The table of that name in another one, made where there is none.
fn table<'i>(item: &'i mut Item, key: &str) -> Option<&'i mut Item> {
    let is_inline = item.is_inline_table();
    let parent = item.as_table_like_mut()?;
    if parent.get(key).is_none_or(Item::is_none) {
        let mut new = Table::new();
        new.set_implicit(true);
        let new = if is_inline { toml_edit::value(InlineTable::new()) } else { Item::Table(new) };
        parent.insert(key, new);
    }
    parent.get_mut(key).filter(|item| item.is_table_like())
}

fn add(grants: &mut Item, grant: &Grant) -> Option<()> {
    let grants = grants.as_table_like_mut()?;
    let key = grant.kind.key();
    match grant.kind {
        Kind::KeyValue | Kind::ModelTokens => {
            grants.insert(key, toml_edit::value(grant.value.parse::<i64>().ok()?));
        }
        Kind::Media => {
            grants.insert(key, toml_edit::value(true));
        }
        Kind::Config => return None,
        Kind::Read | Kind::Write | Kind::Env | Kind::Http | Kind::Events => {
            if grants.get(key).is_none_or(Item::is_none) {
                grants.insert(key, toml_edit::value(Array::new()));
            }
            append(grants.get_mut(key)?.as_array_mut()?, &grant.value);
        }
    }
    Some(())
}

/// A list that has a line for each item gets one more line.
fn append(list: &mut Array, text: &str) {
    let mut value = Value::from(text);
    let before = list.iter().last().and_then(|last| last.decor().prefix()?.as_str().map(str::to_owned));
    match before.filter(|before| before.contains('\n')) {
        Some(before) => {
            // A comment stands before the item that it speaks of.
            let indent = before.rsplit('\n').next().unwrap_or_default();
            value.decor_mut().set_prefix(format!("\n{indent}"));
            list.push_formatted(value);
        }
        None => list.push(value),
    }
}

/// A file that is gone again unless it is put in another one's place.
struct Unfinished(Option<PathBuf>);

impl Unfinished {
    fn beside(path: &Path) -> std::io::Result<Self> {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let draft = path.with_file_name(format!(".{name}.{}", uuid::Uuid::new_v4().simple()));
        std::fs::OpenOptions::new().write(true).create_new(true).open(&draft)?;
        Ok(Self(Some(draft)))
    }

    fn fill(&mut self, text: &str, like: &Path) -> std::io::Result<()> {
        let Some(draft) = &self.0 else { return Ok(()) };
        std::fs::set_permissions(draft, std::fs::metadata(like)?.permissions())?;
        let mut file = std::fs::OpenOptions::new().write(true).truncate(true).open(draft)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()
    }

    fn put(mut self, path: &Path) -> std::io::Result<()> {
        let Some(draft) = self.0.take() else { return Ok(()) };
        std::fs::rename(&draft, path).inspect_err(|_| self.0 = Some(draft))
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if let Some(draft) = &self.0 {
            let _ = std::fs::remove_file(draft);
        }
    }
}

#[cfg(test)]
mod tests;
