//! Builds in other languages than Rust, and sources that are watched, with a toolchain that does what it is told (S2, S5).
#![cfg(unix)]

use agent_devkit::build::{BuildError, BuildEvent, Toolchain, Tools, Written, build_directory};
use agent_devkit::dev::{News, Workshop};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::sync::mpsc::{Receiver, channel};
use tokio_util::sync::CancellationToken;

/// How long anything is waited for.
const PATIENCE: Duration = Duration::from_secs(60);

/// A project in JavaScript whose `jco` copies the component that `app.js` names, or does worse.
struct Bench {
    folder: TempDir,
}

impl Bench {
    fn new(source: &str) -> Self {
        let bench = Self { folder: tempfile::tempdir().expect("a temporary folder") };
        fs::create_dir(bench.path("project")).expect("made");
        fs::write(bench.path("project/plugin.toml"), "name = \"work\"\n").expect("written");
        bench.save(source);
        for (name, text) in [("one", "(component)"), ("two", "(component (core module))")] {
            fs::write(bench.path(&format!("{name}.wasm")), wat::parse_str(text).expect("a component"))
                .expect("written");
        }
        // Its own children outlive it, unless somebody ends them with it.
        let script = format!(
            "#!/bin/sh\nfor last; do :; done\ncase $(cat app.js) in\nslow) sleep 600 & echo $! > '{0}/sleeper'; wait;;\n\
             bad) echo 'app.js:1: what is this?' >&2; exit 1;;\nmute) exit 3;;\nodd) echo no > \"$last\";;\n\
             *) cp \"{0}/$(cat app.js).wasm\" \"$last\";;\nesac\n",
            bench.folder.path().display()
        );
        fs::write(bench.path("jco"), script).expect("written");
        fs::set_permissions(bench.path("jco"), fs::Permissions::from_mode(0o755)).expect("made executable");
        bench
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// As an editor does: beside it, and then in its place.
    fn save(&self, source: &str) {
        fs::write(self.path("project/.app.js.new"), source).expect("written");
        fs::rename(self.path("project/.app.js.new"), self.path("project/app.js")).expect("renamed");
    }

    fn toolchain(&self) -> Toolchain {
        let named = [("JCO", self.path("jco"))].into();
        Toolchain { tools: Tools { named, ..Tools::default() }, ..Toolchain::default() }
    }

    async fn build(&self) -> Result<Written, BuildError> {
        let (project, silent) = (self.path("project"), |_: BuildEvent<'_>| {});
        let built = build_directory(&self.toolchain(), &project, &project, &silent).await?;
        Ok(built[0].written)
    }

    /// The process that a slow build has started, once it has.
    async fn sleeper(&self) -> String {
        let file = self.path("sleeper");
        let begun = Instant::now();
        loop {
            match fs::read_to_string(&file) {
                Ok(number) if number.ends_with('\n') => return number.trim().to_owned(),
                _ => assert!(begun.elapsed() < PATIENCE, "the build has not begun"),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    fn component(&self) -> Vec<u8> {
        fs::read(self.path("project/work.wasm")).unwrap_or_default()
    }
}

/// Waits until there is no such process, or only what is left of it until somebody asks.
async fn is_gone(process: &str) {
    let begun = Instant::now();
    let status = Path::new("/proc").join(process).join("status");
    while fs::read_to_string(&status).is_ok_and(|status| !status.contains("State:\tZ")) {
        assert!(begun.elapsed() < PATIENCE, "process {process} is still there");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// S2: a toolchain's own errors are passed through, and what was there stays.
#[tokio::test]
async fn s2_errors_of_a_toolchain_are_readable() {
    let bench = Bench::new("one");
    assert_eq!(bench.build().await.expect("built"), Written::Changed);
    assert_eq!(bench.build().await.expect("built"), Written::Unchanged);
    let before = bench.component();
    for (source, words) in [
        ("bad", "jco could not build work:\napp.js:1: what is this?"),
        ("mute", "it ended with exit status: 3, and said nothing"),
        ("odd", "plugin `work`"),
    ] {
        bench.save(source);
        let error = bench.build().await.expect_err(source).to_string();
        assert!(error.contains(words), "{error}");
        assert_eq!(bench.component(), before, "{source}");
    }
}

/// S2: who stops a build is left with no process and no half file.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn s2_a_build_that_is_stopped_leaves_nothing() {
    let bench = Bench::new("slow");
    let sleeper = tokio::select! {
        built = bench.build() => panic!("{built:?}"),
        sleeper = bench.sleeper() => sleeper,
    };
    is_gone(&sleeper).await;
    let left = fs::read_dir(bench.path("project")).expect("a folder").map(|entry| entry.expect("an entry").file_name());
    let mut left: Vec<_> = left.map(|name| name.to_string_lossy().into_owned()).collect();
    left.sort();
    assert_eq!(left, ["app.js", "build", "plugin.toml"]);
}

/// S2: what is missing is named with the command that installs it.
#[tokio::test]
async fn s2_a_missing_tool_comes_with_its_installation() {
    let silent = |_: BuildEvent<'_>| {};
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
        let failed = build_directory(&Toolchain::default(), folder.path(), folder.path(), &silent).await;
        let error = failed.expect_err(source);
        assert!(matches!(error, BuildError::MissingTool { .. }), "{error:?}");
        let said = error.to_string();
        assert!(words.iter().all(|word| said.contains(word)), "{said}");
        assert!(said.contains(&format!("cd {}", folder.path().canonicalize().expect("there").display())), "{said}");
    }
}

/// S2: what has not changed is not made again, by a tool whose components differ each time; whatever it is made of makes it anew.
#[tokio::test]
async fn s2_the_same_is_made_once() {
    let bench = Bench::new("new");
    let script = "#!/bin/sh\nfor last; do :; done\nprintf '\\0asm\\015\\0\\001\\0\\0\\030\\003now' > \"$last\"; date +%s%N >> \"$last\"\n";
    fs::write(bench.path("jco"), script).expect("written");
    let made = || async {
        let written = bench.build().await;
        assert!(written.is_ok(), "{written:?}");
        bench.component()
    };
    let first = made().await;
    assert_eq!(made().await, first);
    bench.save("newer");
    let second = made().await;
    assert_ne!(second, first, "its source has changed");
    fs::create_dir_all(bench.path("project/node_modules")).expect("made");
    fs::write(bench.path("project/node_modules/.package-lock.json"), "{}").expect("written");
    let third = made().await;
    assert_ne!(third, second, "a package was installed");
    assert_eq!(made().await, third);
    fs::write(bench.path("project/build/component.wasm"), "something else").expect("written");
    let fourth = made().await;
    assert_ne!(fourth, third, "what was made is not there any more");
    fs::write(bench.path("jco"), format!("{script}#\n")).expect("written");
    assert_ne!(made().await, fourth, "the tool is another one");
}

/// S2: the project's WIT is read before anything is built, and what is wrong there is said with its place.
#[tokio::test]
async fn s2_the_world_is_found_or_asked_for() {
    let bench = Bench::new("one");
    let wit = |text: &str| {
        fs::create_dir_all(bench.path("project/wit")).expect("made");
        fs::write(bench.path("project/wit/world.wit"), text).expect("written");
    };
    wit("package a:b;\nworld one {}\nworld two {}\n");
    let several = bench.build().await.expect_err("two worlds").to_string();
    assert!(several.contains("[build] world") && several.contains("`one`, `two`"), "{several}");
    fs::write(bench.path("project/plugin.toml"), "name = \"work\"\n[build]\nworld = \"two\"\n").expect("written");
    bench.build().await.expect("it says which");
    fs::write(bench.path("project/plugin.toml"), "name = \"work\"\n[build]\nworld = \"three\"\n").expect("written");
    let absent = bench.build().await.expect_err("no such world").to_string();
    assert!(absent.contains("no world `three`"), "{absent}");
    wit("package a:b;\nworld one {\n");
    let broken = bench.build().await.expect_err("no WIT").to_string();
    assert!(broken.contains("world.wit") && broken.contains("expected"), "{broken}");
}

/// What is told next.
async fn next(news: &mut Receiver<News>) -> News {
    tokio::time::timeout(PATIENCE, news.recv()).await.expect("there is news").expect("it goes on")
}

/// The build that begins next, and what became of it.
async fn next_build(news: &mut Receiver<News>) -> (Option<String>, News) {
    let News::Building { changed } = next(news).await else { panic!("a build begins") };
    let changed = changed.and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
    (changed, next(news).await)
}

/// S5: a change is built; a newer one takes the place of a build that runs, with all its processes; an error ends nothing.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn s5_each_change_is_built_and_a_newer_one_supersedes() {
    let bench = Bench::new("one");
    let project = bench.path("project");
    let workshop = Workshop { toolchain: bench.toolchain(), sources: project.clone(), out: project.clone() };
    let ((sender, mut news), cancel) = (channel(16), CancellationToken::new());
    let (stop, silent) = (cancel.clone(), |_: BuildEvent<'_>| {});
    let keeping = tokio::spawn(async move { workshop.keep_built(sender, &silent, stop).await });
    let app = Some("app.js".to_owned());
    assert!(matches!(next_build(&mut news).await, (None, News::Built(built)) if built[0].written == Written::Changed));

    bench.save("slow");
    let News::Building { changed } = next(&mut news).await else { panic!("a build begins") };
    assert!(changed.is_some_and(|path| path.ends_with("app.js")));
    let sleeper = bench.sleeper().await;
    bench.save("two");
    assert!(matches!(next(&mut news).await, News::Superseded));
    is_gone(&sleeper).await;
    let (changed, told) = next_build(&mut news).await;
    assert_eq!(changed, app);
    assert!(matches!(told, News::Built(built) if built[0].written == Written::Changed));
    let two = bench.component();

    bench.save("bad");
    let (_, told) = next_build(&mut news).await;
    assert!(matches!(&told, News::Failed(error) if error.to_string().contains("what is this?")), "{told:?}");
    assert_eq!(bench.component(), two, "what was built before stays");
    bench.save("two\n");
    assert!(matches!(next_build(&mut news).await, (_, News::Built(built)) if built[0].written == Written::Unchanged));

    cancel.cancel();
    tokio::time::timeout(PATIENCE, keeping).await.expect("it ends").expect("no panic");
}

/// S5: what a project in Rust is built of elsewhere is watched, too, also through others, and also before it builds.
#[tokio::test]
async fn s5_packages_that_a_project_is_built_of_are_watched() {
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
    let toolchain = Toolchain { cargo: Some(env!("CARGO").into()), ..Toolchain::default() };
    let project = folder.path().join("plugin");
    let workshop = Workshop { toolchain, sources: project.clone(), out: project.clone() };
    let ((sender, mut news), cancel) = (channel(16), CancellationToken::new());
    let (stop, silent) = (cancel.clone(), |_: BuildEvent<'_>| {});
    let keeping = tokio::spawn(async move { workshop.keep_built(sender, &silent, stop).await });
    assert!(matches!(next_build(&mut news).await, (None, News::Failed(_))));
    for changed in ["far/src/new.rs", "near/Cargo.toml", "far/src/lib.rs"] {
        let path = folder.path().join(changed);
        let text = fs::read_to_string(&path).unwrap_or_default();
        write(changed, &format!("{text}\n"));
        let News::Building { changed: Some(found) } = next(&mut news).await else {
            panic!("a build begins: {changed}")
        };
        assert_eq!(found, path.canonicalize().expect("there"));
        assert!(matches!(next(&mut news).await, News::Failed(_)));
    }
    cancel.cancel();
    tokio::time::timeout(PATIENCE, keeping).await.expect("it ends").expect("no panic");
}
