//! Row 23: signatures beside artifacts, in registries with and without a list of referrers.

use crate::registry::TestRegistry;
use crate::{Person, component, facts};
use agent_registry::{
    Claims, KeyFile, Protection, Pushed, Reference, SignaturePolicy, Signer, SigningKey, Trust, create_key, sign,
};

pub(crate) fn key() -> SigningKey {
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join("team.key");
    create_key(&path, Protection::None).expect("made");
    KeyFile::read(&path).expect("read").open(None).expect("opened")
}

pub(crate) fn trust(registry: &TestRegistry, key: &SigningKey) -> Trust {
    let space = format!("{}/team", registry.host());
    Trust { policy: SignaturePolicy::Required, keys: vec![(space, vec![key.public.clone()])], ..Trust::default() }
}

pub(crate) async fn signed(person: &Person, pushed: &Pushed, bytes: &[u8], key: &SigningKey) {
    let signature = sign(key, bytes, &pushed.claims(&facts())).expect("signed");
    person.client.attach_signature(pushed, &signature).await.expect("attached");
}

pub(crate) async fn judged(person: &Person, trust: &Trust, reference: &str) -> Result<Signer, String> {
    let fetched = person.fetch(reference).await.map_err(|error| error.to_string())?;
    let repository = Reference::parse(reference).expect("a reference").repository().to_string();
    let claims = Claims {
        name: facts().name,
        version: facts().version,
        repository: repository.clone(),
        manifest: fetched.manifest.clone(),
    };
    trust.judge(&repository, &fetched.bytes, &claims, &fetched.signatures).map_err(|error| error.to_string())
}

/// A signature is found in both kinds of registries, beside those of others, and the list is an image index.
#[tokio::test]
async fn signatures_are_found_with_and_without_a_list_of_referrers() {
    for referrers in [false, true] {
        let (registry, person, team, stranger) = (TestRegistry::start(), Person::new(), key(), key());
        registry.set(|faults| faults.referrers = referrers);
        let reference = format!("{}/team/calc:1.0.0", registry.host());
        let bytes = component(1000);
        let pushed = person.push(&reference, &bytes).await.expect("pushed");
        let trust = trust(&registry, &team);
        assert!(judged(&person, &trust, &reference).await.expect_err("refused").contains("it is not signed"));
        signed(&person, &pushed, &bytes, &stranger).await;
        assert!(judged(&person, &trust, &reference).await.expect_err("refused").contains("not trusted"));
        signed(&person, &pushed, &bytes, &team).await;
        assert!(
            matches!(judged(&person, &trust, &reference).await, Ok(Signer::Trusted { key, .. }) if key == team.public)
        );
        let fallback = registry.manifest("team/calc", &format!("sha256-{}", pushed.manifest.hex()));
        assert_eq!(fallback.is_some(), !referrers);
        if let Some(index) = fallback {
            let index: serde_json::Value = serde_json::from_slice(&index).expect("JSON");
            assert_eq!(index["mediaType"], "application/vnd.oci.image.index.v1+json");
            assert_eq!(index["manifests"].as_array().map(Vec::len), Some(2), "both signatures are in it");
        }
    }
}

/// Two who sign at once both stand in the list.
#[tokio::test]
async fn signatures_that_come_at_once_are_all_kept() {
    let (registry, person) = (TestRegistry::start(), Person::new());
    let reference = format!("{}/team/calc:1.0.0", registry.host());
    let bytes = component(1000);
    let pushed = person.push(&reference, &bytes).await.expect("pushed");
    let keys: Vec<_> = (0..3).map(|_| key()).collect();
    futures::future::join_all(keys.iter().map(|key| signed(&person, &pushed, &bytes, key))).await;
    for key in &keys {
        let trust = trust(&registry, key);
        assert!(matches!(judged(&person, &trust, &reference).await, Ok(Signer::Trusted { .. })));
    }
}

/// A registry that lists tags for nobody has the index.
#[tokio::test]
async fn signatures_are_found_where_tags_are_not_listed() {
    let (registry, person, team) = (TestRegistry::start(), Person::new(), key());
    registry.set(|faults| faults.hide_tags = true);
    let reference = format!("{}/team/calc:1.0.0", registry.host());
    let bytes = component(1000);
    let pushed = person.push(&reference, &bytes).await.expect("pushed");
    signed(&person, &pushed, &bytes, &team).await;
    let judged = judged(&person, &trust(&registry, &team), &reference).await;
    assert!(matches!(judged, Ok(Signer::Trusted { .. })), "{judged:?}");
}

/// A writer of the list who had read it before another wrote it, and writes it after: whom it drops is found all the same, and
/// stands in the list again with the next signature.
#[tokio::test]
async fn a_signature_that_a_slow_writer_drops_from_the_list_still_counts() {
    let (registry, person) = (TestRegistry::start(), Person::new());
    let reference = format!("{}/team/calc:1.0.0", registry.host());
    let bytes = component(1000);
    let pushed = person.push(&reference, &bytes).await.expect("pushed");
    let list = format!("sha256-{}", pushed.manifest.hex());
    let (slow, quick, later) = (key(), key(), key());
    signed(&person, &pushed, &bytes, &slow).await;
    let stale = registry.manifest("team/calc", &list).expect("a list");
    signed(&person, &pushed, &bytes, &quick).await;
    registry.put_manifest("team/calc", &list, ("application/vnd.oci.image.index.v1+json", stale.to_vec()));
    for key in [&slow, &quick] {
        let judged = judged(&person, &trust(&registry, key), &reference).await;
        assert!(matches!(judged, Ok(Signer::Trusted { .. })), "{judged:?}");
    }
    signed(&person, &pushed, &bytes, &later).await;
    let list = registry.manifest("team/calc", &list).expect("a list");
    let list: serde_json::Value = serde_json::from_slice(&list).expect("JSON");
    assert_eq!(list["manifests"].as_array().map(Vec::len), Some(3), "{list}");
}

/// What was signed, moved elsewhere: to another repository, another version, other content.
#[tokio::test]
async fn signatures_don_t_move() {
    let (registry, person, team) = (TestRegistry::start(), Person::new(), key());
    let reference = format!("{}/team/calc:1.0.0", registry.host());
    let bytes = component(1000);
    let pushed = person.push(&reference, &bytes).await.expect("pushed");
    let trust = trust(&registry, &team);
    let signature = sign(&team, &bytes, &pushed.claims(&facts())).expect("signed");
    // Another repository of the same name space, byte for byte the same.
    let copy = format!("{}/team/other:1.0.0", registry.host());
    let copied = person.push(&copy, &bytes).await.expect("pushed");
    person.client.attach_signature(&copied, &signature).await.expect("attached");
    assert!(judged(&person, &trust, &copy).await.expect_err("refused").contains("the place"));
    // Another component under the same tag, with the signature of the one before.
    let other = component(1001);
    let moved = person.push(&reference.replace("1.0.0", "latest"), &other).await.expect("pushed");
    person.client.attach_signature(&moved, &signature).await.expect("attached");
    let error = judged(&person, &trust, &reference.replace("1.0.0", "latest")).await.expect_err("refused");
    assert!(error.contains("does not fit what came"), "{error}");
    // The tag moved back to what was signed: it is that again.
    person.client.attach_signature(&pushed, &signature).await.expect("attached");
    assert!(matches!(judged(&person, &trust, &reference).await, Ok(Signer::Trusted { .. })));
}
