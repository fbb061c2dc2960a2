//! The examples of the SDKs in `sdk/examples`. Each example exists in Rust, Python, JavaScript and C, with the same
//! manifest and the same scenario (S7, S8).

use crate::peers::skipped;
use crate::plugin_authoring::{TestCli, peer};
use crate::support::{repository, scratch, toolchain};
use agent_devkit::build::{build_projects, projects_in};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The languages of the examples, each with the name of the source file.
const SOURCES: [(&str, &str); 4] = [("rust", "app.rs"), ("python", "app.py"), ("js", "app.js"), ("c", "app.c")];

fn examples_folder() -> PathBuf {
    repository().join("sdk/examples")
}

/// Returns the names of the examples, sorted.
fn examples() -> Vec<String> {
    let entries = std::fs::read_dir(examples_folder()).unwrap().map(|entry| entry.unwrap().path());
    let folders = entries.filter(|path| path.join("plugin.toml").is_file());
    let mut names: Vec<_> = folders.map(|path| path.file_name().unwrap().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Returns a folder with the components of the examples in this language, whose scenarios have passed. Returns `None`
/// if the toolchain of the language is not installed. The folder, which is kept between test runs, contains only one
/// language, because all components of an example have the same name.
fn tested_examples(language: &'static str) -> Option<&'static Path> {
    static TESTED: [OnceLock<Option<PathBuf>>; 4] = [const { OnceLock::new() }; 4];
    let index = SOURCES.iter().position(|(name, _)| *name == language).unwrap();
    TESTED[index]
        .get_or_init(|| if language == "rust" { Some(test_rust()) } else { test_with_peer(language) })
        .as_deref()
}

/// Builds the Rust examples in this checkout, and runs their scenarios.
fn test_rust() -> PathBuf {
    let out = scratch().join("sdk-examples/rust");
    let projects = projects_in(&examples_folder()).unwrap();
    let build = std::thread::spawn({
        let out = out.clone();
        move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(build_projects(&toolchain(), &projects, &out, &|_| {})).map(|_| ())
        }
    });
    build.join().unwrap().unwrap_or_else(|error| panic!("{error}"));
    run_scenarios(&examples_folder(), &["--plugins", out.to_str().unwrap()], &[]);
    out
}

/// Copies the examples in this language to a folder of their own, without the other languages, and runs their
/// scenarios. The projects contain only a manifest and a source, so the builds use the SDK of the binary.
fn test_with_peer(language: &str) -> Option<PathBuf> {
    let (variables, _) = peer(language)?;
    let (_, source) = SOURCES.iter().find(|(name, _)| *name == language).unwrap();
    let out = scratch().join("sdk-examples").join(language);
    for name in examples() {
        std::fs::create_dir_all(out.join(&name)).unwrap();
        for file in ["plugin.toml", &format!("{name}.scenario.toml"), source] {
            std::fs::copy(examples_folder().join(&name).join(file), out.join(&name).join(file)).unwrap();
        }
    }
    for entry in std::fs::read_dir(&out).unwrap().map(|entry| entry.unwrap()) {
        let is_example = examples().contains(&entry.file_name().to_string_lossy().into_owned());
        if entry.path().is_dir() && !is_example {
            std::fs::remove_dir_all(entry.path()).unwrap();
        }
    }
    run_scenarios(&out, &[], &variables);
    Some(out)
}

/// Runs `agent-host test` with each example in a folder, one after the other: a component is compiled when it is loaded for
/// the first time, and on a busy machine, ten components at the same time would exceed the time limit of a scenario.
fn run_scenarios(folder: &Path, options: &[&str], variables: &[(&str, PathBuf)]) {
    let cli = TestCli::new();
    for name in examples() {
        let arguments = ["test", folder.to_str().unwrap(), &format!("{name}/{name}")];
        let printed = cli.succeed(&[&arguments[..], options].concat(), variables);
        assert!(printed.contains("1 scenario: 1 passed"), "{name}: {printed}");
    }
}

/// S7: each example in Rust passes its scenario.
#[test]
fn s7_examples_in_rust_pass_their_scenarios() {
    assert!(tested_examples("rust").is_some());
}

/// S8: each example in Python passes the scenario that the other languages pass, too.
#[test]
fn s8_examples_in_python_pass_their_scenarios() {
    tested_examples("python");
}

/// S8: each example in JavaScript passes the scenario that the other languages pass, too.
#[test]
fn s8_examples_in_javascript_pass_their_scenarios() {
    tested_examples("js");
}

/// S8: each example in C passes the scenario that the other languages pass, too.
#[test]
fn s8_examples_in_c_pass_their_scenarios() {
    tested_examples("c");
}

/// Returns the kinds of each example in this folder and its tools, with the schemas and traits.
fn interfaces(cli: &TestCli, folder: &Path) -> BTreeMap<String, [Value; 2]> {
    let interface = |name: String| {
        let file = folder.join(format!("{name}.wasm"));
        let printed = cli.succeed(&["plugin", "inspect", file.to_str().unwrap(), "--json"], &[]);
        let found: Value = serde_json::from_str(&printed).unwrap();
        (name, [found["kinds"].clone(), found["tools"].clone()])
    };
    examples().into_iter().map(interface).collect()
}

/// S7, S8: the components of an example have the same kinds and the same tools in all languages, with equal schemas,
/// descriptions and traits.
#[test]
fn s8_examples_have_the_same_tools_in_all_languages() {
    let cli = TestCli::new();
    let expected = interfaces(&cli, tested_examples("rust").unwrap());
    let tools = expected.values().map(|[_, tools]| tools.as_array().unwrap().len()).sum::<usize>();
    assert!(tools >= 12, "{tools} tools");
    for (language, _) in &SOURCES[1..] {
        let Some(folder) = tested_examples(language) else {
            skipped(&format!("the examples in {language} are not compared"));
            continue;
        };
        for (name, found) in interfaces(&cli, folder) {
            for (found, expected) in found.iter().zip(&expected[&name]) {
                assert_eq!(found, expected, "{name} in {language}:\n{found:#}\n{expected:#}");
            }
        }
    }
}

/// S8: there are ten examples. Each has a source in each language, and the page lists all of them.
#[test]
fn s8_the_page_lists_ten_examples_in_four_languages() {
    let page = std::fs::read_to_string(examples_folder().join("README.md")).unwrap();
    let examples = examples();
    assert_eq!(examples.len(), 10, "{examples:?}");
    for name in examples {
        for (_, source) in SOURCES {
            assert!(examples_folder().join(&name).join(source).is_file(), "{name} has no {source}");
            let link = format!("({name}/{source})");
            assert!(page.contains(&link), "the page does not link {link}");
        }
        assert!(
            page.contains(&format!("({name}/{name}.scenario.toml)")),
            "the page does not link the scenario of {name}"
        );
    }
}
