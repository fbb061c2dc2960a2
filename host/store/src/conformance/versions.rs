//! P10: the store records the plugin versions that were used, the reason why each version is no longer used, and
//! the rollbacks.

use super::TestStore;
use crate::{
    PluginSource, PluginVersion, Rollback, ServedPlugin, Store, StoredTrial, TrialCalls, VersionChange,
    VersionEndReason, VersionFilter,
};
use agent_core::message::Digest;
use std::sync::Arc;

fn digest(byte: u8) -> Digest {
    Digest::from_sha256([byte; 32])
}

fn served_plugin(plugin: &str, byte: u8, instead: VersionEndReason) -> ServedPlugin {
    ServedPlugin {
        plugin: plugin.to_owned(),
        digest: digest(byte),
        origin: format!("{plugin}.wasm"),
        instead,
        trial: None,
    }
}

async fn listed_versions(store: &Arc<dyn Store>, plugin: Option<&str>) -> Vec<PluginVersion> {
    let which = VersionFilter { directory: None, plugin: plugin.map(str::to_owned) };
    store.versions(which, 100).await.unwrap()
}

pub(super) async fn versions_start_and_end(test: TestStore) {
    let store = &test.store;
    let both =
        |byte: u8, why| vec![served_plugin("calc", 1, VersionEndReason::Replaced), served_plugin("text", byte, why)];
    for _ in 0..2 {
        store.set_serving("/one", both(2, VersionEndReason::Replaced)).await.unwrap();
    }
    assert_eq!(listed_versions(store, None).await.len(), 2, "a version in use is not recorded again");
    store.set_serving("/two", both(2, VersionEndReason::Replaced)).await.unwrap();
    store.set_serving("/one", both(3, VersionEndReason::Replaced)).await.unwrap();
    store.set_serving("/one", both(2, VersionEndReason::Trapped)).await.unwrap();
    store.set_serving("/one", vec![served_plugin("calc", 1, VersionEndReason::Replaced)]).await.unwrap();
    let which = VersionFilter { directory: Some("/one".into()), plugin: Some("text".into()) };
    let text = store.versions(which, 100).await.unwrap();
    let seen: Vec<_> = text.iter().map(|version| (version.digest.clone(), version.why)).collect();
    let expected = [
        (digest(2), Some(VersionEndReason::Removed)),
        (digest(3), Some(VersionEndReason::Trapped)),
        (digest(2), Some(VersionEndReason::Replaced)),
    ];
    assert_eq!(seen, expected, "newest first");
    assert!(text.iter().all(|version| version.ended.is_some() && version.began.ends_with('Z')));
    let needed = |last| async move { store.needed_versions(last).await.unwrap() };
    assert_eq!(
        needed(1).await,
        [digest(1), digest(2)],
        "the needed versions are the versions in use and the last version of each plugin"
    );
    assert_eq!(needed(2).await, [digest(1), digest(2), digest(3)]);
    let calc = listed_versions(store, Some("calc")).await;
    assert_eq!(calc.len(), 2);
    assert!(calc.iter().all(|version| version.ended.is_none() && version.why.is_none()));
    if let Some(second) = &test.second {
        assert_eq!(listed_versions(second, Some("calc")).await, calc, "a second instance sees the versions");
    }
}

pub(super) async fn new_rollback_replaces_the_previous_one(test: TestStore) {
    let store = &test.store;
    let rollback = |directory: &str, from: u8, why| Rollback {
        directory: directory.to_owned(),
        plugin: "text".to_owned(),
        from: digest(from),
        to: digest(1),
        why,
    };
    assert_eq!(store.rollbacks("/one").await, Ok(Vec::new()));
    store.roll_back(rollback("/one", 2, VersionEndReason::Trapped)).await.unwrap();
    store.roll_back(rollback("/two", 2, VersionEndReason::Trapped)).await.unwrap();
    store.roll_back(rollback("/one", 3, VersionEndReason::Requested)).await.unwrap();
    assert_eq!(store.rollbacks("/one").await.unwrap(), [rollback("/one", 3, VersionEndReason::Requested)]);
    assert_eq!(store.undo_rollback("/one", "text").await, Ok(true));
    assert_eq!(store.undo_rollback("/one", "text").await, Ok(false));
    assert_eq!(store.rollbacks("/one").await, Ok(Vec::new()));
    assert_eq!(store.rollbacks("/two").await.unwrap().len(), 1);
}

/// In the history, a rollback ends the use of one version and starts the use of another version at the same time.
/// Undoing the rollback ends the use of the second version and starts the use of the first version again.
pub(super) async fn rollback_updates_the_history_immediately(test: TestStore) {
    let store = &test.store;
    for byte in [1, 2] {
        store.set_serving("/one", vec![served_plugin("text", byte, VersionEndReason::Replaced)]).await.unwrap();
    }
    let (directory, plugin) = ("/one".to_owned(), "text".to_owned());
    let rollback = Rollback { directory, plugin, from: digest(2), to: digest(1), why: VersionEndReason::Requested };
    store.roll_back(rollback).await.unwrap();
    assert_eq!(store.serving("/one").await.unwrap(), [("text".to_owned(), digest(1))]);
    assert!(store.undo_rollback("/one", "text").await.unwrap());
    assert_eq!(store.serving("/one").await.unwrap(), [("text".to_owned(), digest(2))]);
    let which = VersionFilter { directory: Some("/one".into()), plugin: Some("text".into()) };
    let seen: Vec<_> = store.versions(which, 100).await.unwrap().into_iter().map(|version| version.why).collect();
    let requested = Some(VersionEndReason::Requested);
    assert_eq!(seen, [None, requested, requested, Some(VersionEndReason::Replaced)], "newest first");
}

pub(super) async fn set_serving_returns_each_change_once(test: TestStore) {
    let store = &test.store;
    let change = |plugin: &str, from: Option<u8>, to: Option<u8>| VersionChange {
        plugin: plugin.to_owned(),
        from: from.map(digest),
        to: to.map(digest),
    };
    let serve = |serving: Vec<ServedPlugin>| async move { store.set_serving("/one", serving).await.unwrap() };
    let both = |byte| {
        vec![
            served_plugin("calc", 1, VersionEndReason::Replaced),
            served_plugin("text", byte, VersionEndReason::Replaced),
        ]
    };
    assert_eq!(serve(both(2)).await, [change("calc", None, Some(1)), change("text", None, Some(2))]);
    assert_eq!(serve(both(2)).await, []);
    let now = store.serving("/one").await.unwrap();
    assert_eq!(now, [("calc".to_owned(), digest(1)), ("text".to_owned(), digest(2))]);
    assert_eq!(serve(both(3)).await, [change("text", Some(2), Some(3))]);
    assert_eq!(
        serve(vec![served_plugin("calc", 1, VersionEndReason::Replaced)]).await,
        [change("text", Some(3), None)]
    );
}

pub(super) async fn trial_totals_grow_until_the_trial_ends(test: TestStore) {
    let store = &test.store;
    let on_trial = |byte: u8, before: u8| ServedPlugin {
        trial: Some(digest(before)),
        ..served_plugin("text", byte, VersionEndReason::Replaced)
    };
    let count = |byte: u8, calls: u32, traps: u32| {
        let (directory, plugin) = ("/one".to_owned(), "text".to_owned());
        store.add_trial_calls(TrialCalls { directory, plugin, digest: digest(byte), calls, traps })
    };
    let stored = |calls: u32, traps: u32| StoredTrial {
        plugin: "text".to_owned(),
        digest: digest(2),
        before: digest(1),
        calls,
        traps,
    };
    store.set_serving("/one", vec![served_plugin("text", 1, VersionEndReason::Replaced)]).await.unwrap();
    assert_eq!(store.trials("/one").await, Ok(Vec::new()), "the first version is not on trial");
    store.set_serving("/one", vec![on_trial(2, 1)]).await.unwrap();
    assert_eq!(store.trials("/one").await.unwrap(), [stored(0, 0)]);
    assert_eq!(count(2, 3, 1).await.unwrap(), Some(stored(3, 1)));
    assert_eq!(count(2, 1, 1).await.unwrap(), Some(stored(4, 2)));
    assert_eq!(count(3, 1, 1).await.unwrap(), None, "no calls are counted for a version that is not on trial");
    store.set_serving("/one", vec![on_trial(2, 1)]).await.unwrap();
    assert_eq!(
        store.trials("/one").await.unwrap(),
        [stored(4, 2)],
        "a version that is already in use continues its trial"
    );
    if let Some(second) = &test.second {
        assert_eq!(second.trials("/one").await.unwrap(), [stored(4, 2)], "a second instance sees the trial");
    }
    assert!(store.needed_versions(1).await.unwrap().contains(&digest(1)), "the version before the trial is kept");
    store.set_serving("/one", vec![on_trial(3, 2)]).await.unwrap();
    assert_eq!(count(2, 1, 1).await.unwrap(), None, "no calls are counted for a version that is no longer used");
    assert_eq!(store.trials("/one").await.unwrap()[0].digest, digest(3));
    store.end_trial("/one", "text").await.unwrap();
    assert_eq!(store.trials("/one").await, Ok(Vec::new()));
}

/// Row 38: for each agent, the store records the components of all turns, and the plugin name of each component.
pub(super) async fn turn_plugins_are_recorded_per_agent_and_name(test: TestStore) {
    let store = &test.store;
    let component = |name: &str, byte: u8| (name.to_owned(), Digest::from_sha256([byte; 32]));
    let components = || vec![component("calc", 1), component("calc", 2), component("files", 1)];
    assert_eq!(store.plugins_without_turns("a", components()).await.unwrap(), components());
    store.record_turn_plugins("a", vec![component("calc", 1)]).await.unwrap();
    store.record_turn_plugins("a", vec![component("calc", 1), component("files", 2)]).await.unwrap();
    assert_eq!(store.plugins_without_turns("a", components()).await.unwrap(), components()[1..]);
    assert_eq!(store.plugins_without_turns("b", components()).await.unwrap(), components());
}

/// F1: where a version comes from is stored for each version of each plugin, what is stored later is added once, and the size is
/// limited.
pub(super) async fn sources_are_added_per_version(test: TestStore) {
    let store = &test.store;
    let source = |plugin: &str, byte, statements: &str| PluginSource {
        plugin: plugin.to_owned(),
        digest: digest(byte),
        statements: statements.to_owned(),
    };
    assert_eq!(store.plugin_source("calc", &digest(1)).await.unwrap(), None);
    store.record_plugin_sources(Vec::new()).await.unwrap();
    let both = vec![source("text", 1, "of text"), source("calc", 1, "one\0\u{1}ü")];
    store.record_plugin_sources(both.clone()).await.unwrap();
    store.record_plugin_sources(both).await.unwrap();
    store.record_plugin_sources(vec![source("calc", 2, "two")]).await.unwrap();
    let stored = async |plugin, byte| store.plugin_source(plugin, &digest(byte)).await.unwrap();
    assert_eq!(stored("calc", 1).await.as_deref(), Some("one\0\u{1}ü"));
    assert_eq!(stored("calc", 2).await.as_deref(), Some("two"));
    assert_eq!(stored("text", 1).await.as_deref(), Some("of text"));
    store.record_plugin_sources(vec![source("calc", 1, "moved")]).await.unwrap();
    assert_eq!(stored("calc", 1).await.as_deref(), Some("one\0\u{1}ümoved"));
    store.record_plugin_sources(vec![source("calc", 1, "ümoved")]).await.unwrap();
    assert_eq!(stored("calc", 1).await.as_deref(), Some("one\0\u{1}ümoved"), "it is known already");
    let long = "l".repeat(65_500);
    store.record_plugin_sources(vec![source("calc", 1, &long)]).await.unwrap();
    store.record_plugin_sources(vec![source("calc", 1, &"m".repeat(100))]).await.unwrap();
    assert_eq!(stored("calc", 1).await, Some("m".repeat(100)), "instead of what would be too long");
    store.record_plugin_sources(vec![source("calc", 3, &"n".repeat(70_000))]).await.unwrap();
    assert_eq!(stored("calc", 3).await, None, "too long to be read");
    assert_eq!(stored("text", 2).await, None);
}
