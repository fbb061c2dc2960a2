//! A Chat Completions server on the loopback interface. The server returns scripted answers, including faulty answers,
//! and checks every request.

use agent_models::{ProviderConfig, Providers};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// How the server answers one request.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    /// A text that the server streams as its complete reply.
    Text(&'static str),
    /// A stream of these deltas, which ends with this finish reason.
    Deltas(Vec<Value>, &'static str),
    /// A streamed text that is followed by tool calls.
    Calls(&'static str, Vec<(&'static str, Value)>),
    /// A complete response with this status, content type and body.
    Whole(u16, &'static str, String),
    /// A streamed text that is cut off: the server sends only this many bytes of the text and then closes
    /// the connection.
    Cut(&'static str, usize),
    /// A streamed text that stops: the server sends only this many bytes of the text. The server then keeps the
    /// connection open but sends no further data.
    Stall(&'static str, usize),
    /// The server accepts the request but sends no response, not even headers.
    NoResponse,
    /// A streamed text that is followed by an error event instead of the end of the stream.
    ErrorInStream(&'static str, Value),
    /// A stream with one event that contains a text of this many bytes.
    Huge(usize),
    /// An endless stream of text chunks.
    Endless,
}

/// Configures the provider `local`: a server at this address that needs no key.
pub(crate) fn local_provider(base_url: &str) -> Providers {
    Providers::new(vec![ProviderConfig {
        name: "local".to_owned(),
        base_url: base_url.to_owned(),
        key: None,
        key_advice: String::new(),
        headers: Vec::new(),
        protocol: Default::default(),
        timeouts: Default::default(),
        models: Default::default(),
    }])
}

/// A Chat Completions server that runs in the background. The server stops when this value is dropped.
pub(crate) struct ChatServer {
    pub(crate) base_url: String,
    state: Arc<Mutex<State>>,
    accepting: JoinHandle<()>,
}

#[derive(Default)]
struct State {
    answers: VecDeque<Answer>,
    requests: Vec<Value>,
    problems: Vec<String>,
}

impl ChatServer {
    pub(crate) async fn start(answers: impl IntoIterator<Item = Answer>) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("loopback");
        let base_url = format!("http://{}/v1", listener.local_addr().expect("an address"));
        let answers = answers.into_iter().collect();
        let state = Arc::new(Mutex::new(State { answers, ..State::default() }));
        let accepting = tokio::spawn({
            let state = state.clone();
            async move {
                while let Ok((connection, _)) = listener.accept().await {
                    tokio::spawn(serve(connection, state.clone()));
                }
            }
        });
        Self { base_url, state, accepting }
    }

    /// Returns the bodies of all requests so far. Panics if the server found a problem in a request.
    pub(crate) fn requests(&self) -> Vec<Value> {
        let state = self.state.lock().expect("no panic");
        assert!(state.problems.is_empty(), "{}", state.problems.join("\n"));
        state.requests.clone()
    }

    /// Returns the bodies of all requests so far, even if the server found problems in them. This function is for tests
    /// in which several models share the server. In such tests, the server finds problems, because a request of one
    /// model does not continue the previous request of another model.
    pub(crate) fn bodies(&self) -> Vec<Value> {
        self.state.lock().expect("no panic").requests.clone()
    }
}

impl Drop for ChatServer {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// Serves one connection and keeps it open for further requests.
async fn serve(connection: TcpStream, state: Arc<Mutex<State>>) {
    let mut connection = BufReader::new(connection);
    while let Some(body) = read_request(&mut connection).await {
        let answer = {
            let mut state = state.lock().expect("no panic");
            let problems = request_problems(&body, state.requests.last());
            state.problems.extend(problems);
            state.requests.push(body);
            state.answers.pop_front()
        };
        let answer =
            answer.unwrap_or_else(|| Answer::Whole(500, "application/json", r#"{"error":"no answer is left"}"#.into()));
        if write_answer(connection.get_mut(), answer).await.is_none() {
            return;
        }
    }
}

async fn read_request(connection: &mut BufReader<TcpStream>) -> Option<Value> {
    let mut length = 0;
    loop {
        let mut line = String::new();
        if connection.read_line(&mut line).await.ok()? == 0 {
            return None;
        }
        if line.trim().is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().ok()?;
        }
    }
    let mut body = vec![0; length];
    connection.read_exact(&mut body).await.ok()?;
    Some(serde_json::from_slice(&body).unwrap_or_else(|error| json!({"not_json": error.to_string()})))
}

fn chunk(delta: Value, finish: Option<&str>) -> String {
    let chunk = json!({"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "served",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]});
    format!("data: {chunk}\n\n")
}

fn final_chunks(finish: &str) -> String {
    let usage = json!({"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "served", "choices": [],
        "usage": {"prompt_tokens": 20, "completion_tokens": 5, "total_tokens": 25}});
    format!("{}data: {usage}\n\ndata: [DONE]\n\n", chunk(json!({}), Some(finish)))
}

/// Writes an answer to the connection. Returns `None` if the server must then close the connection.
async fn write_answer(connection: &mut TcpStream, answer: Answer) -> Option<()> {
    let text =
        |text: &str| text.split_inclusive(' ').map(|word| chunk(json!({"content": word}), None)).collect::<String>();
    match answer {
        Answer::Text(words) => stream(connection, &(text(words) + &final_chunks("stop")), Close::Whole).await,
        Answer::Deltas(deltas, reason) => {
            let chunks: String = deltas.into_iter().map(|delta| chunk(delta, None)).collect();
            stream(connection, &(chunks + &final_chunks(reason)), Close::Whole).await
        }
        Answer::Calls(words, calls) => {
            let calls = calls.iter().enumerate().map(|(index, (name, arguments))| {
                let function = json!({"name": name, "arguments": arguments.to_string()});
                json!({"index": index, "id": format!("call_{index}"), "type": "function", "function": function})
            });
            let calls = chunk(json!({"tool_calls": calls.collect::<Vec<_>>()}), None);
            stream(connection, &(text(words) + &calls + &final_chunks("tool_calls")), Close::Whole).await
        }
        Answer::Whole(status, kind, body) => {
            let head = format!("HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n", body.len());
            connection.write_all((head + &body).as_bytes()).await.ok()
        }
        Answer::Cut(words, kept) => {
            let kept = text(&words[..kept]);
            stream(connection, &kept, Close::Cut).await
        }
        Answer::Stall(words, kept) => {
            stream(connection, &text(&words[..kept]), Close::Never).await?;
            std::future::pending().await
        }
        Answer::NoResponse => std::future::pending().await,
        Answer::ErrorInStream(words, error) => {
            stream(connection, &(text(words) + &format!("data: {}\n\n", json!({"error": error}))), Close::Whole).await
        }
        Answer::Huge(bytes) => {
            let event = chunk(json!({"content": "x".repeat(bytes)}), None);
            stream(connection, &(event + &final_chunks("stop")), Close::Whole).await
        }
        Answer::Endless => {
            stream(connection, "", Close::Never).await?;
            loop {
                let piece = chunk(json!({"content": "again "}), None);
                write_chunk(connection, &piece).await?;
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        }
    }
}

/// The way in which the server ends a streamed response.
#[derive(PartialEq)]
enum Close {
    Whole,
    Cut,
    Never,
}

/// Writes the head of a streamed response, and the response's body as one HTTP chunk.
async fn stream(connection: &mut TcpStream, body: &str, close: Close) -> Option<()> {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    connection.write_all(head.as_bytes()).await.ok()?;
    if !body.is_empty() {
        write_chunk(connection, body).await?;
    }
    match close {
        Close::Whole => connection.write_all(b"0\r\n\r\n").await.ok(),
        Close::Cut => None,
        Close::Never => Some(()),
    }
}

async fn write_chunk(connection: &mut TcpStream, piece: &str) -> Option<()> {
    let framed = format!("{:x}\r\n{piece}\r\n", piece.len());
    connection.write_all(framed.as_bytes()).await.ok()?;
    connection.flush().await.ok()
}

/// Returns the problems of a request: invalid content, and content of the previous request that this request does not
/// repeat unchanged.
fn request_problems(request: &Value, previous: Option<&Value>) -> Vec<String> {
    let mut problems = Vec::new();
    let empty = Vec::new();
    let messages = request["messages"].as_array().unwrap_or(&empty);
    if messages.is_empty() {
        problems.push(format!("no messages: {request}"));
    }
    check_call_results(messages, &mut problems);
    if request["stream"] != json!(true) {
        problems.push("the request does not ask for a stream".to_owned());
    }
    if let Some(previous) = previous {
        let earlier = previous["messages"].as_array().unwrap_or(&empty);
        for (index, (before, after)) in earlier.iter().zip(messages).enumerate() {
            if let Err(problem) = same_or_masked(before, after) {
                problems.push(format!("message {index} has changed: {problem}"));
            }
        }
        if earlier.len() > messages.len() {
            problems.push(format!(
                "the request has {} messages, the previous request had {}",
                messages.len(),
                earlier.len()
            ));
        }
        if request.get("tools").is_some() && previous.get("tools").is_some() && request["tools"] != previous["tools"] {
            problems.push("the tools differ from those of the previous request".to_owned());
        }
    }
    problems
}

/// Every call must have its result, in order, before the next message, and every result must have its call.
fn check_call_results(messages: &[Value], problems: &mut Vec<String>) {
    let mut open: VecDeque<String> = VecDeque::new();
    for (index, message) in messages.iter().enumerate() {
        let role = message["role"].as_str().unwrap_or_default();
        if role == "tool" {
            let id = message["tool_call_id"].as_str().unwrap_or_default();
            if open.pop_front().as_deref() != Some(id) {
                problems.push(format!("message {index}: the result of `{id}` is out of order"));
            }
            if !message["content"].is_string() {
                problems.push(format!("message {index}: the content of a tool message is not a string"));
            }
            continue;
        }
        if !open.is_empty() {
            problems.push(format!("message {index}: calls {open:?} have no result"));
            open.clear();
        }
        if role == "assistant" {
            let calls = message["tool_calls"].as_array().into_iter().flatten();
            open.extend(calls.map(|call| call["id"].as_str().unwrap_or_default().to_owned()));
        }
    }
    if !open.is_empty() {
        problems.push(format!("calls {open:?} have no result at the end"));
    }
}

/// Checks that a message is repeated correctly: either unchanged, or with a text in place of its image.
fn same_or_masked(before: &Value, after: &Value) -> Result<(), String> {
    let bytes = |message: &Value| serde_json::to_vec(message).expect("JSON");
    if bytes(before) == bytes(after) {
        return Ok(());
    }
    let excerpt = |message: &Value| message.to_string().chars().take(400).collect::<String>();
    let became = || format!("{} became {}", excerpt(before), excerpt(after));
    let (Some(parts_before), parts_after) = (before["content"].as_array(), content_parts(after)) else {
        return Err(became());
    };
    let images_before = parts_before.iter().filter(|part| part["type"] == "image_url").count();
    let images_after = parts_after.iter().filter(|part| part["type"] == "image_url").count();
    // If the host masks an image, it also removes the text part that labels the image.
    let texts = parts_before.iter().filter(|part| part["type"] == "text" && !is_label(part));
    let text_after: String = parts_after.iter().filter_map(|part| part["text"].as_str()).collect();
    let kept = texts.into_iter().all(|part| text_after.contains(part["text"].as_str().unwrap_or_default()));
    let masked = text_after.contains("sha256:");
    if images_before > images_after && kept && masked && before["role"] == after["role"] {
        Ok(())
    } else {
        Err(became())
    }
}

/// Returns the parts of a message's content. Content that is a string counts as one text part.
fn content_parts(message: &Value) -> Vec<Value> {
    match &message["content"] {
        Value::Array(parts) => parts.clone(),
        text => vec![json!({"type": "text", "text": text})],
    }
}

fn is_label(part: &Value) -> bool {
    part["text"].as_str().is_some_and(|text| text.starts_with('[') && text.contains("sha256:"))
}
