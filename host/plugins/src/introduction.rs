//! What a component says of itself, read from its bytes: nothing of it is compiled or run, so that it can be judged first.

use crate::identity::PluginIdentity;
use crate::load::LoadError;
use crate::manifest::{Manifest, name_of_stem};
use crate::scan::scan;
use crate::store::digest_of;

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
    let manifest = scan(component)?.manifest.as_deref().map(Manifest::from_section).transpose()?;
    let name = manifest.as_ref().map_or_else(|| name_of_stem(stem), |manifest| manifest.name.clone());
    Ok(Introduction { identity: PluginIdentity { name, digest: digest_of(component) }, manifest })
}
