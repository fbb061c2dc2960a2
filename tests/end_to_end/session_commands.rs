//! `session fork|undo|export|import|delete` and `memory search|list|forget` of the real binary (D4, D5): what they print,
//! what they refuse, and that a turn goes on with what they made.

use agent_store::{Options, SessionFilter, SessionLog, SessionSummary, SqliteStore};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

/// Of one name in every folder, so that each goes on with what another has exported.
const AGENT: &str = "name = \"agent\"\nmodel = \"scripted:script.json\"\nplugin_directory = \"plugins\"\n";

/// Somebody with a folder, whose model has four replies.
struct Person {
    folder: TempDir,
}

impl Person {
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

    /// What it prints when it does what it says.
    fn says(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let (printed, noted) = printed(&output);
        assert!(output.status.success(), "{arguments:?}: {noted}");
        printed.trim_end().to_owned()
    }

    /// What it says when nothing was begun.
    fn refuses(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let (printed, noted) = printed(&output);
        assert_eq!((output.status.code(), printed.as_str()), (Some(2), ""), "{arguments:?}: {noted}");
        noted
    }

    fn asks(&self, session: Option<&str>, prompt: &str) -> String {
        let mut arguments = vec!["--agent", "agent.toml"];
        arguments.extend(session.iter().flat_map(|session| ["--session", *session]));
        arguments.push(prompt);
        self.says(&arguments)
    }

    async fn sessions(&self) -> Vec<SessionSummary> {
        let store = SqliteStore::open(self.path("data/agent-host.db"), Options::default()).unwrap();
        store.sessions(SessionFilter::default(), 99).await.unwrap()
    }
}

fn printed(output: &Output) -> (String, String) {
    (String::from_utf8(output.stdout.clone()).unwrap(), String::from_utf8(output.stderr.clone()).unwrap())
}

fn document(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn d5_a_session_is_forked_and_undone() {
    let person = Person::new();
    person.asks(None, "Who swims first?");
    let original = person.sessions().await.remove(0).subject;
    assert_eq!(person.asks(Some(&original), "Who swims next?"), "The seal.");
    let shown = person.says(&["session", "show", &original]);
    assert!(shown.contains("user 3\n") && shown.contains("assistant 4\n"), "messages are numbered: {shown}");

    let fork = person.says(&["session", "fork", &original, "--at", "2"]);
    assert!(fork != original && fork.starts_with("agent/"), "{fork}");
    let shown = person.says(&["session", "show", &fork]);
    assert!(shown.contains("The walrus.") && !shown.contains("The seal."), "{shown}");
    let noted = person.refuses(&["session", "fork", &original, "--at", "9"]);
    assert!(
        noted.contains("message 9 is not in the session's view; the nearest that it can be cut behind is 4"),
        "{noted}"
    );
    assert!(person.refuses(&["session", "fork", "nothing"]).contains("there is no session `nothing`"));
    assert_eq!(person.asks(Some(&fork), "And who else?"), "The otter.", "a fork goes on");

    assert!(person.says(&["memory", "list"]).contains("Answered: The seal."));
    person.says(&["session", "undo", &original]);
    assert!(!person.says(&["memory", "list"]).contains("The seal."), "what is taken back is not remembered");
    let shown = person.says(&["session", "show", &original]);
    let (_, undone) = shown.split_once("turn 2").expect("it stays stored");
    assert_eq!((shown.matches("taken back").count(), undone.matches("taken back").count()), (2, 2), "{shown}");
    assert_eq!(person.asks(Some(&original), "And who now?"), "The otter.");
    let whole = person.says(&["session", "export", &original]);
    let whole: Value = serde_json::from_str(&whole).unwrap();
    let visible = whole["snapshot"]["view"].as_array().unwrap().iter().map(|entry| entry["id"].as_u64().unwrap());
    assert_eq!(visible.collect::<Vec<_>>(), [1, 2, 5, 6], "what was undone stays stored and out of the view");
    let again = person.says(&["session", "fork", &original]);
    for _ in 0..2 {
        person.says(&["session", "undo", &again]);
    }
    assert!(person.refuses(&["session", "undo", &again]).contains("there is no turn to undo"));
}

/// Over whatever is there; without its last word, only where nothing is.
#[cfg(unix)]
fn export_line<'l>(session: &'l str, name: &'l str) -> [&'l str; 6] {
    ["session", "export", session, "-o", name, "--force"]
}

/// Invariant 1: an export replaces regular files alone, and only when it is told to.
#[cfg(unix)]
#[tokio::test(flavor = "multi_thread")]
async fn d5_an_export_replaces_nothing_but_files() {
    use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
    let person = Person::new();
    person.asks(None, "Who swims first?");
    let session = person.sessions().await.remove(0).subject;
    let export = |name| export_line(&session, name);

    // A pipe is written through, and stays one.
    assert!(Command::new("mkfifo").arg(person.path("pipe")).status().unwrap().success());
    let pipe = person.path("pipe");
    let reader = std::thread::spawn(move || std::fs::read(pipe).unwrap());
    person.says(&export("pipe"));
    assert!(std::fs::symlink_metadata(person.path("pipe")).unwrap().file_type().is_fifo(), "it is still a pipe");
    let read: Value = serde_json::from_slice(&reader.join().unwrap()).unwrap();
    assert_eq!(read["format"], "agent-host.session");

    // Through a link the file that it leads to is replaced; one that leads nowhere is left alone.
    std::fs::write(person.path("real.json"), "old").unwrap();
    symlink("real.json", person.path("link.json")).unwrap();
    person.says(&export("link.json"));
    assert!(person.path("link.json").is_symlink());
    assert_eq!(document(&person.path("real.json")), read);
    let mode = std::fs::metadata(person.path("real.json")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "a whole conversation is its owner's alone");
    symlink("nothing.json", person.path("dangling.json")).unwrap();
    for words in [&export("dangling.json")[..], &export("dangling.json")[..5]] {
        let noted = person.refuses(words);
        assert!(noted.contains("`dangling.json` is a symbolic link to a file that is not there"), "{noted}");
    }
    assert!(person.path("dangling.json").is_symlink() && !person.path("nothing.json").exists());
    let noted = person.refuses(&export("plugins"));
    assert!(noted.contains("`plugins` is a folder"), "{noted}");
    let left = std::fs::read_dir(person.folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
    let parts: Vec<_> = left.filter(|name| name.to_string_lossy().contains("part")).collect();
    assert!(parts.is_empty(), "{parts:?}");
}

/// What has no end, or is something else, is refused at its first piece.
#[cfg(unix)]
#[test]
fn d5_what_is_no_document_is_not_read_to_its_end() {
    let person = Person::new();
    assert!(Command::new("mkfifo").arg(person.path("pipe")).status().unwrap().success());
    for endless in [b"\0".as_slice(), b"a", b"{\"a\":"] {
        let pipe = person.path("pipe");
        let writer = std::thread::spawn(move || {
            use std::io::Write;
            let mut pipe = std::fs::File::options().write(true).open(pipe).unwrap();
            let piece = endless.repeat((1 << 16) / endless.len());
            // Far more than a pipe holds, and far less than the most that a document may have.
            let pieces = std::iter::repeat_n(&piece, 1 << 10);
            pieces.take_while(|piece| pipe.write_all(piece).is_ok()).count()
        });
        let noted = person.refuses(&["session", "import", "pipe"]);
        assert!(noted.contains("`pipe`: this is no exported session: "), "{noted}");
        let pieces = writer.join().unwrap();
        assert!(pieces < 64, "{pieces} pieces were read");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn d5_a_session_is_exported_imported_and_deleted() {
    let (person, other) = (Person::new(), Person::new());
    person.asks(None, "Who swims first?");
    let session = person.sessions().await.remove(0).subject;
    person.says(&["session", "export", &session, "--output", "out.json"]);
    let written = document(&person.path("out.json"));
    assert_eq!((&written["format"], &written["version"]), (&json!("agent-host.session"), &json!(1)));
    let noted = person.refuses(&["session", "export", &session, "-o", "out.json"]);
    assert!(noted.contains("`out.json` is there already: --force replaces it"), "{noted}");
    person.says(&["session", "export", &session, "-o", "out.json", "--force"]);
    let noted = person.refuses(&["session", "export", &session, "-o", "nowhere/out.json"]);
    assert!(noted.contains("nowhere/out.json") && noted.contains("cannot be written"), "{noted}");
    let files = std::fs::read_dir(person.folder.path()).unwrap().count();
    assert_eq!(files, 5, "nothing half written is left beside plugins, agent.toml, script, data and document");

    let file = person.path("out.json");
    let file = file.to_str().unwrap();
    assert_eq!(other.says(&["session", "import", file]), session);
    let noted = other.refuses(&["session", "import", file]);
    assert!(noted.contains(&format!("session `{session}` exists already: --as ID imports it")), "{noted}");
    assert_eq!(other.says(&["session", "import", file, "--as", "agent/copy"]), "agent/copy");
    assert_eq!(other.asks(Some("agent/copy"), "Who next?"), "The seal.", "an imported session goes on");

    let text = std::fs::read_to_string(file).unwrap();
    // The state's own view says who spoke, too, and stands before the messages.
    let (state, messages) = text.split_at(text.find("\"messages\":").expect("an export has messages"));
    let damaged = messages.replacen("\"role\":\"assistant\"", "\"role\":\"nobody\"", 1);
    std::fs::write(file, format!("{state}{damaged}")).unwrap();
    let noted = other.refuses(&["session", "import", file, "--as", "agent/third"]);
    assert!(
        noted.contains("out.json") && noted.contains("damaged at messages[1]: unknown variant `nobody`"),
        "{noted}"
    );
    assert!(other.refuses(&["session", "import", "missing.json"]).contains("`missing.json` cannot be read"));
    assert_eq!(other.sessions().await.len(), 2);

    let noted = other.refuses(&["session", "delete", "agent/copy", "nothing", "--yes"]);
    assert!(noted.contains("there is no session `nothing`"), "{noted}");
    assert_eq!(other.sessions().await.len(), 2, "all of them or none");
    let deleted = other.run(&["session", "delete", "agent/copy", "agent/copy", "--yes"]);
    let (_, noted) = printed(&deleted);
    assert!(deleted.status.success() && noted.contains("deleted agent/copy, and 1 memory of it"), "{noted}");
    assert_eq!(other.says(&["memory", "list"]), "", "what was remembered of it is gone with it");
    assert_eq!(other.sessions().await.into_iter().map(|left| left.subject).collect::<Vec<_>>(), [session]);
}

#[tokio::test(flavor = "multi_thread")]
async fn d4_what_is_remembered_is_searched_listed_and_forgotten() {
    let person = Person::new();
    person.asks(None, "Who swims first?");
    person.asks(None, "Who barks?");
    let listed = person.says(&["memory", "list", "--json"]);
    let facts: Vec<Value> = listed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let texts: Vec<&str> = facts.iter().map(|fact| fact["text"].as_str().unwrap()).collect();
    assert_eq!(texts, ["Asked: Who barks?\nAnswered: The walrus.", "Asked: Who swims first?\nAnswered: The walrus."]);
    assert!(facts.iter().all(|fact| fact["user"] == "ada" && fact["kind"] == "final"), "{listed}");
    let id = facts[0]["id"].as_str().unwrap();
    let found = person.says(&["memory", "search", "barks", "--json"]);
    let found: Value = serde_json::from_str(&found).unwrap();
    assert_eq!(found["id"], id);
    assert!(person.says(&["memory", "list"]).contains("  Asked: Who barks?\n  Answered: The walrus."));
    let found = person.says(&["memory", "search", "barks"]);
    assert!(found.contains("Answered: The walrus.") && !found.contains("nearness"), "{found}");
    assert_eq!(person.says(&["memory", "search", "zebra"]), "");
    assert_eq!(person.says(&["memory", "list", "--user", "bob"]), "");

    let noted = person.refuses(&["memory", "forget", id, "--user", "bob"]);
    assert!(noted.contains("nothing is remembered of `bob`"), "{noted}");
    person.says(&["memory", "forget", id]);
    assert!(person.refuses(&["memory", "forget", id]).contains(id));
    assert_eq!(person.says(&["memory", "list", "--json"]).lines().count(), 1);

    // Forgetting is not deleting: sessions keep what was said, and a fork or an export takes no memory along.
    let session = person.sessions().await.remove(0).subject;
    let whole = person.says(&["session", "export", &session]);
    let whole: Value = serde_json::from_str(&whole).unwrap();
    let members: Vec<&str> = whole.as_object().unwrap().keys().map(String::as_str).collect();
    let session_only = ["snapshot", "messages", "hidden", "calls", "events", "records", "texts", "media"];
    assert_eq!(members, [&["format", "version", "session"], &session_only[..]].concat());
    person.says(&["session", "fork", &session]);
    assert_eq!(person.says(&["memory", "list", "--json"]).lines().count(), 1);
}
