//! `agent-host replay` (S6): the same plugins do the same; another version is caught at the first thing that it does otherwise.

use crate::support::{components, repository, scratch};
use agent_plugins::{Manifest, with_manifest};
use agent_store::{Options, SessionFilter, SessionLog, SqliteStore};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread::JoinHandle;
use tempfile::TempDir;

/// What the variable `INTRUDER_TOKEN` holds.
pub(crate) const TOKEN: &str = "a-secret-that-no-record-holds";

/// A folder with plugins and sessions.
pub(crate) struct Desk(TempDir);

impl Desk {
    pub(crate) fn with(plugins: &[&str]) -> Self {
        let desk = Self(tempfile::tempdir().unwrap());
        for folder in ["plugins", "tmp"] {
            std::fs::create_dir(desk.path(folder)).unwrap();
        }
        for plugin in plugins {
            let file = format!("{plugin}.wasm");
            std::fs::copy(components().join(&file), desk.path("plugins").join(&file)).unwrap();
        }
        desk
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_agent-host"));
        command.current_dir(self.0.path()).args(arguments).arg("--data").arg(self.path("data"));
        command.env("TMPDIR", self.path("tmp")).env("INTRUDER_TOKEN", TOKEN);
        command.stdin(Stdio::null()).output().unwrap()
    }

    /// One turn with these replies of the model, and more options.
    pub(crate) fn turn(&self, replies: &[Value], options: &[&str]) -> Option<i32> {
        std::fs::write(self.path("replies.json"), json!({ "replies": replies }).to_string()).unwrap();
        let agent = [&["--plugins", "plugins", "--model", "scripted:replies.json"], options, &["Go on."]].concat();
        self.run(&agent).status.code()
    }

    pub(crate) fn replay(&self, options: &[&str]) -> (Option<i32>, String) {
        let session = self.session();
        self.replay_of(&session, options)
    }

    pub(crate) fn replay_of(&self, session: &str, options: &[&str]) -> (Option<i32>, String) {
        let output = self.run(&[&["replay", session], options].concat());
        let said = String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
        (output.status.code(), said)
    }

    /// The latest.
    pub(crate) fn session(&self) -> String {
        self.sessions().0
    }

    /// The latest, and how often all were changed.
    fn sessions(&self) -> (String, Vec<(u64, String)>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let store = SqliteStore::open(self.path("data/agent-host.db"), Options::default()).unwrap();
            let all = store.sessions(SessionFilter::default(), 100).await.unwrap();
            (all[0].subject.clone(), all.iter().map(|one| (one.revision, one.updated.clone())).collect())
        })
    }

    /// A component under another name: another version of that plugin.
    fn as_version(&self, component: &str, of: &str) -> String {
        let text = format!("name = \"{of}\"\nversion = \"9.9.9\"\ndescription = \"Another one.\"\n");
        let manifest = Manifest::from_toml(&text, Path::new("plugin.toml")).unwrap();
        let bytes = std::fs::read(components().join(format!("{component}.wasm"))).unwrap();
        let path = self.path(&format!("new-{of}.wasm"));
        std::fs::write(&path, with_manifest(&bytes, &manifest).unwrap()).unwrap();
        format!("{of}={}", path.display())
    }
}

pub(crate) fn calling(name: &str, arguments: Value) -> Value {
    json!({"calls": [{"name": name, "arguments": arguments}]})
}

pub(crate) fn saying(text: &str) -> Value {
    json!({ "text": text })
}

/// README's tool, built with what its function does and the manifest asks for.
pub(crate) fn shout(does: &str, describes: &str, asks: &str) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let readme = std::fs::read_to_string(repository().join("README.md")).unwrap();
    let block = |fence: &str, holds: &str| {
        let mut blocks = readme.split(fence).skip(1).map(|rest| rest.split("```").next().unwrap().to_owned());
        blocks.find(|block| block.contains(holds)).unwrap()
    };
    std::fs::create_dir(folder.path().join("src")).unwrap();
    let sdk = repository().join("sdk");
    let manifest = block("```toml\n", "crate-type").replace("../../sdk", sdk.to_str().unwrap()) + "\n[workspace]\n";
    std::fs::write(folder.path().join("Cargo.toml"), manifest).unwrap();
    std::fs::copy(repository().join("Cargo.lock"), folder.path().join("Cargo.lock")).unwrap();
    std::fs::write(folder.path().join("plugin.toml"), block("```toml\n", "Text in capitals") + asks).unwrap();
    let source = block("```rust\n", "text.shout")
        .replace("to_uppercase", does)
        .replace("Returns the text in capitals.", describes);
    std::fs::write(folder.path().join("src/lib.rs"), source).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_agent-host"));
    command.args(["plugin", "build"]).arg(folder.path()).env("CARGO_TARGET_DIR", scratch().join("scenario-target"));
    let built = command.output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    std::fs::read(folder.path().join("shout.wasm")).unwrap()
}

/// S6: with the same plugin nothing differs; with one that answers otherwise the first difference and 1; other words of a tool
/// are another prompt. A version that came in the middle is asked for what it did itself.
#[test]
fn another_version_is_caught_at_its_first_difference() {
    let desk = Desk::with(&[]);
    let says = "Returns the text in capitals.";
    std::fs::write(desk.path("plugins/shout.wasm"), shout("to_uppercase", says, "")).unwrap();
    let [old, new, told] = ["old.wasm", "new.wasm", "told.wasm"].map(|name| desk.path(name));
    std::fs::copy(desk.path("plugins/shout.wasm"), &old).unwrap();
    std::fs::write(&new, shout("to_lowercase", says, "")).unwrap();
    std::fs::write(&told, shout("to_uppercase", "Shouts.", "")).unwrap();
    let replies = [
        calling("text.shout", json!({"text": "One"})),
        saying("1"),
        calling("text.shout", json!({"text": "Two"})),
        saying("2"),
    ];
    assert_eq!(desk.turn(&replies, &[]), Some(0));
    std::fs::copy(&new, desk.path("plugins/shout.wasm")).unwrap();
    assert_eq!(desk.turn(&replies, &["--continue"]), Some(0));
    let before = desk.sessions();
    let (code, said) = desk.replay(&[]);
    assert_eq!(code, Some(0), "each version does what it did: {said}");
    assert!(said.contains("2 deeds of its plugins"), "{said}");
    let with = |file: &Path| format!("shout={}", file.display());
    let (code, said) = desk.replay(&["--with", &with(&new)]);
    assert_eq!(code, Some(1));
    assert!(
        said.contains("turn 1, step 1: text.shout {\"text\":\"One\"}") && said.contains("  -ONE\n  +one\n"),
        "{said}"
    );
    assert!(!said.contains("Two"), "only the first: {said}");
    let (code, said) = desk.replay(&["--with", &with(&old), "--all"]);
    assert_eq!(code, Some(1));
    assert!(
        said.contains("turn 2, step 1") && said.contains("  -two\n  +TWO\n") && said.contains("1 deed came out"),
        "{said}"
    );
    assert_eq!(desk.replay(&["--with", &with(&new), "--turn", "2"]).0, Some(0));
    let (code, said) = desk.replay(&["--with", &with(&told), "--turn", "1"]);
    assert_eq!(code, Some(1));
    assert!(said.contains("turn 1: the prompt, in what it says of the tools of shout"), "{said}");
    assert!(
        said.contains("-  \"description\": \"Returns the text in capitals.\"")
            && said.contains("+  \"description\": \"Shouts.\""),
        "{said}"
    );
    assert_eq!(desk.sessions(), before, "nothing was written");
    // The same of a document, on a machine that has never seen the plugin.
    let session = desk.session();
    assert!(desk.run(&["session", "export", &session, "-o", "one.json"]).status.success());
    let elsewhere = Desk::with(&[]);
    std::fs::copy(desk.path("one.json"), elsewhere.path("one.json")).unwrap();
    let (code, said) = elsewhere.replay_of("one.json", &["--with", &with(&new), "--json"]);
    assert_eq!(code, Some(1), "{said}");
    let document: Value = serde_json::from_str(said.lines().next().unwrap()).unwrap();
    assert_eq!(document["differences"][0]["place"], "turn 1, step 1: text.shout {\"text\":\"One\"}");
    assert!(
        document["not_done_again"][0].as_str().unwrap().contains("in what it says of the tools of shout"),
        "{said}"
    );
    assert_eq!(elsewhere.replay_of("one.json", &["--with", &with(&new), "--turn", "2"]).0, Some(0));
    // Without the version that did it nobody knows.
    let (code, said) = elsewhere.replay_of("one.json", &[]);
    assert!(code == Some(2) && said.contains("not done again"), "{said}");
    let twice = elsewhere.replay_of("one.json", &["--with", &with(&new), "--with", &with(&new)]);
    assert!(twice.0 == Some(2) && twice.1.contains("named twice"), "{}", twice.1);
}

/// An agent that keeps nothing of what its plugins are answered.
const UNRECORDED: &str = "plugin_directory = \"plugins\"\nmodel = \"scripted:replies.json\"\n\
                          [limits]\nrecorded_kib = 0\n[plugins.text.grants]\nread = [\".\"]\n";

/// S6: an effect that nobody recorded is denied and said; what is granted for the replay is there.
#[test]
fn an_unrecorded_effect_is_denied_and_said() {
    let desk = Desk::with(&["text", "summarize"]);
    std::fs::write(desk.path("a.md"), "one two\n").unwrap();
    std::fs::write(desk.path("agent.toml"), UNRECORDED).unwrap();
    let replies = json!({"replies": [calling("text.count_file", json!({"path": "a.md"})), saying("1")]});
    std::fs::write(desk.path("replies.json"), replies.to_string()).unwrap();
    assert_eq!(desk.run(&["--agent", "agent.toml", "Count."]).status.code(), Some(0));
    let (code, said) = desk.replay(&[]);
    assert_eq!(code, Some(1));
    assert!(said.contains("denied reading files: it is not recorded"), "{said}");
    assert_eq!(desk.replay(&["--grant", "text:read=."]).0, Some(0));
    let (code, said) = desk.replay(&["--grant", "text:write=."]);
    assert_eq!(code, Some(2));
    assert!(said.contains("a replay has no effects"), "{said}");
    // What the model answered the plugin is recorded, and given again to the same question.
    let script = json!({"replies": [calling("summarize.text", json!({"text": "Long."})), saying("1")], "answers": [saying("Short.")]});
    std::fs::write(desk.path("s.json"), script.to_string()).unwrap();
    let options =
        ["--plugins", "plugins", "--model", "scripted:s.json", "--grant", "summarize:model_tokens=5000", "Sum up."];
    assert_eq!(desk.run(&options).status.code(), Some(0));
    let (code, said) = desk.replay(&[]);
    assert_eq!(code, Some(0), "{said}");
}

/// S6: what the host answered a plugin then, it answers again: pages of servers that are gone, values as the call found them,
/// time and chance. Nothing of it happens once more, and what is not recorded is denied.
#[test]
fn what_the_host_answered_is_answered_again() {
    let desk = Desk::with(&["web", "notes", "probe", "intruder"]);
    let (url, served) = serve_once("A page of its time.");
    let note = |text: &str| calling("notes.add", json!({ "text": text }));
    let fetch = || calling("web.fetch", json!({ "url": url }));
    let replies = [
        note("one"),
        note("two"),
        fetch(),
        calling("notes.list", json!({})),
        calling("intruder.chance", json!({})),
        calling("probe.config", json!({"name": "nothing"})),
        saying("Done."),
    ];
    let pages = format!("web:http=private GET {url}");
    let grants = ["--grant", "notes:key_value_mib=1", "--grant", &pages];
    assert_eq!(desk.turn(&replies, &grants), Some(0));
    assert!(served.is_finished(), "the page was fetched");
    let shown = String::from_utf8(desk.run(&["session", "show", &desk.session()]).stdout).unwrap();
    assert!(shown.contains("A page of its time.") && shown.contains("no configuration key"), "{shown}");
    let (code, said) = desk.replay(&[]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("6 deeds of its plugins"), "{said}");
    // A fork has the same calls with what they were answered, and is another session.
    let forked = String::from_utf8(desk.run(&["session", "fork", &desk.session()]).stdout).unwrap();
    let again = String::from_utf8(desk.run(&["session", "fork", forked.trim()]).stdout).unwrap();
    for forked in [forked.trim(), again.trim()] {
        let (code, said) = desk.replay_of(forked, &["--all"]);
        assert!(code == Some(0) && said.contains("6 deeds of its plugins"), "{said}");
        assert!(desk.run(&["session", "delete", forked, "--yes"]).status.success());
    }
    // Replayed twice, nothing was written: the third note is number 3.
    assert_eq!(desk.replay(&[]).0, Some(0));
    assert_eq!(desk.turn(&[note("three"), saying("Kept.")], &grants), Some(0));
    let shown = String::from_utf8(desk.run(&["session", "show", &desk.session()]).stdout).unwrap();
    assert!(shown.contains("\"number\":3") || shown.contains("\"number\": 3"), "{shown}");
    // The same of a document, on a machine that has seen neither the page nor the notes.
    let session = desk.session();
    assert!(desk.run(&["session", "export", &session, "-o", "one.json"]).status.success());
    let elsewhere = Desk::with(&[]);
    std::fs::copy(desk.path("one.json"), elsewhere.path("one.json")).unwrap();
    let with = format!("notes={}", desk.path("plugins/notes.wasm").display());
    let (code, said) = elsewhere.replay_of("one.json", &["--with", &with]);
    assert_eq!(code, Some(0), "{said}");
}

/// S6, L10: what a plugin asks of a service is compared whole; a session of an older host knows only its type.
#[test]
fn a_service_is_asked_for_the_same() {
    let desk = Desk::with(&["probe"]);
    let replies = [calling("probe.pending", json!({"text": "five"})), saying("Done.")];
    let granted = ["--grant", "probe:events=com.example.probe.v1"];
    assert_eq!(desk.turn(&replies, &granted), Some(3), "it waits");
    assert_eq!(desk.replay(&[]).0, Some(0));
    assert!(desk.run(&["session", "export", &desk.session(), "-o", "one.json"]).status.success());
    let document: Value = serde_json::from_slice(&std::fs::read(desk.path("one.json")).unwrap()).unwrap();
    let with_records = |change: &dyn Fn(&mut Vec<Value>)| {
        let mut document = document.clone();
        change(document["records"].as_array_mut().unwrap());
        std::fs::write(desk.path("changed.json"), document.to_string()).unwrap();
        desk.replay_of("changed.json", &[])
    };
    let is_request = |record: &Value| record["kind"] == "service_request";
    let (code, said) = with_records(&|records| {
        let record = records.iter_mut().find(|record| is_request(record)).unwrap();
        record["body"]["request"]["data"] = json!({"text": "five thousand"});
    });
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("-    \"text\": \"five thousand\"") && said.contains("+    \"text\": \"five\""), "{said}");
    let (code, said) = with_records(&|records| records.retain(|record| !is_request(record)));
    assert_eq!(code, Some(0), "{said}");
}

/// S6: where nothing is recorded, nothing is guessed.
#[test]
fn what_is_not_recorded_is_denied() {
    let desk = Desk::with(&["web", "notes", "probe"]);
    let (url, _served) = serve_once("A page.");
    let agent = format!(
        "plugin_directory = \"plugins\"\nmodel = \"scripted:replies.json\"\n[limits]\nrecorded_kib = 0\n\
         [plugins.web.grants]\nhttp = [\"private GET {url}\"]\n[plugins.notes.grants]\nkey_value_mib = 1\n\
         [plugins.probe.grants]\nconfig = {{ probe = \"fast\" }}\n"
    );
    std::fs::write(desk.path("agent.toml"), agent).unwrap();
    let replies = json!({"replies": [
        calling("web.fetch", json!({"url": url})), calling("notes.add", json!({"text": "a"})), calling("probe.config", json!({"name": "probe"})), saying("Done.")]});
    std::fs::write(desk.path("replies.json"), replies.to_string()).unwrap();
    assert_eq!(desk.run(&["--agent", "agent.toml", "Go on."]).status.code(), Some(0));
    let (code, said) = desk.replay(&["--all"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("denied the request GET http://127.0.0.1:") && said.contains("denied looking at"), "{said}");
    // Values are nobody's record; the agent's file has them.
    let probe = format!("probe={}", desk.path("plugins/probe.wasm").display());
    let (code, said) = desk.replay(&["--with", &probe]);
    assert!(code == Some(1) && said.contains("denied the configuration value \"probe\""), "{said}");
    // Secrets are needed by nobody where nothing is sent.
    let secret = "[plugins.web.secrets.token]\nenv = \"NOT_HERE_9\"\nhosts = [\"https://a.example\"]\n";
    let file = std::fs::read_to_string(desk.path("agent.toml")).unwrap() + secret;
    std::fs::write(desk.path("agent.toml"), file).unwrap();
    let (code, said) = desk.replay(&["--with", &probe, "--agent", "agent.toml"]);
    assert_eq!(code, Some(0), "{said}");
}

/// S6, L2: a context builder is asked again with all that it was asked with, and its steps with what it left for them.
#[test]
fn context_builders_are_asked_again() {
    let desk = Desk::with(&["stateful-builder", "text"]);
    let file =
        "plugin_directory = \"plugins\"\nmodel = \"scripted:replies.json\"\ncontext_builder = \"stateful-builder\"\n";
    std::fs::write(desk.path("agent.toml"), file).unwrap();
    let replies =
        json!({"replies": [calling("text.count", json!({"text": "a b"})), saying("1"), saying("2"), saying("3")]});
    std::fs::write(desk.path("replies.json"), replies.to_string()).unwrap();
    for more in [&["One."][..], &["--continue", "config nothing"], &["--continue", "Three."]] {
        assert_eq!(desk.run(&[&["--agent", "agent.toml"], more].concat()).status.code(), Some(0), "{more:?}");
    }
    let (code, said) = desk.replay(&[]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("8 deeds of its plugins"), "one call, three turns, four steps: {said}");
    let with = desk.as_version("project-context", "stateful-builder");
    let (code, said) = desk.replay(&["--with", &with]);
    assert_eq!(code, Some(1));
    assert!(said.contains("turn 1, step 0: the turn's context") && said.contains("-"), "{said}");
}

/// Serves this text to whoever asks, until one has; then nobody listens any more.
fn serve_once(text: &'static str) -> (String, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/page", listener.local_addr().unwrap());
    let serving = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = Vec::new();
        let mut byte = [0];
        while !request.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap() == 1 {
            request.push(byte[0]);
        }
        let head = format!("HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: {}\r\n\r\n", text.len());
        stream.write_all((head + text).as_bytes()).unwrap();
    });
    (url, serving)
}

/// S6: turns that wait, that were taken back and that were forked; calls that never ran; and where there is nothing.
#[test]
fn open_undone_and_forked_turns_are_done_again() {
    let desk = Desk::with(&["text", "files"]);
    let count = || calling("text.count", json!({"text": "one two"}));
    let both = json!({"calls": [
        {"name": "text.count", "arguments": {"text": "a"}}, {"name": "files.write", "arguments": {"path": "x", "text": "y"}}]});
    std::fs::write(
        desk.path("agent.toml"),
        "plugin_directory = \"plugins\"\nmodel = \"scripted:r.json\"\n[approval.tools]\n\"files.write\" = \"ask\"\n",
    )
    .unwrap();
    std::fs::write(
        desk.path("r.json"),
        json!({"replies": [count(), saying("1"), count(), saying("2"), both]}).to_string(),
    )
    .unwrap();
    let agent = |more: &[&str]| desk.run(&[&["--agent", "agent.toml"], more].concat()).status.code();
    assert_eq!(agent(&["One."]), Some(0));
    assert_eq!(agent(&["--continue", "Two."]), Some(0));
    let session = desk.session();
    assert!(desk.run(&["session", "undo", &session]).status.success());
    let (code, said) = desk.replay(&[]);
    assert_eq!((code, said.contains("2 deeds of its plugins")), (Some(0), true), "{said}");
    let forked = desk.run(&["session", "fork", &session]);
    let forked = String::from_utf8(forked.stdout).unwrap().trim().to_owned();
    let (code, said) = desk.replay_of(&forked, &[]);
    assert_eq!((code, said.contains("1 deed of its plugins")), (Some(0), true), "{said}");
    assert_eq!(agent(&["--session", &session, "Three."]), Some(3), "it waits");
    let (code, said) = desk.replay_of(&session, &[]);
    assert_eq!((code, said.contains("3 deeds of its plugins")), (Some(0), true), "{said}");
    let files = format!("files={}", desk.path("plugins/files.wasm").display());
    let (code, said) = desk.replay_of(&session, &["--with", &files]);
    assert_eq!(code, Some(2));
    assert!(said.contains("there is nothing in ") && said.contains("`files` did"), "{said}");
    let (code, said) =
        desk.replay_of(&session, &["--with", &format!("text={}", desk.path("plugins/files.wasm").display())]);
    assert_eq!(code, Some(2));
    assert!(said.contains("this is the plugin `files`"), "{said}");
    assert_eq!(desk.replay_of("nobody", &[]).0, Some(2));
}

/// S6, L12, P4: verdicts and decisions on media are asked for again, with all that they were asked with.
#[test]
fn verdicts_and_decisions_are_asked_for_again() {
    let desk = Desk::with(&["strict-json", "mask-openai", "image"]);
    std::fs::copy(repository().join("plugins/mask-openai/tests/plan.png"), desk.path("plan.png")).unwrap();
    let file = "plugin_directory = \"plugins\"\nmodel = \"scripted:r.json\"\nvalidators = [\"strict-json\"]\nmedia_policies = { scripted = \"mask-openai\" }\n";
    std::fs::write(desk.path("agent.toml"), file).unwrap();
    let replies =
        [calling("image.open", json!({"path": "plan.png"})), saying("A plan."), saying("{\"a\": 1}"), saying("[2]")];
    std::fs::write(desk.path("r.json"), json!({ "replies": replies }).to_string()).unwrap();
    let run =
        |more: &[&str]| desk.run(&[&["--agent", "agent.toml", "--grant", "image:read=."], more].concat()).status.code();
    assert_eq!(run(&["What?"]), Some(0));
    assert_eq!(run(&["--continue", "More."]), Some(0));
    let (code, said) = desk.replay(&["--grant", "image:read=."]);
    assert_eq!(code, Some(0), "{said}");
    let deeds = said.split("✓ ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
    assert_eq!(deeds, "7", "one call, three verdicts, three decisions: {said}");
    let with = desk.as_version("grounded", "strict-json");
    let (code, said) = desk.replay(&["--with", &with]);
    assert_eq!(code, Some(1));
    assert!(said.contains("turn 1, step 2: the verdict on the output") && said.contains("+\"accept\""), "{said}");
    let with = desk.as_version("masker", "mask-openai");
    let (code, said) = desk.replay(&["--with", &with]);
    assert_eq!(code, Some(1));
    assert!(said.contains("the decision on media"), "{said}");
}
