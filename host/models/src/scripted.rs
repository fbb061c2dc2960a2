//! A model that replies from a file (M4). Only the replies are simulated: the rest of the host runs as usual, and every
//! request is checked.

mod expectation;
mod script;

use crate::delta_sender::DeltaSender;
use crate::error::{Endpoint, ErrorOrigin, ModelError, ProviderError};
use crate::estimate;
use crate::progress::CallProgress;
use crate::provider::{ModelInfo, Provider, Purpose, RawReply, ReplyContext, ToolNameRules};
use crate::request_check;
use agent_core::model::{Delta, Model, ModelRequest, Reply, RequestedCall, StopReason};
use async_trait::async_trait;
pub use script::ScriptedReply;
use script::{Script, ScriptedError};
use serde_json::json;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::sync::mpsc::Sender;

/// Maximum size of a script in bytes.
const SIZE_LIMIT: u64 = 16 * 1024 * 1024;

/// A model that replies from a script.
///
/// The number of calls that a session has made determines its next reply, so a restarted host continues with the
/// correct reply. Each session starts with the first reply.
#[derive(Debug)]
pub struct ScriptedModel {
    info: ModelInfo,
    path: PathBuf,
    script: Script,
}

/// The replies of a script, in order.
#[derive(Clone, Debug, Default)]
pub struct ScriptedReplies {
    /// Replies to the requests that a session sends in its turns.
    pub turns: Vec<ScriptedReply>,
    /// Replies to requests for summaries of messages that are removed from the prompt.
    pub summaries: Vec<ScriptedReply>,
    /// Replies to requests that plugins send to the model.
    pub answers: Vec<ScriptedReply>,
}

impl ScriptedModel {
    /// Reads a script. A relative path is resolved against `base`.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read or is not a valid script.
    pub fn open(file: &str, base: &Path) -> Result<Self, ModelError> {
        let path = base.join(file);
        let text = read_file(&path).map_err(|source| ModelError::UnreadableScript { path: path.clone(), source })?;
        let script = script::parse(&text, &path)?;
        let model = Model { provider: "scripted".into(), name: file.to_owned(), window: script.window };
        Ok(Self { info: ModelInfo { model, tool_names: ToolNameRules::COMMON, price: None }, path, script })
    }

    /// Creates a model from replies that are part of another file. `path` is the path of that file, and error
    /// messages contain it. `window` is the context window in tokens. If `window` is `None`, the context window has
    /// 128,000 tokens.
    pub fn from_replies(path: &Path, window: Option<u32>, replies: ScriptedReplies) -> Self {
        let script =
            Script { summaries: replies.summaries, answers: replies.answers, ..Script::from_replies(replies.turns) };
        let script = Script { window: window.unwrap_or(script.window), ..script };
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let model = Model { provider: "scripted".into(), name, window: script.window };
        let path = path.to_owned();
        Self { info: ModelInfo { model, tool_names: ToolNameRules::COMMON, price: None }, path, script }
    }

    fn next_reply(&self, context: ReplyContext<'_>) -> Result<&ScriptedReply, ModelError> {
        let replies = match context.purpose {
            Purpose::Turn => &self.script.replies,
            Purpose::Summary => &self.script.summaries,
            Purpose::Plugin => &self.script.answers,
        };
        let index = usize::try_from(context.call).ok();
        index.and_then(|index| replies.get(index)).ok_or_else(|| ModelError::ScriptExhausted {
            path: self.path.clone(),
            replies: replies.len(),
            session: context.session.to_owned(),
            wanted: context.call.saturating_add(1),
        })
    }

    fn check(&self, request: &ModelRequest, reply: &ScriptedReply, number: u64) -> Result<(), ModelError> {
        let problems = request_check::find_problems(request, self.info.tool_names);
        if !problems.is_empty() {
            return Err(ModelError::InvalidRequest { model: self.info.model.to_string(), problems });
        }
        let problems = reply.expect.problems(request);
        if !problems.is_empty() {
            return Err(ModelError::UnexpectedRequest { path: self.path.clone(), reply: number, problems });
        }
        Ok(())
    }

    fn error(&self, error: &ScriptedError) -> ModelError {
        let (endpoint, message) = (Endpoint::local(self.info.model.to_string()), error.message.clone());
        match error.status {
            None => ModelError::ConnectionLost { endpoint, message },
            Some(status) => {
                let retry_after = error.retry_after_ms.map(Duration::from_millis);
                let provider_error = ProviderError::new(endpoint, ErrorOrigin::Status(status), None, message);
                ModelError::Provider(Box::new(ProviderError {
                    request_id: error.request_id.clone(),
                    retry_after,
                    ..provider_error
                }))
            }
        }
    }

    fn full_reply(&self, scripted: &ScriptedReply, request: &ModelRequest) -> Reply {
        let text = scripted.text();
        let calls: Vec<_> = scripted.calls.iter().map(|call| requested_call(call, request)).collect();
        let default_stop = if calls.is_empty() { StopReason::Stop } else { StopReason::ToolCalls };
        let usage = scripted.usage().unwrap_or_else(|| estimate::usage(request, &text, &calls));
        Reply {
            text,
            calls,
            stop: scripted.stop.unwrap_or(default_stop),
            usage,
            model: self.info.model.to_string(),
            replay: None,
        }
    }
}

#[async_trait]
impl Provider for ScriptedModel {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    async fn reply(
        &self,
        request: &ModelRequest,
        context: ReplyContext<'_>,
        deltas: &Sender<Delta>,
    ) -> Result<RawReply, ModelError> {
        let scripted = self.next_reply(context)?;
        let number = context.call + 1;
        self.check(request, scripted, number)?;
        let fails = |error: &&ScriptedError| error.times.is_none_or(|times| context.attempt <= times);
        let error = scripted.error.as_ref().filter(fails);
        // A provider that answers with an error status charges nothing.
        let unmetered = CallProgress::default();
        let is_refused = error.is_some_and(|error| error.status.is_some());
        let progress = if is_refused { &unmetered } else { context.progress };
        progress.begin();
        let sender = DeltaSender { deltas, delay: scripted.delay(), progress };
        sender.thinking(&scripted.thinking).await;
        sender.text(&scripted.pieces()).await;
        if scripted.text().is_empty() && !scripted.delay().is_zero() {
            tokio::time::sleep(scripted.delay()).await;
        }
        if let Some(error) = error {
            return Err(self.error(error));
        }
        let reply = self.full_reply(scripted, request);
        let raw = json!({ "script": self.path.display().to_string(), "number": number, "reply": reply });
        Ok(RawReply { reply, raw })
    }
}

/// Converts a tool call of the script to the format of a model's reply. If the script names the tool as its author
/// wrote it, the name is translated to the name that the request offers. Other names stay unchanged.
fn requested_call(call: &script::ScriptedCall, request: &ModelRequest) -> RequestedCall {
    let offered = request.tools.iter().find(|tool| tool.author_name == call.name);
    let name = offered.map_or(&call.name, |tool| &tool.name).clone();
    RequestedCall { provider_id: call.id.clone(), name, arguments: call.arguments() }
}

fn read_file(path: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    // Reject pipes, because reading a pipe blocks until another process writes to it (row 47).
    if !std::fs::metadata(path)?.is_file() {
        return Err(std::io::Error::other("it is a pipe, a device or a directory instead of a file"));
    }
    std::fs::File::open(path)?.take(SIZE_LIMIT + 1).read_to_string(&mut text)?;
    if text.len() as u64 > SIZE_LIMIT {
        return Err(std::io::Error::other(format!("it is larger than {SIZE_LIMIT} bytes")));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::NoMedia;
    use crate::request_check::tests::{calls, request, tool};
    use agent_core::message::{Message, Role};
    use tokio::sync::mpsc;

    fn scripted(text: &str) -> ScriptedModel {
        let script = script::parse(text, Path::new("s.json")).unwrap();
        let model = Model { provider: "scripted".into(), name: "s.json".into(), window: script.window };
        ScriptedModel {
            info: ModelInfo { model, tool_names: ToolNameRules::COMMON, price: None },
            path: "s.json".into(),
            script,
        }
    }

    fn prompt() -> ModelRequest {
        let tools = vec![tool("text.count", "Counts.", json!({"type": "object"}))];
        request(vec![Message::text(Role::User, "go")], tools)
    }

    async fn ask(
        model: &ScriptedModel,
        request: &ModelRequest,
        call: u64,
        attempt: u32,
    ) -> (Result<Reply, String>, Vec<Delta>) {
        let (sender, mut receiver) = mpsc::channel(100);
        let context = ReplyContext {
            session: "s1",
            purpose: Purpose::Turn,
            call,
            attempt,
            media: &NoMedia,
            progress: &crate::CallProgress::default(),
        };
        let reply = model.reply(request, context, &sender).await;
        drop(sender);
        let mut deltas = Vec::new();
        while let Some(delta) = receiver.recv().await {
            deltas.push(delta);
        }
        (reply.map(|raw| raw.reply).map_err(|error| error.to_string()), deltas)
    }

    /// M4: the next reply depends on the number of the session's calls and not on the state of the process.
    #[tokio::test]
    async fn m4_the_call_number_determines_the_reply() {
        let model = scripted(r#"[{"text": "one"}, {"text": "two"}]"#);
        for (call, expected) in [(1, "two"), (0, "one"), (1, "two")] {
            assert_eq!(ask(&model, &prompt(), call, 1).await.0.unwrap().text, expected);
        }
        insta::assert_snapshot!(
            ask(&model, &prompt(), 2, 1).await.0.unwrap_err(),
            @"the script s.json has 2 replies, but session `s1` requests reply 3: add replies to the script, or start a new session"
        );
        assert!(ask(&model, &prompt(), u64::MAX, 1).await.0.is_err());
    }

    #[tokio::test]
    async fn parallel_calls_use_the_offered_names() {
        let model = scripted(
            r#"{"text": "Counting.", "calls": [{"name": "text.count", "arguments": {"path": "a"}},
                {"name": "text_count", "id": "p1", "arguments": "{bad"}, {"name": "no.such"}]}"#,
        );
        let reply = ask(&model, &prompt(), 0, 1).await.0.unwrap();
        let call = |id: Option<&str>, name: &str, arguments: &str| RequestedCall {
            provider_id: id.map(str::to_owned),
            name: name.into(),
            arguments: arguments.into(),
        };
        let expected = [
            call(None, "text_count", r#"{"path":"a"}"#),
            call(Some("p1"), "text_count", "{bad"),
            call(None, "no.such", ""),
        ];
        assert_eq!(reply.calls, expected);
        assert_eq!((reply.stop, reply.model.as_str()), (StopReason::ToolCalls, "scripted/s.json"));
        assert!(reply.usage.prompt_tokens > 5 && reply.usage.completion_tokens > 10, "{:?}", reply.usage);
    }

    #[tokio::test]
    async fn thinking_and_chunks_are_streamed() {
        let model = scripted(
            r#"{"text": "abcdef", "thinking": "hm", "chunks": 2, "usage": {"prompt_tokens": 3, "completion_tokens": 4}}"#,
        );
        let (reply, deltas) = ask(&model, &prompt(), 0, 1).await;
        let expected = [
            Delta::ThinkingStart,
            Delta::Thinking("hm".into()),
            Delta::ThinkingEnd,
            Delta::Text("abc".into()),
            Delta::Text("def".into()),
        ];
        assert_eq!(deltas, expected);
        let reply = reply.unwrap();
        assert_eq!((reply.text.as_str(), reply.stop, reply.usage.total()), ("abcdef", StopReason::Stop, 7));
    }

    /// M3, M5: an attempt fails after part of the reply was sent, and the next attempt succeeds.
    #[tokio::test]
    async fn m3_m5_scripted_errors_look_like_provider_errors() {
        let model = scripted(
            r#"[{"text": "part", "error": {"status": 503, "message": "busy", "request_id": "r1", "times": 1}},
                {"error": {"message": "connection reset"}}]"#,
        );
        let (reply, deltas) = ask(&model, &prompt(), 0, 1).await;
        assert_eq!(deltas, [Delta::Text("part".into())]);
        insta::assert_snapshot!(reply.unwrap_err(), @"scripted/s.json answered with status 503 (request r1): busy. Try again later, or use another model");
        assert_eq!(ask(&model, &prompt(), 0, 2).await.0.unwrap().text, "part");
        insta::assert_snapshot!(ask(&model, &prompt(), 1, 9).await.0.unwrap_err(), @"the reply of scripted/s.json ended early: connection reset. Try again; if it happens again, check the network and the base URL");
    }

    #[tokio::test]
    async fn every_request_is_checked() {
        let model = scripted(r#"[{"text": "a", "expect": {"messages": 2, "tools": []}}]"#);
        insta::assert_snapshot!(ask(&model, &prompt(), 0, 1).await.0.unwrap_err(), @r#"the script s.json, reply 1: the request does not meet the expectations: messages: expected 2, found 1; tools: expected [], found ["text.count"]"#);
        let mut broken = prompt();
        broken.messages.push(calls(&[("c1", "text.count", json!({}))]));
        insta::assert_snapshot!(ask(&model, &broken, 0, 1).await.0.unwrap_err(), @"the request to scripted/s.json is not well-formed: call c1 of `text.count` has no result. This is a bug in the host or in a context builder");
    }

    /// L29: dropping the future of the reply ends the call, but dropping the receiver of the deltas does not.
    #[tokio::test]
    async fn l29_dropping_the_future_cancels_the_call() {
        let model = scripted(r#"[{"text": "slow", "delay_ms": 600000}, {"text": "many words without a receiver"}]"#);
        let (sender, receiver) = mpsc::channel(1);
        let (slow_call, next_call) = (0, 1);
        let progress = crate::CallProgress::default();
        let context = |call| ReplyContext {
            session: "s1",
            purpose: Purpose::Turn,
            call,
            attempt: 1,
            media: &NoMedia,
            progress: &progress,
        };
        let request = prompt();
        tokio::select! {
            biased;
            _ = model.reply(&request, context(slow_call), &sender) => panic!("the slow call finished early"),
            () = tokio::task::yield_now() => {}
        }
        assert!(receiver.is_empty());
        drop(receiver);
        let reply = model.reply(&request, context(next_call), &sender).await.unwrap().reply;
        assert_eq!(reply.text, "many words without a receiver");
    }

    #[test]
    fn a_script_that_is_too_large_is_rejected() {
        let directory = tempfile::tempdir().unwrap();
        let file = std::fs::File::create(directory.path().join("big.json")).unwrap();
        file.set_len(SIZE_LIMIT + 1).unwrap();
        let error = ScriptedModel::open("big.json", directory.path()).unwrap_err().to_string();
        assert!(error.contains("larger than 16777216 bytes"), "{error}");
    }
}
