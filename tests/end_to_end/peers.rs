//! Third-party programs that some tests use ("peers"). If a peer is not installed, a test that needs the peer prints a
//! note and does nothing. `tests/install-peers` installs all peers. With `AGENT_HOST_REQUIRE_PEERS=1`, a test whose
//! peer is missing fails.

use crate::support::repository;
use serde_json::Value;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns the path of a Python program. If the program is missing, prints a note and returns `None`.
pub(crate) fn python_peer(program: &str) -> Option<PathBuf> {
    peer("python/bin", program)
}

/// Returns the path of a Python interpreter with this package. If the package is missing, prints a note and returns
/// `None`.
pub(crate) fn python_with(package: &str) -> Option<PathBuf> {
    let python = python_peer("python")?;
    let library =
        std::fs::read_dir(repository().join("tests/.peers/python/lib")).into_iter().flatten().flatten().next()?;
    peer(&format!("python/lib/{}/site-packages/{package}", library.file_name().to_string_lossy()), "__init__.py")?;
    Some(python)
}

/// Returns the path of a Node.js program. If the program is missing, prints a note and returns `None`.
pub(crate) fn node_peer(program: &str) -> Option<PathBuf> {
    peer("node/node_modules/.bin", program)
}

/// Creates the links in `node_modules` that `npm install` creates for packages in folders of the project. Does nothing
/// for projects without such packages.
pub(crate) fn link_local_packages(project: &Path) {
    let text = std::fs::read(project.join("package.json")).unwrap_or_default();
    let package: Value = serde_json::from_slice(&text).unwrap_or_default();
    for (name, version) in package["dependencies"].as_object().into_iter().flatten() {
        let folder = version.as_str().unwrap().strip_prefix("file:").expect("a package in a folder of the project");
        std::fs::create_dir_all(project.join("node_modules")).unwrap();
        std::os::unix::fs::symlink(project.join(folder), project.join("node_modules").join(name)).unwrap();
    }
}

/// Returns the path of Node.js in the version that the MCP servers need. If this version is missing, prints a note and
/// returns `None`.
pub(crate) fn node() -> Option<PathBuf> {
    peer("node/node_modules/node/bin", "node")
}

/// Returns the path of the entry script of an MCP server's package. If the script is missing, prints a note and
/// returns `None`.
pub(crate) fn mcp_package(package: &str) -> Option<PathBuf> {
    peer(&format!("node/node_modules/@modelcontextprotocol/{package}/dist"), "index.js")
}

/// Returns the path of a file of an npm package. If the file is missing, prints a note and returns `None`.
pub(crate) fn npm_package(package: &str, file: &str) -> Option<PathBuf> {
    peer(&format!("node/node_modules/{package}"), file)
}

/// Returns the path of a third-party component from a public package. If the component is missing, prints a note and
/// returns `None`.
pub(crate) fn public_component(name: &str) -> Option<PathBuf> {
    peer("components", &format!("{name}.wasm"))
}

/// Returns the path of a program from a Debian package. If the program is missing, prints a note and returns `None`.
pub(crate) fn debian(program: &str) -> Option<PathBuf> {
    peer("debian/usr/bin", program)
}

/// Returns the path of a library that shows a process another time. If it is missing, prints a note and returns `None`.
#[cfg(target_os = "linux")]
pub(crate) fn faketime() -> Option<PathBuf> {
    peer(&format!("debian/usr/lib/{}-linux-gnu/faketime", std::env::consts::ARCH), "libfaketimeMT.so.1")
}

/// Returns the path of a program of this system, such as `npm`. If the program is missing, prints a note and
/// returns `None`.
#[cfg(target_os = "linux")]
pub(crate) fn system_program(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file());
    if found.is_none() {
        let required = std::env::var_os("AGENT_HOST_REQUIRE_PEERS").is_some();
        assert!(!required, "{program} is required here and not installed on this system");
        skipped(&format!("{program} is not installed on this system"));
    }
    found
}

/// Creates a command that runs a program from a Debian package. The program uses the libraries that were unpacked
/// together with it.
pub(crate) fn debian_program(program: &Path) -> Command {
    let libraries = program.ancestors().nth(2).map(|usr| usr.join("lib")).unwrap_or_default();
    let folders = std::fs::read_dir(&libraries).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut command = Command::new(program);
    command.env("LD_LIBRARY_PATH", std::env::join_paths(folders).unwrap_or_default());
    command
}

/// Returns the path of a file in this folder of `tests/.peers`. If the file is missing, prints a note and
/// returns `None`.
pub(crate) fn peer(folder: &str, file: &str) -> Option<PathBuf> {
    let path = repository().join("tests/.peers").join(folder).join(file);
    if path.exists() {
        return Some(path);
    }
    let required = std::env::var_os("AGENT_HOST_REQUIRE_PEERS").is_some();
    assert!(!required, "{file} is required here and not installed: run tests/install-peers");
    skipped(&format!("{file} is not installed (tests/install-peers installs it)"));
    None
}

/// Prints the reason why a test, or a part of it, is skipped.
pub(crate) fn skipped(reason: &str) {
    // The test runner captures the output of `eprintln!`, so this code writes to stderr directly.
    let _ = writeln!(std::io::stderr(), "SKIPPED: {reason}");
}
