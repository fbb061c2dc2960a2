//! Protected files: configurations, plugin folders, the lock file, the data folder and the outbox. No grant allows
//! plugins to change these files, because agent-host reads them to decide what plugins may do (P13). The directory
//! entries on the way to a protected path are protected like the path itself, so that a guest cannot redirect the path.

use super::resolve::SEARCH;
use super::{FileId, TreeRefusal};
use crate::sync::lock;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat, fstat, open, openat, readlinkat, statat};
use std::collections::{HashMap, HashSet, VecDeque};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// File names that are protected in every folder, with their descriptions.
const PROTECTED_NAMES: [(&str, &str); 2] =
    [("agent.toml", "an agent's configuration"), ("plugins.lock", "the lock file of a plugin folder")];
/// The beginning of the names of files that agent-host writes completely before it gives them their final names. Such a
/// file is protected in every folder, because its final name may be the name of a protected file.
pub const DRAFT_PREFIX: &str = ".agent-host-";
/// Names of TOML files that belong to other programs and therefore never define an agent.
const OTHER_PROGRAMS: [&str; 8] = [
    "cargo.toml",
    "pyproject.toml",
    "rustfmt.toml",
    ".rustfmt.toml",
    "clippy.toml",
    "rust-toolchain.toml",
    "deny.toml",
    "netlify.toml",
];
/// Maximum number of symbolic links that are followed in one protected path.
const MAX_LINKS: u32 = 40;
/// Maximum number of parent directories of a directory that are checked.
const MAX_DEPTH: usize = 1024;
/// If a file has hard links, at most this number of files in protected folders are compared with it.
const MAX_COMPARED: usize = 50_000;

/// A special ending in [`ProtectedKind::CodeFiles`] that matches names without an ending, such as `tool`. This special
/// ending protects existing files without an ending, and forbids new files that an interpreter would load instead of
/// another file, for example `tool` instead of `tool.js`.
pub const NO_EXTENSION: &str = "/";

/// A file or folder that plugins must not change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProtectedPath {
    /// Path of the file or folder, which may not exist yet.
    pub path: PathBuf,
    /// Description for users, for example `the agent's configuration`.
    pub what: String,
    /// Whether a file, a folder or certain files in a folder are protected.
    pub kind: ProtectedKind,
}

/// What is protected at a path: a file, a folder or certain files in a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtectedKind {
    /// The path is the path of a single file, and this file is protected.
    File,
    /// A folder with everything in it, which plugins may read if a grant allows reading.
    Folder,
    /// A folder with everything in it, which plugins must not even read.
    PrivateFolder,
    /// The files `*.toml` in the folder, which may define agents. The TOML files of well-known programs are not
    /// protected.
    AgentFiles,
    /// The files below the folder, at any depth, whose names in lower case have one of these endings. These files are
    /// code that an interpreter loads from the folder. The endings are, for example, `&[".py", ".pth", NO_EXTENSION]`.
    CodeFiles(&'static [&'static str]),
}

impl ProtectedKind {
    /// Whether this kind protects files with certain names instead of a whole folder.
    pub fn protects_by_name(self) -> bool {
        matches!(self, Self::AgentFiles | Self::CodeFiles(_))
    }
}

impl ProtectedPath {
    /// Whether this path is a folder that is protected together with everything below it.
    pub fn is_folder(&self) -> bool {
        matches!(self.kind, ProtectedKind::Folder | ProtectedKind::PrivateFolder)
    }
}

/// The protected paths of this process. Paths are added and never removed, because a path that was used for a decision
/// must stay protected.
#[derive(Debug, Default)]
pub(crate) struct ProtectedPaths(Mutex<Arc<Vec<ProtectedPath>>>);

impl ProtectedPaths {
    /// Adds these paths to the protected paths.
    pub(crate) fn add(&self, paths: impl IntoIterator<Item = ProtectedPath>) {
        let mut protected = lock(&self.0);
        for mut path in paths {
            path.path = std::path::absolute(&path.path).unwrap_or(path.path);
            if !protected.contains(&path) {
                Arc::make_mut(&mut protected).push(path);
            }
        }
    }

    pub(crate) fn all(&self) -> Arc<Vec<ProtectedPath>> {
        Arc::clone(&lock(&self.0))
    }

    /// Resolves all protected paths to the files and directories that they refer to now.
    pub(super) fn now(&self) -> Protection {
        Protection::of(self.all().iter())
    }

    /// Resolves the paths of the folders that guests must not even read.
    pub(super) fn private_folders_now(&self) -> Protection {
        Protection::of(self.all().iter().filter(|path| path.kind == ProtectedKind::PrivateFolder))
    }
}

/// The files and directories that are protected at one moment, identified by device and inode. The user may replace
/// folders at any time, so a value of this type must not be kept for long.
#[derive(Debug, Default)]
pub(super) struct Protection {
    /// The directory entries that guests must not change, each with a description. Some of the entries do not
    /// exist yet.
    entries: HashMap<(FileId, String), String>,
    folders: HashMap<FileId, (String, PathBuf)>,
    files: HashMap<FileId, String>,
    /// Directories whose `*.toml` files define agents.
    agent_folders: HashSet<FileId>,
    /// Directories that contain code at any depth, each with the endings of its code files.
    code_folders: HashMap<FileId, Vec<CodeFiles>>,
}

/// The open directories on the way to protected paths. These directories are kept open because each of them can be the
/// beginning of many protected paths.
type Opened = HashMap<PathBuf, Arc<OwnedFd>>;
/// Maximum number of directories that are open at the same time.
const MAX_OPENED: usize = 64;

/// The endings of the names of code files, and a description of these files for users.
type CodeFiles = (&'static [&'static str], String);

impl Protection {
    fn of<'p>(paths: impl Iterator<Item = &'p ProtectedPath>) -> Self {
        let (mut protection, mut opened) = (Self::default(), Opened::new());
        for path in paths {
            // If a path cannot be resolved completely, the part that exists is protected.
            let _ = protection.trace(path, &mut opened);
        }
        protection
    }

    /// Protects every directory entry on the way to a path, including links.
    fn trace(&mut self, protected: &ProtectedPath, opened: &mut Opened) -> rustix::io::Result<()> {
        let known = protected.path.ancestors().skip(1).find_map(|ancestor| Some((ancestor, opened.get(ancestor)?)));
        let (mut current, mut walked, mut todo) = match known {
            Some((ancestor, directory)) => {
                let remaining = protected.path.strip_prefix(ancestor).unwrap_or(&protected.path);
                (Arc::clone(directory), Some(ancestor.to_owned()), components(remaining))
            }
            None => {
                let root = open("/", SEARCH | OFlags::DIRECTORY, Mode::empty())?;
                (Arc::new(root), Some(PathBuf::from("/")), components(&protected.path))
            }
        };
        let mut links = 0;
        while let Some(name) = todo.pop_front() {
            if name == "/" {
                current = Arc::new(open("/", SEARCH | OFlags::DIRECTORY, Mode::empty())?);
                continue;
            }
            if name == ".." {
                walked = None;
                current = Arc::new(openat(&current, "..", SEARCH | OFlags::DIRECTORY, Mode::empty())?);
                continue;
            }
            let directory = FileId::from(&fstat(&current)?);
            if !protected.kind.protects_by_name() {
                self.entries.entry((directory, fold_case(&name))).or_insert_with(|| protected.what.clone());
            }
            // If the entry does not exist, this call fails. The entry stays protected, so that guests cannot create it.
            let stat = statat(&current, &name, AtFlags::SYMLINK_NOFOLLOW)?;
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::Symlink => {
                    walked = None;
                    links += 1;
                    if links > MAX_LINKS {
                        return Ok(());
                    }
                    let target = readlinkat(&current, &name, Vec::new())?.into_bytes();
                    for component in components(Path::new(&OsString::from_vec(target))).into_iter().rev() {
                        todo.push_front(component);
                    }
                }
                FileType::Directory => {
                    let flags = SEARCH | OFlags::DIRECTORY | OFlags::NOFOLLOW;
                    current = Arc::new(openat(&current, &name, flags, Mode::empty())?);
                    // `opened` contains only directories whose path is completely protected. If the kind of a path
                    // protects files by name, the directories on the way to the path are left out, because the entries
                    // of these directories are not protected.
                    if let Some(walked) = walked.as_mut().filter(|_| !protected.kind.protects_by_name()) {
                        walked.push(&name);
                        if opened.len() < MAX_OPENED {
                            opened.insert(walked.clone(), Arc::clone(&current));
                        }
                    }
                }
                _ => {
                    self.files.insert(FileId::from(&stat), protected.what.clone());
                    return Ok(());
                }
            }
        }
        let end = FileId::from(&fstat(&current)?);
        match protected.kind {
            ProtectedKind::File => {}
            ProtectedKind::Folder | ProtectedKind::PrivateFolder => {
                self.folders.insert(end, (protected.what.clone(), protected.path.clone()));
            }
            ProtectedKind::AgentFiles => {
                self.agent_folders.insert(end);
            }
            ProtectedKind::CodeFiles(endings) => {
                self.code_folders.entry(end).or_default().push((endings, protected.what.clone()));
            }
        }
        Ok(())
    }

    /// Refuses to change a directory entry if a protected path depends on the entry.
    pub(super) fn check_entry(&self, parent: BorrowedFd<'_>, name: &OsStr) -> Result<(), TreeRefusal> {
        let id = FileId::from(&fstat(parent)?);
        let name_folded = fold_case(name);
        let everywhere = PROTECTED_NAMES.iter().find(|(read, _)| *read == name_folded).map(|(_, what)| *what);
        let is_draft = name_folded.starts_with(DRAFT_PREFIX);
        let everywhere = everywhere.or(is_draft.then_some("a file that agent-host is writing"));
        let is_agents = self.agent_folders.contains(&id) && is_agent_file(&name_folded);
        let listed = self.entries.get(&(id, name_folded)).map(String::as_str);
        if let Some(what) = listed.or(everywhere).or(is_agents.then_some("an agent's configuration")) {
            return Err(protected(&name.to_string_lossy(), what));
        }
        // Not only the name but also the file is checked, because on a case-insensitive file system, or with hard
        // links, one file can have several names.
        if let Ok(stat) = statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
            self.check_identity(FileId::from(&stat))?;
        }
        self.check_code(parent, name)?;
        self.check_directory(parent)
    }

    /// Refuses to change a file that an interpreter could load as code.
    fn check_code(&self, parent: BorrowedFd<'_>, name: &OsStr) -> Result<(), TreeRefusal> {
        let hides = |endings: &[&str]| {
            let exists = |ending: &&str| {
                let name: OsString = [name, ending.as_ref()].into_iter().collect();
                statat(parent, &name, AtFlags::SYMLINK_NOFOLLOW).is_ok()
            };
            let is_file = |stat: Stat| !FileType::from_raw_mode(stat.st_mode).is_dir();
            endings.contains(&NO_EXTENSION)
                && !name.as_encoded_bytes().contains(&b'.')
                && (statat(parent, name, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(is_file)
                    || endings.iter().filter(|ending| ending.starts_with('.')).any(exists))
        };
        let folded = fold_case(name);
        let is_code =
            |(endings, _): &&CodeFiles| endings.iter().any(|ending| folded.ends_with(ending)) || hides(endings);
        if !self.code_folders.values().flatten().any(|files| is_code(&files)) {
            return Ok(());
        }
        for id in ancestors_where(parent, |id| self.code_folders.contains_key(&id))? {
            if let Some((_, what)) = self.code_folders[&id].iter().find(is_code) {
                return Err(protected(&folded, what));
            }
        }
        Ok(())
    }

    /// Whether two directories are below the same code folders. A directory with content may be moved from one
    /// directory to another only if both are below the same code folders.
    pub(super) fn has_same_code(&self, one: BorrowedFd<'_>, other: BorrowedFd<'_>) -> Result<bool, TreeRefusal> {
        let is_code_folder = |id| self.code_folders.contains_key(&id);
        Ok(self.code_folders.is_empty()
            || ancestors_where(one, is_code_folder)? == ancestors_where(other, is_code_folder)?)
    }

    /// Fails if the directory is a protected folder or is below a protected folder.
    pub(super) fn check_directory(&self, directory: BorrowedFd<'_>) -> Result<(), TreeRefusal> {
        if self.folders.is_empty() {
            return Ok(());
        }
        match ancestors_where(directory, |id| self.folders.contains_key(&id))?.first() {
            Some(id) => Err(protected(&self.folders[id].1.to_string_lossy(), &self.folders[id].0)),
            None => Ok(()),
        }
    }

    /// Fails if an open file is protected, even if the guest has opened the file under a name that is not protected.
    pub(super) fn check_file(&self, file: BorrowedFd<'_>) -> Result<(), TreeRefusal> {
        let stat = fstat(file)?;
        let id = FileId::from(&stat);
        self.check_identity(id)?;
        if stat.st_nlink < 2 || !FileType::from_raw_mode(stat.st_mode).is_file() {
            return Ok(());
        }
        let mut remaining = MAX_COMPARED;
        for (what, path) in self.folders.values() {
            if contains_file(path, id, &mut remaining) {
                return Err(protected(&path.to_string_lossy(), what));
            }
        }
        Ok(())
    }

    fn check_identity(&self, id: FileId) -> Result<(), TreeRefusal> {
        let what = self.files.get(&id).or_else(|| self.folders.get(&id).map(|(what, _)| what));
        what.map_or(Ok(()), |what| Err(TreeRefusal::Protected(format!("it is {what}"))))
    }
}

/// Examines the ids of a directory and its parents, innermost first, and returns the ids for which `is_wanted` is true.
fn ancestors_where(directory: BorrowedFd<'_>, is_wanted: impl Fn(FileId) -> bool) -> Result<Vec<FileId>, TreeRefusal> {
    let mut id = FileId::from(&fstat(directory)?);
    let (mut found, mut last_parent): (Vec<FileId>, Option<OwnedFd>) = (Vec::new(), None);
    for _ in 0..MAX_DEPTH {
        if is_wanted(id) {
            found.push(id);
        }
        let current = last_parent.as_ref().map_or(directory, AsFd::as_fd);
        let parent = openat(current, "..", SEARCH | OFlags::DIRECTORY, Mode::empty())?;
        let parent_id = FileId::from(&fstat(&parent)?);
        if parent_id == id {
            return Ok(found);
        }
        (id, last_parent) = (parent_id, Some(parent));
    }
    Err(TreeRefusal::NotPermitted)
}

fn protected(name: &str, what: &str) -> TreeRefusal {
    TreeRefusal::Protected(format!("`{}` is {what}", crate::text::clean(name, 256)))
}

/// Whether a file with this name belongs to another program and therefore never defines an agent, for
/// example `Cargo.toml`.
pub fn is_foreign_toml(name: &OsStr) -> bool {
    OTHER_PROGRAMS.contains(&fold_case(name).as_str())
}

fn is_agent_file(folded: &str) -> bool {
    folded.ends_with(".toml") && !OTHER_PROGRAMS.contains(&folded)
}

/// Whether a folder contains a file, whatever the file's name is. Returns true if more than `remaining` entries would
/// have to be compared.
fn contains_file(folder: &Path, file: FileId, remaining: &mut usize) -> bool {
    let mut open_folders = vec![folder.to_owned()];
    while let Some(folder) = open_folders.pop() {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let Ok(directory) = open(&folder, flags, Mode::empty()) else { continue };
        let Ok(entries) = Dir::read_from(&directory) else { continue };
        for entry in entries.flatten() {
            let name = OsString::from_vec(entry.file_name().to_bytes().to_vec());
            if name == "." || name == ".." {
                continue;
            }
            *remaining = remaining.saturating_sub(1);
            let Ok(stat) = statat(&directory, &name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
            if *remaining == 0 || FileId::from(&stat) == file {
                return true;
            }
            if FileType::from_raw_mode(stat.st_mode).is_dir() {
                open_folders.push(folder.join(name));
            }
        }
    }
    false
}

/// The components of a path, including a leading `/`.
fn components(path: &Path) -> VecDeque<OsString> {
    let components = path.components().filter(|component| *component != std::path::Component::CurDir);
    components.map(|component| component.as_os_str().to_owned()).collect()
}

/// The name in the form in which case-insensitive file systems compare it. On case-sensitive file systems, slightly
/// more names than necessary are therefore protected.
fn fold_case(name: &OsStr) -> String {
    name.to_string_lossy().to_uppercase().to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    fn path(path: PathBuf, kind: ProtectedKind) -> ProtectedPath {
        ProtectedPath { path, what: "a test's file".to_owned(), kind }
    }

    fn is_refused(protection: &Protection, folder: &Path, name: &str) -> bool {
        let folder = File::open(folder).expect("the folder opens");
        protection.check_entry(folder.as_fd(), name.as_ref()).is_err()
    }

    // Row 40, P13: if a file is protected, every directory and link on the way to the file is also protected, even if
    // the file or a directory does not exist yet.
    #[test]
    fn row_40_every_entry_on_the_way_to_a_protected_path_is_protected() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let root = folder.path().canonicalize().expect("the folder exists");
        std::fs::create_dir_all(root.join("real/below")).expect("created");
        std::fs::write(root.join("real/below/x.toml"), "").expect("written");
        std::fs::create_dir_all(root.join("plugins/deep")).expect("created");
        std::os::unix::fs::symlink("real", root.join("way")).expect("linked");
        let paths = ProtectedPaths::default();
        paths.add([
            path(root.join("way/below/x.toml"), ProtectedKind::File),
            path(root.join("plugins"), ProtectedKind::Folder),
            path(root.join("absent/later.toml"), ProtectedKind::File),
            path(root.join("agents"), ProtectedKind::AgentFiles),
        ]);
        let protection = paths.now();
        let cases = [
            ("", "way"),
            ("", "real"),
            ("real", "below"),
            ("real/below", "x.toml"),
            ("real/below", "X.Toml"),
            ("", "plugins"),
            ("plugins", "new.wasm"),
            ("plugins/deep", "new"),
            ("", "absent"),
            ("real", "agent.toml"),
            ("real", "AGENT.TOML"),
            ("real", "plugins.lock"),
            ("real", ".agent-host-0123"),
            ("real", ".Agent-Host-0123"),
        ];
        for (parent, name) in cases {
            assert!(is_refused(&protection, &root.join(parent), name), "{parent}/{name}");
        }
        for (parent, name) in [("", "free"), ("real", "free"), ("real/below", "y.toml"), ("", "Cargo.toml")] {
            assert!(!is_refused(&protection, &root.join(parent), name), "{parent}/{name}");
        }
        std::fs::create_dir(root.join("agents")).expect("created");
        let protection = paths.now();
        assert!(is_refused(&protection, &root.join("agents"), "new.toml"), "the folder was created in the meantime");
        assert!(!is_refused(&protection, &root.join("agents"), "Cargo.toml"), "a file of another program");
    }

    // Row 40: code files below a code folder are protected at any depth, whether their names are in upper or lower
    // case, and files that are not code are not protected.
    #[test]
    fn row_40_code_is_protected_at_any_depth() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let root = folder.path().canonicalize().expect("the folder exists");
        std::fs::create_dir_all(root.join("agent/deep/er")).expect("created");
        std::fs::create_dir_all(root.join("other")).expect("created");
        let paths = ProtectedPaths::default();
        paths.add([path(root.join("agent"), ProtectedKind::CodeFiles(&[".py", "package.json"]))]);
        let protection = paths.now();
        for (parent, name) in
            [("agent", "json.py"), ("agent/deep/er", "__init__.py"), ("agent", "X.PY"), ("agent/deep", "package.json")]
        {
            assert!(is_refused(&protection, &root.join(parent), name), "{parent}/{name}");
        }
        for (parent, name) in [("agent", "notes.txt"), ("agent", "deep"), ("other", "json.py"), ("", "agent.py")] {
            assert!(!is_refused(&protection, &root.join(parent), name), "{parent}/{name}");
        }
        let have_same_code = |one: &str, other: &str| {
            let [one, other] = [one, other].map(|name| File::open(root.join(name)).expect("the file opens"));
            protection.has_same_code(one.as_fd(), other.as_fd()).expect("the folders are compared")
        };
        let names = path(root.join("other"), ProtectedKind::CodeFiles(&[".js", NO_EXTENSION]));
        paths.add([names]);
        std::fs::write(root.join("other/tool.js"), "").expect("written");
        std::fs::write(root.join("other/run"), "").expect("written");
        std::fs::create_dir(root.join("other/notes")).expect("created");
        let protection_of_names = paths.now();
        for (name, expected) in [("tool", true), ("run", true), ("notes", false), ("other", false), ("new.txt", false)]
        {
            assert_eq!(is_refused(&protection_of_names, &root.join("other"), name), expected, "{name}");
        }
        assert!(
            have_same_code("agent", "agent/deep")
                && have_same_code("other", "")
                && !have_same_code("other", "agent/deep")
        );
    }

    // Row 40: a hard link to a protected file, or to a file in a protected folder, is also protected.
    #[test]
    fn row_40_hard_links_to_protected_files_are_protected() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let root = folder.path();
        std::fs::create_dir_all(root.join("plugins/deep")).expect("created");
        for (file, link) in [("config", "config-link"), ("plugins/deep/code", "code-link"), ("free", "free-link")] {
            std::fs::write(root.join(file), "").expect("written");
            std::fs::hard_link(root.join(file), root.join(link)).expect("linked");
        }
        let paths = ProtectedPaths::default();
        paths.add([path(root.join("config"), ProtectedKind::File), path(root.join("plugins"), ProtectedKind::Folder)]);
        let protection = paths.now();
        let is_refused =
            |name: &str| protection.check_file(File::open(root.join(name)).expect("the file opens").as_fd()).is_err();
        assert!(is_refused("config-link") && is_refused("code-link"));
        assert!(!is_refused("free-link"));
    }
}
