//! Seed text c, step by step: memory is asked before the first step, the planner gets the tools once, and every interaction
//! is remembered (L24, D4, L4).

use crate::chat_server::{Answer, ChatServer, local};
use crate::support::{House, calling, events, records, script};
use agent_core::event::EventKind;
use agent_core::message::TurnInput;
use agent_core::text_dialect::ToolDialect;
use agent_models::Provider;
use agent_runtime::{Agent, AgentConfig, Models, OpenSession, PlanningModels, Session, TurnResult};
use agent_store::{Memories, Memory, MemoryKind};
use serde_json::{Value, json};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

const USER: &str = "ada";

struct Drawing {
    house: House,
}

impl Drawing {
    async fn new() -> Self {
        let house = House::new(&["probe"]).await;
        let memory = Memory {
            user: USER.to_owned(),
            kind: MemoryKind::Final,
            agent: "test".to_owned(),
            session: "earlier".to_owned(),
            turn: 1,
            text: "Ada's echo is called Narcissus.".to_owned(),
            written: None,
        };
        house.store.add("earlier/1/final", memory).await.unwrap();
        Self { house }
    }

    async fn session(&self, replies: &[Value], max_interactions: u32) -> Session {
        let file = self.house.directory.path().join("model.json");
        std::fs::write(&file, script(replies).to_string()).unwrap();
        let model = || -> Arc<dyn Provider> {
            agent_models::provider("scripted:model.json", self.house.directory.path()).unwrap()
        };
        let mut config = AgentConfig::new("test");
        config.user = Some(USER.to_owned());
        config.bounds.max_interactions = max_interactions;
        let mut models = Models::new(model(), []);
        models.planning = Some(PlanningModels { planner: model(), executor: model() });
        let agent = Agent::new(config, models, self.house.generation().await).unwrap();
        Session::open(&self.house.host(), Arc::new(agent), OpenSession::New).await.unwrap()
    }

    /// What is remembered of the session, the oldest first.
    async fn remembered(&self, session: &Session) -> Vec<(MemoryKind, String)> {
        let facts = Memories::list(&*self.house.store, USER, "", 50).await.unwrap().into_iter().rev();
        let own = facts.filter(|fact| fact.memory.session == session.subject());
        own.map(|fact| (fact.memory.kind, fact.memory.text)).collect()
    }
}

fn plan() -> Value {
    json!({
        "text": r#"{"steps": [{"tool": "probe.echo", "task": "echo the name"}]}"#,
        // query(user_id, user_input) → memory_context; get_schemas() → tool_schemas, once, as text.
        "expect": {"tools": [], "contains": ["retrieved-memory", "Narcissus"], "last_contains": "- `probe.echo`: Returns its text"},
    })
}

fn echo() -> Value {
    let mut call = calling(&[("probe.echo", json!({"text": "Narcissus"}))]);
    call["expect"] = json!({"offers": "probe.echo", "lacks": "Make a plan", "contains": "retrieved-memory"});
    call
}

/// The drawn loop (L4, D4): `choose_action` is asked again after each tool, with what that tool brought, and each interaction is
/// remembered; at the limit the answer is forced, and remembered as such.
#[tokio::test(flavor = "multi_thread")]
async fn c_the_drawn_loop() {
    let choosing = |mut reply: Value, expect: Value| {
        reply["expect"] = expect;
        reply
    };
    let echo = |text: &str| calling(&[("probe.echo", json!({"text": text}))]);
    let first =
        || choosing(echo("one"), json!({"offers": "probe.echo", "contains": ["retrieved-memory", "Narcissus"]}));
    let second = || choosing(echo("two"), json!({"offers": "probe.echo", "last_contains": "\"text\":\"one\""}));
    for (max_interactions, kind) in [(10, MemoryKind::Final), (2, MemoryKind::Limit)] {
        let drawing = Drawing::new().await;
        // The forced answer is one without tools.
        let expect = match kind {
            MemoryKind::Limit => json!({"tools": [], "contains": "\"text\":\"two\""}),
            _ => json!({"offers": "probe.echo", "last_contains": "\"text\":\"two\""}),
        };
        let answer = choosing(json!({"text": "Both came back."}), expect);
        let mut config = AgentConfig::new("test");
        config.user = Some(USER.to_owned());
        config.bounds.max_interactions = max_interactions;
        let agent = drawing.house.agent(config, script(&[first(), second(), answer])).await;
        let mut session = Session::open(&drawing.house.host(), agent, OpenSession::New).await.unwrap();
        let input = TurnInput::Text("What is my echo called?".into());
        let result = session.run(Some(input), CancellationToken::new()).await.unwrap();
        let TurnResult::Finished(output) = result else { panic!("{result:?}") };
        assert_eq!((output.data, output.limit_reached), (json!("Both came back."), kind == MemoryKind::Limit));
        let remembered = drawing.remembered(&session).await;
        let [(MemoryKind::Tool, one), (MemoryKind::Tool, two), (last, answer)] = &remembered[..] else {
            panic!("{remembered:?}")
        };
        assert!(one.contains("{\"text\":\"one\"}") && two.contains("{\"text\":\"two\"}"), "{remembered:?}");
        assert!(*last == kind && answer.contains("Answered: Both came back."), "{remembered:?}");
    }
}

/// run(user_input) … FinalAnswer.
#[tokio::test(flavor = "multi_thread")]
async fn c_a_tool_call_and_a_final_answer() {
    let drawing = Drawing::new().await;
    let answer =
        json!({"text": "She is called Narcissus.", "expect": {"tools": [], "contains": "\"text\":\"Narcissus\""}});
    let mut session = drawing.session(&[plan(), echo(), answer], 10).await;
    let input = TurnInput::Text("What is my echo called?".into());
    let result = session.run(Some(input), CancellationToken::new()).await.unwrap();
    let TurnResult::Finished(output) = result else { panic!("{result:?}") };
    assert_eq!(output.data, json!("She is called Narcissus."));
    // The planner's tools are given once a turn.
    let records = records(&drawing.house, &session, 1).await;
    let prompts: Vec<&str> = records
        .iter()
        .filter(|stored| stored.record.kind == "plan_prompt")
        .map(|stored| stored.record.body["text"].as_str().unwrap())
        .collect();
    assert_eq!(prompts.iter().filter(|prompt| prompt.contains("- `probe.echo`:")).count(), 1);
    // add(user_id, tool_interaction_data) → ack, and add(user_id, final_interaction_data) → ack.
    let remembered = drawing.remembered(&session).await;
    let [(MemoryKind::Tool, tool), (MemoryKind::Final, answer)] = &remembered[..] else { panic!("{remembered:?}") };
    assert!(tool.contains("Called: probe.echo {\"text\":\"Narcissus\"}\nResult: "), "{tool}");
    assert!(answer.contains("Answered: She is called Narcissus."), "{answer}");
}

/// LOOP_LIMIT reached: force_finish(state) → forced_response, remembered as such.
#[tokio::test(flavor = "multi_thread")]
async fn c_the_limit_forces_an_answer() {
    let drawing = Drawing::new().await;
    let forced = json!({"text": "Narcissus, I think.", "expect": {"tools": []}});
    let two =
        json!({"text": r#"{"steps": [{"tool": "probe.echo", "task": "a"}, {"tool": "probe.echo", "task": "b"}]}"#});
    let mut session = drawing.session(&[two, echo(), forced], 2).await;
    let input = TurnInput::Text("What is my echo called?".into());
    let result = session.run(Some(input), CancellationToken::new()).await.unwrap();
    let TurnResult::Finished(output) = result else { panic!("{result:?}") };
    assert!(output.limit_reached, "{output:?}");
    let events = events(&drawing.house, &session).await;
    assert!(!events.iter().any(|event| matches!(event.kind, EventKind::PlanFallback { .. })));
    let remembered = drawing.remembered(&session).await;
    let [(MemoryKind::Tool, tool), (MemoryKind::Limit, answer)] = &remembered[..] else { panic!("{remembered:?}") };
    assert!(tool.contains("Called: probe.echo"), "{tool}");
    assert!(answer.contains("Answered: Narcissus, I think."), "{answer}");
}

/// L22: the turn's message is tool schemas, tool rules, planning context, retrieved memory, input; the words for this call of
/// the plan alone stand at the end, since all before them is as it was in the call before.
#[tokio::test(flavor = "multi_thread")]
async fn l22_the_turns_message_has_its_sections_in_order() {
    const CALL: &str =
        r#"<tool>{"server_name": "local", "tool_name": "probe.echo", "arguments": {"text": "a"}}</tool>"#;
    let drawing = Drawing::new().await;
    let two = r#"{"steps": [{"tool": "probe.echo", "task": "a"}, {"tool": "probe.echo", "task": "b"}]}"#;
    let server =
        ChatServer::start([Answer::Text(two), Answer::Text(CALL), Answer::Text(CALL), Answer::Text("Narcissus.")])
            .await;
    let model = local(&server.base_url).model("local/tiny", drawing.house.directory.path()).unwrap();
    let mut config = AgentConfig::new("test");
    config.user = Some(USER.to_owned());
    config.tool_dialect = ToolDialect::Text;
    // All tools of the fixture in each step.
    config.offered_tools = 100;
    config.prompt.tool_rules = Some("Echo before you guess.".to_owned());
    config.prompt.chain_of_thought = Some("Think of the nymph.".to_owned());
    let mut models = Models::new(model.clone(), []);
    models.planning = Some(PlanningModels { planner: model.clone(), executor: model });
    let agent = Agent::new(config, models, drawing.house.generation().await).unwrap();
    let mut session = Session::open(&drawing.house.host(), Arc::new(agent), OpenSession::New).await.unwrap();
    let input = TurnInput::Text("What is my echo called?".into());
    let result = session.run(Some(input), CancellationToken::new()).await.unwrap();
    assert!(matches!(&result, TurnResult::Finished(output) if output.data == json!("Narcissus.")), "{result:?}");

    let requests: Vec<String> = server.bodies().iter().map(|request| request["messages"].to_string()).collect();
    let order = |request: &str, pieces: &[&str]| {
        let places: Vec<_> =
            pieces.iter().map(|piece| request.find(piece).unwrap_or_else(|| panic!("{piece}"))).collect();
        assert!(places.is_sorted(), "{pieces:?} at {places:?}: {request}");
    };
    order(
        &requests[1],
        &[
            "## capabilities",
            "## chain-of-thought",
            "## tool-schemas",
            "## tool-rules",
            "## planning-context",
            "## retrieved-memory",
            "What is my echo called?",
            "## plan-part",
            "Step 1 of 2",
        ],
    );
    order(
        &requests[0],
        &["## tool-rules", "## planning-context", "## retrieved-memory", "## plan-part", "Make a plan"],
    );
    // The second step's prompt begins with all of the first one's but its last words.
    let shared = requests[1].find("## plan-part").expect("it is there");
    let same = requests[1].bytes().zip(requests[2].bytes()).take_while(|(one, other)| one == other).count();
    let ended = requests[1][..shared].rfind("What is my echo called?").expect("the input");
    assert!(same >= ended, "{same} of {shared} bytes are the same");
    order(&requests[2], &["What is my echo called?", "Result of `probe.echo`", "## plan-part", "Step 2 of 2"]);
}
