//! A downloaded plugin before it is installed: it is fetched, its signature is checked, and only then it is loaded.

use super::failed;
use crate::exit::Failure;
use crate::terminal::{Terminal, YELLOW, show_load, text};
use agent_plugins::{ComponentClaims, LoadedPlugin, PluginIdentity, Sandbox, read_claims};
use agent_registry::{
    Claims, ComponentCache, FetchedPlugin, LockedPlugin, Registry, RegistryError, ResolvedPlugin, SignatureRequest,
    Signer, Source, Trust, namespace_of,
};
use std::path::Path;
use std::sync::Arc;

/// A download that may be installed, because its signature is trusted or not required.
pub(super) struct TrustedDownload {
    pub(super) fetched: FetchedPlugin,
    /// The entry for the lock file.
    pub(super) locked: LockedPlugin,
}

/// A trusted download that was loaded and is a plugin for this host.
pub(super) struct Candidate {
    pub(super) fetched: FetchedPlugin,
    pub(super) locked: LockedPlugin,
    pub(super) plugin: Arc<LoadedPlugin>,
}

/// Downloads the component that was found, and shows the progress.
pub(super) async fn fetch(
    registry: &Registry,
    found: &ResolvedPlugin,
    shelf: &ComponentCache,
    signatures: SignatureRequest<'_>,
    terminal: &Terminal,
) -> Result<FetchedPlugin, Failure> {
    let what = format!("downloading {}", found.source);
    let progress = |done, of| terminal.downloaded(&what, done, of);
    let fetched = registry.fetch(found, shelf, signatures, &progress).await;
    terminal.idle();
    fetched.map_err(failed)
}

/// Returns which signatures to fetch for a source: those of the keys that are trusted for it, if keys are configured.
pub(super) fn signatures_to_fetch<'t>(source: &Source, trust: &'t Trust) -> SignatureRequest<'t> {
    let place = namespace_of(source).filter(|_| trust.checks_signatures());
    place.map_or(SignatureRequest::Any, |place| SignatureRequest::FromKeys(trust.keys_for(&place)))
}

/// Reads the name and manifest of the component without running it.
pub(super) fn read_introduction(fetched: &FetchedPlugin) -> Result<ComponentClaims, Failure> {
    read_claims(&stem(&fetched.source), &fetched.bytes)
        .map_err(|error| Failure::failed(format!("{}: {error}", fetched.source)))
}

/// Returns the name for a component without a manifest.
fn stem(source: &Source) -> String {
    let of_path = |path: &str| Path::new(path).file_stem().map(|stem| stem.to_string_lossy().into_owned());
    match source {
        Source::Registry(reference) => reference.repository().name().to_owned(),
        Source::Web(url) => of_path(url.path()).unwrap_or_else(|| "plugin".to_owned()),
        Source::File(path) => of_path(&path.to_string_lossy()).unwrap_or_else(|| "plugin".to_owned()),
    }
}

/// Checks the signatures of a download before it is compiled or run.
pub(super) fn check_signatures(
    fetched: FetchedPlugin,
    trust: &Trust,
    terminal: &Terminal,
) -> Result<TrustedDownload, Failure> {
    let source = &fetched.source;
    let claims = claims(&fetched)?;
    let identity = PluginIdentity { name: claims.name.clone(), digest: fetched.digest() };
    let signer = match (namespace_of(source), source) {
        (Some(place), _) => {
            let judged = trust.verify(&place, &fetched.bytes, &claims, &fetched.signatures);
            with_stopped_search(judged, fetched.search_stopped.as_deref()).map_err(failed)?
        }
        (None, Source::File(path)) => trust.verify_file(path, &fetched.bytes, &identity).map_err(failed)?,
        (None, _) => Signer::Untrusted { reason: String::new() },
    };
    let (signer, signature) = match signer {
        Signer::Trusted { key, signature } => (Some(key.to_string()), Some(signature)),
        Signer::Untrusted { reason: because } => {
            if !because.is_empty() {
                terminal.note(format!("{YELLOW}!{YELLOW:#} {source}: {}", text::one_line(&because, 1000)));
            }
            // Keep the signature, because its key may be trusted later.
            (None, fetched.signatures.iter().find(|text| agent_registry::is_signature(text)).cloned())
        }
    };
    let reference = match source {
        // A relative path in the lock file would be wrong in other folders.
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
    Ok(TrustedDownload { fetched, locked })
}

/// Adds to a verdict without a trusted signature that not all signatures were read.
fn with_stopped_search(judged: Result<Signer, RegistryError>, stopped: Option<&str>) -> Result<Signer, RegistryError> {
    let Some(stopped) = stopped else { return judged };
    match judged {
        Ok(Signer::Untrusted { reason: because }) if !because.is_empty() => {
            Ok(Signer::Untrusted { reason: format!("{because}; {stopped}") })
        }
        Err(RegistryError::Signature { place, reason }) => {
            Err(RegistryError::Signature { place, reason: format!("{reason}; {stopped}") })
        }
        judged => judged,
    }
}

/// Returns the claims that a valid signature must contain.
fn claims(fetched: &FetchedPlugin) -> Result<Claims, Failure> {
    let ComponentClaims { identity, manifest } = read_introduction(fetched)?;
    let repository = match &fetched.source {
        Source::Registry(reference) => reference.repository().to_string(),
        _ => String::new(),
    };
    let version = manifest.map(|manifest| text::one_line(&manifest.version, 1000)).unwrap_or_default();
    Ok(Claims { name: identity.name, version, repository, manifest: fetched.manifest.clone() })
}

impl TrustedDownload {
    /// Loads the component and stores it by its digest. Fails if it is not a plugin for this host.
    pub(super) async fn load(
        self,
        (sandbox, shelf): (&Sandbox, &ComponentCache),
        terminal: &Terminal,
    ) -> Result<Candidate, Failure> {
        let TrustedDownload { fetched, locked } = self;
        let name = stem(&fetched.source);
        let loaded = sandbox.load_bytes_with(&name, fetched.bytes.clone(), &|event| show_load(terminal, &event)).await;
        terminal.idle();
        let plugin = loaded.map_err(|error| Failure::failed(format!("{}: {error}", fetched.source)))?;
        let vouched = shelf.store.vouch(&locked.component, &locked.origin_entry());
        vouched.and_then(|()| shelf.store.put(&locked.component, &fetched.bytes)).map_err(Failure::failed)?;
        Ok(Candidate { fetched, locked, plugin })
    }
}
