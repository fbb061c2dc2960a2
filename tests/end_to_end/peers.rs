//! What no one here wrote and some tests use. Where it is not installed the test says so and is skipped;
//! `tests/install-peers` installs it, and with `AGENT_HOST_REQUIRE_PEERS=1` a missing one is a failure.

use crate::support::repository;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A Python program, or a visible skip.
pub(crate) fn python_peer(program: &str) -> Option<PathBuf> {
    peer("python/bin", program)
}

/// Python with that package, or a visible skip.
pub(crate) fn python_with(package: &str) -> Option<PathBuf> {
    let python = python_peer("python")?;
    let library =
        std::fs::read_dir(repository().join("tests/.peers/python/lib")).into_iter().flatten().flatten().next()?;
    peer(&format!("python/lib/{}/site-packages/{package}", library.file_name().to_string_lossy()), "__init__.py")?;
    Some(python)
}

/// A Node.js program, or a visible skip.
pub(crate) fn node_peer(program: &str) -> Option<PathBuf> {
    peer("node/node_modules/.bin", program)
}

/// Node.js as the servers need it, or a visible skip.
pub(crate) fn node() -> Option<PathBuf> {
    peer("node/node_modules/node/bin", "node")
}

/// The entry of an MCP server's package, or a visible skip.
pub(crate) fn mcp_package(package: &str) -> Option<PathBuf> {
    peer(&format!("node/node_modules/@modelcontextprotocol/{package}/dist"), "index.js")
}

/// A public component, or a visible skip.
pub(crate) fn public_component(name: &str) -> Option<PathBuf> {
    peer("components", &format!("{name}.wasm"))
}

/// A program of Debian's, or a visible skip.
pub(crate) fn debian(program: &str) -> Option<PathBuf> {
    peer("debian/usr/bin", program)
}

/// To be run with the libraries that were unpacked beside it.
pub(crate) fn debian_program(program: &Path) -> Command {
    let libraries = program.ancestors().nth(2).map(|usr| usr.join("lib")).unwrap_or_default();
    let folders = std::fs::read_dir(&libraries).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut command = Command::new(program);
    command.env("LD_LIBRARY_PATH", std::env::join_paths(folders).unwrap_or_default());
    command
}

/// That file of that folder, or a visible skip.
pub(crate) fn peer(folder: &str, file: &str) -> Option<PathBuf> {
    let path = repository().join("tests/.peers").join(folder).join(file);
    if path.exists() {
        return Some(path);
    }
    let required = std::env::var_os("AGENT_HOST_REQUIRE_PEERS").is_some();
    assert!(!required, "{file} is required here and not installed: run tests/install-peers");
    // Not `eprintln!`, which the test runner keeps to itself.
    let _ = writeln!(std::io::stderr(), "SKIPPED: {file} is not installed (tests/install-peers installs it)");
    None
}
