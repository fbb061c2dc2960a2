//! How the host handles service events, step by step: tool names in both directions, reserved fields, contracts, counts
//! of open calls, and resumed turns. The module `agents` tests delegation.

use crate::support::{TestHost, base_call_id, call_reply, event_types, run_turn, script, text_reply, with_tree_grant};
use agent_core::change::{CallState, OutboxEffect};
use agent_core::cloud_event::CloudEvent;
use agent_core::run::Emission;
use agent_runtime::{AgentConfig, OpenSession, ResponseOutcome, ServiceConfig, Session, TurnResult};
use agent_store::{CallFilter, Outbox, OutboxFilter, SessionLog};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

fn response(call: &str, data: Value) -> CloudEvent {
    let event = json!({"specversion": "1.0", "id": "r", "source": "/service", "type": "weather.done",
        "parentid": call, "data": data});
    CloudEvent::parse(event.to_string().as_bytes()).expect("an event")
}

/// L1, L8, L10–L15, I6: A turn with service calls passes all steps of the service event handler, one after another.
#[tokio::test(flavor = "multi_thread")]
async fn l10_the_service_event_handler_runs_step_by_step() {
    let test_host = TestHost::new(&[]).await;
    let mut config = AgentConfig::new("seed-b");
    config.include_history = true;
    config.output_schema = Some(json!({"type": "object", "required": ["sky"]}));
    // The host turns the service contracts into tools.
    let service = ServiceConfig {
        accepts: json!({"type": "object", "required": ["parentSubject$$", "city"],
            "properties": {"parentSubject$$": {"type": ["string", "null"]}, "city": {"type": "string"}}}),
        emits: [("weather.done".to_owned(), json!({"type": "object", "required": ["sky"]}))].into(),
        domain: Some("region-1".to_owned()),
        ..ServiceConfig::new("com.weather.forecast".parse().unwrap())
    };
    config.services.insert("weather.forecast".to_owned(), service);
    // The host offers the tool to the model under a name that providers accept.
    let two_calls =
        call_reply(&[("weather_forecast", json!({"city": "Bern"})), ("weather_forecast", json!({"city": "Basel"}))]);
    let invalid_call = call_reply(&[("weather_forecast", json!({"city": 7}))]);
    let replies =
        script(&[invalid_call, two_calls, json!({"text": "it is blue"}), json!({"text": "{\"sky\": \"blue\"}"})]);
    let agent = test_host.agent(config, replies).await;
    let offered = agent.registry().offered().iter().find(|tool| tool.author_name == "weather.forecast").unwrap();
    assert_eq!(offered.name, "weather_forecast", "L14: providers accept the offered name");
    let expected = json!({"type": "object", "required": ["city"], "properties": {"city": {"type": "string"}}});
    assert_eq!(offered.input_schema, expected, "L15: the reserved field is not offered");

    // The host validates the arguments against the service contract before it sends anything, and the model corrects
    // them. The corrected calls wait for their services: the host maps the names of the tools back to the services'
    // names, builds the requests, and stores the number of open calls of each tool.
    let mut session = Session::open(&test_host.host(), agent.clone(), OpenSession::New).await.unwrap();
    let TurnResult::Suspended(suspension) = run_turn(&mut session, "How is the sky?").await else { panic!() };
    assert_eq!(suspension.waits.len(), 2);
    let first = test_host.store.calls(session.subject(), CallFilter::Turn(1)).await.unwrap();
    assert!(
        first[0].result.as_ref().is_some_and(|result| result.is_error),
        "L8: invalid arguments cause an error result"
    );
    let items = test_host.store.outbox(Some(session.subject()), OutboxFilter::All, 0, 9).await.unwrap();
    let sent: Vec<CloudEvent> = items
        .into_iter()
        .map(|item| match item.item.effect {
            OutboxEffect::Event(event) => event.into_inner(),
            other => panic!("{other:?}"),
        })
        .collect();
    for (event, (call, city)) in sent.iter().zip([("call_1_2_1", "Bern"), ("call_1_2_2", "Basel")]) {
        assert_eq!(
            (base_call_id(&event.id).as_str(), event.deduplicationid.as_ref()),
            (call, Some(&event.id)),
            "I6: the event has a deduplication id"
        );
        assert_eq!((event.event_type.as_str(), event.domain.as_deref()), ("com.weather.forecast", Some("region-1")));
        assert_eq!(
            event.data,
            Some(json!({"city": city, "parentSubject$$": session.subject()})),
            "L15: the host sets the reserved field"
        );
    }
    let state: Value = serde_json::from_slice(&session.state().snapshot()).unwrap();
    assert_eq!(
        state.pointer("/turn/phase/working/outstanding"),
        Some(&json!({"weather.forecast": 2})),
        "L11: the counts are stored"
    );
    let subject = session.subject().to_owned();
    session.close().await.unwrap();

    // A service response arrives for an existing session. Because the other answer is still missing, the host only
    // stores this answer.
    let mut session = Session::open(&test_host.host(), agent, OpenSession::Existing(subject)).await.unwrap();
    session.respond(response("call_1_2_2", json!({"sky": "grey"}))).await.unwrap();
    let result = session.run(None, CancellationToken::new()).await.unwrap();
    assert!(matches!(result, TurnResult::Suspended(left) if left.waits[0].call.is_named("call_1_2_1")));
    let open = test_host.store.calls(session.subject(), CallFilter::Unfinished).await.unwrap();
    assert_eq!((open.len(), open[0].state), (1, CallState::Outstanding));

    // After the last answer, the turn resumes. The output of the turn is validated, corrected once, and then accepted.
    let last = session.respond(response("call_1_2_1", json!({"sky": "blue"}))).await.unwrap();
    assert!(matches!(last, ResponseOutcome::Taken { waits, .. } if waits.is_empty()));
    let TurnResult::Finished(output) = session.run(None, CancellationToken::new()).await.unwrap() else { panic!() };
    assert_eq!(
        (output.data, output.interactions),
        (json!({"sky": "blue"}), 4),
        "L12, L13: the corrected output is accepted"
    );
    assert!(output.messages.is_some_and(|messages| messages.len() >= 8), "the output contains the history");
}

/// L17, L10, L11: The host stores the answer to an approval request immediately. As long as the answer of a service is
/// missing, the turn does not continue. The user is not asked again about a later call that the approval covers.
#[tokio::test(flavor = "multi_thread")]
async fn l17_an_approval_is_stored_before_the_turn_continues() {
    let test_host = TestHost::new(&["payer"]).await;
    let mut config = with_tree_grant(&test_host, "payer");
    config.outbox.announced.approvals = Emission::Emitted;
    let service = ServiceConfig {
        emits: [("weather.done".to_owned(), json!({"type": "object"}))].into(),
        ..ServiceConfig::new("weather.forecast".parse().unwrap())
    };
    config.services.insert("weather.forecast".to_owned(), service);
    let pay = |amount: u32| ("payer.pay", json!({"to": "Ann", "amount": amount}));
    let two_calls = call_reply(&[("weather_forecast", json!({})), pay(1)]);
    let replies =
        script(&[two_calls, text_reply("Paid, and it is fine."), call_reply(&[pay(2)]), text_reply("Paid again.")]);
    let agent = test_host.agent(config, replies).await;
    let mut session = Session::open(&test_host.host(), agent.clone(), OpenSession::New).await.unwrap();
    let TurnResult::Suspended(suspension) = run_turn(&mut session, "Pay when it is fine.").await else { panic!() };
    let waits: Vec<String> = suspension.waits.iter().map(|wait| base_call_id(&wait.call.0)).collect();
    assert_eq!(waits, ["call_1_1_1", "call_1_1_2"], "the turn waits for the service and for the approval");
    let subject = session.subject().to_owned();
    session.close().await.unwrap();

    // The approval request is an event with the subject of this session.
    let items = test_host.store.outbox(Some(&subject), OutboxFilter::All, 0, 9).await.unwrap();
    let mut requests = items.into_iter().filter_map(|item| match item.item.effect {
        OutboxEffect::Event(event) => Some(event.into_inner()),
        _ => None,
    });
    let request =
        requests.find(|event| event.event_type == "agent-host.approval.requested").expect("an approval is requested");
    assert_eq!(request.subject.as_deref(), Some(subject.as_str()));

    // The event below approves the call. The host stores the approval immediately, but the turn still waits for the
    // service's answer. Each event that the watcher receives contains the session's subject.
    let open = OpenSession::Existing(subject.clone());
    let mut session = Session::open(&test_host.host(), agent.clone(), open).await.unwrap();
    let mut stream = session.subscribe();
    let resolved = json!({"specversion": "1.0", "type": "agent-host.approval.resolved", "id": "1", "source": "/desk",
        "parentid": request.id, "subject": subject,
        "data": {"decisions": [{"call": "call_1_1_2", "verdict": "granted", "scope": "session"}]}});
    let resolved = CloudEvent::parse(resolved.to_string().as_bytes()).unwrap();
    let outcome = session.respond(resolved).await.unwrap();
    assert!(matches!(&outcome, ResponseOutcome::Taken { waits, .. } if waits.len() == 1), "{outcome:?}");
    assert_eq!(session.state().grants.len(), 1, "the approval is stored as a grant");
    let result = session.run(None, CancellationToken::new()).await.unwrap();
    assert!(
        matches!(result, TurnResult::Suspended(left) if left.waits.len() == 1 && left.waits[0].call.is_named("call_1_1_1"))
    );
    let types = event_types(&test_host, &session).await;
    assert_eq!(types.iter().filter(|kind| *kind == "loop_iteration").count(), 1, "the model is not called again");
    assert!(types.contains(&"approval_resolved".to_owned()) && types.contains(&"tool_result".to_owned()), "{types:?}");

    let mut streamed = 0;
    while let Ok(event) = stream.try_recv() {
        assert_eq!(event.session, subject, "{event:?}");
        streamed += 1;
    }
    assert!(streamed >= 3, "the approval, the payment and its result: {streamed}");

    // All answers have arrived, so the turn resumes. The stored approval covers the next payment, so the host does not
    // ask for another approval.
    session.respond(response("call_1_1_1", json!({"sky": "blue"}))).await.unwrap();
    let TurnResult::Finished(output) = session.run(None, CancellationToken::new()).await.unwrap() else { panic!() };
    assert_eq!(output.data, json!("Paid, and it is fine."));
    let TurnResult::Finished(output) = run_turn(&mut session, "And once more.").await else {
        panic!("no approval is requested")
    };
    assert_eq!(output.data, json!("Paid again."));
}
