//! Rows 13, 17, 19 and 20: Attacks on approvals, permanent grants and delegation.

use crate::scene::{Scene, run_exclusively, with_grants};
use crate::support::{call_reply, components, results, run_turn, script, text_reply};
use agent_core::approval::GrantScope;
use agent_core::message::CallId;
use agent_plugins::{Access, CallLimits, Generation};
use agent_runtime::{Agent, AgentConfig, ApprovalDecision, Delegate, OpenSession, Session, TurnResult, Verdict};
use agent_store::{SessionFilter, SessionIndex};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

const PAY: &str = "payer.pay";

fn payer_config(tree: &Path, repeat: usize) -> AgentConfig {
    let grants = crate::files::trees(&[(tree, Access::ReadWrite)]);
    let mut config = with_grants("payer", grants, CallLimits::default());
    // A permanent approval belongs to an agent, so each repeat of the attack uses another agent.
    config.name = format!("payer-{repeat}");
    config
}

fn payment(amount: u32) -> Value {
    json!({"to": "Mallory", "amount": amount})
}

fn ledger_lines(tree: &Path) -> usize {
    std::fs::read_to_string(tree.join("ledger.txt")).unwrap_or_default().lines().count()
}

fn allow(call: &str, scope: GrantScope) -> ApprovalDecision {
    ApprovalDecision { call: CallId(call.to_owned()), verdict: Verdict::Allow { scope, edited: None } }
}

/// Returns the call that waits for an approval. Panics unless exactly one call waits for an approval.
fn call_to_approve(result: &TurnResult) -> String {
    match result {
        TurnResult::Suspended(suspension) if suspension.waits.len() == 1 => suspension.waits[0].call.0.clone(),
        other => panic!("not exactly one call waits: {other:?}"),
    }
}

async fn continue_turn(session: &mut Session) -> TurnResult {
    session.run(None, CancellationToken::new()).await.unwrap_or_else(|error| panic!("{error}"))
}

/// Rows 17 and 20: A model obeys instructions in a malicious tool output, but the call that it makes must first be
/// approved by the user. An approval is valid only once, for its own call and its own session.
#[test]
fn rows_17_and_20_injected_calls_and_replayed_approvals_do_not_run() {
    run_exclusively(async {
        let scene = Scene::new(&["payer"]).await;
        let tree = crate::files::tree(&scene, "ledger");
        let attack = async |repeat| {
            let before = ledger_lines(&tree);
            let replies = [
                call_reply(&[("payer.look", json!({}))]),
                call_reply(&[(PAY, payment(1))]),
                call_reply(&[(PAY, payment(2))]),
                text_reply("Done."),
            ];
            let mut session = scene.session(payer_config(&tree, repeat), &replies).await;
            let mut other_session = scene
                .session(payer_config(&tree, repeat), &[call_reply(&[(PAY, payment(3))]), text_reply("Done.")])
                .await;
            let first = call_to_approve(&run_turn(&mut session, "What is to do?").await);
            let other_call = call_to_approve(&run_turn(&mut other_session, "Pay.").await);
            assert_eq!(ledger_lines(&tree), before, "no call was allowed");
            assert!(
                other_session.approve(vec![allow(&first, GrantScope::Once)]).await.is_err(),
                "the call is of another session"
            );
            assert!(
                session.approve(vec![allow(&other_call, GrantScope::Once)]).await.is_err(),
                "the other session's call is refused too"
            );
            session.approve(vec![allow(&first, GrantScope::Once)]).await.unwrap();
            assert!(
                session.approve(vec![allow(&first, GrantScope::Once)]).await.is_err(),
                "an approval is valid only once"
            );
            let second = call_to_approve(&continue_turn(&mut session).await);
            assert_ne!(second, first, "other arguments need an approval");
            assert!(session.approve(vec![allow(&first, GrantScope::Once)]).await.is_err(), "the first call has ended");
            assert_eq!(ledger_lines(&tree), before + 1);
            session.close().await.unwrap();
            other_session.close().await.unwrap();
        };
        scene.repeat("rows 17 and 20", attack).await;
    });
}

/// Row 19: A permanent approval does not apply to a component with another digest.
#[test]
fn row_19_asks_again_for_a_changed_plugin() {
    run_exclusively(async {
        let scene = Scene::new(&["payer"]).await;
        let tree = crate::files::tree(&scene, "ledger");
        let mut changed = std::fs::read(components().join("payer.wasm")).unwrap();
        // Append a custom section: the section's kind, its size, the length of its name, and the name.
        changed.extend([0, 2, 1, b'x']);
        let attack = async |repeat| {
            let before = ledger_lines(&tree);
            let replies: Vec<_> =
                (1..4).flat_map(|amount| [call_reply(&[(PAY, payment(amount))]), text_reply("Done.")]).collect();
            let mut session = scene.session(payer_config(&tree, repeat), &replies).await;
            let call = call_to_approve(&run_turn(&mut session, "Pay.").await);
            session.approve(vec![allow(&call, GrantScope::Always)]).await.unwrap();
            assert!(matches!(continue_turn(&mut session).await, TurnResult::Finished(_)));
            assert!(
                matches!(run_turn(&mut session, "Again.").await, TurnResult::Finished(_)),
                "the permanent grant applies"
            );
            let plugin = scene.test_host.sandbox.load_bytes("payer", changed.clone()).await.unwrap();
            session.live().change(|agent| agent.with_generation(Generation::new([plugin]))).unwrap();
            call_to_approve(&run_turn(&mut session, "Once more.").await);
            assert_eq!(ledger_lines(&tree), before + 2, "the changed component did not run");
            session.close().await.unwrap();
        };
        scene.repeat("row 19", attack).await;
    });
}

/// Row 13: Repeated delegation ends at the allowed depth. (Plugins cannot call agents at all.)
#[test]
fn row_13_limits_repeated_delegation() {
    run_exclusively(async {
        let scene = Scene::new(&["probe"]).await;
        let agent = |name: &str, replies: &[Value], child: Option<Arc<Agent>>| {
            let mut config = AgentConfig::new(name);
            // The top agent has the default limit of every agent: four levels.
            config.bounds.max_depth = if name == "a" { config.bounds.max_depth } else { 16 };
            if let Some(child) = child {
                let name = child.config().name.clone();
                let delegate = Delegate { agent: child.into(), description: "Works.".to_owned(), input_schema: None };
                config.delegates.insert(name, delegate);
            }
            let file = scene.folder().join(format!("{name}.json"));
            std::fs::write(&file, script(replies).to_string()).unwrap();
            let provider = agent_models::provider(&format!("scripted:{}", file.display()), scene.folder()).unwrap();
            Arc::new(Agent::new(config, provider, scene.generation.clone()).unwrap())
        };
        let attack = async |_| {
            let ask = |name: &str| call_reply(&[(name, json!({"task": "Go on."}))]);
            let mut child = agent("f", &[text_reply("Too deep.")], None);
            for (name, next) in [("e", "f"), ("d", "e"), ("c", "d"), ("b", "c"), ("a", "b")] {
                child = agent(name, &[ask(next), text_reply("Done.")], Some(child));
            }
            let mut session = Session::open(&scene.test_host.host(), child, OpenSession::New).await.unwrap();
            assert!(matches!(run_turn(&mut session, "Go.").await, TurnResult::Finished(_)));
            assert!(results(&scene.test_host, &session).await.iter().all(|(_, is_error, _)| !is_error));
            session.close().await.unwrap();
            let sessions_of = async |agent: &str| {
                let filter = SessionFilter { agent: Some(agent.to_owned()), ..SessionFilter::default() };
                scene.test_host.store.sessions(filter, 1).await.unwrap().len()
            };
            assert_eq!(
                (sessions_of("e").await, sessions_of("f").await),
                (1, 0),
                "the agent delegates four times, but not five times"
            );
        };
        scene.repeat("row 13", attack).await;
    });
}
