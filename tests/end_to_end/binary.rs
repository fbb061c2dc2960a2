//! Tests of the real binary that follow the README: the tests read the commands from the README itself.

use crate::support::{agent_host, cargo, components, repository};
use agent_store::{Options, RecordRange, SessionFilter, SessionIndex, SessionLog, SqliteStore};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

fn readme() -> String {
    std::fs::read_to_string(repository().join("README.md")).unwrap()
}

/// Returns the code blocks of a page that have this language, in the order of the page.
fn blocks(page: &str, language: &str) -> Vec<String> {
    let fence = format!("```{language}\n");
    page.split(&fence).skip(1).map(|rest| rest.split("\n```").next().unwrap().to_owned()).collect()
}

/// Splits a command line with double and single quotes into words.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for char in line.chars() {
        match (quote, char) {
            (Some(open), char) if char == open => quote = None,
            (None, '"' | '\'') => {
                quote = Some(char);
                word.get_or_insert_default();
            }
            (None, ' ') => words.extend(word.take()),
            _ => word.get_or_insert_default().push(char),
        }
    }
    words.extend(word);
    words
}

struct CliUser {
    data: TempDir,
}

impl CliUser {
    fn new() -> Self {
        Self { data: tempfile::tempdir().unwrap() }
    }

    fn run(&self, directory: &Path, arguments: &[&str]) -> Output {
        let mut command = agent_host();
        command.current_dir(directory).args(arguments).env("AGENT_HOST_DATA", self.data.path().join("data"));
        command.env_remove("NO_COLOR").stdin(Stdio::null()).output().unwrap()
    }

    fn store(&self) -> SqliteStore {
        SqliteStore::open(self.data.path().join("data/agent-host.db"), Options::default()).unwrap()
    }
}

fn stdout_and_stderr(output: &Output) -> (String, String) {
    (String::from_utf8(output.stdout.clone()).unwrap(), String::from_utf8(output.stderr.clone()).unwrap())
}

/// I1, M4, D1: The README's first command prints correct numbers for a real file, and the turn is in the database.
#[tokio::test(flavor = "multi_thread")]
async fn i1_the_first_command_of_the_readme_works() {
    let command = blocks(&readme(), "sh").remove(0);
    let command = command.strip_prefix("cargo run -- ").expect("the first command runs the binary with cargo");
    let words = words(command);
    let arguments: Vec<&str> = words.iter().map(String::as_str).collect();
    let user = CliUser::new();
    let output = user.run(repository(), &arguments);
    let (answer, progress) = stdout_and_stderr(&output);
    assert!(output.status.success(), "{progress}");
    let file = std::fs::read_to_string(repository().join("Cargo.toml")).unwrap();
    let (lines, words) = (file.lines().count(), file.split_whitespace().count());
    assert!(answer.contains(&format!("{lines} lines")) && answer.contains(&format!("{words} words")), "{answer}");
    assert!(answer.contains("not a language model"), "{answer}");
    let store = user.store();
    let session = store.sessions(SessionFilter::default(), 2).await.unwrap().remove(0);
    assert_eq!((session.turns, session.state.as_str()), (1, "idle"));
    let records = store.records(&session.subject, RecordRange::Turn(1)).await.unwrap();
    let kinds: Vec<&str> = records.iter().map(|stored| stored.record.kind.as_str()).collect();
    assert_eq!(kinds, ["trace", "context", "prompt", "reply", "host_answers", "prompt", "reply"]);
    // The exact prompt can be reconstructed from the record: its system texts are stored by digest.
    for digest in records[2].record.body["system"].as_array().unwrap() {
        let digest = agent_core::message::Digest::parse(digest.as_str().unwrap()).unwrap();
        assert!(!agent_store::Blobs::text(&store, &session.subject, &digest).await.unwrap().is_empty());
    }
}

/// The README's first command does not name a binary, so the workspace must have only one binary that `cargo run` can
/// select by default.
#[test]
fn the_cargo_run_command_in_the_readme_selects_the_host() {
    let mut cargo = Command::new(cargo());
    let output = cargo.current_dir(repository()).args(["metadata", "--no-deps", "--locked", "--format-version", "1"]);
    let metadata: Value = serde_json::from_slice(&output.output().unwrap().stdout).unwrap();
    let targets =
        metadata["packages"].as_array().unwrap().iter().flat_map(|package| package["targets"].as_array().unwrap());
    let programs: Vec<&str> = targets
        .filter(|target| target["kind"].as_array().unwrap().contains(&Value::from("bin")))
        .map(|target| target["name"].as_str().unwrap())
        .collect();
    assert_eq!(programs, ["agent-host"]);
}

/// The README's second command is `cargo test`, which runs these tests.
#[test]
fn the_second_command_of_the_readme_runs_the_tests() {
    assert_eq!(blocks(&readme(), "sh")[1], "cargo test");
}

fn working_directory(plugins: &[&str]) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir(directory.path().join("plugins")).unwrap();
    for plugin in plugins {
        let file = format!("{plugin}.wasm");
        std::fs::copy(components().join(&file), directory.path().join("plugins").join(&file)).unwrap();
    }
    std::fs::write(directory.path().join("note.txt"), "one\ntwo words\n").unwrap();
    directory
}

/// P6: The agent.toml in the guide can give the same grants as the command line. The message about a denial shows how
/// to give the missing grant in `agent.toml` and on the command line.
#[test]
fn p6_the_command_line_and_the_agent_file_can_give_the_same_grants() {
    let user = CliUser::new();
    let working_directory = working_directory(&["files", "text", "project-context"]);
    let prompt = "text.count_file {\"path\": \"note.txt\"}";
    let denied = user.run(working_directory.path(), &["--plugins", "plugins", prompt]);
    let (answer, progress) = stdout_and_stderr(&denied);
    assert!(progress.contains("--grant text:read=") && progress.contains("[plugins.text.grants]"), "{progress}");
    assert!(answer.contains("denied: `note.txt` is outside of the granted trees"), "{answer}");
    let granted = user.run(working_directory.path(), &["--plugins", "plugins", "--grant", "text:read=.", prompt]);
    assert!(stdout_and_stderr(&granted).0.contains("2 lines"), "{granted:?}");
    let page = std::fs::read_to_string(repository().join("host/docs/guide/grants.md")).unwrap();
    std::fs::write(working_directory.path().join("agent.toml"), &blocks(&page, "toml")[0]).unwrap();
    let output = user.run(working_directory.path(), &["--agent", "agent.toml", "files.read {\"path\": \"note.txt\"}"]);
    let (answer, progress) = stdout_and_stderr(&output);
    assert!(answer.contains("two words"), "{answer}{progress}");
}

/// I1: In a pipe, stdout contains only the answer, without escape codes. With `--json`, stdout contains the events as
/// JSON lines, and the last line is the result.
#[test]
fn i1_prints_only_the_answer_to_a_pipe_and_events_as_json() {
    let user = CliUser::new();
    let working_directory = working_directory(&["calc"]);
    let prompt = "calc.evaluate {\"expression\": \"1/3 + 1/6\"}";
    let output = user.run(working_directory.path(), &["--plugins", "plugins", prompt]);
    let (answer, progress) = stdout_and_stderr(&output);
    assert!(answer.contains("1/2") && !answer.contains('\u{1b}') && !progress.contains('\u{1b}'), "{answer}{progress}");
    let output = user.run(working_directory.path(), &["--plugins", "plugins", "--json", prompt]);
    let (lines, _) = stdout_and_stderr(&output);
    let events: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(events[0]["type"], "loop_start");
    assert_eq!(events.last().unwrap()["type"], "result");
    assert!(events.iter().any(|event| event["type"] == "stream_token" && event["provisional"] == 1));
    let durable: Vec<u64> = events[..events.len() - 1]
        .iter()
        .filter(|event| event.get("provisional").is_none())
        .map(|event| event["sequence"].as_u64().unwrap())
        .collect();
    assert_eq!(durable, (1..=durable.len() as u64).collect::<Vec<_>>());
}

/// I2: All problems of a configuration are reported together, each with its file, line and key. No turn starts, and the
/// exit code is 2.
#[test]
fn i2_reports_a_wrong_configuration() {
    let user = CliUser::new();
    let working_directory = working_directory(&["calc"]);
    let write = |text: &str| std::fs::write(working_directory.path().join("agent.toml"), text).unwrap();
    let run = |arguments: &[&str]| {
        let output = user.run(working_directory.path(), arguments);
        (output.status.code(), stdout_and_stderr(&output).1)
    };
    write("name = \"a\"\nplugin_directory = \"plugins\"\nmax_interaction = 3\nat_limit = \"stop\"\n");
    let (code, message) = run(&["--agent", "agent.toml", "hi"]);
    assert_eq!(code, Some(2));
    for expected in ["agent.toml", "3", "max_interaction", "at_limit", "finish", "error"] {
        assert!(message.contains(expected), "`{expected}` is not in: {message}");
    }
    write("name = \"a\"\nplugin_directory = \"plugins\"\nvalidators = [\"calc\"]\n");
    let (code, message) = run(&["--agent", "agent.toml", "hi"]);
    assert!(code == Some(2) && message.contains("calc") && message.contains("output-validator"), "{message}");
    for arguments in [
        &["--plugins", "plugins", "--grant", "calc", "hi"][..],
        &["--plugins", "plugins", "--grant", "calc:read=nowhere", "hi"],
        &["--plugins", "plugins", "--grant", "clac:read=.", "hi"],
        &["--plugins", "plugins", "--model", "gpt-9", "hi"],
        &["--plugins", "plugins", "--session", "nobody/1", "hi"],
        &["--plugins", "nowhere", "hi"],
        &["plugin", "inspect", "nowhere.wasm"],
        &["plugin", "inspect", "note.txt"],
        &["plugin", "call", "plugins/calc.wasm"],
    ] {
        let (code, message) = run(arguments);
        assert!(code == Some(2), "{arguments:?} ended with {code:?}: {message}");
        assert!(message.contains("error:") && !message.contains("panicked"), "{arguments:?}: {message}");
    }
}

/// D3, L29: Ctrl-C cancels the turn with exit code 130. The session of the cancelled turn is intact and can continue.
#[test]
fn l29_ctrl_c_cancels_the_turn() {
    let user = CliUser::new();
    let working_directory = working_directory(&["probe"]);
    let script = json!({"replies": [
        {"calls": [{"name": "probe.slow", "arguments": {"ms": 20_000}}]},
        {"text": "Going on."},
    ]});
    std::fs::write(working_directory.path().join("script.json"), script.to_string()).unwrap();
    let mut command = agent_host();
    command
        .current_dir(working_directory.path())
        .env("AGENT_HOST_DATA", user.data.path().join("data"))
        .stdin(Stdio::null());
    command.args(["--plugins", "plugins", "--model", "scripted:script.json", "--json", "Wait."]).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
    let mut types = Vec::new();
    for line in lines {
        let event: Value = serde_json::from_str(&line.unwrap()).unwrap();
        types.push(event["type"].as_str().unwrap().to_owned());
        if event["type"] == "tool_call" {
            let interrupt = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
            assert!(interrupt.success());
        }
    }
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(types.contains(&"tool_result_error".to_owned()) && types.contains(&"loop_end".to_owned()), "{types:?}");
    let output = user.run(
        working_directory.path(),
        &["--plugins", "plugins", "--model", "scripted:script.json", "--continue", "Go on."],
    );
    assert_eq!(stdout_and_stderr(&output).0.trim(), "Going on.");
}

/// I1: text from a pipe or a file follows the prompt of the command line. A pipe that stays open without sending anything does
/// not keep the turn from beginning, and nothing is lost silently.
#[test]
fn i1_text_from_a_pipe_follows_the_prompt() {
    let user = CliUser::new();
    let working_directory = working_directory(&[]);
    let folder = working_directory.path();
    let both = json!({"text": "Both.", "expect": {"last_contains": ["Summarise this:\n\none\ntwo"]}});
    let script = json!({"replies": [both, {"text": "One."}]});
    std::fs::write(folder.join("script.json"), script.to_string()).unwrap();
    std::fs::write(folder.join("notes.txt"), "one\ntwo\n").unwrap();
    let run = |stdin: Stdio, arguments: &[&str]| {
        let mut command = agent_host();
        command.current_dir(folder).env("AGENT_HOST_DATA", user.data.path().join("data"));
        command.args(["--plugins", "plugins", "--model", "scripted:script.json"]).args(arguments);
        command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let file = std::fs::File::open(folder.join("notes.txt")).unwrap();
    let (answer, errors) = stdout_and_stderr(&run(file.into(), &["Summarise this:"]).wait_with_output().unwrap());
    assert_eq!(answer.trim(), "Both.", "{errors}");
    let mut piped = run(Stdio::piped(), &["Summarise this:"]);
    std::io::Write::write_all(&mut piped.stdin.take().unwrap(), b"one\ntwo\n").unwrap();
    assert_eq!(stdout_and_stderr(&piped.wait_with_output().unwrap()).0.trim(), "Both.");
    let mut silent = run(Stdio::piped(), &["--continue", "And?"]);
    let open = silent.stdin.take();
    let (answer, errors) = stdout_and_stderr(&silent.wait_with_output().unwrap());
    drop(open);
    assert_eq!((answer.trim(), errors.contains("sends nothing")), ("One.", true), "{errors}");
}

/// I1: images of the command line belong to the prompt. Other files are refused before anything is started.
#[test]
fn i1_images_belong_to_the_prompt() {
    let user = CliUser::new();
    let working_directory = working_directory(&[]);
    let folder = working_directory.path();
    std::fs::write(folder.join("script.json"), json!({"replies": [{"text": "It is red."}]}).to_string()).unwrap();
    let gif = b"GIF89a\x01\x00\x01\x00\x80\x00\x00\xff\x00\x00\x00\x00\x00,\x00\x00\x00\x00\x01\x00\x01\x00\x00\x02\x02D\x01\x00;";
    std::fs::write(folder.join("dot.gif"), gif).unwrap();
    let arguments = |image: &'static str| {
        ["--plugins", "plugins", "--model", "scripted:script.json", "--image", image, "Which colour?"]
    };
    for (image, problem) in [("note.txt", "not a PNG"), ("absent.png", "absent.png"), ("plugins", "not a file")] {
        let output = user.run(folder, &arguments(image));
        let (_, message) = stdout_and_stderr(&output);
        assert!(output.status.code() == Some(2) && message.contains(problem), "{image}: {message}");
    }
    let output = user.run(folder, &arguments("dot.gif"));
    assert_eq!(stdout_and_stderr(&output).0.trim(), "It is red.", "{output:?}");
    let sessions = stdout_and_stderr(&user.run(folder, &["session", "list", "--json"])).0;
    let session: Value = serde_json::from_str(sessions.trim()).expect("there is one session");
    let subject = session["subject"].as_str().or(session["session"].as_str()).expect("an id").to_owned();
    let exported = stdout_and_stderr(&user.run(folder, &["session", "export", &subject])).0;
    let exported: Value = serde_json::from_str(&exported).unwrap();
    let parts = exported["messages"][0]["body"].to_string() + &exported["messages"][0].to_string();
    assert!(parts.contains("image/gif") && parts.contains("dot.gif") && parts.contains("Which colour?"), "{parts}");
}

/// Row 32: A second process cannot continue a session that another process has open, and the error of the second
/// process contains the id of the first process. The second process can use another session in the same database.
#[test]
fn row_32_refuses_a_second_process_on_a_session() {
    let user = CliUser::new();
    let working_directory = working_directory(&["probe"]);
    let script =
        json!({"replies": [{"calls": [{"name": "probe.slow", "arguments": {"ms": 1_500}}]}, {"text": "Done."}]});
    std::fs::write(working_directory.path().join("script.json"), script.to_string()).unwrap();
    let mut command = agent_host();
    command
        .current_dir(working_directory.path())
        .env("AGENT_HOST_DATA", user.data.path().join("data"))
        .stdin(Stdio::null());
    command.args(["--plugins", "plugins", "--model", "scripted:script.json", "--json", "Wait."]).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
    let call_started = lines.any(|line| line.unwrap().contains("\"tool_call\""));
    assert!(call_started);
    let output = user.run(working_directory.path(), &["--plugins", "plugins", "--continue"]);
    let (_, message) = stdout_and_stderr(&output);
    assert!(output.status.code() == Some(2) && message.contains(&child.id().to_string()), "{message}");
    let output = user.run(working_directory.path(), &["--plugins", "plugins", "hello"]);
    assert!(output.status.success(), "{output:?}");
    assert!(lines.any(|line| line.unwrap().contains("\"finished\"")));
    assert!(child.wait().unwrap().success());
}

/// S3: `plugin call` runs one tool with grants from the command line.
#[test]
fn s3_plugin_call_runs_one_tool() {
    let user = CliUser::new();
    let working_directory = working_directory(&["files", "calc"]);
    let file: PathBuf = working_directory.path().join("plugins/files.wasm");
    let call = |grants: &[&str]| {
        let mut arguments = vec!["plugin", "call", file.to_str().unwrap(), "files.read", "{\"path\": \"note.txt\"}"];
        arguments.extend(grants);
        let output = user.run(working_directory.path(), &arguments);
        (output.status.code(), stdout_and_stderr(&output))
    };
    let (code, (_, message)) = call(&[]);
    assert!(code == Some(1) && message.contains("--grant files:"), "{message}");
    let (code, (text, _)) = call(&["--grant", "files:read=."]);
    assert!(code == Some(0) && text.contains("two words"), "{text}");
}
