//! Where a guest looks at a path without opening it. Paths that lead out of a granted tree, mostly by a symbolic link: WASI refuses them with the word that it has for writing
//! where only reading is granted, and no grant of the tree would help.

use crate::files::{FileStat, Last, Met};
use crate::grants::left_tree;
use crate::opening::{Answer, FILESYSTEM, SHOWN, last};
use crate::state::CallState;
use crate::text::clean;
use std::time::Duration;
use wasmtime::component::{Linker, Resource};
use wasmtime::{Result, StoreContextMut};
use wasmtime_wasi::filesystem::{Descriptor, WasiFilesystemView};
use wasmtime_wasi::p2::bindings::clocks::wall_clock::Datetime;
use wasmtime_wasi::p2::bindings::filesystem::types::{
    DescriptorStat, ErrorCode, HostDescriptor, MetadataHashValue, PathFlags,
};

/// What a guest gives to `stat-at`.
type Looking = (Resource<Descriptor>, PathFlags, String);

type Store<'a> = StoreContextMut<'a, CallState>;

/// Puts the notes before WASI's own functions.
pub(crate) fn add_to_linker(linker: &mut Linker<CallState>) -> Result<()> {
    let mut filesystem = linker.instance(FILESYSTEM)?;
    filesystem.func_wrap_async("[method]descriptor.stat-at", |mut store: Store<'_>, looking: Looking| {
        Box::new(async move { Ok((look(store.data_mut(), looking).await?,)) })
    })?;
    filesystem.func_wrap_async("[method]descriptor.metadata-hash-at", |mut store: Store<'_>, looking: Looking| {
        Box::new(async move { Ok((hash(store.data_mut(), looking).await?,)) })
    })?;
    filesystem.func_wrap_async(
        "[method]descriptor.stat",
        |mut store: Store<'_>, (handle,): (Resource<Descriptor>,)| {
            Box::new(async move { Ok((look_open(store.data_mut(), handle).await?,)) })
        },
    )?;
    filesystem.func_wrap_async(
        "[method]descriptor.readlink-at",
        |mut store: Store<'_>, (directory, path): (Resource<Descriptor>, String)| {
            Box::new(async move { Ok((read_link(store.data_mut(), directory, path).await?,)) })
        },
    )
}

async fn look(state: &mut CallState, (directory, flags, path): Looking) -> Result<Answer<DescriptorStat>> {
    if let Err(code) = state.readable(&directory) {
        return Ok(Err(code));
    }
    let met = state.record.meet(directory.rep(), &path, last(flags)).await?;
    if met == Met::Unrecorded {
        return Ok(Err(ErrorCode::NotPermitted));
    }
    let refused = match state.filesystem().stat_at(directory, flags, path.clone()).await {
        Ok(found) => return Ok(Ok(state.as_then(&met, found))),
        Err(error) => error.downcast()?,
    };
    if matches!(refused, ErrorCode::NotPermitted) {
        state.deny_leaving(&path);
    }
    Ok(Err(refused))
}

async fn hash(state: &mut CallState, (directory, flags, path): Looking) -> Result<Answer<MetadataHashValue>> {
    if let Err(code) = state.readable(&directory) {
        return Ok(Err(code));
    }
    let is_listed = last(flags) == Last::Keep && state.record.is_listed(directory.rep(), &path);
    if !is_listed && state.record.meet(directory.rep(), &path, last(flags)).await? == Met::Unrecorded {
        return Ok(Err(ErrorCode::NotPermitted));
    }
    match state.filesystem().metadata_hash_at(directory, flags, path).await {
        Ok(found) => Ok(Ok(found)),
        Err(error) => Ok(Err(error.downcast()?)),
    }
}

async fn look_open(state: &mut CallState, handle: Resource<Descriptor>) -> Result<Answer<DescriptorStat>> {
    if let Err(code) = state.readable(&handle) {
        return Ok(Err(code));
    }
    let met = state.record.meet(handle.rep(), "", Last::Keep).await?;
    if met == Met::Unrecorded {
        return Ok(Err(ErrorCode::NotPermitted));
    }
    match state.filesystem().stat(handle).await {
        Ok(found) => Ok(Ok(state.as_then(&met, found))),
        Err(error) => Ok(Err(error.downcast()?)),
    }
}

async fn read_link(state: &mut CallState, directory: Resource<Descriptor>, path: String) -> Result<Answer<String>> {
    if let Err(code) = state.readable(&directory) {
        return Ok(Err(code));
    }
    if state.record.meet(directory.rep(), &path, Last::Keep).await? == Met::Unrecorded {
        return Ok(Err(ErrorCode::NotPermitted));
    }
    match state.filesystem().readlink_at(directory, path).await {
        Ok(to) => Ok(Ok(to)),
        Err(error) => Ok(Err(error.downcast()?)),
    }
}

impl CallState {
    /// In a call that runs again, with size and times of then.
    fn as_then(&self, met: &Met, found: DescriptorStat) -> DescriptorStat {
        let then = if let Met::At(place, _) = met { self.record.stat_then(place) } else { None };
        let Some(FileStat { size, links, accessed, modified, created }) = then else { return found };
        let time = |time: Option<u64>| {
            let time = Duration::from_nanos(time?);
            Some(Datetime { seconds: time.as_secs(), nanoseconds: time.subsec_nanos() })
        };
        DescriptorStat {
            size,
            link_count: links,
            data_access_timestamp: time(accessed),
            data_modification_timestamp: time(modified),
            status_change_timestamp: time(created),
            type_: found.type_,
        }
    }

    /// Nothing of the tree itself is missing.
    pub(crate) fn deny_leaving(&self, path: &str) {
        let (thing, advice) = left_tree(&self.record.plugin.name, &clean(path, SHOWN));
        self.record.deny(thing, advice);
    }
}
