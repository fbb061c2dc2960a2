//! `session fork|undo|export|import|delete` and `memory search|list|forget` of the real binary (D4, D5). The tests
//! check the output and the errors of these commands, and run further turns in the sessions that they create.

use agent_store::{Options, SessionFilter, SessionIndex, SessionSummary, SqliteStore};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

/// The agent's name is the same in every folder, so that a session that is exported in one folder can continue in
/// another.
const AGENT: &str = "name = \"agent\"\nmodel = \"scripted:script.json\"\nplugin_directory = \"plugins\"\n";

/// A user who runs the binary in a folder with an agent. The agent's model has four scripted replies.
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
        let mut command = crate::support::agent_host();
        command.current_dir(self.folder.path()).args(arguments).env("AGENT_HOST_DATA", self.path("data"));
        command.env("USER", "ada").stdin(Stdio::null()).output().unwrap()
    }

    /// Runs a command that must succeed, and returns its stdout.
    fn succeed(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let (printed, stderr) = stdout_and_stderr(&output);
        assert!(output.status.success(), "{arguments:?}: {stderr}");
        printed.trim_end().to_owned()
    }

    /// Runs a command that must be refused, and returns its stderr.
    fn fail(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let (printed, stderr) = stdout_and_stderr(&output);
        assert_eq!((output.status.code(), printed.as_str()), (Some(2), ""), "{arguments:?}: {stderr}");
        stderr
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
    let user = CliUser::new();
    user.ask(None, "Who swims first?");
    let original = user.sessions().await.remove(0).subject;
    assert_eq!(user.ask(Some(&original), "Who swims next?"), "The seal.");
    let output_text = user.succeed(&["session", "show", &original]);
    assert!(
        output_text.contains("user 3\n") && output_text.contains("assistant 4\n"),
        "messages are numbered: {output_text}"
    );

    let fork = user.succeed(&["session", "fork", &original, "--at", "2"]);
    assert!(fork != original && fork.starts_with("agent/"), "{fork}");
    let output_text = user.succeed(&["session", "show", &fork]);
    assert!(output_text.contains("The walrus.") && !output_text.contains("The seal."), "{output_text}");
    let stderr = user.fail(&["session", "fork", &original, "--at", "9"]);
    assert!(
        stderr.contains(
            "message 9 is not in the session's view; the nearest message after which the session can be cut is 4"
        ),
        "{stderr}"
    );
    assert!(user.fail(&["session", "fork", "nothing"]).contains("there is no session `nothing`"));
    assert_eq!(user.ask(Some(&fork), "And who else?"), "The otter.", "a fork can continue");

    assert!(user.succeed(&["memory", "list"]).contains("Answered: The seal."));
    user.succeed(&["session", "undo", &original]);
    assert!(!user.succeed(&["memory", "list"]).contains("The seal."), "the memory of an undone turn is deleted");
    let output_text = user.succeed(&["session", "show", &original]);
    let (_, undone) = output_text.split_once("turn 2").expect("the undone turn is still stored");
    assert_eq!((output_text.matches("undone").count(), undone.matches("undone").count()), (2, 2), "{output_text}");
    assert_eq!(user.ask(Some(&original), "And who now?"), "The otter.");
    let exported = user.succeed(&["session", "export", &original]);
    let exported: Value = serde_json::from_str(&exported).unwrap();
    let visible = exported["snapshot"]["view"].as_array().unwrap().iter().map(|entry| entry["id"].as_u64().unwrap());
    assert_eq!(visible.collect::<Vec<_>>(), [1, 2, 5, 6], "an undone turn stays stored and is not in the view");
    let second_fork = user.succeed(&["session", "fork", &original]);
    for _ in 0..2 {
        user.succeed(&["session", "undo", &second_fork]);
    }
    assert!(user.fail(&["session", "undo", &second_fork]).contains("there is no turn to undo"));
}

/// I1: any part of a session's id that no other session has selects the session, also the end of the id. A part that several
/// sessions have, or that is too short, selects none.
#[tokio::test(flavor = "multi_thread")]
async fn i1_an_unambiguous_part_of_an_id_selects_a_session() {
    let user = CliUser::new();
    for prompt in ["First.", "Second."] {
        user.ask(None, prompt);
    }
    for session in user.sessions().await {
        let id = session.subject;
        let title = session.title.unwrap();
        for part in [&id[id.len() - 8..], &id[id.len() - 12..id.len() - 2]] {
            assert!(user.succeed(&["session", "show", part]).contains(&title), "{part} of {id}");
        }
        assert_eq!(user.ask(Some(&id[id.len() - 8..]), "Next."), "The seal.");
        assert!(user.fail(&["session", "show", &id[id.len() - 3..]]).contains("there is no session"), "too short");
    }
    assert!(user.fail(&["session", "delete", "--yes", "gent/"]).contains("2 sessions contain `gent/`"));
    assert_eq!(user.sessions().await.len(), 2);
}

/// Returns the arguments of an export command that may overwrite an existing file. The last argument is `--force`.
/// Without `--force`, the command may not overwrite a file.
#[cfg(unix)]
fn export_arguments<'l>(session: &'l str, name: &'l str) -> [&'l str; 6] {
    ["session", "export", session, "-o", name, "--force"]
}

/// Invariant 1: An export replaces an existing file only if the file is a regular file and the user adds the
/// option `--force`.
#[cfg(unix)]
#[tokio::test(flavor = "multi_thread")]
async fn d5_an_export_replaces_only_regular_files() {
    use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
    let user = CliUser::new();
    user.ask(None, "Who swims first?");
    let session = user.sessions().await.remove(0).subject;
    let export = |name| export_arguments(&session, name);

    // If the target is a named pipe, the export writes into the pipe and does not replace it.
    assert!(Command::new("mkfifo").arg(user.path("pipe")).status().unwrap().success());
    let pipe = user.path("pipe");
    let reader = std::thread::spawn(move || std::fs::read(pipe).unwrap());
    user.succeed(&export("pipe"));
    assert!(std::fs::symlink_metadata(user.path("pipe")).unwrap().file_type().is_fifo(), "the file is still a pipe");
    let read: Value = serde_json::from_slice(&reader.join().unwrap()).unwrap();
    assert_eq!(read["format"], "agent-host.session");

    // An export to a link replaces the content of the file to which the link points. A dangling link is refused.
    std::fs::write(user.path("real.json"), "old").unwrap();
    symlink("real.json", user.path("link.json")).unwrap();
    user.succeed(&export("link.json"));
    assert!(user.path("link.json").is_symlink());
    assert_eq!(document(&user.path("real.json")), read);
    let mode = std::fs::metadata(user.path("real.json")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "only the owner may read an exported conversation");
    symlink("nothing.json", user.path("dangling.json")).unwrap();
    for arguments in [&export("dangling.json")[..], &export("dangling.json")[..5]] {
        let stderr = user.fail(arguments);
        assert!(stderr.contains("`dangling.json` is a symbolic link to a file that does not exist"), "{stderr}");
    }
    assert!(user.path("dangling.json").is_symlink() && !user.path("nothing.json").exists());
    let stderr = user.fail(&export("plugins"));
    assert!(stderr.contains("`plugins` is a folder"), "{stderr}");
    let names = std::fs::read_dir(user.folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
    let partial_files: Vec<_> = names.filter(|name| name.to_string_lossy().contains("part")).collect();
    assert!(partial_files.is_empty(), "{partial_files:?}");
}

/// An import that reads an endless or invalid document stops after the first chunk and is refused.
#[cfg(unix)]
#[test]
fn d5_stops_reading_input_that_is_not_a_document() {
    let user = CliUser::new();
    assert!(Command::new("mkfifo").arg(user.path("pipe")).status().unwrap().success());
    for endless in [b"\0".as_slice(), b"a", b"{\"a\":"] {
        let pipe = user.path("pipe");
        let writer = std::thread::spawn(move || {
            use std::io::Write;
            let mut pipe = std::fs::File::options().write(true).open(pipe).unwrap();
            let piece = endless.repeat((1 << 16) / endless.len());
            // The writer can send far more bytes than a pipe can buffer, but far fewer than a document may have.
            let pieces = std::iter::repeat_n(&piece, 1 << 10);
            pieces.take_while(|piece| pipe.write_all(piece).is_ok()).count()
        });
        let stderr = user.fail(&["session", "import", "pipe"]);
        assert!(stderr.contains("`pipe`: this is not an exported session: "), "{stderr}");
        let pieces = writer.join().unwrap();
        assert!(pieces < 64, "{pieces} pieces were read");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn d5_exports_imports_and_deletes_a_session() {
    let (user, other) = (CliUser::new(), CliUser::new());
    user.ask(None, "Who swims first?");
    let session = user.sessions().await.remove(0).subject;
    user.succeed(&["session", "export", &session, "--output", "out.json"]);
    let written = document(&user.path("out.json"));
    assert_eq!((&written["format"], &written["version"]), (&json!("agent-host.session"), &json!(1)));
    let stderr = user.fail(&["session", "export", &session, "-o", "out.json"]);
    assert!(stderr.contains("`out.json` already exists: --force replaces it"), "{stderr}");
    user.succeed(&["session", "export", &session, "-o", "out.json", "--force"]);
    let stderr = user.fail(&["session", "export", &session, "-o", "nowhere/out.json"]);
    assert!(stderr.contains("nowhere/out.json") && stderr.contains("cannot be written"), "{stderr}");
    let files = std::fs::read_dir(user.folder.path()).unwrap().count();
    assert_eq!(files, 5, "no partial file is left next to plugins, agent.toml, script, data and document");

    let file = user.path("out.json");
    let file = file.to_str().unwrap();
    assert_eq!(other.succeed(&["session", "import", file]), session);
    let stderr = other.fail(&["session", "import", file]);
    assert!(stderr.contains(&format!("session `{session}` exists already: --as ID imports it")), "{stderr}");
    assert_eq!(other.succeed(&["session", "import", file, "--as", "agent/copy"]), "agent/copy");
    assert_eq!(other.ask(Some("agent/copy"), "Who next?"), "The seal.", "an imported session can continue");

    let text = std::fs::read_to_string(file).unwrap();
    // Only the part of the document after the start of `messages` is changed, because the stored state before it
    // contains the same role names.
    let (state, messages) = text.split_at(text.find("\"messages\":").expect("an export has messages"));
    let damaged = messages.replacen("\"role\":\"assistant\"", "\"role\":\"nobody\"", 1);
    std::fs::write(file, format!("{state}{damaged}")).unwrap();
    let stderr = other.fail(&["session", "import", file, "--as", "agent/third"]);
    assert!(
        stderr.contains("out.json") && stderr.contains("damaged at messages[1]: unknown variant `nobody`"),
        "{stderr}"
    );
    assert!(other.fail(&["session", "import", "missing.json"]).contains("`missing.json` cannot be read"));
    assert_eq!(other.sessions().await.len(), 2);

    let stderr = other.fail(&["session", "delete", "agent/copy", "nothing", "--yes"]);
    assert!(stderr.contains("there is no session `nothing`"), "{stderr}");
    assert_eq!(other.sessions().await.len(), 2, "if one session does not exist, none is deleted");
    let deleted = other.run(&["session", "delete", "agent/copy", "agent/copy", "--yes"]);
    let (_, stderr) = stdout_and_stderr(&deleted);
    assert!(deleted.status.success() && stderr.contains("deleted agent/copy, and 1 memory from it"), "{stderr}");
    assert_eq!(other.succeed(&["memory", "list"]), "", "the memories of a session are deleted with it");
    assert_eq!(other.sessions().await.into_iter().map(|session| session.subject).collect::<Vec<_>>(), [session]);
}

#[tokio::test(flavor = "multi_thread")]
async fn d4_searches_lists_and_forgets_memories() {
    let user = CliUser::new();
    user.ask(None, "Who swims first?");
    user.ask(None, "Who barks?");
    let listed = user.succeed(&["memory", "list", "--json"]);
    let facts: Vec<Value> = listed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let texts: Vec<&str> = facts.iter().map(|fact| fact["text"].as_str().unwrap()).collect();
    assert_eq!(texts, ["Asked: Who barks?\nAnswered: The walrus.", "Asked: Who swims first?\nAnswered: The walrus."]);
    assert!(facts.iter().all(|fact| fact["user"] == "ada" && fact["kind"] == "final"), "{listed}");
    let id = facts[0]["id"].as_str().unwrap();
    let found = user.succeed(&["memory", "search", "barks", "--json"]);
    let found: Value = serde_json::from_str(&found).unwrap();
    assert_eq!(found["id"], id);
    assert!(user.succeed(&["memory", "list"]).contains("  Asked: Who barks?\n  Answered: The walrus."));
    let found = user.succeed(&["memory", "search", "barks"]);
    assert!(found.contains("Answered: The walrus.") && !found.contains("nearness"), "{found}");
    assert_eq!(user.succeed(&["memory", "search", "zebra"]), "");
    assert_eq!(user.succeed(&["memory", "list", "--user", "bob"]), "");

    let stderr = user.fail(&["memory", "forget", id, "--user", "bob"]);
    assert!(stderr.contains(" about `bob`"), "{stderr}");
    user.succeed(&["memory", "forget", id]);
    assert!(user.fail(&["memory", "forget", id]).contains(id));
    assert_eq!(user.succeed(&["memory", "list", "--json"]).lines().count(), 1);

    // Forgetting a memory does not delete messages. Forks and exports do not contain memories.
    let session = user.sessions().await.remove(0).subject;
    let exported = user.succeed(&["session", "export", &session]);
    let exported: Value = serde_json::from_str(&exported).unwrap();
    let members: Vec<&str> = exported.as_object().unwrap().keys().map(String::as_str).collect();
    let session_only = ["snapshot", "messages", "hidden", "calls", "events", "records", "texts", "media"];
    assert_eq!(members, [&["format", "version", "session"], &session_only[..]].concat());
    user.succeed(&["session", "fork", &session]);
    assert_eq!(user.succeed(&["memory", "list", "--json"]).lines().count(), 1);
}
