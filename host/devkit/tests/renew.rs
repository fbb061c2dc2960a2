//! What agent-host has written into a project is renewed, and what its author has made or changed is not touched (S1).

use agent_devkit::Language;
use agent_devkit::build::{BuildEvent, Project, Toolchain, build_directory};
use agent_devkit::new::{NewProject, ProjectKind, Sdk, create};
use agent_devkit::vendored::{RenewError, Renewal, renew};
use std::fs;
use std::path::PathBuf;
use std::sync::Mutex;
use tempfile::TempDir;

/// A new project.
struct Bench {
    _folder: TempDir,
    path: PathBuf,
    /// What is agent-host's in it.
    ours: PathBuf,
}

impl Bench {
    fn new(language: Language) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (name, directory) = ("words".to_owned(), folder.path().to_owned());
        let project = NewProject { name, kind: ProjectKind::Tool, language, directory, sdk: Sdk::Carried };
        let path = create(&project).expect("made").path;
        let ours = path.join(if language == Language::Rust { "agent-host" } else { "wit/deps" });
        Self { _folder: folder, path, ours }
    }

    fn renew(&self) -> Result<Renewal, RenewError> {
        renew(&Project::read(&self.path).expect("a project"))
    }

    /// As an older agent-host would have written it: one file otherwise, one more, one not yet there.
    fn age(&self, file: &str) {
        let old = self.ours.join(file);
        fs::write(&old, "// older\n").expect("written");
        let gone = old.with_file_name("gone.wit");
        fs::write(&gone, "// no more\n").expect("written");
        fs::remove_file(self.ours.join(self.later())).expect("there");
        let list = self.ours.join("agent-host.sha256");
        let text = fs::read_to_string(&list).expect("a list").replace("agent-host 0.1.0", "agent-host 0.0.9");
        let digest = |text: &str| agent_plugins::digest_of(text.as_bytes()).hex().to_owned();
        let lines = text.lines().filter(|line| !line.ends_with(file) && !line.ends_with(self.later()));
        let mut text: String = lines.map(|line| format!("{line}\n")).collect();
        let folder = file.rsplit_once('/').map_or("", |(folder, _)| folder);
        text.push_str(&format!("{}  {file}\n{}  {folder}/gone.wit\n", digest("// older\n"), digest("// no more\n")));
        fs::write(list, text).expect("written");
    }

    fn later(&self) -> &'static str {
        if self.ours.ends_with("agent-host") { "wit/media-policy.wit" } else { "agent-host-plugin/media-policy.wit" }
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.ours.join(name)).unwrap_or_default()
    }
}

const FILES: [(Language, &str); 2] = [(Language::Rust, "sdk/src/lib.rs"), (Language::C, "agent-host-plugin/tool.wit")];

/// S1: what an older agent-host wrote becomes what this one carries: changed, added and removed; once.
#[test]
fn s1_what_agent_host_wrote_is_renewed() {
    for (language, file) in FILES {
        let bench = Bench::new(language);
        assert_eq!(bench.renew().expect("as it was made"), Renewal::UpToDate);
        let whole = bench.read(file);
        bench.age(file);
        fs::create_dir_all(bench.ours.join("own-package")).expect("made");
        if language != Language::Rust {
            fs::write(bench.ours.join("own-package/own.wit"), "package own:own;\n").expect("written");
        }
        let renewed = bench.renew().expect("renewed");
        assert_eq!(renewed, Renewal::Renewed { from: "0.0.9".to_owned(), changed: 3 });
        assert_eq!(bench.read(file), whole);
        assert!(!bench.read(bench.later()).is_empty());
        assert!(!bench.ours.join(file).with_file_name("gone.wit").exists());
        assert_eq!(bench.read("own-package/own.wit").is_empty(), language == Language::Rust, "the author's own stays");
        assert_eq!(bench.renew().expect("once"), Renewal::UpToDate);
        fs::remove_dir_all(&bench.ours).expect("moved away");
        if language == Language::Rust {
            assert!(matches!(bench.renew(), Ok(Renewal::Renewed { .. })), "what was moved away is written anew");
            assert_eq!(bench.read(file), whole);
        }
    }
}

/// S1: nothing that an author has changed is overwritten, and nothing else is touched then.
#[test]
fn s1_what_was_changed_by_hand_is_not_overwritten() {
    for (language, file) in FILES {
        let bench = Bench::new(language);
        bench.age(file);
        fs::write(bench.ours.join(file), "// mine\n").expect("written");
        let refused = bench.renew().expect_err("changed");
        assert!(matches!(&refused, RenewError::Changed { files, .. } if files == &[file.to_owned()]), "{refused}");
        assert!(refused.to_string().contains("nothing is overwritten"), "{refused}");
        assert_eq!(bench.read(file), "// mine\n");
        assert!(bench.read(bench.later()).is_empty());
        fs::remove_file(bench.ours.join("agent-host.sha256")).expect("there");
        assert!(matches!(bench.renew(), Err(RenewError::Unlisted { .. })));
    }
    let bench = Bench::new(Language::Rust);
    let list = bench.read("agent-host.sha256").replace("agent-host 0.1.0", "agent-host 9.0.0");
    fs::write(bench.ours.join("agent-host.sha256"), list).expect("written");
    assert!(matches!(bench.renew(), Err(RenewError::Newer { version, .. }) if version == "9.0.0"));
}

/// S1, S2: a build says of a project that it has what another agent-host wrote; of others it says nothing.
#[tokio::test]
async fn s1_a_build_says_what_is_to_be_renewed() {
    let bench = Bench::new(Language::Python);
    let told = Mutex::new(Vec::new());
    let listen = |event: BuildEvent<'_>| {
        if let BuildEvent::OtherVersion(other) = event {
            told.lock().expect("no panic").push((other.plugin.clone(), other.version.clone()));
        }
    };
    // There is no toolchain here, and none is needed to know it.
    let build = || async { build_directory(&Toolchain::default(), &bench.path, &bench.path, &listen).await.is_ok() };
    assert!(!build().await);
    assert_eq!(*told.lock().expect("no panic"), []);
    bench.age("agent-host-plugin/tool.wit");
    assert!(!build().await);
    assert_eq!(*told.lock().expect("no panic"), [("words".to_owned(), "0.0.9".to_owned())]);
}
