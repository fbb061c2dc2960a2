//! D4: what is remembered of a user is found by its words, listed and forgotten.

use super::Place;
use crate::{MAX_MEMORY_BYTES, Memory, MemoryKind, StoreError};

fn memory(user: &str, text: &str) -> Memory {
    Memory {
        user: user.to_owned(),
        kind: MemoryKind::Final,
        session: "s".to_owned(),
        text: text.to_owned(),
        written: None,
    }
}

pub(super) async fn nearest_first_and_only_the_users(place: Place) {
    let store = &place.store;
    let texts = [
        ("m1", "ann", "The harbour of Hamburg opens at six"),
        ("m2", "ann", "Ann prefers tea"),
        ("m3", "ann", "Tea from the harbour shop, Earl Grey tea"),
        ("m4", "bob", "Bob drinks tea in the harbour"),
    ];
    for (id, user, text) in texts {
        store.add(id, memory(user, text)).await.unwrap();
    }
    let found = store.search("ann", "When does the HARBOUR of hamburg open? \"tea", 10).await.unwrap();
    let ids: Vec<_> = found.iter().map(|recollection| recollection.id.as_str()).collect();
    assert_eq!(ids.first(), Some(&"m1"), "{found:?}");
    assert!(!ids.contains(&"m4"), "{found:?}");
    assert!(found.is_sorted_by(|left, right| left.score >= right.score), "{found:?}");
    assert!(found.iter().all(|recollection| (0.0..=1.0).contains(&recollection.score)), "{found:?}");
    assert!(found[0].written.ends_with('Z'), "{found:?}");
    assert_eq!(store.search("ann", "tea", 1).await.unwrap().len(), 1);
    assert_eq!(store.search("ann", "?!\0 \"", 10).await.unwrap(), []);
    assert_eq!(store.search("nobody", "tea", 10).await.unwrap(), []);
}

pub(super) async fn adding_twice_and_forgetting(place: Place) {
    let store = &place.store;
    store.add("m", memory("ann", "first walrus")).await.unwrap();
    store.add("m", memory("ann", "second walrus")).await.unwrap();
    let found = store.search("ann", "walrus", 10).await.unwrap();
    assert!(found.iter().map(|recollection| recollection.text.as_str()).eq(["first walrus"]), "{found:?}");
    assert_eq!(store.forget("bob", "m").await, Ok(false), "it is not his");
    assert_eq!(store.search("ann", "walrus", 10).await.unwrap().len(), 1);
    assert_eq!(store.forget("ann", "m").await, Ok(true));
    assert_eq!(store.forget("ann", "m").await, Ok(false));
    assert_eq!(store.search("ann", "walrus", 10).await.unwrap(), []);
    store.add("m", memory("ann", "third walrus")).await.unwrap();
    assert_eq!(store.search("ann", "walrus", 10).await.unwrap().len(), 1);
    let large = store.add("large", memory("ann", &"x".repeat(MAX_MEMORY_BYTES + 1))).await;
    assert!(matches!(large, Err(StoreError::TooLarge { .. })), "{large:?}");
}

pub(super) async fn pages_newest_first(place: Place) {
    let store = &place.store;
    for (id, time) in [("b", "2026-05-02T00:00:00Z"), ("a", "2026-05-01T02:00:00+02:00"), ("c", "2026-05-03T00:00:00Z")]
    {
        let written = Some(time.to_owned());
        store.add(id, Memory { written, kind: MemoryKind::Tool, ..memory("ann", id) }).await.unwrap();
    }
    store.add("d", memory("bob", "other")).await.unwrap();
    let all = store.list("ann", "", 10).await.unwrap();
    assert!(all.iter().map(|fact| fact.id.as_str()).eq(["c", "b", "a"]), "{all:?}");
    assert_eq!(all[2].memory.written.as_deref(), Some("2026-05-01T00:00:00Z"));
    assert_eq!(all[2].memory.kind, MemoryKind::Tool);
    let page = store.list("ann", "c", 1).await.unwrap();
    assert!(page.iter().map(|fact| fact.id.as_str()).eq(["b"]), "{page:?}");
    let timeless = store.add("e", Memory { written: Some("yesterday".to_owned()), ..memory("ann", "x") }).await;
    assert!(matches!(timeless, Err(StoreError::Invalid { .. })), "{timeless:?}");
}
