//! Tests of the beginning of a turn (L1, L2, L22).

use crate::session::{Session, WIDE, plain, reply};
use agent_core::change::Body;
use agent_core::message::{Message, Part, Role, TurnInput};
use agent_core::plugin::{History, Lifecycle, Section, Stability};
use agent_core::run::{Action, Input, InputError, LoopConfig, TurnContext};
use serde_json::json;

#[test]
fn l2_the_input_becomes_the_message_if_the_builder_returns_no_messages() {
    let attached = vec![Part::Text("look".into()), Part::Json(json!([1]))];
    for (input, expected) in [
        (TurnInput::Text("How many?\n".into()), vec![Part::Text("How many?\n".into())]),
        (TurnInput::Json(json!({"b": 1, "a": [true]})), vec![Part::Text(r#"{"b":1,"a":[true]}"#.into())]),
        (TurnInput::Json(json!("text")), vec![Part::Text(r#""text""#.into())]),
        (TurnInput::Message(attached.clone()), attached),
    ] {
        let mut session = Session::new();
        session.start(input, LoopConfig::default());
        let change = session.context(TurnContext { budget: WIDE, ..Default::default() });
        assert_eq!(change.messages.len(), 1);
        assert_eq!((change.messages[0].id, change.messages[0].role), (1, Role::User));
        assert_eq!(change.messages[0].body, Body::Parts(expected));
        assert_eq!(session.seen_counts(), [0]);
    }
}

#[test]
fn l2_a_builders_messages_replace_the_input_and_keep_their_seen_counts() {
    let mut session = Session::new();
    session.start(TurnInput::Text("input".into()), LoopConfig::default());
    let missing: Message = serde_json::from_value(json!({"role": "user", "parts": [{"text": "new"}]})).unwrap();
    let known = Message { seen_count: 7, ..Message::text(Role::Assistant, "known") };
    let messages = vec![Message::text(Role::System, "rule"), known, missing];
    let preface = vec![section("tool-rules")];
    let change = session.context(TurnContext { messages, preface, budget: WIDE, ..Default::default() });
    assert_eq!(session.seen_counts(), [0, 7, 0]);
    let prefaced = change.messages.iter().any(|message| match &message.body {
        Body::Parts(parts) => parts.iter().any(|part| matches!(part, Part::Preface(_))),
        Body::ResultOf(_) => false,
    });
    assert!(!prefaced, "a builder's messages get no preface");
    session.answer("done");
    assert_eq!(session.seen_counts(), [1, 8, 1, 1]);
}

#[test]
fn l2_the_lifecycle_states_why_the_prompt_is_built_and_init_runs_once() {
    let mut session = Session::new();
    session.start(TurnInput::Text("input".into()), LoopConfig::default());
    assert_eq!(session.run.action(), Action::BuildContext);
    let context =
        TurnContext { state: Some(vec![0, 255]), sections: vec![section("a")], budget: WIDE, ..Default::default() };
    session.context(context.clone());
    let lifecycle = |session: &Session| match session.run.action() {
        Action::CallModel(plan) => plan.lifecycle,
        other => panic!("{other:?}"),
    };
    assert_eq!(lifecycle(&session), Lifecycle::Init);
    session.reply("", vec![plain("a")]);
    session.run_batch();
    assert_eq!(lifecycle(&session), Lifecycle::ToolResult);
    session.reply("wrong", Vec::new());
    session.reject("no");
    assert_eq!(lifecycle(&session), Lifecycle::OutputErrorFeedback);
    session.crash();
    assert_eq!(lifecycle(&session), Lifecycle::OutputErrorFeedback);
    let turn = session.run.turn.as_ref().unwrap();
    assert_eq!((&turn.state, &turn.sections), (&context.state, &context.sections), "the builder's state is restored");
    assert_eq!(session.apply(Input::Context { context }), Err(InputError::Unexpected("a context")));
}

#[test]
fn l2_history_that_is_left_out_returns_in_the_next_turn() {
    let mut session = Session::calling(LoopConfig::default());
    session.answer("first");
    session.start(TurnInput::Text("second".into()), LoopConfig::default());
    session.context(TurnContext { history: History::LeaveOut, budget: WIDE, ..Default::default() });
    assert_eq!(session.run.sent().map(|entry| entry.id).collect::<Vec<_>>(), [3]);
    session.answer("second");
    session.begin(LoopConfig::default());
    assert_eq!(session.run.sent().map(|entry| entry.id).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
}

#[test]
fn l22_the_preface_stays_before_its_input_in_later_prompts() {
    let mut session = Session::new();
    session.start(TurnInput::Text("input".into()), LoopConfig::default());
    let preface = vec![section("tool-rules"), section("retrieved-memory")];
    let change = session.context(TurnContext { preface, budget: WIDE, ..Default::default() });
    let text = |name: &str| Part::Preface(format!("## {name}\n\ntext of {name}"));
    let expected = vec![text("tool-rules"), text("retrieved-memory"), Part::Text("input".into())];
    assert_eq!(change.messages[0].body, Body::Parts(expected.clone()));
    let message = Message { role: Role::User, parts: expected, seen_count: 0 };
    assert_eq!(message.plain_text(), "input", "users and plugins only see the input");
    assert_eq!(message.without_host_parts(), Message::text(Role::User, "input"));
}

#[test]
fn l1_a_session_has_only_one_open_turn() {
    let mut session = Session::new();
    assert_eq!(session.run.action(), Action::Idle);
    assert_eq!(session.apply(Input::Cancel), Err(InputError::NoTurn));
    assert_eq!(session.apply(Input::Recover), Err(InputError::NoTurn));
    session.begin(LoopConfig::default());
    let trace = session.run.turn.as_ref().unwrap().trace.clone();
    let input = TurnInput::Text("again".into());
    let start = Input::Start { input, config: LoopConfig::default(), plugins: Vec::new(), pinned: None, trace };
    assert_eq!(session.apply(start.clone()), Err(InputError::TurnOpen(1)));
    session.answer("done");
    assert_eq!(session.run.action(), Action::Ended);
    assert_eq!(session.apply(Input::Reply(reply("late", Vec::new()))), Err(InputError::NoTurn));
    session.must(start);
    assert_eq!(session.run.turns, 2);
}

fn section(name: &str) -> Section {
    Section { name: name.into(), text: format!("text of {name}\n"), stability: Stability::Fixed }
}
