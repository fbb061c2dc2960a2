//! The complete sequence of a session: the input, the wait for a service, the resumed turn, and a second turn that
//! reaches the interaction limit.

use super::response;
use crate::fixture::{ServerLog, mcp_server};
use crate::support::{
    TestHost, call_reply, event_types, results, run_turn, script, text_reply, view_summary, visible_messages,
};
use agent_core::event::EndReason;
use agent_core::message::TurnInput;
use agent_core::run::{AtLimit, TurnError};
use agent_mcp::{ChildCommand, ServerConfig, Transport};
use agent_plugins::{Access, TreeGrant};
use agent_runtime::{Agent, AgentConfig, OpenSession, ServiceConfig, Session, TurnResult};
use agent_store::{Outbox, OutboxFilter};
use serde_json::{Value, json};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// A session whose agent has a context builder, an MCP server, plugin tools and a service.
struct ResumeSetup {
    test_host: TestHost,
    agent: Arc<Agent>,
    log: ServerLog,
    session: Session,
}

/// Adds to a scripted reply what the request for this reply must contain: the lifecycle of the prompt, and the messages
/// with their seen counts.
fn expecting(mut reply: Value, lifecycle: &str, messages: &str) -> Value {
    // The last message of the prompt is not in the history: it is the context builder's text for the step.
    let messages = format!("{messages}, user 0");
    let (roles, seen): (Vec<&str>, Vec<u32>) = messages
        .split(", ")
        .map(|message| message.split_once(' ').unwrap())
        .map(|(role, seen)| (role, seen.parse::<u32>().unwrap()))
        .unzip();
    reply["expect"] = json!({"lifecycle": lifecycle, "roles": roles, "seen_counts": seen, "output_schema": true});
    reply
}

/// The model's replies in the order of the requests, each with the expected content of its request.
fn replies() -> Vec<Value> {
    let mut first = expecting(
        call_reply(&[
            ("desk.echo", json!({"text": "low"})),
            ("probe.high", json!({"ms": 1})),
            ("list_directory", json!({"path": "docs"})),
        ]),
        "init",
        "user 0",
    );
    first["expect"]["system_contains"] = json!("\"lifecycle\":\"init\"");
    let second = expecting(
        call_reply(&[
            ("nowhere", json!({})),
            ("desk.echo", json!({"text": "from the desk"})),
            ("list_directory", json!({"path": "docs"})),
            ("weather_forecast", json!({})),
            ("weather_forecast", json!({"of": "Bern"})),
        ]),
        "tool_result",
        "user 1, assistant 1, tool 0, tool 0, tool 0",
    );
    let mut third = expecting(
        text_reply("It is sunny."),
        "tool_result",
        "user 2, assistant 2, tool 1, tool 1, tool 1, assistant 1, tool 0, tool 0, tool 0, tool 0, tool 0",
    );
    third["expect"]["contains"] = json!(["from the desk", "a.txt", "there is no tool", "required", "\"sky\":\"blue\""]);
    let mut fourth = expecting(
        text_reply("{\"sky\": \"blue\"}"),
        "output_error_feedback",
        "user 3, assistant 3, tool 2, tool 2, tool 2, assistant 2, tool 1, tool 1, tool 1, tool 1, tool 1, assistant 1, user 0",
    );
    fourth["expect"]["contains"] = json!("Your answer was not accepted");
    let list_call = || call_reply(&[("list_directory", json!({"path": "docs"}))]);
    vec![first, second, third, fourth, list_call(), list_call(), list_call(), list_call()]
}

impl ResumeSetup {
    async fn new() -> Self {
        let test_host = TestHost::new(&["stateful-builder", "probe"]).await;
        std::fs::write(test_host.tree().join("a.txt"), "a").unwrap();
        let log = ServerLog { path: test_host.directory.path().join("desk-log") };
        let args = vec!["good".to_owned(), log.path.display().to_string()];
        let command = ChildCommand { command: mcp_server().display().to_string(), args, ..ChildCommand::default() };
        let mut config = AgentConfig::new("seed-a");
        config.mcp = vec![ServerConfig::new("desk", Transport::Stdio(command))];
        config.context_builder = Some("stateful-builder".to_owned());
        config.host_trees = vec![TreeGrant { host: test_host.tree(), guest: "docs".to_owned(), access: Access::Read }];
        config.output_schema = Some(json!({"type": "object", "required": ["sky"]}));
        (config.bounds.max_interactions, config.bounds.at_limit) = (4, AtLimit::Error);
        // The calls run one at a time, so that the order of their events is always the same.
        config.bounds.parallel_calls = 1;
        config.offered_tools = 100;
        let accepts = json!({"type": "object", "required": ["of"], "properties": {"of": {"type": "string"}}});
        let service = ServiceConfig { accepts, ..ServiceConfig::new("weather.forecast".parse().unwrap()) };
        config.services.insert("weather.forecast".to_owned(), service);
        let agent = test_host.agent(config, script(&replies())).await;
        let session = Session::open(&test_host.host(), agent.clone(), OpenSession::New).await.unwrap();
        Self { test_host, agent, log, session }
    }

    /// Waits until no process of the MCP server runs, and checks how many processes were started.
    async fn check_disconnected(&self, times: usize) {
        self.log.all_gone().await;
        assert_eq!(self.log.started().len(), times);
    }

    /// Runs the first turn from its input until it waits for the service.
    async fn run_until_it_waits(&mut self) {
        let input = TurnInput::Json(json!({"city": "Bern"}));
        assert!(self.log.started().is_empty());
        let result = self.session.run(Some(input), CancellationToken::new()).await.unwrap();
        let TurnResult::Suspended(suspension) = result else { panic!("{result:?}") };
        let [wait] = suspension.waits.as_slice() else { panic!("{suspension:?}") };
        assert_eq!(wait.name, "weather.forecast");
        assert_eq!(self.log.count("tools/call"), 1, "the lower-priority call never ran");
        self.check_disconnected(1).await;
        let outbox = self.test_host.store.outbox(Some(self.session.subject()), OutboxFilter::All, 0, 9).await.unwrap();
        assert_eq!(outbox.len(), 1, "the outbox contains the event of the service call");
        // The stored state contains the seen counts, the prompt sections, the number of interactions, and the execution
        // units that were used.
        let turn = self.session.state().turn.clone().unwrap();
        assert_eq!((turn.interactions, turn.config.max_interactions, turn.execution_units), (2, 4, 220));
        assert!(!turn.sections.is_empty());
        let counts = ["user 2", "assistant 2", "tool 1", "tool 1", "tool 1", "assistant 1"];
        assert_eq!(view_summary(&self.test_host, &self.session).await, counts);
        // The context builder returned no messages, so the first message is the input as JSON.
        assert_eq!(visible_messages(&self.test_host, &self.session).await[0].plain_text(), "{\"city\":\"Bern\"}");
    }

    /// Reopens the session, answers the service call, and runs the first turn until it ends with an output.
    async fn run_until_it_answers(&mut self) {
        let subject = self.session.subject().to_owned();
        let state = self.session.state().clone();
        let call = state.waits()[0].call.clone();
        let other_session = Session::open(&self.test_host.host(), self.agent.clone(), OpenSession::New).await.unwrap();
        std::mem::replace(&mut self.session, other_session).close().await.unwrap();
        let opened =
            Session::open(&self.test_host.host(), self.agent.clone(), OpenSession::Existing(subject)).await.unwrap();
        std::mem::replace(&mut self.session, opened).close().await.unwrap();
        assert_eq!(*self.session.state(), state, "the reopened session has the stored state");
        self.session.respond(response(&call.0, json!({"sky": "blue"}))).await.unwrap();
        let result = self.session.run(None, CancellationToken::new()).await.unwrap();
        let TurnResult::Finished(output) = result else { panic!("{result:?}") };
        assert_eq!((output.finish, output.data), (EndReason::Answered, json!({"sky": "blue"})));
        assert_eq!((output.interactions, output.execution_units), (4, 440));
        assert_eq!(
            view_summary(&self.test_host, &self.session).await.last().unwrap(),
            "assistant 1",
            "the last message is the model's output"
        );
        self.check_disconnected(2).await;
    }

    /// Runs a second turn, which fails because it reaches the interaction limit.
    async fn run_until_the_limit(&mut self) {
        let result = run_turn(&mut self.session, "And tomorrow?").await;
        let TurnResult::Failed(error @ TurnError::InteractionsExhausted { interactions: 4, .. }) = &result else {
            panic!("{result:?}")
        };
        assert!(error.to_string().contains("interactions exhausted"), "{error}");
        self.check_disconnected(3).await;
    }
}

/// L1–L6, L9, L10, L12, L13, I5: A session goes through every step, from its input to the end of its quota.
#[tokio::test(flavor = "multi_thread")]
async fn l10_a_session_runs_from_its_input_to_its_exhausted_quota() {
    let mut setup = ResumeSetup::new().await;
    setup.run_until_it_waits().await;
    setup.run_until_it_answers().await;
    setup.run_until_the_limit().await;
    let ResumeSetup { test_host, session, agent, .. } = setup;
    let results: Vec<_> =
        results(&test_host, &session).await.into_iter().take(8).map(|(name, error, _)| (name, error)).collect();
    let expected = [
        ("desk.echo", true),
        ("probe.high", false),
        ("list_directory", true),
        ("nowhere", true),
        ("desk.echo", false),
        ("list_directory", false),
        ("weather.forecast", true),
        ("weather.forecast", false),
    ];
    assert_eq!(results, expected.map(|(name, error)| (name.to_owned(), error)));
    let step = ["loop_iteration", "context_built", "stream_complete"];
    let expected: [&[&str]; 13] = [
        &["loop_start"],
        &step,
        // Only the calls with the highest priority run.
        &["tool_deferred", "tool_deferred", "tool_call", "tool_result"],
        &step,
        // The events of five calls, in this order: the unknown tool, the call that violates its schema, the MCP tool,
        // the built-in tool, and the service.
        &[
            "tool_not_found",
            "tool_call",
            "tool_result_error",
            "tool_call",
            "tool_result",
            "tool_call",
            "tool_result",
            "tool_call",
        ],
        &["suspended", "tool_result", "resumed"],
        &step,
        &["output_rejected", "stream_clear"],
        &step,
        &["loop_end", "loop_start"],
        &[step, ["tool_call", "tool_result", "loop_iteration"]].concat(),
        &["context_built"],
        &["stream_complete"],
    ];
    let types = event_types(&test_host, &session).await;
    let expected = expected.concat();
    assert_eq!(types[..expected.len()], expected);
    assert_eq!(types[types.len() - 2..], ["error", "loop_end"]);
    agent.servers().shutdown().await;
}
