//! Inside a crate, modules import each other in one direction only (the rule for folders in `host/ARCHITECTURE.md`).

use crate::support::repository;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use syn::visit::{self, Visit};

/// Folders whose modules must not import each other in a cycle. The check of a whole crate covers only the crate's
/// top-level modules.
const CHECKED_FOLDERS: &[&str] = &["plugins/capabilities"];

/// For each importing module, the modules that it imports. Each imported module is listed with the files of the
/// importing module that contain the import.
type Imports = BTreeMap<String, BTreeMap<String, BTreeSet<PathBuf>>>;

#[test]
fn modules_of_a_crate_import_each_other_in_one_direction() {
    let mut cycles = Vec::new();
    for entry in std::fs::read_dir(repository().join("host")).unwrap() {
        let sources = entry.unwrap().path().join("src");
        if sources.is_dir() {
            let name = sources.parent().unwrap().file_name().unwrap().to_string_lossy().into_owned();
            let files = source_files(&sources);
            cycles.extend(find_cycle(&imports(&sources, &files, &[])).map(|cycle| format!("host/{name}: {cycle}")));
            for folder in CHECKED_FOLDERS.iter().filter_map(|path| path.strip_prefix(&format!("{name}/"))) {
                let inside: Vec<String> = folder.split('/').map(str::to_owned).collect();
                let is_inside = |module: &Vec<String>| module.len() > inside.len() && module.starts_with(&inside);
                assert!(
                    files.keys().any(is_inside),
                    "host/{name}/src/{folder} has no modules: correct CHECKED_FOLDERS"
                );
                let imports = imports(&sources, &files, &inside);
                cycles.extend(find_cycle(&imports).map(|cycle| format!("host/{name}/src/{folder}: {cycle}")));
            }
        }
    }
    assert!(cycles.is_empty(), "import cycles:\n{}", cycles.join("\n"));
}

#[test]
fn a_cycle_is_found_in_use_trees_paths_and_macros() {
    let cases = [
        ("use crate::{other::Thing, third};", true),
        ("fn call() { super::other::call(); }", true),
        ("fn call() { println!(\"{}\", crate::other::NAME); }", true),
        ("mod inner { use super::super::other::Thing; }", true),
        ("#[cfg(test)] mod tests { use crate::other::Thing; }", false),
        ("// crate::other::Thing\nuse std::fmt;", false),
    ];
    for (text, is_cycle) in cases {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in [("one.rs", text), ("other.rs", "use crate::one;"), ("third.rs", "")] {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        let imports = imports(folder.path(), &source_files(folder.path()), &[]);
        assert_eq!(find_cycle(&imports).is_some(), is_cycle, "{text}: {imports:?}");
    }
}

/// Returns the imports between the direct submodules of the module `inside`. The crate's root module may import all
/// other modules. The root module is left out of the result, because no module imports items that are defined in the
/// root module.
fn imports(sources: &Path, files: &BTreeMap<Vec<String>, PathBuf>, inside: &[String]) -> Imports {
    let mut imports = Imports::new();
    for (module, file) in files.iter().filter(|(module, _)| module.len() > inside.len() && module.starts_with(inside)) {
        let text = std::fs::read_to_string(file).unwrap();
        let parsed = syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let mut paths = Paths { module: module.clone(), found: Vec::new() };
        paths.visit_file(&parsed);
        for path in paths.found {
            // The imported module is the longest prefix of the path for which a source file exists. The remaining parts
            // of the path name an item or an inline module.
            let target = (1..=path.len()).rev().map(|length| &path[..length]).find(|part| files.contains_key(*part));
            let Some(target) = target.filter(|target| target.len() > inside.len() && target.starts_with(inside)) else {
                continue;
            };
            let (from, to) = (&module[inside.len()], &target[inside.len()]);
            if from != to {
                let relative = file.strip_prefix(sources).unwrap().to_owned();
                imports.entry(from.clone()).or_default().entry(to.clone()).or_default().insert(relative);
            }
        }
    }
    imports
}

/// Describes the modules that import each other. Returns `None` if no modules import each other.
fn find_cycle(imports: &Imports) -> Option<String> {
    let mut remaining: BTreeSet<&String> = imports.keys().collect();
    // A module is not part of a cycle if it imports no remaining module, or if no remaining module imports it.
    loop {
        let imported: BTreeSet<&String> =
            remaining.iter().flat_map(|from| imports[*from].keys()).filter(|to| remaining.contains(to)).collect();
        let in_cycle = |module: &&&String| {
            imported.contains(**module) && imports[**module].keys().any(|target| remaining.contains(target))
        };
        let next: BTreeSet<&String> = remaining.iter().filter(in_cycle).copied().collect();
        if next.len() == remaining.len() {
            break;
        }
        remaining = next;
    }
    let mut lines = Vec::new();
    for from in &remaining {
        for (to, files) in imports[*from].iter().filter(|(to, _)| remaining.contains(to)) {
            let files: Vec<_> = files.iter().map(|file| file.display().to_string()).collect();
            lines.push(format!("  {from} imports {to} in {}", files.join(", ")));
        }
    }
    (!lines.is_empty()).then(|| format!("{remaining:?}\n{}", lines.join("\n")))
}

/// Returns the source files below a folder, keyed by module path. The crate's root and test files are left out.
fn source_files(sources: &Path) -> BTreeMap<Vec<String>, PathBuf> {
    let mut files = BTreeMap::new();
    let mut folders = vec![(sources.to_owned(), Vec::new())];
    while let Some((folder, module)) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_stem().unwrap().to_string_lossy().into_owned();
            let is_root = module.is_empty() && ["lib", "main"].contains(&name.as_str());
            let module: Vec<String> = module.iter().cloned().chain([name]).collect();
            if module.last().is_some_and(|name| name == "tests") || is_root {
                continue;
            }
            if path.is_dir() {
                folders.push((path, module));
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.insert(module, path);
            }
        }
    }
    files
}

/// Collects the paths in a file that refer to the file's own crate. Each path is stored as a module path from the
/// crate's root.
struct Paths {
    module: Vec<String>,
    found: Vec<Vec<String>>,
}

impl Paths {
    fn add(&mut self, path: Vec<String>) {
        let mut absolute = match path.first().map(String::as_str) {
            Some("crate") => Vec::new(),
            Some("self" | "super") => self.module.clone(),
            _ => return,
        };
        for part in path {
            match part.as_str() {
                "crate" | "self" => {}
                "super" => drop(absolute.pop()),
                _ => absolute.push(part),
            }
        }
        self.found.push(absolute);
    }

    fn add_tree(&mut self, mut prefix: Vec<String>, tree: &syn::UseTree) {
        match tree {
            syn::UseTree::Path(path) => {
                prefix.push(path.ident.to_string());
                self.add_tree(prefix, &path.tree);
            }
            syn::UseTree::Name(name) => {
                prefix.push(name.ident.to_string());
                self.add(prefix);
            }
            syn::UseTree::Rename(renamed) => {
                prefix.push(renamed.ident.to_string());
                self.add(prefix);
            }
            syn::UseTree::Glob(_) => self.add(prefix),
            syn::UseTree::Group(group) => group.items.iter().for_each(|tree| self.add_tree(prefix.clone(), tree)),
        }
    }

    /// Collects the paths in the arguments of a macro. The arguments are only tokens, without a syntax tree.
    fn add_tokens(&mut self, tokens: &str) {
        let words: Vec<&str> = tokens.split(|c: char| !(c.is_alphanumeric() || "_: ".contains(c))).collect();
        for text in words {
            let parts: Vec<&str> = text.split("::").map(str::trim).collect();
            let start = parts
                .iter()
                .position(|part| part.rsplit(' ').next().is_some_and(|word| ["crate", "super"].contains(&word)));
            if let Some(start) = start {
                let first = parts[start].rsplit(' ').next().unwrap_or_default();
                let rest = parts[start + 1..].iter().map(|part| part.split(' ').next().unwrap_or_default());
                self.add([first].into_iter().chain(rest).map(str::to_owned).collect());
            }
        }
    }
}

impl<'ast> Visit<'ast> for Paths {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        let attributes = match item {
            syn::Item::Mod(item) => &item.attrs,
            syn::Item::Fn(item) => &item.attrs,
            syn::Item::Use(item) => &item.attrs,
            syn::Item::Impl(item) => &item.attrs,
            _ => return visit::visit_item(self, item),
        };
        let is_test = |attribute: &syn::Attribute| {
            attribute.path().is_ident("cfg") && attribute.parse_args::<syn::Ident>().is_ok_and(|name| name == "test")
        };
        if !attributes.iter().any(is_test) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        self.module.push(item.ident.to_string());
        visit::visit_item_mod(self, item);
        self.module.pop();
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.add_tree(Vec::new(), &item.tree);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.add(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, item: &'ast syn::Macro) {
        self.add_tokens(&item.tokens.to_string());
        visit::visit_macro(self, item);
    }

    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {
        // The path in `pub(in crate::…)` or `pub(super)` is not an import.
    }
}
