//! `agent-host replay` (S6). A replay with the same plugins finds no differences, and a replay with another version of
//! a plugin reports its first difference.

use crate::support::{agent_host, components, repository, scratch};
use agent_plugins::{Manifest, with_manifest};
use agent_store::{Options, SessionFilter, SessionIndex, SqliteStore};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::thread::JoinHandle;
use tempfile::TempDir;

/// The value of the environment variable `INTRUDER_TOKEN`.
pub(crate) const TOKEN: &str = "a-secret-that-no-record-holds";

/// A temporary folder that contains a plugin folder and a data folder for sessions.
pub(crate) struct TestCli(TempDir);

impl TestCli {
    pub(crate) fn with(plugins: &[&str]) -> Self {
        let cli = Self(tempfile::tempdir().unwrap());
        for folder in ["plugins", "tmp"] {
            std::fs::create_dir(cli.path(folder)).unwrap();
        }
        for plugin in plugins {
            let file = format!("{plugin}.wasm");
            std::fs::copy(components().join(&file), cli.path("plugins").join(&file)).unwrap();
        }
        cli
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        let mut command = agent_host();
        command.current_dir(self.0.path()).args(arguments).arg("--data").arg(self.path("data"));
        command.env("TMPDIR", self.path("tmp")).env("INTRUDER_TOKEN", TOKEN);
        command.stdin(Stdio::null()).output().unwrap()
    }

    /// Runs one turn with these model replies and these additional command-line options. Returns the exit code.
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
        let output_text = String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
        (output.status.code(), output_text)
    }

    /// Returns the subject of the latest session.
    pub(crate) fn session(&self) -> String {
        self.sessions().0
    }

    /// Returns the subject of the latest session, and the revision and update time of every session.
    fn sessions(&self) -> (String, Vec<(u64, String)>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let store = SqliteStore::open(self.path("data/agent-host.db"), Options::default()).unwrap();
            let sessions = store.sessions(SessionFilter::default(), 100).await.unwrap();
            (
                sessions[0].subject.clone(),
                sessions.iter().map(|session| (session.revision, session.updated.clone())).collect(),
            )
        })
    }

    /// Saves a component as version 9.9.9 of the plugin `of`, and returns the value of `--with` that names the
    /// saved file.
    fn save_as_version(&self, component: &str, of: &str) -> String {
        let text = format!("name = \"{of}\"\nversion = \"9.9.9\"\ndescription = \"Another one.\"\n");
        let manifest = Manifest::from_toml(&text, Path::new("plugin.toml")).unwrap();
        let bytes = std::fs::read(components().join(format!("{component}.wasm"))).unwrap();
        let path = self.path(&format!("new-{of}.wasm"));
        std::fs::write(&path, with_manifest(&bytes, &manifest).unwrap()).unwrap();
        format!("{of}={}", path.display())
    }
}

pub(crate) fn call_reply(name: &str, arguments: Value) -> Value {
    json!({"calls": [{"name": name, "arguments": arguments}]})
}

pub(crate) fn text_reply(text: &str) -> Value {
    json!({ "text": text })
}

/// Builds the tool of the README with three changes: its code uses `method` instead of `to_uppercase`, it has the given
/// description, and `manifest_lines` are added to its manifest. Returns the component.
pub(crate) fn shout(method: &str, description: &str, manifest_lines: &str) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let readme = std::fs::read_to_string(repository().join("README.md")).unwrap();
    let block = |fence: &str, content: &str| {
        let mut blocks = readme.split(fence).skip(1).map(|rest| rest.split("```").next().unwrap().to_owned());
        blocks.find(|block| block.contains(content)).unwrap()
    };
    std::fs::create_dir(folder.path().join("src")).unwrap();
    let sdk = repository().join("sdk");
    let manifest = block("```toml\n", "crate-type").replace("../../sdk", sdk.to_str().unwrap()) + "\n[workspace]\n";
    std::fs::write(folder.path().join("Cargo.toml"), manifest).unwrap();
    std::fs::copy(repository().join("Cargo.lock"), folder.path().join("Cargo.lock")).unwrap();
    std::fs::write(folder.path().join("plugin.toml"), block("```toml\n", "Text in capitals") + manifest_lines).unwrap();
    let source = block("```rust\n", "text.shout")
        .replace("to_uppercase", method)
        .replace("Returns the text in capitals.", description);
    std::fs::write(folder.path().join("src/lib.rs"), source).unwrap();
    let mut command = agent_host();
    command.args(["plugin", "build"]).arg(folder.path()).env("CARGO_TARGET_DIR", scratch().join("scenario-target"));
    let built = command.output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    std::fs::read(folder.path().join("shout.wasm")).unwrap()
}

/// S6: A replay with the same plugin finds no difference. A replay with a version of the plugin that returns other
/// results reports the first difference and has exit code 1. A changed tool description counts as a changed prompt.
/// Without `--with`, each call is replayed with the plugin version that made it.
#[test]
fn reports_the_first_difference_of_another_version() {
    let cli = TestCli::with(&[]);
    let description = "Returns the text in capitals.";
    std::fs::write(cli.path("plugins/shout.wasm"), shout("to_uppercase", description, "")).unwrap();
    let [old, new, other_description] = ["old.wasm", "new.wasm", "told.wasm"].map(|name| cli.path(name));
    std::fs::copy(cli.path("plugins/shout.wasm"), &old).unwrap();
    std::fs::write(&new, shout("to_lowercase", description, "")).unwrap();
    std::fs::write(&other_description, shout("to_uppercase", "Shouts.", "")).unwrap();
    let replies = [
        call_reply("text.shout", json!({"text": "One"})),
        text_reply("1"),
        call_reply("text.shout", json!({"text": "Two"})),
        text_reply("2"),
    ];
    assert_eq!(cli.turn(&replies, &[]), Some(0));
    std::fs::copy(&new, cli.path("plugins/shout.wasm")).unwrap();
    assert_eq!(cli.turn(&replies, &["--continue"]), Some(0));
    let before = cli.sessions();
    let (code, output_text) = cli.replay(&[]);
    assert_eq!(code, Some(0), "each version returns the recorded results: {output_text}");
    assert!(output_text.contains("2 calls of its plugins"), "{output_text}");
    let with = |file: &Path| format!("shout={}", file.display());
    let (code, output_text) = cli.replay(&["--with", &with(&new)]);
    assert_eq!(code, Some(1));
    assert!(
        output_text.contains("turn 1, step 1: text.shout {\"text\":\"One\"}")
            && output_text.contains("  -ONE\n  +one\n"),
        "{output_text}"
    );
    assert!(!output_text.contains("Two"), "only the first difference is shown: {output_text}");
    let (code, output_text) = cli.replay(&["--with", &with(&old), "--all"]);
    assert_eq!(code, Some(1));
    assert!(
        output_text.contains("turn 2, step 1")
            && output_text.contains("  -two\n  +TWO\n")
            && output_text.contains("1 call gave the recorded result"),
        "{output_text}"
    );
    assert_eq!(cli.replay(&["--with", &with(&new), "--turn", "2"]).0, Some(0));
    let (code, output_text) = cli.replay(&["--with", &with(&other_description), "--turn", "1"]);
    assert_eq!(code, Some(1));
    assert!(output_text.contains("turn 1: the tool definitions of shout in the prompt"), "{output_text}");
    assert!(
        output_text.contains("-  \"description\": \"Returns the text in capitals.\"")
            && output_text.contains("+  \"description\": \"Shouts.\""),
        "{output_text}"
    );
    assert_eq!(cli.sessions(), before, "nothing was written");
    // A replay of the exported document on a machine that has never had the plugin reports the same difference.
    let session = cli.session();
    assert!(cli.run(&["session", "export", &session, "-o", "one.json"]).status.success());
    let elsewhere = TestCli::with(&[]);
    std::fs::copy(cli.path("one.json"), elsewhere.path("one.json")).unwrap();
    let (code, output_text) = elsewhere.replay_of("one.json", &["--with", &with(&new), "--json"]);
    assert_eq!(code, Some(1), "{output_text}");
    let document: Value = serde_json::from_str(output_text.lines().next().unwrap()).unwrap();
    assert_eq!(document["differences"][0]["place"], "turn 1, step 1: text.shout {\"text\":\"One\"}");
    assert!(
        document["not_done_again"][0].as_str().unwrap().contains("the tool definitions of shout in the prompt"),
        "{output_text}"
    );
    assert_eq!(elsewhere.replay_of("one.json", &["--with", &with(&new), "--turn", "2"]).0, Some(0));
    // If the plugin version that made a call is missing, the replay cannot compare that call.
    let (code, output_text) = elsewhere.replay_of("one.json", &[]);
    assert!(code == Some(2) && output_text.contains("not replayed"), "{output_text}");
    let twice = elsewhere.replay_of("one.json", &["--with", &with(&new), "--with", &with(&new)]);
    assert!(twice.0 == Some(2) && twice.1.contains("given twice"), "{}", twice.1);
}

/// An agent file that disables the recording of the host's answers to plugins.
const UNRECORDED: &str = "plugin_directory = \"plugins\"\nmodel = \"scripted:replies.json\"\n\
                          [limits]\nrecorded_kib = 0\n[plugins.text.grants]\nread = [\".\"]\n";

/// S6: If a plugin attempts an effect that was not recorded, the replay denies and reports it. The plugin can read a
/// folder that is granted for the replay.
#[test]
fn denies_and_reports_an_unrecorded_effect() {
    let cli = TestCli::with(&["text", "summarize"]);
    std::fs::write(cli.path("a.md"), "one two\n").unwrap();
    std::fs::write(cli.path("agent.toml"), UNRECORDED).unwrap();
    let replies = json!({"replies": [call_reply("text.count_file", json!({"path": "a.md"})), text_reply("1")]});
    std::fs::write(cli.path("replies.json"), replies.to_string()).unwrap();
    assert_eq!(cli.run(&["--agent", "agent.toml", "Count."]).status.code(), Some(0));
    let (code, output_text) = cli.replay(&[]);
    assert_eq!(code, Some(1));
    assert!(output_text.contains("denied reading files: it was not recorded"), "{output_text}");
    assert_eq!(cli.replay(&["--grant", "text:read=."]).0, Some(0));
    let (code, output_text) = cli.replay(&["--grant", "text:write=."]);
    assert_eq!(code, Some(2));
    assert!(output_text.contains("a replay has no effects"), "{output_text}");
    // The recording contains the model's answer to the plugin, and the replay returns this answer for the
    // same question.
    let script = json!({"replies": [call_reply("summarize.text", json!({"text": "Long."})), text_reply("1")], "answers": [text_reply("Short.")]});
    std::fs::write(cli.path("s.json"), script.to_string()).unwrap();
    let options =
        ["--plugins", "plugins", "--model", "scripted:s.json", "--grant", "summarize:model_tokens=5000", "Sum up."];
    assert_eq!(cli.run(&options).status.code(), Some(0));
    let (code, output_text) = cli.replay(&[]);
    assert_eq!(code, Some(0), "{output_text}");
}

/// S6: The replay gives a plugin the recorded answers of the host: pages of servers that no longer exist, key-value
/// data at the time of the call, time and random numbers. The replay does not repeat any effect.
#[test]
fn replays_recorded_host_answers() {
    let cli = TestCli::with(&["web", "notes", "probe", "intruder"]);
    let (url, served) = serve_once("A page of its time.");
    let note = |text: &str| call_reply("notes.add", json!({ "text": text }));
    let fetch = || call_reply("web.fetch", json!({ "url": url }));
    let replies = [
        note("one"),
        note("two"),
        fetch(),
        call_reply("notes.list", json!({})),
        call_reply("intruder.chance", json!({})),
        call_reply("probe.config", json!({"name": "nothing"})),
        text_reply("Done."),
    ];
    let pages = format!("web:http=private GET {url}");
    let grants = ["--grant", "notes:key_value_mib=1", "--grant", &pages];
    assert_eq!(cli.turn(&replies, &grants), Some(0));
    assert!(served.is_finished(), "the page was fetched");
    let output_text = String::from_utf8(cli.run(&["session", "show", &cli.session()]).stdout).unwrap();
    assert!(
        output_text.contains("A page of its time.") && output_text.contains("no configuration key"),
        "{output_text}"
    );
    let (code, output_text) = cli.replay(&[]);
    assert_eq!(code, Some(0), "{output_text}");
    assert!(output_text.contains("6 calls of its plugins"), "{output_text}");
    // A fork of the session contains the same calls with the same recorded answers, but has another session id.
    let forked = String::from_utf8(cli.run(&["session", "fork", &cli.session()]).stdout).unwrap();
    let fork_output = String::from_utf8(cli.run(&["session", "fork", forked.trim()]).stdout).unwrap();
    for forked in [forked.trim(), fork_output.trim()] {
        let (code, output_text) = cli.replay_of(forked, &["--all"]);
        assert!(code == Some(0) && output_text.contains("6 calls of its plugins"), "{output_text}");
        assert!(cli.run(&["session", "delete", forked, "--yes"]).status.success());
    }
    // The replays did not store notes, so the third note gets number 3.
    assert_eq!(cli.replay(&[]).0, Some(0));
    assert_eq!(cli.turn(&[note("three"), text_reply("Kept.")], &grants), Some(0));
    let output_text = String::from_utf8(cli.run(&["session", "show", &cli.session()]).stdout).unwrap();
    assert!(output_text.contains("\"number\":3") || output_text.contains("\"number\": 3"), "{output_text}");
    // An exported document can be replayed on a machine that has neither the page nor the notes.
    let session = cli.session();
    assert!(cli.run(&["session", "export", &session, "-o", "one.json"]).status.success());
    let elsewhere = TestCli::with(&[]);
    std::fs::copy(cli.path("one.json"), elsewhere.path("one.json")).unwrap();
    let with = format!("notes={}", cli.path("plugins/notes.wasm").display());
    let (code, output_text) = elsewhere.replay_of("one.json", &["--with", &with]);
    assert_eq!(code, Some(0), "{output_text}");
}

/// S6, L10: If a plugin sends a request to a service, the replay compares this whole request with the recorded request.
/// An older host did not record such requests, so for sessions of an older host the replay compares only the type of
/// the request.
#[test]
fn compares_requests_to_services() {
    let cli = TestCli::with(&["probe"]);
    let replies = [call_reply("probe.pending", json!({"text": "five"})), text_reply("Done.")];
    let granted = ["--grant", "probe:events=com.example.probe.v1"];
    assert_eq!(cli.turn(&replies, &granted), Some(3), "the turn waits");
    assert_eq!(cli.replay(&[]).0, Some(0));
    assert!(cli.run(&["session", "export", &cli.session(), "-o", "one.json"]).status.success());
    let document: Value = serde_json::from_slice(&std::fs::read(cli.path("one.json")).unwrap()).unwrap();
    let with_records = |change: &dyn Fn(&mut Vec<Value>)| {
        let mut document = document.clone();
        change(document["records"].as_array_mut().unwrap());
        std::fs::write(cli.path("changed.json"), document.to_string()).unwrap();
        cli.replay_of("changed.json", &[])
    };
    let is_request = |record: &Value| record["kind"] == "service_request";
    let (code, output_text) = with_records(&|records| {
        let record = records.iter_mut().find(|record| is_request(record)).unwrap();
        record["body"]["request"]["data"] = json!({"text": "five thousand"});
    });
    assert_eq!(code, Some(1), "{output_text}");
    assert!(
        output_text.contains("-    \"text\": \"five thousand\"") && output_text.contains("+    \"text\": \"five\""),
        "{output_text}"
    );
    let (code, output_text) = with_records(&|records| records.retain(|record| !is_request(record)));
    assert_eq!(code, Some(0), "{output_text}");
}

/// S6: If a plugin attempts an effect that was not recorded, the replay denies the effect.
#[test]
fn denies_effects_without_a_record() {
    let cli = TestCli::with(&["web", "notes", "probe"]);
    let (url, _served) = serve_once("A page.");
    let agent = format!(
        "plugin_directory = \"plugins\"\nmodel = \"scripted:replies.json\"\n[limits]\nrecorded_kib = 0\n\
         [plugins.web.grants]\nhttp = [\"private GET {url}\"]\n[plugins.notes.grants]\nkey_value_mib = 1\n\
         [plugins.probe.grants]\nconfig = {{ probe = \"fast\" }}\n"
    );
    std::fs::write(cli.path("agent.toml"), agent).unwrap();
    let replies = json!({"replies": [
        call_reply("web.fetch", json!({"url": url})), call_reply("notes.add", json!({"text": "a"})), call_reply("probe.config", json!({"name": "probe"})), text_reply("Done.")]});
    std::fs::write(cli.path("replies.json"), replies.to_string()).unwrap();
    assert_eq!(cli.run(&["--agent", "agent.toml", "Go on."]).status.code(), Some(0));
    let (code, output_text) = cli.replay(&["--all"]);
    assert_eq!(code, Some(1), "{output_text}");
    assert!(
        output_text.contains("denied the request GET http://127.0.0.1:") && output_text.contains("denied reading"),
        "{output_text}"
    );
    // A recording contains no configured values, so the replay reads these values from the agent's file.
    let probe = format!("probe={}", cli.path("plugins/probe.wasm").display());
    let (code, output_text) = cli.replay(&["--with", &probe]);
    assert!(code == Some(1) && output_text.contains("denied the configuration value \"probe\""), "{output_text}");
    // A replay does not send requests, so it does not need secrets.
    let secret = "[plugins.web.secrets.token]\nenv = \"NOT_HERE_9\"\nhosts = [\"https://a.example\"]\n";
    let file = std::fs::read_to_string(cli.path("agent.toml")).unwrap() + secret;
    std::fs::write(cli.path("agent.toml"), file).unwrap();
    let (code, output_text) = cli.replay(&["--with", &probe, "--agent", "agent.toml"]);
    assert_eq!(code, Some(0), "{output_text}");
}

/// S6, L2: A context builder is replayed with its full recorded input, and its steps are replayed with the state that
/// it returned.
#[test]
fn replays_context_builders() {
    let cli = TestCli::with(&["stateful-builder", "text"]);
    let file =
        "plugin_directory = \"plugins\"\nmodel = \"scripted:replies.json\"\ncontext_builder = \"stateful-builder\"\n";
    std::fs::write(cli.path("agent.toml"), file).unwrap();
    let replies = json!({"replies": [call_reply("text.count", json!({"text": "a b"})), text_reply("1"), text_reply("2"), text_reply("3")]});
    std::fs::write(cli.path("replies.json"), replies.to_string()).unwrap();
    for arguments in [&["One."][..], &["--continue", "config nothing"], &["--continue", "Three."]] {
        assert_eq!(cli.run(&[&["--agent", "agent.toml"], arguments].concat()).status.code(), Some(0), "{arguments:?}");
    }
    let (code, output_text) = cli.replay(&[]);
    assert_eq!(code, Some(0), "{output_text}");
    assert!(output_text.contains("8 calls of its plugins"), "one tool call, three `init`s, four steps: {output_text}");
    let with = cli.save_as_version("project-context", "stateful-builder");
    let (code, output_text) = cli.replay(&["--with", &with]);
    assert_eq!(code, Some(1));
    assert!(output_text.contains("turn 1, step 0: the turn's context") && output_text.contains("-"), "{output_text}");
}

/// Starts a server that answers one request with this text and then stops listening.
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

/// S6: The replay accepts turns that still wait, undone turns and forked turns. If a session contains no calls of the
/// plugin in the option `--with`, the replay fails with an error that says so.
#[test]
fn replays_open_undone_and_forked_turns() {
    let cli = TestCli::with(&["text", "files"]);
    let count = || call_reply("text.count", json!({"text": "one two"}));
    let two_calls = json!({"calls": [
        {"name": "text.count", "arguments": {"text": "a"}}, {"name": "files.write", "arguments": {"path": "x", "text": "y"}}]});
    std::fs::write(
        cli.path("agent.toml"),
        "plugin_directory = \"plugins\"\nmodel = \"scripted:r.json\"\n[approval.tools]\n\"files.write\" = \"ask\"\n",
    )
    .unwrap();
    std::fs::write(
        cli.path("r.json"),
        json!({"replies": [count(), text_reply("1"), count(), text_reply("2"), two_calls]}).to_string(),
    )
    .unwrap();
    let agent = |arguments: &[&str]| cli.run(&[&["--agent", "agent.toml"], arguments].concat()).status.code();
    assert_eq!(agent(&["One."]), Some(0));
    assert_eq!(agent(&["--continue", "Two."]), Some(0));
    let session = cli.session();
    assert!(cli.run(&["session", "undo", &session]).status.success());
    let (code, output_text) = cli.replay(&[]);
    assert_eq!((code, output_text.contains("2 calls of its plugins")), (Some(0), true), "{output_text}");
    let forked = cli.run(&["session", "fork", &session]);
    let forked = String::from_utf8(forked.stdout).unwrap().trim().to_owned();
    let (code, output_text) = cli.replay_of(&forked, &[]);
    assert_eq!((code, output_text.contains("1 call of its plugins")), (Some(0), true), "{output_text}");
    assert_eq!(agent(&["--session", &session, "Three."]), Some(3), "the turn waits");
    let (code, output_text) = cli.replay_of(&session, &[]);
    assert_eq!((code, output_text.contains("3 calls of its plugins")), (Some(0), true), "{output_text}");
    let files = format!("files={}", cli.path("plugins/files.wasm").display());
    let (code, output_text) = cli.replay_of(&session, &["--with", &files]);
    assert_eq!(code, Some(2));
    assert!(output_text.contains(" has no calls of `files` that can be replayed"), "{output_text}");
    let (code, output_text) =
        cli.replay_of(&session, &["--with", &format!("text={}", cli.path("plugins/files.wasm").display())]);
    assert_eq!(code, Some(2));
    assert!(output_text.contains("the file contains the plugin `files`"), "{output_text}");
    assert_eq!(cli.replay_of("nobody", &[]).0, Some(2));
}

/// S6, L12, P4: Validator verdicts and media decisions are replayed with their full recorded input.
#[test]
fn replays_verdicts_and_media_decisions() {
    let cli = TestCli::with(&["strict-json", "mask-openai", "image"]);
    std::fs::copy(repository().join("plugins/mask-openai/tests/plan.png"), cli.path("plan.png")).unwrap();
    let file = "plugin_directory = \"plugins\"\nmodel = \"scripted:r.json\"\nvalidators = [\"strict-json\"]\nmedia_policies = { scripted = \"mask-openai\" }\n";
    std::fs::write(cli.path("agent.toml"), file).unwrap();
    let replies = [
        call_reply("image.open", json!({"path": "plan.png"})),
        text_reply("A plan."),
        text_reply("{\"a\": 1}"),
        text_reply("[2]"),
    ];
    std::fs::write(cli.path("r.json"), json!({ "replies": replies }).to_string()).unwrap();
    let run = |arguments: &[&str]| {
        cli.run(&[&["--agent", "agent.toml", "--grant", "image:read=."], arguments].concat()).status.code()
    };
    assert_eq!(run(&["What?"]), Some(0));
    assert_eq!(run(&["--continue", "More."]), Some(0));
    let (code, output_text) = cli.replay(&["--grant", "image:read=."]);
    assert_eq!(code, Some(0), "{output_text}");
    let replayed_calls = output_text.split("✓ ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
    assert_eq!(replayed_calls, "7", "one call, three verdicts, three decisions: {output_text}");
    let with = cli.save_as_version("grounded", "strict-json");
    let (code, output_text) = cli.replay(&["--with", &with]);
    assert_eq!(code, Some(1));
    assert!(
        output_text.contains("turn 1, step 2: the verdict on the output") && output_text.contains("+\"accept\""),
        "{output_text}"
    );
    let with = cli.save_as_version("masker", "mask-openai");
    let (code, output_text) = cli.replay(&["--with", &with]);
    assert_eq!(code, Some(1));
    assert!(output_text.contains("the decision on media"), "{output_text}");
}
