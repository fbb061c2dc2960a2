//! Loads the plugins of an agent's plugin directory and reports the plugins that cannot be used.

use super::store::open_store;
use crate::data_directory::DataDirectory;
use crate::error::ConfigError;
use crate::grants;
use crate::protection;
use crate::report::{Reporter, Warning};
use crate::settings::Settings;
use agent_plugins::{Generation, Grants, HttpPattern, LoadError, LoadEvent, LoadProblem, LoadedPlugin, Sandbox};
use agent_runtime::swap;

/// Loads the plugins of the agent's plugin directory. The second part of the result contains the problems of the files
/// that cannot be loaded.
pub async fn load_plugins(
    settings: &Settings,
    sandbox: &Sandbox,
    reporter: &dyn Reporter,
) -> Result<(Generation, Vec<LoadProblem>), ConfigError> {
    sandbox.protect(protection::paths_of_agent(settings));
    let Some(directory) = &settings.plugins else { return Ok((Generation::new([]), Vec::new())) };
    let progress = |event: LoadEvent| reporter.loading(&event);
    let loaded = Generation::load(sandbox, directory, &progress).await;
    reporter.loaded();
    Ok(loaded?)
}

/// Returns the plugins that the sessions of an agent use. A version that was rolled back is replaced by an earlier
/// version, and a warning is reported.
pub async fn serving_plugins(
    settings: &Settings,
    (data, sandbox): (&DataDirectory, &Sandbox),
    generation: Generation,
    reporter: &dyn Reporter,
) -> Result<Generation, ConfigError> {
    let Some(directory) = settings.plugins.as_deref().filter(|_| data.has_store()) else {
        return Ok(generation);
    };
    let store = open_store(data).await?;
    let (generation, standing) = swap::serving_versions(&*store, sandbox, directory, &generation).await?;
    for (plugin, from) in standing.rolled_back {
        let to = generation.plugin(&plugin).map(|plugin| plugin.digest().clone());
        reporter.warn(&Warning::RolledBack { plugin, from, to });
    }
    Ok(generation)
}

/// Returns an error that lists all plugin files that cannot be loaded, each with the reason. Returns Ok if all files
/// can be loaded.
pub fn refuse_unusable_plugins(problems: &[LoadProblem]) -> Result<(), ConfigError> {
    if problems.is_empty() {
        return Ok(());
    }
    let is_problem_of_file =
        |problem: &&LoadProblem| !matches!(problem.reason, LoadError::Store(_) | LoadError::Stopped(_));
    let advice = match problems.iter().find(is_problem_of_file) {
        Some(_) => "fix these files, or remove them from the folder",
        None => "the data folder is full or cannot be written; name another folder with --data DIR",
    };
    let problems: Vec<_> = problems.iter().map(ToString::to_string).collect();
    Err(ConfigError::Plugins(format!("{}\n{advice}", problems.join("\n"))))
}

/// Reports a warning if the plugin directory contains no plugin, because the user probably expects the agent to
/// have tools.
pub fn warn_of_no_plugins(settings: &Settings, generation: &Generation, reporter: &dyn Reporter) {
    if generation.plugins().len() == 0
        && let Some(folder) = settings.plugins.clone()
    {
        reporter.warn(&Warning::NoPlugins { folder });
    }
}

/// Reports a warning for each grant that has no effect or only a partial effect, because the plugin's manifest does not
/// request it (P6).
pub fn warn_of_unused_grants(plugin: &LoadedPlugin, grants: Option<&Grants>, reporter: &dyn Reporter) {
    let name = || plugin.name().to_owned();
    for problem in grants.map(|grants| grants::unused_grants(plugin, grants)).unwrap_or_default() {
        reporter.warn(&Warning::UnusedGrant { plugin: name(), problem });
    }
    for method in grants.iter().flat_map(|grants| &grants.http).flat_map(HttpPattern::unusual_methods) {
        reporter.warn(&Warning::UnusualMethod { plugin: name(), method: method.to_owned() });
    }
}
