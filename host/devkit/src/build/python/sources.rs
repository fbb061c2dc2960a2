//! The Python modules of a project, and the modules that they import.

use crate::file_list::PYTHON_SDK_FOLDER;
use crate::source_files::{SourceFiles, collect};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Maximum size of all modules together, in bytes. A project with larger modules has no development builds.
const MAX_BYTES: u64 = 4 << 20;
/// Names with which a module finds files next to itself. A development build contains no such files.
const FILE_ACCESS: [&str; 4] = ["__file__", "importlib.resources", "pkgutil", "importlib_resources"];

/// The texts of all Python modules of a project, except for the SDK.
pub(super) struct Sources {
    /// The keys are the paths of the modules, relative to the folder with the main module, with `/` as the separator.
    files: BTreeMap<String, String>,
}

impl Sources {
    /// Reads all modules below a folder. Returns None if a development build could behave differently from a release:
    /// because a module accesses files next to itself, or because there are too many modules or modules in another encoding.
    pub(super) fn read(folder: &Path) -> Option<Self> {
        let mut found = SourceFiles::new();
        collect(folder, &mut found);
        let is_module = |path: &&std::path::PathBuf| path.extension().is_some_and(|extension| extension == "py");
        let mut files = BTreeMap::new();
        if found.values().map(|(_, size)| size).sum::<u64>() > MAX_BYTES {
            return None;
        }
        for path in found.keys().filter(is_module) {
            let relative = path.strip_prefix(folder).ok()?.to_str()?.replace('\\', "/");
            if relative.split('/').next() != Some(PYTHON_SDK_FOLDER) {
                files.insert(relative, std::fs::read_to_string(path).ok()?);
            }
        }
        let accesses_files = |text: &String| FILE_ACCESS.iter().any(|name| text.contains(name));
        (!files.values().any(accesses_files)).then_some(Self { files })
    }

    /// Returns the sources in the form that the SDK expects in a development build.
    pub(super) fn to_json(&self, main_module: &str) -> String {
        json!({ "main": main_module, "files": self.files }).to_string()
    }

    /// Returns the modules that the project's modules import, without the project's own modules and the SDK. A name in the
    /// result may be a name of a value in a module instead of a module.
    pub(super) fn imported_modules(&self) -> BTreeSet<String> {
        let own: BTreeSet<&str> = self.files.keys().filter_map(|path| path.split(['/', '.']).next()).collect();
        let is_foreign = |module: &String| {
            let first = module.split('.').next().unwrap_or_default();
            !own.contains(first) && first != PYTHON_SDK_FOLDER && first != "__future__"
        };
        self.files.values().flat_map(|text| imports(text)).filter(is_foreign).collect()
    }
}

/// Returns the names in the import statements of a module, wherever they are in the module.
fn imports(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let mut statement = line.split('#').next().unwrap_or_default().trim().to_owned();
        if !statement.starts_with("import ") && !statement.starts_with("from ") {
            continue;
        }
        // A statement with an open parenthesis or a backslash at its end continues on the next line.
        while (statement.contains('(') && !statement.contains(')')) || statement.ends_with('\\') {
            let Some(next) = lines.next() else { break };
            statement =
                format!("{} {}", statement.trim_end_matches('\\'), next.split('#').next().unwrap_or_default().trim());
        }
        let statement = statement.split(';').next().unwrap_or_default();
        if let Some(modules) = statement.strip_prefix("import ") {
            found.extend(names(modules));
        } else if let Some((module, members)) =
            statement.strip_prefix("from ").and_then(|rest| rest.split_once(" import "))
        {
            let module = module.trim();
            if !module.starts_with('.') && is_name(module) {
                found.insert(module.to_owned());
                found.extend(names(members).map(|member| format!("{module}.{member}")));
            }
        }
    }
    found
}

/// Returns the names in a list such as `(a, b.c as d)`.
fn names(list: &str) -> impl Iterator<Item = String> {
    let items = list.split(',').filter_map(|item| item.trim_matches([' ', '(', ')']).split_whitespace().next());
    items.filter(|name| is_name(name)).map(str::to_owned)
}

fn is_name(text: &str) -> bool {
    let is_part =
        |part: &str| !part.is_empty() && part.chars().all(|character| character.is_alphanumeric() || character == '_');
    text.split('.').all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_imported_modules_in_all_statements() {
        let text = "import os, xml.dom as d  # import no\nfrom a.b import (\n    c,\n    d as e,\n)\nfrom . import own\n\
                    def f():\n    from json import \\\n        loads\n    x = \"import y\"\nfrom z import *\nimport one; two()\n";
        let found = imports(text);
        let expected = ["a.b", "a.b.c", "a.b.d", "json", "json.loads", "one", "os", "xml.dom", "z"];
        assert_eq!(found.iter().map(String::as_str).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn reads_modules_of_the_project_without_the_sdk() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().expect("inside")).expect("made");
            std::fs::write(path, text).expect("written");
        };
        write("app.py", "import words.count\nimport csv\nimport agent_host_sdk.http\n");
        write("words/__init__.py", "");
        write("words/count.py", "from app import x\nimport re\n");
        write("agent_host_sdk/__init__.py", "import secret\n");
        write("notes.txt", "import nothing");
        let sources = Sources::read(folder.path()).expect("sources");
        let paths: Vec<&str> = sources.files.keys().map(String::as_str).collect();
        assert_eq!(paths, ["app.py", "words/__init__.py", "words/count.py"]);
        assert_eq!(sources.imported_modules().into_iter().collect::<Vec<_>>(), ["csv", "re"]);
        assert!(sources.to_json("app").contains("\"main\":\"app\""));
        write("words/data.py", "open(__file__)\n");
        assert!(Sources::read(folder.path()).is_none(), "a module reads a file next to itself");
    }
}
