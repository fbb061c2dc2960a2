//! Checks the boundaries between the crates: the dependencies that each crate may have, and code that only one crate
//! may contain (invariant 9).

use crate::support::repository;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// For each crate in `host`, the list of crates in `host` that this crate may depend on.
const ALLOWED_DEPENDENCIES: &[(&str, &[&str])] = &[
    ("core", &[]),
    ("area-average", &[]),
    ("plugins", &["core"]),
    ("models", &["core"]),
    ("store", &["core"]),
    ("mcp", &["core"]),
    ("fleet", &[]),
    ("telemetry", &["core", "store"]),
    ("runtime", &["core", "plugins", "models", "store", "mcp", "fleet"]),
    ("registry", &["core", "plugins"]),
    ("config", &["core", "plugins", "models", "store", "mcp", "fleet", "runtime", "registry", "telemetry"]),
    ("devkit", &["core", "plugins", "models", "store", "runtime"]),
    ("serve", &["core", "plugins", "store", "mcp", "runtime", "telemetry", "config"]),
    ("acp", &["core", "store", "runtime"]),
    (
        "app",
        &[
            "core",
            "plugins",
            "models",
            "store",
            "mcp",
            "fleet",
            "runtime",
            "registry",
            "telemetry",
            "config",
            "devkit",
            "serve",
            "acp",
        ],
    ),
];

/// Libraries on which only one crate may depend, each with the name of that crate.
const LIBRARIES_OF_ONE_CRATE: &[(&str, &str)] = &[
    ("wasmtime", "plugins"),
    ("wasmtime-wasi", "plugins"),
    ("rusqlite", "store"),
    ("tokio-postgres", "store"),
    ("deadpool-postgres", "store"),
    ("rmcp", "mcp"),
    ("async-nats", "fleet"),
    ("minisign", "registry"),
    ("toml_edit", "config"),
    ("agent-client-protocol", "acp"),
    ("opentelemetry-proto", "telemetry"),
    ("utoipa", "serve"),
    ("utoipa-axum", "serve"),
    ("pulldown-cmark", "serve"),
    ("clap", "app"),
    ("reedline", "app"),
    ("indicatif", "app"),
    ("anstream", "app"),
    ("directories", "app"),
    ("wit-bindgen", "sdk"),
];

/// Files outside of the crate `store` that may name the type of a concrete store, because they open a store.
const FILES_THAT_OPEN_A_STORE: &[&str] = &[
    "host/config/src/assembly/store.rs",
    "host/config/src/assembly/store_copy.rs",
    "host/devkit/src/scenario/play.rs",
];

/// Code that only `app` may contain, because only `app` may read the environment, print and exit.
const ONLY_IN_APP: &[&str] = &["env::var", "env::args", "process::exit", "println!(", "eprintln!(", "print!("];

#[test]
fn crates_depend_only_on_allowed_crates() {
    let crates = host_crates();
    for (name, dependencies) in &crates {
        let allowed = ALLOWED_DEPENDENCIES.iter().find(|(allowed, _)| allowed == name);
        let (_, allowed) = allowed
            .unwrap_or_else(|| panic!("host/{name} is not in ALLOWED_DEPENDENCIES: add it with its dependencies"));
        // Other libraries whose names begin with `agent-` are not crates of the host.
        let own = dependencies
            .iter()
            .filter_map(|name| name.strip_prefix("agent-"))
            .filter(|name| crates.contains_key(*name));
        for dependency in own {
            assert!(allowed.contains(&dependency), "host/{name} must not depend on host/{dependency}");
        }
    }
}

#[test]
fn wire_formats_sql_and_wasmtime_stay_in_one_crate_each() {
    let mut crates = host_crates();
    crates.insert("sdk".to_owned(), dependencies(&repository().join("sdk")));
    for (library, owner) in LIBRARIES_OF_ONE_CRATE {
        for (name, dependencies) in &crates {
            let depends = dependencies.iter().any(|dependency| dependency == library);
            assert!(!depends || name == owner, "{name} depends on {library}, which only {owner} may do");
        }
    }
}

#[test]
fn only_app_prints_exits_or_reads_the_environment() {
    for name in host_crates().keys().filter(|name| *name != "app") {
        for file in sources(&repository().join("host").join(name).join("src")) {
            let text = std::fs::read_to_string(&file).unwrap();
            // The text after `#[cfg(test)]` contains tests and is not part of the library.
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
fn the_store_type_occurs_only_in_files_that_open_a_store() {
    let mut found = Vec::new();
    for name in host_crates().keys().filter(|name| *name != "store") {
        for file in sources(&repository().join("host").join(name).join("src")) {
            let text = std::fs::read_to_string(&file).unwrap();
            let library = text.split("#[cfg(test)]").next().unwrap();
            let opens = |line: &str| line.contains("SqliteStore") || line.contains("PostgresStore");
            if library.lines().any(|line| !line.trim_start().starts_with("//") && opens(line)) {
                found.push(file.strip_prefix(repository()).unwrap().to_string_lossy().into_owned());
            }
        }
    }
    found.sort();
    assert_eq!(found, FILES_THAT_OPEN_A_STORE);
}

#[test]
fn guests_depend_only_on_the_sdk() {
    for folder in ["plugins", "sdk/examples", "tests/fixtures"] {
        for entry in std::fs::read_dir(repository().join(folder)).unwrap() {
            let directory = entry.unwrap().path();
            if directory.join("Cargo.toml").exists() {
                let dependencies = dependencies(&directory);
                let other_host_crates =
                    dependencies.iter().filter(|name| name.starts_with("agent-") && *name != "agent-host-sdk");
                assert_eq!(other_host_crates.count(), 0, "{} depends on more than the SDK", directory.display());
            }
        }
    }
}

/// Returns each crate in `host` with its dependencies. The dependencies of the crate's tests are not included.
fn host_crates() -> BTreeMap<String, Vec<String>> {
    let host = repository().join("host");
    let folders = std::fs::read_dir(&host).unwrap().map(|entry| entry.unwrap().path());
    let crates = folders.filter(|folder| folder.join("Cargo.toml").exists());
    crates.map(|folder| (folder.file_name().unwrap().to_string_lossy().into_owned(), dependencies(&folder))).collect()
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

/// Returns the Rust files of a folder, except files named `tests.rs`, which contain only tests.
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
