//! Whom the host believes: rows 13, 17, 19 and 20.

use crate::scene::{Scene, alone, granted};
use crate::support::{calling, components, results, saying, script, turn};
use agent_core::approval::GrantScope;
use agent_core::message::CallId;
use agent_plugins::{Access, CallLimits, Generation};
use agent_runtime::{Agent, AgentConfig, ApprovalDecision, Delegate, OpenSession, Session, TurnResult, Verdict};
use agent_store::{SessionFilter, SessionLog};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

const PAY: &str = "payer.pay";

fn paying(tree: &Path, time: usize) -> AgentConfig {
    let grants = crate::files::trees(&[(tree, Access::ReadWrite)]);
    let mut config = granted("payer", grants, CallLimits::default());
    // What is allowed for good holds for an agent: each repeat is another one's.
    config.name = format!("payer-{time}");
    config
}

fn payment(amount: u32) -> Value {
    json!({"to": "Mallory", "amount": amount})
}

fn ledger(tree: &Path) -> usize {
    std::fs::read_to_string(tree.join("ledger.txt")).unwrap_or_default().lines().count()
}

fn answer(call: &str, scope: GrantScope) -> ApprovalDecision {
    ApprovalDecision { call: CallId(call.to_owned()), verdict: Verdict::Allow { scope, edited: None } }
}

/// The one call that waits; panics where the turn does not wait.
fn waiting(result: &TurnResult) -> String {
    match result {
        TurnResult::Suspended(suspension) if suspension.waits.len() == 1 => suspension.waits[0].call.0.clone(),
        other => panic!("no one call waits: {other:?}"),
    }
}

async fn go_on(session: &mut Session) -> TurnResult {
    session.run(None, CancellationToken::new()).await.unwrap_or_else(|error| panic!("{error}"))
}

/// Rows 17 and 20: a model that obeys a tool's output is stopped at the approval; an answer counts once, for its own call and
/// its own session.
#[test]
fn rows_17_and_20_a_model_that_obeys_and_answers_that_are_replayed() {
    alone(async {
        let scene = Scene::new(&["payer"]).await;
        let tree = crate::files::tree(&scene, "ledger");
        let attack = async |time| {
            let before = ledger(&tree);
            let replies = [
                calling(&[("payer.look", json!({}))]),
                calling(&[(PAY, payment(1))]),
                calling(&[(PAY, payment(2))]),
                saying("Done."),
            ];
            let mut session = scene.session(paying(&tree, time), &replies).await;
            let mut other = scene.session(paying(&tree, time), &[calling(&[(PAY, payment(3))]), saying("Done.")]).await;
            let first = waiting(&turn(&mut session, "What is to do?").await);
            let foreign = waiting(&turn(&mut other, "Pay.").await);
            assert_eq!(ledger(&tree), before, "nobody has allowed anything");
            assert!(other.approve(vec![answer(&first, GrantScope::Once)]).await.is_err(), "another session's call");
            assert!(session.approve(vec![answer(&foreign, GrantScope::Once)]).await.is_err(), "and the other way");
            session.approve(vec![answer(&first, GrantScope::Once)]).await.unwrap();
            assert!(session.approve(vec![answer(&first, GrantScope::Once)]).await.is_err(), "it counts once");
            let second = waiting(&go_on(&mut session).await);
            assert_ne!(second, first, "other arguments are asked for");
            assert!(session.approve(vec![answer(&first, GrantScope::Once)]).await.is_err(), "it is over");
            assert_eq!(ledger(&tree), before + 1);
            session.close().await.unwrap();
            other.close().await.unwrap();
        };
        scene.repeat("rows 17 and 20", attack).await;
    });
}

/// Row 19: what was allowed for good is void for a component with another digest.
#[test]
fn row_19_a_plugin_that_has_changed() {
    alone(async {
        let scene = Scene::new(&["payer"]).await;
        let tree = crate::files::tree(&scene, "ledger");
        let mut changed = std::fs::read(components().join("payer.wasm")).unwrap();
        // A custom section: its kind, its size, and its name with its length.
        changed.extend([0, 2, 1, b'x']);
        let attack = async |time| {
            let before = ledger(&tree);
            let replies: Vec<_> =
                (1..4).flat_map(|amount| [calling(&[(PAY, payment(amount))]), saying("Done.")]).collect();
            let mut session = scene.session(paying(&tree, time), &replies).await;
            let asked = waiting(&turn(&mut session, "Pay.").await);
            session.approve(vec![answer(&asked, GrantScope::Always)]).await.unwrap();
            assert!(matches!(go_on(&mut session).await, TurnResult::Finished(_)));
            assert!(matches!(turn(&mut session, "Again.").await, TurnResult::Finished(_)), "it is remembered");
            let plugin = scene.house.sandbox.load_bytes("payer", changed.clone()).await.unwrap();
            session.live().change(|agent| agent.with_generation(Generation::new([plugin]))).unwrap();
            waiting(&turn(&mut session, "Once more.").await);
            assert_eq!(ledger(&tree), before + 2, "what has changed has not run");
            session.close().await.unwrap();
        };
        scene.repeat("row 19", attack).await;
    });
}

/// Row 13: work that is handed on and on ends at the depth that is allowed. (Plugins cannot call agents at all.)
#[test]
fn row_13_agents_that_hand_on_their_work() {
    alone(async {
        let scene = Scene::new(&["probe"]).await;
        let agent = |name: &str, replies: &[Value], below: Option<Arc<Agent>>| {
            let mut config = AgentConfig::new(name);
            // The one above all others has the bound of every agent: four.
            config.bounds.max_depth = if name == "a" { config.bounds.max_depth } else { 16 };
            if let Some(below) = below {
                let name = below.config().name.clone();
                let delegate = Delegate { agent: below.into(), description: "Works.".to_owned(), input_schema: None };
                config.delegates.insert(name, delegate);
            }
            let file = scene.folder().join(format!("{name}.json"));
            std::fs::write(&file, script(replies).to_string()).unwrap();
            let provider = agent_models::provider(&format!("scripted:{}", file.display()), scene.folder()).unwrap();
            Arc::new(Agent::new(config, provider, scene.generation.clone()).unwrap())
        };
        let attack = async |_| {
            let ask = |name: &str| calling(&[(name, json!({"task": "Go on."}))]);
            let mut below = agent("f", &[saying("Too deep.")], None);
            for (name, next) in [("e", "f"), ("d", "e"), ("c", "d"), ("b", "c"), ("a", "b")] {
                below = agent(name, &[ask(next), saying("Done.")], Some(below));
            }
            let mut session = Session::open(&scene.house.host(), below, OpenSession::New).await.unwrap();
            assert!(matches!(turn(&mut session, "Go.").await, TurnResult::Finished(_)));
            assert!(results(&scene.house, &session).await.iter().all(|(_, is_error, _)| !is_error));
            session.close().await.unwrap();
            let sessions_of = async |agent: &str| {
                let filter = SessionFilter { agent: Some(agent.to_owned()), ..SessionFilter::default() };
                scene.house.store.sessions(filter, 1).await.unwrap().len()
            };
            assert_eq!((sessions_of("e").await, sessions_of("f").await), (1, 0), "four times, and not five");
        };
        scene.repeat("row 13", attack).await;
    });
}
