//! Recognises files that are likely to contain secrets, so that the host never sends them to a model as an attachment of a
//! prompt.

use super::{canonical_prefix, private_paths};
use crate::data_directory::DataDirectory;
use crate::environment::HostEnvironment;
use agent_plugins::ProtectedPath;
use std::path::{Path, PathBuf};

/// Names of files that contain secrets, in lower case.
const NAMES: [&str; 10] =
    [".env", ".envrc", ".netrc", "_netrc", ".npmrc", ".pypirc", ".pgpass", ".my.cnf", ".git-credentials", ".htpasswd"];
/// Beginnings of the names of files that contain secrets, in lower case.
const BEGINNINGS: [&str; 5] = [".env.", "id_rsa", "id_dsa", "id_ecdsa", "id_ed25519"];
/// Endings of the names of files that contain secrets, in lower case.
const ENDINGS: [&str; 7] = [".pem", ".key", ".p12", ".pfx", ".jks", ".kdbx", ".keystore"];
/// Endings of the names of files that are public although their names look like the names of secrets.
const PUBLIC_ENDINGS: [&str; 5] = [".pub", ".example", ".sample", ".template", ".dist"];
/// Folders whose files are secrets.
const FOLDERS: [&str; 4] = [".ssh", ".gnupg", ".aws", ".kube"];

/// Decides whether a file is likely to contain secrets.
#[derive(Clone, Debug, Default)]
pub struct SecretFiles {
    /// Files and folders of the host that contain secrets, without symbolic links, each with a description.
    private: Vec<(PathBuf, String)>,
}

impl SecretFiles {
    /// Treats the data folder, and the file in which Docker stores credentials, as secret, in addition to all files whose
    /// names are the names of secrets.
    pub fn new(data: &DataDirectory, environment: &HostEnvironment) -> Self {
        let resolved = |path: ProtectedPath| (canonical_prefix(&path.path), path.what);
        Self { private: private_paths(data, environment).map(resolved).collect() }
    }

    /// Returns why this file or folder is likely to contain secrets, as a clause for users. Returns `None` for any other
    /// file. The path must not contain symbolic links.
    pub fn reason(&self, path: &Path) -> Option<String> {
        if let Some((folder, what)) = self.private.iter().find(|(private, _)| path.starts_with(private)) {
            return Some(if folder == path { format!("it is {what}") } else { format!("it belongs to {what}") });
        }
        let name = path.file_name()?.to_string_lossy().to_lowercase();
        let is_public = PUBLIC_ENDINGS.iter().any(|ending| name.ends_with(ending));
        let is_named = NAMES.contains(&name.as_str())
            || BEGINNINGS.iter().any(|beginning| name.starts_with(beginning))
            || ENDINGS.iter().any(|ending| name.ends_with(ending));
        let is_in_folder =
            path.components().any(|component| FOLDERS.iter().any(|folder| component.as_os_str() == *folder));
        let is_secret = (is_named && !is_public) || (is_in_folder && !name.ends_with(".pub"));
        is_secret.then(|| "files with such a name usually contain secrets".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_files_are_recognised_by_name_and_place() {
        let parent = tempfile::tempdir().expect("a temporary folder");
        let root = parent.path().canonicalize().expect("exists").join("data");
        let data = DataDirectory::open(Some(&root), &HostEnvironment::default()).expect("opened");
        let secrets = SecretFiles::new(&data, &HostEnvironment::default());
        assert_eq!(secrets.reason(&root).as_deref(), Some("it is the data folder of agent-host"));
        let database = root.join("agent-host.db");
        assert_eq!(secrets.reason(&database).as_deref(), Some("it belongs to the data folder of agent-host"));
        for secret in
            ["/a/.env", "/a/.ENV.local", "/a/server.pem", "/h/.ssh/config", "/h/.ssh", "/a/id_rsa.bak", "/h/.aws/x"]
        {
            assert!(secrets.reason(Path::new(secret)).is_some(), "{secret}");
        }
        for public in ["/a/.env.example", "/a/id_rsa.pub", "/a/environment.rs", "/a/keys.rs", "/h/.ssh/id.pub", "/"] {
            assert_eq!(secrets.reason(Path::new(public)), None, "{public}");
        }
    }
}
