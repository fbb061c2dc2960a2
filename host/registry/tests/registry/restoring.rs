//! Restores plugin folders from their lock files without a user (F1). Whatever a registry or another process does meanwhile, the
//! lock file is not written, and nothing is replaced that this machine did not fetch.

use super::TestClient;
use crate::registry::TestRegistry;
use agent_plugins::{Manifest, PluginIdentity, with_manifest};
use agent_registry::{
    Credentials, LockFile, LockedComponents, LockedPlugin, LockedSources, PlainHttp, Registry, SharedRecords,
};
use async_trait::async_trait;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The header of a component without contents.
const EMPTY_COMPONENT: [u8; 8] = [0, b'a', b's', b'm', 0x0d, 0, 1, 0];

#[derive(Default)]
struct Records {
    refusals: Mutex<Vec<String>>,
}

#[async_trait]
impl SharedRecords for Records {
    async fn entries(&self, _: &PluginIdentity) -> Result<Option<String>, String> {
        Ok(None)
    }

    async fn refused(&self, _: &Path, plugin: &str, reason: &str) {
        self.refusals.lock().unwrap().push(format!("{plugin}: {reason}"));
    }
}

struct Folder {
    registry: TestRegistry,
    client: TestClient,
    records: Arc<Records>,
    sources: LockedSources,
}

impl Folder {
    fn new() -> Self {
        let (registry, client, records) = (TestRegistry::start(), TestClient::new(), Arc::new(Records::default()));
        std::fs::create_dir(client.folder.path().join("plugins")).expect("created");
        let connection = Registry::new(Credentials::default(), PlainHttp::LoopbackOnly).expect("a client");
        let sources = LockedSources::new(connection, client.cache(), records.clone());
        Self { registry, client, records, sources }
    }

    fn components(&self) -> Arc<LockedComponents> {
        self.sources.of(&self.path(""))
    }

    fn path(&self, file: &str) -> PathBuf {
        self.client.folder.path().join("plugins").join(file)
    }

    /// Publishes a version, and returns its entry for a lock file and its component.
    async fn publish(&self, name: &str, version: &str) -> (LockedPlugin, Vec<u8>) {
        let manifest = Manifest { name: name.to_owned(), version: version.to_owned(), ..Manifest::default() };
        let component = with_manifest(&EMPTY_COMPONENT, &manifest).expect("a component");
        let reference = format!("{}/team/{name}:{version}", self.registry.host());
        let pushed = self.client.push(&reference, &component).await.expect("pushed");
        let entry = LockedPlugin {
            name: name.to_owned(),
            version: version.to_owned(),
            reference,
            manifest: Some(pushed.manifest),
            component: agent_plugins::digest_of(&component),
            signer: None,
            signature: None,
        };
        (entry, component)
    }

    /// Writes the lock file as a deployment does, and returns its bytes.
    fn lock(&self, entries: &[&LockedPlugin]) -> Vec<u8> {
        let entries: String = entries.iter().map(|entry| entry.origin_entry()).collect();
        let text = format!("format = 1\n{entries}");
        std::fs::write(self.path("plugins.lock"), &text).expect("written");
        LockFile::read(&self.path("")).expect("it is valid");
        text.into_bytes()
    }

    fn files(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.path("")).expect("a folder");
        let mut names: Vec<_> =
            entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }
}

/// F1: a lock file that changes while its plugins are fetched wins, and is not written by the process that fetches.
#[tokio::test(flavor = "multi_thread")]
async fn f1_a_lock_file_that_changes_meanwhile_wins() {
    let folder = Folder::new();
    let ((first, _), (second, newer)) = (folder.publish("calc", "1.0.0").await, folder.publish("calc", "2.0.0").await);
    folder.lock(&[&first]);
    // The registry asks the client to try again after a second.
    folder.registry.set(|faults| faults.refuse = vec![(503, "1")]);
    let restoring = tokio::spawn({
        let components = folder.components();
        async move { components.restore().await }
    });
    tokio::time::sleep(Duration::from_millis(400)).await;
    let lock = folder.lock(&[&second]);
    assert_eq!(restoring.await.expect("it ends").expect("it is not an error"), []);
    assert_eq!(folder.files(), ["plugins.lock"], "the earlier version is not written");
    assert_eq!(std::fs::read(folder.path("plugins.lock")).expect("a file"), lock);
    assert_eq!(folder.components().restore().await.expect("restored"), [second]);
    assert_eq!(std::fs::read(folder.path("calc.wasm")).expect("a file"), newer);
    assert_eq!(std::fs::read(folder.path("plugins.lock")).expect("a file"), lock);
}

/// F1: all plugins are checked before the first file is written, and a component with another name is refused.
#[tokio::test(flavor = "multi_thread")]
async fn f1_no_file_is_written_if_one_plugin_is_not_accepted() {
    let folder = Folder::new();
    let (calc, _) = folder.publish("calc", "1.0.0").await;
    let (text, _) = folder.publish("text", "1.0.0").await;
    let renamed = LockedPlugin { name: "payer".to_owned(), ..text.clone() };
    folder.lock(&[&calc, &renamed]);
    let error = folder.components().restore().await.expect_err("the name differs").to_string();
    assert!(error.contains("payer.wasm") && error.contains("its component contains the plugin `text`"), "{error}");
    assert_eq!(folder.files(), ["plugins.lock"]);
    folder.lock(&[&calc, &text]);
    assert_eq!(folder.components().restore().await.expect("restored").len(), 2);

    let mine = with_manifest(&EMPTY_COMPONENT, &Manifest { name: "calc".to_owned(), ..Manifest::default() });
    std::fs::write(folder.path("calc.wasm"), mine.as_ref().expect("a component")).expect("built here");
    let (newer, _) = folder.publish("calc", "2.0.0").await;
    folder.lock(&[&newer, &text]);
    assert_eq!(folder.components().restore().await.expect("nothing to do"), []);
    assert_eq!(std::fs::read(folder.path("calc.wasm")).expect("kept"), mine.expect("a component"));
}

/// F1, O3: a component that was changed on the way is refused and recorded, and a pipe instead of a lock file blocks nothing.
#[tokio::test(flavor = "multi_thread")]
async fn f1_o3_changed_components_are_recorded_and_pipes_are_refused() {
    let folder = Folder::new();
    let (calc, _) = folder.publish("calc", "1.0.0").await;
    folder.lock(&[&calc]);
    folder.registry.set(|faults| faults.flip_blobs_over = Some(10));
    folder.components().restore().await.expect_err("the component was changed");
    let refusals = folder.records.refusals.lock().unwrap().clone();
    assert!(refusals.len() == 1 && refusals[0].starts_with("calc: "), "{refusals:?}");
    assert_eq!(folder.files(), ["plugins.lock"]);

    std::fs::remove_file(folder.path("plugins.lock")).expect("removed");
    let made = std::process::Command::new("mkfifo").arg(folder.path("plugins.lock")).status().expect("it runs");
    assert!(made.success());
    let components = folder.components();
    let read = tokio::time::timeout(Duration::from_secs(10), components.lock_digest()).await;
    let error = read.expect("it does not block").expect_err("it is not a file").to_string();
    assert!(error.contains("plugins.lock"), "{error}");
    assert!(components.restore().await.is_err());
}
