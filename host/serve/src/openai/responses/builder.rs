//! Builds a response from the updates of a turn: its output items, and the events of a streamed response.

use super::id::ResponseId;
use super::request::approval_id;
use crate::openai::client_tools::ClientCall;
use crate::openai::ending::{Ending, response_usage};
use crate::openai::error::OpenAiError;
use crate::openai::turn::{OpenWait, describe, is_for_client, reason};
use agent_core::event::{ApprovalItem, EndReason, EventKind};
use agent_core::loop_break::LoopBreak;
use agent_core::message::CallId;
use agent_runtime::TurnUpdate;
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};

/// The label under which the agent's own tools are shown. They appear as calls of a server that the API calls itself.
const SERVER_LABEL: &str = "agent-host";

/// What is known about a response from its request.
#[derive(Clone, Debug)]
pub(super) struct ResponseHead {
    /// The id that clients see. If the response is not stored, no request can use this id.
    pub(super) id: String,
    pub(super) created_at: u64,
    /// Name of the agent.
    pub(super) model: String,
    pub(super) previous_response_id: Option<String>,
    pub(super) is_stored: bool,
    pub(super) is_background: bool,
}

/// The state of a response.
#[derive(Clone, Debug, Default)]
enum Status {
    #[default]
    InProgress,
    Completed,
    Incomplete(&'static str),
    Failed(OpenAiError),
    Cancelled,
}

/// A response that is being built.
pub(super) struct ResponseBuilder {
    head: ResponseHead,
    session: String,
    suffix: String,
    items: Vec<OutputItem>,
    /// Index of the message or the reasoning to which the next piece is added.
    message: Option<usize>,
    reasoning: Option<usize>,
    /// Whether the text of the open message is complete. The next events tell whether it was accepted.
    message_is_complete: bool,
    /// Indexes of the items of calls that have no result yet.
    calls: BTreeMap<CallId, usize>,
    ending: Ending,
    status: Status,
    events: VecDeque<Value>,
    sequence_number: u64,
}

/// An item of the output.
struct OutputItem {
    value: Value,
    /// The text of a message or of a reasoning so far.
    text: String,
    /// Whether the text was discarded, so that the finished response does not contain the item.
    is_discarded: bool,
}

impl ResponseBuilder {
    pub(super) fn new(head: ResponseHead, id: &ResponseId) -> Self {
        let mut builder = Self {
            head,
            session: id.session.clone(),
            suffix: id.item_suffix(),
            items: Vec::new(),
            message: None,
            reasoning: None,
            message_is_complete: false,
            calls: BTreeMap::new(),
            ending: Ending::default(),
            status: Status::default(),
            events: VecDeque::new(),
            sequence_number: 0,
        };
        builder.push_response("response.created");
        builder.push_response("response.in_progress");
        builder
    }

    /// Returns the next event of the streamed response.
    pub(super) fn next_event(&mut self) -> Option<Value> {
        self.events.pop_front()
    }

    /// Removes the events that nobody reads.
    pub(super) fn discard_events(&mut self) {
        self.events.clear();
    }

    /// Returns what the request said about the response.
    pub(super) fn into_head(self) -> ResponseHead {
        self.head
    }

    /// Returns how the turn ended.
    pub(super) fn ending(&self) -> &Ending {
        &self.ending
    }

    /// Returns the response as JSON.
    pub(super) fn response(&self) -> Value {
        let (status, error, incomplete) = match &self.status {
            Status::InProgress => ("in_progress", Value::Null, Value::Null),
            Status::Completed => ("completed", Value::Null, Value::Null),
            Status::Incomplete(reason) => ("incomplete", Value::Null, json!({"reason": reason})),
            Status::Failed(error) => ("failed", json!({"code": error.code(), "message": error.message()}), Value::Null),
            Status::Cancelled => ("cancelled", Value::Null, Value::Null),
        };
        let output: Vec<_> = self.items.iter().filter(|item| !item.is_discarded).map(|item| &item.value).collect();
        let usage = match self.status {
            Status::InProgress => Value::Null,
            _ => response_usage(self.ending.usage()),
        };
        let head = &self.head;
        json!({
            "id": head.id, "object": "response", "created_at": head.created_at, "status": status, "error": error,
            "incomplete_details": incomplete, "instructions": null, "max_output_tokens": null, "metadata": {},
            "model": head.model, "output": output, "parallel_tool_calls": true,
            "previous_response_id": head.previous_response_id, "reasoning": {"effort": null, "summary": null},
            "store": head.is_stored, "background": head.is_background, "temperature": null, "top_p": null,
            "text": {"format": {"type": "text"}}, "tool_choice": "auto", "tools": [], "truncation": "auto", "usage": usage,
        })
    }

    /// Adds an update of the turn.
    pub(super) fn update(&mut self, update: TurnUpdate) {
        match update {
            TurnUpdate::Text(text) => self.add_text(&text),
            TurnUpdate::Thinking(text) => self.add_thinking(&text),
            TurnUpdate::Discard => {
                self.close_reasoning(Acceptance::Discarded);
                self.close_message(Acceptance::Discarded);
            }
            TurnUpdate::Event(event) => {
                self.ending.update(&event);
                self.add_event(event.kind);
            }
        }
    }

    fn add_event(&mut self, kind: EventKind) {
        match kind {
            EventKind::StreamComplete { text, .. } => {
                self.close_reasoning(Acceptance::Accepted("completed"));
                // Stored events contain no pieces of text.
                if self.message.is_none() {
                    self.add_text(&text);
                }
                self.message_is_complete = true;
            }
            EventKind::OutputRejected { .. } | EventKind::Nudge { .. } | EventKind::NoToolCall { .. } => {
                self.close_message(Acceptance::Discarded);
            }
            EventKind::ToolCall { call, name, arguments, by_client: true, .. } => {
                self.close_message(Acceptance::Commentary);
                self.add_client_call(&call, &name, &arguments);
            }
            EventKind::ToolCall { call, name, arguments, .. } if LoopBreak::of_tool(&name).is_none() => {
                self.close_message(Acceptance::Commentary);
                self.add_call(call, &name, &arguments);
            }
            EventKind::ToolResult { call, content, .. } => self.close_call(&call, Ok(&content)),
            EventKind::ToolResultError { call, content, .. } => self.close_call(&call, Err(&content)),
            EventKind::ApprovalRequested { calls, .. } => {
                self.close_message(Acceptance::Commentary);
                calls.iter().for_each(|item| self.add_approval_request(item));
            }
            EventKind::ToolCall { .. } | EventKind::ToolNotFound { .. } | EventKind::LoopIteration { .. } => {
                self.close_message(Acceptance::Commentary);
            }
            _ => {}
        }
    }

    /// Ends the response because the turn waits.
    pub(super) fn wait(&mut self, waits: &[OpenWait]) {
        if waits.iter().any(|open| is_for_client(&self.session, open)) {
            // The client's results continue the turn. The next response tells what else the turn waits for.
            self.close_everything(Acceptance::Commentary);
            self.status = Status::Completed;
            return self.push_response("response.completed");
        }
        self.close_message(Acceptance::Commentary);
        self.add_text(&describe(waits));
        self.close_everything(Acceptance::Final);
        self.status = Status::Incomplete(reason(waits));
        self.push_response("response.incomplete");
    }

    /// Ends the response of a turn that has this output.
    pub(super) fn complete(&mut self, output: &str) {
        let streamed = self.message.map(|index| self.items[index].text.as_str());
        if streamed != Some(output) && !output.is_empty() {
            self.close_message(Acceptance::Commentary);
            self.add_text(output);
        }
        self.close_everything(Acceptance::Final);
        self.status = Status::Completed;
        self.push_response("response.completed");
    }

    /// Ends the response with an error. The last event has the form that the official clients raise.
    pub(super) fn fail(&mut self, error: &OpenAiError) {
        self.close_everything(Acceptance::Accepted("incomplete"));
        self.status = match self.ending.reason() {
            Some(EndReason::Cancelled) => Status::Cancelled,
            _ => Status::Failed(error.clone()),
        };
        self.push_response("response.failed");
        let mut event = error.event();
        (event["code"], event["message"], event["param"]) = (json!(error.code()), json!(error.message()), Value::Null);
        self.push("error", event);
    }

    fn close_everything(&mut self, acceptance: Acceptance) {
        self.close_reasoning(Acceptance::Accepted("completed"));
        self.close_message(acceptance);
        for (_, index) in std::mem::take(&mut self.calls) {
            self.items[index].value["status"] = json!("incomplete");
            self.push_done(index);
        }
    }
}

/// What becomes of an item that is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Acceptance {
    /// The text was not accepted as a reply.
    Discarded,
    /// The item has this status.
    Accepted(&'static str),
    /// The message comes before the end of the turn.
    Commentary,
    /// The message is the end of the turn.
    Final,
}

impl ResponseBuilder {
    fn add_text(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        if self.message_is_complete {
            self.close_message(Acceptance::Commentary);
        }
        self.close_reasoning(Acceptance::Accepted("completed"));
        let index = match self.message {
            Some(index) => index,
            None => {
                let item = json!({"type": "message", "status": "in_progress", "role": "assistant", "content": []});
                let index = self.add_item("msg", item);
                self.push_at(
                    "response.content_part.added",
                    index,
                    json!({"content_index": 0, "part": output_text("")}),
                );
                self.message = Some(index);
                index
            }
        };
        self.items[index].text.push_str(text);
        self.push_at("response.output_text.delta", index, json!({"content_index": 0, "delta": text, "logprobs": []}));
    }

    fn close_message(&mut self, acceptance: Acceptance) {
        self.message_is_complete = false;
        let Some(index) = self.message.take() else { return };
        let (status, phase) = match acceptance {
            Acceptance::Discarded => ("incomplete", None),
            Acceptance::Accepted(status) => (status, None),
            Acceptance::Commentary => ("completed", Some("commentary")),
            Acceptance::Final => ("completed", Some("final_answer")),
        };
        let part = output_text(&self.items[index].text);
        let done = json!({"content_index": 0, "text": part["text"], "logprobs": []});
        self.push_at("response.output_text.done", index, done);
        self.push_at("response.content_part.done", index, json!({"content_index": 0, "part": part}));
        let item = &mut self.items[index];
        item.is_discarded = acceptance == Acceptance::Discarded;
        (item.value["status"], item.value["content"]) = (json!(status), json!([part]));
        if let Some(phase) = phase {
            item.value["phase"] = json!(phase);
        }
        self.push_done(index);
    }

    fn add_thinking(&mut self, text: &str) {
        let index = match self.reasoning {
            Some(index) => index,
            None => {
                let item = json!({"type": "reasoning", "status": "in_progress", "summary": []});
                let index = self.add_item("rs", item);
                let part = json!({"summary_index": 0, "part": summary_text("")});
                self.push_at("response.reasoning_summary_part.added", index, part);
                self.reasoning = Some(index);
                index
            }
        };
        self.items[index].text.push_str(text);
        let delta = json!({"summary_index": 0, "delta": text});
        self.push_at("response.reasoning_summary_text.delta", index, delta);
    }

    fn close_reasoning(&mut self, acceptance: Acceptance) {
        let Some(index) = self.reasoning.take() else { return };
        let part = summary_text(&self.items[index].text);
        let done = json!({"summary_index": 0, "text": part["text"]});
        self.push_at("response.reasoning_summary_text.done", index, done);
        self.push_at("response.reasoning_summary_part.done", index, json!({"summary_index": 0, "part": part}));
        let item = &mut self.items[index];
        item.is_discarded = acceptance == Acceptance::Discarded;
        let status = if item.is_discarded { "incomplete" } else { "completed" };
        (item.value["status"], item.value["summary"]) = (json!(status), json!([part]));
        self.push_done(index);
    }

    fn add_call(&mut self, call: CallId, name: &str, arguments: &Value) {
        // A call that is repeated keeps its item.
        if self.calls.contains_key(&call) {
            return;
        }
        let arguments = arguments.to_string();
        let item = json!({
            "type": "mcp_call", "status": "in_progress", "server_label": SERVER_LABEL, "name": name, "arguments": arguments,
            "output": null, "error": null,
        });
        let index = self.add_item("mcp", item);
        self.push_at("response.mcp_call.in_progress", index, json!({}));
        self.push_at("response.mcp_call_arguments.done", index, json!({"arguments": arguments}));
        self.calls.insert(call, index);
    }

    fn add_client_call(&mut self, call: &CallId, name: &str, arguments: &Value) {
        let ClientCall { id, name, arguments } = ClientCall::new(&self.session, call, name, arguments);
        let item =
            json!({"type": "function_call", "status": "in_progress", "call_id": id, "name": name, "arguments": ""});
        let index = self.add_item("fc", item);
        self.push_at("response.function_call_arguments.delta", index, json!({"delta": arguments}));
        self.push_at("response.function_call_arguments.done", index, json!({"name": name, "arguments": arguments}));
        let item = &mut self.items[index].value;
        (item["status"], item["arguments"]) = (json!("completed"), json!(arguments));
        self.push_done(index);
    }

    fn close_call(&mut self, call: &CallId, result: Result<&str, &str>) {
        let Some(index) = self.calls.remove(call) else { return };
        let item = &mut self.items[index].value;
        let event = match result {
            Ok(output) => {
                (item["status"], item["output"]) = (json!("completed"), json!(output));
                "response.mcp_call.completed"
            }
            Err(error) => {
                let content = json!([{"type": "text", "text": error}]);
                item["status"] = json!("failed");
                item["error"] = json!({"type": "mcp_tool_execution_error", "content": content});
                "response.mcp_call.failed"
            }
        };
        self.push_at(event, index, json!({}));
        self.push_done(index);
    }

    fn add_approval_request(&mut self, item: &ApprovalItem) {
        let arguments = item.details.as_ref().map_or_else(|| "{}".to_owned(), |details| details.arguments.to_string());
        let request = json!({
            "id": approval_id(&item.call.0), "type": "mcp_approval_request", "server_label": SERVER_LABEL,
            "name": item.name, "arguments": arguments,
        });
        let index = self.add_item("mcpr", request);
        self.push_done(index);
    }

    /// Adds an item, with an id unless it has one. Returns its index.
    fn add_item(&mut self, prefix: &str, mut value: Value) -> usize {
        let index = self.items.len();
        if value.get("id").is_none() {
            // Items are counted by type, so that an item has the same id in a stored response, which has no thinking.
            let number = self.items.iter().filter(|item| item.value["type"] == value["type"]).count();
            value["id"] = json!(format!("{prefix}_{}_{number}", self.suffix));
        }
        self.items.push(OutputItem { value: value.clone(), text: String::new(), is_discarded: false });
        self.push("response.output_item.added", json!({"output_index": index, "item": value}));
        index
    }

    fn push_done(&mut self, index: usize) {
        let item = self.items[index].value.clone();
        self.push("response.output_item.done", json!({"output_index": index, "item": item}));
    }

    fn push_at(&mut self, kind: &str, index: usize, mut event: Value) {
        event["item_id"] = self.items[index].value["id"].clone();
        event["output_index"] = json!(index);
        self.push(kind, event);
    }

    fn push_response(&mut self, kind: &str) {
        let response = self.response();
        self.push(kind, json!({"response": response}));
    }

    fn push(&mut self, kind: &str, mut event: Value) {
        event["type"] = json!(kind);
        event["sequence_number"] = json!(self.sequence_number);
        self.sequence_number += 1;
        self.events.push_back(event);
    }
}

fn output_text(text: &str) -> Value {
    json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []})
}

fn summary_text(text: &str) -> Value {
    json!({"type": "summary_text", "text": text})
}
