//! Row 54: a valid signature is found among thousands of signatures that anybody may have added.

use crate::registry::TestRegistry;
use crate::signatures::{key, trust};
use crate::{TestClient, component, facts};
use agent_registry::{
    Claims, Pushed, Reference, RegistryError, SignatureRequest, Signer, SigningKey, Source, Trust, sign,
};
use serde_json::{Value, json};

const MANIFEST_TYPE: &str = "application/vnd.oci.image.manifest.v1+json";
const SIGNATURE_TYPE: &str = "application/vnd.agent-host.plugin.signature.v1";
const KEY_ANNOTATION: &str = "host.agent.plugin.signature.key";

/// A plugin in a registry that lists referrers, and the key `team`, which is trusted to sign the plugin.
struct SignedPlugin {
    registry: TestRegistry,
    client: TestClient,
    pushed: Pushed,
    bytes: Vec<u8>,
    team: SigningKey,
    trust: Trust,
}

impl SignedPlugin {
    async fn new() -> Self {
        let (registry, client, team) = (TestRegistry::start(), TestClient::new(), key());
        registry.set(|faults| faults.referrers = true);
        let bytes = component(1000);
        let pushed =
            client.push(&format!("{}/team/calc:1.0.0", registry.host()), &bytes).await.expect("the push succeeds");
        let trust = trust(&registry, &team);
        Self { registry, client, pushed, bytes, team, trust }
    }

    /// Attaches a signature by the trusted key, and returns the id of this key, which is read from the
    /// signature's manifest.
    async fn sign_and_read_key_id(&self) -> String {
        self.sign().await;
        let manifests = self.registry.manifests("team/calc");
        let annotated = manifests.iter().find_map(|(_, bytes)| {
            let json: Value = serde_json::from_slice(bytes).ok()?;
            json["annotations"][KEY_ANNOTATION].as_str().map(str::to_owned)
        });
        annotated.expect("the manifest of a signature contains the key id")
    }

    async fn sign(&self) {
        let signature = sign(&self.team, &self.bytes, &self.pushed.claims(&facts())).expect("signing succeeds");
        self.client.registry.attach_signature(&self.pushed, &signature).await.expect("the signature is attached");
    }

    /// Adds signatures by an untrusted key. Each signature has its own manifest, which contains `padding`
    /// additional bytes.
    fn add_untrusted_signatures(&self, count: usize, (key, padding): (Option<&str>, usize)) {
        let text =
            sign(&crate::signatures::key(), &self.bytes, &self.pushed.claims(&facts())).expect("signing succeeds");
        self.registry.put_blob("team/calc", text.as_bytes());
        let digest = agent_plugins::digest_of(text.as_bytes());
        for number in 0..count {
            let mut manifest = json!({
                "schemaVersion": 2, "mediaType": MANIFEST_TYPE, "artifactType": SIGNATURE_TYPE,
                "config": {"mediaType": "application/vnd.oci.empty.v1+json", "digest": agent_plugins::digest_of(b"{}"), "size": 2},
                "layers": [{"mediaType": "application/vnd.minisign.signature.v1", "digest": digest, "size": text.len()}],
                "subject": {"mediaType": MANIFEST_TYPE, "digest": self.pushed.manifest, "size": 1},
                "annotations": {"number": format!("{number}{}", "x".repeat(padding))},
            });
            if let Some(key) = key {
                manifest["annotations"][KEY_ANNOTATION] = json!(key);
            }
            let bytes = serde_json::to_vec(&manifest).expect("the JSON is valid");
            let name = agent_plugins::digest_of(&bytes).to_string();
            self.registry.put_manifest("team/calc", &name, (MANIFEST_TYPE, bytes));
        }
    }

    async fn verify(&self) -> Result<(Signer, Option<String>), RegistryError> {
        let reference = Reference::parse(&self.pushed.reference.to_string()).expect("the reference is valid");
        let source = reference.repository().to_string();
        let found = self.client.registry.resolve(&Source::Registry(reference)).await?;
        let request = SignatureRequest::FromKeys(self.trust.keys_for(&source));
        let fetched = self.client.registry.fetch(&found, &self.client.cache(), request, &|_, _| {}).await?;
        let (name, version) = (facts().name, facts().version);
        let claims = Claims { name, version, repository: source.clone(), manifest: fetched.manifest.clone() };
        let signer = self.trust.verify(&source, &fetched.bytes, &claims, &fetched.signatures);
        signer.map(|signer| (signer, fetched.search_stopped))
    }

    async fn assert_found(&self) {
        let (signer, stopped) = self.verify().await.expect("the signature is found");
        assert!(matches!(&signer, Signer::Trusted { key, .. } if *key == self.team.public), "{signer:?}");
        assert_eq!(stopped, None);
    }
}

/// If the list contains the key of each signature, the valid signature is read first, even if there are
/// 10,000 other signatures.
#[tokio::test]
async fn valid_signature_among_ten_thousand_is_found_quickly() {
    let signed_plugin = SignedPlugin::new().await;
    signed_plugin.add_untrusted_signatures(10_000, (None, 0));
    signed_plugin.add_untrusted_signatures(100, (Some("0000000000000000"), 0));
    signed_plugin.sign().await;
    signed_plugin.registry.requests();
    signed_plugin.assert_found().await;
    let requests = signed_plugin.registry.requests();
    assert!(requests.len() < 100, "{} requests", requests.len());
}

/// If the list does not name the keys of signatures, or names the trusted key for invalid signatures, the signatures on
/// all pages are read.
#[tokio::test]
async fn signature_is_found_if_keys_in_the_list_are_missing_or_false() {
    let signed_plugin = SignedPlugin::new().await;
    let key_id = signed_plugin.sign_and_read_key_id().await;
    signed_plugin.add_untrusted_signatures(300, (Some(&key_id), 0));
    signed_plugin.add_untrusted_signatures(300, (None, 0));
    signed_plugin.assert_found().await;
    signed_plugin.registry.set(|faults| faults.hide_annotations = true);
    signed_plugin.assert_found().await;
    signed_plugin.registry.set(|faults| faults.referrers_per_page = Some(50));
    signed_plugin.assert_found().await;
    // If the registry does not list referrers, the signature is found through the index.
    signed_plugin.registry.set(|faults| faults.referrers = false);
    signed_plugin.sign().await;
    signed_plugin.assert_found().await;
}

/// If the trusted key signed the plugin for another repository, the search does not accept this signature
/// and continues.
#[tokio::test]
async fn signature_for_another_repository_does_not_end_the_search() {
    let signed_plugin = SignedPlugin::new().await;
    let other_claims =
        Claims { repository: "registry.example/other".to_owned(), ..signed_plugin.pushed.claims(&facts()) };
    let signature = sign(&signed_plugin.team, &signed_plugin.bytes, &other_claims).expect("signing succeeds");
    signed_plugin
        .client
        .registry
        .attach_signature(&signed_plugin.pushed, &signature)
        .await
        .expect("the signature is attached");
    assert!(signed_plugin.verify().await.is_err());
    signed_plugin.sign().await;
    signed_plugin.assert_found().await;
}

/// A search that exceeds the size limit stops and reports that it stopped early.
#[tokio::test]
async fn search_that_stops_early_is_reported() {
    let signed_plugin = SignedPlugin::new().await;
    signed_plugin.registry.set(|faults| faults.hide_annotations = true);
    signed_plugin.add_untrusted_signatures(1_300, (None, 60_000));
    let trust = Trust { policy: agent_registry::SignaturePolicy::Warn, ..signed_plugin.trust.clone() };
    let signed_plugin = SignedPlugin { trust, ..signed_plugin };
    let (signer, stopped) = signed_plugin.verify().await.expect("the plugin is accepted with a warning");
    let stopped = stopped.expect("the search stopped");
    assert!(matches!(signer, Signer::Untrusted { .. }) && stopped.contains("of 1300"), "{stopped}");
    assert!(stopped.contains("more than 64 MiB"), "{stopped}");
}
