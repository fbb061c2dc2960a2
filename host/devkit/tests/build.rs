//! Tests that build real projects with the real Rust toolchain (S2).

#[path = "support/toolchain.rs"]
mod support;

use agent_devkit::build::{BuildError, BuildEvent, Toolchain, Written, build, build_directory, projects_in};
use std::fs;
use std::path::Path;
use std::sync::Mutex;
use support::toolchain;
use tempfile::TempDir;

/// Creates a workspace with a project for each name, and a folder that is not a project.
fn workspace(names: &[&str]) -> TempDir {
    let root = tempfile::tempdir().expect("a temporary folder");
    let write = |path: &str, text: &str| {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().expect("inside")).expect("created");
        fs::write(path, text).expect("written");
    };
    write("Cargo.toml", "[workspace]\nresolver = \"3\"\nmembers = [\"plugins/*\"]\nexclude = [\"plugins/notes\"]\n");
    write("plugins/notes/README.md", "not a project");
    for name in names {
        write(
            &format!("plugins/{name}/Cargo.toml"),
            &format!(
                "[package]\nname = \"crate-{name}\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\
                 [lib]\ncrate-type = [\"cdylib\", \"rlib\"]\n"
            ),
        );
        let manifest = format!("name = \"{name}\"\nversion = \"1.2.3\"\n[asks]\nfiles = \"read\"\n");
        write(&format!("plugins/{name}/plugin.toml"), &manifest);
        write(&format!("plugins/{name}/src/lib.rs"), "pub fn answer() -> u32 { 42 }\n");
    }
    root
}

fn ignore_event(_: BuildEvent<'_>) {}

#[tokio::test]
async fn s2_builds_projects_of_one_workspace_in_one_call() {
    let root = workspace(&["one", "two"]);
    let plugins = root.path().join("plugins");
    let calls = Mutex::new(Vec::new());
    let progress = |event: BuildEvent<'_>| {
        if let BuildEvent::Building { plugins, .. } = event {
            calls.lock().expect("no panic").push(plugins.join(" "));
        }
    };
    let built = build_directory(&toolchain(), &plugins, &plugins, &progress).await.expect("built");
    assert_eq!(*calls.lock().expect("no panic"), ["one two"]);
    let found: Vec<_> = built.iter().map(|plugin| (plugin.name.as_str(), plugin.version.as_str())).collect();
    assert_eq!(found, [("one", "1.2.3"), ("two", "1.2.3")]);
    for plugin in &built {
        let bytes = fs::read(&plugin.path).expect("written");
        assert_eq!(plugin.path, plugins.join(format!("{}.wasm", plugin.name)));
        assert_eq!((plugin.size, &plugin.digest), (bytes.len() as u64, &agent_plugins::digest_of(&bytes)));
        assert_eq!(bytes[..8], *b"\0asm\x0d\0\x01\0", "a component");
        assert!(bytes.windows(19).any(|window| window == b"agent-host:manifest"), "with its manifest");
        assert_eq!(plugin.written, Written::Changed);
    }

    let again = build(&toolchain(), &plugins.join("one"), &plugins, &ignore_event).await.expect("built again");
    assert_eq!((again.written, &again.digest), (Written::Unchanged, &built[0].digest));

    fs::write(plugins.join("one/src/lib.rs"), "pub fn answer() -> u32 { \"no\" }\n").expect("written");
    let error = build(&toolchain(), &plugins.join("one"), &plugins, &ignore_event).await.expect_err("a type error");
    let BuildError::Compile { plugins: names, messages, .. } = &error else { panic!("{error:?}") };
    assert_eq!(names, &["one"]);
    assert!(messages.contains("error[E0308]") && messages.contains("plugins/one/src/lib.rs:1"), "{messages}");
    assert!(!messages.contains("Compiling crate-one"), "{messages}");
    assert_eq!(
        agent_plugins::digest_of(&fs::read(&again.path).expect("kept")),
        again.digest,
        "the previous component is kept"
    );
}

/// S2: if two workspaces share a target directory, each build produces the component of its own sources. The packages
/// have the same name, and the sources of the second workspace are older than the build output of the first workspace.
#[tokio::test]
async fn s2_workspaces_can_share_a_target_directory() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let write = |path: &str, text: &str| {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().expect("inside")).expect("created");
        fs::write(path, text).expect("written");
    };
    write(".cargo/config.toml", "[build]\ntarget-dir = \"shared\"\n");
    for (name, source) in [("one", "pub fn answer() -> u32 { 42 }\n"), ("two", "pub fn answer() -> u32 { \"no\" }\n")] {
        let cargo =
            "[package]\nname = \"same\"\nversion = \"0.1.0\"\nedition = \"2024\"\n[lib]\ncrate-type = [\"cdylib\"]\n";
        write(&format!("{name}/Cargo.toml"), &format!("{cargo}[workspace]\n"));
        write(&format!("{name}/plugin.toml"), &format!("name = \"{name}\"\nversion = \"1.2.3\"\n"));
        write(&format!("{name}/src/lib.rs"), source);
    }
    let out = folder.path().join("out");
    build(&toolchain(), &folder.path().join("one"), &out, &ignore_event).await.expect("built");
    let error =
        build_directory(&toolchain(), folder.path(), &out, &ignore_event).await.expect_err("the second has an error");
    assert!(matches!(&error, BuildError::Compile { plugins, .. } if *plugins == ["two"]), "{error}");
    let one = build(&toolchain(), &folder.path().join("one"), &out, &ignore_event).await.expect("built");
    assert_eq!(one.written, Written::Unchanged);
}

#[tokio::test]
async fn s2_build_errors_contain_the_reason() {
    let root = workspace(&["one", "two"]);
    let plugins = root.path().join("plugins");
    let failed = async |directory: &Path| {
        let result = build_directory(&toolchain(), directory, directory, &ignore_event).await;
        result.expect_err("nothing to build").to_string()
    };
    let nothing = failed(&plugins.join("notes")).await;
    assert!(nothing.contains("is not a plugin project and contains no plugin project"), "{nothing}");

    let manifest = plugins.join("one/Cargo.toml");
    let text = fs::read_to_string(&manifest).expect("there").replace("\"cdylib\", ", "");
    fs::write(&manifest, text).expect("written");
    let library = failed(&plugins).await;
    assert!(library.contains("one/Cargo.toml does not produce a component") && library.contains("cdylib"), "{library}");

    fs::write(plugins.join("two/plugin.toml"), "name = \"one\"\n").expect("written");
    let same = failed(&plugins).await;
    assert!(same.contains("two plugin projects are named `one`"), "{same}");

    fs::write(plugins.join("two/plugin.toml"), "name = \"two\"\nnetwork = true\n").expect("written");
    let unknown = failed(&plugins).await;
    assert!(unknown.contains("two/plugin.toml:2: ") && unknown.contains("network"), "{unknown}");

    fs::write(&manifest, "[package").expect("written");
    fs::remove_file(plugins.join("two/plugin.toml")).expect("removed");
    let broken = failed(&plugins).await;
    assert!(broken.contains("cargo cannot read") && broken.contains("one/Cargo.toml"), "{broken}");
}

#[tokio::test]
async fn s2_missing_toolchain_error_explains_what_to_install() {
    let root = workspace(&["one"]);
    let absent = Toolchain { cargo: Some(root.path().join("absent/cargo")), ..Toolchain::default() };
    let plugins = root.path().join("plugins");
    let error = build_directory(&absent, &plugins, &plugins, &ignore_event).await.expect_err("no cargo");
    assert!(matches!(&error, BuildError::Start { .. }), "{error:?}");
    assert!(error.to_string().contains("rustup.rs"), "{error}");
}

#[test]
fn finds_projects_with_manifest_and_source() {
    let root = workspace(&["two", "one"]);
    fs::create_dir_all(root.path().join("plugins/only-cargo")).expect("created");
    fs::write(root.path().join("plugins/only-cargo/Cargo.toml"), "[package]\n").expect("written");
    let projects = projects_in(&root.path().join("plugins")).expect("read");
    let names: Vec<_> = projects.iter().map(|project| project.name()).collect();
    assert_eq!(names, ["one", "two"]);
}

/// Creates a toolchain of scripts, without the Rust target for plugins. Its `rustc` prints the path of a folder that does
/// not exist until its `rustup` has run.
#[cfg(unix)]
fn toolchain_without_target(root: &Path) -> Toolchain {
    use std::os::unix::fs::PermissionsExt;
    let bin = root.join("bin");
    fs::create_dir(&bin).expect("created");
    let lib = root.join("lib").display().to_string();
    let scripts = [
        ("cargo", format!("exec '{}' \"$@\"", env!("CARGO"))),
        ("rustc", format!("echo '{lib}'")),
        ("rustup", format!("[ \"$*\" = 'target add wasm32-wasip2' ] && mkdir '{lib}'")),
    ];
    for (name, line) in scripts {
        let path = bin.join(name);
        fs::write(&path, format!("#!/bin/sh\n{line}\n")).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("made executable");
    }
    Toolchain { cargo: Some(bin.join("cargo")), rustup: Some(bin.join("rustup")), ..Toolchain::default() }
}

#[cfg(unix)]
#[tokio::test]
async fn s2_adds_missing_target_and_reports_it() {
    // The build below needs the real target.
    let _ = toolchain();
    let root = workspace(&["one"]);
    let plugins = root.path().join("plugins");
    let toolchain = toolchain_without_target(root.path());

    let without_rustup = Toolchain { rustup: None, ..toolchain.clone() };
    let error = build_directory(&without_rustup, &plugins, &plugins, &ignore_event).await.expect_err("no target");
    assert!(matches!(&error, BuildError::Target { .. }), "{error:?}");
    assert!(error.to_string().contains("rustup.rs"), "{error}");

    let commands = Mutex::new(Vec::new());
    let progress = |event: BuildEvent<'_>| {
        if let BuildEvent::AddingTarget { command } = event {
            commands.lock().expect("no panic").push(command.to_owned());
        }
    };
    // The build succeeds, because cargo runs the real rustc, which has the Rust target for plugins.
    let built = build_directory(&toolchain, &plugins, &plugins, &progress).await.expect("built");
    assert_eq!(*commands.lock().expect("no panic"), ["rustup target add wasm32-wasip2"]);
    assert_eq!(built[0].name, "one");
}
