//! Machines that fetch their plugins by digest from a registry (F1), with real processes, a real database, and a registry on
//! loopback.

use super::{LEASE_SECONDS, effects};
use crate::postgres_server::Server;
use crate::serve::client::{Client, encoded};
use crate::serve::process::ServeProcess;
use crate::support::{SharedCompiledCode, agent_host, components};
use crate::test_registry::TestRegistry;
use agent_plugins::{Manifest, digest_of, read_claims, with_manifest};
use agent_registry::{LockFile, LockedPlugin};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio_postgres::NoTls;

const AGENT: &str = "../agents/payer.toml";
const PATIENCE: Duration = Duration::from_secs(60);

/// A database that machines share, and a registry with a plugin.
struct Site {
    database: Server,
    registry: TestRegistry,
    folder: TempDir,
}

/// A machine with its own plugins and its own data.
struct Machine {
    folder: PathBuf,
    store: String,
    _compiled_code: SharedCompiledCode,
}

impl Site {
    /// Returns `None` if PostgreSQL is not installed.
    fn new() -> Option<Self> {
        let (database, registry) = (Server::start(&[])?, TestRegistry::start());
        Some(Self { database, registry, folder: tempfile::tempdir().expect("a folder") })
    }

    /// Publishes a version of the plugin, and returns its component.
    fn publish(&self, version: &str) -> Vec<u8> {
        self.publish_with(version, &[])
    }

    fn publish_with(&self, version: &str, options: &[&str]) -> Vec<u8> {
        let original = std::fs::read(components().join("payer.wasm")).expect("a component");
        let manifest = read_claims("payer", &original).expect("a component").manifest.expect("a manifest");
        let manifest = Manifest { version: version.to_owned(), ..manifest };
        let component = with_manifest(&original, &manifest).expect("a component");
        let file = self.folder.path().join("published.wasm");
        std::fs::write(&file, &component).expect("written");
        let reference = format!("{}/team/payer:{version}", self.registry.host());
        run(self.folder.path(), &[&["plugin", "push", &reference, "published.wasm"], options].concat());
        component
    }

    /// The folder with the agent's file, which has the same path on all machines.
    fn agents(&self) -> PathBuf {
        self.folder.path().join("agents")
    }

    /// Creates a machine with an agent that pays once, and with no plugins.
    fn machine(&self, name: &str) -> Machine {
        let folder = self.folder.path().join(name);
        std::fs::create_dir_all(folder.join("plugins")).expect("created");
        let agents = self.agents();
        std::fs::create_dir_all(&agents).expect("created");
        let agent = "name = \"payer\"\nmodel = \"scripted:payer.json\"\nplugin_directory = \"plugins\"\n[plugins.payer.grants]\nwrite = [\".\"]\n";
        let replies = json!({"replies": [
            {"calls": [{"name": "payer.pay", "arguments": {"to": "ann", "amount": 3}}]},
            {"text": "Paid."},
        ]});
        std::fs::write(agents.join("payer.toml"), agent).expect("written");
        std::fs::write(agents.join("payer.json"), replies.to_string()).expect("written");
        let compiled_code = SharedCompiledCode::in_data(&folder.join("data"));
        Machine { folder, store: self.database.address("postgres"), _compiled_code: compiled_code }
    }
}

impl Machine {
    fn plugin(&self) -> PathBuf {
        self.folder.join("plugins/payer.wasm")
    }

    fn lock(&self) -> PathBuf {
        self.folder.join("plugins/plugins.lock")
    }

    /// Gets the lock file of another machine, as a deployment would distribute it.
    fn take_lock_of(&self, other: &Machine) {
        let new = self.folder.join("plugins.lock.new");
        std::fs::copy(other.lock(), &new).expect("copied");
        std::fs::rename(new, self.lock()).expect("renamed");
    }

    /// Adds a published version to the plugin folder, as a person would.
    fn add(&self, site: &Site, version: &str) {
        let reference = format!("{}/team/payer:{version}", site.registry.host());
        run(&self.folder, &["plugin", "add", &reference, "--plugins", "plugins", "--data", "data"]);
    }

    /// Adds a published version as the agent's `[sharing]` demands.
    fn add_for_agent(&self, site: &Site, version: &str) {
        self.use_plugins(AGENT);
        let reference = format!("{}/team/payer:{version}", site.registry.host());
        run(&self.folder, &["plugin", "add", &reference, "--agent", AGENT, "--data", "data"]);
    }

    /// Makes the agent's plugin folder that of this machine. Only one machine runs at a time in these tests.
    fn use_plugins(&self, agent: &str) {
        let link = self.folder.join(agent).with_file_name("plugins");
        let _ = std::fs::remove_file(&link);
        std::os::unix::fs::symlink(self.folder.join("plugins"), link).expect("linked");
    }

    fn serve(&self, more: &[&str]) -> ServeProcess {
        self.serve_agent(AGENT, more)
    }

    fn serve_agent(&self, agent: &str, more: &[&str]) -> ServeProcess {
        self.use_plugins(agent);
        let lease = LEASE_SECONDS.to_string();
        let variables = [("AGENT_HOST_STORE", self.store.as_str()), ("AGENT_HOST_LEASE", lease.as_str())];
        let arguments = [&["--agent", agent], more].concat();
        ServeProcess::start_with(&self.folder, &arguments, &variables)
    }

    /// Runs `serve`, which must end with an error, and returns what it wrote to stderr.
    fn fails_to_serve(&self, more: &[&str]) -> String {
        self.use_plugins(AGENT);
        let output = agent_host()
            .args(["serve", "--listen", "127.0.0.1:0", "--data", "data", "--agent", AGENT])
            .args(more)
            .env("AGENT_HOST_STORE", &self.store)
            .current_dir(&self.folder)
            .output()
            .expect("it runs");
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    /// Whether the plugin store of this machine contains a component.
    fn has_stored(&self, component: &[u8]) -> bool {
        let file = format!("{}.wasm", digest_of(component).hex());
        self.folder.join("data/plugins").join(file).exists()
    }

    async fn waits_for_file(&self, component: &[u8], server: &ServeProcess) {
        let begun = Instant::now();
        while std::fs::read(self.plugin()).ok().as_deref() != Some(component) {
            assert!(begun.elapsed() < PATIENCE, "the file does not come: {}", shown(server));
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Returns what a server has written to stderr.
fn shown(server: &ServeProcess) -> String {
    server.log().join("\n")
}

/// Stops a server, so that it hands its sessions over.
fn stop(server: ServeProcess) {
    server.signal(Signal::TERM);
    assert!(server.wait(), "the server ends without an error");
}

fn run(folder: &Path, arguments: &[&str]) {
    let output = agent_host().args(arguments).current_dir(folder).output().expect("it runs");
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

async fn until(client: &Client, path: &str, is_reached: impl Fn(&Value) -> bool, log: impl Fn() -> String) {
    let begun = Instant::now();
    loop {
        let found = client.get(path).await.json(200);
        if is_reached(&found) {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "the state is not reached: {found}\n{}", log());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Begins a session whose turn waits for an approval of its call, and returns its path.
async fn begin(server: &ServeProcess) -> String {
    let client = server.client();
    let created = client.post("/api/sessions", json!({"agent": "payer", "prompt": "Pay."})).await.json(201);
    let path = format!("/api/sessions/{}", encoded(created["session"].as_str().expect("an id")));
    until(&client, &path, |session| session["state"] == "suspended", || shown(server)).await;
    path
}

/// Approves the call that the turn waits for, and returns the status and the text of the answer.
async fn approve(client: &Client, path: &str) -> (u16, String) {
    let session = client.get(path).await.json(200);
    let decisions = json!({"decisions": [{"call": session["waits"][0]["call"], "verdict": "granted"}]});
    let answer = client.post(&format!("{path}/approvals"), decisions).await;
    (answer.status, answer.body)
}

/// F1, P10: a machine with nothing but a lock file fetches what it names, gets a new version when the lock file changes, and
/// a new machine continues a turn with the version with which it began, although no lock file names it any more.
#[tokio::test(flavor = "multi_thread")]
async fn f1_plugins_are_fetched_by_digest() {
    let Some(site) = Site::new() else { return };
    let first = site.publish("1.0.0");
    let (one, two, three) = (site.machine("one"), site.machine("two"), site.machine("three"));
    one.add(&site, "1.0.0");
    two.take_lock_of(&one);
    let refusal = two.fails_to_serve(&[]);
    assert!(refusal.contains("there is no plugin `payer`"), "nothing is fetched without the option: {refusal}");
    assert!(!two.plugin().exists() && !two.has_stored(&first));
    let server = two.serve(&["--fetch-plugins"]);
    assert_eq!(std::fs::read(two.plugin()).expect("fetched at the start"), first);
    let path = begin(&server).await;

    let second = site.publish("1.1.0");
    one.add(&site, "1.1.0");
    two.take_lock_of(&one);
    two.waits_for_file(&second, &server).await;
    stop(server);

    three.take_lock_of(&one);
    let server = three.serve(&["--fetch-plugins"]);
    assert_eq!(std::fs::read(three.plugin()).expect("fetched at the start"), second);
    assert!(three.has_stored(&second) && !three.has_stored(&first));
    let client = server.client();
    approve(&client, &path).await;
    until(&client, &path, |session| session["state"] == "idle", || shown(&server)).await;
    assert!(three.has_stored(&first), "the version with which the turn began");
    assert_eq!(effects(&site.agents()).len(), 1, "the call ran once: {}", shown(&server));
    assert_eq!(std::fs::read(three.plugin()).expect("a file"), second, "new turns use the version of the lock file");
}

/// F1, row 23: where a version comes from is read from the database, and a changed database leads to no other repository and no
/// other server. The turn waits, and continues when the right record is back.
#[tokio::test(flavor = "multi_thread")]
async fn f1_row_23_a_changed_record_leads_to_no_other_registry() {
    let Some(site) = Site::new() else { return };
    let evil = TestRegistry::start();
    let first = site.publish("1.0.0");
    let (one, two) = (site.machine("one"), site.machine("two"));
    one.add(&site, "1.0.0");
    let server = one.serve(&["--fetch-plugins"]);
    let path = begin(&server).await;
    stop(server);
    site.publish("1.1.0");
    one.add(&site, "1.1.0");
    two.take_lock_of(&one);

    let records = Records::open(&site, &first).await;
    let recorded = records.read().await;
    assert!(recorded.contains(&site.registry.host()), "{recorded}");
    let other_host = recorded.replace(&site.registry.host(), &evil.host());
    let other_repository = recorded.replace("team/payer", "evil/payer");
    let other_name = recorded.replace("name = \"payer\"", "name = \"probe\"");
    let server = two.serve(&["--fetch-plugins"]);
    let client = server.client();
    for (changed, expected) in [
        (other_host.as_str(), "but this machine's plugins.lock takes this plugin from"),
        (other_repository.as_str(), "but this machine's plugins.lock takes this plugin from"),
        (other_name.as_str(), "no process that had this version has recorded where it comes from"),
        ("[[plugin", "the stored origin of the component"),
    ] {
        records.write(changed).await;
        let (status, answer) = approve(&client, &path).await;
        assert!(status == 503 && answer.contains(expected), "{status} {answer}: {}", shown(&server));
        assert!(!two.has_stored(&first));
    }
    assert_eq!(evil.requests(), Vec::<String>::new(), "no request reaches another server");
    assert!(site.registry.requests().iter().all(|request| !request.contains("evil/")), "or another repository");
    assert_eq!(client.get(&path).await.json(200)["turns"], 1, "the turn is not given up");
    assert!(effects(&site.agents()).is_empty());

    records.write(&recorded).await;
    let (status, answer) = approve(&client, &path).await;
    assert!(status < 300, "{answer}");
    until(&client, &path, |session| session["state"] == "idle", || shown(&server)).await;
    assert_eq!(effects(&site.agents()).len(), 1);
}

/// F1: a registry that sends something else, or nothing, or a lock file that cannot be read, stops the start with a reason, and
/// a running machine keeps what it has. A plugin that was built on the machine is never replaced.
#[tokio::test(flavor = "multi_thread")]
async fn f1_what_cannot_be_fetched_is_reported_and_changes_nothing() {
    let Some(site) = Site::new() else { return };
    let first = site.publish("1.0.0");
    let (one, two) = (site.machine("one"), site.machine("two"));
    one.add(&site, "1.0.0");
    two.take_lock_of(&one);
    site.registry.set(|faults| faults.flip_blobs_over = Some(1_000));
    let refusal = two.fails_to_serve(&["--fetch-plugins"]);
    assert!(refusal.contains("cannot be fetched") && refusal.contains("it was changed in transit"), "{refusal}");
    assert!(!two.plugin().exists() && !two.has_stored(&first));
    site.registry.set(|faults| faults.flip_blobs_over = None);
    let server = two.serve(&["--fetch-plugins"]);
    assert_eq!(std::fs::read(two.plugin()).expect("fetched"), first);

    let second = site.publish("1.1.0");
    one.add(&site, "1.1.0");
    site.registry.set(|faults| faults.flip_blobs_over = Some(1_000));
    two.take_lock_of(&one);
    let begun = Instant::now();
    while !shown(&server).contains("the plugins stay as they are") {
        assert!(begun.elapsed() < PATIENCE, "the failure is not shown: {}", shown(&server));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(std::fs::read(two.plugin()).expect("kept"), first);
    begin(&server).await;
    site.registry.set(|faults| faults.flip_blobs_over = None);
    // A changed lock file is tried at once, and not only after half a minute.
    let text = std::fs::read_to_string(two.lock()).expect("a lock file");
    std::fs::write(two.lock(), format!("{text}\n")).expect("written");
    two.waits_for_file(&second, &server).await;
    stop(server);

    let mine = std::fs::read(components().join("payer.wasm")).expect("a component");
    std::fs::write(two.plugin(), &mine).expect("built here");
    let refusal = two.fails_to_serve(&["--fetch-plugins"]);
    assert!(refusal.contains("it is not the locked file"), "{refusal}");
    assert_eq!(std::fs::read(two.plugin()).expect("kept"), mine);
}

/// F1: the versions that an agent has used belong to the path of its file. A machine with another path leaves the turn open, and
/// a machine with the same path continues it.
#[tokio::test(flavor = "multi_thread")]
async fn f1_another_path_of_the_agent_leaves_the_turn_open() {
    let Some(site) = Site::new() else { return };
    site.publish("1.0.0");
    let (one, two) = (site.machine("one"), site.machine("two"));
    one.add(&site, "1.0.0");
    let server = one.serve(&["--fetch-plugins"]);
    let path = begin(&server).await;
    stop(server);
    site.publish("1.1.0");
    one.add(&site, "1.1.0");
    two.take_lock_of(&one);

    let elsewhere = site.folder.path().join("elsewhere");
    std::fs::create_dir(&elsewhere).expect("created");
    for file in ["payer.toml", "payer.json"] {
        std::fs::copy(site.agents().join(file), elsewhere.join(file)).expect("copied");
    }
    let server = two.serve_agent("../elsewhere/payer.toml", &["--fetch-plugins"]);
    let client = server.client();
    let (status, answer) = approve(&client, &path).await;
    assert!(status == 503 && answer.contains("the agent's file has the same path"), "{status} {answer}");
    assert_eq!(client.get(&path).await.json(200)["state"], "suspended", "{}", shown(&server));
    stop(server);

    let server = two.serve(&["--fetch-plugins"]);
    let client = server.client();
    let (status, answer) = approve(&client, &path).await;
    assert!(status < 300, "{status} {answer}: {}", shown(&server));
    until(&client, &path, |session| session["state"] == "idle", || shown(&server)).await;
    assert_eq!(effects(&site.agents()).len(), 1);
}

/// F1, row 23: if a trusted key signed the locked version, a version that only the database names needs a signature of the same
/// key, also where the agent does not require signatures.
#[tokio::test(flavor = "multi_thread")]
async fn f1_row_23_other_versions_need_the_key_of_the_locked_one() {
    let Some(site) = Site::new() else { return };
    run(site.folder.path(), &["key", "new", "team.key", "--no-password"]);
    let key = std::fs::read_to_string(site.folder.path().join("team.pub")).expect("a key");
    let key = key.lines().nth(1).expect("the second line").to_owned();
    let first = site.publish_with("1.0.0", &["--sign", "team.key"]);
    let (one, two) = (site.machine("one"), site.machine("two"));
    let agent = site.agents().join("payer.toml");
    let text = std::fs::read_to_string(&agent).expect("a file");
    let sharing = format!(
        "[sharing]\nsignatures = \"warn\"\n[sharing.trusted_keys]\n\"{}/team\" = \"{key}\"\n",
        site.registry.host()
    );
    std::fs::write(&agent, text + &sharing).expect("written");
    one.add_for_agent(&site, "1.0.0");
    let server = one.serve(&["--fetch-plugins"]);
    let path = begin(&server).await;
    stop(server);
    site.publish_with("1.1.0", &["--sign", "team.key"]);
    one.add_for_agent(&site, "1.1.0");
    two.take_lock_of(&one);
    let server = two.serve(&["--fetch-plugins"]);
    let client = server.client();

    let records = Records::open(&site, &first).await;
    let recorded = records.read().await;
    let [entry] = &LockFile::parse_origin_entries(&recorded).expect("entries")[..] else { panic!("{recorded}") };
    let newest = LockFile::read(&two.folder.join("plugins")).expect("a lock file");
    let signature = newest.plugin("payer").expect("an entry").signature.clone();
    assert!(entry.signer.as_ref() == Some(&key) && signature.is_some());
    for forged in [None, Some("untrusted comment: forged".to_owned()), signature] {
        records.write(&LockedPlugin { signature: forged, ..entry.clone() }.origin_entry()).await;
        let (status, answer) = approve(&client, &path).await;
        assert!(status == 503 && answer.contains("there is no valid signature of this key"), "{status} {answer}");
        assert!(!two.has_stored(&first));
    }
    records.write(&recorded).await;
    let (status, answer) = approve(&client, &path).await;
    assert!(status < 300, "{status} {answer}: {}", shown(&server));
    until(&client, &path, |session| session["state"] == "idle", || shown(&server)).await;
}

/// The records in the database of where one version of the plugin comes from.
struct Records {
    database: tokio_postgres::Client,
    digest: String,
}

impl Records {
    async fn open(site: &Site, component: &[u8]) -> Self {
        let (database, connection) =
            tokio_postgres::connect(&site.database.address("postgres"), NoTls).await.expect("opened");
        tokio::spawn(connection);
        Self { database, digest: digest_of(component).as_str().to_owned() }
    }

    async fn read(&self) -> String {
        let sql = "SELECT statements FROM plugin_sources WHERE plugin = 'payer' AND digest = $1";
        self.database.query_one(sql, &[&self.digest]).await.expect("recorded").get(0)
    }

    async fn write(&self, statements: &str) {
        let sql = "UPDATE plugin_sources SET statements = $2 WHERE digest = $1";
        self.database.execute(sql, &[&self.digest, &statements]).await.expect("changed");
    }
}
