//! Checks the configuration files, the model and the plugins of the agent that starts in the current folder.

use super::{Finding, Level};
use crate::commands::starting_agent;
use crate::terminal::{Terminal, text};
use agent_config::settings::{Chain, NamedModel, provider_of};
use agent_config::trust::{AgentAuthority, TrustState};
use agent_config::user_file::check_owner;
use agent_config::{AgentFile, AgentOptions, DataDirectory, HostEnvironment, Settings, UserFile, assembly, shell_word};
use agent_models::{ProviderConfig, local};
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;
use url::{Host, Url};

const USER_FILE: &str = "user-wide";
const FOLDER_FILE: &str = "this folder";
const MODEL: &str = "model";
const PLUGINS: &str = "plugins";
const COLLECTOR: &str = "collector";

/// Maximum time to wait for a model server on this machine.
const SERVER_WAIT: Duration = Duration::from_secs(2);

/// Checks the agent that starts in the current folder.
pub(super) async fn check(root: Option<&Path>, environment: &HostEnvironment, terminal: &Terminal) -> Vec<Finding> {
    let mut findings = vec![user_file(environment)];
    let (folder_file, is_trusted) = file_of_folder(root, environment);
    findings.extend(folder_file);
    let user_file = starting_agent::user_file(environment);
    let options = match (is_trusted, user_file) {
        (true, user_file) => AgentOptions {
            agent: starting_agent::file_of_folder(environment),
            user_file: user_file.map(UserFile::DefaultModel),
            ..AgentOptions::default()
        },
        (false, Some(path)) => AgentOptions { user_file: Some(UserFile::Agent(path)), ..AgentOptions::default() },
        (false, None) => AgentOptions { plugins: environment.installed_plugins(), ..AgentOptions::default() },
    };
    if options == AgentOptions::default() {
        return findings;
    }
    // An invalid file was already reported.
    let Ok((settings, problems)) = Settings::examine(&options, environment) else { return findings };
    for (_, problem) in problems.in_order(settings.path.as_deref()) {
        findings.push(Finding::new("configuration", Level::Error, problem, check_command(&settings)));
    }
    findings.extend(model(&settings).await);
    findings.push(plugins(&settings, root, terminal).await);
    findings.extend(collector(&settings).await);
    findings
}

fn check_command(settings: &Settings) -> String {
    let file = settings.path.as_ref().map(|path| shell_word(&path.display().to_string())).unwrap_or_default();
    format!("`agent-host config check {file}` shows the lines of the file")
}

fn user_file(environment: &HostEnvironment) -> Finding {
    let Some(path) = &environment.user_file else {
        return Finding::new(
            USER_FILE,
            Level::Hint,
            "there is no home folder for a user-wide configuration",
            "set HOME",
        );
    };
    let shown = path.display();
    if !path.exists() {
        let message = format!("there is no user-wide configuration `{shown}`");
        return Finding::new(USER_FILE, Level::Hint, message, "`agent-host setup` asks a few questions and writes it");
    }
    match check_owner(path).and_then(|()| Ok(AgentFile::read(path)?)) {
        Ok(_) => Finding::ok(USER_FILE, format!("`{shown}` is valid")),
        Err(error) => Finding::new(USER_FILE, Level::Error, error.to_string(), "correct the file with an editor"),
    }
}

/// Checks the agent.toml of the current folder. The second part of the result is true if the file can be used.
fn file_of_folder(root: Option<&Path>, environment: &HostEnvironment) -> (Option<Finding>, bool) {
    let Some(path) = starting_agent::file_of_folder(environment) else { return (None, false) };
    let shown = path.display();
    let authority = match AgentAuthority::of(&path) {
        Ok(authority) => authority,
        Err(error) => {
            let fix = "correct the file with an editor";
            return (Some(Finding::new(FOLDER_FILE, Level::Error, error.to_string(), fix)), false);
        }
    };
    let store = starting_agent::trust_store(root.into(), environment);
    match store.map(|store| store.state(&authority)) {
        Some(TrustState::Trusted) => (Some(Finding::ok(FOLDER_FILE, format!("`{shown}` is valid and trusted"))), true),
        state => {
            let message = match state {
                Some(TrustState::Changed(_)) => format!("`{shown}` has changed since you trusted it"),
                _ => format!("`{shown}` is valid, but not trusted"),
            };
            let fix = "`agent-host trust` shows what it allows and trusts it; without trust, every start asks";
            (Some(Finding::new(FOLDER_FILE, Level::Hint, message, fix)), false)
        }
    }
}

/// Checks that the keys of the models are set, and that model servers on this machine answer. No other server is contacted.
async fn model(settings: &Settings) -> Vec<Finding> {
    if settings.models.chain == Chain::Unnamed {
        let message = "no model is configured, so the built-in `offline` answers; it is not a language model";
        return vec![Finding::new(MODEL, Level::Hint, message, "`agent-host setup` chooses a model")];
    }
    let (chain, providers) = match settings.models() {
        Ok(models) => models,
        Err(error) => {
            let fix = "set the variable that the message names, or choose another model with `agent-host setup`";
            return vec![Finding::new(MODEL, Level::Error, error.to_string(), fix)];
        }
    };
    let mut findings = Vec::new();
    for (index, model) in chain.iter().enumerate() {
        let provider = providers.iter().find(|provider| Some(provider.name.as_str()) == provider_of(&model.name));
        // A fallback model that does not answer does not stop sessions.
        let level = if index == 0 { Level::Error } else { Level::Warning };
        findings.push(match provider.filter(|provider| is_on_this_machine(&provider.base_url)) {
            Some(provider) => server(model, provider, level).await,
            None => Finding::ok(MODEL, format!("{}{}", model.name, key(provider))),
        });
    }
    findings
}

fn key(provider: Option<&ProviderConfig>) -> &'static str {
    match provider {
        Some(provider) if provider.key.is_some() => ": its key is set; `agent-host model test MODEL` sends a request",
        _ => "",
    }
}

/// Asks a model server on this machine for its models.
async fn server(model: &NamedModel, provider: &ProviderConfig, level: Level) -> Finding {
    let (name, url) = (&model.name, &provider.base_url);
    let wanted = name.split_once('/').map(|(_, wanted)| wanted).unwrap_or_default();
    match local::list_models(url, SERVER_WAIT).await {
        None => {
            let fix = format!("start the server, or correct the address of the provider `{}`", provider.name);
            Finding::new(MODEL, level, format!("{name}: no model server answers at {url}"), fix)
        }
        Some(models) if models.iter().any(|listed| listed == wanted) => {
            Finding::ok(MODEL, format!("{name}: the server at {url} has the model"))
        }
        Some(_) => {
            let fix = format!("load the model there; `agent-host model list {}` lists its models", provider.name);
            Finding::new(MODEL, Level::Warning, format!("{name}: the server at {url} does not list this model"), fix)
        }
    }
}

fn is_on_this_machine(base_url: &str) -> bool {
    match Url::parse(base_url).as_ref().map(Url::host) {
        Ok(Some(Host::Ipv4(address))) => IpAddr::from(address).is_loopback(),
        Ok(Some(Host::Ipv6(address))) => IpAddr::from(address).is_loopback(),
        Ok(Some(Host::Domain(name))) => name == "localhost",
        _ => false,
    }
}

/// Sends the collector a request without spans. Traces are kept in the store until it accepts them, so sessions work without it.
async fn collector(settings: &Settings) -> Option<Finding> {
    let collector = settings.telemetry.collector()?;
    Some(match collector.check().await {
        Ok(()) => Finding::ok(COLLECTOR, format!("{} accepts traces", collector.url())),
        Err(error) => {
            let fix = "start the collector, or correct `[telemetry]`: `endpoint`, `headers` and `header_env`; traces are kept and sent later";
            Finding::new(COLLECTOR, Level::Warning, error.to_string(), fix)
        }
    })
}

/// An agent without a plugin folder starts, unless its file names plugins.
fn without_plugin_folder(settings: &Settings) -> Finding {
    let missing = settings.unknown_plugins(&|_| false);
    let fix = match settings.is_user_wide() {
        true => "`agent-host setup` chooses a plugin folder".to_owned(),
        false => settings.advice_without_plugin_folder().unwrap_or_default(),
    };
    match missing.is_empty() {
        true => Finding::new(PLUGINS, Level::Hint, "no plugin folder is configured", fix),
        false => Finding::new(PLUGINS, Level::Error, missing.join("\n"), fix),
    }
}

/// Loads all plugins, which checks the lock file and the signatures as well.
async fn plugins(settings: &Settings, root: Option<&Path>, terminal: &Terminal) -> Finding {
    let Some(folder) = &settings.plugins else { return without_plugin_folder(settings) };
    let shown = folder.display();
    // A data folder is not created, because `doctor` changes nothing. An existing one is used for its compiled code. The
    // folder for temporary files is not used, because a plugin may be able to change code there before it is loaded.
    let loaded = async {
        let sandbox = match root.filter(|root| DataDirectory::examine(root).is_ok()) {
            Some(root) => assembly::open_sandbox(settings, &DataDirectory::open(Some(root), &settings.environment)?)?,
            None => assembly::open_checking_sandbox(settings)?,
        };
        assembly::load_plugins(settings, &sandbox, terminal).await
    };
    let fix = "`agent-host plugin check FILE` and `agent-host plugin verify` explain the problems of single plugins";
    match loaded.await {
        Err(error) => Finding::new(PLUGINS, Level::Error, error.to_string(), fix),
        Ok((_, problems)) if !problems.is_empty() => {
            let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
            Finding::new(PLUGINS, Level::Error, problems.join("\n"), fix)
        }
        Ok((generation, _)) if generation.plugins().len() == 0 => {
            let message = format!("there are no plugins (*.wasm) in `{shown}`");
            Finding::new(PLUGINS, Level::Warning, message, "`agent-host plugin build DIR` builds plugin projects")
        }
        Ok((generation, _)) => {
            let missing = settings.unknown_plugins(&|name| generation.plugin(name).is_some());
            match missing.is_empty() {
                true => {
                    let number = text::count(generation.plugins().len(), "plugin");
                    Finding::ok(PLUGINS, format!("{number} in `{shown}` can be loaded"))
                }
                false => Finding::new(PLUGINS, Level::Error, missing.join("\n"), check_command(settings)),
            }
        }
    }
}
