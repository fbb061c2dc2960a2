//! The model of a turn for which nobody named one: offered on a terminal, never taken silently; or the only one that the
//! server at `--base-url` has.

use crate::environment;
use crate::exit::Failure;
use crate::settings::offer::{Offer, chosen, next_time, of_openai, of_servers, question};
use crate::settings::{AT_BASE_URL, Chain, OPENAI_BASE_URL, Settings};
use crate::terminal::text::{harmless, one_line, shell_word};
use crate::terminal::{Terminal, YELLOW};
use agent_models::{Providers, local};
use std::io::{IsTerminal, stdin};
use std::time::Duration;

/// The variable that holds OpenAI's key.
const OPENAI_KEY: &str = "OPENAI_API_KEY";
/// What the servers of this machine get to answer: nobody shall wait for what is mostly not there.
const LOCAL_WAIT: Duration = Duration::from_millis(300);
/// What the server at the base URL gets to list its models.
const LIST_WAIT: Duration = Duration::from_secs(10);
/// Most models that are named in a refusal.
const SHOWN_MODELS: usize = 20;

/// Asks on a terminal where no model is named and one could be had. In a pipe nothing is looked for and nobody is asked.
pub(super) async fn choose(settings: &mut Settings, terminal: &Terminal) -> Result<(), Failure> {
    match &settings.models.chain {
        Chain::Named(_) => Ok(()),
        Chain::AtBaseUrl => take_the_only_one(settings, terminal).await,
        Chain::Unnamed if terminal.is_interactive() && stdin().is_terminal() => {
            offer(settings, terminal).await;
            Ok(())
        }
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

async fn offer(settings: &mut Settings, terminal: &Terminal) {
    let mut offers = of_servers(&local::servers(LOCAL_WAIT).await);
    offers.extend(openai());
    let Some(question) = question(&offers) else { return };
    terminal.note(harmless(&question).trim_end());
    let answer = tokio::task::spawn_blocking(answer).await.unwrap_or_default();
    match chosen(&offers, &answer) {
        Some(offer) => {
            terminal.note(harmless(&next_time(offer)));
            settings.models.choose(offer.name.clone(), "the answer");
        }
        None => terminal.note("`offline` answers; --model offline asks this no more"),
    }
}

fn openai() -> Option<Offer> {
    let filled = |name| environment::variable(name).filter(|value| !value.trim().is_empty());
    filled(OPENAI_KEY)?;
    let known = agent_models::known_provider(AT_BASE_URL)?;
    Some(of_openai(&filled(OPENAI_BASE_URL).unwrap_or_else(|| known.base_url.to_owned())))
}

/// A line of the terminal; nothing where there is none.
fn answer() -> String {
    let mut line = String::new();
    stdin().read_line(&mut line).map(|_| line).unwrap_or_default()
}

async fn take_the_only_one(settings: &mut Settings, terminal: &Terminal) -> Result<(), Failure> {
    let url = settings.models.base_url.clone().unwrap_or_default();
    // Only the address and the key count here, as they will for the model.
    let mut asked = settings.clone();
    asked.models.choose_at_base_url("MODEL");
    let (_, providers) = asked.models(&environment::variable)?;
    let listed = Providers::new(providers).list(AT_BASE_URL, LIST_WAIT).await;
    match listed.as_deref() {
        Some([only]) => {
            terminal.note(format!("the model is `{}`, the only one at {url}", one_line(only, 100)));
            settings.models.choose_at_base_url(only);
            Ok(())
        }
        Some([]) => Err(Failure::refused(format!("the server at {url} has no model: load one there"))),
        Some(models) => Err(Failure::refused(which_one(&url, models))),
        None => Err(Failure::refused(format!(
            "no list of models is to be had at {url}/models: look whether the server runs and whether the address is right \
             (it often ends with `/v1`), or name the model, --model NAME"
        ))),
    }
}

fn which_one(url: &str, models: &[String]) -> String {
    let shown =
        models.iter().take(SHOWN_MODELS).map(|model| format!("\n  --model {}", shell_word(&one_line(model, 200))));
    let more = match models.len().saturating_sub(SHOWN_MODELS) {
        0 => String::new(),
        more => format!("\n  and {more} more"),
    };
    format!("the server at {url} has {} models: say which one{}{more}", models.len(), shown.collect::<String>())
}
