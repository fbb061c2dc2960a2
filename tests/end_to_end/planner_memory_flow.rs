//! Tests an agent with a planner and long-term memory. The host searches the memory before the first step, gives the
//! planner the tools once, and stores every interaction as a memory (L24, D4, L4).

use crate::chat_server::{Answer, ChatServer, local_provider};
use crate::support::{TestHost, call_reply, events, records, script};
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

struct PlannerSetup {
    test_host: TestHost,
}

impl PlannerSetup {
    async fn new() -> Self {
        let test_host = TestHost::new(&["probe"]).await;
        let memory = Memory {
            user: USER.to_owned(),
            kind: MemoryKind::Final,
            agent: "test".to_owned(),
            session: "earlier".to_owned(),
            turn: 1,
            text: "Ada's echo is called Narcissus.".to_owned(),
            project: None,
            written: None,
        };
        test_host.store.add("earlier/1/final", memory).await.unwrap();
        Self { test_host }
    }

    async fn session(&self, replies: &[Value], max_interactions: u32) -> Session {
        let file = self.test_host.directory.path().join("model.json");
        std::fs::write(&file, script(replies).to_string()).unwrap();
        let model = || -> Arc<dyn Provider> {
            agent_models::provider("scripted:model.json", self.test_host.directory.path()).unwrap()
        };
        let mut config = AgentConfig::new("test");
        config.user = Some(USER.to_owned());
        config.bounds.max_interactions = max_interactions;
        let mut models = Models::new(model(), []);
        models.planning = Some(PlanningModels { planner: model(), executor: model() });
        let agent = Agent::new(config, models, self.test_host.generation().await).unwrap();
        Session::open(&self.test_host.host(), Arc::new(agent), OpenSession::New).await.unwrap()
    }

    /// Returns the memories of the session, oldest first.
    async fn remembered(&self, session: &Session) -> Vec<(MemoryKind, String)> {
        let facts = Memories::list(&*self.test_host.store, USER, "", 50).await.unwrap().into_iter().rev();
        let session_facts = facts.filter(|fact| fact.memory.session == session.subject());
        session_facts.map(|fact| (fact.memory.kind, fact.memory.text)).collect()
    }
}

fn plan() -> Value {
    json!({
        "text": r#"{"steps": [{"tool": "probe.echo", "task": "echo the name"}]}"#,
        // The prompt contains the recalled memory and the tool schemas. The tool schemas are written as text in the
        // last message, and the request contains no tool definitions.
        "expect": {"tools": [], "contains": ["retrieved-memory", "Narcissus"], "last_contains": "- `probe.echo`: Returns its text"},
    })
}

fn echo() -> Value {
    let mut call = call_reply(&[("probe.echo", json!({"text": "Narcissus"}))]);
    call["expect"] = json!({"offers": "probe.echo", "lacks": "Make a plan", "contains": "retrieved-memory"});
    call
}

/// L4, D4: After each tool call, the host calls the model with the tool's result, and the interaction is stored as a
/// memory. At the interaction limit, the model must answer without tools, and its answer is stored as a memory of
/// kind `Limit`.
#[tokio::test(flavor = "multi_thread")]
async fn l4_remembers_each_interaction_up_to_the_limit() {
    let expecting = |mut reply: Value, expect: Value| {
        reply["expect"] = expect;
        reply
    };
    let echo = |text: &str| call_reply(&[("probe.echo", json!({"text": text}))]);
    let first =
        || expecting(echo("one"), json!({"offers": "probe.echo", "contains": ["retrieved-memory", "Narcissus"]}));
    let second = || expecting(echo("two"), json!({"offers": "probe.echo", "last_contains": "\"text\":\"one\""}));
    for (max_interactions, kind) in [(10, MemoryKind::Final), (2, MemoryKind::Limit)] {
        let setup = PlannerSetup::new().await;
        // The request for the answer at the interaction limit offers no tools.
        let expect = match kind {
            MemoryKind::Limit => json!({"tools": [], "contains": "\"text\":\"two\""}),
            _ => json!({"offers": "probe.echo", "last_contains": "\"text\":\"two\""}),
        };
        let answer = expecting(json!({"text": "Both came back."}), expect);
        let mut config = AgentConfig::new("test");
        config.user = Some(USER.to_owned());
        config.bounds.max_interactions = max_interactions;
        let agent = setup.test_host.agent(config, script(&[first(), second(), answer])).await;
        let mut session = Session::open(&setup.test_host.host(), agent, OpenSession::New).await.unwrap();
        let input = TurnInput::Text("What is my echo called?".into());
        let result = session.run(Some(input), CancellationToken::new()).await.unwrap();
        let TurnResult::Finished(output) = result else { panic!("{result:?}") };
        assert_eq!((output.data, output.limit_reached), (json!("Both came back."), kind == MemoryKind::Limit));
        let remembered = setup.remembered(&session).await;
        let [(MemoryKind::Tool, one), (MemoryKind::Tool, two_steps), (last, answer)] = &remembered[..] else {
            panic!("{remembered:?}")
        };
        assert!(one.contains("{\"text\":\"one\"}") && two_steps.contains("{\"text\":\"two\"}"), "{remembered:?}");
        assert!(*last == kind && answer.contains("Answered: Both came back."), "{remembered:?}");
    }
}

/// A plan with one tool call is executed, and the turn ends with a final answer.
#[tokio::test(flavor = "multi_thread")]
async fn l24_a_plan_runs_a_tool_call_and_ends_with_an_answer() {
    let setup = PlannerSetup::new().await;
    let answer =
        json!({"text": "She is called Narcissus.", "expect": {"tools": [], "contains": "\"text\":\"Narcissus\""}});
    let mut session = setup.session(&[plan(), echo(), answer], 10).await;
    let input = TurnInput::Text("What is my echo called?".into());
    let result = session.run(Some(input), CancellationToken::new()).await.unwrap();
    let TurnResult::Finished(output) = result else { panic!("{result:?}") };
    assert_eq!(output.data, json!("She is called Narcissus."));
    // The host gives the planner the tools once per turn.
    let records = records(&setup.test_host, &session, 1).await;
    let prompts: Vec<&str> = records
        .iter()
        .filter(|stored| stored.record.kind == "plan_prompt")
        .map(|stored| stored.record.body["text"].as_str().unwrap())
        .collect();
    assert_eq!(prompts.iter().filter(|prompt| prompt.contains("- `probe.echo`:")).count(), 1);
    // The tool call with its result and the final answer are stored as memories.
    let remembered = setup.remembered(&session).await;
    let [(MemoryKind::Tool, tool), (MemoryKind::Final, answer)] = &remembered[..] else { panic!("{remembered:?}") };
    assert!(tool.contains("Called: probe.echo {\"text\":\"Narcissus\"}\nResult: "), "{tool}");
    assert!(answer.contains("Answered: She is called Narcissus."), "{answer}");
}

/// When the turn reaches the interaction limit, the model must answer without tools, and its answer is stored as a
/// memory of kind `Limit`.
#[tokio::test(flavor = "multi_thread")]
async fn l4_the_limit_forces_an_answer() {
    let setup = PlannerSetup::new().await;
    let forced = json!({"text": "Narcissus, I think.", "expect": {"tools": []}});
    let two_steps =
        json!({"text": r#"{"steps": [{"tool": "probe.echo", "task": "a"}, {"tool": "probe.echo", "task": "b"}]}"#});
    let mut session = setup.session(&[two_steps, echo(), forced], 2).await;
    let input = TurnInput::Text("What is my echo called?".into());
    let result = session.run(Some(input), CancellationToken::new()).await.unwrap();
    let TurnResult::Finished(output) = result else { panic!("{result:?}") };
    assert!(output.limit_reached, "{output:?}");
    let events = events(&setup.test_host, &session).await;
    assert!(!events.iter().any(|event| matches!(event.kind, EventKind::PlanFallback { .. })));
    let remembered = setup.remembered(&session).await;
    let [(MemoryKind::Tool, tool), (MemoryKind::Limit, answer)] = &remembered[..] else { panic!("{remembered:?}") };
    assert!(tool.contains("Called: probe.echo"), "{tool}");
    assert!(answer.contains("Answered: Narcissus, I think."), "{answer}");
}

/// L22: The turn's message consists of tool schemas, tool rules, planning context, retrieved memory and input. The
/// instructions for the current planning call come last, so that everything before these instructions is the same as
/// in the previous call.
#[tokio::test(flavor = "multi_thread")]
async fn l22_the_message_of_a_turn_has_its_sections_in_order() {
    const CALL: &str =
        r#"<tool>{"server_name": "local", "tool_name": "probe.echo", "arguments": {"text": "a"}}</tool>"#;
    let setup = PlannerSetup::new().await;
    let two_steps = r#"{"steps": [{"tool": "probe.echo", "task": "a"}, {"tool": "probe.echo", "task": "b"}]}"#;
    let server = ChatServer::start([
        Answer::Text(two_steps),
        Answer::Text(CALL),
        Answer::Text(CALL),
        Answer::Text("Narcissus."),
    ])
    .await;
    let model = local_provider(&server.base_url).model("local/tiny", setup.test_host.directory.path()).unwrap();
    let mut config = AgentConfig::new("test");
    config.user = Some(USER.to_owned());
    config.tool_dialect = ToolDialect::Text;
    // Every step offers all tools of the fixture.
    config.offered_tools = 100;
    config.prompt.tool_rules = Some("Echo before you guess.".to_owned());
    config.prompt.chain_of_thought = Some("Think of the nymph.".to_owned());
    let mut models = Models::new(model.clone(), []);
    models.planning = Some(PlanningModels { planner: model.clone(), executor: model });
    let agent = Agent::new(config, models, setup.test_host.generation().await).unwrap();
    let mut session = Session::open(&setup.test_host.host(), Arc::new(agent), OpenSession::New).await.unwrap();
    let input = TurnInput::Text("What is my echo called?".into());
    let result = session.run(Some(input), CancellationToken::new()).await.unwrap();
    assert!(matches!(&result, TurnResult::Finished(output) if output.data == json!("Narcissus.")), "{result:?}");

    let requests: Vec<String> = server.bodies().iter().map(|request| request["messages"].to_string()).collect();
    let check_order = |request: &str, sections: &[&str]| {
        let positions: Vec<_> =
            sections.iter().map(|section| request.find(section).unwrap_or_else(|| panic!("{section}"))).collect();
        assert!(positions.is_sorted(), "{sections:?} at {positions:?}: {request}");
    };
    check_order(
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
    check_order(
        &requests[0],
        &["## tool-rules", "## planning-context", "## retrieved-memory", "## plan-part", "Make a plan"],
    );
    // The prompt of the second step begins with the whole prompt of the first step, except for the instructions at
    // its end.
    let shared = requests[1].find("## plan-part").expect("the prompt has this section");
    let same_bytes = requests[1].bytes().zip(requests[2].bytes()).take_while(|(one, other)| one == other).count();
    let ended = requests[1][..shared].rfind("What is my echo called?").expect("the input");
    assert!(same_bytes >= ended, "{same_bytes} of {shared} bytes are the same");
    check_order(&requests[2], &["What is my echo called?", "Result of `probe.echo`", "## plan-part", "Step 2 of 2"]);
}
