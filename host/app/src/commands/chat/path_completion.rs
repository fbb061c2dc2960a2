//! Completes the path that is being typed after an `@`.

use crate::commands::attachments::written;
use crate::environment;
use agent_core::visible::visible_line;
use std::path::{Path, PathBuf};

/// Maximum number of paths that are proposed.
const MAX_PROPOSALS: usize = 200;

/// Returns the paths that begin with the typed path, as they are typed after an `@`. Hidden files are proposed only if
/// the typed name begins with a dot.
pub(super) fn paths(typed: &str) -> Vec<String> {
    let (folder, prefix) =
        typed.rsplit_once('/').map_or(("", typed), |(folder, prefix)| (&typed[..=folder.len()], prefix));
    let mut found: Vec<String> = Vec::new();
    for entry in std::fs::read_dir(resolved(folder)).into_iter().flatten().flatten() {
        let Ok(name) = entry.file_name().into_string() else { continue };
        let is_proposed = name.starts_with(prefix) && (!name.starts_with('.') || prefix.starts_with('.'));
        // A control character would change the line that is being typed, and a quotation mark would end the path. An
        // invisible character would make the path look like another one (row 49).
        let is_misleading = visible_line(&name) != name.as_str();
        if is_proposed && !is_misleading && !name.contains(['"', '\\']) {
            let end = if entry.path().is_dir() { "/" } else { "" };
            found.push(format!("{folder}{name}{end}"));
        }
    }
    found.sort();
    found.truncate(MAX_PROPOSALS);
    found.iter().map(|path| written(path)).collect()
}

fn resolved(folder: &str) -> PathBuf {
    match (folder.strip_prefix("~/"), environment::home()) {
        (Some(below), Some(home)) => home.join(below),
        _ if folder.is_empty() => PathBuf::from("."),
        _ => Path::new(folder).to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn i1_paths_are_completed_folder_by_folder() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        std::fs::create_dir(folder.path().join("some folder")).expect("created");
        for name in ["some.txt", "other.txt", ".hidden", "some folder/in it.txt"] {
            std::fs::write(folder.path().join(name), "").expect("written");
        }
        let root = folder.path().to_str().expect("a path in UTF-8");
        let proposed = |typed: &str| {
            let found = paths(&format!("{root}/{typed}"));
            found.into_iter().map(|path| path.replace(root, "")).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(proposed("so"), "@\"/some folder/ @/some.txt");
        assert_eq!(proposed("some folder/"), "@\"/some folder/in it.txt\"");
        assert_eq!(proposed("."), "@/.hidden");
        assert_eq!(proposed(""), "@/other.txt @\"/some folder/ @/some.txt");
        assert_eq!(proposed("absent/"), "");
    }

    /// Row 49: a name with characters that reorder or hide text is not proposed.
    #[test]
    fn row_49_misleading_names_are_not_proposed() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        for name in ["a\u{202e}txt.exe", "a\u{200b}.txt", "a\u{2066}b", "a\u{e0041}", "a\u{1b}[0m", "aé漢.txt"] {
            std::fs::write(folder.path().join(name), "").expect("written");
        }
        let root = folder.path().to_str().expect("a path in UTF-8");
        assert_eq!(paths(&format!("{root}/a")), [format!("@{root}/aé漢.txt")]);
    }
}
