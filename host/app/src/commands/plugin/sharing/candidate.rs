//! A plugin that came from elsewhere, before it is taken: fetched, judged by its bytes, and only then loaded.

use super::failed;
use crate::exit::Failure;
use crate::terminal::{Terminal, YELLOW, show_load, text};
use agent_plugins::{Introduction, LoadedPlugin, PluginIdentity, Sandbox, introduction};
use agent_registry::{
    Claims, Fetched, Found, LockedPlugin, Registry, ShareError, Shelf, Signatures, Signer, Source, Trust, place_of,
};
use std::path::Path;
use std::sync::Arc;

/// What came and may be taken: its signature counts, or need not.
pub(super) struct Judged {
    pub(super) fetched: Fetched,
    /// As the lock file has it.
    pub(super) locked: LockedPlugin,
}

/// The same once it is known to be a plugin for this host.
pub(super) struct Candidate {
    pub(super) fetched: Fetched,
    pub(super) locked: LockedPlugin,
    pub(super) plugin: Arc<LoadedPlugin>,
}

/// Fetches what was found.
pub(super) async fn fetch(
    registry: &Registry,
    found: &Found,
    shelf: &Shelf,
    signatures: Signatures<'_>,
    terminal: &Terminal,
) -> Result<Fetched, Failure> {
    let what = format!("downloading {}", found.source);
    let progress = |done, of| terminal.downloaded(&what, done, of);
    let fetched = registry.fetch(found, shelf, signatures, &progress).await;
    terminal.idle();
    fetched.map_err(failed)
}

/// The signatures that decide about a source: those of the keys that are trusted for it.
pub(super) fn wanted<'t>(source: &Source, trust: &'t Trust) -> Signatures<'t> {
    let place = place_of(source).filter(|_| trust.looks());
    place.map_or(Signatures::Wanted, |place| Signatures::Of(trust.keys_for(&place)))
}

/// What it says of itself. Nothing of it runs.
pub(super) fn introduced(fetched: &Fetched) -> Result<Introduction, Failure> {
    introduction(&stem(&fetched.source), &fetched.bytes)
        .map_err(|error| Failure::failed(format!("{}: {error}", fetched.source)))
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

/// Judges what came by its signatures, before anything of it is compiled or run.
pub(super) fn judged(fetched: Fetched, trust: &Trust, terminal: &Terminal) -> Result<Judged, Failure> {
    let source = &fetched.source;
    let claims = claims(&fetched)?;
    let identity = PluginIdentity { name: claims.name.clone(), digest: fetched.digest() };
    let signer = match (place_of(source), source) {
        (Some(place), _) => {
            let judged = trust.judge(&place, &fetched.bytes, &claims, &fetched.signatures);
            with_stopped_search(judged, fetched.search_stopped.as_deref()).map_err(failed)?
        }
        (None, Source::File(path)) => trust.judge_file(path, &fetched.bytes, &identity).map_err(failed)?,
        (None, _) => Signer::Nobody { because: String::new() },
    };
    let (signer, signature) = match signer {
        Signer::Trusted { key, signature } => (Some(key.to_string()), Some(signature)),
        Signer::Nobody { because } => {
            if !because.is_empty() {
                terminal.note(format!("{YELLOW}!{YELLOW:#} {source}: {}", text::one_line(&because, 1000)));
            }
            // The key may be trusted another day.
            (None, fetched.signatures.iter().find(|text| agent_registry::is_signature(text)).cloned())
        }
    };
    let reference = match source {
        // A lock that names a path of one folder would be wrong in all others.
        Source::File(path) => std::path::absolute(path).unwrap_or_else(|_| path.clone()).display().to_string(),
        source => source.to_string(),
    };
    let locked = LockedPlugin {
        name: claims.name,
        version: claims.version,
        reference,
        manifest: fetched.manifest.clone(),
        component: fetched.digest(),
        signer,
        signature,
    };
    Ok(Judged { fetched, locked })
}

/// Says of a verdict without a trusted signature that not all signatures were read.
fn with_stopped_search(judged: Result<Signer, ShareError>, stopped: Option<&str>) -> Result<Signer, ShareError> {
    let Some(stopped) = stopped else { return judged };
    match judged {
        Ok(Signer::Nobody { because }) if !because.is_empty() => {
            Ok(Signer::Nobody { because: format!("{because}; {stopped}") })
        }
        Err(ShareError::Signature { place, reason }) => {
            Err(ShareError::Signature { place, reason: format!("{reason}; {stopped}") })
        }
        judged => judged,
    }
}

/// What its signature must say.
fn claims(fetched: &Fetched) -> Result<Claims, Failure> {
    let Introduction { identity, manifest } = introduced(fetched)?;
    let repository = match &fetched.source {
        Source::Registry(reference) => reference.repository().to_string(),
        _ => String::new(),
    };
    let version = manifest.map(|manifest| text::one_line(&manifest.version, 1000)).unwrap_or_default();
    Ok(Claims { name: identity.name, version, repository, manifest: fetched.manifest.clone() })
}

impl Judged {
    /// Loads it, and keeps it by its digest: what is no plugin for this host goes no further.
    pub(super) async fn load(
        self,
        (sandbox, shelf): (&Sandbox, &Shelf),
        terminal: &Terminal,
    ) -> Result<Candidate, Failure> {
        let Judged { fetched, locked } = self;
        let name = stem(&fetched.source);
        let loaded = sandbox.load_bytes_with(&name, fetched.bytes.clone(), &|event| show_load(terminal, &event)).await;
        terminal.idle();
        let plugin = loaded.map_err(|error| Failure::failed(format!("{}: {error}", fetched.source)))?;
        let kept = shelf.store.vouch(&locked.component, &locked.voucher());
        kept.and_then(|()| shelf.store.put(&locked.component, &fetched.bytes)).map_err(Failure::failed)?;
        Ok(Candidate { fetched, locked, plugin })
    }
}
