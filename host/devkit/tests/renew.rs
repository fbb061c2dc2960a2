//! Tests that `renew` replaces the files that agent-host wrote into a project, and keeps files that the author created
//! or changed (S1).

use agent_devkit::Language;
use agent_devkit::build::{BuildEvent, Project, Toolchain, build_directory};
use agent_devkit::new::{Example, NewProject, ProjectKind, Sdk, create};
use agent_devkit::renew::{RenewError, Renewal, renew};
use std::fs;
use std::path::PathBuf;
use std::sync::Mutex;
use tempfile::TempDir;

/// A new project in a temporary folder.
struct TestProject {
    _folder: TempDir,
    path: PathBuf,
    /// Path of the folder that contains the files that agent-host wrote.
    written: PathBuf,
    /// Path of a file of the contract in that folder.
    contract_file: &'static str,
}

impl TestProject {
    fn new(language: Language) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (name, directory) = ("words".to_owned(), folder.path().to_owned());
        let new = NewProject {
            name,
            kind: ProjectKind::Tool,
            example: Example::Simple,
            language,
            directory,
            sdk: Sdk::Embedded,
        };
        let path = create(&new).expect("created").path;
        let written = path.join(match language {
            Language::Rust | Language::JavaScript => "agent-host",
            Language::Python => "agent_host_sdk",
            Language::C => "wit/deps",
        });
        let contract_file = match language {
            Language::Rust => "wit/media-policy.wit",
            Language::Python => "media.py",
            Language::JavaScript => "wit/agent-host-plugin/media-policy.wit",
            Language::C => "agent-host-plugin/media-policy.wit",
        };
        Self { _folder: folder, path, written, contract_file }
    }

    fn renew(&self) -> Result<Renewal, RenewError> {
        renew(&Project::read(&self.path).expect("a project"))
    }

    /// Changes the files as if an older agent-host had written them: one file differs, another file is obsolete, and a
    /// third file is missing.
    fn make_older(&self, file: &str) {
        let old = self.written.join(file);
        fs::write(&old, "// older\n").expect("written");
        let gone = old.with_file_name("gone.wit");
        fs::write(&gone, "// no more\n").expect("written");
        fs::remove_file(self.written.join(self.contract_file)).expect("there");
        let list = self.written.join("agent-host.sha256");
        let text = fs::read_to_string(&list).expect("a list").replace("agent-host 0.1.0", "agent-host 0.0.9");
        let digest = |text: &str| agent_plugins::digest_of(text.as_bytes()).hex().to_owned();
        let lines = text.lines().filter(|line| !line.ends_with(file) && !line.ends_with(self.contract_file));
        let mut text: String = lines.map(|line| format!("{line}\n")).collect();
        let gone = file.rsplit_once('/').map_or("gone.wit".to_owned(), |(folder, _)| format!("{folder}/gone.wit"));
        text.push_str(&format!("{}  {file}\n{}  {gone}\n", digest("// older\n"), digest("// no more\n")));
        fs::write(list, text).expect("written");
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.written.join(name)).unwrap_or_default()
    }
}

const FILES: [(Language, &str); 4] = [
    (Language::Rust, "sdk/src/lib.rs"),
    (Language::Python, "http.py"),
    (Language::JavaScript, "src/index.js"),
    (Language::C, "agent-host-plugin/tool.wit"),
];

/// Whether a project contains an SDK, and not only the contract.
fn has_sdk(language: Language) -> bool {
    language != Language::C
}

/// S1: `renew` replaces the files of an older agent-host: it changes, adds and removes files, so that the project has
/// the files of this agent-host. A second call of `renew` changes nothing.
#[test]
fn s1_renews_files_of_an_older_agent_host() {
    for (language, file) in FILES {
        let project = TestProject::new(language);
        assert_eq!(project.renew().expect("unchanged"), Renewal::UpToDate);
        let current = project.read(file);
        project.make_older(file);
        fs::create_dir_all(project.written.join("own-package")).expect("made");
        // Python writes compiled modules next to the modules of the SDK.
        fs::create_dir_all(project.written.join("__pycache__")).expect("made");
        fs::write(project.written.join("__pycache__/http.pyc"), "compiled").expect("written");
        if !has_sdk(language) {
            fs::write(project.written.join("own-package/own.wit"), "package own:own;\n").expect("written");
        }
        let renewed = project.renew().expect("renewed");
        assert_eq!(renewed, Renewal::Renewed { from: "0.0.9".to_owned(), changed: 3 });
        assert_eq!(project.read(file), current);
        assert!(!project.read(project.contract_file).is_empty());
        assert!(!project.written.join(file).with_file_name("gone.wit").exists());
        assert_eq!(project.read("own-package/own.wit").is_empty(), has_sdk(language), "the author's own files stay");
        assert_eq!(project.renew().expect("a second time"), Renewal::UpToDate);
        fs::remove_dir_all(&project.written).expect("moved away");
        if has_sdk(language) {
            assert!(
                matches!(project.renew(), Ok(Renewal::Renewed { .. })),
                "the files are written again after they were moved away"
            );
            assert_eq!(project.read(file), current);
        }
    }
}

/// S1: if the author changed a file, nothing is overwritten.
#[test]
fn s1_does_not_overwrite_changed_files() {
    for (language, file) in FILES {
        let project = TestProject::new(language);
        project.make_older(file);
        fs::write(project.written.join(file), "// mine\n").expect("written");
        let refused = project.renew().expect_err("changed");
        assert!(matches!(&refused, RenewError::Changed { files, .. } if files == &[file.to_owned()]), "{refused}");
        assert!(refused.to_string().contains("nothing was overwritten"), "{refused}");
        assert_eq!(project.read(file), "// mine\n");
        assert!(project.read(project.contract_file).is_empty());
        fs::remove_file(project.written.join("agent-host.sha256")).expect("there");
        assert!(matches!(project.renew(), Err(RenewError::Unlisted { .. })));
    }
    let project = TestProject::new(Language::Rust);
    let list = project.read("agent-host.sha256").replace("agent-host 0.1.0", "agent-host 9.0.0");
    fs::write(project.written.join("agent-host.sha256"), list).expect("written");
    assert!(matches!(project.renew(), Err(RenewError::Newer { version, .. }) if version == "9.0.0"));
}

/// S1, S2: a build reports a version mismatch only if another version of agent-host wrote the files.
#[tokio::test]
async fn s1_build_reports_files_of_another_agent_host() {
    let project = TestProject::new(Language::Python);
    let reported = Mutex::new(Vec::new());
    let progress = |event: BuildEvent<'_>| {
        if let BuildEvent::VersionMismatch(mismatch) = event {
            reported.lock().expect("no panic").push((mismatch.plugin.clone(), mismatch.version.clone()));
        }
    };
    // The build fails because the test has no toolchain, but the build reports the mismatch before it fails.
    let build =
        || async { build_directory(&Toolchain::default(), &project.path, &project.path, &progress).await.is_ok() };
    assert!(!build().await);
    assert_eq!(*reported.lock().expect("no panic"), []);
    project.make_older("http.py");
    assert!(!build().await);
    assert_eq!(*reported.lock().expect("no panic"), [("words".to_owned(), "0.0.9".to_owned())]);
}
