//! The data folder: what is kept between runs, for its owner only.

mod private;

use crate::environment;
use crate::exit::Failure;
use crate::terminal::text::shell_word;
use agent_store::{SessionFilter, Unowned};
use std::path::{Path, PathBuf};

/// An existing data folder.
#[derive(Clone, Debug)]
pub(crate) struct DataDirectory {
    root: PathBuf,
    asked: bool,
    /// Whose sessions are meant. None: of who is logged in.
    user: Option<String>,
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
        let data = Self { root, asked: asked.is_some(), user: None };
        let unusable = |folder: &Path, problem: String| {
            let shown = folder.display();
            Failure::refused(format!("the data folder `{shown}` cannot be used: {problem}"))
        };
        let create = |folder: &Path| {
            let elsewhere = |error| format!("{error}; name another with --data DIR");
            private::create(folder).map_err(|error| unusable(folder, elsewhere(error)))
        };
        create(&data.root)?;
        // Nobody else may read or replace what is in the folder, and nothing in it leads elsewhere (row 56).
        private::check_owner(&data.root).map_err(|problem| unusable(&data.root, problem))?;
        create(&data.cache())?;
        create(&data.plugins())?;
        for folder in [data.root.clone(), data.cache(), data.plugins(), data.downloads()] {
            private::refuse_links(&folder).map_err(|problem| unusable(&data.root, problem))?;
        }
        Ok(data)
    }

    /// The same folder for a user: only their sessions are found in it (row 56).
    pub(crate) fn for_user(self, user: Option<String>) -> Self {
        Self { user, ..self }
    }

    /// Whose sessions are meant, where that is known.
    pub(crate) fn user(&self) -> Option<String> {
        self.user.clone().or_else(environment::user)
    }

    /// The filter, and only sessions of the user. Sessions of which no user is known belong to who is logged in.
    pub(crate) fn sessions_of_user(&self, filter: SessionFilter) -> SessionFilter {
        let owner = environment::user();
        let is_owner = self.user.is_none() || self.user == owner;
        let unowned = if is_owner { Unowned::Shown } else { Unowned::Hidden };
        SessionFilter { user: self.user(), unowned, ..filter }
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

    /// Row 56: a folder that others may read is refused, unless nothing is in it yet.
    #[cfg(unix)]
    #[test]
    fn row_56_a_folder_that_is_open_to_others_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let parent = tempfile::tempdir().expect("a temporary folder");
        let folder = parent.path().join("data");
        std::fs::create_dir(&folder).expect("created");
        let open_to = |mode: u32| std::fs::set_permissions(&folder, PermissionsExt::from_mode(mode)).expect("set");
        open_to(0o755);
        DataDirectory::open(Some(&folder)).expect("an empty folder is made private");
        let mode = || std::fs::metadata(&folder).expect("there").permissions().mode() & 0o777;
        assert_eq!(mode(), 0o700);
        std::fs::write(folder.join("history"), "").expect("written");
        for wrong in [0o755, 0o710, 0o701, 0o770] {
            open_to(wrong);
            let message = DataDirectory::open(Some(&folder)).expect_err("open to others").message;
            assert!(message.contains("chmod 700") && message.contains(&folder.display().to_string()), "{message}");
            assert_eq!(mode(), wrong, "it is left as it is");
        }
        open_to(0o700);
        DataDirectory::open(Some(&folder)).expect("private again");
    }

    /// Class 14: a symbolic link in the folder is refused, whatever it leads to.
    #[cfg(unix)]
    #[test]
    fn a_link_in_the_folder_is_refused() {
        let parent = tempfile::tempdir().expect("a temporary folder");
        std::fs::create_dir(parent.path().join("elsewhere")).expect("created");
        let names = ["agent-host.db", "agent-host.db-wal", "history", "cache", "plugins", "downloads", "cache/x"];
        for name in names.into_iter().chain(["agent-host.db.owners", "plugins/x.wasm", "draft-1.json"]) {
            let root = parent.path().join(name.replace(['/', '.'], "-"));
            drop(DataDirectory::open(Some(&root)).expect("opened"));
            let link = root.join(name);
            let _ = std::fs::remove_dir(&link);
            std::os::unix::fs::symlink(parent.path().join("elsewhere"), &link).expect("linked");
            let message = DataDirectory::open(Some(&root)).expect_err(name).message;
            assert!(message.contains(&link.display().to_string()) && message.contains("link"), "{name}: {message}");
        }
    }
}
