//! P11: a team's index, also when several clients push at once.

use crate::registry::TestRegistry;
use crate::{TestClient, component, facts};
use agent_registry::{NO_TIMESTAMP, Overwrite, PluginFacts, Reference};

async fn add(client: &TestClient, host: &str, facts: &PluginFacts, size: usize) -> Result<(), String> {
    let reference = Reference::parse(&format!("{host}/team/{}", facts.name)).expect("a reference");
    let pushed = client.registry.push(&reference, facts, &component(size), NO_TIMESTAMP, Overwrite::Allowed).await;
    let pushed = pushed.map_err(|error| error.to_string())?;
    let index = Reference::parse(&format!("{host}/team/index")).expect("a reference");
    let added = client.registry.add_to_index(&index, (facts, &pushed), Some("RWQkey"), Overwrite::Never).await;
    added.map_err(|error| error.to_string())
}

fn named(name: &str, version: &str, description: &str) -> PluginFacts {
    let [name, version, description] = [name, version, description].map(str::to_owned);
    PluginFacts { name, version, description, ..facts() }
}

/// Concurrent pushes lose no entries, and the best match comes first.
#[tokio::test]
async fn index_keeps_concurrent_pushes() {
    let (registry, client) = (TestRegistry::start(), TestClient::new());
    let host = registry.host();
    let index = Reference::parse(&format!("{host}/team/index")).expect("a reference");
    let error = client.registry.search(&index, "files", 10).await.expect_err("there is no index yet").to_string();
    assert!(error.contains("the first `plugin push --index` creates it"), "{error}");
    let mut all: Vec<_> =
        (0..20).map(|number| named(&format!("plugin-{number}"), "1.0.0", "Does something.")).collect();
    all.push(named("tides", "1.9.0", "Says when the water is high."));
    all.push(named("tides", "1.10.0", "Says when the water is high, and where."));
    let people: Vec<_> = all.iter().map(|_| TestClient::new()).collect();
    let added = all.iter().zip(&people).map(|(facts, client)| add(client, &host, facts, 10));
    for added in futures::future::join_all(added).await {
        added.expect("added");
    }
    let found = client.registry.search(&index, "", 100).await.expect("found");
    assert_eq!(found.len(), 21, "each plugin is listed once");
    let found = client.registry.search(&index, "high water", 10).await.expect("found");
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].newest.name.as_str(), found[0].newest.version.as_str()), ("tides", "1.10.0"));
    assert_eq!(found[0].versions, ["1.10.0", "1.9.0"]);
    assert_eq!(found[0].newest.reference, format!("{host}/team/tides:1.10.0"));
    assert_eq!(found[0].newest.signer.as_deref(), Some("RWQkey"));
    assert!(client.registry.search(&index, "nonsense", 10).await.expect("found").is_empty());
}

/// A version in the index cannot get other content.
#[tokio::test]
async fn index_version_keeps_its_content() {
    let (registry, client) = (TestRegistry::start(), TestClient::new());
    let host = registry.host();
    let facts = named("tides", "1.0.0", "Says when the water is high.");
    add(&client, &host, &facts, 10).await.expect("added");
    add(&client, &host, &facts, 10).await.expect("adding the same version again succeeds");
    let error = add(&client, &host, &facts, 11).await.expect_err("refused");
    assert!(error.contains("raise `version`"), "{error}");
    // Other artifacts in the repository are not entries.
    registry.put_manifest("team/index", "plugin-nonsense", ("application/json", b"[]".to_vec()));
    registry.put_manifest("team/index", "latest", ("application/json", b"{}".to_vec()));
    let index = Reference::parse(&format!("{host}/team/index")).expect("a reference");
    assert_eq!(client.registry.search(&index, "", 10).await.expect("found").len(), 1);
}
