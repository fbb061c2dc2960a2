//! The compiled code of components. The compiler process creates the code, the cache stores it, and the next start
//! loads it from the cache.

use super::{blocking, reason};
use crate::component::code_file::{CodeStore, CompiledCode};
use crate::component::compiler::{self, BytesFacts, CompileLimits, CompileTimeout, CompilerCommand, CompilerError};
use crate::component::engine_context::EngineContext;
use crate::component::installed_code;
use crate::component::load_error::LoadError;
use crate::component::plugin::Facts;
use crate::component::sandbox::Sandbox;
use crate::identity::{Kind, PluginIdentity};
use agent_core::message::Digest;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use wasmtime::component::Component;

/// A component that was examined and compiled.
pub(super) struct Examined {
    pub(super) component: Component,
    pub(super) facts: BytesFacts,
    pub(super) kinds: Vec<Kind>,
}

impl Sandbox {
    /// Examines and compiles a component. Refuses a component that is in quarantine because it crashed the compiler
    /// process earlier.
    pub(super) async fn examine(
        &self,
        plugin: &PluginIdentity,
        bytes: Arc<Vec<u8>>,
        context: &Arc<EngineContext>,
    ) -> Result<Examined, LoadError> {
        if let Some(quarantine) = &self.shared.quarantine
            && let Some(entry) = quarantine.find(&plugin.digest, &context.examiner)
        {
            return Err(LoadError::Quarantined { digest: entry.digest, reason: entry.reason });
        }
        let limits = CompileLimits::new(&self.shared.limits, bytes.len());
        // Each compilation uses all processors, so only a few compilations run at the same time. The sum of the memory
        // limits of all running compilations is limited, too.
        let permit = Arc::clone(&self.shared.compiling).acquire_owned().await;
        let memory = Arc::clone(&self.shared.compile_memory).acquire_many_owned(limits.memory_mib()).await;
        let examined = match &self.shared.compiler {
            Some(command) => examine_in_child(command, context, &bytes, &limits).await,
            None => examine_in_process(context, bytes, limits).await,
        };
        drop((permit, memory));
        examined.map_err(|error| match error {
            ExamineError::Load(error) => error,
            ExamineError::Compiler(error) => self.compiler_failure(plugin, context, error),
        })
    }

    /// Converts an error of the compiler process to a load error. Puts the component in quarantine if it crashed the
    /// compiler process.
    fn compiler_failure(&self, plugin: &PluginIdentity, context: &EngineContext, error: CompilerError) -> LoadError {
        let mut advice = "";
        if let Some(quarantine) = &self.shared.quarantine
            && error.is_caused_by_component()
        {
            match quarantine.put(&plugin.digest, &plugin.name, &error.to_string(), &context.examiner) {
                Ok(()) => advice = "; it is now in quarantine (see `agent-host plugin quarantine`)",
                Err(error) => tracing::warn!(%plugin, %error, "the component cannot be put in quarantine"),
            }
        }
        match error {
            CompilerError::NotAComponent(reason) => reason.into(),
            CompilerError::Structure(problem) => problem.into(),
            CompilerError::CodeTooLarge(problem) => problem.into(),
            CompilerError::Time(time) => time.into(),
            error => LoadError::Compile { reason: format!("{error}{advice}") },
        }
    }
}

/// The reason why examining or compiling a component failed.
enum ExamineError {
    Compiler(CompilerError),
    Load(LoadError),
}

impl From<CompilerError> for ExamineError {
    fn from(error: CompilerError) -> Self {
        Self::Compiler(error)
    }
}

impl From<LoadError> for ExamineError {
    fn from(error: LoadError) -> Self {
        Self::Load(error)
    }
}

async fn examine_in_child(
    command: &CompilerCommand,
    context: &Arc<EngineContext>,
    bytes: &[u8],
    limits: &CompileLimits,
) -> Result<Examined, ExamineError> {
    let compiled = compiler::compile(command, context, bytes, limits).await?;
    let kinds = compiled.facts.check().map_err(LoadError::from)?;
    let context = Arc::clone(context);
    let loaded = blocking(move || {
        let component = deserialize(&context, compiled.code());
        component.map(|component| Examined { component, facts: compiled.facts, kinds })
    });
    Ok(loaded.await?.map_err(|error| LoadError::Compile { reason: reason(&error) })?)
}

/// Examines and compiles a component in this process, for hosts that are set up without a compiler process.
async fn examine_in_process(
    context: &Arc<EngineContext>,
    bytes: Arc<Vec<u8>>,
    limits: CompileLimits,
) -> Result<Examined, ExamineError> {
    let (context, time) = (Arc::clone(context), limits.time());
    let work = blocking(move || {
        let facts = compiler::examine_without_child(&bytes, &limits)?;
        let kinds = facts.check().map_err(LoadError::from)?;
        let failed = |error: wasmtime::Error| CompilerError::NotCompiled(reason(&error));
        let code = context.engine.precompile_component(&bytes).map_err(failed)?;
        limits.check_code(code.len() as u64).map_err(CompilerError::from)?;
        Ok::<_, ExamineError>(Examined { component: deserialize(&context, &code).map_err(failed)?, facts, kinds })
    });
    tokio::time::timeout(time, work).await.map_err(|_| CompilerError::from(CompileTimeout::Clock(time)))??
}

/// Loads the compiled code of a component and the facts about the component, from the installed code or else from the
/// cache. While the returned file is open, the cache does not delete the entry.
pub(super) fn load_stored<F: DeserializeOwned>(
    context: &EngineContext,
    digest: &Digest,
) -> Option<(Component, F, File)> {
    let installed = context.installed_code.as_ref().and_then(|code| load_from(code, context, digest));
    installed.or_else(|| load_from(context.cache.as_ref()?, context, digest))
}

fn load_from<F: DeserializeOwned>(
    store: &impl CodeStore,
    context: &EngineContext,
    digest: &Digest,
) -> Option<(Component, F, File)> {
    loop {
        let entry = store.get(digest)?;
        let facts = serde_json::from_slice(&entry.record).ok()?;
        let opened = match &entry.code {
            CompiledCode::InFile => deserialize_file(context, &entry.file),
            CompiledCode::Bytes(code) => deserialize(context, code),
        };
        match (opened, entry.code) {
            (Ok(component), _) => return Some((component, facts, entry.file)),
            // The file cannot be mapped, because the system has no /proc or the file system is mounted with `noexec`.
            (Err(error), CompiledCode::InFile) => {
                tracing::debug!(%digest, %error, "compiled code cannot be mapped from its file; it is copied into memory");
                store.disable_mapping();
            }
            (Err(error), CompiledCode::Bytes(_)) => {
                tracing::warn!(%digest, %error, "stored compiled code cannot be loaded; the component is compiled again");
                return None;
            }
        }
    }
}

#[cfg(target_os = "linux")]
#[allow(
    unsafe_code,
    reason = "compiled code can only be loaded unsafely; the cache's keyed hash or the permissions of installed code prove its origin"
)]
fn deserialize_file(context: &EngineContext, file: &File) -> wasmtime::Result<Component> {
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(file));
    // SAFETY: wasmtime's compiler in this program created the code for this engine. For a file of the cache, this is
    // proved by a keyed hash that was verified for this open file with a key that only this user can read. A file of the
    // installed code could only be written by root or this user. The content does not change: the file is read-only,
    // only root and this user can write to its folder, and this host replaces such files and never writes to them.
    unsafe { Component::deserialize_file(&context.engine, path) }
}

/// On systems other than Linux, the cache never maps a file, so this function is not called.
#[cfg(not(target_os = "linux"))]
fn deserialize_file(_: &EngineContext, _: &File) -> wasmtime::Result<Component> {
    Err(wasmtime::Error::msg("this system does not support mapping compiled code from files"))
}

#[allow(
    unsafe_code,
    reason = "compiled code can only be loaded unsafely; it comes from a verified file or from the host's own child process"
)]
fn deserialize(context: &EngineContext, code: &[u8]) -> wasmtime::Result<Component> {
    // SAFETY: wasmtime's compiler in this program created these bytes for this engine. A cache entry is returned only
    // after its keyed hash was verified over exactly these bytes, with a key that only this user can read. Installed
    // code is returned only if root or this user has written it. The code from a child process was received completely
    // through a pipe that only the child and the host can access.
    unsafe { Component::deserialize(&context.engine, code) }
}

/// Stores compiled code and facts in the cache for the next start. While the returned file is open, the cache does not
/// delete the entry. If nothing can be stored, returns None and no error, because the plugin works even without a
/// cache entry.
pub(super) fn store_in_cache(
    context: &EngineContext,
    digest: &Digest,
    facts: &impl Serialize,
    component: &Component,
) -> Option<File> {
    let cache = context.cache.as_ref()?;
    let record = serde_json::to_vec(facts).map_err(io::Error::other);
    let code = component.serialize().map_err(io::Error::other);
    let stored = record.and_then(|record| cache.put(digest, &record, &code?));
    stored.unwrap_or_else(|error| {
        tracing::warn!(%digest, %error, "compiled code cannot be stored; the next start compiles the component again");
        None
    })
}

/// Copies compiled code and facts from the cache into a folder of installed code. Returns the path of the file.
pub(super) fn copy_from_cache(context: &EngineContext, digest: &Digest, directory: &Path) -> io::Result<PathBuf> {
    let cached = context.cache.as_ref().and_then(|cache| load_from::<Facts>(cache, context, digest));
    let (component, facts, _pin) =
        cached.ok_or_else(|| io::Error::other("the cache of compiled code cannot be used"))?;
    let record = serde_json::to_vec(&facts).map_err(io::Error::other)?;
    let code = component.serialize().map_err(io::Error::other)?;
    installed_code::write(directory, (&context.compatibility, digest), (&record, &code))
}
