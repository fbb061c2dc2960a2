//! P10: which versions of plugins have served is kept, with why each ended, and what was taken back.

use super::Place;
use crate::{PluginVersion, Rollback, ServedPlugin, Store, VersionEnd, VersionFilter};
use agent_core::message::Digest;
use std::sync::Arc;

fn digest(byte: u8) -> Digest {
    Digest::from_sha256([byte; 32])
}

fn served(plugin: &str, byte: u8, instead: VersionEnd) -> ServedPlugin {
    ServedPlugin { plugin: plugin.to_owned(), digest: digest(byte), origin: format!("{plugin}.wasm"), instead }
}

async fn all(store: &Arc<dyn Store>, plugin: Option<&str>) -> Vec<PluginVersion> {
    let which = VersionFilter { directory: None, plugin: plugin.map(str::to_owned) };
    store.versions(which, 100).await.unwrap()
}

pub(super) async fn versions_begin_and_end(place: Place) {
    let store = &place.store;
    let both = |byte: u8, why| vec![served("calc", 1, VersionEnd::Replaced), served("text", byte, why)];
    for _ in 0..2 {
        store.serve("/one", both(2, VersionEnd::Replaced)).await.unwrap();
    }
    assert_eq!(all(store, None).await.len(), 2, "what serves goes on");
    store.serve("/two", both(2, VersionEnd::Replaced)).await.unwrap();
    store.serve("/one", both(3, VersionEnd::Replaced)).await.unwrap();
    store.serve("/one", both(2, VersionEnd::Trapped)).await.unwrap();
    store.serve("/one", vec![served("calc", 1, VersionEnd::Replaced)]).await.unwrap();
    let which = VersionFilter { directory: Some("/one".into()), plugin: Some("text".into()) };
    let text = store.versions(which, 100).await.unwrap();
    let seen: Vec<_> = text.iter().map(|version| (version.digest.clone(), version.why)).collect();
    let expected = [
        (digest(2), Some(VersionEnd::Removed)),
        (digest(3), Some(VersionEnd::Trapped)),
        (digest(2), Some(VersionEnd::Replaced)),
    ];
    assert_eq!(seen, expected, "the latest first");
    assert!(text.iter().all(|version| version.ended.is_some() && version.began.ends_with('Z')));
    let needed = |last| async move { store.needed_versions(last).await.unwrap() };
    assert_eq!(needed(1).await, [digest(1), digest(2)], "what serves, and the last of each");
    assert_eq!(needed(2).await, [digest(1), digest(2), digest(3)]);
    let calc = all(store, Some("calc")).await;
    assert_eq!(calc.len(), 2);
    assert!(calc.iter().all(|version| version.ended.is_none() && version.why.is_none()));
    if let Some(another) = &place.another {
        assert_eq!(all(another, Some("calc")).await, calc, "another process finds them, too");
    }
}

pub(super) async fn a_plugin_is_taken_back_once(place: Place) {
    let store = &place.store;
    let rollback = |directory: &str, from: u8, why| Rollback {
        directory: directory.to_owned(),
        plugin: "text".to_owned(),
        from: digest(from),
        to: digest(1),
        why,
    };
    assert_eq!(store.rollbacks("/one").await, Ok(Vec::new()));
    store.roll_back(rollback("/one", 2, VersionEnd::Trapped)).await.unwrap();
    store.roll_back(rollback("/two", 2, VersionEnd::Trapped)).await.unwrap();
    store.roll_back(rollback("/one", 3, VersionEnd::Asked)).await.unwrap();
    assert_eq!(store.rollbacks("/one").await.unwrap(), [rollback("/one", 3, VersionEnd::Asked)]);
    assert_eq!(store.undo_rollback("/one", "text").await, Ok(true));
    assert_eq!(store.undo_rollback("/one", "text").await, Ok(false));
    assert_eq!(store.rollbacks("/one").await, Ok(Vec::new()));
    assert_eq!(store.rollbacks("/two").await.unwrap().len(), 1);
}
