//! The spans of stored sessions: parents, kinds, times, tokens, costs and content (O1).

use crate::session::{CANARY, StoredSession, digest, has_event, plain, scrubber, spans_of};
use agent_core::approval::{ApprovalAnswer, ApprovalVerdict, GrantScope, LastingGrant, ScopedGrant};
use agent_core::event::EventKind;
use agent_core::message::{CallId, Digest};
use agent_core::plugin::TraceContext;
use agent_core::run::{AfterFailure, Approval, Input, LoopConfig, OutputVerdict, PromptBudget, ResolvedCall};
use agent_core::tool::Violation;
use agent_core::trace::SpanKey;
use agent_store::{ExportPosition, SqliteStore, Store};
use agent_telemetry::{ContentLevel, SessionTrace, Span, SpanStatus, Value};
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::Arc;

fn store() -> Arc<dyn Store> {
    Arc::new(SqliteStore::open_in_memory().expect("a store"))
}

fn text<'s>(span: &'s Span, name: &str) -> &'s str {
    match span.attributes.iter().find(|(existing, _)| existing == name) {
        Some((_, Value::Text(text))) => text,
        other => panic!("{name} of {}: {other:?}", span.name),
    }
}

fn attribute(span: &Span, name: &str) -> Option<Value> {
    span.attributes.iter().find(|(existing, _)| existing == name).map(|(_, value)| value.clone())
}

fn named<'s>(spans: &'s [Span], name: &str) -> &'s Span {
    let mut found = spans.iter().filter(|span| span.name == name);
    match (found.next(), found.next()) {
        (Some(span), None) => span,
        _ => panic!("{name} in {:?}", spans.iter().map(|span| &span.name).collect::<Vec<_>>()),
    }
}

/// Writes the tree of spans as lines of kind and name, in the order of their beginnings.
fn tree(spans: &[Span]) -> Vec<String> {
    fn add(spans: &[Span], parent: Option<[u8; 8]>, depth: usize, lines: &mut Vec<String>) {
        for span in spans.iter().filter(|span| span.parent == parent) {
            let kind = text(span, "openinference.span.kind");
            lines.push(format!("{}{kind} {}", "  ".repeat(depth), span.name));
            add(spans, Some(span.span_id), depth + 1, lines);
        }
    }
    let mut sorted = spans.to_vec();
    sorted.sort_by_key(|span| span.start);
    let ids: BTreeSet<_> = spans.iter().map(|span| span.span_id).collect();
    let root = sorted.iter().find(|span| span.parent.is_none_or(|parent| !ids.contains(&parent))).expect("a root");
    let (root_parent, mut lines) = (root.parent, Vec::new());
    add(&sorted, root_parent, 0, &mut lines);
    assert_eq!(lines.len(), spans.len(), "every span is in the tree: {lines:?}");
    lines
}

#[tokio::test]
async fn o1_a_turn_is_one_tree_of_spans() {
    let store = store();
    let mut session = StoredSession::open(&store, "reader/1").await;
    session.turn_with_tool("Read the file.").await;
    let spans = spans_of(&store, "reader/1", ContentLevel::Shortened).await;
    let expected = [
        "AGENT invoke_agent reader",
        "  CHAIN step 1",
        "    LLM chat gpt-4.1",
        "    TOOL execute_tool read",
        "  CHAIN step 2",
        "    LLM chat gpt-4.1",
    ];
    assert_eq!(tree(&spans), expected);
    let trace = session.run.turn.as_ref().expect("a turn").trace.clone();
    for span in &spans {
        assert_eq!(Some(span.trace_id), trace.trace_id(), "{}", span.name);
        assert_eq!((text(span, "session.id"), text(span, "user.id")), ("reader/1", "ann"));
        assert!(span.start > 0 && span.start <= span.end, "{span:?}");
    }
    let agent = named(&spans, "invoke_agent reader");
    assert_eq!((agent.span_id, agent.status.clone()), (trace.span_id().expect("an id"), SpanStatus::Ok));
    assert_eq!((text(agent, "input.value"), text(agent, "output.value")), ("Read the file.", "It is empty."));
    assert_eq!(attribute(agent, "agent_host.turn.cost_usd"), Some(Value::Fraction(0.025)));
    assert_eq!(attribute(agent, "agent_host.turn.model_calls"), Some(Value::Number(2)));
    assert_eq!(attribute(agent, "llm.token_count.total"), None, "viewers add up the tokens of all spans");
    let (tool, call) = (named(&spans, "execute_tool read"), CallId("call_1_1_1_0123456789ab".to_owned()));
    assert_eq!(Some(tool.span_id), trace.part(SpanKey::Call(&call)).span_id(), "the id that the plugin received");
    assert_eq!((text(tool, "tool.name"), text(tool, "gen_ai.tool.call.id")), ("read", call.0.as_str()));
    assert_eq!((text(tool, "input.value"), text(tool, "output.value")), (r#"{"path":"a.txt"}"#, "the content"));
    assert!(text(tool, "agent_host.plugin").starts_with("files@"), "{tool:?}");
    assert_eq!(attribute(tool, "agent_host.tool.wall_us"), Some(Value::Number(120)));
}

#[tokio::test]
async fn o1_model_calls_have_tokens_costs_and_messages() {
    let store = store();
    let mut session = StoredSession::open(&store, "reader/1").await;
    session.turn_with_tool("Read the file.").await;
    let spans = spans_of(&store, "reader/1", ContentLevel::Complete).await;
    let calls: Vec<_> = spans.iter().filter(|span| span.name == "chat gpt-4.1").collect();
    let numbers = [
        ("llm.token_count.prompt", 100),
        ("llm.token_count.completion", 10),
        ("llm.token_count.total", 110),
        ("llm.token_count.prompt_details.cache_read", 20),
        ("llm.token_count.completion_details.reasoning", 4),
        ("gen_ai.usage.input_tokens", 100),
        ("gen_ai.usage.output_tokens", 10),
        ("gen_ai.request.max_tokens", 500),
    ];
    for (name, number) in numbers {
        assert_eq!(attribute(calls[0], name), Some(Value::Number(number)), "{name}");
    }
    assert_eq!(attribute(calls[0], "llm.cost.total"), Some(Value::Fraction(0.0125)));
    let texts = [
        ("llm.model_name", "gpt-4.1"),
        ("llm.provider", "openai"),
        ("gen_ai.operation.name", "chat"),
        ("gen_ai.response.model", "openai/gpt-4.1"),
        ("llm.input_messages.0.message.role", "system"),
        ("llm.input_messages.0.message.content", "Be exact. (secret)"),
        ("llm.input_messages.1.message.content", "Read the file."),
        ("llm.output_messages.0.message.tool_calls.0.tool_call.function.name", "read"),
    ];
    for (name, expected) in texts {
        assert_eq!(text(calls[0], name), expected, "{name}");
    }
    assert!(text(calls[0], "llm.tools.0.tool.json_schema").contains(r#""name":"read""#));
    assert_eq!(text(calls[1], "llm.input_messages.3.message.tool_call_id"), "call_1_1_1_0123456789ab");
    assert_eq!(text(calls[1], "llm.input_messages.3.message.content"), "the content");
    let off = spans_of(&store, "reader/1", ContentLevel::Off).await;
    let shown = format!("{off:?}");
    for content in ["Read the file.", "It is empty.", "the content", "a.txt", "Be exact"] {
        assert!(!shown.contains(content), "{content}");
    }
    assert_eq!(attribute(&off[0], "llm.token_count.total"), Some(Value::Number(110)));
}

#[tokio::test]
async fn o1_failed_model_calls_checks_and_host_calls_are_spans() {
    let store = store();
    let mut session = StoredSession::open(&store, "reader/1").await;
    session.begin("Read.", None).await;
    session.fail_model("gpt-4.1", "overloaded", AfterFailure::Retry { wait_ms: 3 }).await;
    let budget = PromptBudget { window: 100_000, system: 100, tools: 200, reserved: 1_000 };
    let then = AfterFailure::Next { model_index: 1, model: "openai/small".to_owned(), budget };
    session.fail_model("gpt-4.1", &format!("key {CANARY} is invalid"), then).await;
    session.reply("I read.", vec![plain("read"), plain("fetch")]).await;
    let calls = session.dispatch().await;
    let question = json!({
        "plugin": "files", "call": calls[0], "question": {"system": null, "messages": [["user", digest("What?")]]},
        "reply": {"text": "That.", "stop": "stop", "usage": {"prompt_tokens": 3, "completion_tokens": 2}, "model": "openai/gpt-4.1"},
        "timing": {"started_us": 1, "took_us": 5},
    });
    let host = json!({"answers": [
        {"of": "request", "method": "GET", "url": "https://api.example/v1/items", "asked": "sha256:0",
         "answer": {"came": {"status": 404, "headers": [["x-key", CANARY]], "body": {"text": CANARY}, "read": "whole"}},
         "timing": {"started_us": 1, "took_us": 5}},
        {"of": "value", "bucket": "notes", "key": "k", "found": "nothing"},
        {"of": "file", "tree": 0, "path": "a.txt", "found": "nothing"},
        {"of": "time", "nanoseconds": 7},
    ], "left_out": 2});
    let records = vec![
        session.record("host_model", question),
        session.record("host_answers", json!({"call": calls[0], "host": host})),
    ];
    session.outcome(&calls[0], "read", false, records).await;
    session.outcome(&calls[1], "no such host", true, Vec::new()).await;
    session.reply("Six.", Vec::new()).await;
    let problem = Violation { pointer: "/n".to_owned(), rule: None, message: "must be a digit".to_owned() };
    let verdict =
        json!({"plugin": "exact@0707", "asked": {"text": "Six."}, "answer": {"reject": [problem]}, "cost": {}});
    let verdict = session.record("verdict", verdict);
    let rejected = OutputVerdict::Rejected { by: "exact@0707".to_owned(), problems: vec![problem.clone()] };
    session.apply(Input::Verdict(rejected), vec![verdict]).await;
    session.reply("six", Vec::new()).await;
    let rejected = OutputVerdict::Rejected { by: "output schema".to_owned(), problems: vec![problem] };
    session.apply(Input::Verdict(rejected), Vec::new()).await;
    session.reply("6", Vec::new()).await;
    session.accept("6", Vec::new()).await;
    let spans = spans_of(&store, "reader/1", ContentLevel::Complete).await;
    let expected = [
        "AGENT invoke_agent reader",
        "  CHAIN step 1",
        "    LLM chat gpt-4.1",
        "    LLM chat gpt-4.1",
        "    LLM chat gpt-4.1",
        "    TOOL execute_tool read",
        "      LLM chat gpt-4.1",
        "      CHAIN GET api.example",
        "      CHAIN values get",
        "      CHAIN file read",
        "    TOOL execute_tool fetch",
        "  CHAIN step 2",
        "    LLM chat gpt-4.1",
        "    GUARDRAIL validate exact@0707",
        "  CHAIN step 3",
        "    LLM chat gpt-4.1",
        "    GUARDRAIL validate output schema",
        "  CHAIN step 4",
        "    LLM chat gpt-4.1",
    ];
    assert_eq!(tree(&spans), expected);
    let mut errors: Vec<String> = spans
        .iter()
        .filter_map(|span| match &span.status {
            SpanStatus::Error { message } => Some(format!("{}: {message}", span.name)),
            _ => None,
        })
        .collect();
    errors.sort();
    let expected = [
        "GET api.example: ",
        "chat gpt-4.1: key (secret) is invalid",
        "chat gpt-4.1: overloaded",
        "execute_tool fetch: no such host",
        "validate exact@0707: /n: must be a digit",
        "validate output schema: /n: must be a digit",
    ];
    assert_eq!(errors, expected);
    assert_eq!(attribute(named(&spans, "GET api.example"), "http.response.status_code"), Some(Value::Number(404)));
    let omitted = attribute(named(&spans, "execute_tool read"), "agent_host.host_calls.omitted");
    assert_eq!(omitted, Some(Value::Number(2)));
    assert!(!format!("{spans:?}").contains("canary"), "row 16: no secret is exported");
}

fn approved(name: &str) -> ApprovalAnswer {
    let digest = Digest::from_sha256([7; 32]);
    let grant = LastingGrant { agent: "reader".into(), tool: name.into(), digest, arguments: None, scope: None };
    let verdict = ApprovalVerdict::Granted { edited: None, grant: ScopedGrant { scope: GrantScope::Once, grant } };
    ApprovalAnswer { call: CallId("call_1_1_1_0123456789ab".to_owned()), verdict }
}

#[tokio::test]
async fn o1_a_turn_that_waits_across_a_restart_is_one_trace() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("agent.db");
    let open = || -> Arc<dyn Store> { Arc::new(SqliteStore::open(&path, Default::default()).expect("a store")) };
    let parent = TraceContext {
        traceparent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".to_owned(),
        tracestate: Some("v=1".to_owned()),
    };
    let before = {
        let store = open();
        let mut session = StoredSession::open(&store, "reader/1").await;
        session.begin("Write.", Some(&parent)).await;
        let call = ResolvedCall { approval: Approval::Needed(Digest::from_sha256([7; 32])), ..plain("write") };
        session.reply("I write.", vec![call]).await;
        assert!(has_event(&store, "reader/1", |kind| matches!(kind, EventKind::Suspended { .. })).await);
        let mut trace =
            SessionTrace::new(store.clone(), "reader/1", scrubber(ContentLevel::Off), ExportPosition::default());
        let before = trace.next().await.expect("a read").expect("the part before the suspension");
        session.close().await;
        before
    };
    let position = before.last().expect("a commit").position;
    let store = open();
    let mut session = StoredSession::open(&store, "reader/1").await;
    session.apply(Input::Approval { answers: vec![approved("write")] }, Vec::new()).await;
    let calls = session.dispatch().await;
    session.outcome(&calls[0], "written", false, Vec::new()).await;
    session.reply("Done.", Vec::new()).await;
    session.accept("Done.", Vec::new()).await;
    let mut trace = SessionTrace::new(store.clone(), "reader/1", scrubber(ContentLevel::Off), position);
    let after = trace.next().await.expect("a read").expect("the rest of the turn");
    let parts: Vec<Span> = before.into_iter().chain(after).flat_map(|commit| commit.spans).collect();
    let expected = [
        "AGENT invoke_agent reader",
        "  CHAIN step 1",
        "    LLM chat gpt-4.1",
        "    GUARDRAIL approve write",
        "    TOOL execute_tool write",
        "  CHAIN step 2",
        "    LLM chat gpt-4.1",
    ];
    assert_eq!(tree(&parts), expected);
    let whole = spans_of(&store, "reader/1", ContentLevel::Off).await;
    assert_eq!(parts, whole, "exporting in parts and exporting the whole turn give the same spans");
    let agent = named(&parts, "invoke_agent reader");
    assert_eq!(
        (Some(agent.trace_id), agent.parent, agent.has_remote_parent),
        (parent.trace_id(), parent.span_id(), true)
    );
    assert_eq!(agent.trace_state, "v=1");
    let events: Vec<_> = agent.events.iter().map(|event| event.name).collect();
    assert_eq!(events, ["suspended", "resumed"]);
    assert_eq!(text(named(&parts, "approve write"), "agent_host.verdict"), "once");
}

#[tokio::test]
async fn o1_every_position_splits_the_spans_without_a_loss() {
    let store = store();
    let mut session = StoredSession::open(&store, "reader/1").await;
    for input in ["One.", "Two."] {
        session.turn_with_tool(input).await;
    }
    let whole = spans_of(&store, "reader/1", ContentLevel::Shortened).await;
    let ids: BTreeSet<_> = whole.iter().map(|span| (span.trace_id, span.span_id)).collect();
    assert_eq!(ids.len(), whole.len(), "every span has its own id");
    let traces: BTreeSet<_> = whole.iter().map(|span| span.trace_id).collect();
    assert_eq!(traces.len(), 2, "each turn is a trace");
    let mut trace =
        SessionTrace::new(store.clone(), "reader/1", scrubber(ContentLevel::Shortened), ExportPosition::default());
    let mut exported: Vec<Span> = Vec::new();
    while let Some(commits) = trace.next().await.expect("a read") {
        for commit in commits {
            exported.extend(commit.spans);
            let mut rest =
                SessionTrace::new(store.clone(), "reader/1", scrubber(ContentLevel::Shortened), commit.position);
            let mut both = exported.clone();
            while let Some(commits) = rest.next().await.expect("a read") {
                both.extend(commits.into_iter().flat_map(|commit| commit.spans));
            }
            assert_eq!(both, whole, "after {:?}", commit.position);
        }
    }
    assert_eq!(exported, whole);
}

/// A model call begins when its prompt is sent, and never before the commit before it or after its own commit.
#[tokio::test]
async fn o1_a_model_call_begins_when_its_prompt_is_sent() {
    let store = store();
    let mut session = StoredSession::open(&store, "reader/1").await;
    session.begin("Wait.", None).await;
    tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a time").as_millis();
    let sent = u64::try_from(now).expect("milliseconds");
    session.sent_at = Some(sent);
    tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    session.reply("Again.", vec![plain("read")]).await;
    let calls = session.dispatch().await;
    session.outcome(&calls[0], "read", false, Vec::new()).await;
    session.sent_at = Some(1);
    session.reply("Early.", Vec::new()).await;
    let spans = spans_of(&store, "reader/1", ContentLevel::Off).await;
    let calls: Vec<_> = spans.iter().filter(|span| span.name == "chat gpt-4.1").collect();
    assert_eq!(calls[0].start, sent * 1_000_000);
    assert_eq!(calls[1].start, named(&spans, "execute_tool read").end, "a time before the previous commit is ignored");
}

#[tokio::test]
async fn o1_turns_without_a_trace_record_have_a_trace() {
    let store = store();
    let mut session = StoredSession::open(&store, "reader/1").await;
    let trace = TraceContext { traceparent: "invalid".to_owned(), tracestate: None };
    let input = agent_core::message::TurnInput::Text("Hello.".to_owned());
    let start = Input::Start { input, config: LoopConfig::default(), plugins: Vec::new(), pinned: None, trace };
    session.apply(start, Vec::new()).await;
    session.apply(Input::Cancel, Vec::new()).await;
    let spans = spans_of(&store, "reader/1", ContentLevel::Shortened).await;
    assert_eq!(spans.len(), 1, "{spans:?}");
    assert_eq!((spans[0].status.clone(), text(&spans[0], "agent_host.end_reason")), (SpanStatus::Unset, "cancelled"));
    assert_eq!(spans, spans_of(&store, "reader/1", ContentLevel::Shortened).await);
}
