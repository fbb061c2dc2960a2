//! A client of the Model Context Protocol over standard input and output, which sends exactly the messages of a test.

use crate::support::SharedCompiledCode;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// Maximum time that a test waits for a message.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// The version of the protocol with a handshake.
pub(super) const WITH_HANDSHAKE: &str = "2025-11-25";
/// The version of the protocol without a handshake.
pub(super) const STATELESS: &str = "2026-07-28";

/// A running `agent-host mcp`, and the client that started it.
pub(super) struct StdioClient {
    child: Child,
    input: Option<ChildStdin>,
    messages: Receiver<Value>,
    version: &'static str,
    capabilities: Value,
    next_id: u64,
    /// Messages that arrived while the client waited for another message.
    pub(super) unread: Vec<Value>,
    _compiled: SharedCompiledCode,
}

/// Returns the command `agent-host` with this data folder.
pub(super) fn agent_host(data: &Path) -> Command {
    let mut command = crate::support::agent_host();
    command.env("AGENT_HOST_DATA", data).current_dir(data.parent().expect("a parent"));
    command
}

impl StdioClient {
    /// Starts `agent-host mcp` with these arguments, and begins with the handshake if the version has one.
    pub(super) fn start(data: &Path, arguments: &[&str], version: &'static str, capabilities: Value) -> Self {
        let compiled = SharedCompiledCode::in_data(data);
        let mut command = agent_host(data);
        command.arg("mcp").args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = command.spawn().expect("agent-host starts");
        let (output, input) = (child.stdout.take().expect("a pipe"), child.stdin.take());
        let (sender, messages) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let message = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        let mut client =
            Self { child, input, messages, version, capabilities, next_id: 0, unread: Vec::new(), _compiled: compiled };
        if version == WITH_HANDSHAKE {
            let info = json!({"name": "test", "version": "1"});
            let capabilities = client.capabilities.clone();
            let params = json!({"protocolVersion": version, "capabilities": capabilities, "clientInfo": info});
            let answer = client.request("initialize", params);
            assert_eq!(answer["result"]["protocolVersion"], json!(version), "{answer}");
            client.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        }
        client
    }

    /// Sends a message.
    pub(super) fn send(&mut self, message: &Value) {
        self.write(format!("{message}\n").as_bytes());
    }

    /// Sends bytes. The server may have closed its input.
    pub(super) fn write(&mut self, bytes: &[u8]) {
        if let Some(input) = &mut self.input {
            let _ = input.write_all(bytes).and_then(|()| input.flush());
        }
    }

    /// Sends a request without waiting for its answer, and returns its id.
    pub(super) fn begin(&mut self, method: &str, mut params: Value) -> u64 {
        self.next_id += 1;
        if self.version == STATELESS {
            let meta = params.as_object_mut().expect("an object").entry("_meta").or_insert_with(|| json!({}));
            meta["io.modelcontextprotocol/protocolVersion"] = json!(self.version);
            meta["io.modelcontextprotocol/clientInfo"] = json!({"name": "test", "version": "1"});
            meta["io.modelcontextprotocol/clientCapabilities"] = self.capabilities.clone();
        }
        let id = self.next_id;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        id
    }

    /// Sends a request, and returns the answer.
    pub(super) fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.begin(method, params);
        self.answer(id)
    }

    /// Waits for the answer to a request.
    pub(super) fn answer(&mut self, id: u64) -> Value {
        self.wait(|message| message["id"] == json!(id) && message.get("method").is_none())
    }

    /// Waits for the answer to a request with this id.
    pub(super) fn incoming_answer(&mut self, id: &str) -> Value {
        self.wait(|message| message["id"] == json!(id))
    }

    /// Waits for a request or a notification of the server.
    pub(super) fn incoming(&mut self, method: &str) -> Value {
        self.wait(|message| message["method"] == json!(method))
    }

    fn wait(&mut self, is_expected: impl Fn(&Value) -> bool) -> Value {
        if let Some(position) = self.unread.iter().position(&is_expected) {
            return self.unread.remove(position);
        }
        loop {
            let message = self.messages.recv_timeout(PATIENCE);
            let message = message.unwrap_or_else(|_| panic!("the message did not arrive; unread: {:?}", self.unread));
            if is_expected(&message) {
                return message;
            }
            self.unread.push(message);
        }
    }

    /// Calls a tool, and returns the result.
    pub(super) fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let answer = self.request("tools/call", json!({"name": tool, "arguments": arguments}));
        answer.get("result").unwrap_or_else(|| panic!("{answer}")).clone()
    }

    /// Closes the input of the server, and returns whether the server then exits successfully.
    pub(super) fn close(mut self) -> bool {
        self.input = None;
        let until = std::time::Instant::now() + PATIENCE;
        while std::time::Instant::now() < until {
            if let Some(status) = self.child.try_wait().expect("the process exists") {
                return status.success();
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("agent-host did not exit after its input was closed");
    }
}

impl Drop for StdioClient {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the text of a result.
pub(super) fn text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{result}"))
}
