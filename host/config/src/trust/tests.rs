//! Tests that trust is bound to a path and to the contents of all files with authority.

use super::*;

const FILE: &str = "model = \"openai/gpt-4.1-mini\"\nplugin_directory = \"plugins\"\n\
    [plugins.files.grants]\nread = [\".\"]\nwrite = [\"/\"]\n\
    [providers.openai]\nbase_url = \"https://elsewhere.example/v1\"\nkey_env = \"OPENAI_API_KEY\"\n\
    [mcp.notes]\ncommand = \"python3\"\nargs = [\"run.py\"]\npass_env = [\"HOME\"]\n\
    [plugins.web.secrets.token]\nenv = \"TOKEN\"\nhosts = [\"api.example\"]\n\
    [approval]\ndefault = \"allow\"\ntools = { \"files.write\" = \"allow\" }\n\
    [agents.helper]\nagent = \"helper.toml\"\ndescription = \"Helps.\"\n";

struct Folder {
    folder: tempfile::TempDir,
    store: TrustStore,
}

impl Folder {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let store = TrustStore::in_data_folder(&folder.path().join("data"));
        let created = Self { folder, store };
        std::fs::create_dir(created.path("plugins")).expect("created");
        for (name, text) in [("agent.toml", FILE), ("helper.toml", "model = \"offline\"\n"), ("run.py", "print()\n")] {
            created.write(name, text);
        }
        created
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).expect("written");
    }

    fn authority(&self) -> AgentAuthority {
        AgentAuthority::of(&self.path("agent.toml")).unwrap_or_else(|error| panic!("{error}"))
    }

    fn state(&self) -> TrustState {
        self.store.state(&self.authority())
    }
}

/// P14: the question about a foreign file shows everything that the file allows.
#[test]
fn p14_permissions_name_everything_that_a_file_allows() {
    let folder = Folder::new();
    let expected = [
        "model: openai/gpt-4.1-mini",
        "provider openai: requests go to https://elsewhere.example/v1 with the value of OPENAI_API_KEY",
        "plugins: plugins",
        "grant for files: read the whole folder of the file",
        "grant for files: write / (outside the folder of the file)",
        "secret for web: TOKEN is sent to api.example in `Authorization`",
        "MCP server notes: starts `python3 run.py` outside the sandbox with the value of HOME",
        "approvals: default = \"allow\"",
        "approvals: tools.files.write = \"allow\"",
        "delegate helper: helper.toml",
        "delegate helper: model: offline",
    ];
    assert_eq!(folder.authority().permissions, expected);
}

/// P14: a decision covers exactly the files that the user saw. A change to any of them is asked about again.
#[test]
fn p14_trust_is_bound_to_the_contents_of_all_files_with_authority() {
    let folder = Folder::new();
    assert_eq!(folder.state(), TrustState::Unknown);
    folder.store.trust(&folder.authority()).expect("stored");
    assert_eq!(folder.state(), TrustState::Trusted);
    let more = format!("{FILE}[plugins.text.grants]\nread = [\"/\"]\n").replace("write = [\"/\"]\n", "");
    folder.write("agent.toml", &more);
    let TrustState::Changed(change) = folder.state() else { panic!("{:?}", folder.state()) };
    assert_eq!(change.added, ["grant for text: read / (outside the folder of the file)"]);
    assert_eq!(change.removed, ["grant for files: write / (outside the folder of the file)"]);
    assert_eq!(change.files, [authority::location(&folder.path("agent.toml"))]);
    folder.write("agent.toml", FILE);
    for (name, text) in [
        ("helper.toml", "model = \"offline/router\"\n"),
        ("run.py", "import os\n"),
        ("plugins/plugins.lock", "# changed\n"),
    ] {
        let before = std::fs::read_to_string(folder.path(name)).ok();
        folder.write(name, text);
        let TrustState::Changed(change) = folder.state() else { panic!("{name} is not covered") };
        assert_eq!(change.files, [authority::location(&folder.path(name))]);
        match before {
            Some(text) => folder.write(name, &text),
            None => std::fs::remove_file(folder.path(name)).expect("removed"),
        }
        assert_eq!(folder.state(), TrustState::Trusted, "{name} is as before");
    }
    folder.write("README.md", "Text without authority.");
    assert_eq!(folder.state(), TrustState::Trusted);
}

/// P14: a decision is bound to the path, and can be listed and withdrawn.
#[test]
fn p14_trust_is_bound_to_the_path() {
    let (folder, other) = (Folder::new(), Folder::new());
    folder.store.trust(&folder.authority()).expect("stored");
    assert_eq!(folder.store.state(&other.authority()), TrustState::Unknown, "the same contents at another path");
    let listed = folder.store.list().expect("listed");
    assert_eq!(listed.iter().map(|record| &record.path).collect::<Vec<_>>(), [&folder.authority().path]);
    assert!(folder.store.trusted(&folder.path("agent.toml")).is_some());
    assert!(folder.store.forget(&folder.path("agent.toml")).expect("removed"));
    assert!(!folder.store.forget(&folder.path("agent.toml")).expect("already removed"));
    assert_eq!(folder.state(), TrustState::Unknown);
    assert!(TrustStore::in_data_folder(Path::new("absent")).list().expect("empty").is_empty());
}

/// P14: a link to a trusted file is another file, because its relative paths refer to another folder. A granted folder that
/// is replaced by a link to another folder is asked about again.
#[cfg(unix)]
#[test]
fn p14_links_do_not_carry_trust() {
    use std::os::unix::fs::symlink;
    let (folder, other) = (Folder::new(), tempfile::tempdir().expect("a temporary folder"));
    std::fs::create_dir(folder.path("docs")).expect("created");
    folder.write("agent.toml", "[plugins.files.grants]\nread = [\"docs\"]\n");
    folder.store.trust(&folder.authority()).expect("stored");
    let link = other.path().join("agent.toml");
    symlink(folder.path("agent.toml"), &link).expect("linked");
    assert_eq!(folder.store.state(&AgentAuthority::of(&link).expect("read")), TrustState::Unknown);
    std::fs::remove_dir(folder.path("docs")).expect("removed");
    symlink("/", folder.path("docs")).expect("linked");
    let TrustState::Changed(change) = folder.state() else { panic!("{:?}", folder.state()) };
    assert_eq!(change.added, ["grant for files: read / (outside the folder of the file)"]);
}

/// P14: a running agent accepts only the trusted texts of its own file and of its delegates' files.
#[test]
fn p14_a_running_agent_reads_only_trusted_texts() {
    let folder = Folder::new();
    let start = TrustedStart { store: folder.store.clone(), path: folder.path("agent.toml") };
    assert!(start.verify(&folder.path("agent.toml"), FILE).is_err(), "nothing is trusted yet");
    folder.store.trust(&folder.authority()).expect("stored");
    start.verify(&folder.path("agent.toml"), FILE).expect("trusted");
    start.verify(&folder.path("helper.toml"), "model = \"offline\"\n").expect("trusted");
    for (name, text) in [("agent.toml", ""), ("helper.toml", FILE), ("other.toml", FILE)] {
        let message = start.verify(&folder.path(name), text).expect_err(name).to_string();
        assert!(message.contains(name) && message.contains("agent-host trust add"), "{message}");
    }
}

/// A change that the host itself makes keeps the trust, but never creates it, and never covers other changes.
#[test]
fn changes_by_the_host_keep_trust() {
    let folder = Folder::new();
    let path = folder.path("agent.toml");
    let is_toml = |path: &Path| path.extension().is_some_and(|end| end == "toml");
    folder.store.keep(folder.store.trusted(&path), &is_toml);
    assert_eq!(folder.state(), TrustState::Unknown);
    folder.store.trust(&folder.authority()).expect("stored");
    let before = folder.store.trusted(&path);
    folder.write("agent.toml", &format!("{FILE}[plugins.text.grants]\nread = [\".\"]\n"));
    folder.store.keep(before, &is_toml);
    assert_eq!(folder.state(), TrustState::Trusted);
    let before = folder.store.trusted(&path);
    folder.write("agent.toml", FILE);
    folder.write("run.py", "import os\n");
    folder.store.keep(before, &is_toml);
    assert!(matches!(folder.state(), TrustState::Changed(_)), "another file has changed");
}

/// Class 14: the folder with the decisions is accessible to its owner only.
#[cfg(unix)]
#[test]
fn decisions_are_private() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new();
    folder.store.trust(&folder.authority()).expect("stored");
    let mode = |path: &Path| std::fs::metadata(path).expect("exists").permissions().mode() & 0o777;
    let files: Vec<_> = std::fs::read_dir(&folder.store.folder).expect("listed").flatten().collect();
    assert_eq!((mode(&folder.store.folder), files.len(), mode(&files[0].path())), (0o700, 1, 0o600));
}
