//! The tools of a client: their definitions, the ids of their calls, and their results. The client runs these calls itself.

use super::error::OpenAiError;
use super::parameters::refuse;
use agent_core::message::CallId;
use agent_core::tool::ClientTool;
use agent_runtime::ClientResult;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

/// Beginning of the ids of calls, as in OpenAI's API.
const PREFIX: &str = "call_";
/// Maximum length of an id, in bytes.
const MAX_BYTES: usize = 1_024;
const ONLY_FUNCTIONS: &str =
    "a client can only offer functions, which it runs itself; the agent's file configures its other tools";
const CHOICE: &str = "the agent's model decides which tools it calls";

/// Reads the tools of a request, in the form of chat completions or of responses. With the choice `none`, the model is offered
/// none of them.
pub(super) fn read_tools(tools: Option<&Value>, choice: Option<&Value>) -> Result<Vec<ClientTool>, OpenAiError> {
    refuse("tool_choice", choice, &["auto", "none"], CHOICE)?;
    let tools = match tools {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(tools)) => tools,
        Some(_) => return Err(OpenAiError::invalid("tools", "`tools` must be a list")),
    };
    let read: Result<Vec<_>, _> = tools.iter().enumerate().map(|(number, tool)| read_tool(number, tool)).collect();
    let is_none = choice.and_then(Value::as_str) == Some("none");
    Ok(read?.into_iter().filter(|_| !is_none).collect())
}

fn read_tool(number: usize, tool: &Value) -> Result<ClientTool, OpenAiError> {
    let at = format!("tools[{number}]");
    if tool["type"] != "function" {
        return Err(OpenAiError::unsupported(at, ONLY_FUNCTIONS));
    }
    let definition = tool.get("function").unwrap_or(tool);
    let name = definition["name"].as_str().ok_or_else(|| OpenAiError::invalid(&at, "a function needs a `name`"))?;
    let description = match &definition["description"] {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        _ => return Err(OpenAiError::invalid(&at, "`description` must be a text")),
    };
    let input_schema = match &definition["parameters"] {
        Value::Null => json!({"type": "object", "properties": {}}),
        schema => schema.clone(),
    };
    Ok(ClientTool { name: name.to_owned(), description, input_schema })
}

/// A call that the client must run.
pub(super) struct ClientCall {
    /// The id under which the client knows the call.
    pub(super) id: String,
    pub(super) name: String,
    /// The arguments, as JSON.
    pub(super) arguments: String,
}

impl ClientCall {
    /// Describes a call of a session.
    pub(super) fn new(session: &str, call: &CallId, name: &str, arguments: &Value) -> Self {
        // Arguments that are not JSON are kept as a text.
        let arguments = arguments.as_str().map_or_else(|| arguments.to_string(), str::to_owned);
        Self { id: encode(session, call), name: name.to_owned(), arguments }
    }
}

/// Writes the id under which a client knows a call. It contains the session, so that the client's result finds the session
/// without a table of ids. It grants nothing: the session is checked for each request.
fn encode(session: &str, call: &CallId) -> String {
    format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(format!("{call}.{session}")))
}

/// Reads an id. Returns the session and the call.
fn decode(id: &str) -> Option<(String, CallId)> {
    let encoded = id.strip_prefix(PREFIX).filter(|encoded| encoded.len() <= MAX_BYTES)?;
    let text = String::from_utf8(URL_SAFE_NO_PAD.decode(encoded).ok()?).ok()?;
    let (call, session) = text.split_once('.')?;
    let (session, call) = (session.to_owned(), CallId(call.to_owned()));
    // Only one text is the id of a call.
    (encode(&session, &call) == id).then_some((session, call))
}

/// A result that a client sends, with the path of its message in the request.
#[derive(Clone, Debug)]
pub(super) struct SentResult {
    pub(super) id: String,
    pub(super) text: String,
    pub(super) at: String,
}

/// The results of the calls of one session.
#[derive(Debug)]
pub(super) struct SessionResults {
    pub(super) session: String,
    pub(super) results: Vec<ClientResult>,
}

/// Finds the session to which results belong.
pub(super) fn of_session(sent: Vec<SentResult>) -> Result<Option<SessionResults>, OpenAiError> {
    let mut found: Option<SessionResults> = None;
    for SentResult { id, text, at } in sent {
        let Some((session, call)) = decode(&id) else {
            let id: String = id.chars().take(100).collect();
            return Err(OpenAiError::invalid(at, format!("no agent of this server has made the call `{id}`")));
        };
        let found = found.get_or_insert_with(|| SessionResults { session: session.clone(), results: Vec::new() });
        if found.session != session {
            return Err(OpenAiError::invalid(at, "the results of one request must belong to calls of one session"));
        }
        found.results.push(ClientResult { call, text, is_error: false });
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// I3: ids of calls are read back, and forged ids are not read.
    #[test]
    fn i3_ids_of_calls_are_read_back() {
        let call = CallId("call_1_2_3_abc".to_owned());
        let id = encode("clerk/ä.b/1", &call);
        assert_eq!(decode(&id), Some(("clerk/ä.b/1".to_owned(), call)));
        let long = format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(format!("c.{}", "a".repeat(2_000))));
        for forged in ["", "call_", "call_%%%", &id[1..], &format!("{id}="), "call_YQ", &long] {
            assert_eq!(decode(forged), None, "{forged}");
        }
    }

    /// I3: functions are read in both forms. Anything that the agent would not follow is refused.
    #[test]
    fn i3_tools_are_functions() {
        let chat = json!([{"type": "function", "function": {"name": "f", "description": "D", "parameters": {"type": "object"}}}]);
        let responses = json!([{"type": "function", "name": "f", "description": "D", "parameters": {"type": "object"}, "strict": true}]);
        let expected =
            ClientTool { name: "f".into(), description: "D".into(), input_schema: json!({"type": "object"}) };
        for tools in [&chat, &responses] {
            assert_eq!(read_tools(Some(tools), None).unwrap(), std::slice::from_ref(&expected));
            assert_eq!(read_tools(Some(tools), Some(&json!("none"))).unwrap(), []);
        }
        let refused = [
            (json!([{"type": "web_search"}]), json!("auto")),
            (json!([{"type": "function"}]), json!("auto")),
            (json!([{"type": "function", "name": "f", "description": 1}]), json!("auto")),
            (json!("f"), json!("auto")),
            (chat.clone(), json!("required")),
            (chat.clone(), json!({"type": "function", "function": {"name": "f"}})),
        ];
        for (tools, choice) in refused {
            assert!(read_tools(Some(&tools), Some(&choice)).is_err(), "{tools} {choice}");
        }
    }
}
