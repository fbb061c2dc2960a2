//! A folder that is watched while plugins come into it from elsewhere (P10, P11).

use super::{Desk, component, files, in_plugins};
use crate::support::scratch;
use agent_plugins::{Asks, Look, PluginDirectory, Sandbox, SandboxOptions, Seen, digest_of};
use agent_registry::{Locked, Trust};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long something may take that has no reason to take long.
const LONG: Duration = Duration::from_secs(120);

fn watched(folder: &Path) -> PluginDirectory {
    let options = SandboxOptions {
        cache_directory: Some(scratch().join("cache")),
        vetting: Some(Arc::new(Locked { trust: Trust::default() })),
        ..SandboxOptions::default()
    };
    PluginDirectory::new(Sandbox::new(options).unwrap(), folder.to_owned())
}

/// Looks until what is seen is as wanted, and gathers what is said on the way.
pub(super) async fn until(directory: &mut PluginDirectory, wanted: impl Fn(&Seen) -> bool) -> Vec<String> {
    let (begun, mut said) = (Instant::now(), Vec::new());
    loop {
        if let Look::Quiet(seen) = directory.look().await.unwrap() {
            said.extend(seen.problems.iter().map(|(_, problem)| problem.to_string()));
            if wanted(&seen) {
                return said;
            }
        }
        assert!(begun.elapsed() < LONG, "{said:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn serves(seen: &Seen, bytes: &[u8]) -> bool {
    seen.plugins.iter().any(|(_, plugin)| *plugin.digest() == digest_of(bytes))
}

/// Row 23, P10: an added and an updated plugin is taken by who watches, without a word; a changed file is refused, and loads
/// again once the lock no longer stands against it.
#[tokio::test(flavor = "multi_thread")]
async fn p11_what_is_added_and_updated_is_taken_by_who_watches() {
    let desk = Desk::new();
    let first = desk.push("tides", "1.0.0", &[]);
    let mut directory = watched(&desk.path("plugins"));
    desk.done(&in_plugins(&["plugin", "add", &desk.reference("team/tides:latest")]));
    let said = until(&mut directory, |seen| serves(seen, &first)).await;
    let second = desk.push("tides", "1.1.0", &[]);
    desk.done(&in_plugins(&["plugin", "update"]));
    let said = [said, until(&mut directory, |seen| serves(seen, &second)).await].concat();
    assert!(said.is_empty(), "{said:?}");
    assert_eq!(files(&desk.path("plugins")), ["plugins.lock", "tides.wasm"]);

    let changed = component("tides", "1.2.0", Asks::default());
    std::fs::write(desk.path("plugins/tides.wasm"), &changed).unwrap();
    let said = until(&mut directory, |seen| !seen.problems.is_empty()).await;
    assert!(said.iter().any(|problem| problem.contains("plugins.lock locks `tides`")), "{said:?}");
    desk.done(&in_plugins(&["plugin", "remove", "tides", "--keep-file"]));
    until(&mut directory, |seen| serves(seen, &changed)).await;
}
