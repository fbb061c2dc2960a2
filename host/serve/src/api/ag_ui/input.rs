//! The request of a front end: `RunAgentInput` of AG-UI 1.0. All of it is text from outside, which grants nothing.

use crate::problem::Problem;
use agent_core::message::{CallId, TurnInput};
use agent_core::tool::ClientTool;
use agent_runtime::{ClientResult, NewMediaItem};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::{Value, json};

/// Maximum number of attachments of a prompt.
const MAX_ATTACHMENTS: usize = 20;

/// The request of a front end. Unknown fields are ignored, as the protocol requires.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RunInput {
    /// The conversation to which the run belongs.
    pub(super) thread_id: String,
    /// Id of the run, which the client has chosen.
    pub(super) run_id: String,
    /// The conversation as the client knows it.
    messages: Vec<ClientMessage>,
    /// Tools of the front end, which runs their calls itself.
    #[serde(default)]
    tools: Option<Vec<FrontEndTool>>,
    /// Further information for the agent.
    #[serde(default)]
    context: Option<Vec<ContextItem>>,
    /// Answers to the interrupts of the run before.
    #[serde(default)]
    pub(super) resume: Option<Vec<ResumeEntry>>,
}

/// A tool of the front end.
#[derive(Debug, Deserialize)]
struct FrontEndTool {
    name: String,
    #[serde(default)]
    description: String,
    #[serde(default)]
    parameters: Value,
}

#[derive(Debug, Deserialize)]
struct ContextItem {
    description: String,
    value: String,
}

/// An answer to an interrupt.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ResumeEntry {
    /// Id of the interrupt.
    pub(super) interrupt_id: String,
    /// Whether the interrupt was answered or abandoned.
    pub(super) status: ResumeStatus,
    /// The answer.
    #[serde(default)]
    pub(super) payload: Option<Value>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum ResumeStatus {
    Resolved,
    Cancelled,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ClientMessage {
    role: String,
    #[serde(default)]
    content: Option<Content>,
    /// The call whose result a message with the role `tool` is.
    #[serde(default)]
    tool_call_id: Option<String>,
    /// Why the call failed.
    #[serde(default)]
    error: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Content {
    Text(String),
    Parts(Vec<Part>),
    /// The content of a message that is not used, such as a message of an activity.
    Other(Value),
}

#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum Part {
    Text {
        text: String,
    },
    Image {
        source: Source,
    },
    Audio {
        source: Source,
    },
    Video {
        source: Source,
    },
    Document {
        source: Source,
    },
    /// A part of the versions before 1.0.
    #[serde(rename_all = "camelCase")]
    Binary {
        mime_type: String,
        #[serde(default)]
        data: Option<String>,
        #[serde(default)]
        filename: Option<String>,
    },
}

#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum Source {
    #[serde(rename_all = "camelCase")]
    Data {
        value: String,
        mime_type: String,
    },
    Url {},
    File {},
}

/// What the user says in a run.
#[derive(Debug)]
pub(super) struct UserInput {
    /// The text of the new messages. It is empty if the messages consist of attachments.
    pub(super) text: String,
    pub(super) attachments: Vec<NewMediaItem>,
    /// What the application adds to the prompt.
    context: String,
}

impl UserInput {
    /// Returns the prompt: what the application adds, and then what the user says.
    pub(super) fn prompt(&self) -> TurnInput {
        match self.context.is_empty() {
            true => TurnInput::Text(self.text.clone()),
            false => TurnInput::Text(format!("{}\n\n{}", self.context, self.text)),
        }
    }
}

impl RunInput {
    /// Returns the user messages after the last message of the agent. `None` if there are none.
    pub(super) fn user_input(&self) -> Result<Option<UserInput>, Problem> {
        let is_reply = |message: &ClientMessage| matches!(message.role.as_str(), "assistant" | "tool" | "reasoning");
        let first_new = self.messages.iter().rposition(is_reply).map_or(0, |last| last + 1);
        let (mut texts, mut attachments, mut notes) = (Vec::new(), Vec::new(), Vec::new());
        for message in &self.messages[first_new..] {
            let mut own = Vec::new();
            match &message.content {
                Some(Content::Text(text)) => own.push(text.clone()),
                Some(Content::Parts(parts)) => {
                    for part in parts {
                        match attachment(part)? {
                            Ok(text) => own.push(text),
                            Err(attachment) if message.role == "user" => attachments.push(attachment),
                            Err(_) => {}
                        }
                    }
                }
                Some(Content::Other(_)) | None => {}
            }
            match message.role.as_str() {
                "user" => texts.extend(own),
                "system" | "developer" => notes.extend(own),
                _ => {}
            }
        }
        if attachments.len() > MAX_ATTACHMENTS {
            let detail =
                format!("a prompt has {} attachments, but at most {MAX_ATTACHMENTS} are allowed", attachments.len());
            return Err(Problem::invalid(detail));
        }
        let text = texts.join("\n\n");
        if text.trim().is_empty() && attachments.is_empty() {
            return Ok(None);
        }
        Ok(Some(UserInput { text, attachments, context: self.context_text(&notes) }))
    }

    /// Returns the tools of the front end.
    pub(super) fn client_tools(&self) -> Vec<ClientTool> {
        let tools = self.tools.iter().flatten().map(|FrontEndTool { name, description, parameters }| ClientTool {
            name: name.clone(),
            description: description.clone(),
            input_schema: match parameters {
                Value::Null => json!({"type": "object", "properties": {}}),
                schema => schema.clone(),
            },
        });
        tools.collect()
    }

    /// Returns the results of calls of the front end's tools. A front end sends the whole conversation with each request, so
    /// most of these calls have their results already.
    pub(super) fn results(&self) -> Vec<ClientResult> {
        let results = self.messages.iter().filter(|message| message.role == "tool").filter_map(|message| {
            let text = match (&message.error, &message.content) {
                (Some(error), _) => error.clone(),
                (None, Some(Content::Text(text))) => text.clone(),
                (None, Some(Content::Other(value))) => value.to_string(),
                (None, Some(Content::Parts(parts))) => {
                    let texts = parts.iter().filter_map(|part| match part {
                        Part::Text { text } => Some(text.as_str()),
                        _ => None,
                    });
                    texts.collect::<Vec<_>>().join("\n")
                }
                (None, None) => String::new(),
            };
            let (call, is_error) = (CallId(message.tool_call_id.clone()?), message.error.is_some());
            Some(ClientResult { call, text, is_error })
        });
        results.collect()
    }

    /// Returns the application's messages and context as a part of the prompt, marked as text from the application.
    fn context_text(&self, notes: &[String]) -> String {
        let items = self.context.iter().flatten().map(|item| format!("- {}: {}", item.description, item.value));
        let lines: Vec<_> = notes.iter().map(|note| format!("- {note}")).chain(items).collect();
        if lines.is_empty() { String::new() } else { format!("The application adds:\n{}", lines.join("\n")) }
    }
}

/// Returns the text of a part, or else its attachment as an error.
fn attachment(part: &Part) -> Result<Result<String, NewMediaItem>, Problem> {
    let (source, name) = match part {
        Part::Text { text } => return Ok(Ok(text.clone())),
        Part::Image { source } | Part::Audio { source } | Part::Video { source } | Part::Document { source } => {
            match source {
                Source::Data { value, mime_type } => (Some((value, mime_type)), None),
                Source::Url {} | Source::File {} => (None, None),
            }
        }
        Part::Binary { mime_type, data, filename } => (data.as_ref().map(|data| (data, mime_type)), filename.clone()),
    };
    let Some((data, mime_type)) = source else {
        let detail = "an attachment must contain its data: this server fetches nothing for a client";
        return Err(Problem::invalid(detail));
    };
    let bytes = STANDARD.decode(data).map_err(|_| Problem::invalid("the data of an attachment is not Base64"))?;
    Ok(Err(NewMediaItem { bytes, mime_type: mime_type.clone(), name }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn input(messages: Value) -> RunInput {
        let input = json!({"threadId": "t", "runId": "r", "messages": messages, "state": {}, "forwardedProps": {"a": 1},
                           "context": [{"description": "page", "value": "Berths"}]});
        serde_json::from_value(input).unwrap_or_else(|error| panic!("{error}"))
    }

    /// I8: only the messages after the last reply are new. Messages of the application are marked as such.
    #[test]
    fn i8_the_prompt_consists_of_the_new_user_messages() {
        let messages = json!([
            {"id": "1", "role": "user", "content": "Old."},
            {"id": "2", "role": "assistant", "content": "Reply.", "toolCalls": []},
            {"id": "3", "role": "system", "content": "Be brief."},
            {"id": "4", "role": "user", "content": [{"type": "text", "text": "New."},
                {"type": "image", "source": {"type": "data", "value": "aGk=", "mimeType": "image/png"}}]},
            {"id": "5", "role": "activity", "activityType": "x", "content": {"a": 1}},
            {"id": "6", "role": "user", "content": "And?"},
        ]);
        let user = input(messages).user_input().expect("the input is valid").expect("there are new messages");
        let TurnInput::Text(prompt) = user.prompt() else { panic!("{user:?}") };
        assert_eq!(prompt, "The application adds:\n- Be brief.\n- page: Berths\n\nNew.\n\nAnd?");
        assert_eq!(
            user.attachments,
            [NewMediaItem { bytes: b"hi".to_vec(), mime_type: "image/png".into(), name: None }]
        );
        let nothing_new = json!([{"id": "1", "role": "user", "content": "Old."}, {"id": "2", "role": "assistant"}]);
        assert!(input(nothing_new).user_input().expect("the input is valid").is_none());
    }

    /// I8, row 15: attachments that are only named, damaged or too many are refused.
    #[test]
    fn i8_attachments_must_contain_their_data() {
        let image = |source: Value| json!({"type": "image", "source": source});
        let refused = |parts: Vec<Value>| {
            let messages = json!([{"id": "1", "role": "user", "content": parts}]);
            input(messages).user_input().map(|_| ()).map_err(|problem| problem.status)
        };
        assert_eq!(refused(vec![image(json!({"type": "url", "value": "http://169.254.169.254/"}))]), Err(422));
        assert_eq!(refused(vec![image(json!({"type": "file", "value": "file-1"}))]), Err(422));
        assert_eq!(refused(vec![json!({"type": "binary", "mimeType": "image/png", "url": "http://a"})]), Err(422));
        let data = |value: &str| image(json!({"type": "data", "value": value, "mimeType": "image/png"}));
        assert_eq!(refused(vec![data("%%%")]), Err(422));
        assert_eq!(refused(vec![data("aGk="); 21]), Err(422));
        assert_eq!(refused(vec![data("aGk="); 20]), Ok(()));
    }
}
