//! A chat completion as server-sent events.

use super::text::{Piece, ReplyText};
use super::{Completion, finish_reason, tool_call};
use crate::openai::ending::{Ending, chat_usage};
use crate::openai::error::OpenAiError;
use crate::openai::turn::{FollowedTurn, OpenWait, Step};
use agent_runtime::TurnUpdate;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

/// Time between two comments that keep an idle connection open.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// Streams the chunks of a completion.
pub(super) fn response(followed: FollowedTurn, completion: Completion, includes_usage: bool) -> Response {
    let mut chunks = Chunks {
        followed,
        completion,
        includes_usage,
        ending: Ending::default(),
        text: ReplyText::default(),
        ready: VecDeque::new(),
        is_over: false,
    };
    chunks.push_delta(json!({"role": "assistant", "content": "", "refusal": null}), None);
    let events = futures::stream::unfold(chunks, |mut chunks| async move {
        let data = chunks.next().await?;
        Some((Ok::<_, Infallible>(Event::default().data(data)), chunks))
    });
    Sse::new(events).keep_alive(KeepAlive::new().interval(HEARTBEAT).text("idle")).into_response()
}

/// The chunks of a completion.
struct Chunks {
    followed: FollowedTurn,
    completion: Completion,
    includes_usage: bool,
    ending: Ending,
    text: ReplyText,
    ready: VecDeque<String>,
    is_over: bool,
}

impl Chunks {
    /// Waits for the data of the next event.
    async fn next(&mut self) -> Option<String> {
        loop {
            if let Some(data) = self.ready.pop_front() {
                return Some(data);
            }
            if self.is_over {
                return None;
            }
            match self.followed.next().await {
                Ok(Some(Step::Update(update))) => self.update(update),
                Ok(Some(Step::Waits(waits))) => self.wait(&waits).await,
                Ok(None) => self.end().await,
                Err(error) => self.fail(&error),
            }
        }
    }

    fn update(&mut self, update: TurnUpdate) {
        if let TurnUpdate::Event(event) = &update {
            self.ending.update(event);
        }
        match self.text.update(update) {
            Some(Piece::Text(text)) => self.push_delta(json!({"content": text}), None),
            Some(Piece::Thinking(text)) => self.push_delta(json!({"reasoning_content": text}), None),
            None => {}
        }
    }

    /// Sends the calls that the client must run, or else a notice about what the turn waits for.
    async fn wait(&mut self, waits: &[OpenWait]) {
        let calls = match self.followed.client_calls(waits).await {
            Ok(calls) => calls,
            Err(error) => return self.fail(&error),
        };
        if calls.is_empty() {
            let notice = self.text.notice(waits);
            self.push_delta(json!({"content": notice}), None);
        }
        for (index, call) in calls.iter().enumerate() {
            let mut call = tool_call(call);
            call["index"] = json!(index);
            self.push_delta(json!({"tool_calls": [call]}), None);
        }
        self.finish(finish_reason(&calls));
    }

    /// Sends the end of a turn.
    async fn end(&mut self) {
        if let Some(failure) = self.ending.failure() {
            return self.fail(&failure);
        }
        match self.followed.output().await {
            Ok(output) => {
                if let Some(rest) = self.text.rest(&output.unwrap_or_default()) {
                    self.push_delta(json!({"content": rest}), None);
                }
                self.finish(finish_reason(&[]));
            }
            Err(error) => self.fail(&error),
        }
    }

    fn finish(&mut self, reason: &str) {
        self.push_delta(json!({}), Some(reason));
        if self.includes_usage {
            let mut chunk = self.completion.object("chat.completion.chunk", json!([]));
            chunk.insert("usage".to_owned(), chat_usage(self.ending.usage()));
            self.ready.push_back(Value::Object(chunk).to_string());
        }
        self.ready.push_back("[DONE]".to_owned());
        self.is_over = true;
    }

    /// Sends an error, which the official clients raise. No other event follows.
    fn fail(&mut self, error: &OpenAiError) {
        self.ready.push_back(error.event().to_string());
        self.is_over = true;
    }

    fn push_delta(&mut self, delta: Value, finish: Option<&str>) {
        let choices = json!([{"index": 0, "delta": delta, "logprobs": null, "finish_reason": finish}]);
        let mut chunk = self.completion.object("chat.completion.chunk", choices);
        if self.includes_usage {
            chunk.insert("usage".to_owned(), Value::Null);
        }
        self.ready.push_back(Value::Object(chunk).to_string());
    }
}
