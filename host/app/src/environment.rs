//! What the process learns from its environment; nothing else reads it.

pub(crate) use agent_devkit::build::program_in;
use agent_devkit::build::{Toolchain, Tools, VARIABLES};
use std::env;
use std::path::{Path, PathBuf};

/// A variable's value, where it is set and is text.
pub(crate) fn variable(name: &str) -> Option<String> {
    env::var(name).ok()
}

/// Raises the soft limit of open files to the hard one: each plugin and each connection holds a file, and the soft limit is often as
/// low as 256. Programs that this process starts inherit it.
#[cfg(unix)]
pub(crate) fn raise_file_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let Some(soft) = current else { return };
    let wanted = maximum.unwrap_or(MOST_FILES).min(MOST_FILES);
    if soft >= wanted {
        return;
    }
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum }) {
        tracing::debug!(%error, "the limit of open files stays at {soft}");
    }
}

/// Programs that make a table of all files that they may have open take long with more.
#[cfg(unix)]
const MOST_FILES: u64 = 65_536;

#[cfg(not(unix))]
pub(crate) fn raise_file_limit() {}

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

/// The toolchains that build plugins: what variables name, else what is on the `PATH`.
pub(crate) fn toolchain() -> Toolchain {
    let named = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let path = env::var_os("PATH").unwrap_or_default();
    let cargo = named("CARGO").or_else(|| program_in("cargo", &path));
    let rustup = program_in("rustup", &path);
    let named = VARIABLES.into_iter().filter_map(|variable| Some((variable, whole(named(variable)?)))).collect();
    Toolchain { cargo, rustup, tools: Tools { path, named } }
}

/// Tools run in the folder of their project, so a path from here must be whole.
fn whole(path: PathBuf) -> PathBuf {
    if path.components().count() > 1 { std::path::absolute(&path).unwrap_or(path) } else { path }
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
