//! What the process learns from its environment; nothing else reads it.

use crate::exit::Failure;
use agent_kit::build::Toolchain;
use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// A variable's value, where it is set and is text.
pub(crate) fn variable(name: &str) -> Option<String> {
    env::var(name).ok()
}

/// Who is logged in: whose memories these are, unless a request says otherwise.
pub(crate) fn user() -> Option<String> {
    let named = |name| variable(name).filter(|user| !user.is_empty());
    ["USER", "LOGNAME", "USERNAME"].into_iter().find_map(named).or_else(user_of_process)
}

/// Where no variable says who it is, as in a container or under a service manager: the name of the process's own user.
#[cfg(unix)]
fn user_of_process() -> Option<String> {
    let number = rustix::process::getuid().as_raw().to_string();
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    Some(user_of(&number, &users).unwrap_or_else(|| format!("uid-{number}")))
}

#[cfg(not(unix))]
fn user_of_process() -> Option<String> {
    None
}

/// From lines of `name:password:number:…`.
#[cfg(unix)]
fn user_of(number: &str, users: &str) -> Option<String> {
    let mut fields = users.lines().map(|line| line.split(':'));
    fields.find_map(|mut fields| {
        let name = fields.next().filter(|name| !name.is_empty())?;
        (fields.nth(1) == Some(number)).then(|| name.to_owned())
    })
}

/// Where `docker login` keeps credentials.
pub(crate) fn docker_configuration() -> Option<PathBuf> {
    let folder = env::var_os("DOCKER_CONFIG").filter(|folder| !folder.is_empty()).map(PathBuf::from);
    let folder = folder.or_else(|| Some(env::home_dir()?.join(".docker")))?;
    Some(folder.join("config.json"))
}

/// This very program, to start it again: on Linux also where its file has been replaced meanwhile.
pub(crate) fn this_program() -> Option<PathBuf> {
    let running = Path::new("/proc/self/exe");
    if running.exists() { Some(running.to_owned()) } else { env::current_exe().ok() }
}

/// The editor that somebody wants to write in, with its own arguments.
pub(crate) fn editor() -> Option<Vec<String>> {
    let named = ["VISUAL", "EDITOR"].into_iter().find_map(variable)?;
    let words: Vec<String> = named.split_whitespace().map(str::to_owned).collect();
    (!words.is_empty()).then_some(words)
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
    program_in(name, &env::var_os("PATH")?)
}

/// The program of that name in the folders of a `PATH`; for a path, the file itself.
pub(crate) fn program_in(name: &str, folders: &OsStr) -> Option<PathBuf> {
    if name.contains(std::path::is_separator) {
        return Some(PathBuf::from(name)).filter(|path| is_program(path));
    }
    let file = format!("{name}{}", env::consts::EXE_SUFFIX);
    env::split_paths(folders).map(|folder| folder.join(&file)).find(|path| is_program(path))
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

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    /// D4: memories are somebody's, also where no variable says whose.
    #[test]
    fn the_processs_user_has_a_name() {
        let users = "root:x:0:0::/root:/bin/sh\n\n:x:7:\nann:x:1000:1000::/home/ann:/bin/sh\nlater:x:1000:";
        let of = |number: &str| user_of(number, users);
        assert_eq!([of("0"), of("1000")], [Some("root".to_owned()), Some("ann".to_owned())]);
        assert_eq!([of("7"), of("100"), user_of("0", "")], [None, None, None]);
        assert!(user_of_process().is_some_and(|user| !user.is_empty()));
    }
}
