//! Row 54: one valid signature among thousands that anybody may have put there.

use crate::registry::TestRegistry;
use crate::signed::{key, trust};
use crate::{Person, component, facts};
use agent_registry::{Claims, Pushed, Reference, ShareError, Signatures, Signer, SigningKey, Source, Trust, sign};
use serde_json::{Value, json};

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const SIGNATURE: &str = "application/vnd.agent-host.plugin.signature.v1";
const KEY: &str = "host.agent.plugin.signature.key";

/// A plugin in a registry that lists referrers, and who is trusted to sign it.
struct Ground {
    registry: TestRegistry,
    person: Person,
    pushed: Pushed,
    bytes: Vec<u8>,
    team: SigningKey,
    trust: Trust,
}

impl Ground {
    async fn new() -> Self {
        let (registry, person, team) = (TestRegistry::start(), Person::new(), key());
        registry.set(|faults| faults.referrers = true);
        let bytes = component(1000);
        let pushed = person.push(&format!("{}/team/calc:1.0.0", registry.host()), &bytes).await.expect("pushed");
        let trust = trust(&registry, &team);
        Self { registry, person, pushed, bytes, team, trust }
    }

    /// The number of the trusted key, as its signatures' manifests have it.
    async fn number(&self) -> String {
        self.sign().await;
        let all = self.registry.manifests("team/calc");
        let annotated = all.iter().find_map(|(_, bytes)| {
            let json: Value = serde_json::from_slice(bytes).ok()?;
            json["annotations"][KEY].as_str().map(str::to_owned)
        });
        annotated.expect("a signature says of which key it is")
    }

    async fn sign(&self) {
        let signature = sign(&self.team, &self.bytes, &self.pushed.claims(&facts())).expect("signed");
        self.person.client.attach_signature(&self.pushed, &signature).await.expect("attached");
    }

    /// So many signatures of a stranger, each a manifest of its own with this padding.
    fn add_junk(&self, count: usize, (key, padding): (Option<&str>, usize)) {
        let text = sign(&crate::signed::key(), &self.bytes, &self.pushed.claims(&facts())).expect("signed");
        self.registry.put_blob("team/calc", text.as_bytes());
        let digest = agent_plugins::digest_of(text.as_bytes());
        for number in 0..count {
            let mut manifest = json!({
                "schemaVersion": 2, "mediaType": MANIFEST, "artifactType": SIGNATURE,
                "config": {"mediaType": "application/vnd.oci.empty.v1+json", "digest": agent_plugins::digest_of(b"{}"), "size": 2},
                "layers": [{"mediaType": "application/vnd.minisign.signature.v1", "digest": digest, "size": text.len()}],
                "subject": {"mediaType": MANIFEST, "digest": self.pushed.manifest, "size": 1},
                "annotations": {"number": format!("{number}{}", "x".repeat(padding))},
            });
            if let Some(key) = key {
                manifest["annotations"][KEY] = json!(key);
            }
            let bytes = serde_json::to_vec(&manifest).expect("JSON");
            let name = agent_plugins::digest_of(&bytes).to_string();
            self.registry.put_manifest("team/calc", &name, (MANIFEST, bytes));
        }
    }

    async fn judged(&self) -> Result<(Signer, Option<String>), ShareError> {
        let reference = Reference::parse(&self.pushed.reference.to_string()).expect("a reference");
        let place = reference.repository().to_string();
        let found = self.person.client.find(&Source::Registry(reference)).await?;
        let wanted = Signatures::Of(self.trust.keys_for(&place));
        let fetched = self.person.client.fetch(&found, &self.person.shelf(), wanted, &|_, _| {}).await?;
        let (name, version) = (facts().name, facts().version);
        let claims = Claims { name, version, repository: place.clone(), manifest: fetched.manifest.clone() };
        let signer = self.trust.judge(&place, &fetched.bytes, &claims, &fetched.signatures);
        signer.map(|signer| (signer, fetched.search_stopped))
    }

    async fn finds(&self) {
        let (signer, stopped) = self.judged().await.expect("it is signed");
        assert!(matches!(&signer, Signer::Trusted { key, .. } if *key == self.team.public), "{signer:?}");
        assert_eq!(stopped, None);
    }
}

/// Where the list says of which key each signature is, the good one is read first, among 10,000.
#[tokio::test]
async fn one_signature_of_ten_thousand_is_found_at_once() {
    let ground = Ground::new().await;
    ground.add_junk(10_000, (None, 0));
    ground.add_junk(100, (Some("0000000000000000"), 0));
    ground.sign().await;
    ground.registry.requests();
    ground.finds().await;
    let requests = ground.registry.requests();
    assert!(requests.len() < 100, "{} requests", requests.len());
}

/// Where it does not say so, or junk says it of itself, all are read, on as many pages as there are.
#[tokio::test]
async fn what_a_list_says_decides_nothing() {
    let ground = Ground::new().await;
    let number = ground.number().await;
    ground.add_junk(300, (Some(&number), 0));
    ground.add_junk(300, (None, 0));
    ground.finds().await;
    ground.registry.set(|faults| faults.hide_annotations = true);
    ground.finds().await;
    ground.registry.set(|faults| faults.referrers_per_page = Some(50));
    ground.finds().await;
    // The same in the index of a registry that lists no referrers.
    ground.registry.set(|faults| faults.referrers = false);
    ground.sign().await;
    ground.finds().await;
}

/// A signature of the trusted key for the same bytes at another place does not end the search.
#[tokio::test]
async fn a_signature_for_another_place_hides_none() {
    let ground = Ground::new().await;
    let elsewhere = Claims { repository: "registry.example/other".to_owned(), ..ground.pushed.claims(&facts()) };
    let signature = sign(&ground.team, &ground.bytes, &elsewhere).expect("signed");
    ground.person.client.attach_signature(&ground.pushed, &signature).await.expect("attached");
    assert!(ground.judged().await.is_err());
    ground.sign().await;
    ground.finds().await;
}

/// More bytes than are read of any plugin: the search ends, and says so.
#[tokio::test]
async fn a_search_that_stops_says_so() {
    let ground = Ground::new().await;
    ground.registry.set(|faults| faults.hide_annotations = true);
    ground.add_junk(1_300, (None, 60_000));
    let trust = Trust { policy: agent_registry::SignaturePolicy::Warn, ..ground.trust.clone() };
    let ground = Ground { trust, ..ground };
    let (signer, stopped) = ground.judged().await.expect("it may pass");
    let stopped = stopped.expect("it stopped");
    assert!(matches!(signer, Signer::Nobody { .. }) && stopped.contains("of 1300"), "{stopped}");
    assert!(stopped.contains("more than 64 MiB"), "{stopped}");
}
