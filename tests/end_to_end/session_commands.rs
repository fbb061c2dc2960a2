//! `session fork|undo|export|import|delete` and `memory search|list|forget` of the real binary (D4, D5): their output,
//! their refusals, and turns that continue the resulting sessions.

use agent_store::{Options, SessionFilter, SessionIndex, SessionSummary, SqliteStore};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

/// The name is the same in every folder, so that each can continue what another has exported.
const AGENT: &str = "name = \"agent\"\nmodel = \"scripted:script.json\"\nplugin_directory = \"plugins\"\n";

/// A user with a folder, whose model has four replies.
struct CliUser {
    folder: TempDir,
}

impl CliUser {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("plugins")).unwrap();
        let replies = ["The walrus.", "The seal.", "The otter.", "The whale."].map(|text| json!({"text": text}));
        std::fs::write(folder.path().join("script.json"), json!({"replies": replies}).to_string()).unwrap();
        std::fs::write(folder.path().join("agent.toml"), AGENT).unwrap();
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_agent-host"));
        command.current_dir(self.folder.path()).args(arguments).env("AGENT_HOST_DATA", self.path("data"));
        command.env("USER", "ada").stdin(Stdio::null()).output().unwrap()
    }

    /// Stdout of a command that must succeed.
    fn succeed(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let (printed, noted) = stdout_and_stderr(&output);
        assert!(output.status.success(), "{arguments:?}: {noted}");
        printed.trim_end().to_owned()
    }

    /// Stderr of a command that must be refused.
    fn fail(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let (printed, noted) = stdout_and_stderr(&output);
        assert_eq!((output.status.code(), printed.as_str()), (Some(2), ""), "{arguments:?}: {noted}");
        noted
    }

    fn ask(&self, session: Option<&str>, prompt: &str) -> String {
        let mut arguments = vec!["--agent", "agent.toml"];
        arguments.extend(session.iter().flat_map(|session| ["--session", *session]));
        arguments.push(prompt);
        self.succeed(&arguments)
    }

    async fn sessions(&self) -> Vec<SessionSummary> {
        let store = SqliteStore::open(self.path("data/agent-host.db"), Options::default()).unwrap();
        store.sessions(SessionFilter::default(), 99).await.unwrap()
    }
}

fn stdout_and_stderr(output: &Output) -> (String, String) {
    (String::from_utf8(output.stdout.clone()).unwrap(), String::from_utf8(output.stderr.clone()).unwrap())
}

fn document(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn d5_forks_and_undoes_a_session() {
    let person = CliUser::new();
    person.ask(None, "Who swims first?");
    let original = person.sessions().await.remove(0).subject;
    assert_eq!(person.ask(Some(&original), "Who swims next?"), "The seal.");
    let shown = person.succeed(&["session", "show", &original]);
    assert!(shown.contains("user 3\n") && shown.contains("assistant 4\n"), "messages are numbered: {shown}");

    let fork = person.succeed(&["session", "fork", &original, "--at", "2"]);
    assert!(fork != original && fork.starts_with("agent/"), "{fork}");
    let shown = person.succeed(&["session", "show", &fork]);
    assert!(shown.contains("The walrus.") && !shown.contains("The seal."), "{shown}");
    let noted = person.fail(&["session", "fork", &original, "--at", "9"]);
    assert!(
        noted.contains("message 9 is not in the session's view; the nearest message after which it can be cut is 4"),
        "{noted}"
    );
    assert!(person.fail(&["session", "fork", "nothing"]).contains("there is no session `nothing`"));
    assert_eq!(person.ask(Some(&fork), "And who else?"), "The otter.", "a fork can continue");

    assert!(person.succeed(&["memory", "list"]).contains("Answered: The seal."));
    person.succeed(&["session", "undo", &original]);
    assert!(!person.succeed(&["memory", "list"]).contains("The seal."), "what is taken back is not remembered");
    let shown = person.succeed(&["session", "show", &original]);
    let (_, undone) = shown.split_once("turn 2").expect("it stays stored");
    assert_eq!((shown.matches("undone").count(), undone.matches("undone").count()), (2, 2), "{shown}");
    assert_eq!(person.ask(Some(&original), "And who now?"), "The otter.");
    let whole = person.succeed(&["session", "export", &original]);
    let whole: Value = serde_json::from_str(&whole).unwrap();
    let visible = whole["snapshot"]["view"].as_array().unwrap().iter().map(|entry| entry["id"].as_u64().unwrap());
    assert_eq!(visible.collect::<Vec<_>>(), [1, 2, 5, 6], "an undone turn stays stored and is not in the view");
    let again = person.succeed(&["session", "fork", &original]);
    for _ in 0..2 {
        person.succeed(&["session", "undo", &again]);
    }
    assert!(person.fail(&["session", "undo", &again]).contains("there is no turn to undo"));
}

/// A command that overwrites an existing file; without its last argument it must not.
#[cfg(unix)]
fn export_line<'l>(session: &'l str, name: &'l str) -> [&'l str; 6] {
    ["session", "export", session, "-o", name, "--force"]
}

/// Invariant 1: An export replaces only regular files, and only on request.
#[cfg(unix)]
#[tokio::test(flavor = "multi_thread")]
async fn d5_an_export_replaces_only_regular_files() {
    use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
    let person = CliUser::new();
    person.ask(None, "Who swims first?");
    let session = person.sessions().await.remove(0).subject;
    let export = |name| export_line(&session, name);

    // A named pipe is written to, and stays a pipe.
    assert!(Command::new("mkfifo").arg(person.path("pipe")).status().unwrap().success());
    let pipe = person.path("pipe");
    let reader = std::thread::spawn(move || std::fs::read(pipe).unwrap());
    person.succeed(&export("pipe"));
    assert!(std::fs::symlink_metadata(person.path("pipe")).unwrap().file_type().is_fifo(), "it is still a pipe");
    let read: Value = serde_json::from_slice(&reader.join().unwrap()).unwrap();
    assert_eq!(read["format"], "agent-host.session");

    // Through a link, its target is replaced; a dangling link is left alone.
    std::fs::write(person.path("real.json"), "old").unwrap();
    symlink("real.json", person.path("link.json")).unwrap();
    person.succeed(&export("link.json"));
    assert!(person.path("link.json").is_symlink());
    assert_eq!(document(&person.path("real.json")), read);
    let mode = std::fs::metadata(person.path("real.json")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "a whole conversation is its owner's alone");
    symlink("nothing.json", person.path("dangling.json")).unwrap();
    for words in [&export("dangling.json")[..], &export("dangling.json")[..5]] {
        let noted = person.fail(words);
        assert!(noted.contains("`dangling.json` is a symbolic link to a file that does not exist"), "{noted}");
    }
    assert!(person.path("dangling.json").is_symlink() && !person.path("nothing.json").exists());
    let noted = person.fail(&export("plugins"));
    assert!(noted.contains("`plugins` is a folder"), "{noted}");
    let left = std::fs::read_dir(person.folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
    let parts: Vec<_> = left.filter(|name| name.to_string_lossy().contains("part")).collect();
    assert!(parts.is_empty(), "{parts:?}");
}

/// Endless or invalid input is refused after its first chunk.
#[cfg(unix)]
#[test]
fn d5_stops_reading_input_that_is_not_a_document() {
    let person = CliUser::new();
    assert!(Command::new("mkfifo").arg(person.path("pipe")).status().unwrap().success());
    for endless in [b"\0".as_slice(), b"a", b"{\"a\":"] {
        let pipe = person.path("pipe");
        let writer = std::thread::spawn(move || {
            use std::io::Write;
            let mut pipe = std::fs::File::options().write(true).open(pipe).unwrap();
            let piece = endless.repeat((1 << 16) / endless.len());
            // Far more than a pipe holds, and far less than the maximum size of a document.
            let pieces = std::iter::repeat_n(&piece, 1 << 10);
            pieces.take_while(|piece| pipe.write_all(piece).is_ok()).count()
        });
        let noted = person.fail(&["session", "import", "pipe"]);
        assert!(noted.contains("`pipe`: this is not an exported session: "), "{noted}");
        let pieces = writer.join().unwrap();
        assert!(pieces < 64, "{pieces} pieces were read");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn d5_exports_imports_and_deletes_a_session() {
    let (person, other) = (CliUser::new(), CliUser::new());
    person.ask(None, "Who swims first?");
    let session = person.sessions().await.remove(0).subject;
    person.succeed(&["session", "export", &session, "--output", "out.json"]);
    let written = document(&person.path("out.json"));
    assert_eq!((&written["format"], &written["version"]), (&json!("agent-host.session"), &json!(1)));
    let noted = person.fail(&["session", "export", &session, "-o", "out.json"]);
    assert!(noted.contains("`out.json` already exists: --force replaces it"), "{noted}");
    person.succeed(&["session", "export", &session, "-o", "out.json", "--force"]);
    let noted = person.fail(&["session", "export", &session, "-o", "nowhere/out.json"]);
    assert!(noted.contains("nowhere/out.json") && noted.contains("cannot be written"), "{noted}");
    let files = std::fs::read_dir(person.folder.path()).unwrap().count();
    assert_eq!(files, 5, "no partial file is left next to plugins, agent.toml, script, data and document");

    let file = person.path("out.json");
    let file = file.to_str().unwrap();
    assert_eq!(other.succeed(&["session", "import", file]), session);
    let noted = other.fail(&["session", "import", file]);
    assert!(noted.contains(&format!("session `{session}` exists already: --as ID imports it")), "{noted}");
    assert_eq!(other.succeed(&["session", "import", file, "--as", "agent/copy"]), "agent/copy");
    assert_eq!(other.ask(Some("agent/copy"), "Who next?"), "The seal.", "an imported session can continue");

    let text = std::fs::read_to_string(file).unwrap();
    // The state's own view also contains roles, and comes before the messages.
    let (state, messages) = text.split_at(text.find("\"messages\":").expect("an export has messages"));
    let damaged = messages.replacen("\"role\":\"assistant\"", "\"role\":\"nobody\"", 1);
    std::fs::write(file, format!("{state}{damaged}")).unwrap();
    let noted = other.fail(&["session", "import", file, "--as", "agent/third"]);
    assert!(
        noted.contains("out.json") && noted.contains("damaged at messages[1]: unknown variant `nobody`"),
        "{noted}"
    );
    assert!(other.fail(&["session", "import", "missing.json"]).contains("`missing.json` cannot be read"));
    assert_eq!(other.sessions().await.len(), 2);

    let noted = other.fail(&["session", "delete", "agent/copy", "nothing", "--yes"]);
    assert!(noted.contains("there is no session `nothing`"), "{noted}");
    assert_eq!(other.sessions().await.len(), 2, "all of them or none");
    let deleted = other.run(&["session", "delete", "agent/copy", "agent/copy", "--yes"]);
    let (_, noted) = stdout_and_stderr(&deleted);
    assert!(deleted.status.success() && noted.contains("deleted agent/copy, and 1 memory from it"), "{noted}");
    assert_eq!(other.succeed(&["memory", "list"]), "", "its memories are deleted with it");
    assert_eq!(other.sessions().await.into_iter().map(|left| left.subject).collect::<Vec<_>>(), [session]);
}

#[tokio::test(flavor = "multi_thread")]
async fn d4_searches_lists_and_forgets_memories() {
    let person = CliUser::new();
    person.ask(None, "Who swims first?");
    person.ask(None, "Who barks?");
    let listed = person.succeed(&["memory", "list", "--json"]);
    let facts: Vec<Value> = listed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let texts: Vec<&str> = facts.iter().map(|fact| fact["text"].as_str().unwrap()).collect();
    assert_eq!(texts, ["Asked: Who barks?\nAnswered: The walrus.", "Asked: Who swims first?\nAnswered: The walrus."]);
    assert!(facts.iter().all(|fact| fact["user"] == "ada" && fact["kind"] == "final"), "{listed}");
    let id = facts[0]["id"].as_str().unwrap();
    let found = person.succeed(&["memory", "search", "barks", "--json"]);
    let found: Value = serde_json::from_str(&found).unwrap();
    assert_eq!(found["id"], id);
    assert!(person.succeed(&["memory", "list"]).contains("  Asked: Who barks?\n  Answered: The walrus."));
    let found = person.succeed(&["memory", "search", "barks"]);
    assert!(found.contains("Answered: The walrus.") && !found.contains("nearness"), "{found}");
    assert_eq!(person.succeed(&["memory", "search", "zebra"]), "");
    assert_eq!(person.succeed(&["memory", "list", "--user", "bob"]), "");

    let noted = person.fail(&["memory", "forget", id, "--user", "bob"]);
    assert!(noted.contains(" about `bob`"), "{noted}");
    person.succeed(&["memory", "forget", id]);
    assert!(person.fail(&["memory", "forget", id]).contains(id));
    assert_eq!(person.succeed(&["memory", "list", "--json"]).lines().count(), 1);

    // Forgetting is not deleting: sessions keep their messages, and a fork or an export contains no memory.
    let session = person.sessions().await.remove(0).subject;
    let whole = person.succeed(&["session", "export", &session]);
    let whole: Value = serde_json::from_str(&whole).unwrap();
    let members: Vec<&str> = whole.as_object().unwrap().keys().map(String::as_str).collect();
    let session_only = ["snapshot", "messages", "hidden", "calls", "events", "records", "texts", "media"];
    assert_eq!(members, [&["format", "version", "session"], &session_only[..]].concat());
    person.succeed(&["session", "fork", &session]);
    assert_eq!(person.succeed(&["memory", "list", "--json"]).lines().count(), 1);
}
