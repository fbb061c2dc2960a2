//! The model of a turn for which nobody named one: offered on a terminal, never taken silently.

use crate::environment;
use crate::exit::Failure;
use crate::settings::offer::{Offer, chosen, next_time, of_openai, question};
use crate::settings::{Chain, OPENAI_BASE_URL, WantedModels};
use crate::terminal::text::harmless;
use crate::terminal::{Terminal, YELLOW};
use std::io::{IsTerminal, stdin};

/// The variable that holds OpenAI's key.
const OPENAI_KEY: &str = "OPENAI_API_KEY";
/// Where OpenAI is.
const OPENAI: &str = "openai";

/// Asks on a terminal where no model is named and one could be had. In a pipe nothing is looked for and nobody is asked.
pub(super) async fn choose(models: &mut WantedModels, terminal: &Terminal) -> Result<(), Failure> {
    match &models.chain {
        Chain::Named(_) => Ok(()),
        Chain::AtBaseUrl => Err(Failure::refused("--base-url needs the name of a model there: add --model NAME")),
        Chain::Unnamed if terminal.is_interactive() && stdin().is_terminal() => offer(models, terminal).await,
        Chain::Unnamed => {
            if let Some(offer) = openai() {
                terminal.note(format!(
                    "{YELLOW}!{YELLOW:#} {OPENAI_KEY} is set and no model is named, so the built-in `offline` answers, which \
                     is no language model: --model {} asks that one",
                    offer.name
                ));
            }
            Ok(())
        }
    }
}

async fn offer(models: &mut WantedModels, terminal: &Terminal) -> Result<(), Failure> {
    let offers: Vec<Offer> = openai().into_iter().collect();
    let Some(question) = question(&offers) else { return Ok(()) };
    terminal.note(harmless(&question).trim_end());
    let answer = tokio::task::spawn_blocking(answer).await.unwrap_or_default();
    match chosen(&offers, &answer) {
        Some(offer) => {
            terminal.note(harmless(&next_time(offer)));
            models.choose(offer.name.clone(), "the answer");
        }
        None => terminal.note("`offline` answers; --model offline asks this no more"),
    }
    Ok(())
}

fn openai() -> Option<Offer> {
    let filled = |name| environment::variable(name).filter(|value| !value.trim().is_empty());
    filled(OPENAI_KEY)?;
    let known = agent_models::known_provider(OPENAI)?;
    Some(of_openai(&filled(OPENAI_BASE_URL).unwrap_or_else(|| known.base_url.to_owned())))
}

/// A line of the terminal; nothing where there is none.
fn answer() -> String {
    let mut line = String::new();
    stdin().read_line(&mut line).map(|_| line).unwrap_or_default()
}
