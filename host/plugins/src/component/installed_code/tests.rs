//! Tests of the rules by which the host trusts installed code.

use super::*;
use crate::component::code_file::CompiledCode;
use crate::component::plugin_store::digest_of;
use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::{PermissionsExt, symlink};

const MAX_BYTES: u64 = 1 << 20;

/// A folder with installed code of one component.
struct Installed {
    folder: tempfile::TempDir,
    engine: blake3::Hash,
    component: Digest,
    file: PathBuf,
}

impl Installed {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let (engine, component) = (blake3::hash(b"engine"), digest_of(b"component"));
        let root = folder.path().join("lib/compiled");
        let file = write(&root, (&engine, &component), (b"record", b"code")).expect("written");
        Self { folder, engine, component, file }
    }

    fn root(&self) -> PathBuf {
        self.folder.path().join("lib/compiled")
    }

    fn is_used(&self) -> bool {
        InstalledCode::open(&self.root(), self.engine, MAX_BYTES)
            .is_some_and(|code| code.get(&self.component).is_some())
    }
}

fn change_mode(path: &Path, mode: u32) {
    set_permissions(path, Permissions::from_mode(mode)).expect("the mode is changed");
}

// P9: installed code is used if nobody else could have written it, and every user can read it.
#[test]
fn p9_installed_code_is_used_and_readable_by_all_users() {
    let installed = Installed::new();
    let code = InstalledCode::open(&installed.root(), installed.engine, MAX_BYTES).expect("the folder is trusted");
    let entry = code.get(&installed.component).expect("the code is valid");
    assert_eq!(entry.record, b"record");
    assert!(matches!(entry.code, CompiledCode::InFile) == cfg!(target_os = "linux"));
    let mode = |path: &Path| path.metadata().expect("exists").permissions().mode() & 0o7777;
    assert_eq!((mode(&installed.root()), mode(&installed.file)), (0o755, 0o444));
    assert!(code.get(&digest_of(b"another component")).is_none());
    assert!(InstalledCode::open(&installed.root(), blake3::hash(b"another engine"), MAX_BYTES).is_none());
    code.disable_mapping();
    let copied = code.get(&installed.component).expect("the code is valid");
    assert!(matches!(copied.code, CompiledCode::Bytes(bytes) if bytes == b"code"));
}

// P9: code that another user could have written is never loaded, wherever on its path the user may write.
#[test]
fn p9_installed_code_that_others_can_write_is_not_used() {
    let installed = Installed::new();
    let engine_folder = installed.file.parent().expect("a folder").to_owned();
    let lib = installed.folder.path().join("lib");
    for path in [&installed.file, &engine_folder, &installed.root(), &lib] {
        let mode = path.metadata().expect("exists").permissions().mode();
        for writable in [0o020, 0o002] {
            change_mode(path, mode | writable);
            assert!(!installed.is_used(), "{} with the mode {:o}", path.display(), mode | writable);
        }
        change_mode(path, mode);
        assert!(installed.is_used(), "{}", path.display());
    }
    change_mode(&lib, 0o1777);
    assert!(installed.is_used(), "in a folder with the sticky bit, other users cannot replace the subfolder");
    change_mode(&engine_folder, 0o1777);
    assert!(!installed.is_used(), "the sticky bit does not prevent other users from creating files");
}

// P9: code that belongs to a user who is neither root nor the user of the process is never loaded.
#[test]
fn p9_installed_code_of_another_user_is_not_used() {
    if !rustix::process::geteuid().is_root() {
        // Only root can give files to another user.
        return;
    }
    let installed = Installed::new();
    let engine_folder = installed.file.parent().expect("a folder").to_owned();
    for path in [&installed.file, &engine_folder, &installed.root()] {
        std::os::unix::fs::chown(path, Some(65_533), None).expect("the owner is changed");
        assert!(!installed.is_used(), "{}", path.display());
        std::os::unix::fs::chown(path, Some(0), None).expect("the owner is changed");
        assert!(installed.is_used(), "{}", path.display());
    }
}

// P9: links lead to folders whose permissions are checked, and a link in place of the file is not followed.
#[test]
fn p9_links_to_installed_code_are_resolved_before_the_check() {
    let installed = Installed::new();
    let link = installed.folder.path().join("link");
    symlink(installed.root(), &link).expect("a link");
    assert!(InstalledCode::open(&link, installed.engine, MAX_BYTES).is_some());
    change_mode(&installed.folder.path().join("lib"), 0o777);
    assert!(InstalledCode::open(&link, installed.engine, MAX_BYTES).is_none());
    change_mode(&installed.folder.path().join("lib"), 0o755);
    let moved = installed.folder.path().join("moved.cwasm");
    std::fs::rename(&installed.file, &moved).expect("moved");
    symlink(&moved, &installed.file).expect("a link");
    assert!(!installed.is_used());
}

// P9: damaged code is not loaded.
#[test]
fn p9_damaged_installed_code_is_not_used() {
    let installed = Installed::new();
    let bytes = std::fs::read(&installed.file).expect("the file");
    for index in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[index] ^= 1;
        std::fs::remove_file(&installed.file).expect("removed");
        std::fs::write(&installed.file, &damaged).expect("written");
        assert!(!installed.is_used(), "byte {index}");
    }
}

#[test]
fn deletes_other_code_and_nothing_else() {
    let installed = Installed::new();
    let root = installed.root();
    let key = (&blake3::hash(b"older engine"), &installed.component);
    let older = write(&root, key, (b"record", b"code")).expect("written");
    std::fs::write(root.join("README"), "").expect("written");
    delete_other_code(&root, &BTreeSet::from([installed.file.clone()])).expect("deleted");
    assert!(installed.is_used());
    assert!(!older.parent().expect("a folder").exists());
    assert!(root.join("README").exists());
}
