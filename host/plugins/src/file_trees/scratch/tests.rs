//! Tests of scratch folders: who can use them, and how they are removed.

use super::*;
use crate::file_trees::TreeHost;
use crate::grants::manifest::Access;
use std::os::unix::fs::symlink;

const QUOTA: ScratchQuota = ScratchQuota::Own { bytes: 1, entries: 1 };

fn host(scratch: &Path) -> TreeHost {
    TreeHost { scratch: ScratchFolders::new(Some(scratch.to_owned())), ..TreeHost::default() }
}

fn create(host: &TreeHost) -> ScratchTrees {
    host.scratch.create(&host.protected, 1, QUOTA).expect("created")
}

fn granted(folder: &Path) -> TreeGrant {
    TreeGrant { host: folder.to_owned(), guest: "tree".to_owned(), access: Access::ReadWrite }
}

/// Rows 39 and 40: the host does not read a scratch tree through a grant of a folder that contains it, and a grant of
/// its path is not the scratch tree.
#[test]
fn row_40_no_grant_covers_a_scratch_tree() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for host in [host(&folder.path().join("scratch")), TreeHost::default()] {
        let scratch = create(&host);
        scratch.directory(0).expect("open").write("copy", "text").expect("written");
        let own = scratch.replacing([&granted(folder.path())]).remove(0);
        assert!(scratch.tree(&own).is_some() && scratch.tree(&granted(folder.path())).is_none());
        for grant in [&granted(scratch.folder.base.path.parent().expect("a parent")), &own] {
            let tree = host.tree(grant).expect("the folder opens");
            let below = own.host.strip_prefix(&grant.host).expect("below").join("copy");
            let read = tree.open(below.to_str().expect("text"));
            assert_eq!(read.expect_err("protected").kind(), io::ErrorKind::PermissionDenied, "{}", below.display());
        }
    }
}

/// Row 44: a folder that is nested deeper than the number of files that a process may open, and deeper than any path,
/// is removed on a small stack.
#[test]
fn row_44_deep_folders_are_removed_without_recursion() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let host = host(&folder.path().join("scratch"));
    let scratch = create(&host);
    let mut current = scratch.roots[0].directory.try_clone().expect("cloned");
    for number in 0..5_000 {
        mkdirat(&current, "folder-of-a-plugin", Mode::RWXU).expect("created");
        if number % 100 == 0 {
            rustix::fs::symlinkat("..", &current, "link").expect("linked");
        }
        current = File::from(openat(&current, "folder-of-a-plugin", READ, Mode::empty()).expect("opened"));
    }
    drop(current);
    let removal = std::thread::Builder::new().stack_size(64 << 10).spawn(move || drop(scratch)).expect("started");
    removal.join().expect("the removal does not overflow its stack");
    assert_eq!(std::fs::read_dir(folder.path().join("scratch")).expect("listed").count(), 0);
}

/// Row 44: folders that a process left behind are removed by the next process. Folders in use are not removed, and
/// links are not followed.
#[test]
fn row_44_abandoned_folders_are_removed() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("scratch");
    std::fs::create_dir(folder.path().join("outside")).expect("created");
    std::fs::write(folder.path().join("outside/canary"), "intact").expect("written");
    std::fs::create_dir_all(path.join("left/0/deep")).expect("created");
    symlink("../../../outside", path.join("left/0/link")).expect("linked");
    symlink("../outside", path.join("link")).expect("linked");
    let used = create(&host(&path));
    assert!(!path.join("left").exists(), "the folder of a process that ended is removed");
    let other = create(&host(&path));
    assert!(used.path(0).is_dir() && other.path(0).is_dir(), "a folder in use is not removed");
    drop((used, other));
    let left: Vec<_> =
        std::fs::read_dir(&path).expect("listed").map(|entry| entry.expect("read").file_name()).collect();
    assert_eq!(left, ["link"]);
    assert_eq!(std::fs::read_to_string(folder.path().join("outside/canary")).expect("read"), "intact");
}
