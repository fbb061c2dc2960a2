//! What this binary carries for new projects: the SDK and the contract as they stand in its checkout, and the templates.

include!(concat!(env!("OUT_DIR"), "/carried.rs"));

/// Where the parts of the contract lie among the dependencies of a project's own WIT.
const DEPENDENCIES: [(&str, &str); 5] = [
    ("wit/model/", "agent-host-model/"),
    ("sdk/wit/deps/config/", "wasi-config/"),
    ("sdk/wit/deps/keyvalue/", "wasi-keyvalue/"),
    ("sdk/wit/deps/logging/", "wasi-logging/"),
    ("wit/", "agent-host-plugin/"),
];

/// The text of one file.
pub(crate) fn file(path: &str) -> &'static str {
    FILES.iter().find(|(name, _)| *name == path).map_or("", |(_, text)| text)
}

/// The files below a folder, which ends with a slash; with their paths in it.
pub(crate) fn below(folder: &str) -> impl Iterator<Item = (&'static str, &'static str)> {
    FILES.iter().filter_map(move |(name, text)| Some((name.strip_prefix(folder)?, *text)))
}

/// The released contract and the standard interfaces beside it, as dependencies of a project's own WIT.
pub(crate) fn wit_dependencies() -> Vec<(String, &'static str)> {
    let files = FILES.iter().filter(|(name, _)| name.ends_with(".wit")).filter_map(|(name, text)| {
        let place = |(from, to): &(&str, &str)| name.strip_prefix(from).map(|rest| format!("{to}{rest}"));
        Some((DEPENDENCIES.iter().find_map(place)?, *text))
    });
    files.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// P12: what new projects are made against is what was released, word for word.
    #[test]
    fn the_contract_is_the_released_one() {
        let top = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let dependencies = wit_dependencies();
        let released = [("wit/released/0.1.0", "agent-host-plugin"), ("wit/released/model-0.1.0", "agent-host-model")];
        for (folder, package) in released {
            let mut count = 0;
            for entry in std::fs::read_dir(top.join(folder)).expect("it was released") {
                let path = entry.expect("it can be read").path();
                let name = format!("{package}/{}", path.file_name().expect("a file").to_string_lossy());
                let carried = dependencies.iter().find(|(other, _)| *other == name);
                let released = std::fs::read_to_string(&path).expect("it can be read");
                assert!(carried.is_some_and(|(_, text)| *text == released), "{name}");
                count += 1;
            }
            let carried = dependencies.iter().filter(|(name, _)| name.starts_with(package));
            assert_eq!(carried.count(), count, "nothing else in {package}");
        }
        for package in ["wasi-config/store.wit", "wasi-keyvalue/keyvalue.wit", "wasi-logging/logging.wit"] {
            assert!(dependencies.iter().any(|(name, _)| name == package), "{package}");
        }
    }

    #[test]
    fn all_of_the_sdk_is_carried() {
        for path in ["sdk/src/lib.rs", "sdk/bindings/src/lib.rs", "sdk/Cargo.toml", "sdk/README.md"] {
            assert!(!file(path).is_empty(), "{path}");
        }
        assert!(below("sdk/src/").any(|(name, _)| name == "tool/outcome.rs"));
        assert!(file("wit/released/0.1.0/tool.wit").is_empty());
    }
}
