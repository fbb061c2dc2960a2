//! P11: a team's index is correct, even if several clients push at the same time.

use crate::registry::TestRegistry;
use crate::{TestClient, component, facts};
use agent_registry::{NO_TIMESTAMP, Overwrite, PluginFacts, Reference};

async fn add(client: &TestClient, host: &str, facts: &PluginFacts, size: usize) -> Result<(), String> {
    let reference = Reference::parse(&format!("{host}/team/{}", facts.name)).expect("the reference is valid");
    let pushed = client.registry.push(&reference, facts, &component(size), NO_TIMESTAMP, Overwrite::Allowed).await;
    let pushed = pushed.map_err(|error| error.to_string())?;
    let index = Reference::parse(&format!("{host}/team/index")).expect("the reference is valid");
    let added = client.registry.add_to_index(&index, (facts, &pushed), Some("RWQkey"), Overwrite::Never).await;
    added.map_err(|error| error.to_string())
}

fn plugin_facts(name: &str, version: &str, description: &str) -> PluginFacts {
    let [name, version, description] = [name, version, description].map(str::to_owned);
    PluginFacts { name, version, description, ..facts() }
}

/// Concurrent pushes do not lose entries, and a search returns the best match first.
#[tokio::test]
async fn index_keeps_concurrent_pushes() {
    let (registry, client) = (TestRegistry::start(), TestClient::new());
    let host = registry.host();
    let index = Reference::parse(&format!("{host}/team/index")).expect("the reference is valid");
    let error = client.registry.search(&index, "files", 10).await.expect_err("there is no index yet").to_string();
    assert!(error.contains("the first `plugin push --index` creates it"), "{error}");
    let mut plugins: Vec<_> =
        (0..20).map(|number| plugin_facts(&format!("plugin-{number}"), "1.0.0", "Does something.")).collect();
    plugins.push(plugin_facts("tides", "1.9.0", "Says when the water is high."));
    plugins.push(plugin_facts("tides", "1.10.0", "Says when the water is high, and where."));
    let clients: Vec<_> = plugins.iter().map(|_| TestClient::new()).collect();
    let added = plugins.iter().zip(&clients).map(|(facts, client)| add(client, &host, facts, 10));
    for added in futures::future::join_all(added).await {
        added.expect("the entry is added");
    }
    let found = client.registry.search(&index, "", 100).await.expect("the search succeeds");
    assert_eq!(found.len(), 21, "each plugin is listed once");
    let found = client.registry.search(&index, "high water", 10).await.expect("the search succeeds");
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].newest.name.as_str(), found[0].newest.version.as_str()), ("tides", "1.10.0"));
    assert_eq!(found[0].versions, ["1.10.0", "1.9.0"]);
    assert_eq!(found[0].newest.reference, format!("{host}/team/tides:1.10.0"));
    assert_eq!(found[0].newest.signer.as_deref(), Some("RWQkey"));
    assert!(client.registry.search(&index, "nonsense", 10).await.expect("the search succeeds").is_empty());
}

/// The content of a version in the index cannot be changed.
#[tokio::test]
async fn content_of_a_version_in_the_index_cannot_change() {
    let (registry, client) = (TestRegistry::start(), TestClient::new());
    let host = registry.host();
    let facts = plugin_facts("tides", "1.0.0", "Says when the water is high.");
    add(&client, &host, &facts, 10).await.expect("the entry is added");
    add(&client, &host, &facts, 10).await.expect("adding the same version again succeeds");
    let error = add(&client, &host, &facts, 11).await.expect_err("it is refused");
    assert!(error.contains("raise `version`"), "{error}");
    // Artifacts in the repository that are not index entries are ignored.
    registry.put_manifest("team/index", "plugin-nonsense", ("application/json", b"[]".to_vec()));
    registry.put_manifest("team/index", "latest", ("application/json", b"{}".to_vec()));
    let index = Reference::parse(&format!("{host}/team/index")).expect("the reference is valid");
    assert_eq!(client.registry.search(&index, "", 10).await.expect("the search succeeds").len(), 1);
}
