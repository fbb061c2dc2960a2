//! D1: equal bytes are stored once. The bytes are visible to each session that stored them, and can be read in ranges.

use super::{SessionWriter, TestStore};
use crate::{BlobReference, Commit, MediaDescription, StoreError, digest_of};
use agent_core::message::{Dimensions, Media};

fn image_description(name: &str) -> MediaDescription {
    MediaDescription {
        mime_type: "image/png".to_owned(),
        dimensions: Some(Dimensions { width: 3, height: 2 }),
        name: Some(name.to_owned()),
    }
}

pub(super) async fn blob_is_visible_only_to_sessions_that_stored_it(test: TestStore) {
    let store = &test.store;
    for session in ["one", "two"] {
        SessionWriter::new(store, session).await.release().await;
    }
    let media = store.put("one", b"pixels".to_vec(), image_description("a.png")).await.unwrap();
    let expected = Media {
        digest: digest_of(b"pixels"),
        mime_type: "image/png".to_owned(),
        size: 6,
        dimensions: Some(Dimensions { width: 3, height: 2 }),
        name: Some("a.png".to_owned()),
    };
    assert_eq!(media, expected);
    assert_eq!(store.media("one", &media.digest).await, Ok(Some(media.clone())));
    assert_eq!(store.media("two", &media.digest).await, Ok(None));
    let unseen = StoreError::NoBlob { digest: media.digest.clone() };
    assert_eq!(store.read("two", &media.digest, 0, 9).await, Err(unseen));

    let same_bytes = store.put("two", b"pixels".to_vec(), image_description("b.png")).await.unwrap();
    assert_eq!(same_bytes, Media { name: Some("b.png".to_owned()), ..media.clone() });
    assert_eq!(store.media("one", &media.digest).await, Ok(Some(media.clone())));
    assert_eq!(store.read("two", &media.digest, 0, 9).await.as_deref(), Ok(b"pixels".as_slice()));
    let untyped = store.put("one", vec![0], MediaDescription::default()).await;
    assert!(matches!(untyped, Err(StoreError::Invalid { .. })), "{untyped:?}");
}

pub(super) async fn blob_is_read_in_ranges(test: TestStore) {
    let store = &test.store;
    SessionWriter::new(store, "s").await.release().await;
    let bytes: Vec<u8> = (0..200_000_u32).map(|number| (number % 251) as u8).collect();
    let digest = store.put("s", bytes.clone(), image_description("big")).await.unwrap().digest;
    for (offset, length) in [(0, 10), (4_090, 20), (199_990, 10), (199_990, 11), (0, u32::MAX), (100_000, 0)] {
        let from = offset as usize;
        let to = bytes.len().min(from.saturating_add(length as usize));
        assert_eq!(
            store.read("s", &digest, offset, length).await.as_deref(),
            Ok(&bytes[from..to]),
            "{offset} {length}"
        );
    }
    for offset in [200_000, 200_001, u64::MAX] {
        assert_eq!(store.read("s", &digest, offset, 5).await, Ok(Vec::new()));
    }
    let empty = store.put("s", Vec::new(), image_description("empty")).await.unwrap();
    assert_eq!((empty.size, store.read("s", &empty.digest, 0, 5).await), (0, Ok(Vec::new())));
}

pub(super) async fn record_texts_are_stored_by_digest(test: TestStore) {
    let store = &test.store;
    let mut writer = SessionWriter::new(store, "s").await;
    let digest = store.put_text("s", "section".to_owned()).await.unwrap();
    assert_eq!(digest, digest_of(b"section"));
    let texts = vec!["section".to_owned(), "another".to_owned()];
    writer.commit(Commit { texts, ..Commit::default() }).await.unwrap();
    assert_eq!(store.text("s", &digest).await.as_deref(), Ok("section"));
    assert_eq!(store.text("s", &digest_of(b"another")).await.as_deref(), Ok("another"));
    assert_eq!(store.media("s", &digest).await, Ok(None), "a text is not a media item");
    assert!(store.read("s", &digest, 0, 1).await.is_err());

    // Bytes that are stored as a text can be stored as a media item too. A media item can contain bytes that are
    // not text.
    store.put("s", b"section".to_vec(), image_description("section")).await.unwrap();
    assert_eq!(store.read("s", &digest, 0, 99).await.as_deref(), Ok(b"section".as_slice()));
    store.put_text("s", "section".to_owned()).await.unwrap();
    assert!(store.media("s", &digest).await.unwrap().is_some(), "the blob is still a media item");
    let binary = store.put("s", vec![0xff, 0xfe], image_description("binary")).await.unwrap();
    assert!(matches!(store.text("s", &binary.digest).await, Err(StoreError::Invalid { .. })));
    SessionWriter::new(store, "other").await.release().await;
    let error = store.text("other", &digest).await;
    assert_eq!(error, Err(StoreError::NoBlob { digest: digest.clone() }), "texts of other sessions are not visible");
    let missing = digest_of(b"missing");
    assert_eq!(store.text("s", &missing).await, Err(StoreError::NoBlob { digest: missing }));
}

pub(super) async fn delete_keeps_blobs_of_other_sessions(test: TestStore) {
    let store = &test.store;
    for session in ["one", "two"] {
        SessionWriter::new(store, session).await.release().await;
        store.put(session, b"shared".to_vec(), image_description("shared")).await.unwrap();
        store.put_text(session, "shared text".to_owned()).await.unwrap();
    }
    let own = store.put_text("one", "own text".to_owned()).await.unwrap();
    store.delete("one").await.unwrap();
    assert!(store.text("one", &own).await.is_err() && store.text("two", &own).await.is_err());
    assert_eq!(store.text("two", &digest_of(b"shared text")).await.as_deref(), Ok("shared text"));
    assert_eq!(store.read("two", &digest_of(b"shared"), 0, 99).await.as_deref(), Ok(b"shared".as_slice()));
    store.delete("two").await.unwrap();
    assert!(store.text("two", &digest_of(b"shared text")).await.is_err());
    assert!(store.text("two", &digest_of(b"shared")).await.is_err());
}

pub(super) async fn references_are_listed_in_pages(test: TestStore) {
    let store = &test.store;
    let mut writer = SessionWriter::new(store, "s").await;
    SessionWriter::new(store, "other").await.release().await;
    assert_eq!(store.references("s", None, 9).await, Ok(Vec::new()));
    let media = store.put("s", b"pixels".to_vec(), image_description("a.png")).await.unwrap();
    store.put("other", b"theirs".to_vec(), image_description("b.png")).await.unwrap();
    writer.commit(Commit { texts: vec!["a text".to_owned()], ..Commit::default() }).await.unwrap();
    let mut expected = vec![BlobReference::Media(media), BlobReference::Text { digest: digest_of(b"a text"), size: 6 }];
    expected.sort_by_key(|reference| reference.digest().clone());
    assert_eq!(store.references("s", None, 9).await.as_deref(), Ok(expected.as_slice()));
    assert_eq!(store.references("s", None, 1).await.as_deref(), Ok(&expected[..1]));
    let second_page = store.references("s", Some(expected[0].digest()), 9).await;
    assert_eq!(second_page.as_deref(), Ok(&expected[1..]));
    let missing = store.references("none", None, 9).await;
    assert_eq!(missing, Err(StoreError::NoSession { session: "none".to_owned() }));
}

pub(super) async fn media_are_shared_between_sessions(test: TestStore) {
    let store = &test.store;
    for session in ["from", "to"] {
        SessionWriter::new(store, session).await.release().await;
    }
    let media = store.put("from", b"pixels".to_vec(), image_description("a.png")).await.unwrap();
    let text = store.put_text("from", "a text".to_owned()).await.unwrap();
    for unseen in [text, digest_of(b"nowhere")] {
        let refused = store.share("from", "to", &[media.digest.clone(), unseen.clone()]).await;
        assert_eq!(refused, Err(StoreError::NoBlob { digest: unseen }));
        assert_eq!(store.media("to", &media.digest).await, Ok(None), "no item is shared if one digest is refused");
    }
    let own = store.put_text("to", "pixels".to_owned()).await.unwrap();
    assert_eq!(own, media.digest);
    for _ in 0..2 {
        store.share("from", "to", std::slice::from_ref(&media.digest)).await.unwrap();
        assert_eq!(store.media("to", &media.digest).await, Ok(Some(media.clone())));
    }
    store.delete("from").await.unwrap();
    assert_eq!(store.read("to", &media.digest, 0, 99).await.as_deref(), Ok(b"pixels".as_slice()));
}
