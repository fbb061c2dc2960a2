//! Tests of builds in languages other than Rust, and of builds that start when a source file changes (S2, S5). The
//! tests use a fake toolchain.
#![cfg(unix)]

#[path = "support/toolchain.rs"]
mod support;

use agent_devkit::build::{BuildError, BuildEvent, Toolchain, Tools, Written, build_directory};
use agent_devkit::dev::{DevEvent, SourceWatcher};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::sync::mpsc::{Receiver, channel};
use tokio_util::sync::CancellationToken;

/// Maximum time that a test waits for an event or a process.
const WAIT_LIMIT: Duration = Duration::from_secs(60);

/// A JavaScript project with a fake `jco`. The content of `app.js` selects the component that `jco` copies, or the way
/// in which `jco` fails.
struct TestProject {
    folder: TempDir,
}

impl TestProject {
    fn new(source: &str) -> Self {
        let project = Self { folder: tempfile::tempdir().expect("a temporary folder") };
        fs::create_dir(project.path("project")).expect("made");
        fs::write(project.path("project/plugin.toml"), "name = \"work\"\n").expect("written");
        project.save(source);
        for (name, text) in [("one", "(component)"), ("two", "(component (core module))")] {
            fs::write(project.path(&format!("{name}.wasm")), wat::parse_str(text).expect("a component"))
                .expect("written");
        }
        // A child process of the script would keep running after the script has ended, unless the build kills
        // the child process.
        let script = format!(
            "#!/bin/sh\nfor last; do :; done\ncase $(cat app.js) in\nslow) sleep 600 & echo $! > '{0}/sleeper'; wait;;\n\
             bad) echo 'app.js:1: what is this?' >&2; exit 1;;\nmute) exit 3;;\nodd) echo no > \"$last\";;\n\
             *) cp \"{0}/$(cat app.js).wasm\" \"$last\";;\nesac\n",
            project.folder.path().display()
        );
        fs::write(project.path("jco"), script).expect("written");
        fs::set_permissions(project.path("jco"), fs::Permissions::from_mode(0o755)).expect("made executable");
        project
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Saves the source like an editor: writes a temporary file and renames it.
    fn save(&self, source: &str) {
        fs::write(self.path("project/.app.js.new"), source).expect("written");
        fs::rename(self.path("project/.app.js.new"), self.path("project/app.js")).expect("renamed");
    }

    fn toolchain(&self) -> Toolchain {
        let named = [("JCO", self.path("jco"))].into();
        Toolchain { tools: Tools { named, ..Tools::default() }, ..Toolchain::default() }
    }

    async fn build(&self) -> Result<Written, BuildError> {
        let (folder, ignore_event) = (self.path("project"), |_: BuildEvent<'_>| {});
        let built = build_directory(&self.toolchain(), &folder, &folder, &ignore_event).await?;
        Ok(built[0].written)
    }

    /// Waits until a slow build has started its child process, and returns the id of this process.
    async fn slow_process_id(&self) -> String {
        let file = self.path("sleeper");
        let started = Instant::now();
        loop {
            match fs::read_to_string(&file) {
                Ok(number) if number.ends_with('\n') => return number.trim().to_owned(),
                _ => assert!(started.elapsed() < WAIT_LIMIT, "the build did not start"),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    fn component(&self) -> Vec<u8> {
        fs::read(self.path("project/work.wasm")).unwrap_or_default()
    }
}

/// Waits until the process with this id has ended or is a zombie.
async fn wait_until_ended(process: &str) {
    let started = Instant::now();
    let status = Path::new("/proc").join(process).join("status");
    while fs::read_to_string(&status).is_ok_and(|status| !status.contains("State:\tZ")) {
        assert!(started.elapsed() < WAIT_LIMIT, "process {process} is still running");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// S2: the error of a failed build contains the messages that the toolchain printed, and the component of the
/// previous build is kept.
#[tokio::test]
async fn s2_build_errors_contain_the_messages_of_the_toolchain() {
    let project = TestProject::new("one");
    assert_eq!(project.build().await.expect("built"), Written::Changed);
    assert_eq!(project.build().await.expect("built"), Written::Unchanged);
    let before = project.component();
    for (source, words) in [
        ("bad", "jco could not build work:\napp.js:1: what is this?"),
        ("mute", "the program ended with exit status: 3 and printed nothing"),
        ("odd", "plugin `work`"),
    ] {
        project.save(source);
        let error = project.build().await.expect_err(source).to_string();
        assert!(error.contains(words), "{error}");
        assert_eq!(project.component(), before, "{source}");
    }
}

/// S2: if a build is stopped, no processes keep running and no incomplete files are left.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn s2_stopped_build_leaves_no_processes_or_files() {
    let project = TestProject::new("slow");
    let sleeper = tokio::select! {
        built = project.build() => panic!("{built:?}"),
        sleeper = project.slow_process_id() => sleeper,
    };
    wait_until_ended(&sleeper).await;
    let remaining =
        fs::read_dir(project.path("project")).expect("a folder").map(|entry| entry.expect("an entry").file_name());
    let mut remaining: Vec<_> = remaining.map(|name| name.to_string_lossy().into_owned()).collect();
    remaining.sort();
    assert_eq!(remaining, ["app.js", "build", "plugin.toml"]);
}

/// S2: the error for a missing tool contains the command that installs it.
#[tokio::test]
async fn s2_missing_tool_error_contains_the_install_command() {
    let ignore_event = |_: BuildEvent<'_>| {};
    for (source, words) in [
        (
            "app.py",
            [
                "`componentize-py` builds plugins in Python",
                ".venv/bin/pip install componentize-py==",
                "COMPONENTIZE_PY",
            ],
        ),
        ("app.js", ["`jco` builds plugins in JavaScript", "npm install --save-dev @bytecodealliance/jco@", "JCO"]),
        ("app.c", ["`zig` builds plugins in C", ".venv/bin/pip install ziglang==", "WASI_SDK_PATH"]),
    ] {
        let folder = tempfile::tempdir().expect("a temporary folder");
        fs::write(folder.path().join("plugin.toml"), "name = \"work\"\n").expect("written");
        fs::write(folder.path().join(source), "").expect("written");
        let failed = build_directory(&Toolchain::default(), folder.path(), folder.path(), &ignore_event).await;
        let error = failed.expect_err(source);
        assert!(matches!(error, BuildError::MissingTool { .. }), "{error:?}");
        let message = error.to_string();
        assert!(words.iter().all(|word| message.contains(word)), "{message}");
        assert!(
            message.contains(&format!("cd {}", folder.path().canonicalize().expect("there").display())),
            "{message}"
        );
    }
}

/// S2: a build runs the tool only if an input has changed. The tool of this test writes different bytes in each run, so
/// that the test detects every run.
#[tokio::test]
async fn s2_builds_unchanged_inputs_once() {
    let project = TestProject::new("new");
    let script = "#!/bin/sh\nfor last; do :; done\nprintf '\\0asm\\015\\0\\001\\0\\0\\030\\003now' > \"$last\"; date +%s%N >> \"$last\"\n";
    fs::write(project.path("jco"), script).expect("written");
    let made = || async {
        let written = project.build().await;
        assert!(written.is_ok(), "{written:?}");
        project.component()
    };
    let first = made().await;
    assert_eq!(made().await, first);
    project.save("newer");
    let second = made().await;
    assert_ne!(second, first, "its source has changed");
    fs::create_dir_all(project.path("project/node_modules")).expect("made");
    fs::write(project.path("project/node_modules/.package-lock.json"), "{}").expect("written");
    let third = made().await;
    assert_ne!(third, second, "a package was installed");
    assert_eq!(made().await, third);
    fs::write(project.path("project/build/component.wasm"), "something else").expect("written");
    let fourth = made().await;
    assert_ne!(fourth, third, "the built component was replaced");
    fs::write(project.path("jco"), format!("{script}#\n")).expect("written");
    assert_ne!(made().await, fourth, "the tool has changed");
}

/// S2: the project's WIT is read before the toolchain is called. Errors name the file and the problem.
#[tokio::test]
async fn s2_finds_the_world_or_reports_the_problem() {
    let project = TestProject::new("one");
    let wit = |text: &str| {
        fs::create_dir_all(project.path("project/wit")).expect("made");
        fs::write(project.path("project/wit/world.wit"), text).expect("written");
    };
    wit("package a:b;\nworld one {}\nworld two {}\n");
    let several = project.build().await.expect_err("two worlds").to_string();
    assert!(several.contains("[build] world") && several.contains("`one`, `two`"), "{several}");
    fs::write(project.path("project/plugin.toml"), "name = \"work\"\n[build]\nworld = \"two\"\n").expect("written");
    project.build().await.expect("the world is set");
    fs::write(project.path("project/plugin.toml"), "name = \"work\"\n[build]\nworld = \"three\"\n").expect("written");
    let absent = project.build().await.expect_err("no such world").to_string();
    assert!(absent.contains("no world `three`"), "{absent}");
    wit("package a:b;\nworld one {\n");
    let broken = project.build().await.expect_err("no WIT").to_string();
    assert!(broken.contains("world.wit") && broken.contains("expected"), "{broken}");
}

/// Waits for the next event of the watcher.
async fn next(events: &mut Receiver<DevEvent>) -> DevEvent {
    tokio::time::timeout(WAIT_LIMIT, events.recv()).await.expect("an event in time").expect("the watcher runs")
}

/// Waits for the next build, and returns its first changed file and its outcome.
async fn next_build(events: &mut Receiver<DevEvent>) -> (Option<String>, DevEvent) {
    let DevEvent::Building { changed } = next(events).await else { panic!("a build begins") };
    let changed = changed.and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
    (changed, next(events).await)
}

/// S5: the projects are built again after each change. A change during a build stops this build and all processes of
/// the build. The watcher continues after a build has failed.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn s5_builds_each_change_and_stops_superseded_builds() {
    let project = TestProject::new("one");
    let folder = project.path("project");
    let watcher = SourceWatcher { toolchain: project.toolchain(), sources: folder.clone(), out: folder.clone() };
    let ((sender, mut events), cancel) = (channel(16), CancellationToken::new());
    let (stop, ignore_event) = (cancel.clone(), |_: BuildEvent<'_>| {});
    let watching = tokio::spawn(async move { watcher.run(sender, &ignore_event, stop).await });
    let app = Some("app.js".to_owned());
    assert!(
        matches!(next_build(&mut events).await, (None, DevEvent::Built(built)) if built[0].written == Written::Changed)
    );

    project.save("slow");
    let DevEvent::Building { changed } = next(&mut events).await else { panic!("a build begins") };
    assert!(changed.is_some_and(|path| path.ends_with("app.js")));
    let sleeper = project.slow_process_id().await;
    project.save("two");
    assert!(matches!(next(&mut events).await, DevEvent::Superseded));
    wait_until_ended(&sleeper).await;
    let (changed, outcome) = next_build(&mut events).await;
    assert_eq!(changed, app);
    assert!(matches!(outcome, DevEvent::Built(built) if built[0].written == Written::Changed));
    let two = project.component();

    project.save("bad");
    let (_, outcome) = next_build(&mut events).await;
    assert!(matches!(&outcome, DevEvent::Failed(error) if error.to_string().contains("what is this?")), "{outcome:?}");
    assert_eq!(project.component(), two, "the previous component stays");
    project.save("two\n");
    assert!(
        matches!(next_build(&mut events).await, (_, DevEvent::Built(built)) if built[0].written == Written::Unchanged)
    );

    cancel.cancel();
    tokio::time::timeout(WAIT_LIMIT, watching).await.expect("it ends").expect("no panic");
}

/// S5: the watcher also watches the local packages that a Rust project depends on, directly or indirectly, even if
/// the project cannot be built.
#[tokio::test]
async fn s5_watches_local_dependencies() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let write = |path: &str, text: &str| {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().expect("inside")).expect("made");
        fs::write(path, text).expect("written");
    };
    write("plugin/plugin.toml", "name = \"work\"\n");
    write(
        "plugin/Cargo.toml",
        "[package]\nname = \"work\"\n[lib]\ncrate-type = [\"cdylib\"]\n[dependencies]\nnear = { path = \"../near\" }\n\
         [workspace]\n",
    );
    write("plugin/src/lib.rs", "does not build");
    write("near/Cargo.toml", "[package]\nname = \"near\"\n[dependencies]\nfar = { path = \"../far\" }\n");
    write("near/src/lib.rs", "");
    write("far/Cargo.toml", "[package]\nname = \"far\"\n");
    write("far/src/lib.rs", "");
    write("other/Cargo.toml", "[package]\nname = \"other\"\n");
    let toolchain = support::toolchain();
    let project = folder.path().join("plugin");
    let watcher = SourceWatcher { toolchain, sources: project.clone(), out: project.clone() };
    let ((sender, mut events), cancel) = (channel(16), CancellationToken::new());
    let (stop, ignore_event) = (cancel.clone(), |_: BuildEvent<'_>| {});
    let watching = tokio::spawn(async move { watcher.run(sender, &ignore_event, stop).await });
    assert!(matches!(next_build(&mut events).await, (None, DevEvent::Failed(_))));
    for changed in ["far/src/new.rs", "near/Cargo.toml", "far/src/lib.rs"] {
        let path = folder.path().join(changed);
        let text = fs::read_to_string(&path).unwrap_or_default();
        write(changed, &format!("{text}\n"));
        let DevEvent::Building { changed: Some(found) } = next(&mut events).await else {
            panic!("a build begins: {changed}")
        };
        assert_eq!(found, path.canonicalize().expect("there"));
        assert!(matches!(next(&mut events).await, DevEvent::Failed(_)));
    }
    cancel.cancel();
    tokio::time::timeout(WAIT_LIMIT, watching).await.expect("it ends").expect("no panic");
}
