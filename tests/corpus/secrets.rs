//! Row 16: credentials stay with the host: what a plugin, a model server or a person at the terminal gets to see never holds
//! one, nor does anything that is stored or logged.

use crate::scene::{Scene, alone};
use crate::server::{Server, head};
use crate::support::{calling, components, saying, script};
use serde_json::{Value, json};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

/// What is looked for: no line, file or answer may hold it.
const TOKEN: &str = "tk-canary-5d1c77e0a4f94b6e";
const KEY: &str = "sk-canary-90b2a8f1c3e64d57";

/// A server that repeats whatever it is sent, with this status, and keeps it.
fn echo(status: &'static str) -> (Server, Arc<Mutex<String>>) {
    let kept = Arc::new(Mutex::new(String::new()));
    let seen = Arc::clone(&kept);
    let server = Server::new(move |mut stream| {
        let Some(said) = head(&mut stream) else { return };
        let token = said.lines().find_map(|line| line.split_once("earer ")).map_or("none", |(_, token)| token.trim());
        let answer = format!(
            "HTTP/1.1 {status}\r\nx-echo: {token}\r\ncontent-type: text/plain\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{said}",
            said.len()
        );
        let _ = stream.write_all(answer.as_bytes());
        seen.lock().unwrap().push_str(&said);
    });
    (server, kept)
}

struct Desk<'a> {
    folder: &'a Path,
    said: Vec<(String, Vec<u8>)>,
}

impl Desk<'_> {
    /// Runs the binary, and keeps what it says.
    fn run(&mut self, arguments: &[&str]) -> String {
        let mut command = Command::new(env!("CARGO_BIN_EXE_agent-host"));
        command.current_dir(self.folder).args(arguments).args(["--data", "data"]).stdin(Stdio::null());
        let output = command.env("HARBOUR_TOKEN", TOKEN).env("OPENAI_API_KEY", KEY).output().unwrap();
        let shown = arguments.join(" ");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        self.said.push((format!("stderr of {shown}"), output.stderr));
        self.said.push((format!("stdout of {shown}"), output.stdout));
        text
    }

    /// Panics where a credential is found, as it is or in the forms in which it travels.
    fn searched(&self) {
        use base64::Engine;
        let mut all = self.said.clone();
        let mut open = vec![self.folder.join("data")];
        while let Some(path) = open.pop() {
            if path.is_dir() {
                open.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            } else {
                all.push((path.display().to_string(), std::fs::read(&path).unwrap()));
            }
        }
        for credential in [TOKEN, KEY] {
            let forms = [credential.to_owned(), base64::engine::general_purpose::STANDARD.encode(credential)];
            for (place, bytes) in &all {
                let found = forms.iter().any(|form| bytes.windows(form.len()).any(|window| window == form.as_bytes()));
                assert!(!found, "{credential} is in {place}: {}", String::from_utf8_lossy(bytes));
            }
        }
    }
}

/// Row 16: a secret for requests, and a model's key, with servers that repeat them in bodies, headers and errors; nothing that is
/// printed with all details, shown, exported, audited or stored holds one.
#[test]
fn row_16_credentials_are_nowhere() {
    alone(async {
        let scene = Scene::new(&["intruder"]).await;
        let (ok, seen) = echo("200 OK");
        let (refusing, asked) = echo("401 Unauthorized");
        let attack = async |time| {
            let folder = scene.folder().join(format!("desk-{time}"));
            std::fs::create_dir_all(folder.join("plugins")).unwrap();
            std::fs::copy(components().join("intruder.wasm"), folder.join("plugins/intruder.wasm")).unwrap();
            let replies = [
                calling(&[
                    ("intruder.get", json!({"url": ok.url("/page?key=1")})),
                    ("intruder.world", json!({})),
                    ("intruder.get", json!({"url": refusing.url("/denied")})),
                ]),
                saying("Done."),
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
            let mut desk = Desk { folder: &folder, said: Vec::new() };
            let events = desk.run(&["--agent", "agent.toml", "-vv", "--json", "Go."]);
            assert!(events.contains("loop_end"), "{events} {:?}", desk.said);
            let begun = events.lines().find(|line| line.contains("\"tool_call\"")).expect("calls are events");
            let call = serde_json::from_str::<Value>(begun).unwrap()["call"].as_str().unwrap().to_owned();
            let masked = events.matches(&format!("earer {}", "*".repeat(TOKEN.len()))).count();
            assert_eq!(masked, 2, "the guest was answered, and the host has covered it: {events}");
            assert!(events.contains("{\\\"variables\\\":[],"), "no plugin sees the host's environment: {events}");
            let base = refusing.url("/v1");
            desk.run(&[
                "--agent",
                "agent.toml",
                "-vv",
                "--json",
                "--base-url",
                &base,
                "--model",
                "openai/gpt-x",
                "Go.",
            ]);
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
                desk.run(arguments);
            }
            desk.searched();
            std::fs::remove_dir_all(&folder).unwrap();
        };
        scene.repeat("row 16", attack).await;
        assert!(seen.lock().unwrap().contains(TOKEN), "the server gets it");
        assert!(asked.lock().unwrap().contains(KEY) && asked.lock().unwrap().contains(TOKEN), "so does this one");
    });
}

/// Row 8: what a guest prints and logs reaches a terminal without its escape codes.
#[test]
fn row_8_escape_codes() {
    alone(async {
        let data = tempfile::tempdir().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_agent-host"));
        command.args(["-v", "plugin", "call"]).arg(components().join("probe.wasm"));
        command.args(["probe.log", "{\"lines\": 20}"]).arg("--data").arg(data.path()).env("NO_COLOR", "1");
        let output = command.stdin(Stdio::null()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.contains("line 19"), "{said}");
        assert!(!said.chars().any(|char| char.is_control() && char != '\n'), "{said:?}");
    });
}
