//! Builds the MCP server of the tests with one call of the compiler, and reads the log that the server writes while it
//! runs. Each test program that needs the server includes this file.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

/// Returns the path of the server program. The first argument of the program selects its behaviour.
pub(crate) fn mcp_server() -> &'static Path {
    static SERVER: OnceLock<PathBuf> = OnceLock::new();
    SERVER.get_or_init(|| {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/mcp_server/main.rs");
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        // Another test program may build the server at the same time. Each test program therefore builds a separate
        // file and then renames it.
        let built = folder.join(format!("mcp-server-{}", std::process::id()));
        let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let output = Command::new(rustc).args(["--edition", "2024", "-o"]).arg(&built).arg(&source).output();
        let output = output.expect("rustc runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let server = folder.join("mcp-server");
        std::fs::rename(&built, &server).expect("the target directory is writable");
        server
    })
}

/// A timeout that expires only if a test hangs.
const HANG_TIMEOUT: Duration = Duration::from_secs(60);

/// The log of the server: the entries that server processes have written to the file named by their second argument.
pub(crate) struct ServerLog {
    pub(crate) path: PathBuf,
}

impl ServerLog {
    /// Returns all entries that the server has written until now.
    pub(crate) fn entries(&self) -> Vec<String> {
        let text = std::fs::read_to_string(&self.path).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Returns how often the server has written this entry.
    pub(crate) fn count(&self, entry: &str) -> usize {
        self.entries().iter().filter(|found| *found == entry).count()
    }

    /// Returns the ids of all server processes and child processes that have been started until now.
    pub(crate) fn started(&self) -> Vec<u32> {
        let entries = self.entries();
        entries.iter().filter_map(|entry| entry.strip_prefix("started ")?.parse().ok()).collect()
    }

    /// Returns the ids of those processes in the log that are still running.
    pub(crate) fn alive(&self) -> Vec<u32> {
        self.started().into_iter().filter(|id| is_alive(*id)).collect()
    }

    /// Waits until all processes in the log have ended.
    pub(crate) async fn all_gone(&self) {
        until("no process of the server is left", || self.alive().is_empty()).await;
    }

    /// Waits until the log contains this entry.
    pub(crate) async fn wait_until_logged(&self, entry: &str) {
        until(entry, || self.count(entry) > 0).await;
    }
}

/// Waits until the condition is true. If the wait times out, panics with a message that contains `condition`.
pub(crate) async fn until(condition: &str, is_true: impl Fn() -> bool) {
    let waiting = async {
        while !is_true() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(HANG_TIMEOUT, waiting).await.unwrap_or_else(|_| panic!("timed out: {condition}"));
}

/// Returns whether the process with this id runs. Returns false for a zombie process.
fn is_alive(id: u32) -> bool {
    let state = if cfg!(target_os = "linux") {
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        // In `/proc/ID/stat`, the state follows the process name, which is in parentheses and may contain
        // any character.
        stat.rsplit_once(')').map(|(_, after_name)| after_name.trim().to_owned()).unwrap_or_default()
    } else {
        let output = std::process::Command::new("ps").args(["-o", "stat=", "-p", &id.to_string()]).output();
        String::from_utf8_lossy(&output.expect("ps runs").stdout).trim().to_owned()
    };
    !state.is_empty() && !state.starts_with('Z')
}
