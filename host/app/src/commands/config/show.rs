//! `config show`: shows which files describe the agent that starts in the current folder, and what they allow. Nothing is
//! loaded or started.

use super::print;
use crate::commands::{starting_agent, trust};
use crate::environment;
use crate::exit::Failure;
use crate::terminal::{BOLD, DIM, Terminal, YELLOW, budget, text};
use agent_config::settings::{Chain, NamedModel};
use agent_config::trust::{AgentAuthority, TrustState};
use agent_config::{AgentOptions, DataLocation, Settings, UserFile};

/// Shows the agent that these options select.
pub(super) fn show(options: AgentOptions, data: DataLocation<'_>, terminal: &Terminal) -> Result<(), Failure> {
    let environment = environment::host();
    let (settings, _) = Settings::examine(&options, &environment)?;
    let path = settings.path.clone().unwrap_or_default();
    let authority = match settings.is_user_wide() {
        true => AgentAuthority::of_user_file(&path)?,
        false => AgentAuthority::of(&path)?,
    };
    let state = match settings.is_user_wide() {
        true => "the user-wide configuration".to_owned(),
        false => match starting_agent::trust_store(data, &environment).map(|store| store.state(&authority)) {
            Some(TrustState::Trusted) => "trusted".to_owned(),
            Some(TrustState::Changed(_)) => format!("{YELLOW}has changed since you trusted it{YELLOW:#}"),
            _ => format!("{YELLOW}not trusted{YELLOW:#}"),
        },
    };
    print(terminal, &format!("{BOLD}{}{BOLD:#}  {state}", text::harmless(&path.display().to_string())))?;
    for model in settings.models.named() {
        let name = text::harmless(&model.name).into_owned();
        let origin = match settings.models.chain {
            Chain::Unnamed => " (built in, because no file names a model; `agent-host setup` chooses one)".to_owned(),
            _ => origin_of_model(&settings, &model),
        };
        print(terminal, &format!("  uses the model {name}{origin}"))?;
    }
    for (scope, limits) in settings.file.budgets.limits() {
        print(terminal, &format!("  budget of the {}: {}", budget::owner(scope), budget::limits(limits)))?;
    }
    for line in trust::allowed(&authority) {
        print(terminal, &line)?;
    }
    for note in &settings.unapplied_grants {
        terminal.note(format!("{YELLOW}!{YELLOW:#} {}", text::harmless(note)));
    }
    let user_file = starting_agent::user_file(&environment);
    if let Some(user_file) = user_file.filter(|_| !settings.is_user_wide()) {
        let uses = match &settings.options.user_file {
            Some(UserFile::DefaultModel(_)) if model_is_default(&settings) => "only its model is used here",
            _ => "nothing in it is used here",
        };
        let shown = text::harmless(&user_file.display().to_string()).into_owned();
        print(terminal, &format!("{DIM}user-wide configuration {shown}: {uses}{DIM:#}"))?;
    }
    Ok(())
}

/// Returns where the name of a model comes from, for display after the name. Returns an empty text for a model in the
/// agent's own file.
pub(super) fn origin_of_model(settings: &Settings, model: &NamedModel) -> String {
    match (model_is_default(settings), &settings.options.user_file) {
        (true, Some(UserFile::DefaultModel(_))) => format!(" (from {})", model.place),
        _ => String::new(),
    }
}

/// Returns whether the models come from the user-wide file although another file describes the agent.
fn model_is_default(settings: &Settings) -> bool {
    settings.options.model.is_none() && settings.file.model.is_none() && settings.models.chain != Chain::Unnamed
}
