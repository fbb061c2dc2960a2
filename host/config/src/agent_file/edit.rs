//! Writes grants into an existing `agent.toml`. Comments and layout are kept, and nothing else changes.

use super::{AgentFile, read_bounded};
use crate::grants::{Grant, Kind, Receiver};
use std::io::Write;
use std::path::{Path, PathBuf};
use toml_edit::{Array, DocumentMut, InlineTable, Item, Table, Value};

/// Largest file that is edited, in bytes.
const MAX_BYTES: u64 = 1024 * 1024;

/// A change to the table `[plugins.NAME.grants]` of one plugin.
#[derive(Clone, Debug, PartialEq)]
pub enum Addition<'g> {
    /// Adds these grants.
    Grants(&'g [Grant]),
    /// Sets `ask = false`, so that the user is not asked for missing grants.
    NeverAsk,
}

/// Why a file was not changed.
#[derive(Debug, thiserror::Error)]
pub enum EditError {
    /// The file cannot be read or written.
    #[error("`{}` cannot be changed: {source}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// The I/O error.
        source: std::io::Error,
    },
    /// The file was changed by someone else after it was read. Contains its path.
    #[error("`{}` was changed in the meantime", .0.display())]
    Changed(PathBuf),
    /// The layout of the file does not allow the change to be made automatically.
    #[error("`{}` cannot be changed automatically: it is written in a way that does not allow adding to {table}", path.display())]
    Form {
        /// Path of the file.
        path: PathBuf,
        /// Header of the table.
        table: String,
    },
}

/// The text of an `agent.toml` at the time when the user is asked.
#[derive(Debug)]
pub struct Draft {
    /// Canonical path of the file, so that a symbolic link is kept.
    path: PathBuf,
    text: String,
}

impl Draft {
    /// Reads the file at `path`, following symbolic links.
    pub fn read(path: &Path) -> Result<Self, EditError> {
        let failed = |source| EditError::File { path: path.to_owned(), source };
        let canonical = std::fs::canonicalize(path).map_err(failed)?;
        let text = read_bounded(&canonical, MAX_BYTES).map_err(failed)?;
        Ok(Self { path: canonical, text })
    }

    /// Canonical path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the file with the addition. The file is replaced atomically, and only if it is unchanged since it was read.
    pub fn add(&self, plugin: &str, addition: &Addition<'_>) -> Result<(), EditError> {
        let text = self.with(plugin, addition)?;
        let failed = |source| EditError::File { path: self.path.clone(), source };
        let mut draft = TemporaryFile::next_to(&self.path).map_err(failed)?;
        draft.write(&text, &self.path).map_err(failed)?;
        if read_bounded(&self.path, MAX_BYTES).map_err(failed)? != self.text {
            return Err(EditError::Changed(self.path.clone()));
        }
        draft.replace(&self.path).map_err(failed)
    }

    /// The text of the file with the addition.
    fn with(&self, plugin: &str, addition: &Addition<'_>) -> Result<String, EditError> {
        let unsupported = || EditError::Form { path: self.path.clone(), table: format!("[plugins.{plugin}.grants]") };
        let mut document: DocumentMut = self.text.parse().map_err(|_| unsupported())?;
        let mut item = document.as_item_mut();
        for key in ["plugins", plugin, "grants"] {
            item = table(item, key).ok_or_else(unsupported)?;
        }
        match addition {
            Addition::Grants(grants) => grants.iter().try_for_each(|grant| add(item, grant)).ok_or_else(unsupported)?,
            Addition::NeverAsk => {
                item.as_table_like_mut().ok_or_else(unsupported)?.insert("ask", toml_edit::value(false));
            }
        }
        let text = self.render(&mut document, plugin);
        if self.adds_nothing_else(&text, plugin, addition) { Ok(text) } else { Err(unsupported()) }
    }

    /// The text of the document. A new table at the end of the file is placed after the comments at the end, because they
    /// belong to the tables above them.
    fn render(&self, document: &mut DocumentMut, plugin: &str) -> String {
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

    /// Whether the new text means exactly what the old text means plus the addition.
    fn adds_nothing_else(&self, text: &str, plugin: &str, addition: &Addition<'_>) -> bool {
        let read = |text: &str| AgentFile::parse(text, &self.path).ok();
        let (Some(mut before), Some(after)) = (read(&self.text), read(text)) else { return false };
        match addition {
            Addition::Grants(grants) => before.grants.extend_from_slice(grants),
            Addition::NeverAsk => drop(before.never_ask.insert(plugin.to_owned())),
        }
        all_grants(&before) == all_grants(&after)
            && before.never_ask == after.never_ask
            && without_grants(&self.text, plugin) == without_grants(text, plugin)
    }
}

/// All grants of a file, sorted.
fn all_grants(file: &AgentFile) -> Vec<(&Receiver, Kind, &str)> {
    let grants = file.grants.iter().map(|grant| (&grant.receiver, grant.kind, grant.value.as_str()));
    let mut grants: Vec<_> = grants.collect();
    grants.sort();
    grants
}

/// The contents of a file without the grants of one plugin.
fn without_grants(text: &str, plugin: &str) -> Option<toml::Table> {
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

/// The table `key` in another table. Creates it if it does not exist.
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

/// Appends an item to a list. If each item of the list is on its own line, the new item is, too.
fn append(list: &mut Array, text: &str) {
    let mut value = Value::from(text);
    let before = list.iter().last().and_then(|last| last.decor().prefix()?.as_str().map(str::to_owned));
    match before.filter(|before| before.contains('\n')) {
        Some(before) => {
            // The prefix of an item can contain a comment. Only the indentation is copied.
            let indent = before.rsplit('\n').next().unwrap_or_default();
            value.decor_mut().set_prefix(format!("\n{indent}"));
            list.push_formatted(value);
        }
        None => list.push(value),
    }
}

/// A temporary file. It is deleted when dropped, unless it has replaced the target file.
struct TemporaryFile(Option<PathBuf>);

impl TemporaryFile {
    fn next_to(path: &Path) -> std::io::Result<Self> {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let draft = path.with_file_name(format!(".{name}.{}", uuid::Uuid::new_v4().simple()));
        std::fs::OpenOptions::new().write(true).create_new(true).open(&draft)?;
        Ok(Self(Some(draft)))
    }

    fn write(&mut self, text: &str, like: &Path) -> std::io::Result<()> {
        let Some(draft) = &self.0 else { return Ok(()) };
        std::fs::set_permissions(draft, std::fs::metadata(like)?.permissions())?;
        let mut file = std::fs::OpenOptions::new().write(true).truncate(true).open(draft)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()
    }

    fn replace(mut self, path: &Path) -> std::io::Result<()> {
        let Some(draft) = self.0.take() else { return Ok(()) };
        std::fs::rename(&draft, path).inspect_err(|_| self.0 = Some(draft))
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        if let Some(draft) = &self.0 {
            let _ = std::fs::remove_file(draft);
        }
    }
}

#[cfg(test)]
mod tests;
