//! P11: a team's index, also where several push at once.

use crate::registry::TestRegistry;
use crate::{Person, component, facts};
use agent_registry::{NO_MOMENT, Overwrite, PluginFacts, Reference};

async fn add(person: &Person, host: &str, facts: &PluginFacts, size: usize) -> Result<(), String> {
    let reference = Reference::parse(&format!("{host}/team/{}", facts.name)).expect("a reference");
    let pushed = person.client.push(&reference, facts, &component(size), NO_MOMENT, Overwrite::Asked).await;
    let pushed = pushed.map_err(|error| error.to_string())?;
    let index = Reference::parse(&format!("{host}/team/index")).expect("a reference");
    let added = person.client.add_to_index(&index, (facts, &pushed), Some("RWQkey"), Overwrite::Never).await;
    added.map_err(|error| error.to_string())
}

fn named(name: &str, version: &str, description: &str) -> PluginFacts {
    let [name, version, description] = [name, version, description].map(str::to_owned);
    PluginFacts { name, version, description, ..facts() }
}

/// Nothing of what many push at once is lost, and the nearest is found first.
#[tokio::test]
async fn an_index_keeps_what_many_push_at_once() {
    let (registry, person) = (TestRegistry::start(), Person::new());
    let host = registry.host();
    let index = Reference::parse(&format!("{host}/team/index")).expect("a reference");
    let error = person.client.search(&index, "files", 10).await.expect_err("none yet").to_string();
    assert!(error.contains("the first `plugin push --index` makes it"), "{error}");
    let mut all: Vec<_> =
        (0..20).map(|number| named(&format!("plugin-{number}"), "1.0.0", "Does something.")).collect();
    all.push(named("tides", "1.9.0", "Says when the water is high."));
    all.push(named("tides", "1.10.0", "Says when the water is high, and where."));
    let people: Vec<_> = all.iter().map(|_| Person::new()).collect();
    let added = all.iter().zip(&people).map(|(facts, person)| add(person, &host, facts, 10));
    for added in futures::future::join_all(added).await {
        added.expect("added");
    }
    let found = person.client.search(&index, "", 100).await.expect("found");
    assert_eq!(found.len(), 21, "each plugin once");
    let found = person.client.search(&index, "high water", 10).await.expect("found");
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].newest.name.as_str(), found[0].newest.version.as_str()), ("tides", "1.10.0"));
    assert_eq!(found[0].versions, ["1.10.0", "1.9.0"]);
    assert_eq!(found[0].newest.reference, format!("{host}/team/tides:1.10.0"));
    assert_eq!(found[0].newest.signer.as_deref(), Some("RWQkey"));
    assert!(person.client.search(&index, "nonsense", 10).await.expect("found").is_empty());
}

/// One version has one content.
#[tokio::test]
async fn a_version_in_the_index_does_not_become_another() {
    let (registry, person) = (TestRegistry::start(), Person::new());
    let host = registry.host();
    let facts = named("tides", "1.0.0", "Says when the water is high.");
    add(&person, &host, &facts, 10).await.expect("added");
    add(&person, &host, &facts, 10).await.expect("the same again");
    let error = add(&person, &host, &facts, 11).await.expect_err("refused");
    assert!(error.contains("raise `version`"), "{error}");
    // What others keep in that repository is no entry.
    registry.put_manifest("team/index", "plugin-nonsense", ("application/json", b"[]".to_vec()));
    registry.put_manifest("team/index", "latest", ("application/json", b"{}".to_vec()));
    let index = Reference::parse(&format!("{host}/team/index")).expect("a reference");
    assert_eq!(person.client.search(&index, "", 10).await.expect("found").len(), 1);
}
