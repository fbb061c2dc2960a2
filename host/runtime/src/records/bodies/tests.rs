//! Tests of the stored JSON of step records: the exact JSON that this version writes, and the JSON that older
//! versions wrote.

use super::*;
use agent_core::message::{Digest, Dimensions, Media, Role};
use agent_plugins::HostCallResult;
use serde_json::json;

fn model() -> Model {
    Model { provider: "openai".to_owned(), name: "gpt".to_owned(), window: 8_192 }
}

fn budget() -> Budget {
    Budget { available: 100, reserved: 20, tools: 3 }
}

fn cost() -> CallCost {
    CallCost { cpu_us: 1, wall_us: 2, ..CallCost::default() }
}

fn media() -> Media {
    let digest = Digest::from_sha256([1; 32]);
    Media { digest, mime_type: "image/png".to_owned(), size: 5, dimensions: None, name: None }
}

fn positions() -> MessagePositions {
    MessagePositions::new(&[(1, 2), (2, 1)], 3).0
}

/// Checks that a record is stored with this kind and exactly this JSON, and that the stored record is read back as
/// the same body.
fn assert_stored(body: StepRecordBody, kind: &str, expected: &Value) {
    let record = body.clone().into_record(4, 2);
    assert_eq!((record.turn, record.step, record.kind.as_str()), (4, 2, kind));
    assert_eq!(record.body.to_string(), expected.to_string(), "{kind}");
    assert_eq!(StepRecordBody::read(&record), Ok(body), "{kind}");
}

fn read(kind: &str, body: Value) -> Result<StepRecordBody, UnreadableRecord> {
    StepRecordBody::read(&StepRecord { turn: 1, step: 1, kind: kind.to_owned(), body })
}

/// O1: the JSON of the records of a turn's trace and of an embedding model's call does not change. `agent-telemetry` reads
/// these records.
#[test]
fn o1_trace_and_embedding_records_keep_their_json() {
    let traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".to_owned();
    let turn = TraceContext { traceparent: traceparent.clone(), tracestate: Some("a=b".to_owned()) };
    let record = TraceRecord { turn, parent: Some("00-1-2-01".to_owned()), first_message: 3 };
    let expected = json!({"traceparent": traceparent, "tracestate": "a=b", "parent": "00-1-2-01", "first_message": 3});
    assert_stored(StepRecordBody::Trace(record), "trace", &expected);
    let record = EmbeddingRecord { model: "openai/e".to_owned(), texts: 1, took_ms: 7, error: None };
    let expected = json!({"model": "openai/e", "texts": 1, "took_ms": 7});
    assert_stored(StepRecordBody::Embedding(record), "embedding", &expected);
}

/// D1: the JSON of the context records for the beginning of a turn and for a step does not change.
#[test]
fn d1_context_records_keep_their_json() {
    let answers = HostCallLog { answers: vec![HostCallResult::NoValues], left_out: 0 };
    let denials = vec![Denial { plugin: "a@1".into(), thing: "env X".into(), grant: "add it".into() }];
    let host = BuilderSurroundings { answers: Some(Box::new(answers.clone())), denials: denials.clone() };
    let input = TurnInput::Text("Hello.".to_owned());
    let recollection =
        Recollection { id: "1".into(), text: "It rains.".into(), written: "2026-01-01T00:00:00Z".into(), score: 0.25 };
    let pin = PinnedPlugin { name: "a".into(), digest: Digest::from_sha256([2; 32]), instead_of: None };
    let answer = json!({"system": [], "history": "keep", "messages": [], "state": [1, 2]});
    let asked = BuilderQuestion {
        model: model(),
        input: input.clone(),
        tools: "sha256:aa".to_owned(),
        messages: positions(),
        result_characters: 400,
        hidden: 1,
        summary: None,
        budget: budget(),
    };
    let builder = BuilderCallRecord {
        plugin: "a@1".to_owned(),
        asked: Question::Recorded(asked),
        host: host.clone(),
        answer: answer.clone(),
        cost: cost(),
    };
    let record = ContextRecord {
        builder: Some(builder),
        recollections: vec![recollection.clone()],
        plugins: Some(vec![pin.clone()]),
        servers: BTreeMap::from([("files".to_owned(), "sha256:bb".to_owned())]),
        configuration: "sha256:cc".to_owned(),
        offered: None,
    };
    let asked = json!({"model": model(), "input": input, "tools": "sha256:aa", "messages": [[1, 2], [2, 1]],
        "result_characters": 400, "hidden": 1, "summary": null, "budget": budget()});
    let host_json = json!({"answers": answers, "denials": denials});
    let expected = json!({
        "builder": {"plugin": "a@1", "asked": asked, "host": host_json, "answer": answer, "cost": cost()},
        "recollections": [recollection], "plugins": [pin], "servers": {"files": "sha256:bb"},
        "configuration": "sha256:cc", "offered": null,
    });
    assert_stored(StepRecordBody::Context(Box::new(record)), "context", &expected);
    let asked = StepQuestion {
        lifecycle: Lifecycle::ToolResult,
        model: model(),
        step: 2,
        steps_left: 8,
        messages: positions(),
        result_characters: 400,
        budget: budget(),
    };
    let (plugin, asked, answer) = ("a@1".to_owned(), Question::Recorded(asked), json!([]));
    let record = BuilderCallRecord { plugin, asked, host, answer, cost: cost() };
    let asked = json!({"lifecycle": "tool_result", "model": model(), "step": 2, "steps_left": 8,
        "messages": [[1, 2], [2, 1]], "result_characters": 400, "budget": budget()});
    let expected = json!({"plugin": "a@1", "asked": asked, "host": host_json, "answer": [], "cost": cost()});
    assert_stored(StepRecordBody::StepContext(Box::new(record)), "step_context", &expected);
}

/// D1: the JSON of the records that belong to a model call does not change.
#[test]
fn d1_model_call_records_keep_their_json() {
    let mask = Mask { message: 1, part: 0, item: None, text: "[a picture]".to_owned() };
    let downscaled = Downscaled { media: media(), to: Dimensions { width: 10, height: 20 } };
    let record = PromptRecord {
        model: model(),
        lifecycle: Lifecycle::Init,
        max_tokens: 4_096,
        system: vec!["sha256:aa".to_owned()],
        messages: positions(),
        result_characters: 400,
        left_out: vec![CallId("call_1_1_1".to_owned())],
        masked: vec![mask.clone()],
        downscaled: vec![downscaled.clone()],
        tools: vec!["text.count".to_owned()],
        tool_list: Some("sha256:bb".to_owned()),
        tool_sections: vec!["sha256:cc".to_owned()],
        labels: true,
        tool_dialect: ToolDialect::default(),
        output_schema: None,
        last_call: None,
        sent_at: Some(1_700_000_000_000),
    };
    let expected = json!({"model": model(), "lifecycle": "init", "max_tokens": 4096, "system": ["sha256:aa"],
        "messages": [[1, 2], [2, 1]], "result_characters": 400, "left_out": ["call_1_1_1"], "masked": [mask],
        "downscaled": [downscaled], "tools": ["text.count"], "tool_list": "sha256:bb",
        "tool_sections": ["sha256:cc"], "labels": true, "tool_dialect": ToolDialect::default(),
        "output_schema": null, "sent_at": 1_700_000_000_000_u64});
    assert_stored(StepRecordBody::Prompt(Box::new(record)), "prompt", &expected);
    let record = PlanPromptRecord { asked: ModelRole::Executor { step: 1, of: 2 }, text: "Do it.".to_owned() };
    let expected = json!({"asked": {"executor": {"step": 1, "of": 2}}, "text": "Do it."});
    assert_stored(StepRecordBody::PlanPrompt(record), "plan_prompt", &expected);
    let reply = Reply {
        text: "Hi.".to_owned(),
        calls: Vec::new(),
        stop: StopReason::Stop,
        usage: Usage::default(),
        model: "openai/gpt".to_owned(),
        replay: None,
    };
    let record = ReplyRecord { reply: reply.clone(), raw: json!({"b": 1, "a": 2}) };
    let expected = json!({"reply": reply, "raw": {"b": 1, "a": 2}});
    assert_stored(StepRecordBody::Reply(Box::new(record)), "reply", &expected);
    let record = SummaryRecord {
        messages: vec![1, 2],
        by: "extract".to_owned(),
        problem: None,
        prompt: Vec::new(),
        summary: "sha256:dd".to_owned(),
        raw: None,
    };
    let expected = json!({"messages": [1, 2], "by": "extract", "problem": null, "prompt": [], "summary": "sha256:dd",
        "raw": null});
    assert_stored(StepRecordBody::Summary(Box::new(record)), "summary", &expected);
}

/// D1: the record of a validator's verdict and the record of a media policy's decisions keep their JSON.
#[test]
fn d1_verdict_and_media_policy_records_keep_their_json() {
    let asked = ValidatorQuestion {
        text: "4".to_owned(),
        structured: Some(json!(4)),
        output_schema: None,
        attempt: 1,
        corrections_left: 2,
        messages: positions(),
        result_characters: 400,
    };
    let (plugin, asked, answer) = ("a@1".to_owned(), Question::Recorded(asked), Verdict::Accept);
    let record = VerdictRecord { plugin, asked, answer, cost: cost() };
    let asked = json!({"text": "4", "structured": 4, "output_schema": null, "attempt": 1, "corrections_left": 2,
        "messages": [[1, 2], [2, 1]], "result_characters": 400});
    let expected = json!({"plugin": "a@1", "asked": asked, "answer": "accept", "cost": cost()});
    assert_stored(StepRecordBody::Verdict(Box::new(record)), "verdict", &expected);
    let position = MediaPosition { message: 0, part: 1, item: None };
    let item = PolicyItem { position, role: Role::User, seen_count: 0, media: media(), masked: false };
    let record = MediaPolicyRecord {
        plugin: "a@1".to_owned(),
        asked: Question::Recorded(PolicyQuestion { model: model(), messages: 2 }),
        items: vec![item.clone()],
        answer: vec![MediaDecision::Mask("[kept]".to_owned())],
        cost: cost(),
    };
    let expected = json!({"plugin": "a@1", "asked": {"model": model(), "messages": 2}, "items": [item],
        "answer": [{"mask": "[kept]"}], "cost": cost()});
    assert_stored(StepRecordBody::MediaPolicy(Box::new(record)), "media_policy", &expected);
    let record = vec![UnscaledPicture { position, text: "[not shown]".to_owned() }];
    let expected = json!([{"position": position, "text": "[not shown]"}]);
    assert_stored(StepRecordBody::MediaNotScaled(record), "media_not_scaled", &expected);
}

/// D1, P2, P5, S6: the stored JSON of call records (questions, requests and answers) and fork records does not change.
#[test]
fn d1_call_and_fork_records_keep_their_json() {
    let question = ModelQuestionRecord {
        system: None,
        messages: vec![("user".to_owned(), "sha256:aa".to_owned())],
        output_schema: None,
        max_tokens: Some(5),
    };
    let (text, model) = ("Yes.".to_owned(), "openai/gpt".to_owned());
    let reply = PluginModelReply { text, stop: StopReason::Stop, usage: Usage::default(), model };
    let mut record = PluginModelRecord {
        plugin: "a".to_owned(),
        call: "call_1_1_1".to_owned(),
        question,
        answer: Some(json!({"id": 1})),
        reply: Some(reply),
        error: None,
        timing: None,
    };
    let question = json!({"system": null, "messages": [["user", "sha256:aa"]], "output_schema": null, "max_tokens": 5});
    let reply = json!({"text": "Yes.", "stop": "stop", "usage": Usage::default(), "model": "openai/gpt"});
    let expected = json!({"plugin": "a", "call": "call_1_1_1", "question": question, "answer": {"id": 1},
        "reply": reply});
    assert_stored(StepRecordBody::PluginModel(Box::new(record.clone())), "host_model", &expected);
    (record.answer, record.reply, record.error) = (None, None, Some("busy".to_owned()));
    record.timing = Some(Timing { started_us: 1_700_000_000_000_000, took_us: 5 });
    let timing = json!({"started_us": 1_700_000_000_000_000_u64, "took_us": 5});
    let expected =
        json!({"plugin": "a", "call": "call_1_1_1", "question": question, "error": "busy", "timing": timing});
    assert_stored(StepRecordBody::PluginModel(Box::new(record)), "host_model", &expected);
    let call = CallId("call_1_1_1".to_owned());
    let host = HostCallLog { answers: vec![HostCallResult::Time { nanoseconds: 7 }], left_out: 2 };
    let expected = json!({"call": call, "host": host});
    let record = HostAnswersRecord { call: call.clone(), host: Box::new(host) };
    assert_stored(StepRecordBody::HostCallLog(Box::new(record)), "host_answers", &expected);
    let request = ServiceRequest {
        event_type: "com.example.work".parse().expect("an event type"),
        data: json!({"n": 1}),
        domain: None,
        answer_schema: None,
        answer_within: Some(5),
    };
    let expected = json!({"call": call, "request": request});
    let record = ServiceRequestRecord { call: call.clone(), request };
    assert_stored(StepRecordBody::ServiceRequest(Box::new(record)), "service_request", &expected);
    let record = ServiceAnswerRecord {
        call: call.clone(),
        id: "1".to_owned(),
        source: "work".to_owned(),
        event_type: "com.example.done".to_owned(),
        time: None,
        trace: None,
    };
    let expected = json!({"call": call, "id": "1", "source": "work", "type": "com.example.done", "time": null,
        "trace": null});
    assert_stored(StepRecordBody::ServiceAnswer(Box::new(record)), "service_answer", &expected);
    let record = ForkRecord {
        from: "a/1".to_owned(),
        at: 3,
        messages: 3,
        origins: vec![ForkOrigin { session: "a/1".to_owned(), until_turn: 2 }],
        ran_in: BTreeMap::from([(call, "a/0".to_owned())]),
    };
    let expected = json!({"from": "a/1", "at": 3, "messages": 3, "origins": [{"session": "a/1", "until_turn": 2}],
        "ran_in": {"call_1_1_1": "a/0"}});
    assert_stored(StepRecordBody::Fork(Box::new(record)), "fork", &expected);
}

/// S6: records of older versions can be read, and the result shows which data is missing.
#[test]
fn s6_records_of_older_versions_are_read() {
    // This record was written by an older host, which did not record the inputs of plugin calls.
    let Ok(StepRecordBody::Verdict(verdict)) = read("verdict", json!({"plugin": "a@1", "answer": "accept"})) else {
        panic!("a verdict")
    };
    assert_eq!((verdict.plugin.as_str(), &verdict.asked), ("a@1", &Question::default()));
    let body = json!({"plugin": "a@1", "asked": {"text": "4", "attempt": 1}, "answer": "accept"});
    let Ok(StepRecordBody::Verdict(verdict)) = read("verdict", body) else { panic!("a verdict") };
    assert!(matches!(verdict.asked, Question::NotRecorded(_)), "an incomplete input is not a recorded input");
    let body = json!({"builder": {"plugin": "a@1", "answer": {"state": [1]}}, "configuration": "sha256:cc"});
    let Ok(StepRecordBody::Context(context)) = read("context", body) else { panic!("a context") };
    let builder = context.builder.expect("a builder");
    assert_eq!((&builder.asked, &builder.host), (&Question::default(), &BuilderSurroundings::default()));
    assert_eq!(builder.answer["state"], json!([1]));
    let Ok(StepRecordBody::Context(context)) = read("context", json!({"builder": null})) else { panic!("a context") };
    assert_eq!(context.builder, None);
    // This record was written by an older host, which did not record in which session each turn of a fork ran.
    let Ok(StepRecordBody::Fork(fork)) = read("fork", json!({"from": "a/1", "ran_in": {"call_1_1_1": "a/0"}})) else {
        panic!("a fork")
    };
    assert_eq!(fork.ran_in.len(), 1);
}

/// A newer host may add new kinds of records and new fields.
#[test]
fn records_of_newer_versions_are_read_or_reported_as_unreadable() {
    assert_eq!(read("tomorrow", json!({})), Err(UnreadableRecord));
    assert_eq!(read("verdict", json!({"plugin": "a@1", "answer": {"postpone": 1}})), Err(UnreadableRecord));
    let body = json!({"plugin": "a@1", "answer": "accept", "cost": {"cpu_us": "a lot"}, "mood": "good"});
    let Ok(StepRecordBody::Verdict(verdict)) = read("verdict", body) else { panic!("a verdict") };
    assert_eq!(verdict.cost, CallCost::default());
}

#[test]
fn call_of_returns_the_call_even_if_the_body_cannot_be_read() {
    let call_of = |kind: &str| {
        let body = json!({"call": "call_1_1_1", "host": 5});
        StepRecordBody::call_of(&StepRecord { turn: 1, step: 1, kind: kind.to_owned(), body })
    };
    assert_eq!(call_of("host_answers"), Some(CallId("call_1_1_1".to_owned())));
    assert_eq!(call_of("service_answer"), None);
}
