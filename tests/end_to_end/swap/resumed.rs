//! A turn that waits over a restart keeps what it began with: grants, roles, tools (P10, row 19).

use crate::support::{House, calling, events, granting, results, saying, script, sending, turn};
use agent_core::cloud_event::CloudEvent;
use agent_core::event::EventKind;
use agent_core::run::{Run, TurnError};
use agent_plugins::{Access, TreeGrant, digest_of};
use agent_runtime::{Agent, AgentConfig, OpenSession, ServiceConfig, Session, SessionError, TurnResult};
use agent_store::{Commit, OpenMode, SessionLog, SessionMeta, Status};
use serde_json::{Value, json};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

fn waits() -> Value {
    calling(&[("probe.pending", json!({"text": "wait"}))])
}

/// Begins a turn that waits, and lets it go.
async fn suspended(house: &House, config: AgentConfig) -> String {
    let mut session = house.session(sending(config), script(&[waits()])).await;
    assert!(matches!(turn(&mut session, "Go.").await, TurnResult::Suspended(_)));
    let subject = session.subject().to_owned();
    session.close().await.unwrap();
    subject
}

/// The next process: an agent of this configuration whose model goes on with these replies.
async fn next(house: &House, config: AgentConfig, replies: &[Value]) -> Arc<Agent> {
    house.agent(sending(config), script(&[&[waits()], replies].concat())).await
}

async fn open(house: &House, agent: &Arc<Agent>, subject: &str) -> Result<Session, SessionError> {
    Session::open(&house.host(), agent.clone(), OpenSession::Existing(subject.to_owned())).await
}

async fn answered(session: &mut Session) -> TurnResult {
    let call = session.state().waits().remove(0).call;
    let event =
        json!({"specversion": "1.0", "id": "e1", "source": "/test", "type": "done", "parentid": call, "data": {}});
    session.respond(CloudEvent::parse(event.to_string().as_bytes()).unwrap()).await.unwrap();
    session.run(None, CancellationToken::new()).await.unwrap()
}

/// P10: what was granted while a turn waited is the next turn's, the host's own tools included.
#[tokio::test(flavor = "multi_thread")]
async fn p10_grants_are_pinned_over_a_restart() {
    let house = House::new(&["probe"]).await;
    let subject = suspended(&house, AgentConfig::new("test")).await;
    std::fs::write(house.tree().join("a.txt"), "secret").unwrap();
    let mut granting = granting(&house, "probe");
    granting.host_trees = vec![TreeGrant { host: house.tree(), guest: ".".to_owned(), access: Access::Read }];
    let reads = || calling(&[("probe.file", json!({"path": "a.txt"})), ("read_file", json!({"path": "a.txt"}))]);
    let agent = next(&house, granting, &[reads(), saying("Done."), reads(), saying("Done.")]).await;
    let mut session = open(&house, &agent, &subject).await.unwrap();
    assert!(matches!(answered(&mut session).await, TurnResult::Finished(_)));
    let errors =
        |results: Vec<(String, bool, String)>| results.into_iter().map(|(_, error, _)| error).collect::<Vec<_>>();
    assert_eq!(errors(results(&house, &session).await), [false, true, true], "nothing is granted in mid-turn");
    turn(&mut session, "Again.").await;
    assert_eq!(errors(results(&house, &session).await), [false, true, true, false, false], "the next turn has it");
}

/// P10: the same the other way round: what the turn began with it has in the next process, while it is still granted.
#[tokio::test(flavor = "multi_thread")]
async fn p10_grants_come_back_over_a_restart() {
    let house = House::new(&["probe"]).await;
    std::fs::write(house.tree().join("a.txt"), "text").unwrap();
    let subject = suspended(&house, granting(&house, "probe")).await;
    let read = calling(&[("probe.file", json!({"path": "a.txt"}))]);
    let agent = next(&house, granting(&house, "probe"), &[read, saying("Done.")]).await;
    let mut session = open(&house, &agent, &subject).await.unwrap();
    assert!(matches!(answered(&mut session).await, TurnResult::Finished(_)));
    assert!(results(&house, &session).await.iter().all(|(_, is_error, _)| !is_error));
}

/// P14: validators that the configuration names by now judge a turn that began without them, too.
#[tokio::test(flavor = "multi_thread")]
async fn p14_a_resumed_turn_is_judged_by_the_validators_of_now() {
    let house = House::new(&["probe"]).await;
    let subject = suspended(&house, AgentConfig::new("test")).await;
    let from = crate::support::components().join("bad-validator.wasm");
    std::fs::copy(from, house.directory.path().join("plugins/bad-validator.wasm")).unwrap();
    let config = AgentConfig { validators: vec!["bad-validator".to_owned()], ..AgentConfig::new("test") };
    let agent = next(&house, config, &[saying("fail")]).await;
    let mut session = open(&house, &agent, &subject).await.unwrap();
    let result = answered(&mut session).await;
    assert!(matches!(result, TurnResult::Failed(TurnError::PluginFailed { .. })), "{result:?}");
}

/// P10: a stored component that this host refuses for good ends the turn; until then it can be cancelled in any case.
#[tokio::test(flavor = "multi_thread")]
async fn p10_a_component_that_is_refused_for_good() {
    let house = House::new(&["probe"]).await;
    let no_plugin = b"\0asm\x01\0\0\0";
    house.sandbox.store().unwrap().put(&digest_of(no_plugin), no_plugin).unwrap();
    for (which, cancelled) in
        [(OpenSession::Existing as fn(String) -> OpenSession, false), (OpenSession::ToDecide, true)]
    {
        let subject = suspended(&house, AgentConfig::new("test")).await;
        let opened = house.store.open(&subject, OpenMode::Existing, SessionMeta::default()).await.unwrap();
        let mut state: Value = serde_json::from_slice(&opened.snapshot.unwrap()).unwrap();
        *state.pointer_mut("/turn/plugins/0/digest").expect("it is pinned") = json!(digest_of(no_plugin));
        let status = Status { state: "suspended".into(), turn: 1, title: None };
        let commit = Commit { snapshot: state.to_string().into_bytes(), status, ..Commit::default() };
        house.store.commit(&opened.lease, opened.revision, commit).await.unwrap();
        house.store.release(opened.lease).await.unwrap();

        let agent = next(&house, AgentConfig::new("test"), &[]).await;
        let mut session = Session::open(&house.host(), agent, which(subject)).await.unwrap();
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

/// P10, row 19: a service whose definition has changed while the turn waited is the next turn's, and so is one that came.
#[tokio::test(flavor = "multi_thread")]
async fn p10_services_are_pinned_by_their_definitions() {
    let house = House::new(&["probe"]).await;
    let service = |description: &str| ServiceConfig {
        description: description.to_owned(),
        ..ServiceConfig::new("com.example.work".parse().unwrap())
    };
    let mut config = AgentConfig::new("test");
    config.services.insert("changed".to_owned(), service("before"));
    config.services.insert("same".to_owned(), service("always"));
    let subject = suspended(&house, config.clone()).await;
    config.services.insert("changed".to_owned(), service("after"));
    config.services.insert("new".to_owned(), service("new"));
    let calls = || calling(&[("changed", json!({})), ("new", json!({}))]);
    let agent = next(&house, config, &[calls(), calling(&[("same", json!({}))])]).await;
    let mut session = open(&house, &agent, &subject).await.unwrap();
    assert!(matches!(answered(&mut session).await, TurnResult::Suspended(_)), "what is the same goes out");
    let calls = house.store.calls(session.subject(), agent_store::CallFilter::Turn(1)).await.unwrap();
    let texts: Vec<String> = calls[1..3]
        .iter()
        .map(|call| agent_core::view::result_text(&call.result.as_ref().expect("a result").content))
        .collect();
    assert!(texts[0].contains("was changed since this turn began"), "{texts:?}");
    assert!(texts[1].contains("only since this turn began"), "{texts:?}");
    let denied = events(&house, &session).await;
    assert_eq!(denied.iter().filter(|event| matches!(event.kind, EventKind::Denied { .. })).count(), 2);
}

/// P7, P10: the pins of a turn hold no values.
#[tokio::test(flavor = "multi_thread")]
async fn p7_no_value_is_pinned() {
    let house = House::new(&["probe"]).await;
    let mut config = granting(&house, "probe");
    let allowance = config.plugins.get_mut("probe").unwrap();
    allowance.grants.env.insert("PROBE".to_owned(), "canary-value".to_owned());
    allowance.grants.config.insert("probe".to_owned(), "canary-value".to_owned());
    let subject = suspended(&house, config).await;
    let opened = house.store.open(&subject, OpenMode::Existing, SessionMeta::default()).await.unwrap();
    let state = String::from_utf8(opened.snapshot.unwrap()).unwrap();
    assert!(state.contains("PROBE") && !state.contains("canary-value"), "{state}");
}
