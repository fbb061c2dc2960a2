//! An agent that another agent calls as a tool (L16).

use super::LiveAgent;
use agent_core::message::{CallId, TurnInput};
use agent_core::tool::{ToolDefinition, ToolSource, Traits};
use agent_store::digest_of;
use serde_json::{Value, json};
use std::fmt;
use uuid::{Builder, Uuid};

/// Name of the only argument of a delegate that has no input schema.
const TASK_ARGUMENT: &str = "task";

/// An agent that another agent may delegate to.
#[derive(Clone)]
pub struct Delegate {
    /// The agent that performs the delegated task. The agent uses its own plugins, models, grants, limits and bounds,
    /// and none of those that belong to the delegating agent.
    pub agent: LiveAgent,
    /// Description of the delegate for the model that calls it. The model is shown at most 2 KiB of the description.
    pub description: String,
    /// JSON Schema of the input, which must be an object. If `None`, the arguments of a call are `{"task": text}`, and
    /// this text becomes the delegate's input.
    pub input_schema: Option<Value>,
}

impl Delegate {
    /// Returns the tool definition of the delegate. The definition declares no traits (for example, it does not declare
    /// the tool read-only), because the effects of the delegate's tools are unknown.
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

    /// Converts the arguments of a call, which satisfy the schema, to the input of the delegate's turn.
    pub(crate) fn input(&self, arguments: &Value) -> TurnInput {
        match (&self.input_schema, arguments.get(TASK_ARGUMENT).and_then(Value::as_str)) {
            (None, Some(task)) => TurnInput::Text(task.to_owned()),
            _ => TurnInput::Json(arguments.clone()),
        }
    }

    /// Returns the subject of the session in which the delegate works on a call. The subject is derived from the call,
    /// so that a call that is retried after a crash of the host continues in the same session.
    pub(crate) fn subject(&self, parent: &str, call: &CallId) -> String {
        let agent = self.agent.current();
        let name = &agent.config().name;
        let digest = digest_of(format!("{parent}\n{call}\n{name}").as_bytes());
        let half = u128::from_str_radix(&digest.hex()[..32], 16).expect("a digest is hexadecimal");
        let uuid: Uuid = Builder::from_custom_bytes(half.to_be_bytes()).into_uuid();
        format!("{name}/{uuid}")
    }
}

/// The debug output is part of the parent agent's fingerprint, so equal delegates must have equal output.
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
        "properties": {TASK_ARGUMENT: {"type": "string", "minLength": 1, "description": description}},
        "required": [TASK_ARGUMENT],
        "additionalProperties": false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::{Agent, AgentConfig};
    use agent_models::Provider;
    use agent_models::offline::OfflineRouter;
    use agent_plugins::Generation;
    use std::sync::Arc;

    fn delegate(name: &str, input_schema: Option<Value>) -> Delegate {
        let model = Arc::new(OfflineRouter::new()) as Arc<dyn Provider>;
        let agent = Agent::new(AgentConfig::new(name), model, Generation::new([])).expect("an agent without plugins");
        Delegate { agent: Arc::new(agent).into(), description: "Reads.".into(), input_schema }
    }

    /// L16, D3: every attempt of a call uses the same session, and different calls use different sessions.
    #[test]
    fn l16_each_call_has_its_own_fixed_session() {
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
    fn l16_the_task_is_the_input_unless_the_agent_has_an_input_schema() {
        let arguments = json!({"task": "Read it."});
        assert_eq!(delegate("reader", None).input(&arguments), TurnInput::Text("Read it.".into()));
        let schema = json!({"type": "object", "properties": {"task": {"type": "string"}}});
        assert_eq!(delegate("reader", Some(schema)).input(&arguments), TurnInput::Json(arguments));
    }

    /// The fingerprint of a configuration changes if any delegate in its tree of delegates changes (D1).
    #[test]
    fn d1_a_delegates_fingerprint_is_part_of_the_agents_fingerprint() {
        let fingerprint = |description: &str, delegate_name: &str| {
            let mut config = AgentConfig::new("lead");
            let reader = Delegate { description: description.into(), ..delegate(delegate_name, None) };
            config.delegates.insert("reader".into(), reader);
            let model = Arc::new(OfflineRouter::new()) as Arc<dyn Provider>;
            Agent::new(config, model, Generation::new([])).expect("an agent").fingerprint().to_owned()
        };
        assert_eq!(fingerprint("Reads.", "reader"), fingerprint("Reads.", "reader"));
        assert_ne!(fingerprint("Reads.", "reader"), fingerprint("Reads.", "other"));
    }
}
