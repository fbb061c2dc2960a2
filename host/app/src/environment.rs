//! Reads the environment of the process: variables, the user and toolchains. No other module reads the environment.

use crate::arguments::NatsArguments;
use agent_config::settings::AGENT_FILE;
use agent_config::{
    COMPILE_COMMAND, ConfigError, DataDirectory, HostEnvironment, MediaStore, SharedDatabase, nats_from_option,
    nats_from_variable, nats_with_certificate, nats_with_credentials,
};
pub(crate) use agent_devkit::build::program_in;
use agent_devkit::build::{Purpose, Toolchain, Tools, VARIABLES};
use agent_fleet::NatsAddress;
use agent_plugins::CompilerCommand;
use jiff::tz::TimeZone;
use std::env;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Returns the parts of the environment that agents need, such as the variables.
pub(crate) fn host() -> HostEnvironment {
    let compiler = |program| CompilerCommand { program, arguments: vec![COMPILE_COMMAND.into()] };
    let folders = directories::ProjectDirs::from("", "", "agent-host");
    let data = folders.as_ref().map(|folders| folders.data_dir().to_owned());
    let mut environment = HostEnvironment::new(variable);
    environment.user = user();
    environment.compiler = this_program().map(compiler);
    environment.docker_configuration = docker_configuration();
    environment.data_directory = data;
    environment.user_file = folders.map(|folders| folders.config_dir().join(AGENT_FILE));
    environment.home = env::home_dir();
    environment.program = env::current_exe().ok();
    environment
}

/// Returns the environment of agents that work in the current folder: as [`host`], with the project folder.
pub(crate) fn host_in_project() -> HostEnvironment {
    let mut environment = host();
    environment.project = env::current_dir().ok().as_deref().map(project_of);
    environment
}

/// Returns the path of the project that a folder belongs to: the nearest folder that contains `.git`, or else the folder
/// itself.
fn project_of(folder: &Path) -> String {
    let repository = folder.ancestors().find(|ancestor| ancestor.join(".git").exists());
    repository.unwrap_or(folder).to_string_lossy().into_owned()
}

/// Returns the value of an environment variable. Returns None if the variable is not set or is not valid UTF-8.
pub(crate) fn variable(name: &str) -> Option<String> {
    env::var(name).ok()
}

/// Returns the shared database that the option `--store` or else the variable `AGENT_HOST_STORE` selects. An empty variable
/// counts as unset. Its media are in the object store `media`.
pub(crate) fn shared_database(
    option: Option<&str>,
    media: Option<&MediaStore>,
) -> Result<Option<SharedDatabase>, ConfigError> {
    let password = variable("PGPASSWORD");
    let database = match (option, variable("AGENT_HOST_STORE").filter(|text| !text.is_empty())) {
        (Some(text), _) => SharedDatabase::from_option(text, password.as_deref())?,
        (None, Some(text)) => SharedDatabase::from_variable(&text, password.as_deref())?,
        (None, None) => return Ok(None),
    };
    let database = database.with_media(media.cloned());
    match variable("AGENT_HOST_LEASE").filter(|seconds| !seconds.is_empty()) {
        Some(seconds) => database.with_lease(&seconds).map(Some),
        None => Ok(Some(database)),
    }
}

/// Returns the object store for media that the option `--media-store` or else the variable `AGENT_HOST_MEDIA_STORE` selects. An empty
/// variable counts as unset.
pub(crate) fn media_store(option: Option<&str>) -> Result<Option<MediaStore>, ConfigError> {
    match (option, variable("AGENT_HOST_MEDIA_STORE").filter(|text| !text.is_empty())) {
        (Some(text), _) => MediaStore::from_option(text, variable).map(Some),
        (None, Some(text)) => MediaStore::from_variable(&text, variable).map(Some),
        (None, None) => Ok(None),
    }
}

/// Returns the NATS servers that the option `--nats` or else the variable `AGENT_HOST_NATS` selects. An empty variable counts as
/// unset. The process signs in with the file that `--nats-credentials` or `AGENT_HOST_NATS_CREDENTIALS` names, if there is one, and
/// with the certificate of `--nats-certificate` and `--nats-key` or their variables.
pub(crate) fn nats(arguments: &NatsArguments) -> Result<Option<NatsAddress>, ConfigError> {
    let password = variable("NATS_PASSWORD");
    let address = match (arguments.nats.as_deref(), variable("AGENT_HOST_NATS").filter(|text| !text.is_empty())) {
        (Some(text), _) => nats_from_option(text, password.as_deref())?,
        (None, Some(text)) => nats_from_variable(&text, password.as_deref())?,
        (None, None) => return Ok(None),
    };
    let named = |file: &'_ Option<PathBuf>| file.clone().filter(|file| !file.as_os_str().is_empty());
    let address = match named(&arguments.nats_credentials) {
        None => address,
        Some(file) => nats_with_credentials(address, &file)?,
    };
    match (named(&arguments.nats_certificate), named(&arguments.nats_key)) {
        (Some(certificate), Some(key)) => nats_with_certificate(address, &certificate, &key).map(Some),
        (None, None) => Ok(Some(address)),
        (Some(_), None) => {
            Err(ConfigError::Nats("the certificate for NATS needs its private key: --nats-key FILE".into()))
        }
        (None, Some(_)) => {
            Err(ConfigError::Nats("the private key for NATS needs its certificate: --nats-certificate FILE".into()))
        }
    }
}

/// Returns the name of this process for people who look at several machines.
#[cfg(unix)]
pub(crate) fn process_name() -> String {
    let machine = rustix::system::uname().nodename().to_string_lossy().into_owned();
    format!("process {} on {machine}", std::process::id())
}

#[cfg(not(unix))]
pub(crate) fn process_name() -> String {
    format!("process {}", std::process::id())
}

/// Finds an installed program by its name. Relative folders in `PATH` are skipped, because the current folder may contain
/// foreign files.
pub(crate) fn installed_program(name: &str) -> Option<PathBuf> {
    let folders = env::var_os("PATH")?;
    let absolute = env::split_paths(&folders).filter(|folder| folder.is_absolute());
    program_in(name, &env::join_paths(absolute).ok()?)
}

/// Raises the soft limit on the number of open files to the hard limit. Each plugin and each connection keeps a file
/// open, and the soft limit is often as low as 256. Child processes inherit the new limit.
#[cfg(unix)]
pub(crate) fn raise_file_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let Some(soft) = current else { return };
    let wanted = maximum.unwrap_or(MAX_OPEN_FILES).min(MAX_OPEN_FILES);
    if soft >= wanted {
        return;
    }
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum }) {
        tracing::debug!(%error, "cannot raise the limit on the number of open files; the limit stays at {soft}");
    }
}

/// Maximum value to which the process raises its limit on open files. A higher limit would slow down child processes
/// that loop over all file descriptors up to the limit.
#[cfg(unix)]
const MAX_OPEN_FILES: u64 = 65_536;

#[cfg(not(unix))]
pub(crate) fn raise_file_limit() {}

/// Name of the logged-in user, who owns memories and sessions unless a request names another user.
pub(crate) fn user() -> Option<String> {
    let named = |name| variable(name).filter(|user| !user.is_empty());
    ["USER", "LOGNAME", "USERNAME"].into_iter().find_map(named).or_else(user_of_process)
}

/// Returns the name of the user who runs this process. This function is needed in environments without the
/// variables `USER`, `LOGNAME` and `USERNAME`, such as containers.
#[cfg(unix)]
fn user_of_process() -> Option<String> {
    let user_id = rustix::process::getuid().as_raw().to_string();
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    Some(user_of(&user_id, &passwd).unwrap_or_else(|| format!("uid-{user_id}")))
}

#[cfg(not(unix))]
fn user_of_process() -> Option<String> {
    None
}

/// Finds the name of the user with this id in the lines of `/etc/passwd`, which have the form `name:password:id:…`.
#[cfg(unix)]
fn user_of(user_id: &str, passwd: &str) -> Option<String> {
    let mut fields = passwd.lines().map(|line| line.split(':'));
    fields.find_map(|mut fields| {
        let name = fields.next().filter(|name| !name.is_empty())?;
        (fields.nth(1) == Some(user_id)).then(|| name.to_owned())
    })
}

/// Home folder of the user, or None if it is unknown.
pub(crate) fn home() -> Option<PathBuf> {
    env::home_dir()
}

/// Returns true if the terminal reports a light background in the variable `COLORFGBG`, such as `0;15`.
pub(crate) fn has_light_background() -> bool {
    let colours = variable("COLORFGBG").unwrap_or_default();
    matches!(colours.rsplit(';').next(), Some("7" | "15"))
}

/// Time zone of the user: the variable `TZ`, or else the system's time zone, or else UTC.
pub(crate) fn time_zone() -> TimeZone {
    static LOCAL: OnceLock<TimeZone> = OnceLock::new();
    let system = || TimeZone::tzif("local", &std::fs::read("/etc/localtime").ok()?).ok();
    let find = || match variable("TZ") {
        Some(name) => zone_named(name.trim_start_matches(':')),
        None => system(),
    };
    LOCAL.get_or_init(|| find().unwrap_or(TimeZone::UTC)).clone()
}

/// Finds a time zone by its name, such as `Europe/Berlin`, or by its rule, such as `CET-1`.
fn zone_named(name: &str) -> Option<TimeZone> {
    TimeZone::get(name).or_else(|_| TimeZone::posix(name)).ok()
}

/// File in which `docker login` stores credentials.
pub(crate) fn docker_configuration() -> Option<PathBuf> {
    let folder = env::var_os("DOCKER_CONFIG").filter(|folder| !folder.is_empty()).map(PathBuf::from);
    let folder = folder.or_else(|| Some(env::home_dir()?.join(".docker")))?;
    Some(folder.join("config.json"))
}

/// Path of the executable that starts this program again as a child process. On Linux, the path works even if the
/// program's file has been replaced.
pub(crate) fn this_program() -> Option<PathBuf> {
    let running = Path::new("/proc/self/exe");
    if running.exists() { Some(running.to_owned()) } else { env::current_exe().ok() }
}

/// Returns the user's editor and its arguments, from `VISUAL` or `EDITOR`. Returns None if neither variable is set.
pub(crate) fn editor() -> Option<Vec<String>> {
    let named = ["VISUAL", "EDITOR"].into_iter().find_map(variable)?;
    let words: Vec<String> = named.split_whitespace().map(str::to_owned).collect();
    (!words.is_empty()).then_some(words)
}

/// Returns true if the variable `TERM` is `dumb`, which means that the terminal can only print text.
pub(crate) fn is_terminal_dumb() -> bool {
    env::var_os("TERM").is_some_and(|name| name == "dumb")
}

/// Finds the toolchains that build plugins. If an environment variable names a toolchain, that toolchain is used
/// instead of the toolchain on the `PATH`.
pub(crate) fn toolchain() -> Toolchain {
    let named = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let path = env::var_os("PATH").unwrap_or_default();
    let cargo = named("CARGO").or_else(|| program_in("cargo", &path));
    let rustup = program_in("rustup", &path);
    let named = VARIABLES.into_iter().filter_map(|variable| Some((variable, absolute(named(variable)?)))).collect();
    let (tools, secrets) = (Tools { path, named }, secret_variables());
    Toolchain { cargo, rustup, tools, secrets, purpose: Purpose::Release, shared: None }
}

/// Returns the names of the variables with secrets that the host itself uses: those of its database, its message server and its object
/// store, and the keys of models. Keys whose variables have other names are not known here, because builds also run without an agent.
fn secret_variables() -> Vec<String> {
    let keys = env::vars_os().filter_map(|(name, _)| name.into_string().ok()).filter(|name| name.ends_with("_API_KEY"));
    let own = ["AGENT_HOST_STORE", "AGENT_HOST_NATS", "PGPASSWORD", "NATS_PASSWORD"];
    let object_store = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"];
    own.into_iter().chain(object_store).map(str::to_owned).chain(keys).collect()
}

/// The same toolchain, for components that are only tried. What their builds have in common is kept in the data folder.
pub(crate) fn development_toolchain(data: &DataDirectory) -> Toolchain {
    Toolchain { purpose: Purpose::Development, shared: Some(data.development_builds()), ..toolchain() }
}

/// Makes a path absolute if it has several components, because tools run in the folder of the project that they build.
/// A name without a folder is returned unchanged.
fn absolute(path: PathBuf) -> PathBuf {
    if path.components().count() > 1 { std::path::absolute(&path).unwrap_or(path) } else { path }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    /// D4: memories have an owner even if no variable names the user.
    #[test]
    fn d4_finds_name_of_process_user() {
        let users = "root:x:0:0::/root:/bin/sh\n\n:x:7:\nann:x:1000:1000::/home/ann:/bin/sh\nlater:x:1000:";
        let of = |number: &str| user_of(number, users);
        assert_eq!([of("0"), of("1000")], [Some("root".to_owned()), Some("ann".to_owned())]);
        assert_eq!([of("7"), of("100"), user_of("0", "")], [None, None, None]);
        assert!(user_of_process().is_some_and(|user| !user.is_empty()));
    }
}
