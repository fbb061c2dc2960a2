//! D4: a user's memories can be searched by their words, listed and removed.

use super::TestStore;
use crate::{
    Deletion, MAX_MEMORY_BYTES, Memory, MemoryFilter, MemoryKind, MemoryScope, OpenMode, SessionMeta, StoreError,
};

fn memory(user: &str, text: &str) -> Memory {
    Memory {
        user: user.to_owned(),
        kind: MemoryKind::Final,
        agent: "a".to_owned(),
        session: "s".to_owned(),
        turn: 1,
        text: text.to_owned(),
        project: None,
        written: None,
    }
}

pub(super) async fn search_ranks_the_memories_of_one_user(test: TestStore) {
    let store = &test.store;
    let texts = [
        ("m1", "ann", "The harbour of Hamburg opens at six"),
        ("m2", "ann", "Ann prefers tea"),
        ("m3", "ann", "Tea from the harbour shop, Earl Grey tea"),
        ("m4", "bob", "Bob drinks tea in the harbour"),
    ];
    for (id, user, text) in texts {
        store.add(id, memory(user, text)).await.unwrap();
    }
    let found =
        store.search(&MemoryFilter::of_user("ann"), "When does the HARBOUR of hamburg open? \"tea", 10).await.unwrap();
    let ids: Vec<_> = found.iter().map(|recollection| recollection.id.as_str()).collect();
    assert_eq!(ids.first(), Some(&"m1"), "{found:?}");
    assert!(!ids.contains(&"m4"), "{found:?}");
    assert!(found.is_sorted_by(|left, right| left.score >= right.score), "{found:?}");
    assert!(found.iter().all(|recollection| (0.0..=1.0).contains(&recollection.score)), "{found:?}");
    assert!(found[0].written.ends_with('Z'), "{found:?}");
    assert_eq!(store.search(&MemoryFilter::of_user("ann"), "tea", 1).await.unwrap().len(), 1);
    assert_eq!(store.search(&MemoryFilter::of_user("ann"), "?!\0 \"", 10).await.unwrap(), []);
    assert_eq!(store.search(&MemoryFilter::of_user("nobody"), "tea", 10).await.unwrap(), []);
}

/// D4: an old memory with a rare word is found, however many newer memories contain the common words of the query.
pub(super) async fn rare_words_find_old_memories(test: TestStore) {
    let store = &test.store;
    store.add("old", memory("ann", "Where is the zeppelin? The zeppelin is in the hangar.")).await.unwrap();
    for number in 0..450 {
        // The second word is common in the first 450 memories, but not in the newest 200.
        let pier = if number < 250 { "at the pier" } else { "" };
        store.add(&format!("m{number}"), memory("ann", &format!("Where is the boat {number} {pier}?"))).await.unwrap();
    }
    let query = "Where is the zeppelin at the pier?";
    let found = store.search(&MemoryFilter::of_user("ann"), query, 5).await.unwrap();
    let ids: Vec<_> = found.iter().map(|recollection| recollection.id.as_str()).collect();
    assert!(ids.len() == 5 && ids[..2].contains(&"old"), "{found:?}");
}

pub(super) async fn add_is_idempotent_and_forget_removes(test: TestStore) {
    let store = &test.store;
    store.add("m", memory("ann", "first walrus")).await.unwrap();
    store.add("m", memory("ann", "second walrus")).await.unwrap();
    let found = store.search(&MemoryFilter::of_user("ann"), "walrus", 10).await.unwrap();
    assert!(found.iter().map(|recollection| recollection.text.as_str()).eq(["first walrus"]), "{found:?}");
    assert_eq!(store.forget("bob", "m").await, Ok(false), "the memory belongs to another user");
    assert_eq!(store.search(&MemoryFilter::of_user("ann"), "walrus", 10).await.unwrap().len(), 1);
    assert_eq!(store.forget("ann", "m").await, Ok(true));
    assert_eq!(store.forget("ann", "m").await, Ok(false));
    assert_eq!(store.search(&MemoryFilter::of_user("ann"), "walrus", 10).await.unwrap(), []);
    store.add("m", memory("ann", "third walrus")).await.unwrap();
    assert_eq!(store.search(&MemoryFilter::of_user("ann"), "walrus", 10).await.unwrap().len(), 1);
    let large = store.add("large", memory("ann", &"x".repeat(MAX_MEMORY_BYTES + 1))).await;
    assert!(matches!(large, Err(StoreError::TooLarge { .. })), "{large:?}");
}

pub(super) async fn memories_are_listed_newest_first(test: TestStore) {
    let store = &test.store;
    for (id, time) in [("b", "2026-05-02T00:00:00Z"), ("a", "2026-05-01T02:00:00+02:00"), ("c", "2026-05-03T00:00:00Z")]
    {
        let written = Some(time.to_owned());
        store.add(id, Memory { written, kind: MemoryKind::Tool, ..memory("ann", id) }).await.unwrap();
    }
    store.add("d", memory("bob", "other")).await.unwrap();
    let listed = store.list("ann", "", 10).await.unwrap();
    assert!(listed.iter().map(|fact| fact.id.as_str()).eq(["c", "b", "a"]), "{listed:?}");
    assert_eq!(listed[2].memory.written.as_deref(), Some("2026-05-01T00:00:00Z"));
    assert_eq!(listed[2].memory.kind, MemoryKind::Tool);
    let page = store.list("ann", "c", 1).await.unwrap();
    assert!(page.iter().map(|fact| fact.id.as_str()).eq(["b"]), "{page:?}");
    let invalid_time = store.add("e", Memory { written: Some("yesterday".to_owned()), ..memory("ann", "x") }).await;
    assert!(matches!(invalid_time, Err(StoreError::Invalid { .. })), "{invalid_time:?}");
}

/// D4: a search can be limited to the memories of one project. Memories of no project are found, too.
pub(super) async fn search_respects_the_project(test: TestStore) {
    let store = &test.store;
    for (id, project) in [("m1", Some("/a")), ("m2", Some("/b")), ("m3", None)] {
        let project = project.map(str::to_owned);
        store.add(id, Memory { project, ..memory("ann", "a walrus") }).await.unwrap();
    }
    let found = async |project: Option<&str>| {
        let filter = MemoryFilter { project: project.map(str::to_owned), ..MemoryFilter::of_user("ann") };
        let found = store.search(&filter, "walrus", 10).await.unwrap();
        let mut ids: Vec<String> = found.into_iter().map(|recollection| recollection.id).collect();
        ids.sort();
        ids.join(" ")
    };
    assert_eq!(found(Some("/a")).await, "m1 m3");
    assert_eq!(found(Some("/c")).await, "m3");
    assert_eq!(found(None).await, "m1 m2 m3");
    let listed = store.list("ann", "", 10).await.unwrap();
    let project_of = |id: &str| listed.iter().find(|stored| stored.id == id).unwrap().memory.project.clone();
    assert_eq!((project_of("m2").as_deref(), project_of("m3")), (Some("/b"), None));
}

/// D4: a memory that was made from a tool call is found only by the agent that made the memory. A search can exclude
/// the memories of one session.
pub(super) async fn search_respects_the_memory_scope(test: TestStore) {
    let store = &test.store;
    let made = [
        ("a1", "a", MemoryKind::Tool, "s1"),
        ("a2", "a", MemoryKind::Final, "s2"),
        ("b1", "b", MemoryKind::Tool, "s3"),
        ("b2", "b", MemoryKind::Final, "s3"),
        ("b3", "b", MemoryKind::Limit, "s4"),
    ];
    for (id, agent, kind, session) in made {
        let (agent, session) = (agent.to_owned(), session.to_owned());
        store.add(id, Memory { agent, kind, session, ..memory("ann", "a walrus") }).await.unwrap();
    }
    let found = async |scope: MemoryScope, excluded_session: Option<&str>| {
        let filter = MemoryFilter {
            scope,
            excluded_session: excluded_session.map(str::to_owned),
            ..MemoryFilter::of_user("ann")
        };
        let found = store.search(&filter, "walrus", 10).await.unwrap();
        let mut ids: Vec<String> = found.into_iter().map(|recollection| recollection.id).collect();
        ids.sort();
        ids.join(" ")
    };
    let a = || "a".to_owned();
    assert_eq!(found(MemoryScope::AllAgents, None).await, "a1 a2 b1 b2 b3");
    assert_eq!(found(MemoryScope::AllAgents, Some("s3")).await, "a1 a2 b3");
    assert_eq!(found(MemoryScope::OwnAndOtherResults(a()), None).await, "a1 a2 b2 b3");
    assert_eq!(found(MemoryScope::OwnAndOtherResults(a()), Some("s1")).await, "a2 b2 b3");
    assert_eq!(found(MemoryScope::OwnOnly(a()), None).await, "a1 a2");
    assert_eq!(found(MemoryScope::OwnOnly("c".to_owned()), None).await, "");
    let listed = store.list("ann", "", 1).await.unwrap().remove(0).memory;
    assert_eq!((listed.agent.as_str(), listed.turn), ("b", 1));
}

/// D4, D5: undoing a turn removes the memories of the turn, and deleting a session removes the memories of the session.
pub(super) async fn memories_are_removed_with_their_turn_or_session(test: TestStore) {
    let store = &test.store;
    let opened = store.open("s", OpenMode::CreateNew, SessionMeta::default()).await.unwrap();
    store.release(opened.lease).await.unwrap();
    for (id, session, turn) in [("s/1", "s", 1), ("s/2", "s", 2), ("s/12", "s", 12), ("t/2", "t", 2)] {
        store.add(id, Memory { session: session.to_owned(), turn, ..memory("ann", "a walrus") }).await.unwrap();
    }
    let ids = async || {
        let found = store.search(&MemoryFilter::of_user("ann"), "walrus", 10).await.unwrap();
        let mut ids: Vec<String> = found.into_iter().map(|recollection| recollection.id).collect();
        ids.sort();
        assert_eq!(
            store.list("ann", "", 10).await.unwrap().len(),
            ids.len(),
            "the list contains as many memories as the search found"
        );
        ids.join(" ")
    };
    assert_eq!(store.forget_turn("s", 2).await, Ok(1));
    assert_eq!(store.forget_turn("s", 2).await, Ok(0));
    assert_eq!(ids().await, "s/1 s/12 t/2");
    assert_eq!(store.delete("s").await, Ok(Deletion { memories: 2 }));
    assert_eq!(ids().await, "t/2");
}
