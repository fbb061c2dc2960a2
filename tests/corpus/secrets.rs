//! Row 16: Only the host knows the credentials. The credentials do not reach plugins, users at the terminal, stored
//! data or logs.

use crate::scene::{Scene, run_exclusively};
use crate::server::{Server, head};
use crate::support::{agent_host, call_reply, components, script, text_reply};
use serde_json::{Value, json};
use std::io::Write;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex};

/// The credentials that no line of output, file or response may contain.
const TOKEN: &str = "tk-canary-5d1c77e0a4f94b6e";
const KEY: &str = "sk-canary-90b2a8f1c3e64d57";

/// Starts a server that answers each request with this status and a copy of the request. The server also records
/// the requests.
fn echo(status: &'static str) -> (Server, Arc<Mutex<String>>) {
    let requests = Arc::new(Mutex::new(String::new()));
    let recorder = Arc::clone(&requests);
    let server = Server::new(move |mut stream| {
        let Some(request) = head(&mut stream) else { return };
        let token =
            request.lines().find_map(|line| line.split_once("earer ")).map_or("none", |(_, token)| token.trim());
        let answer = format!(
            "HTTP/1.1 {status}\r\nx-echo: {token}\r\ncontent-type: text/plain\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{request}",
            request.len()
        );
        let _ = stream.write_all(answer.as_bytes());
        recorder.lock().unwrap().push_str(&request);
    });
    (server, requests)
}

struct TestCli<'a> {
    folder: &'a Path,
    outputs: Vec<(String, Vec<u8>)>,
}

impl TestCli<'_> {
    /// Runs the binary, returns its stdout, and stores its output for `check_no_credentials`.
    fn run(&mut self, arguments: &[&str]) -> String {
        let mut command = agent_host();
        command.current_dir(self.folder).args(arguments).args(["--data", "data"]).stdin(Stdio::null());
        let output = command.env("HARBOUR_TOKEN", TOKEN).env("OPENAI_API_KEY", KEY).output().unwrap();
        let command_line = arguments.join(" ");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        self.outputs.push((format!("stderr of {command_line}"), output.stderr));
        self.outputs.push((format!("stdout of {command_line}"), output.stdout));
        text
    }

    /// Panics if an output or a file in the data folder contains a credential, as plain text or in Base64.
    fn check_no_credentials(&self) {
        use base64::Engine;
        let mut sources = self.outputs.clone();
        let mut open = vec![self.folder.join("data")];
        while let Some(path) = open.pop() {
            if path.is_dir() {
                open.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            } else {
                sources.push((path.display().to_string(), std::fs::read(&path).unwrap()));
            }
        }
        for credential in [TOKEN, KEY] {
            let encodings = [credential.to_owned(), base64::engine::general_purpose::STANDARD.encode(credential)];
            for (source, bytes) in &sources {
                let found =
                    encodings.iter().any(|text| bytes.windows(text.len()).any(|window| window == text.as_bytes()));
                assert!(!found, "{credential} is in {source}: {}", String::from_utf8_lossy(bytes));
            }
        }
    }
}

/// Row 16: Servers return the secret that a plugin's requests contain, and a model server returns the API key. The
/// secret and the API key occur in bodies, headers and errors. No output of the program, no exported session, no audit
/// entry and no stored file contains the secret or the API key.
#[test]
fn row_16_credentials_are_in_no_output_or_file() {
    run_exclusively(async {
        let scene = Scene::new(&["intruder"]).await;
        let (ok, requests) = echo("200 OK");
        let (refusing, received) = echo("401 Unauthorized");
        let attack = async |repeat| {
            let folder = scene.folder().join(format!("desk-{repeat}"));
            std::fs::create_dir_all(folder.join("plugins")).unwrap();
            std::fs::copy(components().join("intruder.wasm"), folder.join("plugins/intruder.wasm")).unwrap();
            let replies = [
                call_reply(&[
                    ("intruder.get", json!({"url": ok.url("/page?key=1")})),
                    ("intruder.world", json!({})),
                    ("intruder.get", json!({"url": refusing.url("/denied")})),
                ]),
                text_reply("Done."),
            ];
            std::fs::write(folder.join("script.json"), script(&replies).to_string()).unwrap();
            let agent = format!(
                "name = \"desk\"\nmodel = \"scripted:script.json\"\nplugin_directory = \"plugins\"\n\
                 [plugins.intruder.grants]\nhttp = [\"GET http://{0}\", \"GET http://{1}\"]\n\
                 [plugins.intruder.secrets.INTRUDER_TOKEN]\nenv = \"HARBOUR_TOKEN\"\n\
                 hosts = [\"http://{0}\", \"http://{1}\"]\n",
                ok.address, refusing.address
            );
            std::fs::write(folder.join("agent.toml"), agent).unwrap();
            let mut cli = TestCli { folder: &folder, outputs: Vec::new() };
            let events = cli.run(&["--agent", "agent.toml", "-vv", "--json", "Go."]);
            assert!(events.contains("loop_end"), "{events} {:?}", cli.outputs);
            let tool_call = events.lines().find(|line| line.contains("\"tool_call\"")).expect("calls are events");
            let call = serde_json::from_str::<Value>(tool_call).unwrap()["call"].as_str().unwrap().to_owned();
            let masked = events.matches(&format!("earer {}", "*".repeat(TOKEN.len()))).count();
            assert_eq!(masked, 2, "the guest received both answers, with the token masked: {events}");
            assert!(events.contains("{\\\"variables\\\":[],"), "no plugin sees the host's environment: {events}");
            let base = refusing.url("/v1");
            cli.run(&["--agent", "agent.toml", "-vv", "--json", "--base-url", &base, "--model", "openai/gpt-x", "Go."]);
            for arguments in [
                &["session", "show", "desk"][..],
                &["session", "show", "desk", "--json"],
                &["session", "show", "desk", "--call", &call],
                &["session", "export", "desk"],
                &["session", "list", "--json"],
                &["audit", "--json"],
                &["config", "check", "--agent", "agent.toml"],
                &["plugin", "explain", "plugins/intruder.wasm", "--agent", "agent.toml"],
            ] {
                cli.run(arguments);
            }
            cli.check_no_credentials();
            std::fs::remove_dir_all(&folder).unwrap();
        };
        scene.repeat("row 16", attack).await;
        assert!(requests.lock().unwrap().contains(TOKEN), "the first server received the token");
        assert!(
            received.lock().unwrap().contains(KEY) && received.lock().unwrap().contains(TOKEN),
            "the second server received the key and the token"
        );
    });
}

/// Row 8: The host removes escape codes from a guest's output and logs before it prints them.
#[test]
fn row_8_removes_escape_codes() {
    run_exclusively(async {
        let data = tempfile::tempdir().unwrap();
        let mut command = agent_host();
        command.args(["-v", "plugin", "call"]).arg(components().join("probe.wasm"));
        command.args(["probe.log", "{\"lines\": 20}"]).arg("--data").arg(data.path()).env("NO_COLOR", "1");
        let output = command.stdin(Stdio::null()).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && stderr.contains("line 19"), "{stderr}");
        assert!(!stderr.chars().any(|char| char.is_control() && char != '\n'), "{stderr:?}");
    });
}
