//! `agent-host replay`: whether another version of a plugin does in a stored session what the recorded one did (S6).

use super::session::find;
use crate::arguments::AgentArguments;
use crate::arguments::replay::ReplayArguments;
use crate::configuration::AgentFile;
use crate::data::DataDirectory;
use crate::environment;
use crate::exit::{Exit, Failure};
use crate::grants::{self, Kind};
use crate::interrupt::{Doing, Interrupts};
use crate::settings::{Settings, agents};
use crate::setup;
use crate::terminal::{BOLD, DIM, GREEN, RED, Terminal, YELLOW, text};
use agent_devkit::replay::{Difference, Found, Replay, Until};
use agent_plugins::{Grants, LoadedPlugin, Sandbox};
use agent_runtime::PluginAllowance;
use agent_runtime::portable;
use agent_store::{SessionFilter, SqliteStore, Store};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// Runs it.
pub(crate) async fn run(asked: ReplayArguments, data: Option<&Path>, terminal: &Terminal) -> Result<Exit, Failure> {
    let data = DataDirectory::open(data)?.for_user(asked.user.clone());
    let granted = granted(&asked)?;
    let agent = configured(&asked)?;
    let sandbox = match &agent {
        Some(settings) => setup::sandbox_of(settings, &data)?,
        None => setup::sandbox(&data)?,
    };
    let (allowances, otherwise) = allowances(agent.as_ref(), granted);
    let with = replacements(&asked, &sandbox).await?;
    let cancel = Interrupts::listen(terminal.clone()).begin(Doing::Turn);
    let (store, session) = session(&asked.session, &data).await?;
    let replay = Replay { store, sandbox, session, with, allowances, otherwise, turn: asked.turn };
    terminal.busy(format!("doing {} again", replay.session.subject));
    let until = if asked.all { Until::End } else { Until::First };
    let found = tokio::select! {
        found = replay.run(until) => found.map_err(Failure::refused)?,
        () = cancel.cancelled() => return Ok(Exit::Cancelled),
    };
    terminal.idle();
    if asked.json {
        terminal.print(document(&replay, &found).to_string()).map_err(Failure::output)?;
    } else {
        show(&replay, &found, terminal)?;
    }
    Ok(match (found.differences.is_empty(), found.same, found.undone == 0) {
        (false, _, _) => Exit::Failed,
        // Of what was not done again nobody knows.
        (true, 0, _) | (true, _, false) => Exit::Refused,
        (true, _, true) => Exit::Done,
    })
}

/// What the plugins may read. Whatever they change elsewhere would be changed twice.
fn granted(asked: &ReplayArguments) -> Result<BTreeMap<String, Grants>, Failure> {
    let only = [Kind::Read, Kind::Env, Kind::Config];
    if let Some(grant) = asked.grant.iter().find(|grant| !only.contains(&grant.kind) || grant.plugin().is_none()) {
        return Err(Failure::refused(format!(
            "{}: a replay has no effects, so only PLUGIN:read=DIR, env=NAME and config=KEY=VALUE can be granted",
            grant.origin
        )));
    }
    let resolved = grants::resolve(&asked.grant, &environment::variable);
    resolved.map(|resolved| resolved.plugins).map_err(|problems| Failure::refused(problems.join("\n")))
}

/// The agent whose values and limits hold.
fn configured(asked: &ReplayArguments) -> Result<Option<Settings>, Failure> {
    let Some(agent) = &asked.agent else { return Ok(None) };
    let path = agents::find(agent, Path::new("."))?;
    let mut file = AgentFile::read(&path).map_err(Failure::refused)?;
    // Nothing is sent, so nobody needs them: where this runs, such as in CI, they may not be there.
    file.secrets.clear();
    let (settings, problems) =
        Settings::of_file((Some(path), file), &AgentArguments::default(), &environment::variable)?;
    problems.none(settings.path.as_deref())?;
    Ok(Some(settings))
}

/// By plugin, and for all others: the agent's limits, variables and configuration values, which no record holds, with what is
/// granted for the replay.
fn allowances(
    agent: Option<&Settings>,
    granted: BTreeMap<String, Grants>,
) -> (BTreeMap<String, PluginAllowance>, PluginAllowance) {
    let of_agent = |name: &str| {
        let PluginAllowance { grants, limits, .. } =
            agent.map(|settings| setup::allowance(settings, name)).unwrap_or_default();
        let Grants { env, config, .. } = grants;
        PluginAllowance { grants: Grants { env, config, ..Grants::default() }, limits, ..PluginAllowance::default() }
    };
    let named = agent.into_iter().flat_map(setup::plugin_names).chain(granted.keys().map(String::as_str));
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
    asked: &ReplayArguments,
    sandbox: &Sandbox,
) -> Result<BTreeMap<String, Arc<LoadedPlugin>>, Failure> {
    let mut plugins = BTreeMap::new();
    for (name, file) in &asked.with {
        let plugin = sandbox.load_file(file).await;
        let plugin = plugin.map_err(|error| Failure::refused(format!("--with {name}={}: {error}", file.display())))?;
        if plugin.name() != name {
            let (file, is) = (file.display(), plugin.name());
            return Err(Failure::refused(format!(
                "--with {name}={file}: this is the plugin `{is}`; write --with {is}={file}"
            )));
        }
        if plugins.insert(name.clone(), plugin).is_some() {
            return Err(Failure::refused(format!(
                "--with {name}=…: `{name}` is named twice; one version can stand for it"
            )));
        }
    }
    Ok(plugins)
}

/// The session of the store, or of a document, which is read into a temporary store.
async fn session(asked: &str, data: &DataDirectory) -> Result<(Arc<dyn Store>, agent_store::SessionSummary), Failure> {
    let file = Path::new(asked);
    if !file.is_file() {
        if !data.database().exists() {
            return Err(Failure::refused(format!("there is no session `{asked}`, and no file of that name")));
        }
        let store = setup::store(data)?;
        let session = find(&*store, data, Some(asked)).await?;
        return Ok((store, session));
    }
    let unreadable = |error: std::io::Error| Failure::refused(format!("`{asked}` cannot be read: {error}"));
    let document = std::fs::File::open(file).map_err(unreadable)?;
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open_temporary().map_err(Failure::refused)?);
    let imported = portable::import_to_replay(&*store, document).await;
    let imported = imported.map_err(|error| Failure::refused(format!("`{asked}`: {error}")))?;
    let filter = SessionFilter { subject: Some(imported.session), ..SessionFilter::default() };
    let session = store.sessions(filter, 1).await.map_err(Failure::refused)?.pop();
    session.map(|session| (store, session)).ok_or_else(|| Failure::refused(format!("`{asked}` holds no session")))
}

fn show(replay: &Replay, found: &Found, terminal: &Terminal) -> Result<(), Failure> {
    let print = |line: String| terminal.print(line).map_err(Failure::output);
    for skipped in &found.skipped {
        terminal.note(format!("{YELLOW}!{YELLOW:#} not done again: {}", text::harmless(skipped)));
    }
    for difference in &found.differences {
        print(shown(difference))?;
    }
    let (same, session) = (text::count(found.same, "deed"), &replay.session.subject);
    let whose = match replay.with.keys().map(String::as_str).collect::<Vec<_>>().join(", ") {
        names if names.is_empty() => "its plugins".to_owned(),
        names => format!("`{names}`"),
    };
    match (found.differences.len(), found.same) {
        (0, 0) => terminal.note(format!(
            "there is nothing in {session} that {whose} did and could do again; `agent-host session show {session}` shows what it holds"
        )),
        (0, _) if found.undone > 0 => print(format!(
            "{YELLOW}!{YELLOW:#} {same} of {whose} in {session} came out as they did then; of the rest nobody knows"
        ))?,
        (0, _) => print(format!("{GREEN}✓{GREEN:#} {same} of {whose} in {session} came out as they did then"))?,
        (1, _) => print(format!("{same} came out as they did then, and one did not"))?,
        (differences, _) => print(format!("{same} came out as they did then, and {differences} did not"))?,
    }
    Ok(())
}

fn shown(difference: &Difference) -> String {
    let Difference { place, plugin, diff, unrecorded, effects } = difference;
    let mut lines = vec![
        format!("{RED}✗{RED:#} {BOLD}{}{BOLD:#}", text::harmless(place)),
        format!("  {DIM}{}{DIM:#}", text::harmless(plugin)),
    ];
    for thing in unrecorded {
        lines.push(format!(
            "  {YELLOW}denied{YELLOW:#} {}: it is not recorded, so what comes of it cannot be known",
            text::harmless(thing)
        ));
    }
    let effects = effects.iter().map(|effect| format!("  {YELLOW}otherwise{YELLOW:#} {}", text::harmless(effect)));
    lines.extend(effects);
    lines.extend(diff.lines().map(|line| match line.as_bytes().first() {
        Some(b'+') => format!("  {GREEN}{}{GREEN:#}", text::harmless(line)),
        Some(b'-') => format!("  {RED}{}{RED:#}", text::harmless(line)),
        _ => format!("  {}", text::harmless(line)),
    }));
    lines.join("\n")
}

fn document(replay: &Replay, found: &Found) -> serde_json::Value {
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
