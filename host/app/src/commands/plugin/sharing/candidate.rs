//! The steps before a plugin is installed: the plugin is fetched, its signature is checked, and then it is loaded.

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
    /// The downloaded component.
    pub(super) fetched: FetchedPlugin,
    /// The entry to write into the lock file for the component.
    pub(super) locked: LockedPlugin,
}

/// A trusted download that the host has loaded and that is a plugin for this host.
pub(super) struct Candidate {
    /// The downloaded component.
    pub(super) fetched: FetchedPlugin,
    /// The entry to write into the lock file for the component.
    pub(super) locked: LockedPlugin,
    /// The loaded component.
    pub(super) plugin: Arc<LoadedPlugin>,
}

/// Downloads the component that was found, and shows the progress.
pub(super) async fn fetch(
    registry: &Registry,
    found: &ResolvedPlugin,
    component_cache: &ComponentCache,
    signatures: SignatureRequest<'_>,
    terminal: &Terminal,
) -> Result<FetchedPlugin, RegistryError> {
    let what = format!("downloading {}", found.source);
    let progress = |done, total| terminal.downloaded(&what, done, total);
    let fetched = registry.fetch(found, component_cache, signatures, &progress).await;
    terminal.idle();
    fetched
}

/// Returns which signatures are fetched with a download from this source. If trusted keys are configured, only
/// signatures of the keys that are trusted for the source are fetched.
pub(super) fn signatures_to_fetch<'t>(source: &Source, trust: &'t Trust) -> SignatureRequest<'t> {
    let namespace = namespace_of(source).filter(|_| trust.checks_signatures());
    namespace.map_or(SignatureRequest::Any, |namespace| SignatureRequest::FromKeys(trust.keys_for(&namespace)))
}

/// Reads the name and manifest of the component without running it.
pub(super) fn read_component_claims(fetched: &FetchedPlugin) -> Result<ComponentClaims, Failure> {
    read_claims(&default_name(&fetched.source), &fetched.bytes)
        .map_err(|error| Failure::failed(format!("{}: {error}", fetched.source)))
}

/// Returns the plugin name for a component without a manifest. The name is the last part of the component's source.
fn default_name(source: &Source) -> String {
    let file_stem = |path: &str| Path::new(path).file_stem().map(|stem| stem.to_string_lossy().into_owned());
    match source {
        Source::Registry(reference) => reference.repository().name().to_owned(),
        Source::Web(url) => file_stem(url.path()).unwrap_or_else(|| "plugin".to_owned()),
        Source::File(path) => file_stem(&path.to_string_lossy()).unwrap_or_else(|| "plugin".to_owned()),
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
        (Some(namespace), _) => {
            let verdict = trust.verify(&namespace, &fetched.bytes, &claims, &fetched.signatures);
            with_stopped_search(verdict, fetched.search_stopped.as_deref()).map_err(failed)?
        }
        (None, Source::File(path)) => trust.verify_file(path, &fetched.bytes, &identity).map_err(failed)?,
        (None, _) => Signer::Untrusted { reason: String::new() },
    };
    let (signer, signature) = match signer {
        Signer::Trusted { key, signature } => (Some(key.to_string()), Some(signature)),
        Signer::Untrusted { reason } => {
            if !reason.is_empty() {
                terminal.note(format!("{YELLOW}!{YELLOW:#} {source}: {}", text::one_line(&reason, 1000)));
            }
            // Keep the untrusted signature, because the user may trust its key later.
            (None, fetched.signatures.iter().find(|text| agent_registry::is_signature(text)).cloned())
        }
    };
    let reference = match source {
        // An entry has an absolute path, because a relative path would depend on the current folder. The lock file contains it
        // relative to its own folder.
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

/// Adds `stopped` to the message about a download that has no trusted signature. `stopped` is the reason why the host
/// did not read all signatures.
fn with_stopped_search(verdict: Result<Signer, RegistryError>, stopped: Option<&str>) -> Result<Signer, RegistryError> {
    let Some(stopped) = stopped else { return verdict };
    match verdict {
        Ok(Signer::Untrusted { reason }) if !reason.is_empty() => {
            Ok(Signer::Untrusted { reason: format!("{reason}; {stopped}") })
        }
        Err(RegistryError::Signature { place, reason }) => {
            Err(RegistryError::Signature { place, reason: format!("{reason}; {stopped}") })
        }
        verdict => verdict,
    }
}

/// Returns the claims that a valid signature of this download must contain.
fn claims(fetched: &FetchedPlugin) -> Result<Claims, Failure> {
    let ComponentClaims { identity, manifest } = read_component_claims(fetched)?;
    let repository = match &fetched.source {
        Source::Registry(reference) => reference.repository().to_string(),
        _ => String::new(),
    };
    let version = manifest.map(|manifest| text::one_line(&manifest.version, 1000)).unwrap_or_default();
    Ok(Claims { name: identity.name, version, repository, manifest: fetched.manifest.clone() })
}

impl TrustedDownload {
    /// Loads the component and stores it by its digest. Returns an error if the component is not a plugin for
    /// this host.
    pub(super) async fn load(
        self,
        (sandbox, component_cache): (&Sandbox, &ComponentCache),
        terminal: &Terminal,
    ) -> Result<Candidate, Failure> {
        let candidate = self.examine(sandbox, terminal).await?;
        let Candidate { fetched, locked, .. } = &candidate;
        let recorded = component_cache.store.vouch(&locked.component, &locked.origin_entry());
        recorded
            .and_then(|()| component_cache.store.put(&locked.component, &fetched.bytes))
            .map_err(Failure::failed)?;
        Ok(candidate)
    }

    /// Loads the component without storing it. Returns an error if the component is not a plugin for this host.
    pub(super) async fn examine(self, sandbox: &Sandbox, terminal: &Terminal) -> Result<Candidate, Failure> {
        let TrustedDownload { fetched, locked } = self;
        let name = default_name(&fetched.source);
        let loaded = sandbox.load_bytes_with(&name, fetched.bytes.clone(), &|event| show_load(terminal, &event)).await;
        terminal.idle();
        let plugin = loaded.map_err(|error| Failure::failed(format!("{}: {error}", fetched.source)))?;
        Ok(Candidate { fetched, locked, plugin })
    }
}
