//! Tests of new projects: they have the expected files, and Rust projects can be built and pass their tests (S1).

#[path = "support/toolchain.rs"]
mod support;

use agent_devkit::Language;
use agent_devkit::build::{BuildEvent, build_directory};
use agent_devkit::new::{Example, NewError, NewProject, ProjectKind, Sdk, create};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn project(name: &str, kind: ProjectKind, language: Language, directory: &Path) -> NewProject {
    let (name, directory) = (name.to_owned(), directory.to_owned());
    NewProject { name, kind, example: Example::Simple, language, directory, sdk: Sdk::Embedded }
}

/// Returns a map from the relative path of each file in a folder and its subfolders to the file's text.
fn files(folder: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).expect("a folder").map(|entry| entry.expect("an entry").path()) {
            if entry.is_dir() {
                folders.push(entry);
            } else {
                let name = entry.strip_prefix(folder).expect("inside").display().to_string();
                found.insert(name, fs::read_to_string(&entry).expect("a text"));
            }
        }
    }
    found
}

/// S1: a project of every kind in every language uses its own name, has a test, and ignores build output in git.
#[test]
fn s1_creates_every_kind_in_every_language() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for language in Language::ALL {
        for kind in ProjectKind::ALL {
            let name = format!("{}-{}", language.key(), kind.key());
            let made = create(&project(&name, kind, language, folder.path())).expect("made");
            assert_eq!(made.path, folder.path().join(&name));
            let files = files(&made.path);
            for (path, text) in &files {
                assert!(!text.contains("my-plugin") && !text.contains("<!--"), "{name}/{path}");
                assert!(!text.trim().is_empty(), "{name}/{path}");
            }
            let wanted: &[&str] = match language {
                Language::Rust => {
                    &["Cargo.toml", "Cargo.lock", "src/lib.rs", "agent-host/sdk/Cargo.toml", "agent-host/wit/tool.wit"]
                }
                Language::Python => &["app.py", "test_app.py", "requirements.txt", "agent_host_sdk/__init__.py"],
                Language::JavaScript => &[
                    "app.js",
                    "app.test.js",
                    "package.json",
                    "agent-host/build.mjs",
                    "agent-host/wit/agent-host-plugin/tool.wit",
                ],
                Language::C => &["app.c", "logic.c", "logic.h", "test_logic.c", "requirements.txt", "wit/world.wit"],
            };
            for path in ["plugin.toml", "README.md", ".gitignore"].iter().chain(wanted) {
                assert!(files.contains_key(*path), "{name} has no {path}: {:?}", files.keys());
            }
            assert!(files["plugin.toml"].contains(&format!("name = \"{name}\"")), "{}", files["plugin.toml"]);
            assert!(files[".gitignore"].contains(&format!("/{name}.wasm")));
            assert!(files["README.md"].contains("agent-host plugin build ."), "{}", files["README.md"]);
            assert!(
                made.commands
                    .iter()
                    .all(|command| command.starts_with("agent-host") || files["README.md"].contains(command))
            );
        }
    }
}

/// S1: `create` does not overwrite existing files, and leaves no files if it fails.
#[test]
fn s1_does_not_overwrite_or_leave_partial_projects() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let of = |name: &str| project(name, ProjectKind::Tool, Language::C, folder.path());
    fs::write(folder.path().join("taken"), "mine").expect("written");
    let taken = create(&of("taken")).expect_err("a file is there");
    assert!(matches!(&taken, NewError::Exists { .. }) && taken.to_string().contains("--dir"), "{taken}");
    assert!(matches!(create(&of("Not Good")), Err(NewError::Name(_))));
    let below_file = project("new", ProjectKind::Tool, Language::C, &folder.path().join("taken/below"));
    assert!(matches!(create(&below_file), Err(NewError::File { action: "create", .. })));
    let nowhere = project("Not Good", ProjectKind::Tool, Language::C, &folder.path().join("nowhere"));
    assert!(matches!(create(&nowhere), Err(NewError::Name(_))), "a refused project creates no folder");
    let no_sdk = NewProject { sdk: Sdk::At(folder.path().to_owned()), language: Language::Rust, ..of("new") };
    assert!(matches!(create(&no_sdk), Err(NewError::NoSdk { .. })));
    assert!(matches!(create(&NewProject { language: Language::C, ..no_sdk }), Err(NewError::SdkNotForLanguage { .. })));
    let remaining: Vec<_> =
        fs::read_dir(folder.path()).expect("a folder").map(|entry| entry.expect("an entry").file_name()).collect();
    assert_eq!(remaining, ["taken"]);
    assert_eq!(fs::read_to_string(folder.path().join("taken")).expect("there"), "mine");
}

/// S1: the folder in which the project is created may be missing, also if its path has several parts.
#[test]
fn s1_creates_the_folder_of_the_project() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for language in [Language::Rust, Language::Python, Language::C] {
        let parent = folder.path().join("some").join(format!("{language:?}"));
        let made = create(&project("words", ProjectKind::Tool, language, &parent)).expect("created");
        assert_eq!(made.path, parent.join("words"));
        assert!(made.path.join("plugin.toml").is_file() && made.path.join("README.md").is_file());
    }
}

/// S1: in a workspace that declares the SDK, a new project becomes a member of the workspace. In other folders, a new
/// project does not depend on a workspace.
#[test]
fn s1_rust_project_joins_workspace_that_declares_sdk() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let manifest =
        "[workspace]\nmembers = [\"plugins/*\"]\n[workspace.dependencies]\nagent-host-sdk = { path = \"sdk\" }\n";
    fs::write(folder.path().join("Cargo.toml"), manifest).expect("written");
    for folder in [folder.path().join("plugins"), folder.path().join("notes")] {
        fs::create_dir(folder).expect("made");
    }
    let made = |name: &str, sdk: Sdk| {
        let new = project("new", ProjectKind::Tool, Language::Rust, &folder.path().join(name));
        files(&create(&NewProject { sdk, ..new }).expect("made").path)
    };
    let member = made("plugins", Sdk::Embedded);
    assert!(member["Cargo.toml"].contains("agent-host-sdk = { workspace = true }"), "{}", member["Cargo.toml"]);
    assert!(!member["Cargo.toml"].contains("[workspace]") && !member.contains_key("Cargo.lock"));
    assert!(!member.keys().any(|path| path.starts_with("agent-host/")), "{:?}", member.keys());
    let sdk = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sdk").canonicalize().expect("the SDK");
    let alone = made("notes", Sdk::At(sdk.join("..")));
    assert!(alone["Cargo.toml"].contains(&format!("path = \"{}\"", sdk.display())), "{}", alone["Cargo.toml"]);
    assert!(alone["Cargo.toml"].ends_with("[workspace]\n") && alone.contains_key("Cargo.lock"));
}

/// S1: with `--http`, the project of a tool requests the permission for an API, and has a scenario with the answer of
/// the API. Kinds without such a template are refused.
#[test]
fn s1_http_projects_request_access_to_an_api() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let of = |name: &str, kind, language| NewProject {
        example: Example::Http,
        ..project(name, kind, language, folder.path())
    };
    let error = create(&of("x", ProjectKind::MediaPolicy, Language::Rust)).expect_err("not a tool");
    assert!(matches!(error, NewError::HttpNotForKind), "{error}");
    for language in Language::ALL {
        let name = format!("orders-{}", language.key());
        let created = create(&of(&name, ProjectKind::Tool, language)).expect("created");
        let files = files(&created.path);
        assert!(files["plugin.toml"].contains("http = [\"GET https://api.example.com/v1/\"]"), "{name}");
        assert!(files[&format!("{name}.scenario.toml")].contains("[[http]]"), "{name}");
        assert!(
            files.iter().all(|(path, text)| !text.contains("my-plugin") && !text.contains("<!--") && !path.is_empty())
        );
    }
    for path in [
        "orders-rust/src/lib.rs",
        "orders-python/app.py",
        "orders-javascript/app.js",
        "orders-c/wit/deps/wasi-http/http.wit",
    ] {
        assert!(folder.path().join(path).exists(), "{path}");
    }
}

/// Creates the folder for the projects of the next test. Keeps the folder `target` with the files that earlier runs
/// of the test compiled.
fn projects_folder() -> PathBuf {
    let projects = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("new-projects");
    fs::create_dir_all(&projects).expect("made");
    for entry in fs::read_dir(&projects).expect("a folder").map(|entry| entry.expect("an entry").path()) {
        if entry.is_dir() && entry.file_name().is_some_and(|name| name != "target") {
            fs::remove_dir_all(entry).expect("removed");
        }
    }
    projects
}

/// S1, S2, S7: a new Rust project of each kind passes its own test, and is built into a component of this kind. The
/// projects share a target folder, and use the SDK that is embedded in the first project.
#[tokio::test]
async fn s1_rust_projects_pass_their_tests_and_build() {
    let projects = projects_folder();
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let kinds = ProjectKind::ALL;
    let mut members: Vec<_> = kinds.iter().map(|kind| format!("\"{}\"", kind.key())).collect();
    members.push("\"http\"".to_owned());
    // The profile `plugin` does not optimise, because the test only checks that the projects can be built.
    let manifest = format!(
        "[workspace]\nresolver = \"3\"\nmembers = [{}]\n[profile.plugin]\ninherits = \"dev\"\n",
        members.join(", ")
    );
    fs::write(projects.join("Cargo.toml"), manifest).expect("written");
    fs::copy(top.join("Cargo.lock"), projects.join("Cargo.lock")).expect("copied");
    for (index, kind) in kinds.into_iter().enumerate() {
        let sdk = if index == 0 { Sdk::Embedded } else { Sdk::At(projects.join("tool/agent-host/sdk")) };
        let new = NewProject { sdk, ..project(kind.key(), kind, Language::Rust, &projects) };
        create(&new).expect("made");
    }
    let sdk = Sdk::At(projects.join("tool/agent-host/sdk"));
    let http = project("http", ProjectKind::Tool, Language::Rust, &projects);
    create(&NewProject { example: Example::Http, sdk, ..http }).expect("made");
    let mut tests = Command::new(env!("CARGO"));
    tests.current_dir(&projects).args(["test", "--quiet", "--lib"]);
    for kind in kinds {
        tests.args(["--package", kind.key()]);
    }
    tests.args(["--package", "http"]);
    let output =
        tests.env("CARGO_TARGET_DIR", projects.join("target")).env_remove("RUSTFLAGS").output().expect("cargo starts");
    let printed = [output.stdout, output.stderr].concat();
    let printed = String::from_utf8_lossy(&printed);
    assert!(output.status.success(), "{printed}");
    assert_eq!(printed.matches("test result: ok.").count(), members.len(), "{printed}");
    assert_eq!(printed.matches("0 passed").count(), 0, "each project has a test: {printed}");

    let toolchain = support::toolchain();
    let ignore_event = |_: BuildEvent<'_>| {};
    let built = build_directory(&toolchain, &projects, &projects, &ignore_event).await.expect("built");
    assert_eq!(built.len(), members.len());
    for plugin in built {
        if plugin.name == "http" {
            assert!(plugin.imports.iter().any(|import| import.starts_with("wasi:http/")), "{:?}", plugin.imports);
            continue;
        }
        let interface = format!("agent-host:plugin/{}@0.1.0", plugin.name);
        assert!(plugin.exports.contains(&interface), "{}: {:?}", plugin.name, plugin.exports);
    }
}

/// S1: a project outside of a workspace has the lock file that cargo would write, so that the first build can use
/// `--locked`. The lock file contains the versions of the dependencies with which the SDK is built in this checkout.
#[test]
fn s1_standalone_project_has_a_lock_file() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let made = |name: &str, kind| {
        let project = create(&project(name, kind, Language::Rust, folder.path())).expect("made").path;
        let lock = project.join("Cargo.lock");
        (project, fs::read_to_string(&lock).expect("a lock"), lock)
    };
    // Let cargo write the lock file of a new project, with the versions of the dependencies from this checkout.
    let (sample, embedded, lock) = made("my-plugin", ProjectKind::Tool);
    fs::copy(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.lock"), &lock).expect("copied");
    resolve_dependencies(&sample, &["--offline"]);
    if fs::read_to_string(&lock).expect("a lock") != embedded {
        let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join("my-plugin.lock");
        fs::copy(&lock, &kept).expect("copied");
        panic!(
            "the lock file in the templates does not match this checkout; run: cp {} host/devkit/templates/rust/Cargo.lock",
            kept.display()
        );
    }
    assert!(!embedded.contains("name = \"wit-parser\""), "authors do not build the bindings generator");
    // For a project with another name or of another kind, cargo leaves the lock file of the new project unchanged.
    for (name, kind) in
        [("a", ProjectKind::ContextBuilder), ("serde-words", ProjectKind::Tool), ("zzz", ProjectKind::MediaPolicy)]
    {
        let (project, before, lock) = made(name, kind);
        resolve_dependencies(&project, &["--offline"]);
        assert_eq!(fs::read_to_string(&lock).expect("a lock"), before, "{name}");
        resolve_dependencies(&project, &["--offline", "--locked"]);
    }
}

/// Runs cargo to resolve the project's dependencies, which may change the lock file.
fn resolve_dependencies(project: &Path, arguments: &[&str]) {
    let mut metadata = Command::new(env!("CARGO"));
    metadata.current_dir(project).args(["metadata", "--format-version", "1"]).args(arguments);
    let output = metadata.output().expect("cargo starts");
    let printed = String::from_utf8_lossy(&output.stderr);
    // The test accepts a failed download, because cargo downloads packages only after it has resolved all dependencies.
    // Only packages for other operating systems are missing.
    let only_downloads =
        printed.contains("failed to download") || printed.contains("attempting to make an HTTP request");
    assert!(output.status.success() || only_downloads, "{printed}");
    assert!(!printed.contains("no matching package") && !printed.contains("--locked"), "{printed}");
}

/// S1, S2: the world in wit/README.md can replace the world of a new project in a language without an SDK. For each
/// toolchain, wit/README.md also contains the command that installs the toolchain.
#[test]
fn s1_contract_page_matches_new_projects() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../wit/README.md");
    let page = fs::read_to_string(page).expect("the page");
    let world = page.split("```wit\n").nth(1).and_then(|after_fence| after_fence.split("```").next()).expect("a world");
    for language in [Language::JavaScript, Language::C] {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let made = create(&project("words", ProjectKind::Tool, language, folder.path())).expect("made");
        let installs =
            made.commands.iter().find(|command| command.contains("install")).expect("a command that installs");
        assert!(page.contains(installs.as_str()), "{language}: {installs}");
        if language == Language::JavaScript {
            // The SDK generates the world of a project.
            continue;
        }
        fs::write(made.path.join("wit/world.wit"), world).expect("written");
        let mut resolve = wit_bindgen_core::wit_parser::Resolve::default();
        let (package, _) = resolve.push_dir(made.path.join("wit")).unwrap_or_else(|error| panic!("{error:#}"));
        let world = &resolve.worlds[resolve.packages[package].worlds["plugin"]];
        let named =
            |items: Vec<_>| items.into_iter().map(|key| resolve.name_world_key(key)).collect::<Vec<_>>().join(" ");
        assert!(named(world.imports.keys().collect()).contains("wasi:logging/logging"));
        assert!(named(world.exports.keys().collect()).contains("agent-host:plugin/media-policy@0.1.0"));
    }
}
