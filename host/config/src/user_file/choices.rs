//! The choices that `agent-host setup` offers, and how they are written into the user-wide file. The comments and all
//! other keys of the file are kept.

use crate::agent_file::{AgentFile, ConfigurationError, MAX_BYTES, TemporaryFile, read_bounded};
use crate::grants::{Kind, Receiver};
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use toml_edit::{Array, DocumentMut, Item, Table, TableLike, Value};

/// The text of a new user-wide file, before the choices are written into it.
const STARTER: &str = "\
# The user-wide configuration of agent-host. It applies in folders without an agent.toml of their own. `agent-host setup`
# changes it, and `agent-host config init --full --output -` explains every key. Keys of model providers do not belong
# here: name the environment variable that contains the key. Relative grants refer to the folder in which agent-host is
# started; other relative paths refer to the folder of this file.
";

/// Maximum number of characters in the name of an environment variable.
const MAX_VARIABLE: usize = 64;

/// The values of the user-wide file that `agent-host setup` can change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserChoices {
    /// The default model. None if the file names no model.
    pub model: Option<String>,
    /// Environment variable with the key of the model's provider. None if the provider's usual variable is used.
    pub key_variable: Option<String>,
    /// The plugin folder. None if the file names no folder.
    pub plugins: Option<PathBuf>,
    /// For each plugin, whether it may read the folder in which agent-host is started.
    pub reads: BTreeMap<String, bool>,
}

/// The reason why the user-wide file was not changed.
#[derive(Debug, thiserror::Error)]
pub enum UserFileError {
    /// The file or its folder cannot be read or written.
    #[error("`{}` cannot be written: {source}", path.display())]
    File {
        /// Path of the user-wide file.
        path: PathBuf,
        /// The I/O error that occurred.
        source: io::Error,
    },
    /// The file, or the changed text of the file, is not a valid configuration.
    #[error(transparent)]
    Invalid(#[from] ConfigurationError),
    /// The notation of the file does not allow an automatic change.
    #[error("`{}` cannot be changed automatically: `{key}` is not written as a table; change the file with an editor", path.display())]
    Form {
        /// Path of the user-wide file.
        path: PathBuf,
        /// The key whose notation does not allow the change.
        key: String,
    },
    /// Another program has changed the file since it was read.
    #[error("`{}` was changed in the meantime; run the command again", .0.display())]
    Changed(PathBuf),
}

/// Returns whether a text is the name of an environment variable and does not look like a key.
pub fn is_variable_name(text: &str, is_set: bool) -> bool {
    let allowed = |character: char| character == '_' || character.is_ascii_alphanumeric();
    let begins = text.starts_with(|character: char| character == '_' || character.is_ascii_alphabetic());
    // Some keys consist of letters and digits, too. Names of variables are written in capitals.
    let is_usual = is_set || !text.contains(|character: char| character.is_ascii_lowercase());
    begins && text.chars().all(allowed) && text.len() <= MAX_VARIABLE && is_usual
}

impl UserChoices {
    /// Returns the present choices in a user-wide file.
    pub fn of(file: &AgentFile) -> Self {
        let model = file.model.as_ref().map(|model| model.value.clone());
        let provider = model.as_ref().and_then(|model| model.split_once('/')).map(|(provider, _)| provider);
        let table = provider.and_then(|provider| file.providers.get(provider));
        let key_variable = table.and_then(|table| Some(table.key_env.as_ref()?.value.clone()));
        let reads = file.grants.iter().filter(|grant| grant.kind == Kind::Read && grant.value == ".");
        let reads = reads.filter_map(|grant| match &grant.receiver {
            Receiver::Plugin(name) => Some((name.clone(), true)),
            Receiver::Host => None,
        });
        Self { reads: reads.collect(), plugins: file.plugin_directory.clone(), key_variable, model }
    }

    /// Writes the choices into the user-wide file, and returns its new text. A missing file is created. Only the owner may
    /// read the file.
    pub fn write(&self, path: &Path) -> Result<String, UserFileError> {
        let failed = |source| UserFileError::File { path: path.to_owned(), source };
        // A symbolic link to the file is kept, because some users manage their configuration in another folder.
        let target = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let before = match read_bounded(&target, MAX_BYTES) {
            Ok(text) => Some(text),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(failed(error)),
        };
        let text = self.text(before.as_deref(), path)?;
        if let Some(folder) = target.parent() {
            create_private(folder).map_err(failed)?;
        }
        let mut temporary = TemporaryFile::next_to(&target).map_err(failed)?;
        temporary.write_private(&text).map_err(failed)?;
        let now = read_bounded(&target, MAX_BYTES).ok();
        if now != before {
            return Err(UserFileError::Changed(path.to_owned()));
        }
        temporary.replace(&target).map_err(failed)?;
        Ok(text)
    }

    /// Returns the text of the file with the choices.
    fn text(&self, before: Option<&str>, path: &Path) -> Result<String, UserFileError> {
        let before = before.unwrap_or(STARTER);
        AgentFile::parse(before, path)?;
        let form = |key: &str| UserFileError::Form { path: path.to_owned(), key: key.to_owned() };
        let mut document: DocumentMut = before.parse().map_err(|_| form("the file"))?;
        // In a file without any key, the comments belong to the end of the document. They must stay at the beginning.
        let mut begin = String::new();
        if document.is_empty() {
            begin = document.trailing().as_str().unwrap_or_default().to_owned();
            document.set_trailing("");
        }
        if let Some(model) = &self.model {
            set(document.as_table_mut(), "model", model);
            let provider = model.split_once('/').map(|(provider, _)| provider);
            if let (Some(provider), Some(variable)) = (provider, &self.key_variable) {
                let table = subtable(document.as_table_mut(), "providers").ok_or_else(|| form("providers"))?;
                let key = format!("providers.{provider}");
                set(subtable(table, provider).ok_or_else(|| form(&key))?, "key_env", variable);
            }
        }
        if let Some(plugins) = &self.plugins {
            set(document.as_table_mut(), "plugin_directory", &plugins.display().to_string());
        }
        for (plugin, may_read) in &self.reads {
            self.set_read(document.as_table_mut(), plugin, *may_read)
                .ok_or_else(|| form(&format!("plugins.{plugin}.grants")))?;
        }
        let separator = if begin.is_empty() || begin.ends_with("\n\n") { "" } else { "\n" };
        let text = format!("{begin}{separator}{document}");
        AgentFile::parse(&text, path)?;
        Ok(text)
    }

    fn set_read(&self, root: &mut dyn TableLike, plugin: &str, may_read: bool) -> Option<()> {
        let exists = root.get("plugins").and_then(|plugins| plugins.get(plugin)).is_some();
        if !may_read && !exists {
            return Some(());
        }
        let grants = subtable(subtable(subtable(root, "plugins")?, plugin)?, "grants")?;
        if grants.get("read").is_none_or(Item::is_none) {
            if !may_read {
                return Some(());
            }
            grants.insert("read", toml_edit::value(Array::new()));
        }
        let list = grants.get_mut("read")?.as_array_mut()?;
        let position = list.iter().position(|value| value.as_str() == Some("."));
        match (position, may_read) {
            (None, true) => list.push("."),
            (Some(position), false) => drop(list.remove(position)),
            _ => {}
        }
        Some(())
    }
}

/// Sets a key to a string. The comment behind the present value is kept.
fn set(table: &mut dyn TableLike, key: &str, text: &str) {
    let mut value = Value::from(text);
    match table.get_mut(key).and_then(Item::as_value_mut) {
        Some(present) if present.as_str() == Some(text) => {}
        Some(present) => {
            *value.decor_mut() = present.decor().clone();
            *present = value;
        }
        None => drop(table.insert(key, Item::Value(value))),
    }
}

/// Returns the table at `key`. If the table does not exist, creates the table. Returns None if the key is not a table.
fn subtable<'t>(table: &'t mut dyn TableLike, key: &str) -> Option<&'t mut dyn TableLike> {
    if table.get(key).is_none_or(Item::is_none) {
        let mut new = Table::new();
        new.set_implicit(true);
        table.insert(key, Item::Table(new));
    }
    table.get_mut(key)?.as_table_like_mut()
}

fn create_private(folder: &Path) -> io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}
