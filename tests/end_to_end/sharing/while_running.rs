//! While one process watches a plugin folder, other commands add plugins to the folder (P10, P11).

use super::{TestCli, component, files, in_plugins};
use crate::support::scratch;
use agent_plugins::{Asks, DirectoryContents, DirectoryScan, PluginDirectory, Sandbox, SandboxOptions, digest_of};
use agent_registry::{LockFileVerifier, Trust};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A timeout that expires only if a test hangs.
const HANG_TIMEOUT: Duration = Duration::from_secs(120);

fn watched(folder: &Path) -> PluginDirectory {
    let options = SandboxOptions {
        cache_directory: Some(scratch().join("cache")),
        verifier: Some(Arc::new(LockFileVerifier { trust: Trust::default() })),
        ..SandboxOptions::default()
    };
    PluginDirectory::new(Sandbox::new(options).unwrap(), folder.to_owned())
}

/// Scans the watched folder until its contents are as expected, and returns the problems that the scans reported.
pub(super) async fn scan_until(
    directory: &mut PluginDirectory,
    wanted: impl Fn(&DirectoryContents) -> bool,
) -> Vec<String> {
    let (started, mut problems) = (Instant::now(), Vec::new());
    loop {
        if let DirectoryScan::Settled(seen) = directory.scan().await.unwrap() {
            problems.extend(seen.problems.iter().map(|(_, problem)| problem.to_string()));
            if wanted(&seen) {
                return problems;
            }
        }
        assert!(started.elapsed() < HANG_TIMEOUT, "{problems:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn is_serving(seen: &DirectoryContents, bytes: &[u8]) -> bool {
    seen.plugins.iter().any(|(_, plugin)| *plugin.digest() == digest_of(bytes))
}

/// Row 23, P10: If another command adds or updates a plugin, the watcher loads it without reporting a problem. The
/// watcher refuses a file that differs from its entry in the lock file, and loads the file as soon as this entry has
/// been removed.
#[tokio::test(flavor = "multi_thread")]
async fn p11_a_watcher_loads_added_and_updated_plugins() {
    let cli = TestCli::new();
    let first = cli.push("tides", "1.0.0", &[]);
    let mut directory = watched(&cli.path("plugins"));
    cli.succeed(&in_plugins(&["plugin", "add", &cli.reference("team/tides:latest")]));
    let problems = scan_until(&mut directory, |seen| is_serving(seen, &first)).await;
    let second = cli.push("tides", "1.1.0", &[]);
    cli.succeed(&in_plugins(&["plugin", "update"]));
    let problems = [problems, scan_until(&mut directory, |seen| is_serving(seen, &second)).await].concat();
    assert!(problems.is_empty(), "{problems:?}");
    assert_eq!(files(&cli.path("plugins")), ["plugins.lock", "tides.wasm"]);

    let changed = component("tides", "1.2.0", Asks::default());
    std::fs::write(cli.path("plugins/tides.wasm"), &changed).unwrap();
    let problems = scan_until(&mut directory, |seen| !seen.problems.is_empty()).await;
    assert!(problems.iter().any(|problem| problem.contains("plugins.lock locks `tides`")), "{problems:?}");
    cli.succeed(&in_plugins(&["plugin", "remove", "tides", "--keep-file"]));
    scan_until(&mut directory, |seen| is_serving(seen, &changed)).await;
}
