//! The files for new plugin projects that are embedded in this binary: the SDKs, the WIT contract and the templates.

mod sdk;

pub(crate) use sdk::{SDK_README_TEMPLATE, javascript_sdk_files, python_sdk_files, sdk_files};

include!(concat!(env!("OUT_DIR"), "/embedded.rs"));

/// A file to write into a project: its path in the project, and its text.
pub(crate) type ProjectFile = (String, String);

/// Pairs of folders: a folder of the checkout that contains a part of the contract, and the folder in a project's
/// `wit/deps` to which the files of this part are written.
const DEPENDENCIES: [(&str, &str); 5] = [
    ("wit/model/", "agent-host-model/"),
    ("sdk/wit/deps/config/", "wasi-config/"),
    ("sdk/wit/deps/keyvalue/", "wasi-keyvalue/"),
    ("sdk/wit/deps/logging/", "wasi-logging/"),
    ("wit/", "agent-host-plugin/"),
];

/// The same pairs for the standard interfaces that only SDKs use.
const SDK_DEPENDENCIES: [(&str, &str); 4] = [
    ("sdk/wit/deps/clocks/", "wasi-clocks/"),
    ("sdk/wit/deps/filesystem/", "wasi-filesystem/"),
    ("sdk/wit/deps/http/", "wasi-http/"),
    ("sdk/wit/deps/io/", "wasi-io/"),
];

/// Returns the text of the embedded file with this path in the checkout, or an empty text if no embedded
/// file has this path.
pub(crate) fn file(path: &str) -> &'static str {
    FILES.iter().find(|(name, _)| *name == path).map_or("", |(_, text)| text)
}

/// Returns the embedded files below `folder`, each with its path relative to `folder`. `folder` must end with a slash.
pub(crate) fn below(folder: &str) -> impl Iterator<Item = (&'static str, &'static str)> {
    FILES.iter().filter_map(move |(name, text)| Some((name.strip_prefix(folder)?, *text)))
}

/// Returns the files in `wit/deps` of a project in a language other than Rust: the released contract, and the standard
/// interfaces that the contract uses.
pub(crate) fn wit_files() -> Vec<ProjectFile> {
    wit_files_in(&DEPENDENCIES)
}

/// Returns the WIT of all interfaces that the SDKs use, each with its path relative to a folder `deps`.
pub(crate) fn standard_wit_files() -> Vec<ProjectFile> {
    wit_files_in(&[&DEPENDENCIES[..], &SDK_DEPENDENCIES[..]].concat())
}

fn wit_files_in(dependencies: &[(&str, &str)]) -> Vec<ProjectFile> {
    let files = FILES.iter().filter(|(name, _)| name.ends_with(".wit")).filter_map(|(name, text)| {
        let target_path = |(from, to): &(&str, &str)| name.strip_prefix(from).map(|relative| format!("{to}{relative}"));
        Some((dependencies.iter().find_map(target_path)?, (*text).to_owned()))
    });
    files.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// P12: new projects contain exactly the released contract.
    #[test]
    fn embeds_released_contract_unchanged() {
        let top = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let dependencies = wit_files();
        let released = [("wit/released/0.1.0", "agent-host-plugin"), ("wit/released/model-0.1.0", "agent-host-model")];
        for (folder, package) in released {
            let mut count = 0;
            for entry in std::fs::read_dir(top.join(folder)).expect("a released folder") {
                let path = entry.expect("readable").path();
                let name = format!("{package}/{}", path.file_name().expect("a file").to_string_lossy());
                let embedded = dependencies.iter().find(|(other, _)| *other == name);
                let released = std::fs::read_to_string(&path).expect("readable");
                assert!(embedded.is_some_and(|(_, text)| *text == released), "{name}");
                count += 1;
            }
            let embedded = dependencies.iter().filter(|(name, _)| name.starts_with(package));
            assert_eq!(embedded.count(), count, "no other files in {package}");
        }
        for package in ["wasi-config/store.wit", "wasi-keyvalue/keyvalue.wit", "wasi-logging/logging.wit"] {
            assert!(dependencies.iter().any(|(name, _)| name == package), "{package}");
        }
    }

    #[test]
    fn embeds_the_whole_sdk() {
        for path in [
            "sdk/src/lib.rs",
            "sdk/bindings/src/lib.rs",
            "sdk/Cargo.toml",
            "sdk/README.md",
            "sdk/python/agent_host_sdk/__init__.py",
        ] {
            assert!(!file(path).is_empty(), "{path}");
        }
        assert!(below("sdk/src/").any(|(name, _)| name == "tool/outcome.rs"));
        assert!(file("wit/released/0.1.0/tool.wit").is_empty());
    }

    #[test]
    fn sdk_for_javascript_contains_the_contract_and_no_tests() {
        let files = javascript_sdk_files();
        let has = |path: &str| files.iter().any(|(name, _)| name == path);
        for path in ["package.json", "build.mjs", "src/index.js", "types/index.d.ts", "component/promise.js"] {
            assert!(has(path), "{path}");
        }
        for path in ["wit/agent-host-plugin/tool.wit", "wit/wasi-keyvalue/keyvalue.wit", "wit/wasi-http/http.wit"] {
            assert!(has(path), "{path}");
        }
        assert!(!files.iter().any(|(name, _)| name.starts_with("tests/")));
    }
}
