//! `agent-host replay`: runs the plugin calls of a stored session again, and shows where another plugin version behaves
//! differently from the recorded version (S6).

use super::stored_sessions::find;
use crate::arguments::replay::ReplayArguments;
use crate::environment;
use crate::exit::{Exit, Failure};
use crate::interrupt::{Activity, Interrupts};
use crate::terminal::{BOLD, DIM, GREEN, RED, Terminal, YELLOW, text};
use agent_config::grants::{self, Kind};
use agent_config::settings::agent_lookup;
use agent_config::{AgentFile, AgentOptions, DataDirectory, DataLocation, Settings, assembly};
use agent_plugins::{Grants, LoadedPlugin, Sandbox};
use agent_runtime::PluginAllowance;
use agent_runtime::replay::{Difference, Replay, ReplayReport, StopAt};
use agent_runtime::transfer;
use agent_store::{SessionFilter, Store};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// Runs `agent-host replay`.
pub(crate) async fn run(
    arguments: ReplayArguments,
    data: DataLocation<'_>,
    terminal: &Terminal,
) -> Result<Exit, Failure> {
    let data = DataDirectory::open(data, &environment::host())?.for_user(arguments.user.clone());
    let granted = granted(&arguments)?;
    let agent = agent_settings(&arguments)?;
    let sandbox = match &agent {
        Some(settings) => assembly::open_sandbox(settings, &data)?,
        None => assembly::open_default_sandbox(&data, &environment::host())?,
    };
    let (allowances, otherwise) = allowances(agent.as_ref(), granted);
    let with = replacements(&arguments, &sandbox).await?;
    let cancel = Interrupts::listen(terminal.clone()).begin(Activity::Turn);
    let (store, session) = session(&arguments.session, &data).await?;
    let replay = Replay { store, sandbox, session, with, allowances, otherwise, turn: arguments.turn };
    terminal.busy(format!("replaying {}", replay.session.subject));
    let until = if arguments.all { StopAt::End } else { StopAt::FirstDifference };
    let found = tokio::select! {
        found = replay.run(until) => found.map_err(Failure::refused)?,
        () = cancel.cancelled() => return Ok(Exit::Cancelled),
    };
    terminal.idle();
    if arguments.json {
        terminal.print(document(&replay, &found).to_string()).map_err(Failure::output)?;
    } else {
        show(&replay, &found, terminal)?;
    }
    Ok(match (found.differences.is_empty(), found.same, found.not_replayed == 0) {
        (false, _, _) => Exit::Failed,
        // If a call was not replayed, the replay does not count as a success, because the result of that call could
        // have differed from the recorded result.
        (true, 0, _) | (true, _, false) => Exit::Refused,
        (true, _, true) => Exit::Done,
    })
}

/// Resolves the grants that the command line contains. Only grants for reading are allowed, because a replay must not
/// repeat effects.
fn granted(arguments: &ReplayArguments) -> Result<BTreeMap<String, Grants>, Failure> {
    let allowed_kinds = [Kind::Read, Kind::Env, Kind::Config];
    if let Some(grant) =
        arguments.grant.iter().find(|grant| !allowed_kinds.contains(&grant.kind) || grant.plugin().is_none())
    {
        return Err(Failure::refused(format!(
            "{}: a replay has no effects, so only PLUGIN:read=DIR, PLUGIN:env=NAME and PLUGIN:config=KEY=VALUE can be granted",
            grant.origin
        )));
    }
    let resolved = grants::resolve(&arguments.grant, environment::host().variables());
    resolved.map(|resolved| resolved.plugins).map_err(|problems| Failure::refused(problems.join("\n")))
}

/// Reads the settings of the agent in the option `--agent`. The replay uses the limits, variables and configuration
/// values of this agent.
fn agent_settings(arguments: &ReplayArguments) -> Result<Option<Settings>, Failure> {
    let Some(agent) = &arguments.agent else { return Ok(None) };
    let path = agent_lookup::find_agent(agent, Path::new("."))?;
    let mut file = AgentFile::read(&path).map_err(Failure::refused)?;
    // A replay does not send requests, so it does not need secrets. The secrets are removed, because their values may
    // be missing in the environment, for example in CI.
    file.secrets.clear();
    let (settings, problems) = Settings::of_file((Some(path), file), &AgentOptions::default(), &environment::host())?;
    problems.into_result(settings.path.as_deref())?;
    Ok(Some(settings))
}

/// Returns a map from plugin names to allowances, and the allowance of all plugins that are not in the map. The map
/// contains the plugins in the agent's settings and the plugins that have grants on the command line. The allowance of
/// a plugin contains the grants that the command line gives to the plugin. The allowance also contains the agent's
/// limits, variables and configuration values, because these values are not recorded.
fn allowances(
    agent: Option<&Settings>,
    granted: BTreeMap<String, Grants>,
) -> (BTreeMap<String, PluginAllowance>, PluginAllowance) {
    let of_agent = |name: &str| {
        let PluginAllowance { grants, limits, .. } =
            agent.map(|settings| assembly::allowance(settings, name)).unwrap_or_default();
        let Grants { env, config, .. } = grants;
        PluginAllowance { grants: Grants { env, config, ..Grants::default() }, limits, ..PluginAllowance::default() }
    };
    let named = agent.into_iter().flat_map(assembly::plugin_names).chain(granted.keys().map(String::as_str));
    let allowances = named.map(|name| {
        let mut allowance = of_agent(name);
        if let Some(granted) = granted.get(name) {
            allowance.grants = granted.clone().and(&allowance.grants);
        }
        (name.to_owned(), allowance)
    });
    (allowances.collect(), of_agent(""))
}

async fn replacements(
    arguments: &ReplayArguments,
    sandbox: &Sandbox,
) -> Result<BTreeMap<String, Arc<LoadedPlugin>>, Failure> {
    let mut plugins = BTreeMap::new();
    for (name, file) in &arguments.with {
        let plugin = sandbox.load_file(file).await;
        let plugin = plugin.map_err(|error| Failure::refused(format!("--with {name}={}: {error}", file.display())))?;
        if plugin.name() != name {
            let (file, actual) = (file.display(), plugin.name());
            return Err(Failure::refused(format!(
                "--with {name}={file}: the file contains the plugin `{actual}`; write --with {actual}={file}"
            )));
        }
        if plugins.insert(name.clone(), plugin).is_some() {
            return Err(Failure::refused(format!(
                "--with {name}=…: the plugin `{name}` is given twice; give only one version of it"
            )));
        }
    }
    Ok(plugins)
}

/// Finds the session in the store, or imports it from an exported document into a temporary store.
async fn session(
    id_or_file: &str,
    data: &DataDirectory,
) -> Result<(Arc<dyn Store>, agent_store::SessionSummary), Failure> {
    let file = Path::new(id_or_file);
    if !file.is_file() {
        if !data.has_store() {
            return Err(Failure::refused(format!("there is no session `{id_or_file}`, and no file with that name")));
        }
        let store = assembly::open_store(data).await?;
        let session = find(&*store, data, Some(id_or_file)).await?;
        return Ok((store, session));
    }
    let unreadable = |error: std::io::Error| Failure::refused(format!("`{id_or_file}` cannot be read: {error}"));
    let document = std::fs::File::open(file).map_err(unreadable)?;
    let store = assembly::open_temporary_store()?;
    let imported = transfer::import_to_replay(&*store, document).await;
    let imported = imported.map_err(|error| Failure::refused(format!("`{id_or_file}`: {error}")))?;
    let filter = SessionFilter { subject: Some(imported.session), ..SessionFilter::default() };
    let session = store.sessions(filter, 1).await.map_err(Failure::refused)?.pop();
    session
        .map(|session| (store, session))
        .ok_or_else(|| Failure::refused(format!("`{id_or_file}` contains no session")))
}

fn show(replay: &Replay, found: &ReplayReport, terminal: &Terminal) -> Result<(), Failure> {
    let print = |line: String| terminal.print(line).map_err(Failure::output);
    for skipped in &found.skipped {
        terminal.note(format!("{YELLOW}!{YELLOW:#} not replayed: {}", text::harmless(skipped)));
    }
    for difference in &found.differences {
        print(describe(difference))?;
    }
    let (same, session) = (text::count(found.same, "call"), &replay.session.subject);
    let plugins = match replay.with.keys().map(String::as_str).collect::<Vec<_>>().join(", ") {
        names if names.is_empty() => "its plugins".to_owned(),
        names => format!("`{names}`"),
    };
    match (found.differences.len(), found.same) {
        (0, 0) => terminal.note(format!(
            "{session} has no calls of {plugins} that can be replayed; `agent-host session show {session}` shows its contents"
        )),
        (0, _) if found.not_replayed > 0 => print(format!(
            "{YELLOW}!{YELLOW:#} {same} of {plugins} in {session} gave the recorded result; the other calls were not \
             replayed"
        ))?,
        (0, _) => print(format!("{GREEN}✓{GREEN:#} {same} of {plugins} in {session} gave the recorded result"))?,
        (1, _) => print(format!("{same} gave the recorded result, and one did not"))?,
        (differences, _) => print(format!("{same} gave the recorded result, and {differences} did not"))?,
    }
    Ok(())
}

fn describe(difference: &Difference) -> String {
    let Difference { place, plugin, diff, unrecorded, effects } = difference;
    let mut lines = vec![
        format!("{RED}✗{RED:#} {BOLD}{}{BOLD:#}", text::harmless(place)),
        format!("  {DIM}{}{DIM:#}", text::harmless(plugin)),
    ];
    for thing in unrecorded {
        lines.push(format!(
            "  {YELLOW}denied{YELLOW:#} {}: it was not recorded, so its result is unknown",
            text::harmless(thing)
        ));
    }
    let effects = effects.iter().map(|effect| format!("  {YELLOW}now{YELLOW:#} {}", text::harmless(effect)));
    lines.extend(effects);
    lines.extend(diff.lines().map(|line| match line.as_bytes().first() {
        Some(b'+') => format!("  {GREEN}{}{GREEN:#}", text::harmless(line)),
        Some(b'-') => format!("  {RED}{}{RED:#}", text::harmless(line)),
        _ => format!("  {}", text::harmless(line)),
    }));
    lines.join("\n")
}

fn document(replay: &Replay, found: &ReplayReport) -> serde_json::Value {
    let differences = found.differences.iter().map(|difference| {
        json!({
            "place": difference.place,
            "plugin": difference.plugin,
            "diff": difference.diff,
            "unrecorded": difference.unrecorded,
            "effects": difference.effects,
        })
    });
    json!({
        "session": replay.session.subject,
        "same": found.same,
        "differences": differences.collect::<Vec<_>>(),
        "not_done_again": found.skipped,
    })
}
