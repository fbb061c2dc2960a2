//! Finds the file or folder that a mention names, and decides whether it may be attached.

use super::mention::Mention;
use agent_config::protection::SecretFiles;
use std::io::ErrorKind;
use std::path::{Component, Path, PathBuf};

/// Punctuation that may follow a path in a sentence.
const PUNCTUATION: [char; 11] = ['.', ',', ';', ':', '!', '?', ')', ']', '}', '\'', '"'];

/// The folders that paths refer to, and the files that are never attached.
pub(super) struct Places {
    /// Folder to which relative paths refer.
    pub(super) folder: PathBuf,
    /// Folder that `~` stands for.
    pub(super) home: Option<PathBuf>,
    /// The files that are likely to contain secrets.
    pub(super) secrets: SecretFiles,
}

/// A file or folder that exists and may be attached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Located {
    /// Absolute path without symbolic links.
    pub(super) path: PathBuf,
    /// The path as the user typed it.
    pub(super) shown: String,
}

impl Places {
    /// Finds the file or folder of a mention. Returns `None` if it does not exist, and an error for users if it must not
    /// be attached.
    pub(super) fn locate(&self, mention: &Mention) -> Result<Option<Located>, String> {
        let mut typed = mention.path.as_str();
        loop {
            let path = self.absolute(typed);
            match path.canonicalize() {
                Ok(canonical) => return self.allowed(typed, &path, canonical).map(Some),
                Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                    return Err(format!("@{typed} was not attached: {error}"));
                }
                // The path may be followed by punctuation that belongs to the sentence.
                Err(_) => match typed.strip_suffix(PUNCTUATION) {
                    Some(shorter) if !mention.is_quoted && !shorter.is_empty() => typed = shorter,
                    _ => return Ok(None),
                },
            }
        }
    }

    fn absolute(&self, typed: &str) -> PathBuf {
        match (typed.strip_prefix("~/"), &self.home) {
            (Some(below), Some(home)) => home.join(below),
            _ if typed == "~" && self.home.is_some() => self.home.clone().unwrap_or_default(),
            _ => self.folder.join(typed),
        }
    }

    fn allowed(&self, typed: &str, path: &Path, canonical: PathBuf) -> Result<Located, String> {
        if let Some(reason) = self.secrets.reason(&canonical) {
            return Err(format!("@{typed} was not attached, because {reason}"));
        }
        // A plugin that may write files could create such a link, so that the user would attach a file outside of the
        // folder without noticing it.
        let folder = self.folder.canonicalize().unwrap_or_else(|_| self.folder.clone());
        let is_plain = !path.components().any(|component| component == Component::ParentDir);
        let names_inside = is_plain && (path.starts_with(&self.folder) || path.starts_with(&folder));
        if names_inside && !canonical.starts_with(&folder) {
            let target = canonical.display();
            return Err(format!(
                "@{typed} was not attached, because it is a link to {target}: write that path to attach it"
            ));
        }
        Ok(Located { path: canonical, shown: typed.to_owned() })
    }
}
