//! Records a call's use of its granted trees (S6): the state of each path when the call first accessed the path, and
//! the state of each changed path at the end of the call. A replay can access only the recorded state.

mod inspection;
mod overlay;
mod path_walk;
mod replay_tree;
mod watch;

pub(crate) use path_walk::{FileKind, FinalLink, PathTarget, TreePath};
pub use replay_tree::{ReplayTreeError, ReplayTrees};
pub(crate) use watch::{FileWatch, FilesOutcome, ListingSource, NamesBeingRecorded, Opened};
