//! Row 23, row 18, row 16: registries that want something else than to be asked for plugins.

use crate::registry::{Faults, TestRegistry};
use crate::signed::{judged, key, signed, trust};
use crate::{Person, component, facts};
use agent_registry::sign;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

async fn with_plugin() -> (TestRegistry, String) {
    let registry = TestRegistry::start();
    let reference = format!("{}/team/calc:1.0.0", registry.host());
    Person::new().push(&reference, &component(1000)).await.expect("pushed");
    (registry, reference)
}

fn login(registry: &TestRegistry, how: fn(&mut Faults)) -> Person {
    registry.set(|faults| {
        faults.login = Some(("ann".to_owned(), "very secret".to_owned()));
        how(faults);
    });
    let auth = format!(r#"{{"auths": {{"{}": {{"username": "ann", "password": "very secret"}}}}}}"#, registry.host());
    Person::with(Some(&auth))
}

/// Row 16: what a server was told in confidence and sends back is shown to nobody.
#[tokio::test]
async fn what_a_server_sends_back_of_a_login_is_not_shown() {
    let (registry, reference) = with_plugin().await;
    for (tokens, secret) in [(false, "YW5uOnZlcnkgc2VjcmV0"), (true, "a-token")] {
        let person = login(&registry, |_| {});
        registry.set(|faults| faults.tokens = tokens);
        person.fetch(&reference).await.expect("fetched: it is logged in");
        registry.set(|faults| faults.refuse = vec![(400, "")]);
        let error = person.fetch(&reference).await.expect_err("refused").to_string();
        assert!(error.contains("not now") && !error.contains(secret), "{error}");
    }
}

/// Nothing is uploaded, and no login is sent, to where the registry could not go itself.
#[tokio::test]
async fn uploads_and_logins_go_where_the_registry_may_send_them() {
    let (registry, reference) = with_plugin().await;
    registry.set(|faults| faults.upload_to = Some("file:///tmp".to_owned()));
    let other = reference.replace("1.0.0", "other");
    let error = Person::new().push(&other, &component(1001)).await.expect_err("refused").to_string();
    assert!(error.contains("has no TLS"), "{error}");
    registry.set(|faults| faults.upload_to = Some("http://registry.example".to_owned()));
    let error = Person::new().push(&other, &component(1001)).await.expect_err("refused").to_string();
    assert!(error.contains("has no TLS"), "{error}");
    let person = login(&registry, |faults| faults.tokens = true);
    registry.set(|faults| faults.realm = Some("http://auth.example/token".to_owned()));
    let error = person.fetch(&reference).await.expect_err("refused").to_string();
    assert!(error.contains("has no TLS") && !error.contains("secret"), "{error}");
}

/// A registry with tags that are none; the last two are versions that are newer than what is there.
async fn with_strange_tags() -> (TestRegistry, String) {
    let (registry, reference) = with_plugin().await;
    let strange = ["\u{1b}[2J", "../../../token", "a b", "plugin-/../x", "9.9.9+\u{202e}", "9.9.9+evil", "9.9.9-a+b"];
    registry.set(|faults| faults.strange_tags = strange.iter().map(|tag| (*tag).to_owned()).collect());
    (registry, reference)
}

/// Tags become parts of messages: what is none is not shown.
#[tokio::test]
async fn tags_are_tags() {
    let (_registry, reference) = with_strange_tags().await;
    let error = Person::new().fetch(&reference.replace("1.0.0", "2.0.0")).await.expect_err("none").to_string();
    assert!(error.contains("are: 1.0.0") && !error.contains(['\u{1b}', '\u{202e}']), "{error}");
}

/// Tags become parts of addresses: what is none is not the newest.
#[tokio::test]
async fn the_newest_is_a_tag() {
    let (registry, reference) = with_strange_tags().await;
    registry.requests();
    Person::new().fetch(reference.trim_end_matches(":1.0.0")).await.expect("the newest that is one");
    let requests = registry.requests().concat();
    assert!(requests.contains("/manifests/1.0.0") && !requests.contains("9.9.9"), "{requests}");
}

/// Row 23: who puts the trusted key's number on a key of their own has signed nothing, and hides nothing that was signed.
#[tokio::test]
async fn a_number_of_a_key_is_not_the_key() {
    let (registry, person) = (TestRegistry::start(), Person::new());
    let reference = format!("{}/team/calc:1.0.0", registry.host());
    let bytes = component(1000);
    let pushed = person.push(&reference, &bytes).await.expect("pushed");
    let (team, stranger) = (key(), key());
    let forged = sign(&stranger, &bytes, &pushed.claims(&facts())).expect("signed");
    let public = STANDARD.decode(team.public.as_str()).expect("base64");
    let line = forged.lines().nth(1).expect("a signature");
    let mut numbered = STANDARD.decode(line).expect("base64");
    numbered[2..10].copy_from_slice(&public[2..10]);
    let forged = forged.replace(line, &STANDARD.encode(numbered));
    person.client.attach_signature(&pushed, &forged).await.expect("anybody who may push may do that");
    let trust = trust(&registry, &team);
    let error = judged(&person, &trust, &reference).await.expect_err("refused");
    assert!(error.contains("does not fit what came"), "{error}");
    signed(&person, &pushed, &bytes, &team).await;
    judged(&person, &trust, &reference).await.expect("the true one counts all the same");
}
