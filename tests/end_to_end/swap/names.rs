//! Two plugin files with the same plugin name, and plugin files that conflict with other files, for example because
//! they offer the same tools (row 18, L7, P10).

use super::{HANG_TIMEOUT, WatchedAgent, probe_version, renamed_probe, write_atomically};
use crate::support::text_reply;
use agent_plugins::digest_of;
use agent_runtime::swap::directory_name;
use agent_store::PluginVersions;
use std::time::Duration;

fn short_digest(bytes: &[u8]) -> String {
    digest_of(bytes).short().to_owned()
}

/// Row 18, P6: Grants and secrets belong to a plugin name, so a new file cannot take over the name of a plugin that is
/// in use, even if the name of the new file comes first in alphabetical order.
#[tokio::test(flavor = "multi_thread")]
async fn row_18_a_plugin_name_belongs_to_the_file_in_use() {
    let mut watched_agent = WatchedAgent::new(&[text_reply("Hi.")]).await;
    write_atomically(&watched_agent.file("aaa.wasm"), &probe_version(2));
    let (subject, reason) = watched_agent.refusal().await;
    assert!(subject.ends_with("aaa.wasm") && reason.contains("plugins/probe.wasm"), "{subject}: {reason}");
    assert!(reason.contains(&format!("probe@{}", short_digest(&probe_version(2)))), "{reason}");
    assert_eq!(watched_agent.served_digests(), [digest_of(&probe_version(1))]);

    // A new version in the file of the loaded plugin still replaces the plugin, and the host does not report the
    // other file again.
    write_atomically(&watched_agent.file("probe.wasm"), &probe_version(3));
    watched_agent.wait_for_version(&probe_version(3)).await;
    assert_eq!(watched_agent.refusals(), 0);

    // After the file of the loaded plugin is removed, the host loads the file that it had refused because of the name.
    std::fs::remove_file(watched_agent.file("probe.wasm")).unwrap();
    watched_agent.wait_for_version(&probe_version(2)).await;
}

/// Row 18: If two new files contain plugins with the same name, the host loads neither file when it starts, and neither
/// file while it watches the folder.
#[tokio::test(flavor = "multi_thread")]
async fn row_18_two_new_files_with_the_same_name_are_not_loaded() {
    let mut watched_agent = WatchedAgent::new(&[text_reply("Hi.")]).await;
    for (name, number) in [("aaa.wasm", 2), ("zzz.wasm", 3)] {
        write_atomically(&watched_agent.file(name), &probe_version(number));
        assert!(watched_agent.refusal().await.0.ends_with(name));
    }
    std::fs::remove_file(watched_agent.file("probe.wasm")).unwrap();
    watched_agent.wait_until_no_plugin_is_left().await;
    std::fs::remove_file(watched_agent.file("aaa.wasm")).unwrap();
    watched_agent.wait_for_version(&probe_version(3)).await;
}

/// P10: The host refuses a file that conflicts with other files, and the error contains the name of the refused file.
/// Changes to other files are still loaded.
#[tokio::test(flavor = "multi_thread")]
async fn p10_a_file_with_conflicting_tools_does_not_block_other_changes() {
    let mut watched_agent = WatchedAgent::new(&[text_reply("Hi.")]).await;
    let renamed_plugin = renamed_probe("aaa-words", 7);
    write_atomically(&watched_agent.file("words.wasm"), &renamed_plugin);
    let (subject, reason) = watched_agent.refusal().await;
    assert!(subject.ends_with("words.wasm"), "{subject}");
    assert!(
        reason.contains(&format!("aaa-words@{}", short_digest(&renamed_plugin))) && reason.contains("two tools"),
        "{reason}"
    );
    write_atomically(&watched_agent.file("probe.wasm"), &probe_version(2));
    watched_agent.wait_for_version(&probe_version(2)).await;
    assert_eq!(watched_agent.served_digests(), [digest_of(&probe_version(2))]);
    assert_eq!(watched_agent.refusals(), 0, "the notice appears once");
    let (directory, wanted) =
        (directory_name(&watched_agent.file("")), [("probe".to_owned(), digest_of(&probe_version(2)))]);
    let written = async {
        while watched_agent.test_host.store.serving(&directory).await.unwrap() != wanted {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(HANG_TIMEOUT, written).await.expect("only a version that an agent uses is stored as such");

    // When the conflict is gone, the host loads the file that it had refused.
    std::fs::remove_file(watched_agent.file("probe.wasm")).unwrap();
    let (live, digest) = (watched_agent.live.clone(), digest_of(&renamed_plugin));
    super::wait_until(&move || live.current().generation().plugins().any(|plugin| *plugin.digest() == digest)).await;
}
