//! Released versions of the contract (P12). A released version never changes, and components that were built for a
//! released version still run.

use crate::support::{
    TestHost, call_reply, records, repository, results, run_turn, script, text_reply, visible_messages,
};
use agent_core::message::Part;
use agent_plugins::Kind;
use agent_runtime::{AgentConfig, TurnResult};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::Path;

/// Returns the text of each WIT file in a folder.
fn wit_texts(folder: &Path) -> BTreeMap<String, String> {
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let files = files.filter(|path| path.extension().is_some_and(|extension| extension == "wit"));
    let name = |path: &Path| path.file_name().unwrap().to_string_lossy().into_owned();
    files.map(|path| (name(&path), std::fs::read_to_string(&path).unwrap())).collect()
}

/// P12: `wit/` is identical to the released version 0.1.0. A change to the contract needs a new version in a
/// new folder.
#[test]
fn p12_the_released_text_has_not_changed() {
    let (released, current) =
        (wit_texts(&repository().join("wit/released/0.1.0")), wit_texts(&repository().join("wit")));
    assert_eq!(released.len(), 7, "{:?}", released.keys());
    for (name, text) in &released {
        assert!(text.starts_with("package agent-host:plugin@0.1.0;"), "{name}");
        assert!(
            current.get(name) == Some(text),
            "wit/{name} differs from the released version 0.1.0: see wit/CHANGELOG.md"
        );
    }
    assert_eq!(current.len(), released.len(), "{:?}", current.keys());
}

/// P12: The WIT package `agent-host:model` is identical to its released version 0.1.0.
#[test]
fn p12_the_released_model_package_has_not_changed() {
    let (released, current) =
        (wit_texts(&repository().join("wit/released/model-0.1.0")), wit_texts(&repository().join("wit/model")));
    assert!(released["host-model.wit"].starts_with("package agent-host:model@0.1.0;"));
    assert_eq!(released, current, "wit/model differs from the released version 0.1.0: see wit/CHANGELOG.md");
}

/// P12: The stored component that was built for 0.1.0 can be loaded, and each of its plugin kinds runs.
#[tokio::test(flavor = "multi_thread")]
async fn p12_a_component_of_0_1_0_still_runs() {
    let test_host = TestHost::new(&[]).await;
    let stored_component = repository().join("tests/released/0.1.0/component.wasm");
    assert!(std::fs::metadata(&stored_component).unwrap().len() < 100 * 1024);
    std::fs::copy(stored_component, test_host.directory.path().join("plugins/released.wasm")).unwrap();
    let generation = test_host.generation().await;
    assert_eq!(generation.plugin("released").unwrap().kinds(), Kind::ALL);
    let mut config = AgentConfig::new("keeper");
    config.context_builder = Some("released".to_owned());
    config.validators = vec!["released".to_owned()];
    config.media_policies.insert("scripted".to_owned(), "released".to_owned());
    let calls =
        [("released.echo", json!({"a": [1, null]})), ("released.medium", json!({})), ("released.deny", json!({}))];
    let replies = [call_reply(&calls), text_reply("Done.")];
    let mut session = test_host.session(config, script(&replies)).await;
    let TurnResult::Finished(output) = run_turn(&mut session, "Go.").await else { panic!("the turn did not finish") };
    assert_eq!(output.data, json!("Done. (accepted)"), "the output is the validator's text");
    let results = results(&test_host, &session).await;
    assert!(!results[0].1 && results[0].2.contains("keeper"), "{results:?}");
    assert!(!results[1].1, "{results:?}");
    assert!(results[2].1 && results[2].2.contains("never"), "{results:?}");
    let messages = visible_messages(&test_host, &session).await;
    let parts = messages.iter().flat_map(|message| &message.parts);
    let contents = parts.filter_map(|part| match part {
        Part::ToolResult(result) => Some(&result.content),
        _ => None,
    });
    let media = contents.flatten().filter_map(|content| match content {
        agent_core::message::Content::Media(media) => Some(media),
        _ => None,
    });
    assert_eq!(media.map(|media| media.name.as_deref()).collect::<Vec<_>>(), [Some("words.txt")]);
    let stored = records(&test_host, &session, 1).await;
    let record_contains = |kind: &str, words: &str| {
        stored.iter().any(|stored| stored.record.kind == kind && stored.record.body.to_string().contains(words))
    };
    assert!(
        record_contains("context", "You work for keeper") && record_contains("step_context", "released-step"),
        "{stored:?}"
    );
    assert!(record_contains("media_policy", "[kept]") && record_contains("verdict", "accepted"), "{stored:?}");
}
