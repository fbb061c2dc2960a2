//! The WIT contract: plugins of every kind, builder state that is passed from `init` to the steps, an image of 5 MB,
//! and a component with two kinds.

use crate::support::{
    TestHost, call_reply, events, records, results, run_turn, script, text_reply, visible_messages,
    with_events_and_media, with_tree_grant,
};
use agent_core::event::EventKind;
use agent_core::message::{Content, Digest, Part};
use agent_core::run::TurnError;
use agent_plugins::Kind;
use agent_runtime::{AgentConfig, TurnResult};
use serde_json::{Value, json};

/// L2: `init` runs once per turn, and every step receives the state that `init` returned. The text that the builder
/// adds to the prompt of a step is never stored in the history.
#[tokio::test(flavor = "multi_thread")]
async fn l2_a_builder_keeps_its_state_for_the_turn() {
    let test_host = TestHost::new(&["stateful-builder", "probe"]).await;
    let mut config = AgentConfig::new("test");
    config.context_builder = Some("stateful-builder".to_owned());
    let replies = [call_reply(&[("probe.echo", json!({"text": "x"}))]), text_reply("Done.")];
    let mut session = test_host.session(config, script(&replies)).await;
    assert!(matches!(run_turn(&mut session, "Remember the key 4711.").await, TurnResult::Finished(_)));
    let records = records(&test_host, &session, 1).await;
    let records_of = |kind: &str| records.iter().filter(|stored| stored.record.kind == kind).collect::<Vec<_>>();
    assert_eq!(records_of("context").len(), 1, "init runs once");
    let steps = records_of("step_context");
    assert_eq!(steps.len(), 2, "the builder is called for each step");
    let state = session.state().turn.as_ref().unwrap().state.clone().expect("init returned a state");
    assert_eq!(state, b"Remember the key 4711.");
    for (number, step) in steps.iter().enumerate() {
        let expected = format!("step {number}, ");
        let body = step.record.body.to_string();
        assert!(body.contains(&expected) && body.contains("state: Remember the key 4711."), "{body}");
    }
    let history = serde_json::to_string(&visible_messages(&test_host, &session).await).unwrap();
    assert!(!history.contains("state: "), "what a step adds is not stored: {history}");
}

/// P1, L12: One component may be both a tool plugin and an output validator.
#[tokio::test(flavor = "multi_thread")]
async fn p1_one_component_has_two_kinds() {
    let test_host = TestHost::new(&["two-kinds"]).await;
    let generation = test_host.generation().await;
    let plugin = generation.plugin("two-kinds").unwrap();
    assert!(plugin.has(Kind::Tool) && plugin.has(Kind::OutputValidator));
    let tool = plugin.tools()[0].name.clone();
    let mut config = AgentConfig::new("test");
    config.validators = vec!["two-kinds".to_owned()];
    let replies = [call_reply(&[(tool.as_str(), json!({"numbers": [1, 2]}))]), text_reply("Done.")];
    let mut session = test_host.session(config, script(&replies)).await;
    run_turn(&mut session, "Go.").await;
    let kinds: Vec<String> =
        records(&test_host, &session, 1).await.into_iter().map(|stored| stored.record.kind).collect();
    assert!(kinds.contains(&"verdict".to_owned()), "{kinds:?}");
    assert_eq!(results(&test_host, &session).await.len(), 1);
}

/// P2: A media item of 5 MB is transferred once, is stored by its digest, and is read back in ranges by another call.
#[tokio::test(flavor = "multi_thread")]
async fn p2_stores_a_media_item_of_five_megabytes_by_digest() {
    const BYTES: u64 = 5_000_000;
    let test_host = TestHost::new(&["probe"]).await;
    let replies = [
        call_reply(&[("probe.write_image", json!({"bytes": BYTES})), ("probe.image", json!({"bytes": 1_000_000}))]),
        text_reply("Made."),
    ];
    let mut session = test_host.session(with_events_and_media(AgentConfig::new("test")), script(&replies)).await;
    assert!(matches!(run_turn(&mut session, "Make.").await, TurnResult::Finished(_)));
    let media = media(&visible_messages(&test_host, &session).await);
    assert_eq!(media.len(), 2);
    assert_eq!(media[0].mime_type, "image/png");
    assert!(media[0].size > BYTES && media[0].dimensions.is_some(), "{media:?}");
    let digest = media[0].digest.clone();
    let stored = agent_store::Blobs::read(&*test_host.store, session.subject(), &digest, 0, u32::MAX).await.unwrap();
    assert_eq!(agent_store::digest_of(&stored), digest);
    let read =
        script(&[call_reply(&[("probe.checksum", json!({"digest": digest, "range": 65_536}))]), text_reply("Read.")]);
    let mut other_session = test_host.session(with_events_and_media(AgentConfig::new("other")), read.clone()).await;
    run_turn(&mut other_session, "Read.").await;
    let (_, is_error, text) = results(&test_host, &other_session).await.remove(0);
    assert!(is_error, "a media item belongs to its session: {text}");
    let mut replies: Vec<Value> = replies.to_vec();
    replies.extend(read["replies"].as_array().unwrap().iter().cloned());
    let subject = session.subject().to_owned();
    session.close().await.unwrap();
    let agent = test_host.agent(with_events_and_media(AgentConfig::new("test")), script(&replies)).await;
    let open = agent_runtime::OpenSession::Existing(subject);
    let mut session = agent_runtime::Session::open(&test_host.host(), agent, open).await.unwrap();
    run_turn(&mut session, "Read.").await;
    let (_, is_error, text) = results(&test_host, &session).await.pop().unwrap();
    let sum: u64 = stored.iter().map(|byte| u64::from(*byte)).sum();
    assert!(
        !is_error && text.contains(&format!("\"length\":{}", stored.len())) && text.contains(&sum.to_string()),
        "{text}"
    );
}

/// P4: The policy masks a media item that the model has already seen. The item is masked only in the copies that are
/// sent to the model, and it stays masked in all later copies.
#[tokio::test(flavor = "multi_thread")]
async fn p4_masks_a_media_item_after_it_was_seen() {
    let test_host = TestHost::new(&["probe", "masker"]).await;
    let mut config = AgentConfig::new("test");
    config.media_policies.insert("scripted".to_owned(), "masker".to_owned());
    let call = || call_reply(&[("probe.image", json!({"bytes": 10}))]);
    let replies = [call(), call(), text_reply("Seen."), text_reply("Again.")];
    let mut session = test_host.session(config, script(&replies)).await;
    run_turn(&mut session, "Look.").await;
    run_turn(&mut session, "Look again.").await;
    let masks = &session.state().masks;
    assert!(!masks.is_empty(), "an image that the model has seen is masked");
    let decisions: Vec<Value> = records(&test_host, &session, 2)
        .await
        .into_iter()
        .filter(|stored| stored.record.kind == "media_policy")
        .map(|stored| stored.record.body)
        .collect();
    let masked = decisions.last().unwrap()["items"].as_array().unwrap().iter().filter(|item| item["masked"] == true);
    assert!(masked.count() >= 1, "the image stays masked in the next turn: {decisions:?}");
    assert_eq!(media(&visible_messages(&test_host, &session).await).len(), 2, "the stored history keeps the originals");
}

/// L12, row 22: If a validator fails, the turn ends with a typed error that contains the validator's name. A failure
/// never counts as acceptance.
#[tokio::test(flavor = "multi_thread")]
async fn l12_a_failing_validator_ends_the_turn() {
    let test_host = TestHost::new(&["bad-validator"]).await;
    for words in ["trap", "no problems", "bad json", "spin", "fail"] {
        let mut config = AgentConfig::new(words.replace(' ', "-"));
        config.validators = vec!["bad-validator".to_owned()];
        let mut session = test_host.session(config, script(&[text_reply(words)])).await;
        let result = run_turn(&mut session, "Go.").await;
        let TurnResult::Failed(TurnError::PluginFailed { plugin, message }) = result else {
            panic!("`{words}` was not refused: {result:?}")
        };
        assert!(plugin.starts_with("bad-validator@") && !message.is_empty(), "{plugin}: {message}");
        let last = events(&test_host, &session).await.pop().unwrap();
        assert!(matches!(last.kind, EventKind::LoopEnd { .. }));
    }
}

/// P6: Nothing is granted by default. A denial names the plugin, the resource and the configuration line to add.
#[tokio::test(flavor = "multi_thread")]
async fn p6_grants_nothing_by_default() {
    let test_host = TestHost::new(&["files", "probe"]).await;
    std::fs::write(test_host.tree().join("note.txt"), "granted words").unwrap();
    let replies = || {
        script(&[
            call_reply(&[
                ("files.read", json!({"path": "note.txt"})),
                ("probe.env", json!({"name": "PATH"})),
                ("probe.config", json!({"name": "region"})),
            ]),
            text_reply("Done."),
        ])
    };
    let mut session = test_host.session(AgentConfig::new("test"), replies()).await;
    run_turn(&mut session, "Read.").await;
    let denied = results(&test_host, &session).await;
    assert!(
        denied[0].1 && denied[0].2.contains("--grant files:read=") && denied[0].2.contains("[plugins.files.grants]"),
        "{}",
        denied[0].2
    );
    assert!(!denied[1].2.contains("/usr"), "{}", denied[1].2);
    let mut session = test_host.session(with_tree_grant(&test_host, "files"), replies()).await;
    run_turn(&mut session, "Read.").await;
    let read = results(&test_host, &session).await;
    assert!(!read[0].1 && read[0].2.contains("granted words"), "{}", read[0].2);
}

/// P9: If a plugin is loaded again, its compiled code is read from the cache. A damaged cache file is detected
/// and rebuilt.
#[tokio::test(flavor = "multi_thread")]
async fn p9_caches_and_verifies_compiled_code() {
    let test_host = TestHost::new(&["calc"]).await;
    test_host.generation().await;
    let cache = test_host.directory.path().join("cache");
    let sandbox = || {
        let options = agent_plugins::SandboxOptions {
            cache_directory: Some(cache.clone()),
            ..agent_plugins::SandboxOptions::default()
        };
        agent_plugins::Sandbox::new(options).unwrap()
    };
    let source = async |sandbox: agent_plugins::Sandbox| {
        let found = std::sync::Mutex::new(None);
        let watch = |event: agent_plugins::LoadEvent| {
            if let agent_plugins::LoadEvent::Loaded { code, .. } = event {
                *found.lock().unwrap() = Some(code);
            }
        };
        let directory = test_host.directory.path().join("plugins");
        agent_plugins::Generation::load(&sandbox, &directory, &watch).await.unwrap();
        found.into_inner().unwrap().unwrap()
    };
    assert_eq!(source(sandbox()).await, agent_plugins::CodeSource::Compiled);
    assert_eq!(source(sandbox()).await, agent_plugins::CodeSource::Cache);
    let compiled = files_in(&cache).into_iter().filter(|path| path.extension().is_some_and(|ext| ext == "cwasm"));
    for file in compiled {
        let mut bytes = std::fs::read(&file).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        // The cache file is read-only, so the test deletes it and writes a new file.
        std::fs::remove_file(&file).unwrap();
        std::fs::write(&file, bytes).unwrap();
    }
    assert_eq!(source(sandbox()).await, agent_plugins::CodeSource::Compiled, "a flipped bit is detected");
    assert_eq!(source(sandbox()).await, agent_plugins::CodeSource::Cache, "the file is rewritten");
}

fn files_in(directory: &std::path::Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files_in(&path) } else { vec![path] }).collect()
}

fn media(messages: &[agent_core::message::Message]) -> Vec<agent_core::message::Media> {
    let parts = messages.iter().flat_map(|message| &message.parts);
    let contents = parts.filter_map(|part| match part {
        Part::ToolResult(result) => Some(&result.content),
        _ => None,
    });
    let media = contents.flatten().filter_map(|content| match content {
        Content::Media(media) => Some(media.clone()),
        _ => None,
    });
    media.inspect(|media| assert!(Digest::parse(media.digest.as_str()).is_ok())).collect()
}
