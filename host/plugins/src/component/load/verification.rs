//! Calls the verifier of the sandbox. No other module calls the verifier. The verifier is called before a component is
//! compiled, linked or run, for exactly the bytes that will be used.

use super::{blocking, read_component};
use crate::component::load_error::LoadError;
use crate::component::plugin_store::digest_of;
use crate::component::sandbox::{Sandbox, Shared};
use crate::component::verifier::ComponentVerifier;
use crate::identity::PluginIdentity;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The origin of a component, which determines how the component is verified.
#[derive(Clone, Debug)]
pub(crate) enum Origin {
    /// The user named the component, or the component has already been verified. The verifier is not called for
    /// a component with this origin.
    Named,
    /// The component is a file of a plugin folder.
    Folder(PathBuf),
    /// The component comes from the plugin store.
    Store,
}

impl Sandbox {
    /// Asks the verifier whether the component may be used, and fails if it may not. `bytes` contains the bytes that
    /// will be compiled. `bytes` is None if the compiled code for this digest is already available.
    pub(super) async fn verify(
        &self,
        origin: &Origin,
        plugin: &PluginIdentity,
        bytes: Option<&Arc<Vec<u8>>>,
    ) -> Result<(), LoadError> {
        let Some(verifier) = self.verifier.clone().filter(|_| !matches!(origin, Origin::Named)) else { return Ok(()) };
        let (shared, origin, plugin, bytes) =
            (Arc::clone(&self.shared), origin.clone(), plugin.clone(), bytes.cloned());
        blocking(move || call_verifier(&*verifier, &shared, (&origin, &plugin), bytes)).await?
    }
}

fn call_verifier(
    verifier: &dyn ComponentVerifier,
    shared: &Shared,
    (origin, plugin): (&Origin, &PluginIdentity),
    bytes: Option<Arc<Vec<u8>>>,
) -> Result<(), LoadError> {
    let read = || bytes.clone().map_or_else(|| read_again(shared, origin, plugin), Ok);
    match origin {
        Origin::Named => Ok(()),
        Origin::Folder(path) => {
            let vouched = verifier.verify_file(path, plugin, &read).map_err(LoadError::Refused)?;
            if let (Some(store), Some(statement)) = (&shared.store, vouched) {
                store.vouch(&plugin.digest, &statement)?;
            }
            Ok(())
        }
        Origin::Store => {
            let vouched = shared.store.as_ref().map(|store| store.vouched(&plugin.digest)).transpose()?.flatten();
            verifier.verify_stored(vouched.as_deref(), plugin, &read).map_err(LoadError::Refused)
        }
    }
}

/// Reads the bytes of a component whose compiled code is already available, and checks that the bytes still have the
/// component's digest.
fn read_again(shared: &Shared, origin: &Origin, plugin: &PluginIdentity) -> io::Result<Arc<Vec<u8>>> {
    let bytes = match (origin, &shared.store) {
        (Origin::Folder(path), _) => read(path, shared.largest_component)?,
        (_, Some(store)) => store.get(&plugin.digest).map_err(io::Error::other)?,
        (_, None) => return Err(io::Error::other("this sandbox has no plugin store")),
    };
    match digest_of(&bytes) == plugin.digest {
        true => Ok(Arc::new(bytes)),
        false => Err(io::Error::other("it was changed while it was being read")),
    }
}

fn read(path: &Path, max_bytes: u64) -> io::Result<Vec<u8>> {
    read_component(path, max_bytes).map_err(io::Error::other)
}
