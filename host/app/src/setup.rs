//! From settings to what runs: the store, the sandbox, the loaded plugins, the agent.

pub(crate) mod agents;
mod model;
pub(crate) mod rules;
pub(crate) mod scenario;

use crate::arguments::{AgentArguments, COMPILE};
use crate::configuration::ServiceTable;
use crate::data::DataDirectory;
use crate::environment;
use crate::exit::Failure;
use crate::grants;
use crate::protection;
use crate::settings::{self, Helpers, NamedModel, Problems, Settings};
use crate::terminal::{Terminal, YELLOW, show_build, show_load};
use agent_core::prompt::PromptParts;
use agent_core::run::LoopConfig;
use agent_core::tool::ToolSource;
use agent_devkit::build::{BuildError, BuiltPlugin, build_directory};
use agent_mcp::ServerConfig;
use agent_models::{Embedder, Provider, Providers, RetryPolicy};
use agent_plugins::limits::{CALL_LIMITS, HOST_LIMITS};
use agent_plugins::{
    CallLimits, CompilerCommand, Generation, Grants, HostLimits, HttpPattern, LoadError, LoadEvent, LoadProblem,
    LoadedPlugin, Sandbox, SandboxOptions,
};
use agent_registry::{Locked, Trust};
use agent_runtime::{
    Agent, AgentConfig, AgentError, Announced, Asking, Delegate, Emission, LiveAgent, Models, OutboxConfig,
    PlanningModels, PluginAllowance, RegistryError, ServiceConfig, swap,
};
use agent_store::{Indexes, Options, SqliteStore, StoreError};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Opens the database.
pub(crate) fn store(data: &DataDirectory) -> Result<Arc<SqliteStore>, Failure> {
    SqliteStore::open(data.database(), Options::default()).map(Arc::new).map_err(Failure::refused)
}

/// The same for commands that read: if the file or its disk cannot be written, the store is opened for reading only, and every
/// write fails.
pub(crate) fn store_to_read(data: &DataDirectory) -> Result<Arc<SqliteStore>, Failure> {
    let refused = match SqliteStore::open(data.database(), Options::default()) {
        Err(refused @ (StoreError::ReadOnly { .. } | StoreError::DiskFull { .. })) => refused,
        opened => return opened.map(Arc::new).map_err(Failure::refused),
    };
    // Why it could not be written says more than why it could not be read either.
    let store = SqliteStore::open_to_read(data.database()).map_err(|_| Failure::refused(&refused))?;
    tracing::warn!("{refused}; it is only read");
    Ok(Arc::new(store))
}

/// The same to be looked at, or to make its indexes anew.
pub(crate) fn store_to_mend(data: &DataDirectory) -> Result<SqliteStore, Failure> {
    let options = Options { indexes: Indexes::ToBeRebuilt, ..Options::default() };
    SqliteStore::open(data.database(), options).map_err(Failure::refused)
}

/// Starts the sandbox on the data folder's cache and plugin store, with the limits of who needs no agent.
pub(crate) fn sandbox(data: &DataDirectory) -> Result<Sandbox, Failure> {
    limited_sandbox(data, HostLimits::default(), Trust::default())
}

/// The same with the limits that the agent's file sets for the host.
pub(crate) fn sandbox_of(settings: &Settings, data: &DataDirectory) -> Result<Sandbox, Failure> {
    let mut limits = HostLimits::default();
    settings.file.host_limits.set(&HOST_LIMITS, &mut limits);
    let sandbox = limited_sandbox(data, limits, settings.file.sharing.clone())?;
    // Here, so that no command forgets it.
    sandbox.protect(protection::of_agent(settings));
    Ok(sandbox)
}

/// The engine for an agent below another one: what its own file says of signatures counts beside what the first one's says.
pub(crate) fn vetted(sandbox: &Sandbox, settings: &Settings) -> Sandbox {
    sandbox.vetted_by(vetting(settings))
}

fn vetting(settings: &Settings) -> Arc<Locked> {
    Arc::new(Locked { trust: settings.file.sharing.clone() })
}

/// The same for who speaks of no agent but of its file.
pub(crate) fn limited_sandbox(data: &DataDirectory, limits: HostLimits, trust: Trust) -> Result<Sandbox, Failure> {
    let program = environment::this_program().ok_or_else(|| {
        Failure::refused("this program's own file cannot be found, and it has to start itself to examine components")
    })?;
    let options = SandboxOptions {
        cache_directory: Some(data.cache()),
        store_directory: Some(data.plugins()),
        compiler: Some(CompilerCommand { program, arguments: vec![COMPILE.into()] }),
        limits,
        vetting: Some(Arc::new(Locked { trust })),
        ..SandboxOptions::default()
    };
    let sandbox = Sandbox::new(options).map_err(Failure::refused)?;
    sandbox.protect(protection::of_host(data));
    Ok(sandbox)
}

/// Builds the projects of a folder, writing the components there. A compile error is a failure of the work asked for.
pub(crate) async fn build(directory: &Path, terminal: &Terminal) -> Result<Vec<BuiltPlugin>, Failure> {
    let toolchain = environment::toolchain();
    let progress = |event: agent_devkit::build::BuildEvent<'_>| show_build(terminal, &event);
    let built = build_directory(&toolchain, directory, directory, &progress).await;
    terminal.idle();
    built.map_err(|error| match error {
        BuildError::Compile { tool, plugins, .. } if !terminal.is_interactive() => {
            Failure::failed(format!("{tool} could not build {}: its messages stand above", plugins.join(", ")))
        }
        BuildError::Compile { .. } | BuildError::NotAComponent { .. } | BuildError::Wit { .. } => {
            Failure::failed(error)
        }
        _ => Failure::refused(error),
    })
}

/// The settings that the arguments ask for, with a model that somebody chose, after the build that they ask for.
pub(crate) async fn settings(arguments: &AgentArguments, terminal: &Terminal) -> Result<Settings, Failure> {
    let mut settings = Settings::read(arguments, &environment::variable)?;
    model::choose(&mut settings, terminal).await?;
    if arguments.build {
        build(settings::build_directory(&settings)?, terminal).await?;
    }
    Ok(settings)
}

/// The same for who needs no model.
pub(crate) async fn settings_without_model(
    arguments: &AgentArguments,
    terminal: &Terminal,
) -> Result<Settings, Failure> {
    let settings = Settings::read(arguments, &environment::variable)?;
    if arguments.build {
        build(settings::build_directory(&settings)?, terminal).await?;
    }
    Ok(settings)
}

/// Loads the plugins of the folder, and says which files are none.
pub(crate) async fn plugins(
    settings: &Settings,
    sandbox: &Sandbox,
    terminal: &Terminal,
) -> Result<(Generation, Vec<LoadProblem>), Failure> {
    sandbox.protect(protection::of_agent(settings));
    let Some(directory) = &settings.plugins else { return Ok((Generation::new([]), Vec::new())) };
    let progress = |event: LoadEvent| show_load(terminal, &event);
    let loaded = Generation::load(sandbox, directory, &progress).await;
    terminal.idle();
    loaded.map_err(Failure::refused)
}

/// What of the folder's plugins serves, as a session would find it: with the versions that serve instead of those that were
/// taken back. Says which those are.
pub(crate) async fn serving(
    settings: &Settings,
    (data, sandbox): (&DataDirectory, &Sandbox),
    generation: Generation,
    terminal: &Terminal,
) -> Result<Generation, Failure> {
    let Some(directory) = settings.plugins.as_deref().filter(|_| data.database().exists()) else {
        return Ok(generation);
    };
    let store = store(data)?;
    let serving = swap::serving(&*store, sandbox, directory, &generation).await;
    let (generation, standing) = serving.map_err(Failure::refused)?;
    for (name, from) in &standing.rolled_back {
        let to = generation.plugin(name).map(|plugin| plugin.digest().short().to_owned()).unwrap_or_default();
        terminal.note(format!(
            "{YELLOW}!{YELLOW:#} {name} {} is rolled back, so that {to} serves instead; `agent-host plugin rollback {name} --undo` \
             lets its file serve",
            from.short()
        ));
    }
    Ok(generation)
}

/// Files that cannot be loaded, each with its reason, as one failure; nothing where there are none.
pub(crate) fn refuse(problems: &[LoadProblem]) -> Result<(), Failure> {
    if problems.is_empty() {
        return Ok(());
    }
    let is_files_fault =
        |problem: &&LoadProblem| !matches!(problem.reason, LoadError::Store(_) | LoadError::Stopped(_));
    let advice = match problems.iter().find(is_files_fault) {
        Some(_) => "mend these files, or take them out of the folder",
        None => "the data folder has no room for them, or cannot be written: name another with --data DIR",
    };
    let problems: Vec<_> = problems.iter().map(ToString::to_string).collect();
    Err(Failure::refused(format!("{}\n{advice}", problems.join("\n"))))
}

/// Gathers all that hinders the agent of the settings. What does is left out, so that more can be found.
pub(crate) fn examine(
    settings: &Settings,
    generation: Generation,
    delegates: BTreeMap<String, Delegate>,
    problems: &mut Problems,
) {
    problems.take(refuse_unknown(settings, &generation));
    let models = problems.take(models(settings));
    let Some(mut models) = models.or_else(|| Some(Models::new(problems.take(offline())?, []))) else { return };
    models.fallback_text = settings.file.fallback_text.clone();
    let mcp = problems.take(settings.servers(&environment::variable)).unwrap_or_default();
    let mut config = AgentConfig { delegates, mcp, ..configuration(settings) };
    loop {
        match Agent::new(config.clone(), models.clone(), generation.clone()) {
            Ok(agent) => {
                problems.take(rules::refuse_idle(settings, &agent));
                return;
            }
            Err(error) => {
                problems.add(&placed(settings, &error));
                if !leave_out(&mut config, &mut models, &error) {
                    return;
                }
            }
        }
    }
}

/// Stands for models that cannot be asked.
fn offline() -> Result<Arc<dyn Provider>, Failure> {
    Providers::new(Vec::new()).model("offline", Path::new("")).map_err(Failure::refused)
}

/// Takes out what hinders an agent; whether that was possible.
fn leave_out(config: &mut AgentConfig, models: &mut Models, error: &AgentError) -> bool {
    match error {
        AgentError::NoPlugin { key, plugin, .. } | AgentError::WrongKind { key, plugin, .. } => {
            let is_it = |name: &String| plugin.split('@').next() == Some(name.as_str());
            let named = |config: &AgentConfig| {
                config.context_builder.iter().len() + config.validators.len() + config.media_policies.len()
            };
            let before = named(config);
            match *key {
                "context_builder" => config.context_builder = None,
                "validators" => config.validators.retain(|name| !is_it(name)),
                _ => config.media_policies.retain(|_, name| !is_it(name)),
            }
            named(config) < before
        }
        AgentError::OutputSchema(_) => config.output_schema.take().is_some(),
        AgentError::FallbackText(_) => models.fallback_text.take().is_some(),
        AgentError::Mcp(_) => !std::mem::take(&mut config.mcp).is_empty(),
        AgentError::Service { name, .. } => config.services.remove(name).is_some(),
        AgentError::Registry(RegistryError::Duplicate { name, .. } | RegistryError::Schema { name, .. }) => {
            config.services.remove(name).is_some() || config.delegates.remove(name).is_some()
        }
    }
}

/// The agent of the settings, with these MCP servers.
pub(crate) fn agent(
    settings: &Settings,
    (generation, delegates): (Generation, BTreeMap<String, Delegate>),
    mcp: Vec<ServerConfig>,
    terminal: &Terminal,
) -> Result<Arc<Agent>, Failure> {
    refuse_unknown(settings, &generation)?;
    let models = models(settings)?;
    let configuration = AgentConfig { delegates, mcp, ..configuration(settings) };
    let agent = without_newcomers((configuration, models, generation), terminal);
    let agent = agent.map(Arc::new).map_err(|error| placed(settings, &error))?;
    terminal.keep_secret(agent.redaction());
    for plugin in agent.generation().plugins() {
        note_idle_grants(plugin, settings.grants.plugins.get(plugin.name()), terminal);
    }
    rules::refuse_idle(settings, &agent)?;
    rules::note_idle(settings, &agent, terminal);
    Ok(agent)
}

/// The agent without the plugins that offer a tool whose name exists already: each is left out and reported, and the agent works
/// (row 55). A name belongs first to the host and the agent's own file, then to the plugins that this file names, then to the
/// other plugins, in the order of their names.
fn without_newcomers(
    (config, models, mut generation): (AgentConfig, Models, Generation),
    terminal: &Terminal,
) -> Result<Agent, AgentError> {
    loop {
        let error = match Agent::new(config.clone(), models.clone(), generation.clone()) {
            Err(AgentError::Registry(error)) => error,
            made => return made,
        };
        let RegistryError::Duplicate { first, second, .. } = &error else { return Err(error.into()) };
        let plugin = |source: &ToolSource| match source {
            ToolSource::Plugin { plugin, .. } => Some((!config.names(plugin), plugin.clone())),
            _ => None,
        };
        let Some((_, newcomer)) = plugin(first).into_iter().chain(plugin(second)).max() else {
            return Err(error.into());
        };
        terminal.note(format!("{YELLOW}!{YELLOW:#} the plugin `{newcomer}` is left out: {error}"));
        generation = generation.without(&newcomer);
    }
}

/// Whether models are made anew when an agent's file has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// They are.
    Anew,
    /// They stay, also one that was chosen meanwhile.
    AsBefore,
}

/// Whether an agent is another one after its file has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// It is.
    Changed,
    /// Only comments and layout were changed, or what was written here.
    Same,
}

/// An agent becomes what its changed settings say, under its name and with its plugins, whole or not at all.
pub(crate) fn reconfigure(live: &LiveAgent, settings: &Settings, asked: Asked) -> Result<Taken, Failure> {
    let agent = live.current();
    refuse_unknown(settings, agent.generation())?;
    let (name, rule_binding) = (agent.config().name.clone(), agent.config().rule_binding);
    let config = AgentConfig { name, rule_binding, ..configuration(settings) };
    let models = match asked {
        Asked::Anew => models(settings)?,
        Asked::AsBefore => agent.models().clone(),
    };
    let next = agent.reconfigured(config.clone(), models.clone()).map_err(|error| placed(settings, &error))?;
    rules::refuse_idle(settings, &next)?;
    if asked == Asked::AsBefore && next.fingerprint() == agent.fingerprint() {
        return Ok(Taken::Same);
    }
    live.change(|agent| agent.reconfigured(config, models)).map_err(|error| placed(settings, &error))?;
    Ok(Taken::Changed)
}

/// What hinders an agent, led by where it was written.
fn placed(settings: &Settings, error: &AgentError) -> Failure {
    match error {
        AgentError::Registry(RegistryError::Duplicate { name, .. } | RegistryError::Schema { name, .. }) => {
            let of_agent = settings.file.agents.get(name).map(|table| &table.place);
            let place = of_agent.or_else(|| settings.file.services.get(name).map(|table| &table.place));
            Failure::refused(place.map_or_else(|| error.to_string(), |place| format!("{place}: {error}")))
        }
        AgentError::NoPlugin { key, .. } | AgentError::WrongKind { key, .. } => settings.problem(key, error),
        AgentError::OutputSchema(_) => settings.problem("output_schema", error),
        AgentError::FallbackText(_) => settings.problem("fallback_text", error),
        AgentError::Mcp(_) => settings.problem("mcp", error),
        AgentError::Service { name, .. } => match settings.file.services.get(name) {
            Some(table) => Failure::refused(format!("{}: {error}", table.place)),
            None => Failure::refused(error),
        },
    }
}

/// Names of plugins that are not there would grant or limit nothing.
fn refuse_unknown(settings: &Settings, generation: &Generation) -> Result<(), Failure> {
    let unknown = settings.unknown_plugins(&|name| generation.plugin(name).is_some());
    if unknown.is_empty() {
        return Ok(());
    }
    let loaded: Vec<_> = generation.plugins().map(|plugin| plugin.name()).collect();
    let loaded = if loaded.is_empty() { "none".to_owned() } else { loaded.join(", ") };
    Err(Failure::refused(format!("{}; loaded are: {loaded}", unknown.join("\n"))))
}

/// A model that was asked for by its name in a session.
pub(crate) fn model(settings: &Settings, name: &str) -> Result<Arc<dyn Provider>, Failure> {
    let mut asked = settings.clone();
    asked.models.ask_instead(name, &asked.file);
    models(&asked).map(|models| models.first().clone())
}

/// Says where there is not one plugin, since a turn without tools is seldom what is meant.
pub(crate) fn note_no_plugins(settings: &Settings, generation: &Generation, terminal: &Terminal) {
    if generation.plugins().len() > 0 {
        return;
    }
    if let Some(directory) = settings.plugins.as_deref() {
        let advice = "--build builds the projects of the folder";
        terminal
            .note(format!("{YELLOW}!{YELLOW:#} there is no plugin (*.wasm) in `{}`; {advice}", directory.display()));
    }
}

/// Says which grants change nothing, or less than they say, since the plugin's manifest does not ask for them (P6).
pub(crate) fn note_idle_grants(plugin: &LoadedPlugin, grants: Option<&Grants>, terminal: &Terminal) {
    for grant in grants.map(|grants| grants::idle(plugin, grants)).unwrap_or_default() {
        terminal.note(format!("{YELLOW}!{YELLOW:#} `{}` {grant}", plugin.name()));
    }
    for method in grants.iter().flat_map(|grants| &grants.http).flat_map(HttpPattern::unusual_methods) {
        terminal.note(format!(
            "{YELLOW}!{YELLOW:#} `{}` is granted requests of the method {method}, which is no usual one",
            plugin.name()
        ));
    }
}

/// The chain of models. Every one that cannot be asked is in the error.
fn models(settings: &Settings) -> Result<Models, Failure> {
    let (named, providers) = settings.models(&environment::variable)?;
    let providers = Providers::new(providers);
    let (mut chain, mut problems): (Vec<Arc<dyn Provider>>, Vec<String>) = Default::default();
    for model in named {
        match providers.model(&model.name, &model.base) {
            Ok(model) => chain.push(model),
            Err(error) => problems.push(format!("{}: {error}", model.place)),
        }
    }
    // Only where nothing is wrong are there as many as were named.
    let summary = settings.models.summary.as_ref().filter(|_| problems.is_empty()).and_then(|_| chain.pop());
    let mut chain = chain.into_iter();
    let Some(first) = chain.next().filter(|_| problems.is_empty()) else {
        return Err(Failure::refused(problems.join("\n")));
    };
    let (planning, embedder) = helpers(settings, &providers, &first)?;
    let mut models = Models::new(first, chain);
    (models.planning, models.embedder) = (planning, embedder);
    models.retry = retry(settings);
    models.fallback_text = settings.file.fallback_text.clone();
    models.summary = summary;
    if let Some(cooldown) = settings.file.model_cooldown_ms {
        models.cooldown = milliseconds(cooldown);
    }
    Ok(models)
}

/// The models for a part of the work (L24, L25).
fn helpers(
    settings: &Settings,
    providers: &Providers,
    first: &Arc<dyn Provider>,
) -> Result<(Option<PlanningModels>, Option<Arc<Embedder>>), Failure> {
    let Helpers { planner, executor, embedding } = &settings.models.helpers;
    let refused = |named: &NamedModel, error| Failure::refused(format!("{}: {error}", named.place));
    let model = |named: &NamedModel| providers.model(&named.name, &named.base).map_err(|error| refused(named, error));
    let planning = match planner {
        None => None,
        Some(planner) => {
            let executor = executor.as_ref().map_or_else(|| Ok(first.clone()), model)?;
            Some(PlanningModels { planner: model(planner)?, executor })
        }
    };
    let embedder =
        embedding.as_ref().map(|named| providers.embedder(&named.name).map_err(|error| refused(named, error)));
    let embedder = embedder.transpose()?.map(|embedder| Arc::new(embedder.with_retry(retry(settings))));
    Ok((planning, embedder))
}

fn retry(settings: &Settings) -> RetryPolicy {
    let (file, defaults) = (&settings.file.retry, RetryPolicy::default());
    let or = |given: Option<u32>, default| given.map_or(default, milliseconds);
    RetryPolicy {
        attempts: file.attempts.unwrap_or(defaults.attempts),
        first_wait: or(file.first_wait_ms, defaults.first_wait),
        longest_wait: or(file.longest_wait_ms, defaults.longest_wait),
        total: or(file.total_ms, defaults.total),
    }
}

fn milliseconds(number: u32) -> Duration {
    Duration::from_millis(u64::from(number))
}

fn configuration(settings: &Settings) -> AgentConfig {
    let file = &settings.file;
    let defaults = AgentConfig::new(&settings.name);
    AgentConfig {
        file: settings.path.as_deref().map(|path| std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())),
        rule_binding: settings.rule_binding,
        vetting: Some(vetting(settings)),
        user: settings.user.clone().or_else(environment::user),
        bounds: bounds(settings),
        prompt: PromptParts {
            instructions: file.instructions.clone(),
            chain_of_thought: file.chain_of_thought.clone(),
            tool_rules: file.tool_rules.clone(),
        },
        reply_tokens: file.reply_tokens.unwrap_or(defaults.reply_tokens),
        summary: file.summary.unwrap_or(defaults.summary),
        tool_dialect: file.tool_dialect.unwrap_or(defaults.tool_dialect),
        offered_tools: file.offered_tools.unwrap_or(defaults.offered_tools),
        memory: file.memory.unwrap_or(defaults.memory),
        include_history: file.include_history.unwrap_or(defaults.include_history),
        output_schema: file.output_schema.clone(),
        limits: call_limits(settings),
        plugins: plugin_names(settings).map(|name| (name.to_owned(), allowance(settings, name))).collect(),
        host_trees: settings.grants.host.clone(),
        context_builder: file.context_builder.clone(),
        validators: file.validators.clone().unwrap_or_default(),
        media_policies: file.media_policies.clone(),
        approvals: file.approvals.clone(),
        services: file.services.iter().filter_map(|(name, table)| Some((name.clone(), service(table)?))).collect(),
        outbox: OutboxConfig {
            directory: file.outbox.directory.as_ref().map(|placed| file.folder.join(&placed.value)),
            announced: Announced {
                completions: emission(file.outbox.completions),
                approvals: emission(file.outbox.approvals),
            },
        },
        ..defaults
    }
}

fn emission(wanted: Option<bool>) -> Emission {
    match wanted {
        Some(true) => Emission::Emitted,
        Some(false) | None => Emission::Silent,
    }
}

fn service(table: &ServiceTable) -> Option<ServiceConfig> {
    // A file whose service has no usable type has been refused before.
    let defaults = ServiceConfig::new(table.event_type.clone()?);
    Some(ServiceConfig {
        description: table.description.clone().unwrap_or(defaults.description),
        accepts: table.accepts.clone().unwrap_or(defaults.accepts),
        emits: table.emits.clone(),
        domain: table.domain.clone(),
        answer_within: table.answer_within_ms.map(milliseconds),
        priority: table.priority.unwrap_or(defaults.priority),
        event_type: defaults.event_type,
    })
}

fn bounds(settings: &Settings) -> LoopConfig {
    let (file, defaults) = (&settings.file, LoopConfig::default());
    LoopConfig {
        max_interactions: file.max_interactions.unwrap_or(defaults.max_interactions),
        at_limit: file.at_limit.unwrap_or(defaults.at_limit),
        max_corrections: file.max_corrections.unwrap_or(defaults.max_corrections),
        parallel_calls: file.parallel_calls.unwrap_or(defaults.parallel_calls),
        result_characters: file.result_characters.unwrap_or(defaults.result_characters),
        minimum_remaining: file.minimum_remaining.unwrap_or(defaults.minimum_remaining),
        evict_at: file.evict_at.unwrap_or(defaults.evict_at),
        evict_to: file.evict_to.unwrap_or(defaults.evict_to),
        max_depth: file.max_depth.unwrap_or(defaults.max_depth),
        finish: file.finish.unwrap_or(defaults.finish),
        persistence: file.persistence.unwrap_or(defaults.persistence),
        answer_within_ms: file.answer_within_ms.map(u64::from),
        execution_units: file.execution_units,
        ..defaults
    }
}

/// The plugins that its file and its grants name.
pub(crate) fn plugin_names(settings: &Settings) -> impl Iterator<Item = &str> {
    let file = &settings.file;
    // An empty table names its plugin, too.
    let names =
        settings.grants.plugins.keys().chain(file.limits.keys()).chain(&file.unasked).chain(file.plugin_tables.keys());
    names.map(String::as_str).collect::<BTreeSet<_>>().into_iter()
}

/// Grants and limits of one plugin.
pub(crate) fn allowance(settings: &Settings, plugin: &str) -> PluginAllowance {
    let grants = settings.grants.plugins.get(plugin).cloned().unwrap_or_default();
    let mut limits = call_limits(settings);
    if let Some(own) = settings.file.limits.get(plugin) {
        own.set(&CALL_LIMITS, &mut limits);
    }
    let asking = if settings.file.unasked.contains(plugin) { Asking::Never } else { Asking::AtFirstUse };
    PluginAllowance { grants, limits, asking, ..PluginAllowance::default() }
}

/// Limits of the calls of all plugins.
fn call_limits(settings: &Settings) -> CallLimits {
    let mut limits = CallLimits::default();
    settings.file.call_limits.set(&CALL_LIMITS, &mut limits);
    limits
}
