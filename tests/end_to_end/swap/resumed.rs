//! A turn that waits across a restart keeps the grants, plugin kinds and tools from its start (P10, row 19).

use crate::support::{
    TestHost, call_reply, events, results, run_turn, script, text_reply, with_events_and_media, with_tree_grant,
};
use agent_core::cloud_event::CloudEvent;
use agent_core::event::EventKind;
use agent_core::run::{Run, TurnError};
use agent_plugins::{Access, TreeGrant, digest_of};
use agent_runtime::{Agent, AgentConfig, OpenSession, ServiceConfig, Session, SessionError, TurnResult};
use agent_store::{Commit, OpenMode, SessionLog, SessionMeta, SessionState, Status};
use serde_json::{Value, json};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

fn waiting_reply() -> Value {
    call_reply(&[("probe.pending", json!({"text": "wait"}))])
}

/// Starts a turn that waits, and closes its session.
async fn suspended_session(test_host: &TestHost, config: AgentConfig) -> String {
    let mut session = test_host.session(with_events_and_media(config), script(&[waiting_reply()])).await;
    assert!(matches!(run_turn(&mut session, "Go.").await, TurnResult::Suspended(_)));
    let subject = session.subject().to_owned();
    session.close().await.unwrap();
    subject
}

/// Creates the agent that the next process uses, with this configuration. The model of this agent continues the session
/// with these replies.
async fn agent_of_next_process(test_host: &TestHost, config: AgentConfig, replies: &[Value]) -> Arc<Agent> {
    test_host.agent(with_events_and_media(config), script(&[&[waiting_reply()], replies].concat())).await
}

async fn open_session(test_host: &TestHost, agent: &Arc<Agent>, subject: &str) -> Result<Session, SessionError> {
    Session::open(&test_host.host(), agent.clone(), OpenSession::Existing(subject.to_owned())).await
}

async fn answer_service(session: &mut Session) -> TurnResult {
    let call = session.state().waits().remove(0).call;
    let event =
        json!({"specversion": "1.0", "id": "e1", "source": "/test", "type": "done", "parentid": call, "data": {}});
    session.respond(CloudEvent::parse(event.to_string().as_bytes()).unwrap()).await.unwrap();
    session.run(None, CancellationToken::new()).await.unwrap()
}

/// P10: If a grant is added while a turn waits, the grant applies only from the next turn on. The test adds grants for
/// plugins and for the host's own tools.
#[tokio::test(flavor = "multi_thread")]
async fn p10_a_grant_added_while_a_turn_waits_applies_to_the_next_turn() {
    let test_host = TestHost::new(&["probe"]).await;
    let subject = suspended_session(&test_host, AgentConfig::new("test")).await;
    std::fs::write(test_host.tree().join("a.txt"), "secret").unwrap();
    let mut granting = with_tree_grant(&test_host, "probe");
    granting.host_trees = vec![TreeGrant { host: test_host.tree(), guest: ".".to_owned(), access: Access::Read }];
    let reads = || call_reply(&[("probe.file", json!({"path": "a.txt"})), ("read_file", json!({"path": "a.txt"}))]);
    let agent =
        agent_of_next_process(&test_host, granting, &[reads(), text_reply("Done."), reads(), text_reply("Done.")])
            .await;
    let mut session = open_session(&test_host, &agent, &subject).await.unwrap();
    assert!(matches!(answer_service(&mut session).await, TurnResult::Finished(_)));
    let errors =
        |results: Vec<(String, bool, String)>| results.into_iter().map(|(_, error, _)| error).collect::<Vec<_>>();
    assert_eq!(errors(results(&test_host, &session).await), [false, true, true], "nothing is granted during a turn");
    run_turn(&mut session, "Again.").await;
    assert_eq!(
        errors(results(&test_host, &session).await),
        [false, true, true, false, false],
        "the next turn has the grant"
    );
}

/// P10: A grant from the start of a turn applies when another process continues the turn, if the configuration still
/// contains this grant.
#[tokio::test(flavor = "multi_thread")]
async fn p10_pinned_grants_apply_after_a_restart() {
    let test_host = TestHost::new(&["probe"]).await;
    std::fs::write(test_host.tree().join("a.txt"), "text").unwrap();
    let subject = suspended_session(&test_host, with_tree_grant(&test_host, "probe")).await;
    let read = call_reply(&[("probe.file", json!({"path": "a.txt"}))]);
    let agent =
        agent_of_next_process(&test_host, with_tree_grant(&test_host, "probe"), &[read, text_reply("Done.")]).await;
    let mut session = open_session(&test_host, &agent, &subject).await.unwrap();
    assert!(matches!(answer_service(&mut session).await, TurnResult::Finished(_)));
    assert!(results(&test_host, &session).await.iter().all(|(_, is_error, _)| !is_error));
}

/// P14: The output of a turn is checked by the current validators, even if they were added to the configuration after
/// the turn had started.
#[tokio::test(flavor = "multi_thread")]
async fn p14_current_validators_check_a_resumed_turn() {
    let test_host = TestHost::new(&["probe"]).await;
    let subject = suspended_session(&test_host, AgentConfig::new("test")).await;
    let from = crate::support::components().join("bad-validator.wasm");
    std::fs::copy(from, test_host.directory.path().join("plugins/bad-validator.wasm")).unwrap();
    let config = AgentConfig { validators: vec!["bad-validator".to_owned()], ..AgentConfig::new("test") };
    let agent = agent_of_next_process(&test_host, config, &[text_reply("fail")]).await;
    let mut session = open_session(&test_host, &agent, &subject).await.unwrap();
    let result = answer_service(&mut session).await;
    assert!(matches!(result, TurnResult::Failed(TurnError::PluginFailed { .. })), "{result:?}");
}

/// P10: If the host permanently refuses a stored component, the turn ends when its session is opened. If the session is
/// opened only for a decision about the turn (`OpenSession::ToDecide`), the turn stays open and can be cancelled.
#[tokio::test(flavor = "multi_thread")]
async fn p10_a_permanently_refused_component_ends_the_turn() {
    let test_host = TestHost::new(&["probe"]).await;
    let no_plugin = b"\0asm\x01\0\0\0";
    test_host.sandbox.store().unwrap().put(&digest_of(no_plugin), no_plugin).unwrap();
    for (open_mode, cancelled) in
        [(OpenSession::Existing as fn(String) -> OpenSession, false), (OpenSession::ToDecide, true)]
    {
        let subject = suspended_session(&test_host, AgentConfig::new("test")).await;
        let opened = test_host.store.open(&subject, OpenMode::Existing, SessionMeta::default()).await.unwrap();
        let mut state: Value = serde_json::from_slice(&opened.snapshot.unwrap()).unwrap();
        *state.pointer_mut("/turn/plugins/0/digest").expect("the plugin is pinned") = json!(digest_of(no_plugin));
        let status = Status { state: SessionState::Suspended, turn: 1, title: None, ..Status::default() };
        let commit = Commit { snapshot: state.to_string().into_bytes(), status, ..Commit::default() };
        test_host.store.commit(&opened.lease, opened.revision, commit).await.unwrap();
        test_host.store.release(opened.lease).await.unwrap();

        let agent = agent_of_next_process(&test_host, AgentConfig::new("test"), &[]).await;
        let mut session = Session::open(&test_host.host(), agent, open_mode(subject)).await.unwrap();
        let end = |run: &Run| run.turn.as_ref().and_then(|turn| turn.end().cloned());
        if cancelled {
            assert!(session.state().is_open(), "{:?}", end(session.state()));
            let token = CancellationToken::new();
            token.cancel();
            assert_eq!(session.run(None, token).await.unwrap(), TurnResult::Cancelled);
        } else {
            let ended = end(session.state());
            let is_changed = matches!(&ended, Some(agent_core::run::TurnEnd::Failed(TurnError::PluginChanged { reason })) if reason.contains("probe"));
            assert!(is_changed, "{ended:?}");
        }
        session.close().await.unwrap();
    }
}

/// P10, row 19: If a service was changed or added while the turn waited, the change applies only from the next turn on.
#[tokio::test(flavor = "multi_thread")]
async fn p10_a_waiting_turn_keeps_its_service_definitions() {
    let test_host = TestHost::new(&["probe"]).await;
    let service = |description: &str| ServiceConfig {
        description: description.to_owned(),
        ..ServiceConfig::new("com.example.work".parse().unwrap())
    };
    let mut config = AgentConfig::new("test");
    config.services.insert("changed".to_owned(), service("before"));
    config.services.insert("same".to_owned(), service("always"));
    let subject = suspended_session(&test_host, config.clone()).await;
    config.services.insert("changed".to_owned(), service("after"));
    config.services.insert("new".to_owned(), service("new"));
    let calls = || call_reply(&[("changed", json!({})), ("new", json!({}))]);
    let agent = agent_of_next_process(&test_host, config, &[calls(), call_reply(&[("same", json!({}))])]).await;
    let mut session = open_session(&test_host, &agent, &subject).await.unwrap();
    assert!(matches!(answer_service(&mut session).await, TurnResult::Suspended(_)), "an unchanged request is sent");
    let calls = test_host.store.calls(session.subject(), agent_store::CallFilter::Turn(1)).await.unwrap();
    let texts: Vec<String> = calls[1..3]
        .iter()
        .map(|call| agent_core::view::result_text(&call.result.as_ref().expect("a result").content))
        .collect();
    assert!(texts[0].contains("was changed since this turn began"), "{texts:?}");
    assert!(texts[1].contains("was added after this turn began"), "{texts:?}");
    let denied = events(&test_host, &session).await;
    assert_eq!(denied.iter().filter(|event| matches!(event.kind, EventKind::Denied { .. })).count(), 2);
}

/// P7, P10: The grants that are stored with a turn contain no values of environment variables or
/// configuration settings.
#[tokio::test(flavor = "multi_thread")]
async fn p7_pinned_grants_contain_no_values() {
    let test_host = TestHost::new(&["probe"]).await;
    let mut config = with_tree_grant(&test_host, "probe");
    let allowance = config.plugins.get_mut("probe").unwrap();
    allowance.grants.env.insert("PROBE".to_owned(), "canary-value".to_owned());
    allowance.grants.config.insert("probe".to_owned(), "canary-value".to_owned());
    let subject = suspended_session(&test_host, config).await;
    let opened = test_host.store.open(&subject, OpenMode::Existing, SessionMeta::default()).await.unwrap();
    let state = String::from_utf8(opened.snapshot.unwrap()).unwrap();
    assert!(state.contains("PROBE") && !state.contains("canary-value"), "{state}");
}
