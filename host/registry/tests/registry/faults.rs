//! Row 23: tests of downloads that are interrupted, changed, redirected or too large, or for which a login is required.

use crate::registry::TestRegistry;
use crate::{TestClient, component};
use agent_registry::RegistryError;

const SIZE: usize = 300_000;

async fn with_plugin() -> (TestRegistry, String, Vec<u8>) {
    let registry = TestRegistry::start();
    let reference = format!("{}/team/calc:1.0.0", registry.host());
    let bytes = component(SIZE);
    TestClient::new().push(&reference, &bytes).await.expect("the push succeeds");
    registry.requests();
    (registry, reference, bytes)
}

fn ranges(registry: &TestRegistry) -> Vec<String> {
    let requests = registry.requests();
    requests.iter().filter_map(|request| request.split_once(" bytes=")).map(|(_, range)| range.to_owned()).collect()
}

/// An interrupted download continues at the byte where it was interrupted.
#[tokio::test]
async fn interrupted_download_is_resumed() {
    let (registry, reference, bytes) = with_plugin().await;
    let client = TestClient::new();
    registry.set(|faults| faults.cut_after = vec![100_000, 50_000]);
    assert_eq!(client.fetch(&reference).await.expect("the fetch succeeds").bytes, bytes);
    assert_eq!(ranges(&registry), ["100000-", "150000-"]);
    assert!(client.partial_sizes().is_empty());
}

/// Another process can continue an interrupted download later.
#[tokio::test]
async fn download_is_resumed_by_another_process() {
    let (registry, reference, bytes) = with_plugin().await;
    let client = TestClient::new();
    registry.set(|faults| faults.cut_after = vec![100_000, 1, 1, 1, 1]);
    let error = client.fetch(&reference).await.expect_err("all five attempts are interrupted");
    assert!(error.is_offline(), "{error}");
    assert_eq!(client.partial_sizes(), [100_004]);
    registry.requests();
    assert_eq!(client.fetch(&reference).await.expect("the fetch succeeds").bytes, bytes);
    assert_eq!(ranges(&registry), ["100004-"]);
}

/// The part that an earlier attempt downloaded is verified together with the later parts. If the earlier part was
/// damaged, everything is downloaded again.
#[tokio::test]
async fn damaged_partial_download_is_discarded() {
    let (registry, reference, bytes) = with_plugin().await;
    let client = TestClient::new();
    registry.set(|faults| faults.cut_after = vec![100_000, 1, 1, 1, 1]);
    client.fetch(&reference).await.expect_err("the download is interrupted");
    let downloads = client.folder.path().join("downloads");
    let partial = std::fs::read_dir(&downloads)
        .expect("the folder exists")
        .next()
        .expect("the file exists")
        .expect("the entry is read")
        .path();
    std::fs::write(&partial, vec![0; 100_000]).expect("the file is overwritten");
    assert_eq!(client.fetch(&reference).await.expect("the fetch succeeds").bytes, bytes);
    // An incomplete download is discarded if its file is larger than the component.
    std::fs::write(&partial, vec![0; SIZE + 1]).expect("the file is overwritten");
    std::fs::remove_dir_all(client.folder.path().join("store")).ok();
    assert_eq!(client.fetch(&reference).await.expect("the fetch succeeds").bytes, bytes);
}

/// A server that does not support ranges sends the whole content again.
#[tokio::test]
async fn server_without_ranges_sends_everything() {
    let (registry, reference, bytes) = with_plugin().await;
    registry.set(|faults| (faults.cut_after, faults.ignore_ranges) = (vec![100_000], true));
    assert_eq!(TestClient::new().fetch(&reference).await.expect("the fetch succeeds").bytes, bytes);
}

/// A flipped bit in a component is detected and reported, and the downloaded data is deleted.
#[tokio::test]
async fn flipped_bit_is_refused() {
    let (registry, reference, _) = with_plugin().await;
    let client = TestClient::new();
    registry.set(|faults| faults.flip_blobs_over = Some(1000));
    let error = client.fetch(&reference).await.expect_err("it is refused");
    assert!(matches!(error, RegistryError::Tampered { .. }), "{error}");
    assert!(error.to_string().contains("was changed in transit"), "{error}");
    assert!(client.partial_sizes().is_empty(), "the data is deleted");
    registry.set(|faults| faults.flip_blobs_over = None);
    client.fetch(&reference).await.expect("the fetch succeeds");
}

/// A manifest with a wrong digest is refused, and so is a manifest that is too large.
#[tokio::test]
async fn manifests_are_limited_and_verified() {
    let (registry, reference, _) = with_plugin().await;
    let client = TestClient::new();
    let digest = client.fetch(&reference).await.expect("the fetch succeeds").manifest.expect("there is a manifest");
    let by_digest = format!("{}@{digest}", reference.trim_end_matches(":1.0.0"));
    client.fetch(&by_digest).await.expect("the fetch succeeds");
    registry.set(|faults| faults.pad_manifests = 1);
    let error = client.fetch(&by_digest).await.expect_err("it is refused");
    assert!(matches!(error, RegistryError::Tampered { .. }), "{error}");
    registry.set(|faults| faults.pad_manifests = 5 * 1024 * 1024);
    let error = client.fetch(&reference).await.expect_err("it is refused");
    assert!(matches!(error, RegistryError::TooLarge { .. }), "{error}");
}

/// A component above the size limit is not requested. A download that exceeds the size in the manifest is aborted.
#[tokio::test]
async fn component_sizes_are_limited_and_verified() {
    let (registry, reference, _) = with_plugin().await;
    let client = TestClient::new();
    let manifest = registry.manifest("team/calc", "1.0.0").expect("it exists");
    let manifest_with_size = |size: usize| {
        let mut json: serde_json::Value = serde_json::from_slice(&manifest).expect("the JSON is valid");
        json["layers"][0]["size"] = size.into();
        json.to_string().into_bytes()
    };
    let kind = "application/vnd.oci.image.manifest.v1+json";
    registry.put_manifest("team/calc", "huge", (kind, manifest_with_size(1 << 30)));
    registry.put_manifest("team/calc", "small", (kind, manifest_with_size(SIZE - 1)));
    registry.put_manifest("team/calc", "large", (kind, manifest_with_size(SIZE + 1)));
    let reference_with_tag = |tag: &str| reference.replace("1.0.0", tag);
    registry.requests();
    let error = client.fetch(&reference_with_tag("huge")).await.expect_err("it is refused");
    assert!(matches!(error, RegistryError::TooLarge { .. }), "{error}");
    assert!(!registry.requests().iter().any(|request| request.contains("/blobs/")), "the component is not requested");
    let error = client.fetch(&reference_with_tag("small")).await.expect_err("it is refused");
    assert!(matches!(error, RegistryError::Tampered { .. }), "{error}");
    let error = client.fetch(&reference_with_tag("large")).await.expect_err("it is refused");
    assert!(matches!(error, RegistryError::Tampered { .. }), "too few bytes: {error}");
}

/// Blobs may be on other servers, to which the registry's credentials are not sent.
#[tokio::test]
async fn redirects_are_followed_without_credentials() {
    let (registry, reference, bytes) = with_plugin().await;
    let other_server = TestRegistry::start();
    other_server.put_blob("team/calc", &bytes);
    let login = |faults: &mut crate::registry::Faults| faults.login = Some(("ann".to_owned(), "secret".to_owned()));
    registry.set(|faults| {
        login(faults);
        faults.redirect_blobs = Some(format!("http://{}", other_server.host()));
    });
    let auth = format!(r#"{{"auths": {{"{}": {{"auth": "YW5uOnNlY3JldA=="}}}}}}"#, registry.host());
    let client = TestClient::with(Some(&auth));
    assert_eq!(client.fetch(&reference).await.expect("the fetch succeeds").bytes, bytes);
    assert!(registry.requests().iter().any(|request| request.contains("Basic ")));
    assert!(
        !other_server.requests().iter().any(|request| request.contains("Basic ")),
        "credentials are only sent to the registry"
    );
    // A redirect loop and a redirect to a server without TLS are refused.
    registry.set(|faults| faults.redirect_blobs = Some(String::new()));
    let error = TestClient::with(Some(&auth)).fetch(&reference).await.expect_err("it is refused").to_string();
    assert!(error.contains("redirects more than"), "{error}");
    registry.set(|faults| faults.redirect_blobs = Some("http://registry.example".to_owned()));
    let error = TestClient::with(Some(&auth)).fetch(&reference).await.expect_err("it is refused").to_string();
    assert!(error.contains("does not use TLS"), "{error}");
}

/// After a 401 response, the client logs in with the credentials of the Docker configuration or uses them to request a
/// token. If there are no credentials, the error contains advice.
#[tokio::test]
async fn registry_login_uses_the_docker_configuration() {
    let (registry, reference, bytes) = with_plugin().await;
    let auth = |password: &str| {
        format!(r#"{{"auths": {{"{}": {{"username": "ann", "password": "{password}"}}}}}}"#, registry.host())
    };
    for tokens in [false, true] {
        registry.set(|faults| (faults.login, faults.tokens) = (Some(("ann".to_owned(), "secret".to_owned())), tokens));
        let client = TestClient::with(Some(&auth("secret")));
        assert_eq!(client.fetch(&reference).await.expect("the fetch succeeds").bytes, bytes);
        client.push(&reference.replace("1.0.0", "latest"), &bytes).await.expect("the push succeeds");
        let anonymous = TestClient::new().fetch(&reference).await.expect_err("it is refused").to_string();
        assert!(anonymous.contains("there are no credentials") && anonymous.contains("docker login"), "{anonymous}");
        let wrong =
            TestClient::with(Some(&auth("wrong"))).fetch(&reference).await.expect_err("it is refused").to_string();
        assert!(wrong.contains("authentication required") && wrong.contains("docker login"), "{wrong}");
        assert!(!wrong.contains("secret") && !wrong.contains("wrong"), "row 16: {wrong}");
    }
}

/// The error for missing content lists the existing content, and the error for an unreachable server reports that the
/// server cannot be reached.
#[tokio::test]
async fn errors_for_missing_content_list_the_existing_tags() {
    let (registry, reference, _) = with_plugin().await;
    let client = TestClient::new();
    let error = client.fetch(&reference.replace("1.0.0", "2.0.0")).await.expect_err("it is refused").to_string();
    assert!(error.contains("the tags of") && error.contains("1.0.0"), "{error}");
    let error =
        client.fetch(&format!("{}/nobody/here:1", registry.host())).await.expect_err("it is refused").to_string();
    assert!(error.contains("no such repository"), "{error}");
    let error = client.fetch("127.0.0.1:1/team/calc:1").await.expect_err("it is refused");
    assert!(error.is_offline() && error.to_string().contains("cannot be reached"), "{error}");
    let index = br#"{"schemaVersion": 2, "manifests": []}"#.to_vec();
    registry.put_manifest("team/calc", "index", ("application/vnd.oci.image.index.v1+json", index));
    let error = client.fetch(&reference.replace("1.0.0", "index")).await.expect_err("it is refused").to_string();
    assert!(error.contains("is not a plugin: it is an index"), "{error}");
    registry.put_manifest("team/calc", "broken", ("application/json", b"{".to_vec()));
    let error = client.fetch(&reference.replace("1.0.0", "broken")).await.expect_err("it is refused").to_string();
    assert!(error.contains("not JSON"), "{error}");
}
