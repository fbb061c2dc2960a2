//! What a component says about itself in its manifest, read from its bytes before it is judged: nothing of it is parsed beyond
//! the headers of its outermost sections, and nothing is compiled or run.

use crate::identity::PluginIdentity;
use crate::load::LoadError;
use crate::manifest::{Manifest, name_of_stem};
use crate::scan::{MadeFor, NotAComponent};
use crate::sections::{find_manifest, is_core_module};
use crate::store::digest_of;
use agent_core::message::Digest;

/// Its name, its digest and its manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Introduction {
    /// As it will be known when it is loaded.
    pub identity: PluginIdentity,
    /// Components of other toolchains may have none.
    pub manifest: Option<Manifest>,
}

/// Reads them. `stem` is its name if it has no manifest.
pub fn introduction(stem: &str, component: &[u8]) -> Result<Introduction, LoadError> {
    let claimed = Claimed::read(stem, component, digest_of(component));
    if is_core_module(component) {
        return Err(NotAComponent::CoreModule(MadeFor::Unknown).into());
    }
    match claimed.problem {
        Some(problem) => Err(problem),
        None => Ok(Introduction { identity: claimed.identity, manifest: claimed.manifest }),
    }
}

/// What bytes claim to be. They have a name in any case, under which the lock file is asked about them first; only then is
/// their problem reported.
pub(crate) struct Claimed {
    pub(crate) identity: PluginIdentity,
    pub(crate) manifest: Option<Manifest>,
    pub(crate) problem: Option<LoadError>,
}

impl Claimed {
    pub(crate) fn read(stem: &str, bytes: &[u8], digest: Digest) -> Self {
        let nameless = |digest, problem| Self {
            identity: PluginIdentity { name: name_of_stem(stem), digest },
            manifest: None,
            problem,
        };
        let found = match find_manifest(bytes) {
            Ok(found) => found,
            // The child that examines components says what a core module was made for.
            Err(_) if is_core_module(bytes) => return nameless(digest, None),
            Err(problem) => return nameless(digest, Some(problem.into())),
        };
        let manifest = match found.json.map(Manifest::from_section).transpose() {
            Ok(manifest) => manifest,
            Err(problem) => return nameless(digest, Some(problem.into())),
        };
        let name = manifest.as_ref().map_or_else(|| name_of_stem(stem), |manifest| manifest.name.clone());
        let problem = found.damage.map(LoadError::from);
        Self { identity: PluginIdentity { name, digest }, manifest, problem }
    }
}
