//! The data folder, which stores the host's data between runs. Only its owner can access the folder.

mod owner_only;

use crate::data_location::{DataLocation, SharedDatabase};
use crate::environment::HostEnvironment;
use crate::error::ConfigError;
use crate::text::shell_word;
use crate::trust::{TRUST_FOLDER, TrustStore};
use agent_store::{SearchedSessions, SessionFilter, Unowned};
use std::path::{Path, PathBuf};

/// Name of the file with the database.
const DATABASE: &str = "agent-host.db";

/// A data folder that exists and belongs to the current user.
#[derive(Clone, Debug)]
pub struct DataDirectory {
    root: PathBuf,
    is_explicit: bool,
    /// User whose sessions are used. If the user is `None`, the sessions of the user in `logged_in` are used.
    user: Option<String>,
    logged_in: Option<String>,
    /// The database with the sessions. `None` means the database file in this folder.
    database: Option<SharedDatabase>,
}

impl DataDirectory {
    /// Opens the requested data folder. If no data folder is requested, opens the default data folder of the
    /// environment. Missing folders are created with access for their owner only. Fails if other users can
    /// access the folder or if it contains symbolic links.
    ///
    /// If the location names a shared database, the sessions are in that database, and everything else is in this folder:
    /// copies of plugins, compiled code, the tokens of a server, and temporary files.
    pub fn open<'l>(location: impl Into<DataLocation<'l>>, environment: &HostEnvironment) -> Result<Self, ConfigError> {
        let DataLocation { folder: requested, database } = location.into();
        let root = match requested {
            Some(path) => path.to_owned(),
            None => environment.data_directory.clone().ok_or_else(|| {
                ConfigError::DataDirectory(
                    "there is no home folder to store data in; choose a data folder with --data DIR".to_owned(),
                )
            })?,
        };
        let (is_explicit, logged_in) = (requested.is_some(), environment.user.clone());
        let data = Self { root, is_explicit, user: None, logged_in, database: database.cloned() };
        let unusable = |folder: &Path, problem: String| {
            let shown = folder.display();
            ConfigError::DataDirectory(format!("the data folder `{shown}` cannot be used: {problem}"))
        };
        let create = |folder: &Path| {
            let with_advice = |error| format!("{error}; name another folder with --data DIR");
            owner_only::create(folder).map_err(|error| unusable(folder, with_advice(error)))
        };
        create(&data.root)?;
        // Other users must not read or replace the files, and the folder must not contain symbolic links (row 56).
        owner_only::check_owner(&data.root).map_err(|problem| unusable(&data.root, problem))?;
        create(&data.cache())?;
        create(&data.plugins())?;
        for folder in [data.root.clone(), data.cache(), data.plugins(), data.downloads(), data.root.join(TRUST_FOLDER)]
        {
            owner_only::refuse_links(&folder).map_err(|problem| unusable(&data.root, problem))?;
        }
        Ok(data)
    }

    /// Checks an existing data folder as [`DataDirectory::open`] does, but changes nothing. Returns the reason why the folder
    /// cannot be used.
    pub fn examine(root: &Path) -> Result<(), String> {
        owner_only::examine_owner(root)?;
        for name in ["", "cache", "plugins", "downloads", TRUST_FOLDER] {
            owner_only::refuse_links(&root.join(name))?;
        }
        Ok(())
    }

    /// Returns whether this folder contains a database. Nothing is created.
    pub fn has_database(root: &Path) -> bool {
        root.join(DATABASE).is_file()
    }

    /// Returns the same data folder, but for the given user. In the returned data folder, only sessions of this user
    /// are found (row 56).
    pub fn for_user(self, user: Option<String>) -> Self {
        Self { user, ..self }
    }

    /// Returns the user whose sessions are used, or None if no user is known.
    pub fn user(&self) -> Option<String> {
        self.user.clone().or_else(|| self.logged_in.clone())
    }

    /// Restricts a filter to the sessions of this data folder's user. Sessions without a known user belong to the user
    /// who is logged in.
    pub fn sessions_of_user(&self, filter: SessionFilter) -> SessionFilter {
        let is_owner = self.user.is_none() || self.user == self.logged_in;
        let unowned = if is_owner { Unowned::Shown } else { Unowned::Hidden };
        SessionFilter { user: self.user(), unowned, ..filter }
    }

    /// Returns the sessions of this user, for a search. They are those of [`DataDirectory::sessions_of_user`].
    pub fn searched_sessions(&self) -> SearchedSessions {
        let SessionFilter { user, unowned, .. } = self.sessions_of_user(SessionFilter::default());
        SearchedSessions { agents: None, user, unowned }
    }

    /// Returns the path of the data folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns where this data is, for code that opens it again.
    pub fn location(&self) -> DataLocation<'_> {
        DataLocation { folder: Some(&self.root), database: self.database.as_ref() }
    }

    /// Returns the options `--data DIR` and `--store ADDRESS` that select this data on a command line, or an empty string
    /// for the default folder with its own database.
    pub fn flag(&self) -> String {
        let folder = match self.is_explicit {
            true => format!(" --data {}", shell_word(&self.root.display().to_string())),
            false => String::new(),
        };
        folder + &self.database.as_ref().map(SharedDatabase::flag).unwrap_or_default()
    }

    /// Returns the path of the file in which the user edits the arguments of a tool call. Other users cannot read
    /// the file.
    pub fn draft(&self, name: &str) -> PathBuf {
        self.root.join(format!("draft-{name}.json"))
    }

    /// Returns the path of the database file in this folder. It contains all sessions, unless they are in a shared database.
    pub fn database_file(&self) -> PathBuf {
        Self::database_file_in(&self.root)
    }

    /// Returns the path of the database file in a data folder.
    pub fn database_file_in(root: &Path) -> PathBuf {
        root.join(DATABASE)
    }

    /// Returns the database that contains all sessions. `None` if they are in the database file in this folder.
    pub fn shared_database(&self) -> Option<&SharedDatabase> {
        self.database.as_ref()
    }

    /// Returns whether sessions may have been stored: there is a database file, or the sessions are in a shared database.
    pub fn has_store(&self) -> bool {
        self.database.is_some() || self.database_file().exists()
    }

    /// Returns a name of the database for messages: the path of its file, or its address without user and password.
    pub fn store_name(&self) -> String {
        match &self.database {
            Some(database) => database.to_string(),
            None => self.database_file().display().to_string(),
        }
    }

    /// Returns the decisions to trust agents' files.
    pub fn trust(&self) -> TrustStore {
        TrustStore::in_data_folder(&self.root)
    }

    /// Returns the path of the file with the input history of interactive sessions.
    pub fn history(&self) -> PathBuf {
        self.root.join("history")
    }

    /// Returns the path of the folder that contains compiled components.
    pub fn cache(&self) -> PathBuf {
        self.root.join("cache")
    }

    /// Returns the path of the folder for what development builds of several projects have in common.
    pub fn development_builds(&self) -> PathBuf {
        self.cache().join("development")
    }

    /// Returns the path of the folder that contains incomplete downloads of components.
    pub fn downloads(&self) -> PathBuf {
        self.root.join("downloads")
    }

    /// Returns the path of the folder for files that exist only for a short time, such as the copies with which calls
    /// are rehearsed. Other folders for temporary files are not suitable, because a plugin may have access to them.
    pub fn scratch(&self) -> PathBuf {
        self.root.join("scratch")
    }

    /// Returns the path of the folder that stores components by digest, so that a turn can keep using the component
    /// that it started with.
    pub fn plugins(&self) -> PathBuf {
        self.root.join("plugins")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(folder: &Path) -> Result<DataDirectory, ConfigError> {
        DataDirectory::open(Some(folder), &HostEnvironment::default())
    }

    #[test]
    fn a_new_data_folder_is_accessible_to_its_owner_only() {
        let parent = tempfile::tempdir().expect("a temporary folder");
        let data = open(&parent.path().join("a/b")).expect("opened");
        for folder in [parent.path().join("a/b"), data.cache(), data.plugins()] {
            let metadata = std::fs::metadata(&folder).expect("exists");
            assert!(metadata.is_dir());
            #[cfg(unix)]
            assert_eq!(std::os::unix::fs::PermissionsExt::mode(&metadata.permissions()) & 0o777, 0o700);
        }
        assert_eq!(data.database_file(), parent.path().join("a/b/agent-host.db"));
    }

    #[test]
    fn rejects_a_file_in_place_of_the_folder() {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        let message = open(file.path()).expect_err("a file").to_string();
        assert!(message.contains(&file.path().display().to_string()), "{}", message);
        assert!(message.contains("--data"), "{}", message);
    }

    /// Row 56: a folder that other users can access is rejected, unless it is empty.
    #[cfg(unix)]
    #[test]
    fn row_56_rejects_a_folder_that_other_users_can_access() {
        use std::os::unix::fs::PermissionsExt;
        let parent = tempfile::tempdir().expect("a temporary folder");
        let folder = parent.path().join("data");
        std::fs::create_dir(&folder).expect("created");
        let open_to = |mode: u32| std::fs::set_permissions(&folder, PermissionsExt::from_mode(mode)).expect("set");
        open_to(0o755);
        open(&folder).expect("an empty folder is made private");
        let mode = || std::fs::metadata(&folder).expect("exists").permissions().mode() & 0o777;
        assert_eq!(mode(), 0o700);
        std::fs::write(folder.join("history"), "").expect("written");
        for mode_of_others in [0o755, 0o710, 0o701, 0o770] {
            open_to(mode_of_others);
            let message = open(&folder).expect_err("open to others").to_string();
            assert!(message.contains("chmod 700") && message.contains(&folder.display().to_string()), "{message}");
            assert_eq!(mode(), mode_of_others, "the mode is not changed");
        }
        open_to(0o700);
        open(&folder).expect("private again");
    }

    /// Class 14: the folder is rejected if it contains a symbolic link.
    #[cfg(unix)]
    #[test]
    fn rejects_symbolic_links_in_the_folder() {
        let parent = tempfile::tempdir().expect("a temporary folder");
        std::fs::create_dir(parent.path().join("elsewhere")).expect("created");
        let names = [DATABASE, "agent-host.db-wal", "history", "cache", "plugins", "downloads", "trust", "cache/x"];
        for name in names.into_iter().chain(["agent-host.db.owners", "plugins/x.wasm", "draft-1.json"]) {
            let root = parent.path().join(name.replace(['/', '.'], "-"));
            drop(open(&root).expect("opened"));
            let link = root.join(name);
            let _ = std::fs::remove_dir(&link);
            std::os::unix::fs::symlink(parent.path().join("elsewhere"), &link).expect("linked");
            let message = open(&root).expect_err(name).to_string();
            assert!(message.contains(&link.display().to_string()) && message.contains("link"), "{name}: {message}");
        }
    }
}
