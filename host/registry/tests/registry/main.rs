//! Tests of P11 and row 23 with a local registry that can be made to fail. Whatever the registry does, a client must
//! get either the requested content or an error.

mod faults;
mod hostile;
mod index;
mod many_signatures;
mod origins;
#[allow(dead_code, reason = "the end-to-end tests use the other functions")]
mod registry;
mod restoring;
mod retry;
mod signatures;

use agent_plugins::PluginStore;
use agent_registry::{
    ComponentCache, Credentials, Downloads, FetchedPlugin, NO_TIMESTAMP, Overwrite, PlainHttp, PluginFacts, Pushed,
    Reference, Registry, RegistryError, SignatureRequest, Source,
};
use registry::TestRegistry;
use tempfile::TempDir;

/// A registry client with its own data folder.
struct TestClient {
    folder: TempDir,
    registry: Registry,
}

impl TestClient {
    fn new() -> Self {
        Self::with(None)
    }

    /// Creates a client that uses this Docker configuration.
    fn with(configuration: Option<&str>) -> Self {
        let folder = tempfile::tempdir().expect("the directory is created");
        let file = configuration.map(|text| {
            let file = folder.path().join("config.json");
            std::fs::write(&file, text).expect("the file is written");
            file
        });
        let client = Registry::new(Credentials { file }, PlainHttp::LoopbackOnly).expect("the client is created");
        Self { folder, registry: client }
    }

    fn cache(&self) -> ComponentCache {
        let directory = self.folder.path().join("downloads");
        ComponentCache {
            store: PluginStore::new(self.folder.path().join("store")),
            downloads: Downloads { directory, most: 1024 * 1024 },
        }
    }

    async fn push(&self, reference: &str, component: &[u8]) -> Result<Pushed, RegistryError> {
        let reference = Reference::parse(reference).expect("the reference is valid");
        self.registry.push(&reference, &facts(), component, NO_TIMESTAMP, Overwrite::Never).await
    }

    async fn fetch(&self, reference: &str) -> Result<FetchedPlugin, RegistryError> {
        let source = Source::parse(reference).expect("the source is valid");
        let found = self.registry.resolve(&source).await?;
        self.registry.fetch(&found, &self.cache(), SignatureRequest::Any, &|_, _| {}).await
    }

    /// Returns the sizes of the incomplete downloads in bytes.
    fn partial_sizes(&self) -> Vec<u64> {
        let Ok(entries) = std::fs::read_dir(self.folder.path().join("downloads")) else { return Vec::new() };
        entries.map(|entry| entry.expect("the entry is read").metadata().expect("the file exists").len()).collect()
    }
}

fn facts() -> PluginFacts {
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    PluginFacts {
        name: "calc".to_owned(),
        version: "1.0.0".to_owned(),
        description: "Calculates.".to_owned(),
        kinds: words(&["tool"]),
        imports: words(&["wasi:io/poll@0.2.6"]),
        exports: words(&["agent-host:plugin/tool@0.1.0"]),
    }
}

/// Returns bytes of a given length, which are used as a component.
fn component(size: usize) -> Vec<u8> {
    (0..size).map(|index| (index % 251) as u8).collect()
}

/// P11: a push writes an OCI artifact in the CNCF's Wasm format. Equal components have equal manifests, and nothing is
/// uploaded twice.
#[tokio::test]
async fn pushed_plugin_is_a_wasm_artifact_and_can_be_fetched() {
    let (registry, client) = (TestRegistry::start(), TestClient::new());
    let reference = format!("{}/team/calc", registry.host());
    let component = component(100_000);
    let pushed = client.push(&reference, &component).await.expect("the push succeeds");
    assert_eq!(pushed.reference.to_string(), format!("{reference}:1.0.0"), "the version becomes the tag");

    let manifest: serde_json::Value =
        serde_json::from_slice(&registry.manifest("team/calc", "1.0.0").expect("it exists"))
            .expect("the JSON is valid");
    let digest = agent_plugins::digest_of(&component);
    assert_eq!(manifest["mediaType"], "application/vnd.oci.image.manifest.v1+json");
    assert_eq!(manifest["config"]["mediaType"], "application/vnd.wasm.config.v0+json");
    assert_eq!(manifest["layers"].as_array().map(Vec::len), Some(1));
    assert_eq!(manifest["layers"][0]["mediaType"], "application/wasm");
    assert_eq!(manifest["layers"][0]["digest"], digest.as_str());
    assert_eq!(manifest["layers"][0]["size"], 100_000);
    assert_eq!(manifest["annotations"]["org.opencontainers.image.version"], "1.0.0");
    assert_eq!(manifest["annotations"]["org.opencontainers.image.title"], "calc");

    registry.requests();
    let second_push = client.push(&reference, &component).await.expect("the second push succeeds");
    assert!(second_push.already_present && second_push.manifest == pushed.manifest);
    assert!(registry.requests().iter().all(|request| request.starts_with("GET ")), "nothing is uploaded again");
    let other = TestClient::new();
    assert_eq!(
        other.push(&format!("{reference}:latest"), &component).await.expect("the push succeeds").manifest,
        pushed.manifest
    );

    let fetched = other.fetch(&reference).await.expect("the fetch succeeds");
    assert_eq!((fetched.bytes.len(), fetched.digest()), (100_000, digest));
    assert_eq!(fetched.manifest, Some(pushed.manifest));
    assert_eq!(other.partial_sizes(), [0_u64; 0], "no incomplete download is left");
}

/// P11: the content of a version tag is not replaced unless the caller requests the replacement. Tags that are not
/// versions can be moved to other content.
#[tokio::test]
async fn version_is_not_overwritten_by_default() {
    let (registry, client) = (TestRegistry::start(), TestClient::new());
    let reference = format!("{}/team/calc", registry.host());
    let first = client.push(&reference, &component(10)).await.expect("the push succeeds");
    let error = client.push(&reference, &component(11)).await.expect_err("it is refused").to_string();
    assert!(error.contains("raise `version`") && error.contains(first.manifest.short()), "{error}");
    assert_eq!(registry.manifest("team/calc", "1.0.0"), registry.manifest("team/calc", first.manifest.as_str()));
    let parsed = Reference::parse(&reference).expect("the reference is valid");
    let overwritten = client.registry.push(&parsed, &facts(), &component(11), NO_TIMESTAMP, Overwrite::Allowed).await;
    assert_eq!(overwritten.expect("the push succeeds").replaced, Some(first.manifest));
    client.push(&format!("{reference}:latest"), &component(10)).await.expect("the push succeeds");
    let moved = client.push(&format!("{reference}:latest"), &component(11)).await.expect("the tag moves");
    assert!(moved.replaced.is_some());
}
