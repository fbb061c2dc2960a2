//! What the process learns from its environment; nothing else reads it.

use crate::exit::Failure;
use agent_kit::build::Toolchain;
use std::env;
use std::path::{Path, PathBuf};

/// A variable's value, where it is set and is text.
pub(crate) fn variable(name: &str) -> Option<String> {
    env::var(name).ok()
}

/// Who is logged in: whose memories these are, unless a request says otherwise.
pub(crate) fn user() -> Option<String> {
    ["USER", "LOGNAME", "USERNAME"].into_iter().find_map(variable).filter(|name| !name.is_empty())
}

/// Whether the terminal says that it can do nothing but print.
pub(crate) fn is_terminal_dumb() -> bool {
    env::var_os("TERM").is_some_and(|name| name == "dumb")
}

/// The Rust toolchain: `CARGO` where it is set, else the cargo on the `PATH`.
pub(crate) fn toolchain() -> Result<Toolchain, Failure> {
    let asked = env::var_os("CARGO").map(PathBuf::from);
    let cargo = asked.or_else(|| program("cargo")).ok_or_else(|| {
        Failure::refused("no cargo was found: install Rust from https://rustup.rs, or set CARGO to your cargo")
    })?;
    Ok(Toolchain { cargo, rustup: program("rustup") })
}

fn program(name: &str) -> Option<PathBuf> {
    let file = format!("{name}{}", env::consts::EXE_SUFFIX);
    let folders = env::var_os("PATH")?;
    env::split_paths(&folders).map(|folder| folder.join(&file)).find(|path| is_program(path))
}

#[cfg(unix)]
fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

#[cfg(not(unix))]
fn is_program(path: &Path) -> bool {
    path.is_file()
}
