//! Whose a name is, and what becomes of a file that others hinder (row 18, L7, P10).

use super::{Ground, LONG, named, put, version};
use crate::support::saying;
use agent_plugins::digest_of;
use agent_runtime::swap::directory_name;
use agent_store::PluginVersions;
use std::time::Duration;

fn short(bytes: &[u8]) -> String {
    digest_of(bytes).short().to_owned()
}

/// Row 18, P6: grants and secrets are given by name, so a newcomer does not get the name of what serves, wherever it stands
/// in the alphabet.
#[tokio::test(flavor = "multi_thread")]
async fn row_18_a_name_belongs_to_the_file_that_serves() {
    let mut ground = Ground::new(&[saying("Hi.")]).await;
    put(&ground.file("aaa.wasm"), &version(2));
    let (subject, reason) = ground.refusal().await;
    assert!(subject.ends_with("aaa.wasm") && reason.contains("plugins/probe.wasm"), "{subject}: {reason}");
    assert!(reason.contains(&format!("probe@{}", short(&version(2)))), "{reason}");
    assert_eq!(ground.serves(), [digest_of(&version(1))]);

    // Its own file still changes it, and nothing is told twice.
    put(&ground.file("probe.wasm"), &version(3));
    ground.until(&version(3)).await;
    assert_eq!(ground.refusals(), 0);

    // When the name is free, the one that waits may have it.
    std::fs::remove_file(ground.file("probe.wasm")).unwrap();
    ground.until(&version(2)).await;
}

/// Row 18: where none serves, of two files neither does, as when a host starts.
#[tokio::test(flavor = "multi_thread")]
async fn row_18_of_two_newcomers_neither_has_the_name() {
    let mut ground = Ground::new(&[saying("Hi.")]).await;
    for (name, number) in [("aaa.wasm", 2), ("zzz.wasm", 3)] {
        put(&ground.file(name), &version(number));
        assert!(ground.refusal().await.0.ends_with(name));
    }
    std::fs::remove_file(ground.file("probe.wasm")).unwrap();
    ground.until_none().await;
    std::fs::remove_file(ground.file("aaa.wasm")).unwrap();
    ground.until(&version(3)).await;
}

/// P10: a file that cannot stand beside the others is refused by its name, and hinders nobody else's change.
#[tokio::test(flavor = "multi_thread")]
async fn p10_a_file_with_others_tools_hinders_no_other_change() {
    let mut ground = Ground::new(&[saying("Hi.")]).await;
    let words = named("aaa-words", 7);
    put(&ground.file("words.wasm"), &words);
    let (subject, reason) = ground.refusal().await;
    assert!(subject.ends_with("words.wasm"), "{subject}");
    assert!(reason.contains(&format!("aaa-words@{}", short(&words))) && reason.contains("two tools"), "{reason}");
    put(&ground.file("probe.wasm"), &version(2));
    ground.until(&version(2)).await;
    assert_eq!(ground.serves(), [digest_of(&version(2))]);
    assert_eq!(ground.refusals(), 0, "it is told once");
    let (directory, wanted) = (directory_name(&ground.file("")), [("probe".to_owned(), digest_of(&version(2)))]);
    let written = async {
        while ground.house.store.served(&directory).await.unwrap() != wanted {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(LONG, written).await.expect("what no agent has is not written down as serving");

    // Where there is room for it, it comes.
    std::fs::remove_file(ground.file("probe.wasm")).unwrap();
    let (live, digest) = (ground.live.clone(), digest_of(&words));
    super::wait(&move || live.current().generation().plugins().any(|plugin| *plugin.digest() == digest)).await;
}
