//! A context builder: it adds sections to the prompt at the start of a turn.

use agent_host_sdk::context_builder::{Prompt, Request, Section};
use agent_host_sdk::prelude::*;

/// Text of a section of the prompt. The text is the same in every turn, so that providers can cache the prompt.
const ANSWERING: &str = "Answer in plain words and in at most five sentences, unless more is asked for.";

/// The type that implements the context builder.
pub struct Plugin;

impl ContextBuilder for Plugin {
    fn init(request: Request) -> Result<Prompt, Failure> {
        let mut prompt = Prompt::new().section(Section::fixed("answering", ANSWERING));
        if let Some(user) = request.scope.user {
            prompt = prompt.section(Section::dynamic("reader", format!("You write for {user}.")));
        }
        Ok(prompt)
    }
}

agent_host_sdk::export_context_builder!(Plugin);

#[cfg(test)]
mod tests {
    use super::*;
    use agent_host_sdk::context_builder::{Budget, Input, Lifecycle, Memory};
    use agent_host_sdk::testing;

    /// Returns the names of the sections in the prompt for a user.
    fn sections(user: Option<&str>) -> Vec<String> {
        let request = Request {
            lifecycle: Lifecycle::Init,
            scope: Scope { user: user.map(str::to_owned), ..testing::scope() },
            model: testing::model(),
            input: Input::Text("hello".to_owned()),
            tools: Vec::new(),
            memory: Memory { history: Vec::new(), hidden: 0, summary: None, recollections: Vec::new() },
            budget: Budget { available: 100_000, reserved: 1_000, tools: 0 },
        };
        let prompt = Plugin::init(request).expect("this plugin never fails");
        prompt.system.into_iter().map(|section| section.name).collect()
    }

    #[test]
    fn names_the_user_if_the_user_is_known() {
        assert_eq!(sections(None), ["answering"]);
        assert_eq!(sections(Some("ada")), ["answering", "reader"]);
    }
}
