//! The Python modules of a project, and the modules that they import.

use crate::file_list::PYTHON_SDK_FOLDER;
use crate::source_files::{SourceFiles, collect};
use agent_plugins::Asks;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Maximum size of all modules together, in bytes. A project with larger modules has no development builds.
const MAX_BYTES: u64 = 4 << 20;
/// Names with which a module finds files next to itself. A development build contains no such files.
const FILE_ACCESS: [&str; 4] = ["__file__", "importlib.resources", "pkgutil", "importlib_resources"];

/// The modules of the standard library that all development builds contain. For a package in this list, the list also
/// contains the modules of the package that plugins can use. The module `unittest` is for the tests of new projects.
const STANDARD_MODULES: [&str; 45] = [
    "abc",
    "base64",
    "bisect",
    "calendar",
    "collections",
    "collections.abc",
    "contextlib",
    "copy",
    "csv",
    "dataclasses",
    "datetime",
    "decimal",
    "difflib",
    "enum",
    "fnmatch",
    "fractions",
    "functools",
    "hashlib",
    "heapq",
    "hmac",
    "html",
    "html.entities",
    "html.parser",
    "io",
    "itertools",
    "json",
    "math",
    "operator",
    "os",
    "os.path",
    "pathlib",
    "random",
    "re",
    "statistics",
    "string",
    "textwrap",
    "time",
    "types",
    "typing",
    "unicodedata",
    "unittest",
    "urllib.parse",
    "uuid",
    "xml.etree.ElementTree",
    "zlib",
];

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

    /// Returns the sources in the form that the SDK expects in a development build. The component imports all interfaces, so
    /// the sources contain the permissions that the manifest requests.
    pub(super) fn to_json(&self, main_module: &str, asks: &Asks) -> String {
        let asked = [
            ("config", !asks.config.is_empty()),
            ("files", asks.files.is_some()),
            ("http", !asks.http.is_empty()),
            ("key_value", asks.key_value),
            ("model_tokens", asks.model_tokens.is_some()),
        ];
        let asks: Vec<&str> = asked.iter().filter(|(_, is_asked)| *is_asked).map(|(name, _)| *name).collect();
        json!({ "main": main_module, "files": self.files, "asks": asks }).to_string()
    }

    /// Returns the modules that a development build contains besides the SDK: those of the standard library that most
    /// plugins use, and all others that the project's modules import.
    pub(super) fn runtime_modules(&self) -> BTreeSet<String> {
        self.imported_modules().into_iter().chain(STANDARD_MODULES.map(str::to_owned)).collect()
    }

    /// Whether each module that the project's modules import is in the development builds of all projects.
    pub(super) fn imports_only_standard_modules(&self) -> bool {
        self.imported_modules().is_empty()
    }

    /// Returns the modules that the project's modules import, without the project's own modules, the SDK and the modules
    /// that all development builds contain. A name in the result may be a name of a value in a module instead of a module.
    fn imported_modules(&self) -> BTreeSet<String> {
        let own: BTreeSet<&str> = self.files.keys().filter_map(|path| path.split(['/', '.']).next()).collect();
        let is_foreign = |module: &String| {
            let first = module.split('.').next().unwrap_or_default();
            let parent = module.rsplit_once('.').map_or("", |(parent, _)| parent);
            let is_standard = STANDARD_MODULES.iter().any(|standard| *standard == module || *standard == parent);
            !own.contains(first) && first != PYTHON_SDK_FOLDER && first != "__future__" && !is_standard
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
        write("app.py", "import words.count\nimport csv, sqlite3\nimport agent_host_sdk.http\n");
        write("words/__init__.py", "");
        write("words/count.py", "from app import x\nfrom re import sub\nfrom urllib import parse, request\n");
        write("agent_host_sdk/__init__.py", "import secret\n");
        write("notes.txt", "import nothing");
        let sources = Sources::read(folder.path()).expect("sources");
        let paths: Vec<&str> = sources.files.keys().map(String::as_str).collect();
        assert_eq!(paths, ["app.py", "words/__init__.py", "words/count.py"]);
        assert_eq!(sources.imported_modules().into_iter().collect::<Vec<_>>(), ["sqlite3", "urllib", "urllib.request"]);
        assert!(!sources.imports_only_standard_modules());
        assert!(sources.runtime_modules().contains("csv") && sources.runtime_modules().contains("sqlite3"));
        let asks = Asks { key_value: true, ..Asks::default() };
        let json = sources.to_json("app", &asks);
        assert!(json.contains("\"main\":\"app\"") && json.contains("\"asks\":[\"key_value\"]"), "{json}");
        write("words/data.py", "open(__file__)\n");
        assert!(Sources::read(folder.path()).is_none(), "a module reads a file next to itself");
    }
}
