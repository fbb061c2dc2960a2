//! P5: key-value pairs are separated by agent, plugin, bucket and key; increments and swaps are atomic.

use super::TestStore;
use crate::{Bucket, ENTRY_BYTES, MAX_KEY_BYTES, MAX_VALUE_BYTES, StoreError, Swap};

fn bucket(agent: &str, plugin: &str, name: &str) -> Bucket {
    Bucket { agent: agent.to_owned(), plugin: plugin.to_owned(), name: name.to_owned(), quota: 10 << 20 }
}

pub(super) async fn buckets_are_separate(test: TestStore) {
    let store = &test.store;
    let buckets = [bucket("a", "p", "b"), bucket("A", "p", "b"), bucket("a", "q", "b"), bucket("a", "p", "c")];
    for (bucket, value) in buckets.iter().zip(1_u8..) {
        store.set(bucket, "key", vec![value]).await.unwrap();
    }
    for (bucket, value) in buckets.iter().zip(1_u8..) {
        assert_eq!(store.get(bucket, "key").await, Ok(Some(vec![value])));
    }
    let first = &buckets[0];
    store.set(first, "key", b"new\0value".to_vec()).await.unwrap();
    assert_eq!(store.get(first, "key").await, Ok(Some(b"new\0value".to_vec())));
    for key in ["b", "a", "ä", "'; DROP TABLE key_values; --"] {
        store.set(first, key, Vec::new()).await.unwrap();
    }
    let sorted = ["'; DROP TABLE key_values; --", "a", "b", "key", "ä"];
    assert_eq!(store.keys(first, "", 100).await.unwrap(), sorted);
    assert_eq!(store.keys(first, "a", 2).await.unwrap(), ["b", "key"]);
    assert_eq!(store.exists(first, "a").await, Ok(true));
    store.delete_key(first, "a").await.unwrap();
    store.delete_key(first, "a").await.unwrap();
    assert_eq!(store.exists(first, "a").await, Ok(false));
    assert_eq!(store.get(first, "a").await, Ok(None));
    assert_eq!(store.get(&buckets[3], "key").await, Ok(Some(vec![4])));
}

pub(super) async fn oversized_keys_and_values_are_refused(test: TestStore) {
    let store = &test.store;
    let bucket = bucket("a", "p", "b");
    let largest = vec![7; MAX_VALUE_BYTES];
    store.set(&bucket, "k", largest.clone()).await.unwrap();
    assert_eq!(store.get(&bucket, "k").await, Ok(Some(largest)));
    let large = store.set(&bucket, "k", vec![7; MAX_VALUE_BYTES + 1]).await;
    assert!(matches!(large, Err(StoreError::TooLarge { .. })), "{large:?}");
    let large = store.compare_and_swap(&bucket, "n", None, vec![7; MAX_VALUE_BYTES + 1]).await;
    assert!(matches!(large, Err(StoreError::TooLarge { .. })), "{large:?}");
    let long = store.set(&bucket, &"k".repeat(MAX_KEY_BYTES + 1), Vec::new()).await;
    assert!(matches!(long, Err(StoreError::TooLarge { .. })), "{long:?}");
    let empty = store.set(&bucket, "", Vec::new()).await;
    assert!(matches!(empty, Err(StoreError::Invalid { .. })), "{empty:?}");
}

/// P5: a plugin's quota applies to the total size of this plugin's buckets, and deleting a value frees its space.
pub(super) async fn quota_covers_all_buckets_of_a_plugin(test: TestStore) {
    let store = &test.store;
    let small = |agent: &str, name: &str| Bucket { quota: 2 * (ENTRY_BYTES + 11), ..bucket(agent, "p", name) };
    let (one, two) = (small("a", "one"), small("a", "two"));
    store.set(&one, "k", vec![1; 10]).await.unwrap();
    store.set(&two, "k", vec![1; 10]).await.unwrap();
    store.set(&two, "k", vec![2; 10]).await.unwrap();
    let writes = [
        store.set(&two, "k", vec![3; 11]).await.err(),
        store.set(&one, "n", Vec::new()).await.err(),
        store.increment(&one, "n", 1).await.err(),
        store.compare_and_swap(&one, "n", None, Vec::new()).await.err(),
    ];
    for refused in writes {
        assert!(matches!(refused, Some(StoreError::TooLarge { .. })), "{refused:?}");
    }
    assert_eq!(store.get(&two, "k").await, Ok(Some(vec![2; 10])), "a refused write changes nothing");
    store.set(&small("b", "one"), "k", vec![1; 10]).await.unwrap();
    store.delete_key(&one, "k").await.unwrap();
    store.set(&two, "n", vec![1; 10]).await.unwrap();
}

pub(super) async fn increment_is_atomic(test: TestStore) {
    let store = &test.store;
    let bucket = bucket("a", "p", "b");
    assert_eq!(store.increment(&bucket, "n", 5).await, Ok(5));
    assert_eq!(store.increment(&bucket, "n", -7).await, Ok(-2));
    assert_eq!(store.get(&bucket, "n").await, Ok(Some(b"-2".to_vec())));
    store.set(&bucket, "max", i64::MAX.to_string().into_bytes()).await.unwrap();
    store.set(&bucket, "text", b"five".to_vec()).await.unwrap();
    for key in ["max", "text"] {
        let refused = store.increment(&bucket, key, 1).await;
        assert!(matches!(refused, Err(StoreError::Invalid { .. })), "{key}: {refused:?}");
    }
    assert_eq!(store.get(&bucket, "text").await, Ok(Some(b"five".to_vec())));

    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..40 {
        let store = test.second.as_ref().filter(|_| number % 2 == 0).unwrap_or(store).clone();
        let bucket = bucket.clone();
        tasks.spawn(async move { store.increment(&bucket, "together", 1).await });
    }
    assert!(tasks.join_all().await.iter().all(Result::is_ok));
    assert_eq!(store.increment(&bucket, "together", 0).await, Ok(40));
}

pub(super) async fn compare_and_swap_is_atomic(test: TestStore) {
    let store = &test.store;
    let bucket = bucket("a", "p", "b");
    let swap = async |expected: Option<&[u8]>, value: &[u8]| {
        store.compare_and_swap(&bucket, "k", expected.map(<[u8]>::to_vec), value.to_vec()).await.unwrap()
    };
    assert_eq!(swap(Some(b"x"), b"1").await, Swap::Other(None));
    assert_eq!(swap(None, b"1").await, Swap::Done);
    assert_eq!(swap(None, b"2").await, Swap::Other(Some(b"1".to_vec())));
    assert_eq!(swap(Some(b"1"), b"2").await, Swap::Done);

    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..20_u8 {
        let store = test.second.as_ref().filter(|_| number % 2 == 0).unwrap_or(store).clone();
        let bucket = bucket.clone();
        tasks.spawn(async move { store.compare_and_swap(&bucket, "k", Some(b"2".to_vec()), vec![number]).await });
    }
    let swapped = tasks.join_all().await.into_iter().filter(|swap| *swap == Ok(Swap::Done)).count();
    assert_eq!(swapped, 1, "exactly one swap succeeds");
}
