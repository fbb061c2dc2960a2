//! Compiles components for an installer, so that all users of a machine start with compiled code.

use super::{Progress, blocking, compiled_code};
use crate::component::installed_code;
use crate::component::load_error::LoadError;
use crate::component::sandbox::Sandbox;
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The reason why compiled code cannot be installed.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// A component cannot be loaded.
    #[error("`{}`: {reason}", file.display())]
    Load {
        /// The component.
        file: PathBuf,
        /// The reason why the component cannot be loaded.
        reason: LoadError,
    },
    /// The folder for the compiled code cannot be changed.
    #[error("compiled code cannot be written to `{}`: {reason}", directory.display())]
    Write {
        /// The folder for the compiled code.
        directory: PathBuf,
        /// The error of the operating system.
        reason: io::Error,
    },
}

impl Sandbox {
    /// Compiles the components and writes their code into `directory`, from which sandboxes with this folder in
    /// [`SandboxOptions::installed_code`](crate::SandboxOptions) load it. Code in the folder that belongs to other
    /// components, or to other versions of the program, is deleted. If a component cannot be compiled, no code
    /// is deleted.
    ///
    /// The code runs only on processors like the processor of this machine. Programs on other machines ignore it.
    pub async fn install_code(
        &self,
        components: &[PathBuf],
        directory: &Path,
        progress: &Progress<'_>,
    ) -> Result<(), InstallError> {
        let write = |reason| InstallError::Write { directory: directory.to_owned(), reason };
        let mut written = BTreeSet::new();
        for file in components {
            let load = |reason| InstallError::Load { file: file.clone(), reason };
            let plugin = self.load_file_with(file, progress).await.map_err(load)?;
            let (root, context) = (directory.to_owned(), Arc::clone(&plugin.engine_context));
            let digest = plugin.digest().clone();
            let copied = blocking(move || compiled_code::copy_from_cache(&context, &digest, &root)).await;
            written.insert(copied.map_err(load)?.map_err(write)?);
        }
        let root = directory.to_owned();
        let deleted = blocking(move || installed_code::delete_other_code(&root, &written)).await;
        deleted.map_err(io::Error::other).flatten().map_err(write)
    }
}
