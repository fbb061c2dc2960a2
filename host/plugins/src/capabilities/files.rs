//! `wasi:filesystem` (P6, P13): the directories that are granted to the call. This module implements the WASI functions
//! that open, change, read or write files and directories. For all other functions of `wasi:filesystem`, this module
//! checks and records the call, and then calls the implementation of wasmtime-wasi.

mod directory_listing;
mod file_io;
mod linker;
mod mutation_guard;
mod open_guard;
mod path_escape;
mod preopens;

pub(crate) use linker::add_to_linker;

use super::{CallContext, CapabilityView, HasCapability};
use crate::file_trees::{
    CallTree, CallTreeContext, OpenDirectory, SHOWN_PATH_BYTES, ScratchTrees, TreeHandles, TreeHost, TreeProblem,
    TreeRefusal, TurnKey,
};
use crate::grants::manifest::Access;
use crate::grants::{Grants, TreeGrant, file_change_advice, left_tree, protected, quoted};
use crate::identity::Authority;
use crate::recording::files::{FinalLink, ReplayTrees};
use crate::text::clean;
use rustix::io::Errno;
use std::fs::File;
use std::sync::Arc;
use wasmtime::Result;
use wasmtime::component::Resource;
use wasmtime_wasi::FsPerms;
use wasmtime_wasi::filesystem::{Descriptor, WasiFilesystemView};
use wasmtime_wasi::p2::bindings::filesystem::types::{ErrorCode, PathFlags};

/// Name of the interface `wasi:filesystem/types`, with the version that wasmtime-wasi adds to the linker.
const FILESYSTEM: &str = "wasi:filesystem/types@0.2.12";

/// The result that a host function returns to the guest.
type Answer<T> = std::result::Result<T, ErrorCode>;
type Handle = Resource<Descriptor>;
type OpenFile = std::result::Result<(Arc<CallTree>, Arc<File>), TreeRefusal>;

/// The granted directories of one call.
#[derive(Default)]
pub(crate) struct FilesState {
    /// The granted directory trees, in the order of the grants.
    trees: Vec<Arc<CallTree>>,
    /// For each handle of the guest, the granted tree to which the open file or directory belongs.
    handles: TreeHandles,
}

/// The files that a call uses, in addition to its grants.
pub(crate) struct FileInputs {
    /// Number of the turn, to which the quota of a granted tree belongs.
    pub(crate) turn: u32,
    /// In a replay, the state of the directory trees at the start of the original call.
    pub(crate) recorded: Option<Arc<ReplayTrees>>,
    /// The scratch trees that the call uses instead of granted trees.
    pub(crate) scratch: Option<Arc<ScratchTrees>>,
}

type FilesView<'a> = CapabilityView<'a, FilesState>;

/// The data of a wasmtime store that contains the granted directories and the filesystem of wasmtime-wasi.
pub(crate) trait HasFiles: HasCapability<FilesState> + WasiFilesystemView {}

impl<T: HasCapability<FilesState> + WasiFilesystemView> HasFiles for T {}

impl FilesState {
    /// Opens the granted directories, so that a missing directory is reported before the guest runs.
    pub(crate) fn open(
        host: &TreeHost,
        call: &CallContext,
        granted: &Arc<Grants>,
        FileInputs { turn, recorded, scratch }: FileInputs,
    ) -> std::result::Result<Self, TreeProblem> {
        if call.authority != Authority::Granted || granted.trees.is_empty() {
            return Ok(Self::default());
        }
        let turn = TurnKey { agent: call.agent.clone(), session: call.session.clone(), turn };
        let context = CallTreeContext {
            live_grants: &call.live_grants,
            protected: &host.protected,
            quotas: &host.quotas,
            turn: &turn,
            limits: &call.record.limits,
        };
        let scratch_tree = |tree: &TreeGrant| scratch.as_ref().and_then(|scratch| Some((scratch.tree(tree)?, scratch)));
        let on_host: Vec<_> = granted.trees.iter().filter(|tree| scratch_tree(tree).is_none()).cloned().collect();
        let mut opened = host.roots.open(&on_host).into_iter();
        let mut trees = Vec::new();
        for tree in &granted.trees {
            let opened = match scratch_tree(tree) {
                Some((root, scratch)) => Ok(CallTree::scratch(tree.clone(), (root, scratch), &context)),
                None => opened.next().map_or_else(
                    || Err(std::io::Error::from(std::io::ErrorKind::NotFound).into()),
                    |opened| opened.map(|root| CallTree::new(tree.clone(), root, &context)),
                ),
            };
            trees.push(Arc::new(opened.map_err(|error| TreeProblem::new(tree, &error))?));
        }
        call.record.watch_files(granted, recorded);
        Ok(Self { trees, handles: TreeHandles::default() })
    }
}

impl FilesView<'_> {
    /// Returns the open directory for a handle of the guest.
    fn base(&self, handle: &Handle) -> Result<std::result::Result<OpenDirectory, TreeRefusal>> {
        Ok(self.state.handles.base(handle.rep(), self.table.get(handle)?))
    }

    /// Returns the open file or directory for a handle of the guest. Fails if the guest may not change this file
    /// or directory.
    fn open_object(&self, handle: &Handle) -> Result<OpenFile> {
        let (object, permissions) = match self.table.get(handle)? {
            Descriptor::File(file) => (&file.file, file.perms),
            Descriptor::Dir(directory) => (&directory.dir, directory.perms),
        };
        Ok(match self.state.handles.tree(handle.rep()) {
            Some(tree) if permissions == FsPerms::ReadWrite => Ok((tree, Arc::clone(object))),
            _ => Err(TreeRefusal::NotPermitted),
        })
    }

    /// Returns the open file for a handle of the guest. Fails if the handle belongs to a directory, or if the guest may
    /// not change the file.
    fn open_file(&self, handle: &Handle) -> Result<OpenFile> {
        match self.table.get(handle)? {
            Descriptor::File(_) => self.open_object(handle),
            Descriptor::Dir(_) => Ok(Err(Errno::BADF.into())),
        }
    }

    /// Fails if the guest may no longer read the file or directory of this handle.
    fn check_readable(&self, handle: &Handle) -> Answer<()> {
        let tree = self.state.handles.tree(handle.rep()).ok_or(ErrorCode::NotPermitted)?;
        tree.check(Access::Read).map_err(|_| ErrorCode::NotPermitted)
    }

    /// Converts the result of changing a file or directory into the result that the guest receives. If the change is
    /// not permitted, records a denial that describes it as `action`.
    fn answer_change<T>(&self, done: std::result::Result<T, TreeRefusal>, action: String) -> Answer<T> {
        match done {
            Ok(done) => Ok(done),
            Err(refusal) => {
                let code = self.error_code(refusal, &action);
                if matches!(code, ErrorCode::NotPermitted | ErrorCode::ReadOnly) {
                    let advice = file_change_advice(&self.call.record.plugin.name);
                    self.call.record.deny(action, advice);
                }
                Err(code)
            }
        }
    }

    /// Converts a refusal to an error code for the guest. If a protected path or a quota is the reason for the refusal,
    /// records the refusal.
    fn error_code(&self, refusal: TreeRefusal, action: &str) -> ErrorCode {
        match refusal {
            TreeRefusal::System(error) => ErrorCode::from(&error),
            TreeRefusal::NotPermitted => ErrorCode::NotPermitted,
            TreeRefusal::Unsupported => ErrorCode::Unsupported,
            TreeRefusal::Protected(why) => {
                let (thing, advice) = protected(action, &why);
                self.call.record.deny(thing, advice);
                ErrorCode::Access
            }
            TreeRefusal::Quota(limit) => {
                self.call.record.record_tree_limit(limit);
                ErrorCode::InsufficientSpace
            }
        }
    }
}

impl CallContext {
    /// Records a denial for a path that starts in a granted tree and leads out of the tree. The grant of the tree does
    /// not cover paths that lead out of it.
    fn deny_path_escape(&self, path: &str) {
        let (thing, advice) = left_tree(&self.record.plugin.name, &clean(path, SHOWN_PATH_BYTES));
        self.record.deny(thing, advice);
    }
}

/// Describes an action on a path. The description is shown in denials.
fn action_on(action: &str, path: &str) -> String {
    format!("{action} {}", quoted(&clean(path, SHOWN_PATH_BYTES)))
}

/// Whether a symbolic link at the end of a path is followed.
fn final_link(flags: PathFlags) -> FinalLink {
    if flags.contains(PathFlags::SYMLINK_FOLLOW) { FinalLink::Follow } else { FinalLink::Keep }
}
