//! `/model`: shows the models and switches between them.

use super::{Chat, lists};
use crate::exit::Failure;
use crate::interrupt::Activity;
use crate::terminal::TypedLine;
use agent_config::assembly;
use agent_models::Provider;
use agent_runtime::Models;
use std::sync::Arc;

/// The question that follows the list of models.
const QUESTION: &str = "number or name, Enter keeps the current model > ";

impl Chat<'_> {
    /// Lists the models. If a user can answer, asks for a model, and switches to it.
    pub(super) async fn choose_model(&mut self) -> Result<(), Failure> {
        let agent = self.agent.current();
        self.prose(lists::marked_models(&agent));
        if !self.terminal.is_interactive() {
            return Ok(());
        }
        let names = lists::own_models(&agent);
        let stopped = self.interrupts.begin(Activity::Prompt);
        let typed = self.terminal.question(QUESTION, &stopped).await.map_err(Failure::output)?;
        let TypedLine::Text(answer) = typed else { return Ok(()) };
        match answer.trim() {
            "" => Ok(()),
            answer => match answer.parse::<usize>().ok() {
                None => self.switch_model(answer),
                Some(number) => match number.checked_sub(1).and_then(|index| names.get(index)) {
                    Some(name) => self.switch_model(name),
                    None => Err(Failure::refused(format!("there is no model with the number {number}"))),
                },
            },
        }
    }

    /// Puts the model at the start of the chain of models. The other models of the chain remain as fallbacks.
    pub(super) fn switch_model(&mut self, name: &str) -> Result<(), Failure> {
        let agent = self.agent.current();
        let models = agent.models();
        let known = models.chain().iter().find(|model| model.info().model.to_string() == name).cloned();
        let first = known.map_or_else(|| assembly::model_named(&self.settings, name), Ok)?;
        let is_other = |model: &&Arc<dyn Provider>| model.info().model != first.info().model;
        let others: Vec<_> = models.chain().iter().filter(is_other).cloned().collect();
        let mut chain = Models::new(first.clone(), others);
        (chain.retry, chain.cooldown) = (models.retry, models.cooldown);
        chain.fallback_text.clone_from(&models.fallback_text);
        (chain.planning, chain.embedder) = (models.planning.clone(), models.embedder.clone());
        self.agent.change(|agent| agent.with_models(chain)).map_err(Failure::refused)?;
        self.note(format!("{} is used from now on", first.info().model));
        Ok(())
    }
}
