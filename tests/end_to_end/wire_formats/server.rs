//! A model server on the loopback interface that speaks all wire formats. It keeps the bodies of all requests, and a
//! function of the test writes its replies.

use agent_models::{ModelConfig, Protocol, ProviderConfig, Providers, Secret, Timeouts};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// A reply, independent of the wire format.
#[derive(Clone, Debug, Default)]
pub(super) struct ScriptedReply {
    pub(super) thinking: &'static str,
    /// Data that the host must send back to the provider together with the reply, such as the signature of the
    /// thinking. The server sends this data only together with thinking.
    pub(super) signature: String,
    pub(super) text: String,
    pub(super) calls: Vec<(&'static str, Value)>,
    /// The status of a response without a reply.
    pub(super) error: Option<u16>,
}

/// A request that the server has received.
#[derive(Clone, Debug)]
pub(super) struct Received {
    pub(super) protocol: Protocol,
    /// The path and the query of the address.
    pub(super) path: String,
    /// The headers, with names in lower case.
    pub(super) headers: BTreeMap<String, String>,
    pub(super) bytes: Vec<u8>,
}

impl Received {
    pub(super) fn json(&self) -> Value {
        serde_json::from_slice(&self.bytes).expect("the body is JSON")
    }

    pub(super) fn text(&self) -> &str {
        std::str::from_utf8(&self.bytes).expect("the body is text")
    }
}

/// Writes the reply to a request. The first argument is the number of the request, counted from 0.
type Respond = dyn Fn(usize, &Received) -> ScriptedReply + Send + Sync;

/// The server, which stops when this value is dropped.
pub(super) struct FormatServer {
    pub(super) address: String,
    received: Arc<Mutex<Vec<Received>>>,
    accepting: JoinHandle<()>,
}

impl FormatServer {
    pub(super) async fn start(respond: impl Fn(usize, &Received) -> ScriptedReply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("loopback");
        let address = listener.local_addr().expect("an address").to_string();
        let received = Arc::new(Mutex::new(Vec::new()));
        let respond: Arc<Respond> = Arc::new(respond);
        let accepting = tokio::spawn({
            let received = received.clone();
            async move {
                while let Ok((connection, _)) = listener.accept().await {
                    tokio::spawn(serve(connection, received.clone(), respond.clone()));
                }
            }
        });
        Self { address, received, accepting }
    }

    /// Returns all requests so far.
    pub(super) fn received(&self) -> Vec<Received> {
        self.received.lock().expect("no panic").clone()
    }

    /// Configures one provider for each wire format. The providers have the names of the formats.
    pub(super) fn providers(&self, window: Option<u32>) -> Providers {
        let configs = Protocol::ALL.map(|protocol| {
            let model = ModelConfig { window, ..ModelConfig::default() };
            ProviderConfig {
                name: protocol.to_string(),
                base_url: format!("http://{}/v1", self.address),
                key: Some(Secret::new("test-key")),
                key_advice: String::new(),
                headers: Vec::new(),
                protocol,
                timeouts: Timeouts::default(),
                models: BTreeMap::from([(model_name(protocol).to_owned(), model)]),
            }
        });
        Providers::new(configs.into())
    }
}

/// The name of a model that the media policies know, in the family that uses the wire format.
pub(super) fn model_name(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::ChatCompletions => "gpt-4o",
        Protocol::Responses => "gpt-5",
        Protocol::Anthropic => "claude-opus-4-5",
        Protocol::Gemini => "gemini-2.5-pro",
    }
}

impl Drop for FormatServer {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn serve(connection: TcpStream, received: Arc<Mutex<Vec<Received>>>, respond: Arc<Respond>) {
    let mut connection = BufReader::new(connection);
    while let Some(request) = read(&mut connection).await {
        let reply = {
            let mut received = received.lock().expect("no panic");
            received.push(request.clone());
            respond(received.len() - 1, &request)
        };
        let (status, kind, body) = match reply.error {
            Some(status) => (status, "application/json", json!({"error": {"message": "scripted"}}).to_string()),
            None => (200, "text/event-stream", stream(request.protocol, &reply)),
        };
        let head = format!("HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n", body.len());
        if connection.write_all((head + &body).as_bytes()).await.is_err() {
            return;
        }
    }
}

async fn read(connection: &mut BufReader<TcpStream>) -> Option<Received> {
    let (mut path, mut headers) = (None, BTreeMap::new());
    loop {
        let mut line = String::new();
        if connection.read_line(&mut line).await.ok()? == 0 {
            return None;
        }
        if line.trim().is_empty() {
            break;
        }
        path.get_or_insert_with(|| line.split(' ').nth(1).unwrap_or_default().to_owned());
        if let Some((name, value)) = line.split_once(':') {
            headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
        }
    }
    let mut bytes = vec![0; headers.get("content-length")?.parse().ok()?];
    connection.read_exact(&mut bytes).await.ok()?;
    let path: String = path?;
    let protocol = match path.rsplit('/').next()? {
        "completions" => Protocol::ChatCompletions,
        "responses" => Protocol::Responses,
        "messages" => Protocol::Anthropic,
        action if action.contains(":streamGenerateContent") => Protocol::Gemini,
        other => panic!("an unknown path: {other}"),
    };
    Some(Received { protocol, path, headers, bytes })
}

fn stream(protocol: Protocol, reply: &ScriptedReply) -> String {
    let events = match protocol {
        Protocol::ChatCompletions => chat_completions(reply),
        Protocol::Responses => responses(reply),
        Protocol::Anthropic => anthropic(reply),
        Protocol::Gemini => gemini(reply),
    };
    let mut stream: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
    if protocol == Protocol::ChatCompletions {
        stream.push_str("data: [DONE]\n\n");
    }
    stream
}

fn chat_completions(reply: &ScriptedReply) -> Vec<Value> {
    let chunk = |delta: Value, finish: Option<&str>| {
        json!({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "served",
            "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})
    };
    let mut events = Vec::new();
    if !reply.thinking.is_empty() {
        events.push(chunk(json!({"reasoning_content": reply.thinking}), None));
    }
    events.push(chunk(json!({"content": reply.text}), None));
    for (index, (name, arguments)) in reply.calls.iter().enumerate() {
        let function = json!({"name": name, "arguments": arguments.to_string()});
        let call = json!({"index": index, "id": format!("c{index}-{}", reply.signature), "type": "function", "function": function});
        events.push(chunk(json!({"tool_calls": [call]}), None));
    }
    events.push(chunk(json!({}), Some(if reply.calls.is_empty() { "stop" } else { "tool_calls" })));
    events.push(json!({"choices": [], "usage": {"prompt_tokens": 20, "completion_tokens": 5}}));
    events
}

fn responses(reply: &ScriptedReply) -> Vec<Value> {
    let mut items = Vec::new();
    if !reply.thinking.is_empty() {
        let summary = json!([{"type": "summary_text", "text": reply.thinking}]);
        items.push(json!({"type": "reasoning", "id": format!("rs_{}", reply.signature), "summary": summary,
            "encrypted_content": reply.signature}));
    }
    if !reply.text.is_empty() {
        let content = json!([{"type": "output_text", "text": reply.text, "annotations": []}]);
        items.push(json!({"type": "message", "id": "m", "role": "assistant", "status": "completed",
            "content": content}));
    }
    for (index, (name, arguments)) in reply.calls.iter().enumerate() {
        items.push(json!({"type": "function_call", "id": format!("fc_{index}"), "call_id": format!("c{index}-{}", reply.signature),
            "name": name, "arguments": arguments.to_string(), "status": "completed"}));
    }
    let mut events = vec![json!({"type": "response.created", "response": {"id": "r", "status": "in_progress"}})];
    for (index, item) in items.iter().enumerate() {
        if item["type"] == "message" {
            events.push(json!({"type": "response.output_text.delta", "output_index": index, "delta": reply.text}));
        }
        events.push(json!({"type": "response.output_item.done", "output_index": index, "item": item}));
    }
    events.push(json!({"type": "response.completed", "response": {"status": "completed", "output": items,
        "usage": {"input_tokens": 20, "output_tokens": 5}}}));
    events
}

fn anthropic(reply: &ScriptedReply) -> Vec<Value> {
    let mut blocks: Vec<(Value, Vec<Value>)> = Vec::new();
    if !reply.thinking.is_empty() {
        blocks.push((
            json!({"type": "thinking", "thinking": "", "signature": ""}),
            vec![
                json!({"type": "thinking_delta", "thinking": reply.thinking}),
                json!({"type": "signature_delta", "signature": reply.signature}),
            ],
        ));
    }
    if !reply.text.is_empty() {
        let delta = json!({"type": "text_delta", "text": reply.text});
        blocks.push((json!({"type": "text", "text": ""}), vec![delta]));
    }
    for (index, (name, arguments)) in reply.calls.iter().enumerate() {
        let block =
            json!({"type": "tool_use", "id": format!("toolu_{index}{}", reply.signature), "name": name, "input": {}});
        blocks.push((block, vec![json!({"type": "input_json_delta", "partial_json": arguments.to_string()})]));
    }
    let usage = json!({"input_tokens": 20, "output_tokens": 1});
    let message = json!({"id": "m", "type": "message", "role": "assistant", "content": [], "usage": usage});
    let mut events = vec![json!({"type": "message_start", "message": message})];
    for (index, (block, deltas)) in blocks.into_iter().enumerate() {
        events.push(json!({"type": "content_block_start", "index": index, "content_block": block}));
        let deltas = deltas.into_iter();
        events.extend(deltas.map(|delta| json!({"type": "content_block_delta", "index": index, "delta": delta})));
        events.push(json!({"type": "content_block_stop", "index": index}));
    }
    let reason = if reply.calls.is_empty() { "end_turn" } else { "tool_use" };
    events.push(json!({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 5}}));
    events.push(json!({"type": "message_stop"}));
    events
}

fn gemini(reply: &ScriptedReply) -> Vec<Value> {
    let mut parts = Vec::new();
    if !reply.thinking.is_empty() {
        parts.push(json!({"text": reply.thinking, "thought": true}));
    }
    if !reply.text.is_empty() {
        parts.push(json!({"text": reply.text}));
    }
    for (index, (name, arguments)) in reply.calls.iter().enumerate() {
        parts.push(
            json!({"functionCall": {"id": format!("g{index}{}", reply.signature), "name": name, "args": arguments}}),
        );
    }
    // Gemini attaches the signature to the first call, or to the text if there is no call.
    let signed = parts.len() - reply.calls.len().max(1);
    if !reply.thinking.is_empty() {
        parts[signed]["thoughtSignature"] = json!(reply.signature);
    }
    let events = parts
        .into_iter()
        .map(|part| json!({"candidates": [{"content": {"parts": [part], "role": "model"}, "index": 0}]}));
    let end = json!({"candidates": [{"finishReason": "STOP", "index": 0}],
        "usageMetadata": {"promptTokenCount": 20, "candidatesTokenCount": 5}});
    events.chain([end]).collect()
}
