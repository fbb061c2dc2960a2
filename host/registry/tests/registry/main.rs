//! P11 and row 23 against a registry on loopback that has faults: what comes is what was asked for, or nothing comes.

mod again;
mod faults;
mod hostile;
mod index;
mod many_signatures;
mod origins;
#[allow(dead_code, reason = "the tests of the whole house use the rest")]
mod registry;
mod signed;

use agent_plugins::PluginStore;
use agent_registry::{
    Credentials, Downloads, Fetched, NO_MOMENT, Overwrite, PlainHttp, PluginFacts, Pushed, Reference, Registry,
    ShareError, Shelf, Signatures, Source,
};
use registry::TestRegistry;
use tempfile::TempDir;

/// Somebody with a data folder and a registry to talk to.
struct Person {
    folder: TempDir,
    client: Registry,
}

impl Person {
    fn new() -> Self {
        Self::with(None)
    }

    /// With a Docker configuration.
    fn with(configuration: Option<&str>) -> Self {
        let folder = tempfile::tempdir().expect("a directory");
        let file = configuration.map(|text| {
            let file = folder.path().join("config.json");
            std::fs::write(&file, text).expect("written");
            file
        });
        let client = Registry::new(Credentials { file }, PlainHttp::LoopbackOnly).expect("a client");
        Self { folder, client }
    }

    fn shelf(&self) -> Shelf {
        let directory = self.folder.path().join("downloads");
        Shelf {
            store: PluginStore::new(self.folder.path().join("store")),
            downloads: Downloads { directory, most: 1024 * 1024 },
        }
    }

    async fn push(&self, reference: &str, component: &[u8]) -> Result<Pushed, ShareError> {
        let reference = Reference::parse(reference).expect("a reference");
        self.client.push(&reference, &facts(), component, NO_MOMENT, Overwrite::Never).await
    }

    async fn fetch(&self, reference: &str) -> Result<Fetched, ShareError> {
        let source = Source::parse(reference).expect("a source");
        let found = self.client.find(&source).await?;
        self.client.fetch(&found, &self.shelf(), Signatures::Wanted, &|_, _| {}).await
    }

    /// Names of downloads that are not whole.
    fn partial(&self) -> Vec<u64> {
        let Ok(entries) = std::fs::read_dir(self.folder.path().join("downloads")) else { return Vec::new() };
        entries.map(|entry| entry.expect("an entry").metadata().expect("a file").len()).collect()
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

/// Bytes that could be a component, of so many.
fn component(size: usize) -> Vec<u8> {
    (0..size).map(|index| (index % 251) as u8).collect()
}

/// P11: the layout of the wasm OCI artifact, the same from the same bytes, and nothing is sent twice.
#[tokio::test]
async fn what_is_pushed_is_a_wasm_artifact_and_comes_back() {
    let (registry, person) = (TestRegistry::start(), Person::new());
    let reference = format!("{}/team/calc", registry.host());
    let component = component(100_000);
    let pushed = person.push(&reference, &component).await.expect("pushed");
    assert_eq!(pushed.reference.to_string(), format!("{reference}:1.0.0"), "without a tag it is the version");

    let manifest: serde_json::Value =
        serde_json::from_slice(&registry.manifest("team/calc", "1.0.0").expect("there")).expect("JSON");
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
    let again = person.push(&reference, &component).await.expect("pushed again");
    assert!(again.was_there && again.manifest == pushed.manifest);
    assert!(registry.requests().iter().all(|request| request.starts_with("GET ")), "nothing is sent again");
    let other = Person::new();
    assert_eq!(other.push(&format!("{reference}:latest"), &component).await.expect("pushed").manifest, pushed.manifest);

    let fetched = other.fetch(&reference).await.expect("fetched");
    assert_eq!((fetched.bytes.len(), fetched.digest()), (100_000, digest));
    assert_eq!(fetched.manifest, Some(pushed.manifest));
    assert_eq!(other.partial(), [0_u64; 0], "nothing half is left");
}

/// P11: a version that is there does not silently become another one; other tags move.
#[tokio::test]
async fn a_version_is_not_overwritten_unasked() {
    let (registry, person) = (TestRegistry::start(), Person::new());
    let reference = format!("{}/team/calc", registry.host());
    let first = person.push(&reference, &component(10)).await.expect("pushed");
    let error = person.push(&reference, &component(11)).await.expect_err("refused").to_string();
    assert!(error.contains("raise `version`") && error.contains(first.manifest.short()), "{error}");
    assert_eq!(registry.manifest("team/calc", "1.0.0"), registry.manifest("team/calc", first.manifest.as_str()));
    let parsed = Reference::parse(&reference).expect("a reference");
    let overwritten = person.client.push(&parsed, &facts(), &component(11), NO_MOMENT, Overwrite::Asked).await;
    assert_eq!(overwritten.expect("pushed").instead_of, Some(first.manifest));
    person.push(&format!("{reference}:latest"), &component(10)).await.expect("pushed");
    let moved = person.push(&format!("{reference}:latest"), &component(11)).await.expect("a tag that moves");
    assert!(moved.instead_of.is_some());
}
