//! The granted trees of one call. Finds the tree to which a guest's handle belongs, and checks whether the tree is
//! still granted.

use super::operations::OpenDirectory;
use super::quota::{TreeLimits, TreeUsage};
use super::{OpenTree, ProtectedPaths, Quotas, ScratchTrees, TreeRefusal, TurnKey};
use crate::grants::TreeGrant;
use crate::grants::live_grants::LiveGrants;
use crate::grants::manifest::Access;
use crate::limits::CallLimits;
use std::collections::HashMap;
use std::sync::Arc;
use wasmtime_wasi::FsPerms;
use wasmtime_wasi::filesystem::{Descriptor, Dir, OpenMode};

/// A granted tree of a call.
pub(crate) struct CallTree {
    grant: TreeGrant,
    root: Arc<OpenTree>,
    live_grants: Arc<LiveGrants>,
    pub(super) usage: Arc<TreeUsage>,
    pub(super) limits: TreeLimits,
    pub(super) protected: Arc<ProtectedPaths>,
}

/// The context that all trees of a call share.
pub(crate) struct CallTreeContext<'c> {
    pub(crate) live_grants: &'c Arc<LiveGrants>,
    pub(crate) protected: &'c Arc<ProtectedPaths>,
    pub(crate) quotas: &'c Quotas,
    pub(crate) turn: &'c TurnKey,
    pub(crate) limits: &'c CallLimits,
}

impl CallTree {
    pub(crate) fn new(grant: TreeGrant, root: Arc<OpenTree>, context: &CallTreeContext<'_>) -> Self {
        let CallTreeContext { live_grants, protected, quotas, turn, limits } = context;
        let usage = quotas.usage_of(turn, root.id);
        let limits = TreeLimits { bytes: limits.tree_bytes, entries: limits.tree_entries };
        Self { grant, root, live_grants: Arc::clone(live_grants), usage, limits, protected: Arc::clone(protected) }
    }

    /// A scratch tree that the call uses instead of a granted tree. Protected paths do not apply to it, because it
    /// contains none and is itself inside a protected folder.
    pub(crate) fn scratch(
        grant: TreeGrant,
        (root, scratch): (Arc<OpenTree>, &ScratchTrees),
        context: &CallTreeContext<'_>,
    ) -> Self {
        let tree = Self { protected: Arc::default(), ..Self::new(grant, root, context) };
        match scratch.quota() {
            Some((usage, own)) => {
                let limits = TreeLimits {
                    bytes: own.bytes.min(tree.limits.bytes),
                    entries: own.entries.min(tree.limits.entries),
                };
                Self { usage, limits, ..tree }
            }
            None => tree,
        }
    }

    /// Path under which the guest sees the tree.
    pub(crate) fn guest(&self) -> &str {
        &self.grant.guest
    }

    /// Opens a new descriptor of the tree's directory for the guest.
    pub(crate) fn descriptor(&self) -> std::io::Result<Descriptor> {
        let (permissions, mode) = match self.grant.access {
            Access::Read => (FsPerms::ReadOnly, OpenMode::READ),
            Access::ReadWrite => (FsPerms::ReadWrite, OpenMode::READ | OpenMode::WRITE),
        };
        Ok(Descriptor::Dir(Dir::new(self.root.directory.try_clone()?, permissions, mode, false)))
    }

    /// Checks that the tree is still granted for this access, because the grant may have been revoked during the call.
    pub(crate) fn check(&self, access: Access) -> Result<(), TreeRefusal> {
        let now = self.live_grants.now();
        let is_this_tree = |tree: &&TreeGrant| tree.guest == self.grant.guest && tree.host == self.grant.host;
        let is_granted = now.trees.iter().filter(is_this_tree).any(|tree| tree.access >= access);
        if is_granted { Ok(()) } else { Err(TreeRefusal::NotPermitted) }
    }

    pub(super) fn is_same(&self, other: &CallTree) -> bool {
        self.root.id == other.root.id
    }
}

/// For each handle of a guest, the tree to which the open file or directory belongs.
#[derive(Default)]
pub(crate) struct TreeHandles(HashMap<u32, Arc<CallTree>>);

impl TreeHandles {
    pub(crate) fn insert(&mut self, handle: u32, tree: Arc<CallTree>) {
        self.0.insert(handle, tree);
    }

    pub(crate) fn tree(&self, handle: u32) -> Option<Arc<CallTree>> {
        self.0.get(&handle).cloned()
    }

    /// The open directory to which a handle of the guest refers, and the tree that contains the directory. Fails if the
    /// handle does not refer to a directory in a granted tree.
    pub(crate) fn base(&self, handle: u32, descriptor: &Descriptor) -> Result<OpenDirectory, TreeRefusal> {
        let tree = self.tree(handle).ok_or(TreeRefusal::NotPermitted)?;
        match descriptor {
            Descriptor::Dir(directory) => {
                Ok(OpenDirectory { directory: Arc::clone(&directory.dir), permissions: directory.perms, tree })
            }
            Descriptor::File(_) => Err(std::io::Error::from(rustix::io::Errno::NOTDIR).into()),
        }
    }
}
