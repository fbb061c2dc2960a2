//! Loads development builds. Builds that differ only in their sources or their manifests have the same compiled code, so the
//! cache stores the code under a digest that does not depend on these sections. A change of the sources is then loaded
//! without compiling.

use super::blocking;
use super::compiled_code::{self, Examined};
use crate::binary::development::DevelopmentBuild;
use crate::component::compiler::BytesFacts;
use crate::component::engine_context::EngineContext;
use crate::component::load_error::LoadError;
use crate::component::plugin_store::digest_of;
use crate::component::sandbox::Sandbox;
use crate::identity::PluginIdentity;
use agent_core::message::Digest;
use std::fs::File;
use std::sync::Arc;

/// The sources of a development build, and the digest of its code.
pub(super) struct Development {
    pub(super) sources: Arc<str>,
    code: Digest,
}

/// Returns None if the component is not a development build.
pub(super) async fn read(bytes: &Arc<Vec<u8>>) -> Result<Option<Development>, LoadError> {
    let bytes = Arc::clone(bytes);
    let read = move || {
        let DevelopmentBuild { sources, code } = DevelopmentBuild::of(&bytes)?;
        Some(Development { sources, code: digest_of(&code) })
    };
    blocking(read).await
}

impl Sandbox {
    /// Takes the code of a development build from the cache, or compiles it and stores it in the cache. While the returned
    /// file is open, the cache does not delete the code.
    pub(super) async fn examine_development_build(
        &self,
        build: &Development,
        plugin: &PluginIdentity,
        bytes: Arc<Vec<u8>>,
        context: &Arc<EngineContext>,
    ) -> Result<(Examined, Option<File>), LoadError> {
        let (cache, digest) = (Arc::clone(context), build.code.clone());
        let cached = blocking(move || compiled_code::load_stored::<BytesFacts>(&cache, &digest)).await?;
        if let Some((component, facts, file)) = cached {
            let kinds = facts.check().map_err(LoadError::from)?;
            return Ok((Examined { component, facts, kinds }, Some(file)));
        }
        let examined = self.examine(plugin, bytes, context).await?;
        let (cache, digest) = (Arc::clone(context), build.code.clone());
        let (component, facts) = (examined.component.clone(), examined.facts.clone());
        let store = move || compiled_code::store_in_cache(&cache, &digest, &facts, &component);
        Ok((examined, blocking(store).await?))
    }
}
