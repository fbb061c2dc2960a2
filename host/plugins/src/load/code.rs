//! Compiled code: made by the child process that examines components, kept in the cache, and found there again.

use super::{LoadError, blocking, reason};
use crate::cache::CompiledCode;
use crate::compiler::{self, BytesFacts, CompileLimits, CompileTime, CompilerCommand, CompilerError};
use crate::identity::{Kind, PluginIdentity};
use crate::plugin::Facts;
use crate::room::Room;
use crate::sandbox::Sandbox;
use agent_core::message::Digest;
use std::fs::File;
use std::sync::Arc;
use wasmtime::component::Component;

/// What came of examining a component.
pub(super) struct Examined {
    pub(super) component: Component,
    pub(super) facts: BytesFacts,
    pub(super) kinds: Vec<Kind>,
}

impl Sandbox {
    /// Has a component examined and compiled. One that has ended the examining process before is not tried again.
    pub(super) async fn examine(
        &self,
        plugin: &PluginIdentity,
        bytes: Arc<Vec<u8>>,
        room: &Arc<Room>,
    ) -> Result<Examined, LoadError> {
        if let Some(quarantine) = &self.shared.quarantine
            && let Some(found) = quarantine.find(&plugin.digest, &room.judge)
        {
            return Err(LoadError::Quarantined { digest: found.digest, reason: found.reason });
        }
        let limits = CompileLimits::new(&self.shared.limits, bytes.len());
        // Few compile at once, since each uses all processors, and all of them together have bounded memory.
        let permit = Arc::clone(&self.shared.compiling).acquire_owned().await;
        let memory = Arc::clone(&self.shared.compile_memory).acquire_many_owned(limits.memory_mib()).await;
        let examined = match &self.shared.compiler {
            Some(command) => examine_in_child(command, room, &bytes, &limits).await,
            None => examine_in_process(room, bytes, limits).await,
        };
        drop((permit, memory));
        examined.map_err(|error| match error {
            Examining::Load(error) => error,
            Examining::Compiler(error) => self.refused(plugin, room, error),
        })
    }

    /// Why a component was not compiled. If it ended the process that examined it, it goes into quarantine.
    fn refused(&self, plugin: &PluginIdentity, room: &Room, error: CompilerError) -> LoadError {
        let mut advice = "";
        if let Some(quarantine) = &self.shared.quarantine
            && error.is_the_components_fault()
        {
            match quarantine.put(&plugin.digest, &plugin.name, &error.to_string(), &room.judge) {
                Ok(()) => advice = "; it is in quarantine now (`agent-host plugin quarantine`)",
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

/// Why a component was not examined to its end.
enum Examining {
    Compiler(CompilerError),
    Load(LoadError),
}

impl From<CompilerError> for Examining {
    fn from(error: CompilerError) -> Self {
        Self::Compiler(error)
    }
}

impl From<LoadError> for Examining {
    fn from(error: LoadError) -> Self {
        Self::Load(error)
    }
}

async fn examine_in_child(
    command: &CompilerCommand,
    room: &Arc<Room>,
    bytes: &[u8],
    limits: &CompileLimits,
) -> Result<Examined, Examining> {
    let compiled = compiler::compile(command, room, bytes, limits).await?;
    let kinds = compiled.facts.check().map_err(LoadError::from)?;
    let room = Arc::clone(room);
    let loaded = blocking(move || {
        let component = deserialize(&room, compiled.code());
        component.map(|component| Examined { component, facts: compiled.facts, kinds })
    });
    Ok(loaded.await?.map_err(|error| LoadError::Compile { reason: reason(&error) })?)
}

/// For hosts without a child: the same work in this process, which then bears its cost.
async fn examine_in_process(
    room: &Arc<Room>,
    bytes: Arc<Vec<u8>>,
    limits: CompileLimits,
) -> Result<Examined, Examining> {
    let (room, time) = (Arc::clone(room), limits.time());
    let work = blocking(move || {
        let facts = compiler::examine_here(&bytes, &limits)?;
        let kinds = facts.check().map_err(LoadError::from)?;
        let failed = |error: wasmtime::Error| CompilerError::NotCompiled(reason(&error));
        let code = room.engine.precompile_component(&bytes).map_err(failed)?;
        limits.check_code(code.len() as u64).map_err(CompilerError::from)?;
        Ok::<_, Examining>(Examined { component: deserialize(&room, &code).map_err(failed)?, facts, kinds })
    });
    tokio::time::timeout(time, work).await.map_err(|_| CompilerError::from(CompileTime::Clock(time)))??
}

/// The code of a component with its facts, and the file that keeps it in the cache.
pub(super) fn cached(room: &Room, digest: &Digest) -> Option<(Component, Facts, File)> {
    let cache = room.cache.as_ref()?;
    loop {
        let entry = cache.get(digest)?;
        let facts = serde_json::from_slice(&entry.record).ok()?;
        let opened = match &entry.code {
            CompiledCode::InFile => deserialize_file(room, &entry.file),
            CompiledCode::Bytes(code) => deserialize(room, code),
        };
        match (opened, entry.code) {
            (Ok(component), _) => return Some((component, facts, entry.file)),
            // Without /proc, or in a file system from which nothing may be run.
            (Err(error), CompiledCode::InFile) => {
                tracing::debug!(%digest, %error, "compiled code cannot be mapped; it is copied");
                cache.copy();
            }
            (Err(error), CompiledCode::Bytes(_)) => {
                tracing::warn!(%digest, %error, "compiled code in the cache is not usable; it is built again");
                return None;
            }
        }
    }
}

#[cfg(target_os = "linux")]
#[allow(unsafe_code, reason = "compiled code can only be loaded unsafely; its origin is the cache's keyed hash")]
fn deserialize_file(room: &Room, file: &File) -> wasmtime::Result<Component> {
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(file));
    // SAFETY: this is the open file over which the keyed hash was verified, with a key that only this user can read; its code
    // is what wasmtime's compiler made in this program for this engine. It stays that: it is for reading only, in a folder
    // that only this user can write to, and this host replaces such files and never writes to them.
    unsafe { Component::deserialize_file(&room.engine, path) }
}

/// Elsewhere the cache has no file that may be mapped.
#[cfg(not(target_os = "linux"))]
fn deserialize_file(_: &Room, _: &File) -> wasmtime::Result<Component> {
    Err(wasmtime::Error::msg("files are not mapped on this system"))
}

#[allow(
    unsafe_code,
    reason = "compiled code can only be loaded unsafely; its origin is the cache's keyed hash, or the own child's pipe"
)]
fn deserialize(room: &Room, code: &[u8]) -> wasmtime::Result<Component> {
    // SAFETY: these bytes are what wasmtime's compiler made in this program for this engine. An entry of the cache only
    // exists after its keyed hash was verified over exactly them, with a key that only this user can read; what a child
    // made came whole through a pipe that only the two of them have.
    unsafe { Component::deserialize(&room.engine, code) }
}

/// Keeps compiled code and facts for the next start; the file keeps them in the cache. Failing is no reason not to run.
pub(super) fn keep(room: &Room, digest: &Digest, facts: &Facts, component: &Component) -> Option<File> {
    let cache = room.cache.as_ref()?;
    let record = serde_json::to_vec(facts).map_err(std::io::Error::other);
    let code = component.serialize().map_err(std::io::Error::other);
    let kept = record.and_then(|record| cache.put(digest, &record, &code?));
    kept.unwrap_or_else(|error| {
        tracing::warn!(%digest, %error, "compiled code cannot be kept; the next start compiles again");
        None
    })
}
