//! A plugin that came from elsewhere, before it is taken: fetched, loaded, and judged.

use super::failed;
use crate::exit::Failure;
use crate::terminal::{Terminal, YELLOW, show_load, text};
use agent_plugins::{LoadedPlugin, Sandbox};
use agent_share::{Claims, Fetched, Found, LockedPlugin, Registry, Shelf, Signatures, Signer, Source, Trust, place_of};
use std::path::Path;
use std::sync::Arc;

/// What came, and what it is.
pub(super) struct Candidate {
    pub(super) fetched: Fetched,
    pub(super) plugin: Arc<LoadedPlugin>,
}

/// Fetches what was found, and loads it: what is no plugin for this host goes no further.
pub(super) async fn fetch(
    registry: &Registry,
    found: &Found,
    (sandbox, shelf): (&Sandbox, &Shelf),
    terminal: &Terminal,
) -> Result<Candidate, Failure> {
    let fetched = bytes(registry, found, shelf, terminal).await?;
    of(fetched, (sandbox, shelf), terminal).await
}

/// Fetches what was found.
pub(super) async fn bytes(
    registry: &Registry,
    found: &Found,
    shelf: &Shelf,
    terminal: &Terminal,
) -> Result<Fetched, Failure> {
    let what = format!("downloading {}", found.source);
    let progress = |done, of| terminal.downloaded(&what, done, of);
    let fetched = registry.fetch(found, shelf, Signatures::Wanted, &progress).await;
    terminal.idle();
    fetched.map_err(failed)
}

/// Loads what is here, and keeps it by its digest.
pub(super) async fn of(
    fetched: Fetched,
    (sandbox, shelf): (&Sandbox, &Shelf),
    terminal: &Terminal,
) -> Result<Candidate, Failure> {
    let name = stem(&fetched.source);
    let loaded = sandbox.load_bytes_with(&name, fetched.bytes.clone(), &|event| show_load(terminal, &event)).await;
    terminal.idle();
    let plugin = loaded.map_err(|error| Failure::failed(format!("{}: {error}", fetched.source)))?;
    shelf.store.put(plugin.digest(), &fetched.bytes).map_err(Failure::failed)?;
    Ok(Candidate { fetched, plugin })
}

/// What a component without a manifest is named.
fn stem(source: &Source) -> String {
    let of_path = |path: &str| Path::new(path).file_stem().map(|stem| stem.to_string_lossy().into_owned());
    match source {
        Source::Registry(reference) => reference.repository().name().to_owned(),
        Source::Web(url) => of_path(url.path()).unwrap_or_else(|| "plugin".to_owned()),
        Source::File(path) => of_path(&path.to_string_lossy()).unwrap_or_else(|| "plugin".to_owned()),
    }
}

impl Candidate {
    /// As the lock file has it, if its signature counts or need not.
    pub(super) fn judged(&self, trust: &Trust, terminal: &Terminal) -> Result<LockedPlugin, Failure> {
        let source = &self.fetched.source;
        let repository = match source {
            Source::Registry(reference) => reference.repository().to_string(),
            _ => String::new(),
        };
        let version =
            self.plugin.manifest().map(|manifest| text::one_line(&manifest.version, 1000)).unwrap_or_default();
        let claims = Claims {
            name: self.plugin.name().to_owned(),
            version,
            repository,
            manifest: self.fetched.manifest.clone(),
        };
        let signer = match place_of(source) {
            Some(place) => {
                trust.judge(&place, &self.fetched.bytes, &claims, &self.fetched.signatures).map_err(failed)?
            }
            None => Signer::Nobody { because: String::new() },
        };
        let (signer, signature) = match signer {
            Signer::Trusted { key, signature } => (Some(key.to_string()), Some(signature)),
            Signer::Nobody { because } => {
                if !because.is_empty() {
                    terminal.note(format!("{YELLOW}!{YELLOW:#} {source}: {}", text::one_line(&because, 1000)));
                }
                // The key may be trusted another day.
                (None, self.fetched.signatures.iter().find(|text| agent_share::is_signature(text)).cloned())
            }
        };
        let reference = match source {
            // A lock that names a path of one folder would be wrong in all others.
            Source::File(path) => std::path::absolute(path).unwrap_or_else(|_| path.clone()).display().to_string(),
            source => source.to_string(),
        };
        Ok(LockedPlugin {
            name: claims.name,
            version: claims.version,
            reference,
            manifest: self.fetched.manifest.clone(),
            component: self.plugin.digest().clone(),
            signer,
            signature,
        })
    }
}
