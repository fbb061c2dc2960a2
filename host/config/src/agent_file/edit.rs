//! Writes grants into an existing `agent.toml`. The comments, the layout and all other keys of the file are kept.

use super::{AgentFile, read_bounded};
use crate::grants::{Grant, Kind, Receiver};
use agent_plugins::DRAFT_PREFIX;
use std::io::Write;
use std::path::{Path, PathBuf};
use toml_edit::{Array, DocumentMut, InlineTable, Item, Table, Value};

/// Maximum size of a file that can be edited, in bytes.
const MAX_BYTES: u64 = 1024 * 1024;

/// A change to the table `[plugins.NAME.grants]` of one plugin.
#[derive(Clone, Debug, PartialEq)]
pub enum Addition<'g> {
    /// Adds these grants to the plugin's table of grants.
    Grants(&'g [Grant]),
    /// Sets `ask = false`, so that the user is not asked for missing grants.
    NeverAsk,
}

/// The reason why an `agent.toml` was not changed.
#[derive(Debug, thiserror::Error)]
pub enum EditError {
    /// The file could not be read or written.
    #[error("`{}` cannot be changed: {source}", path.display())]
    File {
        /// Path of the file that was not changed.
        path: PathBuf,
        /// The I/O error that occurred while the file was read or written.
        source: std::io::Error,
    },
    /// Another program has changed the file after the file was read. This variant contains the path of the file.
    #[error("`{}` was changed in the meantime", .0.display())]
    Changed(PathBuf),
    /// The layout of the file does not allow an automatic change.
    #[error("`{}` cannot be changed automatically: the notation of the file does not allow an addition to {table}", path.display())]
    Form {
        /// Path of the file that was not changed.
        path: PathBuf,
        /// Header of the table to which the addition belongs, such as `[plugins.files.grants]`.
        table: String,
    },
}

/// The text of an `agent.toml` that was read before a change. The text is compared with the file again before the file
/// is replaced, so that changes by other programs are not lost.
#[derive(Debug)]
pub struct Draft {
    /// Path of the file with all links resolved, so that a symbolic link to the file is kept.
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

    /// Returns the canonical path of the file that this draft changes.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the text that the file had when it was read.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Replaces the whole text of the file. The file is replaced atomically, and only if it has not changed since it was
    /// read. The new text is not checked.
    pub fn write(&self, text: &str) -> Result<(), EditError> {
        self.replace(text)
    }

    /// Writes the addition into the file. The file is replaced atomically, and only if the file has not changed since
    /// it was read.
    pub fn add(&self, plugin: &str, addition: &Addition<'_>) -> Result<(), EditError> {
        self.replace(&self.text_with(plugin, addition)?)
    }

    /// Removes the grants of this kind from the table of a plugin, or all grants if there is no kind. Without the kind
    /// `write`, the folders of this kind remain readable; without the kind `read`, they are not writable either. Returns false if
    /// the table has no such grants.
    pub fn remove(&self, plugin: &str, kind: Option<Kind>) -> Result<bool, EditError> {
        let text = self.text_without(plugin, kind)?;
        match text == self.text {
            true => Ok(false),
            false => self.replace(&text).map(|()| true),
        }
    }

    /// Replaces the file by this text, if the file has not changed since it was read.
    fn replace(&self, text: &str) -> Result<(), EditError> {
        let failed = |source| EditError::File { path: self.path.clone(), source };
        let mut draft = TemporaryFile::next_to(&self.path).map_err(failed)?;
        draft.write(text, &self.path).map_err(failed)?;
        if read_bounded(&self.path, MAX_BYTES).map_err(failed)? != self.text {
            return Err(EditError::Changed(self.path.clone()));
        }
        draft.replace(&self.path).map_err(failed)
    }

    /// Returns the text of the file without the grants of this kind.
    fn text_without(&self, plugin: &str, kind: Option<Kind>) -> Result<String, EditError> {
        let unsupported = || EditError::Form { path: self.path.clone(), table: format!("[plugins.{plugin}.grants]") };
        let mut document: DocumentMut = self.text.parse().map_err(|_| unsupported())?;
        let table = document.get_mut("plugins").and_then(|plugins| plugins.get_mut(plugin)?.get_mut("grants"));
        let Some(table) = table.and_then(Item::as_table_like_mut) else { return Ok(self.text.clone()) };
        if kind == Some(Kind::Write) {
            let folders = table.remove(Kind::Write.key()).and_then(|item| item.into_value().ok());
            for folder in folders.iter().filter_map(Value::as_array).flatten().filter_map(Value::as_str) {
                let read = table.entry(Kind::Read.key()).or_insert_with(|| toml_edit::value(Array::new()));
                let read = read.as_array_mut().ok_or_else(unsupported)?;
                if !read.iter().any(|other| other.as_str() == Some(folder)) {
                    append(read, folder);
                }
            }
        }
        let removed: Vec<Kind> = match kind {
            None => Kind::all().collect(),
            Some(Kind::Read) => vec![Kind::Read, Kind::Write],
            Some(kind) => vec![kind],
        };
        for kind in removed {
            table.remove(kind.key());
        }
        let text = document.to_string();
        let settings = |text: &str| without_grants(text, plugin);
        if settings(&text).is_some() && settings(&text) == settings(&self.text) { Ok(text) } else { Err(unsupported()) }
    }

    /// Returns the text of the file with the addition.
    fn text_with(&self, plugin: &str, addition: &Addition<'_>) -> Result<String, EditError> {
        let unsupported = || EditError::Form { path: self.path.clone(), table: format!("[plugins.{plugin}.grants]") };
        let mut document: DocumentMut = self.text.parse().map_err(|_| unsupported())?;
        let mut item = document.as_item_mut();
        for key in ["plugins", plugin, "grants"] {
            item = subtable(item, key).ok_or_else(unsupported)?;
        }
        match addition {
            Addition::Grants(grants) => {
                grants.iter().try_for_each(|grant| add_grant(item, grant)).ok_or_else(unsupported)?
            }
            Addition::NeverAsk => {
                item.as_table_like_mut().ok_or_else(unsupported)?.insert("ask", toml_edit::value(false));
            }
        }
        let text = self.render(&mut document, plugin);
        if self.adds_nothing_else(&text, plugin, addition) { Ok(text) } else { Err(unsupported()) }
    }

    /// Renders the changed document as TOML. If the new table is the last table, it is written after the comments at
    /// the end of the file, because these comments belong to the tables above them.
    fn render(&self, document: &mut DocumentMut, plugin: &str) -> String {
        let trailing_comments = document.trailing().as_str().unwrap_or_default().to_owned();
        let last_header = |text: &str| text.lines().rfind(|line| line.starts_with('[')).map(str::to_owned);
        let text = document.to_string();
        let is_last = last_header(&text) != last_header(&self.text);
        let table =
            document.get_mut("plugins").and_then(|plugins| plugins.get_mut(plugin)?.get_mut("grants")?.as_table_mut());
        let Some(table) = table.filter(|_| is_last && !trailing_comments.trim().is_empty()) else { return text };
        table.decor_mut().set_prefix(format!("{}\n\n", trailing_comments.trim_end()));
        document.set_trailing("");
        document.to_string()
    }

    /// Whether the new text contains the settings of the old text and the addition, and no other settings.
    fn adds_nothing_else(&self, text: &str, plugin: &str, addition: &Addition<'_>) -> bool {
        let read = |text: &str| AgentFile::parse(text, &self.path).ok();
        let (Some(mut expected), Some(actual)) = (read(&self.text), read(text)) else { return false };
        match addition {
            Addition::Grants(grants) => expected.grants.extend_from_slice(grants),
            Addition::NeverAsk => drop(expected.never_ask.insert(plugin.to_owned())),
        }
        all_grants(&expected) == all_grants(&actual)
            && expected.never_ask == actual.never_ask
            && without_grants(&self.text, plugin) == without_grants(text, plugin)
    }
}

/// Returns all grants of a file in sorted order, without their locations.
fn all_grants(file: &AgentFile) -> Vec<(&Receiver, Kind, &str)> {
    let grants = file.grants.iter().map(|grant| (&grant.receiver, grant.kind, grant.value.as_str()));
    let mut grants: Vec<_> = grants.collect();
    grants.sort();
    grants
}

/// Returns the contents of a file without the grants of one plugin.
fn without_grants(text: &str, plugin: &str) -> Option<toml::Table> {
    let mut document: toml::Table = text.parse().ok()?;
    if let Some(plugins) = document.get_mut("plugins").and_then(toml::Value::as_table_mut) {
        let is_empty = plugins.get_mut(plugin).and_then(toml::Value::as_table_mut).is_some_and(|table| {
            table.remove("grants");
            table.is_empty()
        });
        if is_empty {
            plugins.remove(plugin);
        }
        if plugins.is_empty() {
            document.remove("plugins");
        }
    }
    Some(document)
}

/// Returns the table at `key` in the table `item`. If the table does not exist, creates the table.
fn subtable<'i>(item: &'i mut Item, key: &str) -> Option<&'i mut Item> {
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

fn add_grant(grants: &mut Item, grant: &Grant) -> Option<()> {
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

/// Appends an item to a list. If the last item of the list is on a separate line, the new item is also written on a
/// separate line.
fn append(list: &mut Array, text: &str) {
    let mut value = Value::from(text);
    let last_prefix = list.iter().last().and_then(|last| last.decor().prefix()?.as_str().map(str::to_owned));
    match last_prefix.filter(|prefix| prefix.contains('\n')) {
        Some(prefix) => {
            // The prefix of an item can contain a comment, so only the indentation is copied.
            let indent = prefix.rsplit('\n').next().unwrap_or_default();
            value.decor_mut().set_prefix(format!("\n{indent}"));
            list.push_formatted(value);
        }
        None => list.push(value),
    }
}

/// A temporary file that no plugin can change, which is deleted when this value is dropped. The path is `None` after the file was moved to its
/// final name.
pub(crate) struct TemporaryFile(Option<PathBuf>);

impl TemporaryFile {
    /// Creates an empty temporary file in the folder of the file at `path`.
    pub(crate) fn next_to(path: &Path) -> std::io::Result<Self> {
        let draft = path.with_file_name(format!("{DRAFT_PREFIX}{}", uuid::Uuid::new_v4().simple()));
        std::fs::OpenOptions::new().write(true).create_new(true).open(&draft)?;
        Ok(Self(Some(draft)))
    }

    fn write(&mut self, text: &str, target: &Path) -> std::io::Result<()> {
        let Some(draft) = &self.0 else { return Ok(()) };
        std::fs::set_permissions(draft, std::fs::metadata(target)?.permissions())?;
        let mut file = std::fs::OpenOptions::new().write(true).truncate(true).open(draft)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()
    }

    /// Writes the text for a file that only its owner may read and write.
    pub(crate) fn write_private(&mut self, text: &str) -> std::io::Result<()> {
        let Some(draft) = &self.0 else { return Ok(()) };
        #[cfg(unix)]
        std::fs::set_permissions(draft, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
        let mut file = std::fs::OpenOptions::new().write(true).truncate(true).open(draft)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()
    }

    /// Moves the temporary file to `path`, and replaces the file there.
    pub(crate) fn replace(mut self, path: &Path) -> std::io::Result<()> {
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
