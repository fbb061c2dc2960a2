//! Compiled code: made by a child process or here, kept in the cache, and found there again.

use super::{LoadError, blocking, reason};
use crate::cache::CompiledCode;
use crate::compiler::{self, CompileTime, CompilerError};
use crate::plugin::Facts;
use crate::room::Room;
use crate::sandbox::Sandbox;
use agent_core::message::Digest;
use std::fs::File;
use std::sync::Arc;
use wasmtime::component::Component;

impl Sandbox {
    pub(super) async fn compile(&self, bytes: Arc<Vec<u8>>, room: &Arc<Room>) -> Result<Component, LoadError> {
        let permit = Arc::clone(&self.shared.compiling).acquire_owned().await;
        let time = compiler::time_for(self.shared.compile_time, bytes.len());
        if let Some(command) = &self.shared.compiler {
            let compiled = compiler::compile(command, room, &bytes, time).await;
            let code = compiled.map_err(|error| match error {
                CompilerError::Time(time) => time.into(),
                error => LoadError::Compile { reason: error.to_string() },
            })?;
            let room = Arc::clone(room);
            let loaded = blocking(move || deserialize(&room, &code)).await?;
            drop(permit);
            return loaded.map_err(|error| LoadError::Compile { reason: reason(&error) });
        }
        let engine = room.engine.clone();
        let compiled = blocking(move || {
            let compiled = Component::from_binary(&engine, &bytes);
            drop(permit);
            compiled
        });
        let compiled = tokio::time::timeout(time, compiled).await.map_err(|_| CompileTime::Clock(time))??;
        compiled.map_err(|error| LoadError::Compile { reason: reason(&error) })
    }
}

pub(super) fn cached(room: &Room, digest: &Digest) -> Option<(Component, Facts)> {
    let cache = room.cache.as_ref()?;
    loop {
        let entry = cache.get(digest)?;
        let facts = serde_json::from_slice(&entry.record).ok()?;
        let opened = match &entry.code {
            CompiledCode::File(file) => deserialize_file(room, file),
            CompiledCode::Bytes(code) => deserialize(room, code),
        };
        match (opened, entry.code) {
            (Ok(component), _) => return Some((component, facts)),
            // Without /proc, or in a file system from which nothing may be run.
            (Err(error), CompiledCode::File(_)) => {
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

/// Keeps compiled code and facts for the next start. Failing is no reason not to run.
pub(super) fn keep(room: &Room, digest: &Digest, facts: &Facts, component: &Component) {
    let Some(cache) = &room.cache else { return };
    let record = serde_json::to_vec(facts).map_err(std::io::Error::other);
    let code = component.serialize().map_err(std::io::Error::other);
    let kept = record.and_then(|record| cache.put(digest, &record, &code?));
    if let Err(error) = kept {
        tracing::warn!(%digest, %error, "compiled code cannot be kept; the next start compiles again");
    }
}
