//! The claims that a component makes about itself in its manifest. The host reads the claims before it verifies the
//! component. Only the headers of the outermost sections and the manifest are parsed, and no code is compiled or run.

use super::load_error::LoadError;
use super::plugin_store::digest_of;
use crate::binary::scan::{ModuleTarget, NotAComponent};
use crate::binary::sections::{find_manifest, is_core_module};
use crate::grants::manifest::{Manifest, name_of_stem};
use crate::identity::PluginIdentity;
use agent_core::message::Digest;

/// The name, the digest and the manifest of a component.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ComponentClaims {
    /// The name and the digest that identify the plugin when it is loaded.
    pub identity: PluginIdentity,
    /// The manifest that the component contains, or None. Components that were not built with the SDK may have
    /// no manifest.
    pub manifest: Option<Manifest>,
}

/// Reads the claims from the bytes of a component. `stem` is used as the name of the plugin if the component has
/// no manifest.
pub fn read_claims(stem: &str, component: &[u8]) -> Result<ComponentClaims, LoadError> {
    let claimed = UnverifiedClaims::read(stem, component, digest_of(component));
    if is_core_module(component) {
        return Err(NotAComponent::CoreModule(ModuleTarget::Unknown).into());
    }
    match claimed.problem {
        Some(problem) => Err(problem),
        None => Ok(ComponentClaims { identity: claimed.identity, manifest: claimed.manifest }),
    }
}

/// The claims that were read from the bytes of a component that is possibly invalid. The plugin's name is always
/// present, because the name is looked up in the lock file before `problem` is reported.
pub(crate) struct UnverifiedClaims {
    pub(crate) identity: PluginIdentity,
    pub(crate) manifest: Option<Manifest>,
    pub(crate) problem: Option<LoadError>,
}

impl UnverifiedClaims {
    pub(crate) fn read(stem: &str, bytes: &[u8], digest: Digest) -> Self {
        let without_manifest = |digest, problem| Self {
            identity: PluginIdentity { name: name_of_stem(stem), digest },
            manifest: None,
            problem,
        };
        let found = match find_manifest(bytes) {
            Ok(found) => found,
            // The target of a core module is not determined here: the compiler process determines and reports
            // the target.
            Err(_) if is_core_module(bytes) => return without_manifest(digest, None),
            Err(problem) => return without_manifest(digest, Some(problem.into())),
        };
        let manifest = match found.json.map(Manifest::from_section).transpose() {
            Ok(manifest) => manifest,
            Err(problem) => return without_manifest(digest, Some(problem.into())),
        };
        let name = manifest.as_ref().map_or_else(|| name_of_stem(stem), |manifest| manifest.name.clone());
        let problem = found.damage.map(LoadError::from);
        Self { identity: PluginIdentity { name, digest }, manifest, problem }
    }
}
