//! Starts PostgreSQL in a temporary folder. The server ends and removes its folder when the test process ends.

use std::io::Write;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// User and group of the server if the tests run as root, with which PostgreSQL refuses to run.
const NOBODY: u32 = 65_534;

/// Runs the server until the input ends, because the test process has ended or has dropped the server.
const RUN: &str = r#"
server=$1; folder=$2; shift 2
"$server" -D "$folder/data" -k "$folder" "$@" > "$folder/log" 2>&1 &
process=$!
echo $process > "$folder/process"
read -r _
kill -QUIT $process 2> /dev/null
wait $process 2> /dev/null
rm -rf "$folder"
"#;

/// A running server.
pub(crate) struct Server {
    pub(crate) folder: PathBuf,
    runner: Child,
}

/// The folder with the programs of PostgreSQL.
fn programs() -> Option<PathBuf> {
    let peers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/.peers/debian/usr/lib/postgresql");
    let versions = [peers, PathBuf::from("/usr/lib/postgresql")];
    let mut folders: Vec<PathBuf> = versions
        .iter()
        .flat_map(|folder| std::fs::read_dir(folder).into_iter().flatten().flatten())
        .map(|version| version.path().join("bin"))
        .filter(|folder| folder.join("initdb").is_file() && folder.join("postgres").is_file())
        .collect();
    folders.sort();
    if folders.is_empty() {
        let required = std::env::var_os("AGENT_HOST_REQUIRE_PEERS").is_some();
        assert!(!required, "PostgreSQL is required here and not installed: run tests/install-peers");
        // The test runner captures the output of `eprintln!`, so this code writes to stderr directly.
        let _ = writeln!(std::io::stderr(), "SKIPPED: PostgreSQL is not installed (tests/install-peers installs it)");
    }
    folders.pop()
}

/// Returns a command that runs a program of PostgreSQL as an ordinary user.
pub(crate) fn command(program: &Path) -> Command {
    let mut command = Command::new(program);
    if is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    // Programs that were unpacked, and not installed, use the libraries that were unpacked together with them.
    let libraries = program.ancestors().nth(5).map(|root| root.join("lib")).unwrap_or_default();
    let folders = std::fs::read_dir(&libraries).into_iter().flatten().flatten().map(|entry| entry.path());
    if program.starts_with(env!("CARGO_MANIFEST_DIR")) {
        command.env("LD_LIBRARY_PATH", std::env::join_paths(folders).unwrap_or_default());
    }
    command.env("LC_ALL", "C").current_dir("/");
    command
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|process| std::os::unix::fs::MetadataExt::uid(&process) == 0)
}

/// Creates a folder that the server can use.
fn new_folder() -> PathBuf {
    let folder = tempfile::Builder::new().prefix("pg").tempdir().expect("a folder").keep();
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o700)).expect("permissions");
    if is_root() {
        chown(&folder, Some(NOBODY), Some(NOBODY)).expect("the owner is set");
    }
    folder
}

impl Server {
    /// Starts a new server with additional settings. Returns `None` if PostgreSQL is not installed.
    pub(crate) fn start(settings: &[&str]) -> Option<Self> {
        let programs = programs()?;
        let folder = new_folder();
        let created = command(&programs.join("initdb"))
            .args(["-E", "UTF8", "--locale=C", "-A", "trust", "-U", "agent", "--no-sync", "-D"])
            .arg(folder.join("data"))
            .output()
            .expect("initdb runs");
        assert!(created.status.success(), "{}", String::from_utf8_lossy(&created.stderr));
        Some(Self::run(&programs, folder, settings))
    }

    /// Starts a server that receives all changes of this server.
    pub(crate) fn start_standby(&self) -> Self {
        let programs = programs().expect("this server runs");
        let folder = new_folder();
        let copied = command(&programs.join("pg_basebackup"))
            .args(["-U", "agent", "-R", "-c", "fast", "--no-sync", "-h"])
            .arg(&self.folder)
            .arg("-D")
            .arg(folder.join("data"))
            .output()
            .expect("pg_basebackup runs");
        assert!(copied.status.success(), "{}", String::from_utf8_lossy(&copied.stderr));
        Self::run(&programs, folder, &["hot_standby=on"])
    }

    fn run(programs: &Path, folder: PathBuf, settings: &[&str]) -> Self {
        let mut runner = Command::new("sh");
        let template = command(&programs.join("postgres"));
        runner.envs(template.get_envs().filter_map(|(name, value)| Some((name, value?))));
        if is_root() {
            runner.uid(NOBODY).gid(NOBODY);
        }
        runner.args(["-c", RUN, "sh"]).arg(programs.join("postgres")).arg(&folder).current_dir("/");
        let common = [
            "listen_addresses=",
            "max_connections=200",
            "shared_buffers=32MB",
            "max_wal_senders=4",
            "max_wal_size=128MB",
        ];
        for setting in common.iter().chain(settings) {
            runner.args(["-c", setting]);
        }
        let runner = runner.stdin(Stdio::piped()).spawn().expect("the server starts");
        let server = Self { folder, runner };
        server.wait_until_ready();
        server
    }

    fn wait_until_ready(&self) {
        let until = Instant::now() + Duration::from_secs(120);
        let socket = self.folder.join(".s.PGSQL.5432");
        let log = || std::fs::read_to_string(self.folder.join("log")).unwrap_or_default();
        while !socket.exists() || !log().contains("ready to accept") {
            assert!(Instant::now() < until, "the server does not start: {}", log());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Returns the address of a database of this server.
    pub(crate) fn address(&self, database: &str) -> String {
        format!("postgres://agent@{}/{database}", self.host())
    }

    /// Returns the folder of the socket, as it is written in an address.
    pub(crate) fn host(&self) -> String {
        self.folder.to_string_lossy().replace('/', "%2F")
    }

    /// Kills the server process without giving it time to finish anything.
    pub(crate) fn kill(&self) {
        let process = std::fs::read_to_string(self.folder.join("process")).expect("the process id");
        // The processes of the connections end when the main process has ended.
        let killed = Command::new("kill").args(["-KILL", process.trim()]).status().expect("kill runs");
        assert!(killed.success());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.runner.stdin.take());
        let _ = self.runner.wait();
    }
}

/// Returns the server that most tests share. Returns `None` if PostgreSQL is not installed.
pub(crate) fn shared() -> Option<&'static Server> {
    // The pipe to the process that runs the server closes when the test process ends.
    static SERVER: OnceLock<Option<Server>> = OnceLock::new();
    SERVER.get_or_init(|| Server::start(&[])).as_ref()
}
