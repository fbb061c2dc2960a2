//! `plugin push|sign|add|update|remove|verify|search`: plugins that go to others, and come from them (P11).

mod add;
mod candidate;
mod folder;
mod update;

pub(super) use add::add;
pub(super) use folder::{remove, verify};
pub(super) use update::update;

use super::{load, print};
use crate::arguments::sharing::{ConnectionArguments, PushArguments, SearchArguments, SignArguments};
use crate::commands::key;
use crate::data::DataDirectory;
use crate::exit::Failure;
use crate::terminal::{BOLD, DIM, Terminal, YELLOW, text};
use crate::{environment, setup};
use agent_plugins::{Introduction, LoadedPlugin, PluginStore, read_component};
use agent_registry::{
    Again, Credentials, Downloads, NO_MOMENT, PluginFacts, Pushed, Registry, ShareError, Shelf, Signatures, SigningKey,
    Source, local_claims, place_local_signature, sign as signature_of,
};
use std::path::Path;
use std::sync::Arc;

/// Characters of a description in a list.
const SHOWN: usize = 100;

fn registry(connection: &ConnectionArguments, terminal: &Terminal) -> Result<Registry, Failure> {
    let credentials = Credentials { file: environment::docker_configuration() };
    let registry = Registry::new(credentials, connection.plain()).map_err(failed)?;
    let registry = registry.with_token_servers(&connection.token_servers);
    let terminal = terminal.clone();
    Ok(registry.telling(Arc::new(move |again: &Again| terminal.note(asked_again(again)))))
}

/// That a server is asked again, and when.
fn asked_again(Again { place, reason, wait, next: (number, of) }: &Again) -> String {
    let said = text::one_line(&format!("{place}: {reason}"), 1000);
    let seconds = wait.as_secs_f64();
    format!("{YELLOW}!{YELLOW:#} {said}; asked again in {seconds:.1} s {DIM}({number} of {of}){DIM:#}")
}

fn shelf(data: &DataDirectory) -> Shelf {
    let most = agent_plugins::HostLimits::default().component;
    Shelf { store: PluginStore::new(data.plugins()), downloads: Downloads { directory: data.downloads(), most } }
}

/// What was asked for wrongly is refused; what others did not give is a failure of the work.
fn failed(error: ShareError) -> Failure {
    match error {
        ShareError::Reference { .. } | ShareError::Key { .. } | ShareError::Lock { .. } | ShareError::Taken { .. } => {
            Failure::refused(error)
        }
        _ => Failure::failed(error),
    }
}

/// What others are told of a plugin.
fn facts(plugin: &LoadedPlugin) -> PluginFacts {
    let interfaces = plugin.interfaces().clone();
    let manifest = plugin.manifest();
    let owned = |text: Option<&String>| text.map(|text| text::one_line(text, 1000)).unwrap_or_default();
    PluginFacts {
        name: plugin.name().to_owned(),
        version: owned(manifest.map(|manifest| &manifest.version)),
        description: owned(manifest.map(|manifest| &manifest.description)),
        kinds: plugin.sorts().into_iter().map(str::to_owned).collect(),
        imports: interfaces.imports,
        exports: interfaces.exports,
    }
}

/// Puts a component into a registry, signed and listed where that is asked for.
pub(super) async fn push(asked: PushArguments, data: Option<&Path>, terminal: &Terminal) -> Result<(), Failure> {
    let data = DataDirectory::open(data)?;
    let sandbox = setup::sandbox(&data)?;
    let plugin = load(&sandbox, &asked.file, terminal).await?;
    let component = read_component(&asked.file, agent_plugins::HostLimits::default().component)
        .map_err(|error| Failure::refused(format!("`{}`: {error}", asked.file.display())))?;
    if agent_plugins::digest_of(&component) != *plugin.digest() {
        return Err(Failure::refused(format!("`{}` is just being written; push it once more", asked.file.display())));
    }
    let facts = facts(&plugin);
    // A password is asked for before anything is sent.
    let key = match &asked.sign {
        Some(path) => Some(key::open(path, terminal).await?),
        None => None,
    };
    let registry = registry(&asked.connection, terminal)?;
    terminal.busy(format!("pushing {} to {}", facts.name, asked.reference));
    let pushed = registry.push(&asked.reference, &facts, &component, NO_MOMENT, asked.overwrite()).await;
    terminal.idle();
    let pushed = pushed.map_err(failed)?;
    print(terminal, shown(&pushed, &facts))?;
    if let Some(key) = &key {
        let signature = signature_of(key, &component, &pushed.claims(&facts)).map_err(failed)?;
        registry.attach_signature(&pushed, &signature).await.map_err(failed)?;
        print(terminal, format!("  signed    {}", key.public))?;
    }
    if let Some(index) = &asked.index {
        let signer = key.as_ref().map(|key| key.public.as_str());
        registry.add_to_index(index, (&facts, &pushed), signer, asked.overwrite()).await.map_err(failed)?;
        print(terminal, format!("  indexed   {}", index.repository()))?;
    }
    Ok(())
}

fn shown(pushed: &Pushed, facts: &PluginFacts) -> String {
    let state = match (&pushed.instead_of, pushed.was_there) {
        (_, true) => "it was there already".to_owned(),
        (Some(before), _) => format!("instead of {}", before.short()),
        (None, _) => "new".to_owned(),
    };
    format!(
        "{BOLD}{}{BOLD:#} {} {DIM}{} ({state}){DIM:#}\n  manifest  {}\n  component {}",
        facts.name, facts.version, pushed.reference, pushed.manifest, pushed.component
    )
}

/// Signs what is there already. Nothing of it runs: who signs may have it looked at first.
pub(super) async fn sign(asked: SignArguments, data: Option<&Path>, terminal: &Terminal) -> Result<(), Failure> {
    let data = DataDirectory::open(data)?;
    let key = key::open(&asked.key, terminal).await?;
    let source = match &asked.reference {
        Source::File(path) => return sign_file(path, &key, terminal),
        Source::Web(url) => {
            return Err(Failure::refused(format!(
                "`{url}` cannot be signed where it is: sign its file, and serve both"
            )));
        }
        source => source.clone(),
    };
    let registry = registry(&asked.connection, terminal)?;
    let found = registry.find(&source).await.map_err(failed)?;
    let fetched = candidate::fetch(&registry, &found, &shelf(&data), Signatures::Ignored, terminal).await?;
    let pushed = found.pushed().ok_or_else(|| Failure::failed("the registry names no manifest"))?;
    let Introduction { identity, manifest } = candidate::introduced(&fetched)?;
    let version = manifest.map(|manifest| text::one_line(&manifest.version, 1000)).unwrap_or_default();
    let facts = PluginFacts { name: identity.name, version, ..PluginFacts::default() };
    let signature = signature_of(&key, &fetched.bytes, &pushed.claims(&facts)).map_err(failed)?;
    registry.attach_signature(&pushed, &signature).await.map_err(failed)?;
    print(terminal, shown(&pushed, &facts))?;
    print(terminal, format!("  signed    {}", key.public))
}

/// Signs a component of this machine, whose signature is put beside it.
fn sign_file(path: &Path, key: &SigningKey, terminal: &Terminal) -> Result<(), Failure> {
    let component = read_component(path, agent_plugins::HostLimits::default().component)
        .map_err(|error| Failure::refused(format!("`{}`: {error}", path.display())))?;
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let claims = local_claims(&stem, &component).map_err(failed)?;
    let signature = signature_of(key, &component, &claims).map_err(failed)?;
    let placed = place_local_signature(path, &signature).map_err(failed)?;
    let (name, version) = (text::one_line(&claims.name, 64), text::one_line(&claims.version, 100));
    print(
        terminal,
        format!("{BOLD}{name}{BOLD:#} {version}\n  signed    {}\n  file      {}", key.public, placed.display()),
    )
}

/// Prints the plugins of an index that are nearest to some words.
pub(super) async fn search(asked: SearchArguments, _: Option<&Path>, terminal: &Terminal) -> Result<(), Failure> {
    let words = asked.words.join(" ");
    let registry = registry(&asked.connection, terminal)?;
    let found = registry.search(&asked.index, &words, asked.limit as usize).await.map_err(failed)?;
    if found.is_empty() && !asked.json {
        terminal.note(format!("no plugin of {} has one of these words", asked.index.repository()));
    }
    for plugin in found {
        let entry = &plugin.newest;
        let line = if asked.json {
            serde_json::to_string(&plugin).map_err(Failure::failed)?
        } else {
            let signer = match &entry.signer {
                Some(signer) => format!("signed by {}", text::one_line(signer, SHOWN)),
                None => format!("{YELLOW}not signed{YELLOW:#}"),
            };
            let others = plugin.versions.len() - 1;
            let others = if others == 0 { String::new() } else { format!(" {DIM}and {others} older{DIM:#}") };
            format!(
                "{BOLD}{}{BOLD:#} {}{others}  {}\n  {}\n  {DIM}{}  {signer}{DIM:#}",
                text::one_line(&entry.name, SHOWN),
                text::one_line(&entry.version, SHOWN),
                text::one_line(&entry.kinds.join(", "), SHOWN),
                text::one_line(&entry.description, SHOWN),
                text::one_line(&entry.reference, 300),
            )
        };
        print(terminal, line)?;
    }
    Ok(())
}
