//! The walls of the house: who may know whom, and what only one room may do (design: rooms, invariant 7).

use crate::support::repository;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Each room with the rooms that it may know.
const MAY_KNOW: &[(&str, &[&str])] = &[
    ("core", &[]),
    ("plugins", &["core"]),
    ("models", &["core"]),
    ("store", &["core"]),
    ("mcp", &["core"]),
    ("runtime", &["core", "plugins", "models", "store", "mcp"]),
    ("devkit", &["core", "plugins", "models", "store", "runtime"]),
    ("registry", &["core", "plugins"]),
    ("app", &["core", "plugins", "models", "store", "mcp", "runtime", "devkit", "registry"]),
];

/// Libraries that only one room knows.
const KNOWN_BY_ONE: &[(&str, &str)] = &[
    ("wasmtime", "plugins"),
    ("wasmtime-wasi", "plugins"),
    ("rusqlite", "store"),
    ("rmcp", "mcp"),
    ("minisign", "registry"),
    ("clap", "app"),
    ("wit-bindgen", "sdk"),
];

/// What only `app` does, as it stands in code.
const ONLY_IN_APP: &[&str] = &["env::var", "env::args", "process::exit", "println!(", "eprintln!(", "print!("];

#[test]
fn every_room_knows_only_those_it_may() {
    for (room, dependencies) in rooms() {
        let allowed = MAY_KNOW.iter().find(|(name, _)| *name == room);
        let (_, allowed) = allowed.unwrap_or_else(|| panic!("host/{room} is not in MAY_KNOW: say whom it may know"));
        for dependency in dependencies.iter().filter_map(|name| name.strip_prefix("agent-")) {
            assert!(allowed.contains(&dependency), "host/{room} must not know host/{dependency}");
        }
    }
}

#[test]
fn wire_formats_sql_and_wasmtime_are_known_in_one_room() {
    let mut all = rooms();
    all.insert("sdk".to_owned(), dependencies(&repository().join("sdk")));
    for (library, owner) in KNOWN_BY_ONE {
        for (room, dependencies) in &all {
            let known = dependencies.iter().any(|name| name == library);
            assert!(!known || room == owner, "{room} depends on {library}, which only {owner} may know");
        }
    }
}

#[test]
fn only_the_binary_reads_the_environment_prints_or_exits() {
    for room in rooms().keys().filter(|room| *room != "app") {
        for file in sources(&repository().join("host").join(room).join("src")) {
            let text = std::fs::read_to_string(&file).unwrap();
            // What stands behind the tests' marker is not part of the library.
            let library = text.split("#[cfg(test)]").next().unwrap();
            for (number, line) in library.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//")) {
                for forbidden in ONLY_IN_APP {
                    assert!(!line.contains(forbidden), "{}:{} has `{forbidden}`", file.display(), number + 1);
                }
            }
        }
    }
}

#[test]
fn guests_know_only_the_sdk() {
    for folder in ["plugins", "tests/fixtures"] {
        for entry in std::fs::read_dir(repository().join(folder)).unwrap() {
            let directory = entry.unwrap().path();
            if directory.join("Cargo.toml").exists() {
                let dependencies = dependencies(&directory);
                let rooms = dependencies.iter().filter(|name| name.starts_with("agent-") && *name != "agent-host-sdk");
                assert_eq!(rooms.count(), 0, "{} knows more than the SDK", directory.display());
            }
        }
    }
}

/// Each room of `host` with all that it depends on outside of its tests.
fn rooms() -> BTreeMap<String, Vec<String>> {
    let host = repository().join("host");
    let folders = std::fs::read_dir(&host).unwrap().map(|entry| entry.unwrap().path());
    let rooms = folders.filter(|folder| folder.join("Cargo.toml").exists());
    rooms.map(|room| (room.file_name().unwrap().to_string_lossy().into_owned(), dependencies(&room))).collect()
}

fn dependencies(directory: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(directory.join("Cargo.toml")).unwrap();
    let manifest: toml::Table = text.parse().unwrap();
    let mut names = Vec::new();
    for key in ["dependencies", "build-dependencies"] {
        names.extend(
            manifest.get(key).and_then(|table| table.as_table()).into_iter().flat_map(|table| table.keys().cloned()),
        );
    }
    names
}

/// Without files named `tests.rs`, which are tests as a whole.
fn sources(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") && !path.ends_with("tests.rs") {
            found.push(path);
        }
    }
    found
}
