//! Media and large parts in an object store (F1, decision 0155).

use super::clients::{connect, database_of, parsed};
use super::s3::{S3, s3};
use super::s3_proxy::{self, Mode, SECRET};
use super::server::{Server, shared};
use super::{append, open};
use agent_core::message::Media;
use agent_store::{
    Blobs, Commit, Integrity, MediaDescription, PostgresOptions, PostgresStore, SessionLog, StoreError, digest_of,
};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A database and a bucket for one test.
struct Place {
    server: &'static Server,
    s3: &'static S3,
    address: String,
    bucket: String,
}

impl Place {
    async fn new() -> Option<Self> {
        let (server, s3) = (shared()?, s3()?);
        Some(Self { server, s3, address: server.new_database().await, bucket: s3.new_bucket() })
    }

    fn options(&self) -> PostgresOptions {
        let object_store = Some(self.s3.address(&self.bucket));
        PostgresOptions { connections: 4, object_store, max_wait: Duration::from_secs(5), ..PostgresOptions::default() }
    }

    async fn open(&self) -> PostgresStore {
        self.open_with(self.options()).await.unwrap()
    }

    async fn open_with(&self, options: PostgresOptions) -> Result<PostgresStore, StoreError> {
        PostgresStore::open(parsed(&self.address), options).await
    }

    async fn number(&self, sql: &str) -> i64 {
        connect(&self.address).await.query_one(sql, &[]).await.unwrap().get(0)
    }

    async fn keys(&self) -> Vec<String> {
        self.s3.keys(&self.bucket)
    }

    /// Lets the time in which unused objects are kept end.
    async fn let_time_pass(&self) {
        self.server.execute(database_of(&self.address), "UPDATE unused_objects SET due = 0").await;
    }
}

fn large(seed: u8) -> Vec<u8> {
    (0..200_000_u32).map(|number| (number % 251) as u8 ^ seed).collect()
}

async fn put(store: &PostgresStore, session: &str, bytes: Vec<u8>) -> Result<Media, StoreError> {
    let about = MediaDescription { mime_type: "image/png".to_owned(), ..MediaDescription::default() };
    store.put(session, bytes, about).await
}

/// Reads a whole media item. A failure does not print the bytes.
async fn expect_bytes(store: &PostgresStore, (session, media): (&str, &Media), expected: &[u8]) {
    let found =
        store.read(session, &media.digest, 0, u32::MAX).await.unwrap_or_else(|error| panic!("{session}: {error}"));
    assert!(found == expected, "{session}: the bytes are other ones");
}

async fn session(store: &PostgresStore, name: &str) {
    let opened = open(store, name).await;
    store.release(opened.lease).await.unwrap();
}

/// F1: large media and texts are objects, small ones stay in the database, and equal bytes are stored once. Objects to which nothing
/// refers are deleted after an hour.
#[tokio::test(flavor = "multi_thread")]
async fn f1_large_media_and_texts_are_objects_until_nothing_refers_to_them() {
    let Some(place) = Place::new().await else { return };
    let (one, two) = (place.open().await, place.open().await);
    for name in ["a", "b"] {
        session(&one, name).await;
    }
    let media = put(&one, "a", large(1)).await.unwrap();
    put(&two, "b", large(1)).await.unwrap();
    put(&two, "b", b"small".to_vec()).await.unwrap();
    let opened = open(&one, "a").await;
    let text = "long ".repeat(20_000);
    let texts = vec![text.clone(), "short".to_owned()];
    one.commit(&opened.lease, 0, Commit { texts, ..append(1, "one") }).await.unwrap();
    one.release(opened.lease).await.unwrap();
    assert_eq!(place.keys().await.len(), 2);
    assert_eq!(place.number("SELECT count(*) FROM blobs WHERE object IS NOT NULL").await, 2);
    assert_eq!(place.number("SELECT count(*) FROM blob_parts").await, 2);
    assert_eq!(place.number("SELECT count(*) FROM unused_objects").await, 0);
    assert_eq!(two.text("a", &digest_of(text.as_bytes())).await, Ok(text));
    assert_eq!(two.read("b", &media.digest, 100, 7).await.as_deref(), Ok(&large(1)[100..107]));
    expect_bytes(&two, ("a", &media), &large(1)).await;
    one.integrity_check().await.unwrap();

    one.delete("a").await.unwrap();
    assert_eq!(two.collect_objects().await.unwrap().deleted, 0, "nothing is deleted in the first hour");
    place.let_time_pass().await;
    assert_eq!(two.collect_objects().await.unwrap().deleted, 1, "the text");
    expect_bytes(&two, ("b", &media), &large(1)).await;
    two.delete("b").await.unwrap();
    place.let_time_pass().await;
    assert_eq!(one.collect_objects().await.unwrap().deleted, 1);
    assert_eq!(place.keys().await, Vec::<String>::new());
}

/// F1: sessions that write and delete the same bytes while objects are collected lose nothing, and leave nothing behind.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn f1_collection_never_takes_bytes_that_are_written_again() {
    let Some(place) = Place::new().await else { return };
    let place = Arc::new(place);
    let done = Arc::new(AtomicBool::new(false));
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..4 {
        let place = place.clone();
        writers.spawn(async move {
            let store = place.open().await;
            for round in 0..25_u8 {
                let name = format!("{writer}/{round}");
                session(&store, &name).await;
                // Two different byte strings, so that writers often write the same one.
                let bytes = large(round % 2);
                let media = put(&store, &name, bytes.clone()).await.unwrap();
                tokio::time::sleep(Duration::from_millis(u64::from(round % 5) * 7)).await;
                expect_bytes(&store, (&name, &media), &bytes).await;
                store.delete(&name).await.unwrap();
            }
        });
    }
    let collector = tokio::spawn({
        let (place, done) = (place.clone(), done.clone());
        async move {
            let (store, mut deleted) = (place.open().await, 0);
            while !done.load(Ordering::SeqCst) {
                // Objects that were written a moment ago are taken, too.
                place.let_time_pass().await;
                deleted += store.collect_objects().await.unwrap().deleted;
            }
            deleted
        }
    });
    while let Some(writer) = writers.join_next().await {
        writer.unwrap();
    }
    done.store(true, Ordering::SeqCst);
    assert!(collector.await.unwrap() > 10, "the collection ran at the same time");
    let store = place.open().await;
    place.let_time_pass().await;
    store.collect_objects().await.unwrap();
    assert_eq!((place.keys().await, place.number("SELECT count(*) FROM blobs").await), (Vec::new(), 0));
}

const KILLED: &str = "AGENT_STORE_TEST_KILLED_UPLOAD";

/// Runs in the process that is killed: writes an object, and never learns that it is written.
async fn upload_until_killed(arguments: &str) {
    let words: Vec<&str> = arguments.split(' ').collect();
    let object_store = Some(s3_proxy::address(words[1], words[2].parse().unwrap()));
    let options = PostgresOptions { object_store, ..PostgresOptions::default() };
    let store = PostgresStore::open(parsed(words[0]), options).await.unwrap();
    put(&store, "s", large(3)).await.unwrap();
}

/// D6, limit 27: a process that is killed between the object and the commit leaves an object that is deleted later, and nothing else.
#[tokio::test(flavor = "multi_thread")]
async fn d6_kill_between_object_and_commit_leaves_an_object_that_is_deleted() {
    if let Ok(arguments) = std::env::var(KILLED) {
        return upload_until_killed(&arguments).await;
    }
    let Some(place) = Place::new().await else { return };
    let store = place.open().await;
    session(&store, "s").await;
    let proxy = place.s3.proxy().await;
    proxy.set(Mode::LoseAnswers);
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["objects::d6_kill_between_object_and_commit_leaves_an_object_that_is_deleted", "--exact"])
        .env(KILLED, format!("{} {} {}", place.address, place.bucket, proxy.port()))
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    while place.keys().await.is_empty() {
        assert!(Instant::now() < until, "the object is not written");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(place.number("SELECT count(*) FROM blobs").await, 0);
    assert_eq!(place.number("SELECT count(*) FROM unused_objects WHERE NOT doomed").await, 1);
    // The same bytes are written again, with another name.
    let media = put(&store, "s", large(3)).await.unwrap();
    place.let_time_pass().await;
    assert_eq!(store.collect_objects().await.unwrap().deleted, 1);
    assert_eq!(place.keys().await.len(), 1);
    expect_bytes(&store, ("s", &media), &large(3)).await;
}

/// F1: an upload whose object was collected, because its process was paused, is repeated before a transaction refers to it.
#[tokio::test(flavor = "multi_thread")]
async fn f1_late_commit_writes_a_collected_object_again() {
    let Some(place) = Place::new().await else { return };
    let store = Arc::new(place.open().await);
    session(&store, "s").await;
    // The session is locked, so that the transaction waits after the upload.
    let blocker = connect(&place.address).await;
    blocker.batch_execute("BEGIN; SELECT 1 FROM sessions WHERE session = 's' FOR UPDATE").await.unwrap();
    let late = tokio::spawn({
        let store = store.clone();
        async move { put(&store, "s", large(4)).await }
    });
    let until = Instant::now() + Duration::from_secs(30);
    while place.keys().await.is_empty() {
        assert!(Instant::now() < until, "the object is not written");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    place.let_time_pass().await;
    assert_eq!(store.collect_objects().await.unwrap().deleted, 1);
    assert_eq!(place.keys().await, Vec::<String>::new());
    blocker.batch_execute("COMMIT").await.unwrap();
    let media = late.await.unwrap().unwrap();
    expect_bytes(&store, ("s", &media), &large(4)).await;
    assert_eq!(place.keys().await.len(), 1);
}

/// F1: objects of which the database does not know are found and deleted, and objects of other programs are left alone.
#[tokio::test(flavor = "multi_thread")]
async fn f1_unknown_objects_are_found_and_foreign_objects_are_kept() {
    let Some(place) = Place::new().await else { return };
    let store = place.open().await;
    session(&store, "s").await;
    let media = put(&store, "s", large(5)).await.unwrap();
    let key = place.keys().await.pop().unwrap();
    let unknown = format!("{}{}", &key[..key.len() - 32], "0".repeat(32));
    let folder = key.split('/').nth(1).unwrap();
    // The last one is escaped in a list, and would come before itself if it were read as it is written there.
    let foreign = [
        "notes.txt".to_owned(),
        "agents/other/notes".to_owned(),
        format!("agents/{folder}/notes"),
        format!("agents/{folder}/zz<x&y"),
    ];
    for key in foreign.iter().chain([&unknown]) {
        place.s3.write(&place.bucket, key, b"bytes").await;
    }
    let found = tokio::time::timeout(Duration::from_secs(60), store.collect_objects()).await.expect("it ends").unwrap();
    assert_eq!((found.found, found.deleted), (1, 0));
    place.let_time_pass().await;
    let deleted = store.collect_objects().await.unwrap();
    assert_eq!((deleted.found, deleted.deleted), (0, 1));
    let in_list = |key: String| key.replace('&', "&amp;").replace('<', "&lt;");
    let mut expected: Vec<String> = foreign.into_iter().map(in_list).chain([key]).collect();
    expected.sort();
    let mut kept = place.keys().await;
    kept.sort();
    assert_eq!(kept, expected);
    expect_bytes(&store, ("s", &media), &large(5)).await;
}

/// F1: all processes of a database use one object store.
#[tokio::test(flavor = "multi_thread")]
async fn f1_a_database_has_one_object_store() {
    let Some(place) = Place::new().await else { return };
    let without = PostgresOptions { object_store: None, ..place.options() };
    let early = place.open_with(without.clone()).await.unwrap();
    session(&early, "s").await;
    assert_eq!(PostgresStore::object_store_of(parsed(&place.address), without.clone()).await, Ok(None));
    let missing = PostgresOptions { object_store: Some(place.s3.address("no-such-bucket")), ..place.options() };
    let error = place.open_with(missing).await.err().expect("the bucket is missing").to_string();
    assert!(error.contains("s3://no-such-bucket/agents") && error.contains("check the name of the bucket"), "{error}");

    let store = place.open().await;
    let media = put(&store, "s", large(6)).await.unwrap();
    // A process that was started before the first one with an object store says what to do.
    let error = early.read("s", &media.digest, 0, 9).await.unwrap_err().to_string();
    let named = format!("s3://{}/agents", place.bucket);
    assert!(error.contains(&named) && error.contains("--media-store"), "{error}");
    let other = PostgresOptions { object_store: Some(place.s3.address(&place.s3.new_bucket())), ..place.options() };
    for options in [without.clone(), other] {
        let refused = place.open_with(options.clone()).await.err();
        assert!(
            matches!(&refused, Some(StoreError::OtherObjectStore { registered, .. }) if *registered == named),
            "{refused:?}"
        );
        let refused = PostgresStore::examine(parsed(&place.address), options).await;
        assert!(matches!(refused, Err(StoreError::OtherObjectStore { .. })), "{refused:?}");
    }
    assert_eq!(PostgresStore::object_store_of(parsed(&place.address), without).await, Ok(Some(named)));
    assert!(PostgresStore::examine(parsed(&place.address), place.options()).await.is_ok());
    place.s3.address(&place.bucket).check().await.unwrap();
}

/// F1: a missing, truncated or changed object is named, and nothing is returned.
#[tokio::test(flavor = "multi_thread")]
async fn f1_damaged_objects_are_named() {
    let Some(place) = Place::new().await else { return };
    let store = place.open().await;
    session(&store, "s").await;
    let media = put(&store, "s", large(7)).await.unwrap();
    let text = store.put_text("s", "x".repeat(70_000)).await.unwrap();
    let keys = place.keys().await;
    for replaced in [Some(&b"short"[..]), Some(large(8).leak()), None] {
        for key in &keys {
            match replaced {
                Some(bytes) => place.s3.write(&place.bucket, key, bytes).await,
                None => place.s3.delete(&place.bucket, key).await,
            }
        }
        for error in [
            store.read("s", &media.digest, 0, u32::MAX).await.map(drop).unwrap_err(),
            store.text("s", &text).await.map(drop).unwrap_err(),
            store.integrity_check().await.unwrap_err(),
        ] {
            let shown = error.to_string();
            assert!(
                matches!(&error, StoreError::DamagedObject { store, .. } if store.contains(&place.bucket))
                    || matches!(&error, StoreError::Damaged { .. }),
                "{shown}"
            );
        }
    }
    let part = store.read("s", &media.digest, 0, 9).await.unwrap_err();
    assert!(part.to_string().contains("is missing"), "{part}");
}

/// F1: while the object store is down, refuses access, or does not answer, operations fail in time with an error that names it and
/// contains no secret. Nothing is stored, and everything works again afterwards.
#[tokio::test(flavor = "multi_thread")]
async fn f1_failing_object_store_is_named_and_nothing_is_lost() {
    let Some(place) = Place::new().await else { return };
    let proxy = place.s3.proxy().await;
    let object_store = Some(proxy.address(&place.bucket));
    let options = PostgresOptions { object_store, max_wait: Duration::from_secs(1), ..place.options() };
    let store = place.open_with(options).await.unwrap();
    session(&store, "s").await;
    let media = put(&store, "s", large(9)).await.unwrap();
    let opened = open(&store, "s").await;
    let modes = [
        (Mode::Close, "check AWS_ENDPOINT_URL"),
        (Mode::Answer(500, "InternalError"), "500 InternalError"),
        (Mode::Answer(403, "AccessDenied"), "AWS_SECRET_ACCESS_KEY"),
        (Mode::Answer(301, "PermanentRedirect"), "AWS_REGION"),
        (Mode::Hang, "did not answer within 20 seconds"),
    ];
    for (mode, advice) in modes {
        proxy.set(mode);
        let commit = Commit { texts: vec!["y".repeat(70_000)], ..append(1, "not stored") };
        let begun = Instant::now();
        let (read, written, committed) = tokio::join!(
            store.read("s", &media.digest, 0, 9),
            put(&store, "s", large(10)),
            store.commit(&opened.lease, 0, commit)
        );
        assert!(begun.elapsed() < Duration::from_secs(60), "{mode:?}");
        for error in [read.unwrap_err(), written.unwrap_err(), committed.unwrap_err()] {
            let shown = error.to_string();
            assert!(shown.contains(&format!("s3://{}/agents", place.bucket)) && shown.contains(advice), "{shown}");
            assert!(!format!("{shown} {error:?}").contains(SECRET), "{shown}");
        }
        // Small media do not need the object store.
        put(&store, "s", b"small".to_vec()).await.unwrap();
    }
    proxy.set(Mode::Pass);
    expect_bytes(&store, ("s", &media), &large(9)).await;
    let commit = Commit { texts: vec!["y".repeat(70_000)], ..append(1, "stored") };
    assert_eq!(store.commit(&opened.lease, 0, commit).await, Ok(1));
    assert_eq!(store.text("s", &digest_of(&[b'y'; 70_000])).await.map(|text| text.len()), Ok(70_000));
}

/// D6: an object whose answer was lost is written again, and a short failure is not noticed.
#[tokio::test(flavor = "multi_thread")]
async fn d6_operations_wait_while_the_object_store_fails_for_a_moment() {
    let Some(place) = Place::new().await else { return };
    let proxy = place.s3.proxy().await;
    let options = PostgresOptions { object_store: Some(proxy.address(&place.bucket)), ..place.options() };
    let store = place.open_with(options).await.unwrap();
    session(&store, "s").await;
    for mode in [Mode::LoseAnswers, Mode::Answer(503, "SlowDown"), Mode::Close] {
        proxy.set(mode);
        let recover = async {
            tokio::time::sleep(Duration::from_millis(1500)).await;
            proxy.set(Mode::Pass);
        };
        let (written, ()) = tokio::join!(put(&store, "s", large(11)), recover);
        let media = written.unwrap();
        expect_bytes(&store, ("s", &media), &large(11)).await;
        store.delete("s").await.unwrap();
        session(&store, "s").await;
    }
    place.let_time_pass().await;
    store.collect_objects().await.unwrap();
    assert_eq!(place.keys().await, Vec::<String>::new());
}
