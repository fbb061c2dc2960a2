//! Compares the files that the arguments of a plugin's call name before and after the call, for users who see the
//! difference (I7).

use super::file_trees::{self, HostTrees};
use crate::host::{FileChange, FileChanges, SessionServices};
use agent_core::change::CallRecord;
use agent_plugins::{Access, HostTreeEntry, PluginSetup, TreeGrant};
use serde_json::Value;
use std::io::Read;
use std::path::PathBuf;
use std::time::Duration;

/// Names of arguments that contain the path of a file that a call changes.
const PATH_ARGUMENTS: [&str; 6] = ["path", "file", "file_path", "filename", "to", "target"];
/// Maximum size of a file that is compared, in bytes.
pub(super) const MAX_BYTES: u64 = 512 << 10;
/// Maximum time for reading the files of a call. If reading takes longer, no change is shown.
const READ_TIME_LIMIT: Duration = Duration::from_secs(1);

/// The content of a file. `None` means that the file does not exist.
type FileText = Option<String>;

/// The files that a call may change, as they were before the call.
pub(super) struct FilesBefore {
    changes: FileChanges,
    trees: Vec<TreeGrant>,
    /// Paths as the arguments name them, with the contents before the call.
    files: Vec<(String, FileText)>,
}

/// Reads the files that the call may change. Returns `None` if nobody wants to see the changes, or if there are no such
/// files. Only the directories in which the plugin may write at this moment are read, and through the same descriptors.
pub(super) async fn before(
    services: &SessionServices,
    setup: &PluginSetup,
    record: &CallRecord,
) -> Option<FilesBefore> {
    let changes = services.file_changes.clone()?;
    if services.agent.registry().get(&record.name)?.definition.traits.read_only {
        return None;
    }
    let writable = setup.grants().trees.iter().filter(|tree| tree.access == Access::ReadWrite);
    let trees: Vec<TreeGrant> = writable.cloned().collect();
    let arguments = record.effective_arguments();
    let named = PATH_ARGUMENTS.iter().filter_map(|name| arguments.get(name).and_then(Value::as_str));
    let paths: Vec<String> = named.map(str::to_owned).collect();
    if trees.is_empty() || paths.is_empty() {
        return None;
    }
    let files = read(services, trees.clone(), paths).await?;
    (!files.is_empty()).then_some(FilesBefore { changes, trees, files })
}

impl FilesBefore {
    /// Reads the files again, and keeps the differences until the user interface takes them.
    pub(super) async fn note_changes(self, services: &SessionServices, record: &CallRecord) {
        let paths = self.files.iter().map(|(path, _)| path.clone()).collect();
        let Some(after) = read(services, self.trees.clone(), paths).await else { return };
        for (path, new) in after {
            let old = self.files.iter().find(|(other, _)| *other == path);
            let (Some((_, old)), Some(new)) = (old, new) else { continue };
            if old.as_ref() != Some(&new)
                && let Some(on_host) = path_on_host(&self.trees, &path)
            {
                // Secrets that the agent's configuration names are never shown, even if they are in a file of the user.
                let redaction = services.agent.redaction();
                let (old, new) = (old.clone().map(|old| redaction.whole(old)), redaction.whole(new));
                self.changes.add(&services.subject, &record.id, FileChange { path: on_host, old, new });
            }
        }
    }
}

/// Returns the contents of the files. Files that are not text, are too large or cannot be read are left out.
async fn read(
    services: &SessionServices,
    granted: Vec<TreeGrant>,
    paths: Vec<String>,
) -> Option<Vec<(String, FileText)>> {
    let trees = HostTrees { sandbox: services.sandbox.clone(), granted };
    let work = tokio::task::spawn_blocking(move || {
        let files = paths.into_iter().filter_map(|path| Some((text_of(&trees, &path)?, path)));
        files.map(|(text, path)| (path, text)).collect::<Vec<_>>()
    });
    tokio::time::timeout(READ_TIME_LIMIT, work).await.ok()?.ok()
}

/// Returns the content of a file, or `None` if it cannot be compared.
pub(super) fn text_of(trees: &HostTrees, path: &str) -> Option<FileText> {
    let file = match file_trees::open(trees, path) {
        Ok(HostTreeEntry::File(file)) => file,
        Ok(HostTreeEntry::Directory(_) | HostTreeEntry::Special) => return None,
        Err(agent_core::tool::ToolError::NotFound { .. }) => return Some(None),
        Err(_) => return None,
    };
    let mut bytes = Vec::new();
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes).ok()?;
    let is_too_large = bytes.len() as u64 > MAX_BYTES;
    String::from_utf8(bytes).ok().filter(|_| !is_too_large).map(Some)
}

/// Returns the path of a file on the host, if the path does not leave and enter directories on its way.
pub(super) fn path_on_host(trees: &[TreeGrant], path: &str) -> Option<PathBuf> {
    let path = trees.iter().filter_map(|tree| tree.path_on_host(path)).max_by_key(|path| path.as_os_str().len())?;
    std::path::absolute(path).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_plugins::{Sandbox, SandboxOptions};

    /// I7, rows 33 and 39: only text files in the granted directories are read. Links and `..` lead nowhere, and reading
    /// does not wait for pipes.
    #[test]
    #[cfg(unix)]
    fn i7_row_39_only_text_files_in_granted_directories_are_read() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = |name: &str| folder.path().join(name);
        std::fs::create_dir_all(path("work/folder")).expect("a folder");
        let sandbox = Sandbox::new(SandboxOptions::default()).expect("the sandbox starts");
        for (name, text) in [("secret.md", "secret"), ("work/a.md", "text"), ("work/empty.md", "")] {
            std::fs::write(path(name), text).expect("a file");
        }
        std::fs::write(path("work/binary"), b"\xff\x00").expect("a file");
        std::fs::write(path("work/large.md"), "x".repeat((512 << 10) + 1)).expect("a file");
        std::fs::write(path("work/limit.md"), "x".repeat(512 << 10)).expect("a file");
        std::os::unix::fs::symlink(path("secret.md"), path("work/link.md")).expect("a link");
        std::os::unix::fs::symlink("..", path("work/up")).expect("a link");
        assert!(std::process::Command::new("mkfifo").arg(path("work/pipe")).status().expect("a pipe").success());
        let tree = TreeGrant { host: path("work"), guest: "work".to_owned(), access: Access::ReadWrite };
        let trees = HostTrees { sandbox, granted: vec![tree.clone()] };
        let text = |text: &str| Some(Some(text.to_owned()));
        let cases = [
            ("work/a.md", text("text")),
            ("work/empty.md", text("")),
            ("work/limit.md", text(&"x".repeat(512 << 10))),
            ("work/new.md", Some(None)),
            ("work/large.md", None),
            ("work/binary", None),
            ("work/folder", None),
            ("work/pipe", None),
            ("work/link.md", None),
            ("work/up/secret.md", None),
            ("work/../secret.md", None),
            ("secret.md", None),
            ("/etc/hostname", None),
            ("", None),
        ];
        for (path, expected) in cases {
            assert_eq!(text_of(&trees, path), expected, "{path}");
        }
        assert_eq!(path_on_host(&[tree], "work/./a.md"), Some(path("work/a.md")));
        let elsewhere = TreeGrant { host: path("work"), guest: "work".to_owned(), access: Access::ReadWrite };
        assert_eq!(path_on_host(&[elsewhere], "work/../secret.md"), None);
    }
}
