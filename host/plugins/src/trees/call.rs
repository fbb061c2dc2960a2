//! The trees of one call: what its handles belong to, and whether they may still be used.

use super::operations::Base;
use super::quota::{TreeLimits, TreeUsage};
use super::{OpenTree, ProtectedPaths, Quotas, Refusal, TurnKey};
use crate::grants::TreeGrant;
use crate::in_force::GrantsInForce;
use crate::limits::CallLimits;
use crate::manifest::Access;
use std::collections::HashMap;
use std::sync::Arc;
use wasmtime_wasi::FsPerms;
use wasmtime_wasi::filesystem::{Descriptor, Dir, OpenMode};

/// A tree that a call was given.
pub(crate) struct CallTree {
    grant: TreeGrant,
    root: Arc<OpenTree>,
    in_force: Arc<GrantsInForce>,
    pub(super) usage: Arc<TreeUsage>,
    pub(super) limits: TreeLimits,
    pub(super) protected: Arc<ProtectedPaths>,
}

/// What all trees of a call share.
pub(crate) struct Circumstances<'c> {
    pub(crate) in_force: &'c Arc<GrantsInForce>,
    pub(crate) protected: &'c Arc<ProtectedPaths>,
    pub(crate) quotas: &'c Quotas,
    pub(crate) turn: &'c TurnKey,
    pub(crate) limits: &'c CallLimits,
}

impl CallTree {
    pub(crate) fn new(grant: TreeGrant, root: Arc<OpenTree>, circumstances: &Circumstances<'_>) -> Self {
        let Circumstances { in_force, protected, quotas, turn, limits } = circumstances;
        let usage = quotas.of(turn, root.id);
        let limits = TreeLimits { bytes: limits.tree_bytes, entries: limits.tree_entries };
        Self { grant, root, in_force: Arc::clone(in_force), usage, limits, protected: Arc::clone(protected) }
    }

    /// What the guest calls it.
    pub(crate) fn guest(&self) -> &str {
        &self.grant.guest
    }

    /// The tree's directory as a handle of the guest's.
    pub(crate) fn descriptor(&self) -> std::io::Result<Descriptor> {
        let (permissions, mode) = match self.grant.access {
            Access::Read => (FsPerms::ReadOnly, OpenMode::READ),
            Access::ReadWrite => (FsPerms::ReadWrite, OpenMode::READ | OpenMode::WRITE),
        };
        Ok(Descriptor::Dir(Dir::new(self.root.directory.try_clone()?, permissions, mode, false)))
    }

    /// Whether the tree is granted for this now: it may have been revoked since the call began.
    pub(crate) fn check(&self, access: Access) -> Result<(), Refusal> {
        let now = self.in_force.now();
        let is_it = |tree: &&TreeGrant| tree.guest == self.grant.guest && tree.host == self.grant.host;
        let is_granted = now.trees.iter().filter(is_it).any(|tree| tree.access >= access);
        if is_granted { Ok(()) } else { Err(Refusal::NotPermitted) }
    }

    pub(super) fn is_same(&self, other: &CallTree) -> bool {
        self.root.id == other.root.id
    }
}

/// Which tree each handle of a guest belongs to.
#[derive(Default)]
pub(crate) struct Handles(HashMap<u32, Arc<CallTree>>);

impl Handles {
    pub(crate) fn insert(&mut self, handle: u32, tree: Arc<CallTree>) {
        self.0.insert(handle, tree);
    }

    pub(crate) fn tree(&self, handle: u32) -> Option<Arc<CallTree>> {
        self.0.get(&handle).cloned()
    }

    /// A directory that the guest has open, with its tree. What is not a directory of a tree is refused.
    pub(crate) fn base(&self, handle: u32, descriptor: &Descriptor) -> Result<Base, Refusal> {
        let tree = self.tree(handle).ok_or(Refusal::NotPermitted)?;
        match descriptor {
            Descriptor::Dir(directory) => {
                Ok(Base { directory: Arc::clone(&directory.dir), permissions: directory.perms, tree })
            }
            Descriptor::File(_) => Err(std::io::Error::from(rustix::io::Errno::NOTDIR).into()),
        }
    }
}
