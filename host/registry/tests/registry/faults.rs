//! Row 23: downloads that are cut, changed, redirected, too large, or not for everybody.

use crate::registry::TestRegistry;
use crate::{Person, component};
use agent_registry::ShareError;

const SIZE: usize = 300_000;

async fn with_plugin() -> (TestRegistry, String, Vec<u8>) {
    let registry = TestRegistry::start();
    let reference = format!("{}/team/calc:1.0.0", registry.host());
    let bytes = component(SIZE);
    Person::new().push(&reference, &bytes).await.expect("pushed");
    registry.requests();
    (registry, reference, bytes)
}

fn ranges(registry: &TestRegistry) -> Vec<String> {
    let requests = registry.requests();
    requests.iter().filter_map(|request| request.split_once(" bytes=")).map(|(_, range)| range.to_owned()).collect()
}

/// A cut download goes on where it was cut.
#[tokio::test]
async fn a_cut_download_goes_on_where_it_was_cut() {
    let (registry, reference, bytes) = with_plugin().await;
    let person = Person::new();
    registry.set(|faults| faults.cut_after = vec![100_000, 50_000]);
    assert_eq!(person.fetch(&reference).await.expect("fetched").bytes, bytes);
    assert_eq!(ranges(&registry), ["100000-", "150000-"]);
    assert!(person.partial().is_empty());
}

/// The same by another process, later.
#[tokio::test]
async fn a_download_goes_on_after_the_process_that_began_it() {
    let (registry, reference, bytes) = with_plugin().await;
    let person = Person::new();
    registry.set(|faults| faults.cut_after = vec![100_000, 1, 1, 1, 1]);
    let error = person.fetch(&reference).await.expect_err("cut five times");
    assert!(error.is_offline(), "{error}");
    assert_eq!(person.partial(), [100_004]);
    registry.requests();
    assert_eq!(person.fetch(&reference).await.expect("fetched").bytes, bytes);
    assert_eq!(ranges(&registry), ["100004-"]);
}

/// What was left from before is verified with the rest: where it was damaged, all of it is asked for again.
#[tokio::test]
async fn a_damaged_beginning_is_not_gone_on_with() {
    let (registry, reference, bytes) = with_plugin().await;
    let person = Person::new();
    registry.set(|faults| faults.cut_after = vec![100_000, 1, 1, 1, 1]);
    person.fetch(&reference).await.expect_err("cut");
    let downloads = person.folder.path().join("downloads");
    let partial = std::fs::read_dir(&downloads).expect("a folder").next().expect("a file").expect("one").path();
    std::fs::write(&partial, vec![0; 100_000]).expect("damaged");
    assert_eq!(person.fetch(&reference).await.expect("fetched").bytes, bytes);
    // More than there ever can be is none of it either.
    std::fs::write(&partial, vec![0; SIZE + 1]).expect("damaged");
    std::fs::remove_dir_all(person.folder.path().join("store")).ok();
    assert_eq!(person.fetch(&reference).await.expect("fetched").bytes, bytes);
}

/// A server that knows no ranges sends all of it.
#[tokio::test]
async fn a_server_without_ranges_begins_again() {
    let (registry, reference, bytes) = with_plugin().await;
    registry.set(|faults| (faults.cut_after, faults.ignore_ranges) = (vec![100_000], true));
    assert_eq!(Person::new().fetch(&reference).await.expect("fetched").bytes, bytes);
}

/// A flipped bit is seen, said, and not kept.
#[tokio::test]
async fn a_flipped_bit_is_refused() {
    let (registry, reference, _) = with_plugin().await;
    let person = Person::new();
    registry.set(|faults| faults.flip_blobs_over = Some(1000));
    let error = person.fetch(&reference).await.expect_err("refused");
    assert!(matches!(error, ShareError::Tampered { .. }), "{error}");
    assert!(error.to_string().contains("was changed on the way"), "{error}");
    assert!(person.partial().is_empty(), "nothing of it stays");
    registry.set(|faults| faults.flip_blobs_over = None);
    person.fetch(&reference).await.expect("fetched");
}

/// A manifest that is not what its digest says, and one that is larger than any.
#[tokio::test]
async fn manifests_are_bounded_and_verified() {
    let (registry, reference, _) = with_plugin().await;
    let person = Person::new();
    let digest = person.fetch(&reference).await.expect("fetched").manifest.expect("a manifest");
    let by_digest = format!("{}@{digest}", reference.trim_end_matches(":1.0.0"));
    person.fetch(&by_digest).await.expect("fetched");
    registry.set(|faults| faults.pad_manifests = 1);
    let error = person.fetch(&by_digest).await.expect_err("refused");
    assert!(matches!(error, ShareError::Tampered { .. }), "{error}");
    registry.set(|faults| faults.pad_manifests = 5 * 1024 * 1024);
    let error = person.fetch(&reference).await.expect_err("refused");
    assert!(matches!(error, ShareError::TooLarge { .. }), "{error}");
}

/// A component that is larger than this host takes is not even asked for, and one that lies about its size is cut.
#[tokio::test]
async fn sizes_are_bounded_and_true() {
    let (registry, reference, _) = with_plugin().await;
    let person = Person::new();
    let manifest = registry.manifest("team/calc", "1.0.0").expect("there");
    let lying = |size: usize| {
        let mut json: serde_json::Value = serde_json::from_slice(&manifest).expect("JSON");
        json["layers"][0]["size"] = size.into();
        json.to_string().into_bytes()
    };
    let kind = "application/vnd.oci.image.manifest.v1+json";
    registry.put_manifest("team/calc", "huge", (kind, lying(1 << 30)));
    registry.put_manifest("team/calc", "small", (kind, lying(SIZE - 1)));
    registry.put_manifest("team/calc", "large", (kind, lying(SIZE + 1)));
    let of = |tag: &str| reference.replace("1.0.0", tag);
    registry.requests();
    let error = person.fetch(&of("huge")).await.expect_err("refused");
    assert!(matches!(error, ShareError::TooLarge { .. }), "{error}");
    assert!(!registry.requests().iter().any(|request| request.contains("/blobs/")), "it is not asked for");
    let error = person.fetch(&of("small")).await.expect_err("refused");
    assert!(matches!(error, ShareError::Tampered { .. }), "{error}");
    let error = person.fetch(&of("large")).await.expect_err("refused");
    assert!(matches!(error, ShareError::Tampered { .. }), "too few bytes: {error}");
}

/// Blobs may be elsewhere; what the registry gave us to show does not go there.
#[tokio::test]
async fn redirects_are_followed_without_credentials() {
    let (registry, reference, bytes) = with_plugin().await;
    let elsewhere = TestRegistry::start();
    elsewhere.put_blob("team/calc", &bytes);
    let login = |faults: &mut crate::registry::Faults| faults.login = Some(("ann".to_owned(), "secret".to_owned()));
    registry.set(|faults| {
        login(faults);
        faults.redirect_blobs = Some(format!("http://{}", elsewhere.host()));
    });
    let auth = format!(r#"{{"auths": {{"{}": {{"auth": "YW5uOnNlY3JldA=="}}}}}}"#, registry.host());
    let person = Person::with(Some(&auth));
    assert_eq!(person.fetch(&reference).await.expect("fetched").bytes, bytes);
    assert!(registry.requests().iter().any(|request| request.contains("Basic ")));
    assert!(
        !elsewhere.requests().iter().any(|request| request.contains("Basic ")),
        "credentials stay with the registry"
    );
    // To itself, for ever; and to where nobody on the way is kept out.
    registry.set(|faults| faults.redirect_blobs = Some(String::new()));
    let error = Person::with(Some(&auth)).fetch(&reference).await.expect_err("refused").to_string();
    assert!(error.contains("redirects more than"), "{error}");
    registry.set(|faults| faults.redirect_blobs = Some("http://registry.example".to_owned()));
    let error = Person::with(Some(&auth)).fetch(&reference).await.expect_err("refused").to_string();
    assert!(error.contains("has no TLS"), "{error}");
}

/// 401 → token, with the credentials of the Docker configuration; without, it is said what to do.
#[tokio::test]
async fn registries_that_ask_who_it_is() {
    let (registry, reference, bytes) = with_plugin().await;
    let auth =
        |word: &str| format!(r#"{{"auths": {{"{}": {{"username": "ann", "password": "{word}"}}}}}}"#, registry.host());
    for tokens in [false, true] {
        registry.set(|faults| (faults.login, faults.tokens) = (Some(("ann".to_owned(), "secret".to_owned())), tokens));
        let person = Person::with(Some(&auth("secret")));
        assert_eq!(person.fetch(&reference).await.expect("fetched").bytes, bytes);
        person.push(&reference.replace("1.0.0", "latest"), &bytes).await.expect("pushed");
        let nobody = Person::new().fetch(&reference).await.expect_err("refused").to_string();
        assert!(nobody.contains("there are no credentials") && nobody.contains("docker login"), "{nobody}");
        let wrong = Person::with(Some(&auth("wrong"))).fetch(&reference).await.expect_err("refused").to_string();
        assert!(wrong.contains("authentication required") && wrong.contains("docker login"), "{wrong}");
        assert!(!wrong.contains("secret") && !wrong.contains("wrong"), "row 16: {wrong}");
    }
}

/// What is not there, and who does not answer.
#[tokio::test]
async fn what_is_not_there_is_said_with_what_is() {
    let (registry, reference, _) = with_plugin().await;
    let person = Person::new();
    let error = person.fetch(&reference.replace("1.0.0", "2.0.0")).await.expect_err("refused").to_string();
    assert!(error.contains("the tags of") && error.contains("1.0.0"), "{error}");
    let error = person.fetch(&format!("{}/nobody/here:1", registry.host())).await.expect_err("refused").to_string();
    assert!(error.contains("no such repository"), "{error}");
    let error = person.fetch("127.0.0.1:1/team/calc:1").await.expect_err("refused");
    assert!(error.is_offline() && error.to_string().contains("cannot be reached"), "{error}");
    let index = br#"{"schemaVersion": 2, "manifests": []}"#.to_vec();
    registry.put_manifest("team/calc", "index", ("application/vnd.oci.image.index.v1+json", index));
    let error = person.fetch(&reference.replace("1.0.0", "index")).await.expect_err("refused").to_string();
    assert!(error.contains("is no plugin: it is an index"), "{error}");
    registry.put_manifest("team/calc", "broken", ("application/json", b"{".to_vec()));
    let error = person.fetch(&reference.replace("1.0.0", "broken")).await.expect_err("refused").to_string();
    assert!(error.contains("no JSON"), "{error}");
}
