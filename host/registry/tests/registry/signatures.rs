//! Row 23: signatures of artifacts, in registries with and without a list of referrers.

use crate::registry::TestRegistry;
use crate::{TestClient, component, facts};
use agent_registry::{
    Claims, KeyFile, Protection, Pushed, Reference, SignaturePolicy, Signer, SigningKey, Trust, create_key, sign,
};

pub(crate) fn key() -> SigningKey {
    let folder = tempfile::tempdir().expect("the directory is created");
    let path = folder.path().join("team.key");
    create_key(&path, Protection::None).expect("it is created");
    KeyFile::read(&path).expect("the file is read").open(None).expect("the key is opened")
}

pub(crate) fn trust(registry: &TestRegistry, key: &SigningKey) -> Trust {
    let namespace = format!("{}/team", registry.host());
    Trust { policy: SignaturePolicy::Required, keys: vec![(namespace, vec![key.public.clone()])], ..Trust::default() }
}

pub(crate) async fn attach_signature_by(client: &TestClient, pushed: &Pushed, bytes: &[u8], key: &SigningKey) {
    let signature = sign(key, bytes, &pushed.claims(&facts())).expect("signing succeeds");
    client.registry.attach_signature(pushed, &signature).await.expect("the signature is attached");
}

pub(crate) async fn fetch_and_verify(client: &TestClient, trust: &Trust, reference: &str) -> Result<Signer, String> {
    let fetched = client.fetch(reference).await.map_err(|error| error.to_string())?;
    let repository = Reference::parse(reference).expect("the reference is valid").repository().to_string();
    let claims = Claims {
        name: facts().name,
        version: facts().version,
        repository: repository.clone(),
        manifest: fetched.manifest.clone(),
    };
    trust.verify(&repository, &fetched.bytes, &claims, &fetched.signatures).map_err(|error| error.to_string())
}

/// A signature is found among signatures by other keys, both in registries that list referrers and in those that do
/// not. If the registry does not list referrers, the list of signatures is an image index.
#[tokio::test]
async fn signatures_are_found_with_and_without_referrers() {
    for referrers in [false, true] {
        let (registry, client, team, stranger) = (TestRegistry::start(), TestClient::new(), key(), key());
        registry.set(|faults| faults.referrers = referrers);
        let reference = format!("{}/team/calc:1.0.0", registry.host());
        let bytes = component(1000);
        let pushed = client.push(&reference, &bytes).await.expect("the push succeeds");
        let trust = trust(&registry, &team);
        assert!(
            fetch_and_verify(&client, &trust, &reference)
                .await
                .expect_err("it is refused")
                .contains("it is not signed")
        );
        attach_signature_by(&client, &pushed, &bytes, &stranger).await;
        assert!(
            fetch_and_verify(&client, &trust, &reference).await.expect_err("it is refused").contains("not trusted")
        );
        attach_signature_by(&client, &pushed, &bytes, &team).await;
        assert!(
            matches!(fetch_and_verify(&client, &trust, &reference).await, Ok(Signer::Trusted { key, .. }) if key == team.public)
        );
        let fallback = registry.manifest("team/calc", &format!("sha256-{}", pushed.manifest.hex()));
        assert_eq!(fallback.is_some(), !referrers);
        if let Some(index) = fallback {
            let index: serde_json::Value = serde_json::from_slice(&index).expect("the JSON is valid");
            assert_eq!(index["mediaType"], "application/vnd.oci.image.index.v1+json");
            assert_eq!(index["manifests"].as_array().map(Vec::len), Some(2), "the index contains both signatures");
        }
    }
}

/// If several signatures are attached at the same time, all of them are found.
#[tokio::test]
async fn concurrent_signatures_are_all_found() {
    let (registry, client) = (TestRegistry::start(), TestClient::new());
    let reference = format!("{}/team/calc:1.0.0", registry.host());
    let bytes = component(1000);
    let pushed = client.push(&reference, &bytes).await.expect("the push succeeds");
    let keys: Vec<_> = (0..3).map(|_| key()).collect();
    futures::future::join_all(keys.iter().map(|key| attach_signature_by(&client, &pushed, &bytes, key))).await;
    for key in &keys {
        let trust = trust(&registry, key);
        assert!(matches!(fetch_and_verify(&client, &trust, &reference).await, Ok(Signer::Trusted { .. })));
    }
}

/// If a registry does not list tags, the signatures are found through the index.
#[tokio::test]
async fn signatures_are_found_without_a_tag_list() {
    let (registry, client, team) = (TestRegistry::start(), TestClient::new(), key());
    registry.set(|faults| faults.hide_tags = true);
    let reference = format!("{}/team/calc:1.0.0", registry.host());
    let bytes = component(1000);
    let pushed = client.push(&reference, &bytes).await.expect("the push succeeds");
    attach_signature_by(&client, &pushed, &bytes, &team).await;
    let verified = fetch_and_verify(&client, &trust(&registry, &team), &reference).await;
    assert!(matches!(verified, Ok(Signer::Trusted { .. })), "{verified:?}");
}

/// If a client overwrites the index with an older version, a signature whose entry was lost is still found, and adding
/// another signature restores the lost entry.
#[tokio::test]
async fn signature_lost_from_the_index_is_still_found() {
    let (registry, client) = (TestRegistry::start(), TestClient::new());
    let reference = format!("{}/team/calc:1.0.0", registry.host());
    let bytes = component(1000);
    let pushed = client.push(&reference, &bytes).await.expect("the push succeeds");
    let list = format!("sha256-{}", pushed.manifest.hex());
    let (first, second, third) = (key(), key(), key());
    attach_signature_by(&client, &pushed, &bytes, &first).await;
    let old_list = registry.manifest("team/calc", &list).expect("the list exists");
    attach_signature_by(&client, &pushed, &bytes, &second).await;
    registry.put_manifest("team/calc", &list, ("application/vnd.oci.image.index.v1+json", old_list.to_vec()));
    for key in [&first, &second] {
        let verified = fetch_and_verify(&client, &trust(&registry, key), &reference).await;
        assert!(matches!(verified, Ok(Signer::Trusted { .. })), "{verified:?}");
    }
    attach_signature_by(&client, &pushed, &bytes, &third).await;
    let list = registry.manifest("team/calc", &list).expect("the list exists");
    let list: serde_json::Value = serde_json::from_slice(&list).expect("the JSON is valid");
    assert_eq!(list["manifests"].as_array().map(Vec::len), Some(3), "{list}");
}

/// A signature for one component in one repository is not accepted for another component or in another repository.
#[tokio::test]
async fn signature_is_not_valid_for_other_content() {
    let (registry, client, team) = (TestRegistry::start(), TestClient::new(), key());
    let reference = format!("{}/team/calc:1.0.0", registry.host());
    let bytes = component(1000);
    let pushed = client.push(&reference, &bytes).await.expect("the push succeeds");
    let trust = trust(&registry, &team);
    let signature = sign(&team, &bytes, &pushed.claims(&facts())).expect("signing succeeds");
    // Attach the signature to the same bytes in another repository of the same namespace.
    let copy = format!("{}/team/other:1.0.0", registry.host());
    let copied = client.push(&copy, &bytes).await.expect("the push succeeds");
    client.registry.attach_signature(&copied, &signature).await.expect("the signature is attached");
    assert!(fetch_and_verify(&client, &trust, &copy).await.expect_err("it is refused").contains("the repository"));
    // Attach the signature to a different component, which has a different tag.
    let other = component(1001);
    let moved = client.push(&reference.replace("1.0.0", "latest"), &other).await.expect("the push succeeds");
    client.registry.attach_signature(&moved, &signature).await.expect("the signature is attached");
    let error =
        fetch_and_verify(&client, &trust, &reference.replace("1.0.0", "latest")).await.expect_err("it is refused");
    assert!(error.contains("does not match the component"), "{error}");
    // The signed component is still accepted.
    client.registry.attach_signature(&pushed, &signature).await.expect("the signature is attached");
    assert!(matches!(fetch_and_verify(&client, &trust, &reference).await, Ok(Signer::Trusted { .. })));
}
