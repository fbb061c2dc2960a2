//! Tests of agent files and of the models of an agent, with the real binary. The tests write, edit, check and run
//! `agent.toml` (I2, M2).

mod checking;

use crate::support::{agent_host, components};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::sync::{Arc, Mutex};
use tempfile::TempDir;

/// Environment variables that may be set on a developer's machine and change which model is used.
const VARIABLES: [&str; 3] = ["OPENAI_API_KEY", "OPENAI_BASE_URL", "GROQ_API_KEY"];

/// A working folder with its own data folder.
struct WorkingFolder {
    folder: TempDir,
}

/// The exit code and the output of a command.
#[derive(Debug)]
struct CommandResult {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl WorkingFolder {
    fn new(files: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for inner in ["work/agents", "work/plugins", "data"] {
            std::fs::create_dir_all(folder.path().join(inner)).unwrap();
        }
        let folder = Self { folder };
        files.iter().for_each(|(name, text)| folder.write(name, text));
        folder
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join("work").join(name)
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    fn run(&self, arguments: &[&str]) -> CommandResult {
        self.run_with(arguments, &[])
    }

    fn run_with(&self, arguments: &[&str], environment: &[(&str, &str)]) -> CommandResult {
        let mut command = agent_host();
        command.current_dir(self.path("")).args(arguments).env("AGENT_HOST_DATA", self.folder.path().join("data"));
        VARIABLES.iter().for_each(|name| {
            command.env_remove(name);
        });
        let Output { status, stdout, stderr } =
            command.envs(environment.iter().copied()).stdin(Stdio::null()).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        CommandResult { code: status.code(), stdout: text(stdout), stderr: text(stderr) }
    }
}

/// Removes the `#` from every setting.
fn uncommented(template: &str) -> String {
    let line = |line: &str| match line.strip_prefix('#') {
        Some(setting) if !setting.is_empty() && !setting.starts_with(' ') => format!("{setting}\n"),
        _ => format!("{line}\n"),
    };
    template.lines().map(line).collect()
}

/// I2: A user can enable a setting in the output of `config init` by removing its `#`. The edited file passes `config
/// check` and can be run.
#[test]
fn i2_a_written_file_can_be_edited_checked_and_run() {
    let folder = WorkingFolder::new(&[]);
    std::fs::copy(components().join("calc.wasm"), folder.path("plugins/calc.wasm")).unwrap();
    assert_eq!(folder.run(&["config", "init", "--full"]).code, Some(0));
    let written = folder.read("agent.toml");
    assert_eq!(folder.run(&["config", "init", "--full", "--output", "-"]).stdout, written);
    let edited = written
        .replace("\n#name = \"reader\"\n", "\nname = \"accountant\"\n")
        .replace("\n#plugin_directory = ", "\nplugin_directory = ")
        .replace("\n#[limits]\n", "\n[limits]\n")
        .replace("\n#[plugins.files.limits]\n", "\n[plugins.calc.limits]\n")
        .replace("\n#memory_mib = ", "\nmemory_mib = ");
    assert_ne!(edited, written);
    folder.write("agent.toml", &edited);
    let refused = folder.run(&["config", "init", "--full"]);
    assert!(refused.code == Some(2) && refused.stderr.contains("--force"), "{refused:?}");
    assert_eq!(folder.read("agent.toml"), edited, "existing files are kept");
    let checked = folder.run(&["config", "check"]);
    let lines: Vec<Vec<&str>> = checked.stdout.lines().map(|line| line.split_whitespace().collect()).collect();
    let expected: &[&[&str]] = &[
        &["agent.toml:", "ok"],
        &["agent", "accountant"],
        &["model", "offline"],
        &["plugins", "calc", "(in", "plugins)"],
        &["grants", "none"],
    ];
    assert_eq!(lines, expected, "{checked:?}");
    let ran = folder.run(&["--agent", "agent.toml", "calc.evaluate {\"expression\": \"1/3 + 1/6\"}"]);
    assert!(ran.code == Some(0) && ran.stdout.contains("1/2"), "{ran:?}");
    assert!(ran.stderr.contains("accountant/"), "the session is the agent's: {ran:?}");
    assert_eq!(folder.run(&["config", "init", "--full", "--force"]).code, Some(0));
    assert_eq!(folder.read("agent.toml"), written);
}

/// I1: the short file has at most 40 lines and runs as it is, with and without a plugin folder.
#[test]
fn i1_a_short_file_runs_as_it_is() {
    let folder = WorkingFolder::new(&[]);
    std::fs::copy(components().join("calc.wasm"), folder.path("plugins/calc.wasm")).unwrap();
    std::fs::create_dir(folder.path("elsewhere")).unwrap();
    for (output, has_plugins) in [("agent.toml", true), ("elsewhere/agent.toml", false)] {
        assert_eq!(folder.run(&["config", "init", "--output", output]).code, Some(0));
        assert!(folder.read(output).lines().count() <= 40);
        let checked = folder.run(&["config", "check", output]);
        assert_eq!(checked.code, Some(0), "{checked:?}");
        let ran = folder.run(&["--agent", output, "calc.evaluate {\"expression\": \"1/3 + 1/6\"}"]);
        assert!(ran.code == Some(0) && ran.stdout.contains("1/2") == has_plugins, "{ran:?}");
    }
    // Each setting that is commented out can be enabled.
    let written = folder.read("agent.toml");
    let enabled = written.replace("\n#model = \"ollama", "\nmodel = \"ollama").replace("\n#[", "\n[");
    folder.write("agent.toml", &enabled.replace("\n#read", "\nread").replace("plugins.files", "plugins.calc"));
    let checked = folder.run(&["config", "check"]);
    assert!(checked.stdout.contains("ollama/qwen3:8b") && checked.stdout.contains("read ."), "{checked:?}");
}

/// I2: The JSON schema accepts the file with every key, and rejects a file with a wrong value.
#[test]
fn i2_the_json_schema_accepts_every_key_and_rejects_wrong_values() {
    let folder = WorkingFolder::new(&[]);
    let printed = folder.run(&["config", "schema"]);
    assert_eq!(folder.run(&["config", "schema", "--output", "agent.schema.json"]).code, Some(0));
    assert_eq!(folder.read("agent.schema.json"), printed.stdout);
    let schema: Value = serde_json::from_str(&printed.stdout).unwrap();
    let validator = jsonschema::draft202012::new(&schema).unwrap();
    let template = folder.run(&["config", "init", "--full", "--output", "-"]).stdout;
    let is_accepted = |text: &str| {
        let table: toml::Table = text.parse().unwrap();
        validator.is_valid(&serde_json::to_value(table).unwrap())
    };
    assert!(is_accepted(&uncommented(&template)));
    assert!(!is_accepted(&uncommented(&template).replace("\nat_limit = \"error\"", "\nat_limit = \"stop\"")));
    assert_eq!(schema["properties"]["max_interactions"]["default"], 10);
}

/// I2: Several problems are reported together, each with its line, its key and the allowed values. No turn starts.
#[test]
fn i2_reports_all_problems_together() {
    let text = "modle = \"offline\"\nat_limit = \"stop\"\n\n[retry]\nattempts = 0\n\n[plugins.files]\nread = [\".\"]\n";
    let folder = WorkingFolder::new(&[("agent.toml", text)]);
    for line in [&["config", "check"][..], &["--agent", "agent.toml", "hi"]] {
        let result = folder.run(line);
        assert_eq!((result.code, result.stdout.as_str()), (Some(2), ""));
        for expected in [
            "agent.toml:1:1: unknown key `modle`",
            "did you mean `model`?",
            "agent.toml:2:12: `at_limit` has an unknown value",
            "allowed: \"finish\" or \"error\"",
            "agent.toml:5:12: `retry.attempts` is out of range",
            "allowed: a whole number from 1 to 20",
            "agent.toml:8:1: unknown key `plugins.files.read`",
            "`read` belongs in `[plugins.files.grants]`",
        ] {
            assert!(result.stderr.contains(expected), "`{expected}` is not in:\n{}", result.stderr);
        }
    }
    assert!(folder.run(&["session", "list"]).stderr.contains("no sessions"));
}

/// I2: `config check` reports the problems that it finds after the file is parsed. Each problem is reported once, in
/// line order, with its column and the text of its line.
#[test]
fn i2_config_check_reports_problems_of_every_stage() {
    let text = "model = \"opnai/large\"\nplugin_directory = \"plugins\"\ncontext_builder = \"projct\"\nvalidators = [\"calc\", \"strict\"]\n\
                output_schema = { type = \"object\" }\nfallback_text = \"no JSON\"\n\n\
                [outbox]\ndirectory = \"nowhere\"\n\n\
                [plugins.calc.grants]\nread = [\"absent\"]\nenv = [\"NOT_SET_HERE\"]\n\n\
                [plugins.calk.grants]\nread = [\".\"]\n\n\
                [approval.tools]\n\"calc.evalute\" = \"deny\"\n\n\
                [mcp.notes]\ncommand = \"notes\"\npass_env = [\"NOT_SET_EITHER\"]\n";
    let folder = WorkingFolder::new(&[("agent.toml", text)]);
    std::fs::copy(components().join("calc.wasm"), folder.path("plugins/calc.wasm")).unwrap();
    let result = folder.run(&["config", "check"]);
    assert_eq!((result.code, result.stdout.as_str()), (Some(2), ""));
    let mut from = 0;
    for expected in [
        "agent.toml:1:9: model: `opnai`",
        "  1 | model = \"opnai/large\"\n    |         ^^^^^^^^^^^^^",
        "agent.toml:3:19: `context_builder` names the plugin `projct`",
        "agent.toml:4:14: `validators` names the plugin calc@",
        "agent.toml:4:14: `validators` names the plugin `strict`",
        "agent.toml:6:17: `fallback_text` must be JSON",
        "agent.toml:9:13: outbox.directory: `nowhere` is not a folder",
        "agent.toml:12:8: plugins.calc.grants.read[0]",
        "agent.toml:13:7: plugins.calc.grants.env[0]",
        "agent.toml:15:1: plugins.calk: there is no plugin `calk`",
        "agent.toml:19:18: approval.tools.\"calc.evalute\": there is no tool `calc.evalute`",
        "agent.toml:23:12: mcp.notes.pass_env[0]: the environment variable `NOT_SET_EITHER` is not set",
    ] {
        let found = result.stderr[from..].find(expected);
        from += found.unwrap_or_else(|| panic!("`{expected}` is missing or out of order in:\n{}", result.stderr));
    }
}

/// M2: The error about a missing or malformed API key names the environment variable and suggests a fix. The error
/// never shows the key.
#[test]
fn m2_reads_keys_from_the_environment_only() {
    let text = "model = \"openai/gpt-4.1-mini\"\nfallback_models = [\"offline\", \"office/large\"]\n\n[providers.office]\n\
                base_url = \"http://127.0.0.1:9/v1\"\nkey_env = \"OFFICE_KEY\"\n";
    let folder = WorkingFolder::new(&[("agent.toml", text)]);
    let result = folder.run(&["--agent", "agent.toml", "hi"]);
    let expected = [
        "agent.toml:1: model: `openai/gpt-4.1-mini` needs a key, and the environment variable `OPENAI_API_KEY` is not set",
        "agent.toml:2: fallback_models[1]: `office/large` needs a key, and the environment variable `OFFICE_KEY` is not set \
         (named in agent.toml:6: providers.office.key_env)",
        "export OFFICE_KEY=",
    ];
    assert_eq!((result.code, result.stdout.as_str()), (Some(2), ""));
    expected.iter().for_each(|text| assert!(result.stderr.contains(text), "`{text}` is not in:\n{}", result.stderr));
    let keys = [("OPENAI_API_KEY", "sk-hunter2\n"), ("OFFICE_KEY", "")];
    let result = folder.run_with(&["config", "check"], &keys);
    assert_eq!(result.code, Some(2));
    for expected in ["`OPENAI_API_KEY` ends with a line break", "`OFFICE_KEY` is empty"] {
        assert!(result.stderr.contains(expected), "`{expected}` is not in:\n{}", result.stderr);
    }
    assert!(!result.stderr.contains("hunter2"), "{}", result.stderr);
    folder.write("agent.toml", "[providers.openai]\nkey = \"sk-hunter2\"\n");
    let result = folder.run(&["config", "check"]);
    assert!(result.code == Some(2) && result.stderr.contains("key_env"), "{result:?}");
    assert!(!result.stderr.contains("hunter2"), "{}", result.stderr);
}

/// I1: A mistyped command is an error. The host does not use a mistyped command as a prompt.
#[test]
fn i1_reports_mistyped_commands() {
    let folder = WorkingFolder::new(&[]);
    for (line, expected) in [
        (&["sesion", "list"][..], "did you mean `agent-host session`?"),
        (&["sessions", "list"], "did you mean `agent-host session`?"),
        (&["help"], "agent-host --help"),
        (&["server"], "agent-host serve"),
        (&["plugn"], "did you mean `agent-host plugin`?"),
    ] {
        let result = folder.run(line);
        assert_eq!((result.code, result.stdout.as_str()), (Some(2), ""), "{line:?}");
        assert!(result.stderr.contains(expected), "{line:?}: {}", result.stderr);
    }
    let usage = folder.run(&["-h"]).stdout;
    assert!(
        usage.contains("plugin|key|token|session|approvals|outbox|dead-letter|memory|store|config|audit COMMAND"),
        "{usage}"
    );
}

/// P6, I2: The host reports a denial once, below the call, and the offline router does not repeat it. If a command-line option names a
/// tool that does not exist, the host reports this and suggests a similar name.
#[test]
fn p6_reports_each_denial_once() {
    let folder = WorkingFolder::new(&[]);
    for name in ["files", "web"] {
        std::fs::copy(components().join(format!("{name}.wasm")), folder.path(&format!("plugins/{name}.wasm"))).unwrap();
    }
    let call = "files.write {\"path\": \"a.txt\", \"text\": \"x\"}";
    let result = folder.run(&[
        "--plugins",
        "plugins",
        "--grant",
        "files:read=.",
        "--yes",
        "files.wirte",
        "--yes",
        "files.write",
        call,
    ]);
    assert!(!result.stderr.contains("(plugin "), "{}", result.stderr);
    assert_eq!(result.stderr.matches("is not granted opening").count(), 1, "{}", result.stderr);
    assert!(!result.stdout.contains("is not granted"), "{}", result.stdout);
    assert!(
        result.stderr.contains("--yes files.wirte: there is no such tool; did you mean `files.write`?"),
        "{result:?}"
    );
    let listed = folder.run(&["plugin", "list", "plugins"]);
    assert!(listed.stdout.contains("[plugins.web.secrets] WEB_TOKEN = "), "{}", listed.stdout);
    folder.write("service.toml", "name = \"clerk\"\n");
    let listed = folder.run(&["plugin", "list", "--agent", "service.toml"]);
    assert!(listed.stderr.contains("has no plugins"), "{listed:?}");
    folder.write(
        "agent.toml",
        "plugin_directory = \"plugins\"\n[plugins.web.grants]\nhttp = [\"GETT https://a.example\"]\n",
    );
    let checked = folder.run(&["config", "check"]);
    assert!(checked.code == Some(0) && checked.stderr.contains("the method GETT"), "{checked:?}");
}

/// I2: Several agents can share a folder. Each agent has its own name and its own sessions.
#[test]
fn i2_agents_of_one_folder_have_their_own_sessions() {
    let folder = WorkingFolder::new(&[
        ("agent.toml", "instructions = \"one\"\n"),
        ("writer.toml", "instructions = \"two\"\n"),
        ("agents/three.toml", "name = \"reader\"\n"),
        ("agents/wrong.toml", "modle = 1\n"),
        ("Cargo.toml", "[package]\nname = \"no-agent\"\n"),
    ]);
    let listed = folder.run(&["config", "list"]);
    let listed: Vec<_> = listed.stdout.lines().map(|line| line.split("  ").take(2).collect::<Vec<_>>()).collect();
    let expected = [
        ["agent", "agent.toml"],
        ["writer", "writer.toml"],
        ["reader", "agents/three.toml"],
        ["wrong", "agents/wrong.toml"],
    ];
    assert_eq!(listed, expected);
    for (name, session) in [("agent", "work-"), ("writer", "writer-"), ("reader", "reader/")] {
        let result = folder.run(&["--agent", name, "hello"]);
        assert!(result.code == Some(0) && result.stderr.contains(&format!("session {session}")), "{result:?}");
    }
    let result = folder.run(&["--agent", "wirter", "hello"]);
    assert!(result.code == Some(2) && result.stderr.contains("Did you mean `writer`?"), "{result:?}");
    folder.write("agents/four.toml", "name = \"reader\"\n");
    let result = folder.run(&["--agent", "reader", "hello"]);
    assert!(result.code == Some(2) && result.stderr.contains("--agent agents/four.toml or --agent agents/three.toml"));
    assert_eq!(folder.run(&["--agent", "agents/three.toml", "--continue"]).code, Some(0));
}

/// The host mentions an `agent.toml` in the current folder but does not use it if the user has neither named nor trusted
/// it, because the file could contain any grants.
#[test]
fn i2_does_not_use_an_agent_file_that_was_not_named() {
    let folder = WorkingFolder::new(&[("agent.toml", "name = \"trap\"\n[host.grants]\nread = [\".\"]\n")]);
    let result = folder.run(&["read_file {\"path\": \"agent.toml\"}"]);
    assert_eq!((result.code, result.stdout.as_str()), (Some(2), ""));
    assert!(result.stderr.contains("--agent agent.toml uses it this time"), "{}", result.stderr);
    assert!(result.stderr.contains("`agent-host trust agent.toml`"), "{}", result.stderr);
}

/// In a pipe, the host does not search for a model and does not ask the user. If the environment contains an API key,
/// the host mentions its variable but does not use the key.
#[test]
fn m2_an_api_key_alone_selects_no_model() {
    let folder = WorkingFolder::new(&[]);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let environment = [("OPENAI_API_KEY", "sk-hunter2"), ("OPENAI_BASE_URL", url.as_str())];
    let result = folder.run_with(&["--plugins", "plugins", "hello"], &environment);
    assert!(result.code == Some(0) && result.stdout.contains("not a language model"), "{result:?}");
    assert!(result.stderr.contains("--model openai/") && !result.stderr.contains("hunter2"), "{result:?}");
    assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock, "no request may reach the server");
    let result = folder.run_with(&["--plugins", "plugins", "--model", "offline", "hello"], &environment);
    assert!(result.code == Some(0) && !result.stderr.contains("OPENAI_API_KEY"), "{result:?}");
}

/// A model server that lists some models and returns the same reply to every chat request. The server records the
/// method, path, key and model of each request.
struct ModelServer {
    url: String,
    requests: Arc<Mutex<Vec<String>>>,
}

impl ModelServer {
    fn start(models: &[&str]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        let list = json!({ "object": "list", "data": models.iter().map(|id| json!({ "id": id })).collect::<Vec<_>>() });
        let requests: Arc<Mutex<Vec<String>>> = Arc::default();
        let recorder = requests.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let request = answer(stream.unwrap(), &list);
                recorder.lock().unwrap().extend(request);
            }
        });
        Self { url, requests }
    }

    fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

/// Reads and answers one request. Returns the request's method, path, key and model, or `None` if the connection closes
/// without a request.
fn answer(stream: TcpStream, list: &Value) -> Option<String> {
    let mut lines = BufReader::new(stream.try_clone().unwrap());
    let mut head = Vec::new();
    loop {
        let mut line = String::new();
        if lines.read_line(&mut line).ok()? == 0 {
            return None;
        }
        match line.trim_end() {
            "" => break,
            line => head.push(line.to_owned()),
        }
    }
    let header = |name: &str| {
        let line = head.iter().find(|line| line.to_lowercase().starts_with(&format!("{name}:")))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let mut body = vec![0; header("content-length").map_or(0, |length| length.parse().unwrap())];
    lines.read_exact(&mut body).ok()?;
    let (kind, text) = if head[0].starts_with("GET") {
        ("application/json", list.to_string())
    } else {
        let chunk = json!({ "choices": [{ "index": 0, "delta": { "content": "four" }, "finish_reason": "stop" }] });
        let usage = json!({ "choices": [], "usage": { "prompt_tokens": 1000, "completion_tokens": 500 } });
        ("text/event-stream", format!("data: {chunk}\n\ndata: {usage}\n\ndata: [DONE]\n\n"))
    };
    let head_out = "HTTP/1.1 200 OK\r\nconnection: close";
    let reply = format!("{head_out}\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n{text}", text.len());
    (&stream).write_all(reply.as_bytes()).ok()?;
    let model = serde_json::from_slice::<Value>(&body).ok().and_then(|body| Some(body["model"].as_str()?.to_owned()));
    let key = header("authorization").unwrap_or_else(|| "no key".to_owned());
    Some(format!("{} {key} {}", head[0].split(' ').take(2).collect::<Vec<_>>().join(" "), model.unwrap_or_default()))
}

/// M2: If the server at a base URL has one model, the host uses that model and reports it. If the server has several
/// models, the user must name one of them.
#[test]
fn m2_a_base_url_selects_its_only_model() {
    let folder = WorkingFolder::new(&[]);
    let run = |arguments: &[&str], environment: &[(&str, &str)]| {
        folder.run_with(&[&["--plugins", "plugins"], arguments, &["What is 2 + 2?"]].concat(), environment)
    };
    let single_model = ModelServer::start(&["Qwen/Qwen3-8B"]);
    let result = run(&["--base-url", &single_model.url], &[]);
    assert_eq!((result.code, result.stdout.trim()), (Some(0), "four"), "{result:?}");
    assert!(
        result.stderr.contains(&format!("the model is `Qwen/Qwen3-8B`, the only one at {}", single_model.url)),
        "{result:?}"
    );
    assert_eq!(single_model.requests(), ["GET /v1/models no key ", "POST /v1/chat/completions no key Qwen/Qwen3-8B"]);
    let several_models = ModelServer::start(&["small", "large"]);
    let result = run(&["--base-url", &several_models.url], &[]);
    assert_eq!((result.code, result.stdout.as_str()), (Some(2), ""));
    assert!(result.stderr.contains("--model small") && result.stderr.contains("--model large"), "{result:?}");
    let result = run(&["--base-url", &several_models.url, "--model", "large"], &[("OPENAI_API_KEY", "k1")]);
    assert_eq!((result.code, result.stdout.trim()), (Some(0), "four"), "{result:?}");
    assert_eq!(several_models.requests().last().unwrap(), "POST /v1/chat/completions Bearer k1 large");
    let empty = ModelServer::start(&[]);
    assert!(run(&["--base-url", &empty.url], &[]).stderr.contains("has no model"));
    let unused_address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let result = run(&["--base-url", &format!("http://{unused_address}/v1")], &[]);
    assert!(result.code == Some(2) && result.stderr.contains("check that the server is running"), "{result:?}");
}

/// M2, M3: The server receives the API key that the agent file configures for its provider. If a model cannot be
/// reached, the next model is used.
#[test]
fn m2_uses_a_provider_from_the_file() {
    let server = ModelServer::start(&["large"]);
    let unused_address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let text = format!(
        "model = \"gone/small\"\nfallback_models = [\"office/large\"]\n[retry]\nattempts = 1\n\
         [providers.gone]\nbase_url = \"http://{unused_address}/v1\"\n\
         [providers.office]\nbase_url = \"{}\"\nkey_env = \"OFFICE_KEY\"\n",
        server.url
    );
    let folder = WorkingFolder::new(&[("agent.toml", &text)]);
    let result = folder.run_with(&["--agent", "agent.toml", "What is 2 + 2?"], &[("OFFICE_KEY", "k2")]);
    assert_eq!((result.code, result.stdout.trim()), (Some(0), "four"), "{result:?}");
    assert_eq!(server.requests(), ["POST /v1/chat/completions Bearer k2 large"]);
}

/// D1, M2: The costs of a session, which follow from the configured prices, are shown in lists and are stored.
#[test]
fn d1_the_costs_of_a_session_are_stored_and_shown() {
    let server = ModelServer::start(&["large"]);
    let text = format!(
        "model = \"office/large\"\n[providers.office]\nbase_url = \"{}\"\n\
         [providers.office.models.large]\nprompt_price = 2.0\ncompletion_price = 10.0\n",
        server.url
    );
    let folder = WorkingFolder::new(&[("agent.toml", &text)]);
    let result = folder.run(&["--agent", "agent.toml", "What is 2 + 2?"]);
    assert!(result.stderr.contains("1 model call, 1,000 + 500 tokens, $0.0070"), "{result:?}");
    let result = folder.run(&["--agent", "agent.toml", "--continue", "What is 1 + 3?"]);
    assert_eq!(result.code, Some(0), "{result:?}");
    let result = folder.run(&["session", "list"]);
    assert!(result.stdout.contains("2 turns, $0.0140, "), "{result:?}");
    let listed = folder.run(&["session", "list", "--json"]);
    let listed: Value = serde_json::from_str(listed.stdout.trim()).unwrap();
    let usage = json!({"model_calls": 2, "prompt_tokens": 2000, "completion_tokens": 1000, "cost": {"nanodollars": 14_000_000}});
    assert_eq!(listed["usage"], usage);
    let result = folder.run(&["session", "show"]);
    assert!(result.stdout.contains("used 2 model calls, 2,000 + 1,000 tokens, $0.0140"), "{result:?}");
    assert_eq!(result.stdout.matches("answered · 1 model call, 1,000 + 500 tokens, $0.0070").count(), 2, "{result:?}");
    let result = folder.run(&["store", "check"]);
    assert!(result.stdout.contains("✓ the usage of turns: 2 turns"), "{result:?}");
}

/// D1: A command prints the request of a model call as it was sent. For a model that is not called over HTTP, it prints
/// the request in the host's own format.
#[test]
fn d1_the_request_of_a_model_call_is_printed() {
    let server = ModelServer::start(&["large"]);
    let text = format!("model = \"office/large\"\n[providers.office]\nbase_url = \"{}\"\n", server.url);
    let folder = WorkingFolder::new(&[("agent.toml", &text)]);
    assert_eq!(folder.run(&["--agent", "agent.toml", "What is 2 + 2?"]).code, Some(0));
    let result = folder.run(&["session", "show", "--request", "1.1"]);
    let body: Value = serde_json::from_str(&result.stdout).unwrap();
    assert_eq!((&body["model"], &body["messages"][1]["content"]), (&json!("large"), &json!("What is 2 + 2?")));
    assert!(
        result.stderr.contains("request 1.1 to office/large, ") && result.stderr.contains("exactly as it was sent")
    );
    for (number, expected) in
        [("1.2", "no record of model call 2 of turn 1"), ("3", "no record of a model call in turn 3"), ("0", "`2.3`")]
    {
        let result = folder.run(&["session", "show", "--request", number]);
        assert!(result.code == Some(2) && result.stderr.contains(expected), "{number}: {result:?}");
    }
    assert_eq!(folder.run(&["--plugins", "plugins", "hello"]).code, Some(0));
    let result = folder.run(&["session", "show", "--request", "1"]);
    let request: Value = serde_json::from_str(&result.stdout).unwrap();
    assert_eq!(request["model"]["provider"], "offline", "{result:?}");
    assert!(result.stderr.contains("in the host's own format"), "{result:?}");
}

/// M2: An invalid model name is refused, and the error lists the valid forms of model names.
#[test]
fn m2_refuses_invalid_model_names() {
    let folder = WorkingFolder::new(&[]);
    let run = |arguments: &[&str]| {
        let command_arguments = [&["--plugins", "plugins"], arguments, &["hello"]].concat();
        folder.run(&command_arguments)
    };
    for (arguments, expected) in [
        (&["--model", "opnai/gpt"][..], "Did you mean `openai/gpt`?"),
        (&["--model", "gpt-9"], "`gpt-9` does not name a provider"),
        (&["--model", "openai/"], "names a provider but no model"),
        (&["--model", "offline", "--base-url", "http://127.0.0.1:9/v1"], "--base-url"),
        (&["--base-url", "127.0.0.1:9"], "http://127.0.0.1:8000/v1"),
        (&["--base-url", "http://me:hunter2@127.0.0.1:9/v1"], "must not be written into an address"),
    ] {
        let result = run(arguments);
        assert!(result.code == Some(2) && result.stderr.contains(expected), "{arguments:?}: {result:?}");
    }
}
