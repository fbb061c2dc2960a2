//! The one place where the vetting is asked: before a component is linked, compiled or run, about exactly the bytes that will be.

use super::{LoadError, blocking, read_component};
use crate::identity::PluginIdentity;
use crate::sandbox::{Sandbox, Shared};
use crate::store::digest_of;
use crate::vetting::Vetting;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where a component lies, which decides what is asked about it.
#[derive(Clone, Debug)]
pub(crate) enum Origin {
    /// Somebody named it by hand, or has judged it: nobody is asked.
    Named,
    /// A file of a plugin folder.
    Folder(PathBuf),
    /// The plugin store.
    Store,
}

impl Sandbox {
    /// Whether it may serve. `bytes` are those that will be compiled; without them its code is here already, under its digest.
    pub(super) async fn vet(
        &self,
        origin: &Origin,
        plugin: &PluginIdentity,
        bytes: Option<&Arc<Vec<u8>>>,
    ) -> Result<(), LoadError> {
        let Some(vetting) = self.vetting.clone().filter(|_| !matches!(origin, Origin::Named)) else { return Ok(()) };
        let (shared, origin, plugin, bytes) =
            (Arc::clone(&self.shared), origin.clone(), plugin.clone(), bytes.cloned());
        blocking(move || ask(&*vetting, &shared, (&origin, &plugin), bytes)).await?
    }
}

fn ask(
    vetting: &dyn Vetting,
    shared: &Shared,
    (origin, plugin): (&Origin, &PluginIdentity),
    bytes: Option<Arc<Vec<u8>>>,
) -> Result<(), LoadError> {
    let read = || bytes.clone().map_or_else(|| read_again(shared, origin, plugin), Ok);
    match origin {
        Origin::Named => Ok(()),
        Origin::Folder(path) => {
            let vouched = vetting.vet(path, plugin, &read).map_err(LoadError::Refused)?;
            if let (Some(store), Some(words)) = (&shared.store, vouched) {
                store.vouch(&plugin.digest, &words)?;
            }
            Ok(())
        }
        Origin::Store => {
            let vouched = shared.store.as_ref().map(|store| store.vouched(&plugin.digest)).transpose()?.flatten();
            vetting.vet_kept(vouched.as_deref(), plugin, &read).map_err(LoadError::Refused)
        }
    }
}

/// The bytes of a component whose code is here: they have its digest, or they are none of it.
fn read_again(shared: &Shared, origin: &Origin, plugin: &PluginIdentity) -> io::Result<Arc<Vec<u8>>> {
    let bytes = match (origin, &shared.store) {
        (Origin::Folder(path), _) => read(path, shared.largest_component)?,
        (_, Some(store)) => store.get(&plugin.digest).map_err(io::Error::other)?,
        (_, None) => return Err(io::Error::other("there is no plugin store")),
    };
    match digest_of(&bytes) == plugin.digest {
        true => Ok(Arc::new(bytes)),
        false => Err(io::Error::other("it is being changed")),
    }
}

fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    read_component(path, most).map_err(io::Error::other)
}
