//! The contract, proven before anything is built on it: guests of every kind, state from `init` to the steps, a medium of
//! 5 MB, and one component of two kinds.

use crate::support::{House, calling, events, granting, records, results, saying, script, sending, turn, view};
use agent_core::event::EventKind;
use agent_core::message::{Content, Digest, Part};
use agent_core::run::TurnError;
use agent_plugins::Kind;
use agent_runtime::{AgentConfig, TurnResult};
use serde_json::{Value, json};

/// L2: `init` runs once a turn, and what it returns as state reaches every step; what a step adds never enters the history.
#[tokio::test(flavor = "multi_thread")]
async fn a_builder_with_state() {
    let house = House::new(&["stateful-builder", "probe"]).await;
    let mut config = AgentConfig::new("test");
    config.context_builder = Some("stateful-builder".to_owned());
    let replies = [calling(&[("probe.echo", json!({"text": "x"}))]), saying("Done.")];
    let mut session = house.session(config, script(&replies)).await;
    assert!(matches!(turn(&mut session, "Remember the key 4711.").await, TurnResult::Finished(_)));
    let records = records(&house, &session, 1).await;
    let of = |kind: &str| records.iter().filter(|stored| stored.record.kind == kind).collect::<Vec<_>>();
    assert_eq!(of("context").len(), 1, "init runs once");
    let steps = of("step_context");
    assert_eq!(steps.len(), 2, "each step is asked");
    let state = session.state().turn.as_ref().unwrap().state.clone().expect("init returned a state");
    assert_eq!(state, b"Remember the key 4711.");
    for (number, step) in steps.iter().enumerate() {
        let expected = format!("step {number}, ");
        let body = step.record.body.to_string();
        assert!(body.contains(&expected) && body.contains("state: Remember the key 4711."), "{body}");
    }
    let history = serde_json::to_string(&view(&house, &session).await).unwrap();
    assert!(!history.contains("state: "), "what a step adds is not stored: {history}");
}

/// P1, L12: one component may be a tool plugin and an output validator; its authority is that of the call.
#[tokio::test(flavor = "multi_thread")]
async fn one_component_of_two_kinds() {
    let house = House::new(&["two-kinds"]).await;
    let generation = house.generation().await;
    let plugin = generation.plugin("two-kinds").unwrap();
    assert!(plugin.has(Kind::Tool) && plugin.has(Kind::OutputValidator));
    let tool = plugin.tools()[0].name.clone();
    let mut config = AgentConfig::new("test");
    config.validators = vec!["two-kinds".to_owned()];
    let replies = [calling(&[(tool.as_str(), json!({"numbers": [1, 2]}))]), saying("Done.")];
    let mut session = house.session(config, script(&replies)).await;
    turn(&mut session, "Go.").await;
    let kinds: Vec<String> = records(&house, &session, 1).await.into_iter().map(|stored| stored.record.kind).collect();
    assert!(kinds.contains(&"verdict".to_owned()), "{kinds:?}");
    assert_eq!(results(&house, &session).await.len(), 1);
}

/// P2: a medium of 5 MB crosses once, is stored by its digest, and is read back by ranges in another call.
#[tokio::test(flavor = "multi_thread")]
async fn a_medium_of_five_megabytes() {
    const BYTES: u64 = 5_000_000;
    let house = House::new(&["probe"]).await;
    let replies = [
        calling(&[("probe.write_image", json!({"bytes": BYTES})), ("probe.image", json!({"bytes": 1_000_000}))]),
        saying("Made."),
    ];
    let mut session = house.session(sending(AgentConfig::new("test")), script(&replies)).await;
    assert!(matches!(turn(&mut session, "Make.").await, TurnResult::Finished(_)));
    let media = media(&view(&house, &session).await);
    assert_eq!(media.len(), 2);
    assert_eq!(media[0].mime_type, "image/png");
    assert!(media[0].size > BYTES && media[0].dimensions.is_some(), "{media:?}");
    let digest = media[0].digest.clone();
    let stored = agent_store::Blobs::read(&*house.store, session.subject(), &digest, 0, u32::MAX).await.unwrap();
    assert_eq!(agent_store::digest_of(&stored), digest);
    let read = script(&[calling(&[("probe.checksum", json!({"digest": digest, "range": 65_536}))]), saying("Read.")]);
    let mut other = house.session(sending(AgentConfig::new("other")), read.clone()).await;
    turn(&mut other, "Read.").await;
    let (_, is_error, text) = results(&house, &other).await.remove(0);
    assert!(is_error, "a medium belongs to its session: {text}");
    let mut replies: Vec<Value> = replies.to_vec();
    replies.extend(read["replies"].as_array().unwrap().iter().cloned());
    let subject = session.subject().to_owned();
    session.close().await.unwrap();
    let agent = house.agent(sending(AgentConfig::new("test")), script(&replies)).await;
    let open = agent_runtime::OpenSession::Existing(subject);
    let mut session = agent_runtime::Session::open(&house.host(), agent, open).await.unwrap();
    turn(&mut session, "Read.").await;
    let (_, is_error, text) = results(&house, &session).await.pop().unwrap();
    let sum: u64 = stored.iter().map(|byte| u64::from(*byte)).sum();
    assert!(
        !is_error && text.contains(&format!("\"length\":{}", stored.len())) && text.contains(&sum.to_string()),
        "{text}"
    );
}

/// P4: the policy masks a medium that the model has seen, in the outgoing copy only, and it stays masked.
#[tokio::test(flavor = "multi_thread")]
async fn a_medium_is_masked_once_seen() {
    let house = House::new(&["probe", "masker"]).await;
    let mut config = AgentConfig::new("test");
    config.media_policies.insert("scripted".to_owned(), "masker".to_owned());
    let call = || calling(&[("probe.image", json!({"bytes": 10}))]);
    let replies = [call(), call(), saying("Seen."), saying("Again.")];
    let mut session = house.session(config, script(&replies)).await;
    turn(&mut session, "Look.").await;
    turn(&mut session, "Look again.").await;
    let masks = &session.state().masks;
    assert!(!masks.is_empty(), "what was seen is masked");
    let decisions: Vec<Value> = records(&house, &session, 2)
        .await
        .into_iter()
        .filter(|stored| stored.record.kind == "media_policy")
        .map(|stored| stored.record.body)
        .collect();
    let masked = decisions.last().unwrap()["items"].as_array().unwrap().iter().filter(|item| item["masked"] == true);
    assert!(masked.count() >= 1, "an earlier decision is told to the policy: {decisions:?}");
    assert_eq!(media(&view(&house, &session).await).len(), 2, "the stored history keeps the originals");
}

/// L12, row 22: a validator that fails ends the turn with a typed error naming it; it never counts as acceptance.
#[tokio::test(flavor = "multi_thread")]
async fn a_validator_that_fails() {
    let house = House::new(&["bad-validator"]).await;
    for words in ["trap", "no problems", "bad json", "spin", "fail"] {
        let mut config = AgentConfig::new(words.replace(' ', "-"));
        config.validators = vec!["bad-validator".to_owned()];
        let mut session = house.session(config, script(&[saying(words)])).await;
        let result = turn(&mut session, "Go.").await;
        let TurnResult::Failed(TurnError::PluginFailed { plugin, message }) = result else {
            panic!("`{words}` went through: {result:?}")
        };
        assert!(plugin.starts_with("bad-validator@") && !message.is_empty(), "{plugin}: {message}");
        let last = events(&house, &session).await.pop().unwrap();
        assert!(matches!(last.kind, EventKind::LoopEnd { .. }));
    }
}

/// P6: nothing by default; a denial names the plugin, the thing and the line to add.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_granted_by_default() {
    let house = House::new(&["files", "probe"]).await;
    std::fs::write(house.tree().join("note.txt"), "granted words").unwrap();
    let replies = || {
        script(&[
            calling(&[
                ("files.read", json!({"path": "note.txt"})),
                ("probe.env", json!({"name": "PATH"})),
                ("probe.config", json!({"name": "region"})),
            ]),
            saying("Done."),
        ])
    };
    let mut session = house.session(AgentConfig::new("test"), replies()).await;
    turn(&mut session, "Read.").await;
    let denied = results(&house, &session).await;
    assert!(
        denied[0].1 && denied[0].2.contains("--grant files:write=") && denied[0].2.contains("[plugins.files.grants]"),
        "{}",
        denied[0].2
    );
    assert!(!denied[1].2.contains("/usr"), "{}", denied[1].2);
    let mut session = house.session(granting(&house, "files"), replies()).await;
    turn(&mut session, "Read.").await;
    let read = results(&house, &session).await;
    assert!(!read[0].1 && read[0].2.contains("granted words"), "{}", read[0].2);
}

/// P9: compiled code is read from the cache the next time, and a damaged file is rebuilt, never trusted.
#[tokio::test(flavor = "multi_thread")]
async fn compiled_code_is_cached_and_checked() {
    let house = House::new(&["calc"]).await;
    house.generation().await;
    let cache = house.directory.path().join("cache");
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
        let directory = house.directory.path().join("plugins");
        agent_plugins::Generation::load(&sandbox, &directory, &watch).await.unwrap();
        found.into_inner().unwrap().unwrap()
    };
    assert_eq!(source(sandbox()).await, agent_plugins::CodeSource::Compiled);
    assert_eq!(source(sandbox()).await, agent_plugins::CodeSource::Cache);
    let compiled = walk(&cache).into_iter().filter(|path| path.extension().is_some_and(|ext| ext == "cwasm"));
    for file in compiled {
        let mut bytes = std::fs::read(&file).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        // The file is for reading only.
        std::fs::remove_file(&file).unwrap();
        std::fs::write(&file, bytes).unwrap();
    }
    assert_eq!(source(sandbox()).await, agent_plugins::CodeSource::Compiled, "a flipped bit is noticed");
    assert_eq!(source(sandbox()).await, agent_plugins::CodeSource::Cache, "and the file is written again");
}

fn walk(directory: &std::path::Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { walk(&path) } else { vec![path] }).collect()
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
