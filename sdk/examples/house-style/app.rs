//! A context builder: it adds sections to the prompt at the start of a turn, and before each call of the model.

use agent_host_sdk::context_builder::{Prompt, Request, Section};
use agent_host_sdk::prelude::*;
use agent_host_sdk::step_context;

/// The type that implements the context builder.
pub struct Plugin;

impl ContextBuilder for Plugin {
    fn init(request: Request) -> Result<Prompt, Failure> {
        let user = request.scope.user.as_deref().unwrap_or("somebody");
        let turn = request.scope.turn;
        Ok(Prompt::new()
            // The text is the same in every turn, so that providers can cache the prompt.
            .section(Section::fixed("answering", "Answer in at most five sentences."))
            .section(Section::dynamic("reader", format!("You write for {user}. This is turn {turn}.")))
            // The host passes the state to each step of the turn.
            .state(user.as_bytes().to_vec()))
    }
}

impl StepContext for Plugin {
    fn step(request: step_context::Request) -> Result<Vec<Section>, Failure> {
        if request.steps_left > 1 {
            return Ok(Vec::new());
        }
        let state = request.state.unwrap_or_default();
        let user = String::from_utf8_lossy(&state);
        Ok(vec![Section::dynamic("end", format!("This is the last step: answer {user} now."))])
    }
}

agent_host_sdk::export_step_context!(Plugin);
