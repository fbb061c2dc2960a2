//! `plugin push|sign|add|update|remove|verify|search`: shares plugins, and installs plugins that others share (P11).

mod add;
mod candidate;
mod folder;
mod update;
mod version_report;

pub(super) use add::add;
pub(super) use folder::{remove, verify};
pub(super) use update::update;

use super::{load, print};
use crate::arguments::sharing::{PushArguments, RegistryAccess, SearchArguments, SignArguments};
use crate::commands::key;
use crate::environment;
use crate::exit::Failure;
use crate::terminal::{BOLD, DIM, Terminal, YELLOW, text};
use agent_config::{DataDirectory, DataLocation, assembly};
use agent_plugins::{ComponentClaims, LoadedPlugin, PluginStore, is_development_build, read_component};
use agent_registry::{
    ComponentCache, Credentials, Downloads, NO_TIMESTAMP, PluginFacts, Pushed, Registry, RegistryError, RetryNotice,
    SignatureRequest, SigningKey, Source, local_claims, sign as signature_of, write_local_signature,
};
use std::path::Path;
use std::sync::Arc;

/// Maximum displayed length of a name or description, in characters.
const MAX_CHARACTERS: usize = 100;

/// Returns the client for registries, which shows each retry on the terminal.
pub(in crate::commands) fn registry(
    RegistryAccess { plain_http, token_servers }: RegistryAccess,
    terminal: &Terminal,
) -> Result<Registry, Failure> {
    let credentials = Credentials { file: environment::docker_configuration() };
    let registry = Registry::new(credentials, plain_http).map_err(failed)?;
    let registry = registry.with_token_servers(&token_servers);
    let terminal = terminal.clone();
    Ok(registry.with_retry_listener(Arc::new(move |notice: &RetryNotice| terminal.note(retry_note(notice)))))
}

/// Formats a message about a failed request that will be retried.
fn retry_note(RetryNotice { place, reason, wait, next: (attempt, attempts) }: &RetryNotice) -> String {
    let problem = text::one_line(&format!("{place}: {reason}"), 1000);
    let seconds = wait.as_secs_f64();
    format!("{YELLOW}!{YELLOW:#} {problem}; retrying in {seconds:.1} s {DIM}({attempt} of {attempts}){DIM:#}")
}

/// Returns the plugin store as a cache for downloads, and the folder of incomplete downloads.
pub(in crate::commands) fn component_cache(data: &DataDirectory) -> ComponentCache {
    let limit = agent_plugins::HostLimits::default().component;
    ComponentCache {
        store: PluginStore::new(data.plugins()),
        downloads: Downloads { directory: data.downloads(), most: limit },
    }
}

/// Converts the error to a failure. The exit code is "refused" for invalid input, and "failed" for all other errors.
fn failed(error: RegistryError) -> Failure {
    match error {
        RegistryError::Reference { .. }
        | RegistryError::Key { .. }
        | RegistryError::Lock { .. }
        | RegistryError::Conflict { .. } => Failure::refused(error),
        _ => Failure::failed(error),
    }
}

/// Returns the facts that are published with a plugin, such as its name and version.
fn facts(plugin: &LoadedPlugin) -> PluginFacts {
    let interfaces = plugin.interfaces().clone();
    let manifest = plugin.manifest();
    let owned = |text: Option<&String>| text.map(|text| text::one_line(text, 1000)).unwrap_or_default();
    PluginFacts {
        name: plugin.name().to_owned(),
        version: owned(manifest.map(|manifest| &manifest.version)),
        description: owned(manifest.map(|manifest| &manifest.description)),
        kinds: plugin.kind_labels().into_iter().map(str::to_owned).collect(),
        imports: interfaces.imports,
        exports: interfaces.exports,
    }
}

/// Pushes a component to a registry. If the arguments name a key or an index, also signs the component or adds it to
/// the index.
pub(super) async fn push(arguments: PushArguments, data: DataLocation<'_>, terminal: &Terminal) -> Result<(), Failure> {
    let data = DataDirectory::open(data, &environment::host())?;
    let sandbox = assembly::open_default_sandbox(&data, &environment::host())?;
    let plugin = load(&sandbox, &arguments.file, terminal).await?;
    let component = read_component(&arguments.file, agent_plugins::HostLimits::default().component)
        .map_err(|error| Failure::refused(format!("`{}`: {error}", arguments.file.display())))?;
    if agent_plugins::digest_of(&component) != *plugin.digest() {
        return Err(Failure::refused(format!(
            "`{}` was changed while it was read; push it again",
            arguments.file.display()
        )));
    }
    refuse_development_build(&component, &arguments.file)?;
    let facts = facts(&plugin);
    // Ask for the key's password before the component is sent to the registry.
    let key = match &arguments.sign {
        Some(path) => Some(key::open(path, terminal).await?),
        None => None,
    };
    let registry = registry(arguments.connection.access(), terminal)?;
    terminal.busy(format!("pushing {} to {}", facts.name, arguments.reference));
    let pushed = registry.push(&arguments.reference, &facts, &component, NO_TIMESTAMP, arguments.overwrite()).await;
    terminal.idle();
    let pushed = pushed.map_err(failed)?;
    print(terminal, describe(&pushed, &facts))?;
    if let Some(key) = &key {
        let signature = signature_of(key, &component, &pushed.claims(&facts)).map_err(failed)?;
        registry.attach_signature(&pushed, &signature).await.map_err(failed)?;
        print(terminal, format!("  signed    {}", key.public))?;
    }
    if let Some(index) = &arguments.index {
        let signer = key.as_ref().map(|key| key.public.as_str());
        registry.add_to_index(index, (&facts, &pushed), signer, arguments.overwrite()).await.map_err(failed)?;
        print(terminal, format!("  indexed   {}", index.repository()))?;
    }
    Ok(())
}

fn describe(pushed: &Pushed, facts: &PluginFacts) -> String {
    let state = match (&pushed.replaced, pushed.already_present) {
        (_, true) => "already present".to_owned(),
        (Some(replaced), _) => format!("replaces {}", replaced.short()),
        (None, _) => "new".to_owned(),
    };
    format!(
        "{BOLD}{}{BOLD:#} {} {DIM}{} ({state}){DIM:#}\n  manifest  {}\n  component {}",
        facts.name, facts.version, pushed.reference, pushed.manifest, pushed.component
    )
}

/// Signs a component in a registry or in a local file. The component is not run, because the user may not trust it yet.
pub(super) async fn sign(arguments: SignArguments, data: DataLocation<'_>, terminal: &Terminal) -> Result<(), Failure> {
    let data = DataDirectory::open(data, &environment::host())?;
    let key = key::open(&arguments.key, terminal).await?;
    let source = match &arguments.reference {
        Source::File(path) => return sign_file(path, &key, terminal),
        Source::Web(url) => {
            return Err(Failure::refused(format!(
                "`{url}` cannot be signed on its web server: sign the local file, and put the file and its signature on the \
                 server"
            )));
        }
        source => source.clone(),
    };
    let registry = registry(arguments.connection.access(), terminal)?;
    let found = registry.resolve(&source).await.map_err(failed)?;
    let fetched = candidate::fetch(&registry, &found, &component_cache(&data), SignatureRequest::Skip, terminal)
        .await
        .map_err(failed)?;
    let pushed =
        found.pushed().ok_or_else(|| Failure::failed("the registry did not return the digest of the manifest"))?;
    let ComponentClaims { identity, manifest } = candidate::read_component_claims(&fetched)?;
    let version = manifest.map(|manifest| text::one_line(&manifest.version, 1000)).unwrap_or_default();
    let facts = PluginFacts { name: identity.name, version, ..PluginFacts::default() };
    let signature = signature_of(&key, &fetched.bytes, &pushed.claims(&facts)).map_err(failed)?;
    registry.attach_signature(&pushed, &signature).await.map_err(failed)?;
    print(terminal, describe(&pushed, &facts))?;
    print(terminal, format!("  signed    {}", key.public))
}

/// Refuses a component that was built only for this machine.
fn refuse_development_build(component: &[u8], path: &Path) -> Result<(), Failure> {
    match is_development_build(component) {
        false => Ok(()),
        true => Err(Failure::refused(format!(
            "`{}` is a development build of `agent-host test` or `agent-host dev`, which is only for this machine; build the \
             plugin with `agent-host plugin build`, and try again",
            path.display()
        ))),
    }
}

/// Signs a local component, and writes the signature next to it.
fn sign_file(path: &Path, key: &SigningKey, terminal: &Terminal) -> Result<(), Failure> {
    let component = read_component(path, agent_plugins::HostLimits::default().component)
        .map_err(|error| Failure::refused(format!("`{}`: {error}", path.display())))?;
    refuse_development_build(&component, path)?;
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let claims = local_claims(&stem, &component).map_err(failed)?;
    let signature = signature_of(key, &component, &claims).map_err(failed)?;
    let signature_file = write_local_signature(path, &signature).map_err(failed)?;
    let (name, version) = (text::one_line(&claims.name, 64), text::one_line(&claims.version, 100));
    print(
        terminal,
        format!("{BOLD}{name}{BOLD:#} {version}\n  signed    {}\n  file      {}", key.public, signature_file.display()),
    )
}

/// Prints the plugins of an index that match the search words best. Without a named index, searches the standard plugins.
pub(super) async fn search(arguments: SearchArguments, terminal: &Terminal) -> Result<(), Failure> {
    let words = arguments.words.join(" ");
    let Some(index) = &arguments.index else { return super::index::search_installed(&words, &arguments, terminal) };
    let registry = registry(arguments.connection.access(), terminal)?;
    let found = registry.search(index, &words, arguments.limit as usize).await.map_err(failed)?;
    if found.is_empty() && !arguments.json {
        terminal.note(format!("no plugin in {} matches any of these words", index.repository()));
    }
    for plugin in found {
        let entry = &plugin.newest;
        let line = if arguments.json {
            serde_json::to_string(&plugin).map_err(Failure::failed)?
        } else {
            let signer = match &entry.signer {
                Some(signer) => format!("signed by {}", text::one_line(signer, MAX_CHARACTERS)),
                None => format!("{YELLOW}not signed{YELLOW:#}"),
            };
            let others = plugin.versions.len() - 1;
            let others = if others == 0 { String::new() } else { format!(" {DIM}and {others} older{DIM:#}") };
            format!(
                "{BOLD}{}{BOLD:#} {}{others}  {}\n  {}\n  {DIM}{}  {signer}{DIM:#}",
                text::one_line(&entry.name, MAX_CHARACTERS),
                text::one_line(&entry.version, MAX_CHARACTERS),
                text::one_line(&entry.kinds.join(", "), MAX_CHARACTERS),
                text::one_line(&entry.description, MAX_CHARACTERS),
                text::one_line(&entry.reference, 300),
            )
        };
        print(terminal, line)?;
    }
    Ok(())
}
