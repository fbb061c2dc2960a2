//! The runtimes of development builds: components with Python and the SDK, but without a plugin. Projects whose runtimes have
//! the same content share one runtime, because componentize-py needs many seconds to build a runtime, and the host
//! needs as long to compile it.

use super::super::lock::lock;
use super::super::{BuildError, BuildProgress, process};
use super::TOOL;
use agent_plugins::digest_of;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use tokio::process::Command;

/// Name of the component in the folder of a runtime.
const COMPONENT: &str = "runtime.wasm";
/// Name of the file in the folder of a runtime that is locked during a build. Its modification time is the last use.
const LOCK: &str = "lock";
/// Time after which a shared runtime that no build has used is removed.
const UNUSED: Duration = Duration::from_hours(30 * 24);
/// Number of hexadecimal digits in the name of a runtime's folder.
const NAME_DIGITS: usize = 24;

/// Returns the name of the runtime's folder: a digest of the tool, and of the Python modules and the WIT in `folders`.
pub(super) fn name(program: &Path, folders: &[&Path]) -> std::io::Result<String> {
    let modified = fs::metadata(program)?.modified()?;
    let mut text = format!("{} {modified:?}\n", program.canonicalize()?.display());
    for folder in folders {
        for (path, digest) in digests(folder, folder)? {
            text.push_str(&format!("{path} {digest}\n"));
        }
    }
    Ok(digest_of(text.as_bytes()).hex()[..NAME_DIGITS].to_owned())
}

/// Returns the path of the runtime in the folder `shared`. Builds it if it does not exist; `command` builds the runtime and
/// gets the path of the component as its last argument.
pub(super) async fn shared(
    mut command: Command,
    plugin: &str,
    (shared, name): (&Path, &str),
    progress: &BuildProgress<'_>,
) -> Result<PathBuf, BuildError> {
    let folder = shared.join(name);
    let failed = |action, path: &Path| {
        let path = path.to_owned();
        move |source| BuildError::File { action, path, source }
    };
    fs::create_dir_all(&folder).map_err(failed("cannot create", &folder))?;
    let path = folder.join(LOCK);
    let file = File::options().write(true).create(true).truncate(false).open(&path);
    let file = file.map_err(failed("cannot open", &path))?;
    lock(&file, (TOOL, &folder), progress).await.map_err(failed("cannot lock", &path))?;
    // If the time cannot be set, the runtime is built again after some time.
    let _ = file.set_modified(SystemTime::now());
    let component = folder.join(COMPONENT);
    if !component.is_file() {
        remove_unused(shared);
        // The final name belongs only to a complete component, so an interrupted build leaves no runtime.
        let unfinished = folder.join("unfinished.wasm");
        command.arg(&unfinished);
        process::compile(command, (TOOL, plugin), progress).await?;
        fs::rename(&unfinished, &component).map_err(failed("cannot rename", &unfinished))?;
    }
    Ok(component)
}

/// Removes the runtimes that no build has used for a long time, for example those of earlier versions of the SDK.
fn remove_unused(shared: &Path) {
    for folder in fs::read_dir(shared).into_iter().flatten().flatten().map(|entry| entry.path()) {
        let used = fs::metadata(folder.join(LOCK)).and_then(|lock| lock.modified());
        if used.is_ok_and(|used| used.elapsed().is_ok_and(|time| time > UNUSED)) {
            let _ = fs::remove_dir_all(folder);
        }
    }
}

/// Returns the relative paths and the digests of the Python modules and the WIT in a folder.
fn digests(top: &Path, folder: &Path) -> std::io::Result<Vec<(String, String)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(digests(top, &path)?);
        } else if path.extension().is_some_and(|extension| extension == "py" || extension == "wit") {
            let relative = path.strip_prefix(top).unwrap_or(&path).display().to_string();
            found.push((relative, digest_of(&fs::read(&path)?).hex().to_owned()));
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_depends_on_the_tool_and_the_files() {
        let top = tempfile::tempdir().expect("a temporary folder");
        let path = |name: &str| top.path().join(name);
        for folder in ["one/__pycache__", "two"] {
            fs::create_dir_all(path(folder)).expect("made");
        }
        for file in ["tool", "one/a.py", "two/a.py"] {
            fs::write(path(file), "text").expect("written");
        }
        let named = |folder: &str| name(&path("tool"), &[&path(folder)]).expect("readable");
        let before = named("one");
        assert_eq!(before.len(), NAME_DIGITS);
        assert_eq!(named("two"), before, "the place of the files does not matter");
        fs::write(path("one/__pycache__/a.pyc"), "compiled").expect("written");
        assert_eq!(named("one"), before);
        fs::write(path("one/a.py"), "changed").expect("written");
        assert_ne!(named("one"), before);
    }

    #[test]
    fn removes_only_unused_runtimes() {
        let top = tempfile::tempdir().expect("a temporary folder");
        for (name, days) in [("old", 31), ("new", 1)] {
            fs::create_dir(top.path().join(name)).expect("made");
            let lock = File::create(top.path().join(name).join(LOCK)).expect("created");
            let time = SystemTime::now() - Duration::from_hours(24 * days);
            lock.set_modified(time).expect("set");
        }
        fs::create_dir(top.path().join("other")).expect("made");
        remove_unused(top.path());
        let exists = |name: &str| top.path().join(name).exists();
        assert_eq!((exists("old"), exists("new"), exists("other")), (false, true, true));
    }
}
