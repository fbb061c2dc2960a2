//! Paths of files in a lock file. They are relative to the folder of the lock file, and begin with `./` or `../`, so that they
//! cannot be mistaken for the reference of a registry.

use std::path::{Component, Path, PathBuf};

/// Returns the path of a file relative to the folder, with `/` between its parts. Returns `None` if `reference` is not an
/// absolute path, or if the file and the folder have no common folder except the root of the file system.
pub(crate) fn relative(reference: &str, directory: &Path) -> Option<String> {
    let path = Path::new(reference);
    if !path.is_absolute() {
        return None;
    }
    let directory = resolved(directory);
    let path = resolved(path.parent()?).join(path.file_name()?);
    let is_normal = |component: &Component<'_>| matches!(component, Component::Normal(_));
    let common: Vec<_> =
        path.components().zip(directory.components()).take_while(|(left, right)| left == right).collect();
    if !common.iter().any(|(component, _)| is_normal(component)) {
        return None;
    }
    let up = directory.components().count() - common.len();
    let begin = if up == 0 { "./".to_owned() } else { "../".repeat(up) };
    let rest: Option<Vec<_>> = path.components().skip(common.len()).map(|part| part.as_os_str().to_str()).collect();
    Some(begin + &rest?.join("/"))
}

/// Returns the absolute path of a file whose path is relative to the folder. Returns `None` if `reference` is not a relative path.
pub(crate) fn absolute(reference: &str, directory: &Path) -> Option<String> {
    if !reference.starts_with("./") && !reference.starts_with("../") {
        return None;
    }
    let mut path = resolved(directory);
    for component in Path::new(reference).components() {
        match component {
            Component::ParentDir => drop(path.pop()),
            Component::Normal(name) => path.push(name),
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    path.to_str().map(str::to_owned)
}

/// Returns the absolute path of a folder, with its links resolved if it exists.
fn resolved(directory: &Path) -> PathBuf {
    let directory = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
    let absolute = || std::path::absolute(directory).unwrap_or_else(|_| directory.to_owned());
    directory.canonicalize().unwrap_or_else(|_| absolute())
}
