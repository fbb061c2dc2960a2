//! The data folder: what is kept between runs, for its owner only.

use crate::exit::Failure;
use crate::terminal::text::shell_word;
use std::fs::DirBuilder;
use std::path::{Path, PathBuf};

/// An existing data folder.
#[derive(Clone, Debug)]
pub(crate) struct DataDirectory {
    root: PathBuf,
    asked: bool,
}

impl DataDirectory {
    /// Opens the folder that was asked for, else the platform's for application data. Folders that are missing are
    /// created for their owner only.
    pub(crate) fn open(asked: Option<&Path>) -> Result<Self, Failure> {
        let root = match asked {
            Some(path) => path.to_owned(),
            None => {
                directories::ProjectDirs::from("", "", "agent-host")
                    .map(|folders| folders.data_dir().to_owned())
                    .ok_or_else(|| Failure::refused("there is no home folder for the data; name one with --data DIR"))?
            }
        };
        let data = Self { root, asked: asked.is_some() };
        for folder in [data.root.clone(), data.cache(), data.plugins()] {
            create(&folder).map_err(|error| {
                let shown = folder.display();
                Failure::refused(format!(
                    "the data folder `{shown}` cannot be used: {error}; name another with --data DIR"
                ))
            })?;
        }
        Ok(data)
    }

    /// The folder.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// What a command line needs to find this folder again: nothing for the platform's.
    pub(crate) fn flag(&self) -> String {
        if self.asked { format!(" --data {}", shell_word(&self.root.display().to_string())) } else { String::new() }
    }

    /// A file in which somebody edits a call's arguments; nobody else may read the folder.
    pub(crate) fn draft(&self, name: &str) -> PathBuf {
        self.root.join(format!("draft-{name}.json"))
    }

    /// The database with all sessions.
    pub(crate) fn database(&self) -> PathBuf {
        self.root.join("agent-host.db")
    }

    /// What was typed in interactive sessions.
    pub(crate) fn history(&self) -> PathBuf {
        self.root.join("history")
    }

    /// Compiled code.
    pub(crate) fn cache(&self) -> PathBuf {
        self.root.join("cache")
    }

    /// Components on their way here, as far as they have come.
    pub(crate) fn downloads(&self) -> PathBuf {
        self.root.join("downloads")
    }

    /// Components by digest, as turns are pinned to them.
    pub(crate) fn plugins(&self) -> PathBuf {
        self.root.join("plugins")
    }
}

fn create(folder: &Path) -> std::io::Result<()> {
    if folder.is_file() {
        return Err(std::io::Error::other("there is a file of that name"));
    }
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_data_folder_is_for_its_owner_only() {
        let parent = tempfile::tempdir().expect("a temporary folder");
        let data = DataDirectory::open(Some(&parent.path().join("a/b"))).expect("opened");
        for folder in [parent.path().join("a/b"), data.cache(), data.plugins()] {
            let found = std::fs::metadata(&folder).expect("there");
            assert!(found.is_dir());
            #[cfg(unix)]
            assert_eq!(std::os::unix::fs::PermissionsExt::mode(&found.permissions()) & 0o777, 0o700);
        }
        assert_eq!(data.database(), parent.path().join("a/b/agent-host.db"));
    }

    #[test]
    fn a_file_in_its_place_is_named() {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        let failure = DataDirectory::open(Some(file.path())).expect_err("a file");
        assert!(failure.message.contains(&file.path().display().to_string()), "{}", failure.message);
        assert!(failure.message.contains("--data"), "{}", failure.message);
    }
}
