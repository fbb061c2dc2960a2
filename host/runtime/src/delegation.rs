//! An agent as another agent's tool: what is configured of it, and what becomes of its output (L16).

use crate::calls::bounded;
use crate::live::LiveAgent;
use crate::session::TurnResult;
use agent_core::change::CallResult;
use agent_core::message::{CallId, Content, TurnInput};
use agent_core::run::{Output, Prospect, TurnError};
use agent_core::tool::{CallCost, ToolDefinition, ToolError, ToolSource, Traits};
use agent_store::digest_of;
use serde_json::{Value, json};
use std::fmt;
use std::time::Duration;
use uuid::{Builder, Uuid};

/// The one argument of an agent that has no input schema.
const TASK: &str = "task";
/// What the model is told where the work ended at a bound.
const AT_A_BOUND: &str = "[the agent ended at its bound of model calls: this may be incomplete]";

/// An agent that another one may delegate to.
#[derive(Clone)]
pub struct Delegate {
    /// Who does the work: with its own plugins, models, grants, limits and bounds, and nothing of the other one's.
    pub agent: LiveAgent,
    /// For the model that delegates. At most 2 KiB.
    pub description: String,
    /// JSON Schema of the input, an object. None: `{"task": text}`, and the task is the input.
    pub input_schema: Option<Value>,
}

impl Delegate {
    /// The tool of that name. What the agent does to the world is not known, so nothing is claimed.
    pub(crate) fn definition(&self, name: &str) -> ToolDefinition {
        ToolDefinition {
            name: name.to_owned(),
            title: None,
            description: self.description.clone(),
            input_schema: self.input_schema.clone().unwrap_or_else(task_schema),
            output_schema: None,
            traits: Traits::default(),
            priority: 0,
        }
    }

    pub(crate) fn source(&self) -> ToolSource {
        ToolSource::Agent { agent: self.agent.current().config().name.clone() }
    }

    /// What the agent is asked, of arguments that satisfy the schema.
    pub(crate) fn input(&self, arguments: &Value) -> TurnInput {
        match (&self.input_schema, arguments.get(TASK).and_then(Value::as_str)) {
            (None, Some(task)) => TurnInput::Text(task.to_owned()),
            _ => TurnInput::Json(arguments.clone()),
        }
    }

    /// Subject of the session that does the work of a call: always the same one, so that a call has one session, however
    /// often the host dies in between.
    pub(crate) fn subject(&self, parent: &str, call: &CallId) -> String {
        let agent = self.agent.current();
        let name = &agent.config().name;
        let digest = digest_of(format!("{parent}\n{call}\n{name}").as_bytes());
        let half = u128::from_str_radix(&digest.hex()[..32], 16).expect("a digest is hexadecimal");
        let uuid: Uuid = Builder::from_custom_bytes(half.to_be_bytes()).into_uuid();
        format!("{name}/{uuid}")
    }
}

/// For the agent's fingerprint: two delegates that are the same show the same.
impl fmt::Debug for Delegate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let agent = self.agent.current();
        formatter
            .debug_struct("Delegate")
            .field("agent", &agent.config().name)
            .field("fingerprint", &agent.fingerprint())
            .field("description", &self.description)
            .field("input_schema", &self.input_schema)
            .finish()
    }
}

fn task_schema() -> Value {
    let description = "What is to be done, with all that is needed for it: the agent sees nothing else.";
    json!({
        "type": "object",
        "properties": {TASK: {"type": "string", "minLength": 1, "description": description}},
        "required": [TASK],
        "additionalProperties": false,
    })
}

/// The result of the call that a session has worked for; none where it has not ended.
pub(crate) fn result(session: &str, ended: &TurnResult, spent: Duration) -> Option<CallResult> {
    let cost = CallCost { wall_us: u64::try_from(spent.as_micros()).unwrap_or(u64::MAX), ..CallCost::default() };
    let result = match ended {
        TurnResult::Finished(output) => answer(output),
        TurnResult::Failed(error) => failed_in(session, error.code(), &error_of(error)),
        TurnResult::Cancelled => {
            let error = ToolError::Failed { message: "the agent's turn was cancelled".to_owned() };
            failed_in(session, "cancelled", &error)
        }
        TurnResult::Suspended(_) | TurnResult::Interrupted | TurnResult::Idle => return None,
    };
    Some(CallResult { cost, ..result })
}

/// The result of work that could not be given to the agent.
pub(crate) fn failed(error: &ToolError) -> CallResult {
    CallResult { content: vec![Content::Text(error.for_model())], is_error: true, ..CallResult::default() }
}

/// The same of work that was begun. Its session, which is a new one each time, is for programs alone: the model's text is the
/// same where the failure is, or nobody would notice that it repeats (L28).
fn failed_in(session: &str, code: &str, error: &ToolError) -> CallResult {
    CallResult { structured: Some(json!({"session": session, "error": code})), ..failed(error) }
}

/// The output for the model; beside it, for programs, what it cost.
fn answer(output: &Output) -> CallResult {
    let data = match &output.data {
        Value::String(text) => Content::Text(text.clone()),
        json => Content::Json(json.clone()),
    };
    let note = output.limit_reached.then(|| Content::Text(AT_A_BOUND.to_owned()));
    let structured = json!({
        "data": output.data,
        "session": output.session,
        "finish": output.finish,
        "limit_reached": output.limit_reached,
        "interactions": output.interactions,
        "execution_units": output.execution_units,
        "usage": output.usage,
        "model": output.model,
    });
    let content = std::iter::once(data).chain(note).collect();
    CallResult { content: bounded(content), structured: Some(structured), ..CallResult::default() }
}

fn error_of(error: &TurnError) -> ToolError {
    let message = format!("{}: {}", error.code(), without_request(&error.to_string()));
    match error {
        // Another try may find a model that answers.
        TurnError::ModelFailed { prospect: Prospect::Later, .. } => {
            ToolError::Unavailable { message, retry_after: None }
        }
        _ => ToolError::Failed { message },
    }
}

/// A model's error without the id that its provider gave the request: that is a new one each time, too.
fn without_request(message: &str) -> String {
    let mut rest = message;
    let mut shown = String::with_capacity(message.len());
    while let Some((before, after)) = rest.split_once("request ") {
        let (id, tail) = after.split_at(after.find([')', ' ', ',']).unwrap_or(after.len()));
        let place = [" (", ", "].into_iter().find(|begin| before.ends_with(begin)).filter(|_| tail.starts_with(')'));
        match place {
            Some(begin) if !id.is_empty() => {
                shown.push_str(&before[..before.len() - begin.len()]);
                rest = if begin == " (" { &tail[1..] } else { tail };
            }
            _ => {
                shown.push_str(before);
                shown.push_str("request ");
                rest = after;
            }
        }
    }
    shown + rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::{Agent, AgentConfig};
    use agent_core::event::EndReason;
    use agent_core::model::Usage;
    use agent_core::view::result_text;
    use agent_models::Provider;
    use agent_models::offline::Offline;
    use agent_plugins::Generation;
    use std::sync::Arc;

    fn delegate(name: &str, input_schema: Option<Value>) -> Delegate {
        let model = Arc::new(Offline::new()) as Arc<dyn Provider>;
        let agent = Agent::new(AgentConfig::new(name), model, Generation::new([])).expect("an agent without plugins");
        Delegate { agent: Arc::new(agent).into(), description: "Reads.".into(), input_schema }
    }

    fn output(data: Value) -> Output {
        Output {
            data,
            finish: EndReason::Answered,
            limit_reached: false,
            execution_units: 330,
            usage: Usage { prompt_tokens: 300, completion_tokens: 30 },
            interactions: 3,
            model: "scripted/one".into(),
            session: "reader/1".into(),
            turn: 1,
            messages: None,
        }
    }

    /// L16, D3: one call, one session, whoever asks again.
    #[test]
    fn l16_a_call_has_one_session() {
        let reader = delegate("reader", None);
        let call = |id: &str| CallId(id.into());
        let subject = reader.subject("lead/1", &call("call_1_1_1"));
        assert!(subject.starts_with("reader/") && subject.len() == "reader/".len() + 36, "{subject}");
        assert_eq!(subject, reader.subject("lead/1", &call("call_1_1_1")));
        for other in [
            reader.subject("lead/1", &call("call_1_1_2")),
            reader.subject("lead/2", &call("call_1_1_1")),
            delegate("writer", None).subject("lead/1", &call("call_1_1_1")),
        ] {
            assert_ne!(subject.split('/').next_back(), other.split('/').next_back());
        }
    }

    #[test]
    fn l16_the_task_is_the_input_unless_the_agent_has_a_schema_of_its_own() {
        let arguments = json!({"task": "Read it."});
        assert_eq!(delegate("reader", None).input(&arguments), TurnInput::Text("Read it.".into()));
        let schema = json!({"type": "object", "properties": {"task": {"type": "string"}}});
        assert_eq!(delegate("reader", Some(schema)).input(&arguments), TurnInput::Json(arguments));
    }

    #[test]
    fn l16_an_output_is_a_result_that_says_what_it_cost() {
        let ended =
            |output| result("reader/1", &TurnResult::Finished(output), Duration::from_millis(2)).expect("ended");
        let text = ended(output(json!("It is read.")));
        assert_eq!(
            (result_text(&text.content).as_str(), text.is_error, text.cost.wall_us),
            ("It is read.", false, 2000)
        );
        let structured = text.structured.expect("for programs");
        assert_eq!(structured["execution_units"], 330);
        assert_eq!(structured["session"], "reader/1");
        assert_eq!(ended(output(json!({"pages": 3}))).content, [Content::Json(json!({"pages": 3}))]);
        let bound = ended(Output { limit_reached: true, ..output(json!("Half.")) });
        assert_eq!(bound.content.len(), 2, "the model is told that it may be incomplete");
    }

    #[test]
    fn l16_an_error_is_typed_and_what_waits_has_no_result() {
        let error = TurnError::HostFailed { message: "no disk".into() };
        let failed = result("reader/1", &TurnResult::Failed(error), Duration::ZERO).expect("ended");
        let shown = result_text(&failed.content);
        assert!(failed.is_error && shown.contains("host_failed") && !shown.contains("reader/1"), "{shown}");
        assert_eq!(failed.structured, Some(json!({"session": "reader/1", "error": "host_failed"})));
        assert!(serde_json::from_str::<ToolError>(&shown).is_ok(), "{shown}");
        assert!(result("reader/1", &TurnResult::Cancelled, Duration::ZERO).expect("ended").is_error);
        assert_eq!(result("reader/1", &TurnResult::Suspended(Default::default()), Duration::ZERO), None);
    }

    /// L16, L28: a failure that repeats reads the same, and what will fail again is not told to be worth another try.
    #[test]
    fn l28_the_models_text_of_a_failure_is_the_same_each_time() {
        let told = |session: &str, request: &str, prospect| {
            let message =
                format!("openai/gpt answered with status 400 (code `x`, request {request}): no such request (ever)");
            let error = TurnError::ModelFailed { message: format!("{message} (request {request})"), prospect };
            let ended = result(session, &TurnResult::Failed(error), Duration::ZERO).expect("ended");
            serde_json::from_str::<Value>(&result_text(&ended.content)).expect("a typed error")
        };
        let never = told("reader/1", "req_1", Prospect::Never);
        assert_eq!(never, told("reader/2", "req_2", Prospect::Never));
        assert_eq!(never["error"], "failed");
        let message = never["message"].as_str().expect("a message");
        assert!(message.ends_with("status 400 (code `x`): no such request (ever)"), "{message}");
        assert_eq!(told("reader/1", "req_1", Prospect::Later)["error"], "unavailable");
        let cancelled = |session| result(session, &TurnResult::Cancelled, Duration::ZERO).expect("ended").content;
        assert_eq!(cancelled("reader/1"), cancelled("reader/2"));
    }

    /// The configuration's digest is that of the whole tree of agents (D1).
    #[test]
    fn a_delegates_fingerprint_is_part_of_the_agents_own() {
        let above = |description: &str, below: &str| {
            let mut config = AgentConfig::new("lead");
            let reader = Delegate { description: description.into(), ..delegate(below, None) };
            config.delegates.insert("reader".into(), reader);
            let model = Arc::new(Offline::new()) as Arc<dyn Provider>;
            Agent::new(config, model, Generation::new([])).expect("an agent").fingerprint().to_owned()
        };
        assert_eq!(above("Reads.", "reader"), above("Reads.", "reader"));
        assert_ne!(above("Reads.", "reader"), above("Reads.", "other"));
    }
}
