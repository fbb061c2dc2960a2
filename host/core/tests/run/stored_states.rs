//! Tests that this version can continue every state that a released host has stored, so that no session is lost in an
//! upgrade (L1, D3).
//!
//! `states/v1` contains snapshots and changes of the first host. `states/v2` contains snapshots and changes of a later
//! host, which had services, approvals, plans and evictions. The states of both sets have version 1 of the format.
//! Existing files are never rewritten. If the environment variable `AGENT_HOST_WRITE_STATES` is set, each state of
//! [`all`] that has no file yet is written to the newest set. `run/stored_variants.rs` tests that the newest set has an
//! example of every variant that a state can contain.

use crate::session::{Session, WIDE, dispatched, plain, repeatable, reply, respond_to, result, sequential};
use crate::stored_ways::completing;
use agent_core::approval::{ApprovalAnswer, ApprovalVerdict, GrantScope, LastingGrant, ScopedGrant};
use agent_core::budget::{BudgetResource, BudgetScope, ExceededBudget, Shortage};
use agent_core::change::Change;
use agent_core::event::{Wait, WaitCause};
use agent_core::loop_break::Finish;
use agent_core::message::{CallId, Content, Digest, Dimensions, Media, Message, Part, Replay, Role, TurnInput};
use agent_core::model::StopReason;
use agent_core::plugin::{History, OutputData, Section, Stability, TraceContext};
use agent_core::run::{
    Action, AfterFailure, AtLimit, Decision, Input, LoopConfig, Mask, ModelFailure, ModelRole, OutputVerdict,
    PinnedPlugin, PlannerReply, ResolvedReply, Retryability, Run, StepPlan, Summarised, TurnContext, TurnEnd,
    TurnError,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The name of each set of stored states, and the minimum number of states in that set.
const SETS: [(&str, usize); 2] = [("v1", 36), (NEWEST_SET, 72)];
/// The name of the newest set, to which new states of this version of the host are written.
const NEWEST_SET: &str = "v2";

fn directory(set: &str, folder: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/states")).join(set).join(folder)
}

/// Returns the documents in a folder of a set, each with its name.
fn stored(set: &str, folder: &str) -> BTreeMap<String, Value> {
    let Ok(files) = std::fs::read_dir(directory(set, folder)) else { return BTreeMap::new() };
    let read = |path: PathBuf| {
        let name = path.file_stem().expect("a file has a name").to_string_lossy().into_owned();
        (name, serde_json::from_slice(&std::fs::read(path).expect("the file is readable")).expect("JSON"))
    };
    files.map(|file| read(file.expect("the entry is readable").path())).collect()
}

/// L1: each snapshot is restored completely. The restored session can end its open turn and then perform a new turn.
#[test]
fn l1_every_stored_state_continues() {
    let sets = SETS.map(|(set, min_count)| {
        let states = stored(set, "snapshots");
        assert!(states.len() >= min_count, "{set}: {:?}", states.keys());
        states.into_iter().map(move |(name, snapshot)| (format!("{set}/{name}"), snapshot))
    });
    for (name, snapshot) in sets.into_iter().flatten() {
        let bytes = serde_json::to_vec(&snapshot).expect("JSON");
        let run = Run::restore(Some(&bytes)).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(is_preserved(&snapshot, &serde_json::from_slice(&run.snapshot()).expect("JSON")), "{name} lost data");
        let mut driven = DrivenRun { name, run, inputs: 0 };
        let is_open = driven.run.is_open();
        driven.run_to_the_end();
        let end = driven.run.turn.as_ref().and_then(|turn| turn.end());
        let exhausted = matches!(end, Some(TurnEnd::Failed(TurnError::InteractionsExhausted { .. })));
        assert!(!is_open || exhausted || matches!(end, Some(TurnEnd::Finished(_))), "{}: {end:?}", driven.name);
        let turns = driven.run.turns;
        let input = TurnInput::Text("and now?".to_owned());
        let (config, trace) = (LoopConfig::default(), trace());
        driven.apply(Input::Start { input, config, plugins: Vec::new(), pinned: None, trace });
        driven.run_to_the_end();
        let end = driven.run.turn.as_ref().and_then(|turn| turn.end());
        assert!(matches!(end, Some(TurnEnd::Finished(output)) if output.data == "done"), "{}: {end:?}", driven.name);
        assert_eq!(driven.run.turns, turns + 1);
    }
}

/// D2: stored messages, calls and events are parsed without losing data.
#[test]
fn d2_every_stored_change_is_read_completely() {
    let sets = SETS.map(|(set, min_count)| {
        let changes = stored(set, "changes");
        assert!(changes.len() >= min_count, "{set}: {:?}", changes.keys());
        changes
    });
    for (name, stored) in sets.into_iter().flatten() {
        let read: Vec<Change> =
            serde_json::from_value(stored.clone()).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(is_preserved(&stored, &serde_json::to_value(read).expect("JSON")), "{name} lost data");
    }
}

/// Whether the new document contains all data of the old document. The new document may contain additional data.
fn is_preserved(old: &Value, new: &Value) -> bool {
    match (old, new) {
        // In the first version, a suspension had a single cause, which applied to all its calls.
        (Value::Object(old), Value::Object(new)) if old.get("cause").is_some() && old.get("calls").is_some() => {
            let calls = new["waits"].as_array().expect("a list").iter().map(|wait| &wait["call"]);
            old["calls"].as_array().expect("a list").iter().eq(calls)
        }
        (Value::Object(old), Value::Object(new)) => {
            // The new document may leave out empty lists. For a finished call, it may also leave out the fields that
            // describe what the call was waiting for.
            let is_finished_call = new.get("state").is_some_and(|state| state.get("done").is_some());
            let is_left_out = |key: &str, value: &Value| {
                *value == Value::Array(Vec::new()) || (is_finished_call && ["awaits", "asked_about"].contains(&key))
            };
            old.iter().all(|(key, value)| new.get(key).map_or(is_left_out(key, value), |new| is_preserved(value, new)))
        }
        (Value::Array(old), Value::Array(new)) => {
            old.len() == new.len() && old.iter().zip(new).all(|(old, new)| is_preserved(old, new))
        }
        _ => old == new,
    }
}

/// A run to which the tests apply the inputs that a host would apply.
struct DrivenRun {
    name: String,
    run: Run,
    inputs: u32,
}

impl DrivenRun {
    /// Applies an input, and checks that the numbers of messages and events have no gaps.
    fn apply(&mut self, input: Input) {
        self.inputs += 1;
        assert!(self.inputs < 100, "{} does not end: {:?}", self.name, self.run.action());
        let (message, event) = (self.run.next_message, self.run.sequence);
        let change = self.run.apply(input).unwrap_or_else(|refused| panic!("{}: {refused}", self.name));
        let messages: Vec<u64> = change.messages.iter().map(|message| message.id).collect();
        assert_eq!(messages, (message..self.run.next_message).collect::<Vec<_>>(), "{}", self.name);
        let events: Vec<u64> = change.events.iter().map(|event| event.sequence).collect();
        assert_eq!(events, (event + 1..=self.run.sequence).collect::<Vec<_>>(), "{}", self.name);
        Run::restore(Some(&self.run.snapshot())).unwrap_or_else(|error| panic!("{}: {error}", self.name));
    }

    /// Performs the actions that the run requires until the open turn ends.
    fn run_to_the_end(&mut self) {
        if self.run.is_open() {
            self.apply(Input::Recover);
        }
        loop {
            match self.run.action() {
                Action::Idle | Action::Ended => return,
                Action::BuildContext => {
                    self.apply(Input::Context { context: TurnContext { budget: WIDE, ..TurnContext::default() } });
                }
                Action::Summarise(_) => {
                    let text = "the earlier text".to_owned();
                    self.apply(Input::Summarised(Summarised {
                        text,
                        by: "extract".to_owned(),
                        ..Summarised::default()
                    }));
                }
                Action::CallModel(plan) => self.reply(plan),
                Action::Dispatch(dispatches) => {
                    let calls: Vec<CallId> = dispatches.into_iter().map(|dispatch| dispatch.call).collect();
                    self.apply(dispatched(&calls));
                    for call in calls.into_iter().filter(|call| self.run.is_running(call)).collect::<Vec<_>>() {
                        self.apply(Input::Outcome { call, result: result("ok") });
                    }
                }
                Action::AwaitOutcome => panic!("{}: no call is running in a restored state", self.name),
                Action::Validate(validation) => {
                    self.apply(Input::Verdict(OutputVerdict::Accepted(OutputData::Text(validation.text))));
                }
                Action::Suspended(suspension) => self.unblock(suspension.waits[0].clone()),
            }
        }
    }

    /// Applies a reply of the model that lets the turn end soon.
    fn reply(&mut self, plan: StepPlan) {
        let finish = self.run.turn.as_ref().map_or(Finish::Text, |turn| turn.config.finish);
        self.apply(Input::Reply(match (plan.role, finish) {
            (ModelRole::Planner, _) => {
                ResolvedReply { plan: Some(PlannerReply::Steps(Vec::new())), ..reply("{}", Vec::new()) }
            }
            (ModelRole::Executor { .. }, _) => reply("", vec![plain("look")]),
            (ModelRole::Agent, Finish::Tool) if !plan.last => reply("", vec![completing(json!("done"))]),
            (ModelRole::Agent | ModelRole::Synthesizer, _) => reply("done", Vec::new()),
        }));
    }

    /// Applies the response, the decision or the approval for which the call waits.
    fn unblock(&mut self, Wait { call, cause, .. }: Wait) {
        self.apply(match cause {
            WaitCause::OutcomeUnknown => Input::Resolve { call, decision: Decision::Result("it did".to_owned()) },
            WaitCause::Service { .. } | WaitCause::Agent { .. } | WaitCause::Answer { .. } | WaitCause::Client => {
                respond_to(&self.run, call, result("an answer"))
            }
            WaitCause::Approval { .. } => {
                let item = self.run.asking().into_iter().find(|item| item.call == call).expect("it is requested");
                let digest = item.digest.expect("the request identifies a tool");
                let (agent, tool) = (self.run.agent.clone(), item.name);
                let grant = LastingGrant { agent, tool, digest, arguments: None, scope: None };
                let grant = ScopedGrant { scope: GrantScope::Once, grant };
                let verdict = ApprovalVerdict::Granted { edited: None, grant };
                Input::Approval { answers: vec![ApprovalAnswer { call, verdict }] }
            }
        });
    }
}

/// L1: for each entry of [`all`], the newest set contains a stored state. If an entry is added to [`all`], its state
/// must be stored before the next release.
#[test]
fn l1_the_newest_set_contains_all_states() {
    let (snapshots, changes_of) = (stored(NEWEST_SET, "snapshots"), stored(NEWEST_SET, "changes"));
    for (name, session, changes) in all() {
        if std::env::var_os("AGENT_HOST_WRITE_STATES").is_none() {
            assert!(snapshots.contains_key(name) && changes_of.contains_key(name), "{name} is not stored");
            continue;
        }
        write("snapshots", name, &serde_json::from_slice(&session.run.snapshot()).expect("JSON"));
        write("changes", name, &serde_json::to_value(changes).expect("JSON"));
    }
}

fn write(folder: &str, name: &str, document: &Value) {
    let folder = directory(NEWEST_SET, folder);
    std::fs::create_dir_all(&folder).expect("the folder can be created");
    let path = folder.join(format!("{name}.json"));
    if !path.exists() {
        let text = serde_json::to_string_pretty(document).expect("JSON");
        std::fs::write(path, format!("{text}\n")).expect("the file can be written");
    }
}

/// The name of a stored state, the session in that state, and the changes that led to it.
pub(crate) type WayToState = (&'static str, Session, Vec<Change>);

/// Calls `way`, which applies inputs to a new session. Returns `name`, the session, and the changes that `way` returns.
pub(crate) fn way_to(name: &'static str, way: impl FnOnce(&mut Session) -> Vec<Change>) -> WayToState {
    let mut session = Session::new();
    let changes = way(&mut session);
    (name, session, changes)
}

/// Returns sessions whose states must be stored: sessions in every phase of a turn, and sessions whose last turn ended
/// in each possible way.
fn all() -> Vec<WayToState> {
    let mut ways = beginnings();
    ways.extend(batches());
    ways.extend(outputs());
    ways.extend(endings());
    ways.extend(failures());
    ways.extend(crate::stored_ways::all());
    ways
}

fn beginnings() -> Vec<WayToState> {
    let text = || TurnInput::Text("How many?".to_owned());
    let json = || TurnInput::Json(json!({"order": 7, "lines": [{"price": 1.5}]}));
    vec![
        way_to("new", |_| Vec::new()),
        way_to("building", |session| vec![session.start(text(), LoopConfig::default())]),
        way_to("building_json", |session| vec![session.start(json(), bounds())]),
        way_to("building_call", |session| {
            let call = TurnInput::Call { tool: "text.count".to_owned(), arguments: json!({"text": "two words"}) };
            vec![session.start(call, bounds())]
        }),
        way_to("building_pinned", |session| {
            let plugin = PinnedPlugin::new("text", Digest::from_sha256([3; 32]));
            let trace = TraceContext { tracestate: Some("vendor=1".to_owned()), ..trace() };
            let input = TurnInput::Message(vec![Part::Text("Look".to_owned()), Part::Media(picture())]);
            let plugins = vec![plugin];
            vec![session.must(Input::Start { input, config: LoopConfig::default(), plugins, pinned: None, trace })]
        }),
        way_to("calling", |session| vec![session.begin(LoopConfig::default())]),
        way_to("calling_built", |session| vec![session.start(text(), bounds()), session.context(built())]),
        way_to("calling_again", |session| {
            let first = session.begin(LoopConfig::default());
            vec![first, session.must(failed_model(AfterFailure::Retry { wait_ms: 500 }))]
        }),
        way_to("calling_next_model", |session| {
            let first = session.begin(LoopConfig::default());
            let then = AfterFailure::Next { model_index: 1, model: "b/two".to_owned(), budget: WIDE };
            vec![first, session.must(failed_model(then))]
        }),
        way_to("calling_last", |session| {
            let config = LoopConfig { max_interactions: 1, ..LoopConfig::default() };
            let first = session.begin(config);
            let asked = session.reply("", vec![plain("files.read")]);
            vec![first, asked, session.run_batch()]
        }),
        way_to("calling_masked", |session| {
            let first = session.begin(LoopConfig::default());
            let mask = |message, item| Mask { message, part: 0, item, text: "[a picture]".to_owned() };
            let replay = Replay { provider: "one".to_owned(), data: json!({"signature": "abc"}) };
            let (masks, calls) = (vec![mask(1, None), mask(1, Some(2))], vec![plain("files.read")]);
            let reply = ResolvedReply { masks, replay: Some(replay), ..reply("I look.", calls) };
            let asked = session.must(Input::Reply(reply));
            vec![first, asked, session.run_batch()]
        }),
    ]
}

fn batches() -> Vec<WayToState> {
    let asked = |session: &mut Session| {
        let first = session.begin(LoopConfig { parallel_calls: 3, ..LoopConfig::default() });
        let calls = vec![plain("a"), repeatable("b"), plain("c"), sequential("d")];
        vec![first, session.reply("Both.", calls)]
    };
    let running = move |session: &mut Session| {
        let mut changes = asked(session);
        let calls: Vec<CallId> = (1..=3).map(|place| CallId(format!("call_1_1_{place}"))).collect();
        changes.push(session.must(dispatched(&calls)));
        changes
    };
    let with = |mut changes: Vec<Change>, change: Change| {
        changes.push(change);
        changes
    };
    vec![
        way_to("working_waiting", asked),
        way_to("working_running", running),
        way_to("working_partly_done", move |session| {
            let changes = running(session);
            with(changes, session.outcome("call_1_1_2", "early"))
        }),
        way_to("working_recovered", move |session| {
            let changes = running(session);
            with(changes, session.crash())
        }),
        way_to("working_unknown", move |session| {
            let changes = vec![session.begin(LoopConfig::default()), session.reply("", vec![plain("a"), plain("b")])];
            session.dispatch();
            with(changes, session.crash())
        }),
        way_to("working_resolved", move |session| {
            let changes = vec![session.begin(LoopConfig::default()), session.reply("", vec![plain("a"), plain("b")])];
            session.dispatch();
            let changes = with(changes, session.crash());
            with(changes, session.resolve("call_1_1_1", Decision::Retry))
        }),
    ]
}

fn outputs() -> Vec<WayToState> {
    vec![
        way_to("validating", |session| vec![session.begin(bounds()), session.reply("seven", Vec::new())]),
        way_to("validating_last", |session| {
            let first = session.begin(LoopConfig { max_interactions: 1, ..LoopConfig::default() });
            let asked = session.reply("", vec![plain("a")]);
            vec![first, asked, session.run_batch(), session.reply("seven", Vec::new())]
        }),
        way_to("rejected", |session| {
            let first = session.begin(LoopConfig::default());
            vec![first, session.reply("seven", Vec::new()), session.reject("not a number")]
        }),
        way_to("rejected_twice", |session| {
            let first = session.begin(LoopConfig::default());
            let (reply, rejection) = (session.reply("seven", Vec::new()), session.reject("not a number"));
            vec![first, reply, rejection, session.reply("8", Vec::new()), session.reject("too large")]
        }),
        way_to("cut", |session| {
            let first = session.begin(LoopConfig::default());
            let reply = ResolvedReply { stop: StopReason::Length, ..reply("much te", Vec::new()) };
            vec![first, session.must(Input::Reply(reply))]
        }),
    ]
}

fn endings() -> Vec<WayToState> {
    vec![
        way_to("ended_text", |session| vec![session.begin(LoopConfig::default()), session.answer("seven")]),
        way_to("ended_json", |session| {
            let first = session.begin(LoopConfig::default());
            let reply = session.reply("{\"n\":7}", Vec::new());
            vec![first, reply, session.accept(OutputData::Json(json!({"n": 7, "share": 0.1})))]
        }),
        way_to("ended_limit", |session| {
            let first = session.begin(LoopConfig { max_interactions: 1, ..LoopConfig::default() });
            let asked = session.reply("", vec![plain("a")]);
            vec![first, asked, session.run_batch(), session.answer("seven")]
        }),
        way_to("ended_fallback", |session| {
            let first = session.begin(bounds());
            vec![first, session.must(failed_model(AfterFailure::GiveUp))]
        }),
        way_to("ended_with_media", |session| {
            let first = session.begin(LoopConfig::default());
            let asked = session.reply("", vec![plain("a")]);
            let ids = session.dispatch();
            let content = vec![Content::Text("here".to_owned()), Content::Media(picture()), Content::Json(json!([1]))];
            let result = agent_core::change::CallResult { content, structured: Some(json!({"n": 1})), ..result("") };
            let outcome = session.must(Input::Outcome { call: ids[0].clone(), result });
            vec![first, asked, outcome, session.answer("a picture")]
        }),
        way_to("cancelled", |session| {
            let first = session.begin(LoopConfig::default());
            let asked = session.reply("", vec![plain("a"), sequential("b")]);
            session.dispatch();
            vec![first, asked, session.must(Input::Cancel)]
        }),
        way_to("undone", |session| {
            let (first, answer) = (session.begin(LoopConfig::default()), session.answer("seven"));
            let (second, other) = (session.begin(LoopConfig::default()), session.answer("eight"));
            vec![first, answer, second, other, session.must(Input::Undo)]
        }),
        way_to("undone_to_nothing", |session| {
            let (first, answer) = (session.begin(LoopConfig::default()), session.answer("seven"));
            vec![first, answer, session.must(Input::Undo)]
        }),
    ]
}

fn failures() -> Vec<WayToState> {
    let fails = |name, error: TurnError| {
        way_to(name, move |session| {
            let first = session.begin(LoopConfig::default());
            let asked = session.reply("", vec![plain("a")]);
            session.dispatch();
            vec![first, asked, session.must(Input::Failed(error))]
        })
    };
    let text = |text: &str| text.to_owned();
    vec![
        fails("failed_plugin", TurnError::PluginFailed { plugin: text("p@012345678901"), message: text("trap") }),
        fails("failed_plugin_changed", TurnError::PluginChanged { reason: text("`p` is gone") }),
        fails("failed_host", TurnError::HostFailed { message: text("the disk is full") }),
        fails("failed_budget", TurnError::BudgetExceeded(exceeded_budget())),
        way_to("failed_model", |session| {
            vec![session.begin(LoopConfig::default()), session.must(failed_model(AfterFailure::GiveUp))]
        }),
        way_to("failed_interactions", |session| {
            let config = LoopConfig { max_interactions: 1, at_limit: AtLimit::Error, ..LoopConfig::default() };
            let first = session.begin(config);
            let asked = session.reply("", vec![plain("a")]);
            vec![first, asked, session.run_batch()]
        }),
        way_to("failed_output", |session| {
            let first = session.begin(LoopConfig { max_corrections: 0, ..LoopConfig::default() });
            vec![first, session.reply("seven", Vec::new()), session.reject("not a number")]
        }),
        way_to("failed_too_large", |session| {
            let start = session.start(TurnInput::Text("x".repeat(300)), LoopConfig::default());
            let budget = agent_core::run::PromptBudget { window: 1_000, reserved: 990, ..WIDE };
            vec![start, session.context(TurnContext { budget, ..TurnContext::default() })]
        }),
    ]
}

fn exceeded_budget() -> ExceededBudget {
    let shortage = Shortage { resource: BudgetResource::Cost, limit: 2_000_000, used: 1_999_000, needed: Some(3_000) };
    ExceededBudget { scope: BudgetScope::UserDay, owner: "ann".to_owned(), shortage }
}

fn bounds() -> LoopConfig {
    LoopConfig {
        max_interactions: 7,
        at_limit: AtLimit::Error,
        max_corrections: 1,
        parallel_calls: 2,
        result_characters: 100,
        minimum_remaining: 50,
        fallback: Some(OutputData::Text("ask later".to_owned())),
        ..LoopConfig::default()
    }
}

fn built() -> TurnContext {
    let section = |name: &str, stability| Section { name: name.to_owned(), text: "Be brief.".to_owned(), stability };
    let messages = vec![
        Message::text(Role::System, "A rule."),
        Message { seen_count: 3, ..Message::text(Role::Assistant, "Earlier.") },
        Message::text(Role::User, "How many?"),
    ];
    TurnContext {
        sections: vec![section("instructions", Stability::Fixed), section("today", Stability::Dynamic)],
        preface: Vec::new(),
        history: History::LeaveOut,
        messages,
        state: Some(vec![0, 1, 254]),
        budget: WIDE,
        ..TurnContext::default()
    }
}

pub(crate) fn failed_model(then: AfterFailure) -> Input {
    Input::ModelFailed(ModelFailure {
        model: "a/one".to_owned(),
        message: "it is busy".to_owned(),
        retryability: Retryability::Retryable,
        then,
    })
}

fn picture() -> Media {
    Media {
        digest: Digest::from_sha256([7; 32]),
        mime_type: "image/png".to_owned(),
        size: 70,
        dimensions: Some(Dimensions { width: 3, height: 2 }),
        name: Some("dot.png".to_owned()),
    }
}

fn trace() -> TraceContext {
    let traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".to_owned();
    TraceContext { traceparent, tracestate: None }
}
