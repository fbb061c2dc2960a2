//! The WASI functions that inspect a path without opening it. A path that leads out of its tree, usually through a
//! symbolic link, is recorded as a special kind of denial. The guest receives the same WASI error code for a path
//! outside of the tree and for missing write access, so it cannot distinguish these two errors.

use super::{Answer, FILESYSTEM, HasFiles, final_link};
use crate::capabilities::CallContext;
use crate::recording::file_records::FileStat;
use crate::recording::files::{FinalLink, PathTarget};
use std::time::Duration;
use wasmtime::component::{Linker, Resource};
use wasmtime::{Result, StoreContextMut};
use wasmtime_wasi::filesystem::Descriptor;
use wasmtime_wasi::p2::bindings::clocks::wall_clock::Datetime;
use wasmtime_wasi::p2::bindings::filesystem::types::{
    DescriptorStat, ErrorCode, HostDescriptor, MetadataHashValue, PathFlags,
};

/// Arguments of `stat-at` and `metadata-hash-at`.
type StatArguments = (Resource<Descriptor>, PathFlags, String);

pub(super) fn add_to_linker<T: HasFiles>(linker: &mut Linker<T>) -> Result<()> {
    let mut filesystem = linker.instance(FILESYSTEM)?;
    filesystem.func_wrap_async(
        "[method]descriptor.stat-at",
        |mut store: StoreContextMut<'_, T>, arguments: StatArguments| {
            Box::new(async move { Ok((stat_at(store.data_mut(), arguments).await?,)) })
        },
    )?;
    filesystem.func_wrap_async(
        "[method]descriptor.metadata-hash-at",
        |mut store: StoreContextMut<'_, T>, arguments: StatArguments| {
            Box::new(async move { Ok((metadata_hash_at(store.data_mut(), arguments).await?,)) })
        },
    )?;
    filesystem.func_wrap_async(
        "[method]descriptor.stat",
        |mut store: StoreContextMut<'_, T>, (handle,): (Resource<Descriptor>,)| {
            Box::new(async move { Ok((stat(store.data_mut(), handle).await?,)) })
        },
    )?;
    filesystem.func_wrap_async(
        "[method]descriptor.readlink-at",
        |mut store: StoreContextMut<'_, T>, (directory, path): (Resource<Descriptor>, String)| {
            Box::new(async move { Ok((read_link_at(store.data_mut(), directory, path).await?,)) })
        },
    )
}

async fn stat_at<T: HasFiles>(
    state: &mut T,
    (directory, flags, path): StatArguments,
) -> Result<Answer<DescriptorStat>> {
    if let Err(code) = state.capability().check_readable(&directory) {
        return Ok(Err(code));
    }
    let target = state.call().record.follow_path(directory.rep(), &path, final_link(flags)).await?;
    if target == PathTarget::Unrecorded {
        return Ok(Err(ErrorCode::NotPermitted));
    }
    let refused = match state.filesystem().stat_at(directory, flags, path.clone()).await {
        Ok(found) => return Ok(Ok(state.call().with_recorded_stat(&target, found))),
        Err(error) => error.downcast()?,
    };
    if matches!(refused, ErrorCode::NotPermitted) {
        state.call().deny_path_escape(&path);
    }
    Ok(Err(refused))
}

async fn metadata_hash_at<T: HasFiles>(
    state: &mut T,
    (directory, flags, path): StatArguments,
) -> Result<Answer<MetadataHashValue>> {
    if let Err(code) = state.capability().check_readable(&directory) {
        return Ok(Err(code));
    }
    let is_listed = final_link(flags) == FinalLink::Keep && state.call().record.is_listed(directory.rep(), &path);
    if !is_listed
        && state.call().record.follow_path(directory.rep(), &path, final_link(flags)).await? == PathTarget::Unrecorded
    {
        return Ok(Err(ErrorCode::NotPermitted));
    }
    match state.filesystem().metadata_hash_at(directory, flags, path).await {
        Ok(found) => Ok(Ok(found)),
        Err(error) => Ok(Err(error.downcast()?)),
    }
}

async fn stat<T: HasFiles>(state: &mut T, handle: Resource<Descriptor>) -> Result<Answer<DescriptorStat>> {
    if let Err(code) = state.capability().check_readable(&handle) {
        return Ok(Err(code));
    }
    let target = state.call().record.follow_path(handle.rep(), "", FinalLink::Keep).await?;
    if target == PathTarget::Unrecorded {
        return Ok(Err(ErrorCode::NotPermitted));
    }
    match state.filesystem().stat(handle).await {
        Ok(found) => Ok(Ok(state.call().with_recorded_stat(&target, found))),
        Err(error) => Ok(Err(error.downcast()?)),
    }
}

async fn read_link_at<T: HasFiles>(
    state: &mut T,
    directory: Resource<Descriptor>,
    path: String,
) -> Result<Answer<String>> {
    if let Err(code) = state.capability().check_readable(&directory) {
        return Ok(Err(code));
    }
    if state.call().record.follow_path(directory.rep(), &path, FinalLink::Keep).await? == PathTarget::Unrecorded {
        return Ok(Err(ErrorCode::NotPermitted));
    }
    match state.filesystem().readlink_at(directory, path).await {
        Ok(to) => Ok(Ok(to)),
        Err(error) => Ok(Err(error.downcast()?)),
    }
}

impl CallContext {
    /// In a replay, replaces the size, the link count and the times in a file's status with the recorded values.
    fn with_recorded_stat(&self, target: &PathTarget, found: DescriptorStat) -> DescriptorStat {
        let recorded =
            if let PathTarget::At(location, _) = target { self.record.recorded_stat(location) } else { None };
        let Some(FileStat { size, links, accessed, modified, created }) = recorded else { return found };
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
}
