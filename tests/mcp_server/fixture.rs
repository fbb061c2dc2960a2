//! The MCP server of the tests: built once, by one call of the compiler, and what it writes down while it runs. Taken into
//! each test program that needs it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

/// The program; its first argument says how it behaves.
pub(crate) fn mcp_server() -> &'static Path {
    static SERVER: OnceLock<PathBuf> = OnceLock::new();
    SERVER.get_or_init(|| {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/mcp_server/main.rs");
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        // Another test program may be building it too: each into a file of its own, moved into place.
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

/// Against hanging; no test waits for it.
const PATIENCE: Duration = Duration::from_secs(60);

/// What servers have written down, in a file that is named as their second argument.
pub(crate) struct Diary {
    pub(crate) path: PathBuf,
}

impl Diary {
    /// All of it so far.
    pub(crate) fn entries(&self) -> Vec<String> {
        let text = std::fs::read_to_string(&self.path).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// How often this was written down.
    pub(crate) fn count(&self, entry: &str) -> usize {
        self.entries().iter().filter(|found| *found == entry).count()
    }

    /// The processes that were started so far.
    pub(crate) fn started(&self) -> Vec<u32> {
        let entries = self.entries();
        entries.iter().filter_map(|entry| entry.strip_prefix("started ")?.parse().ok()).collect()
    }

    /// Those of them that are still there.
    pub(crate) fn alive(&self) -> Vec<u32> {
        self.started().into_iter().filter(|id| is_alive(*id)).collect()
    }

    /// Waits until none is left.
    pub(crate) async fn all_gone(&self) {
        until("no process of the server is left", || self.alive().is_empty()).await;
    }

    /// Waits for an entry.
    pub(crate) async fn until_noted(&self, entry: &str) {
        until(entry, || self.count(entry) > 0).await;
    }
}

/// Waits until something is so.
pub(crate) async fn until(what: &str, is_so: impl Fn() -> bool) {
    let waiting = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.unwrap_or_else(|_| panic!("never: {what}"));
}

/// Whether a process runs; one that has ended and that nobody has asked about does not.
fn is_alive(id: u32) -> bool {
    let state = if cfg!(target_os = "linux") {
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        // The name before the state is in parentheses, and may hold any character.
        stat.rsplit_once(')').map(|(_, rest)| rest.trim().to_owned()).unwrap_or_default()
    } else {
        let output = std::process::Command::new("ps").args(["-o", "stat=", "-p", &id.to_string()]).output();
        String::from_utf8_lossy(&output.expect("ps runs").stdout).trim().to_owned()
    };
    !state.is_empty() && !state.starts_with('Z')
}
