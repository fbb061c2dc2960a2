//! Row 51: Which plugins may have the host send events, and which events may answer a call. Whatever a plugin returns
//! as `pending`, no event is sent without its grant, the service's schema and the service's approval rules, and no
//! event can answer a call that waits for something else.

use crate::scene::{Scene, run_exclusively, with_grants};
use crate::support::{call_reply, results, run_turn, text_reply};
use agent_core::approval::{ApprovalPolicy, GrantScope};
use agent_core::change::OutboxEffect;
use agent_core::cloud_event::CloudEvent;
use agent_core::event::{EventKind, WaitCause};
use agent_core::outgoing_event::OutgoingEvent;
use agent_core::run::{AnnouncedEvents, Emission};
use agent_plugins::{CallLimits, Grants};
use agent_runtime::{
    AgentConfig, ApprovalDecision, LiveAgent, OpenSession, OutboxConfig, ResponseOutcome, ServiceConfig, Session,
    TurnResult, Verdict,
};
use agent_store::{Approvals, Audit, AuditAction, Outbox, OutboxFilter};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

const PAYMENT: &str = "com.example.payment.requested";

/// An agent that lets the intruder send events of these types, and announces approvals as events.
fn agent(types: &[&str]) -> AgentConfig {
    let events = types.iter().map(|event_type| event_type.parse().expect("an event type")).collect();
    let mut config = with_grants("intruder", Grants { events, ..Grants::default() }, CallLimits::default());
    config.outbox = OutboxConfig {
        directory: None,
        announced: AnnouncedEvents { approvals: Emission::Emitted, completions: Emission::Emitted },
    };
    config
}

/// The same with the service `payments`, to which this rule applies.
fn with_payments(types: &[&str], policy: ApprovalPolicy) -> AgentConfig {
    let mut config = agent(types);
    let service = ServiceConfig {
        accepts: json!({"type": "object", "required": ["amount"], "additionalProperties": false, "properties": {
            "amount": {"type": "integer", "maximum": 100}, "parentSubject$$": {"type": "string"}}}),
        domain: Some("eu".to_owned()),
        ..ServiceConfig::new(PAYMENT.parse().expect("an event type"))
    };
    config.services.insert("payments".to_owned(), service);
    config.approvals.tools.insert("payments".to_owned(), policy);
    config
}

/// A call of the intruder's tool that requests this event.
fn requesting(event_type: &str, data: &Value) -> (&'static str, Value) {
    ("intruder.ask_service", json!({"type": event_type, "data": data.to_string()}))
}

async fn outbox(scene: &Scene, session: &Session) -> Vec<OutgoingEvent> {
    let items = scene.test_host.store.outbox(Some(session.subject()), OutboxFilter::All, 0, 100).await.unwrap();
    let events = items.into_iter().filter_map(|item| match item.item.effect {
        OutboxEffect::Event(event) => Some(event),
        _ => None,
    });
    events.collect()
}

async fn audited_actions(scene: &Scene, session: &Session) -> Vec<AuditAction> {
    let entries = scene.test_host.store.audit_entries(0, 0, 1_000).await.unwrap().into_iter().map(|entry| entry.action);
    let of_session = |action: &AuditAction| match action {
        AuditAction::Denied { session: of, .. } | AuditAction::Emitted { session: of, .. } => of == session.subject(),
        _ => false,
    };
    entries.filter(of_session).collect()
}

/// Checks that the turn ends, the call has an error with this text, the refusal is audited, and only the event of the
/// turn's end is sent.
async fn check_refused(scene: &Scene, config: AgentConfig, call: (&str, Value), expected: &str) {
    let shown: String = call.1.to_string().chars().take(200).collect();
    let mut session = scene.session(config, &[call_reply(&[call]), text_reply("Done.")]).await;
    let result = run_turn(&mut session, "Go.").await;
    assert!(matches!(result, TurnResult::Finished(_)), "{shown}: {result:?}");
    let (_, is_error, text) = results(&scene.test_host, &session).await.remove(0);
    assert!(is_error && text.contains(expected) && text.len() < 4_000, "{shown}: {text}");
    let sent: Vec<String> = outbox(scene, &session).await.into_iter().map(|event| event.event_type.clone()).collect();
    assert_eq!(sent, ["agent-host.turn.finished"], "{shown}");
    let actions = audited_actions(scene, &session).await;
    assert!(
        actions.iter().any(|action| matches!(action, AuditAction::Denied { call: Some(_), .. })),
        "{shown}: {actions:?}"
    );
    assert!(!actions.iter().any(|action| matches!(action, AuditAction::Emitted { .. })), "{shown}: {actions:?}");
    session.close().await.unwrap();
}

fn event(parent: &str, session: Option<&str>, event_type: &str, data: &Value) -> CloudEvent {
    let mut event = json!({"specversion": "1.0", "id": "e", "source": "/attacker", "type": event_type,
        "parentid": parent, "data": data});
    if let Some(session) = session {
        event["subject"] = json!(session);
    }
    CloudEvent::parse(event.to_string().as_bytes()).unwrap()
}

async fn continue_turn(session: &mut Session) -> TurnResult {
    session.run(None, CancellationToken::new()).await.unwrap()
}

/// Row 51, P6: Without a grant for exactly this type no event is sent, whatever the type looks like.
#[test]
fn row_51_sends_no_event_without_a_grant_for_its_type() {
    run_exclusively(async {
        let scene = Scene::new(&["intruder"]).await;
        let data = json!({"amount": 1_000_000});
        let none = agent(&[]);
        check_refused(
            &scene,
            none.clone(),
            requesting(PAYMENT, &data),
            "events = [\\\"com.example.payment.requested\\\"]",
        )
        .await;
        let other = agent(&["com.example.notice"]);
        for event_type in [PAYMENT, "com.example.Notice", "com.example.notice2", "com.example"] {
            check_refused(&scene, other.clone(), requesting(event_type, &data), "not granted").await;
        }
        // P6: A type that the agent grants and the manifest does not request is not granted either.
        check_refused(&scene, agent(&["com.example.unasked"]), requesting("com.example.unasked", &data), "not granted")
            .await;
        for reserved in [
            "agent-host.approval.requested",
            "agent-host.approval.resolved",
            "agent-host.turn.finished",
            "Agent-Host.Turn.Finished",
            "AGENT-HOST.approval.requested",
            "agent-host.made.up",
            " agent-host.turn.finished",
            "agent_host.turn.finished",
            "agent-h\u{43e}st.turn.finished",
            "agent\u{200b}-host.turn.finished",
            "urn:agent-host.turn.finished",
        ] {
            check_refused(&scene, other.clone(), requesting(reserved, &data), "reserved").await;
        }
        for malformed in [" ", "com.example notice", "com.example.notice\n", "com.example.notice\u{200b}", "\u{202e}a"]
        {
            check_refused(&scene, other.clone(), requesting(malformed, &data), "cannot be used").await;
        }
        check_refused(&scene, other.clone(), ("intruder.long", json!({"bytes": 500_000})), "cannot be used").await;
        let peeks = ("intruder.peek", json!({"type": "com.example.notice", "data": "{}"}));
        check_refused(&scene, other.clone(), peeks, "read-only").await;
        for data in [
            json!({"parentSubject$$": "somebody/else"}),
            json!({"deep": [{"PARENTSUBJECT$$": 1}]}),
            json!({"parentSubject$$\u{200b}": 1}),
        ] {
            check_refused(&scene, other.clone(), requesting("com.example.notice", &data), "keys that end with `$$`")
                .await;
        }
    });
}

/// Row 51: A granted event is sent with the host's attributes, and is audited with the plugin's digest.
#[test]
fn row_51_a_granted_event_has_the_attributes_of_the_host() {
    run_exclusively(async {
        let scene = Scene::new(&["intruder"]).await;
        let forged =
            json!({"specversion": "9", "id": "x", "source": "x", "subject": "x", "parentid": "x", "domain": "x"});
        let call = json!({"type": "com.example.notice", "data": forged.to_string(), "domain": "anywhere"});
        let replies = [call_reply(&[("intruder.ask_service", call)]), text_reply("Done.")];
        let mut session = scene.session(agent(&["com.example.notice"]), &replies).await;
        let TurnResult::Suspended(suspension) = run_turn(&mut session, "Go.").await else { panic!() };
        let [sent] = &outbox(&scene, &session).await[..] else { panic!("one event") };
        assert_eq!(
            (sent.id.as_str(), sent.subject.as_deref()),
            (suspension.waits[0].call.0.as_str(), Some(session.subject()))
        );
        assert_eq!(
            (sent.source.as_str(), sent.domain.as_deref()),
            ("agent-host/attacker", None),
            "only the host sets domains"
        );
        assert_eq!((sent.parentid.as_deref(), sent.data.as_ref()), (None, Some(&forged)));
        let actions = audited_actions(&scene, &session).await;
        let emitted = actions.iter().any(|action| match action {
            AuditAction::Emitted { source, event_type, .. } => {
                event_type == "com.example.notice" && source.to_string() == scene.identity("intruder")
            }
            _ => false,
        });
        let outcome = actions
            .iter()
            .any(|action| matches!(action, AuditAction::Denied { denial, .. } if denial.thing.contains("anywhere")));
        assert!(emitted && outcome, "{actions:?}");
        session.close().await.unwrap();
    });
}

/// Row 51, L17: For the type of a service, its schema and rules apply as if the model had called the service.
#[test]
fn row_51_applies_schema_and_rules_of_the_service_to_plugins() {
    run_exclusively(async {
        let scene = Scene::new(&["intruder"]).await;
        let both = [PAYMENT, "com.example.Payment.requested"];
        let allowed = with_payments(&both, ApprovalPolicy::Allow);
        let small = json!({"amount": 1});
        check_refused(&scene, allowed.clone(), requesting(PAYMENT, &json!({"amount": 1_000_000})), "maximum").await;
        check_refused(&scene, allowed.clone(), requesting(PAYMENT, &json!({"amount": 1, "extra": 1})), "accepts").await;
        check_refused(&scene, allowed.clone(), requesting(PAYMENT, &json!("all")), "accepts").await;
        let forged = json!({"amount": 1, "parentSubject$$": "somebody/else"});
        check_refused(&scene, allowed.clone(), requesting(PAYMENT, &forged), "keys that end with `$$`").await;
        check_refused(&scene, allowed.clone(), requesting(both[1], &small), "looks like").await;
        let denied = with_payments(&both, ApprovalPolicy::Deny);
        check_refused(&scene, denied, requesting(PAYMENT, &small), "denies `payments`").await;

        let replies = [call_reply(&[requesting(PAYMENT, &small)]), text_reply("Done.")];
        let mut session = scene.session(allowed, &replies).await;
        assert!(matches!(run_turn(&mut session, "Go.").await, TurnResult::Suspended(_)));
        let [sent] = &outbox(&scene, &session).await[..] else { panic!("one event") };
        let expected = json!({"amount": 1, "parentSubject$$": session.subject()});
        assert_eq!(
            (sent.data.as_ref(), sent.domain.as_deref()),
            (Some(&expected), Some("eu")),
            "filled in by the host"
        );
        session.close().await.unwrap();
    });
}

/// Row 51, L17: With `ask`, a person sees the service and the data before the event is sent; the decision is final,
/// also across a restart, and the tool does not run a second time.
#[test]
fn row_51_asks_a_person_before_sending_a_request_of_a_plugin() {
    run_exclusively(async {
        let scene = Scene::new(&["intruder"]).await;
        let config = with_payments(&[PAYMENT], ApprovalPolicy::Ask);
        let replies = [call_reply(&[requesting(PAYMENT, &json!({"amount": 7}))]), text_reply("Done.")];
        for (allows, says) in [(true, "sent"), (false, "nothing")] {
            let mut session = scene.session(config.clone(), &replies).await;
            let TurnResult::Suspended(suspension) = run_turn(&mut session, "Go.").await else { panic!("{says}") };
            assert_eq!(suspension.waits[0].cause, WaitCause::Approval, "{says}");
            let subject = session.subject().to_owned();
            let live = session.live().clone();
            session.close().await.unwrap();
            // The next process knows only what is stored.
            let mut session =
                Session::open(&scene.test_host.host(), live, OpenSession::Existing(subject)).await.unwrap();
            let [item] = &session.pending_approvals().await.unwrap()[..] else { panic!("{says}") };
            let details = item.details.as_ref().expect("the person sees all of it");
            assert_eq!((item.name.as_str(), &details.arguments), ("payments", &json!({"amount": 7})));
            assert!(details.because.contains("intruder.ask_service"), "{}", details.because);
            let edited = Verdict::Allow { scope: GrantScope::Once, edited: Some(json!({"amount": 9})) };
            let edit = ApprovalDecision { call: item.call.clone(), verdict: edited };
            assert!(session.approve(vec![edit]).await.is_err(), "a plugin's request cannot be edited");
            let verdict = match allows {
                true => Verdict::Allow { scope: GrantScope::Once, edited: None },
                false => Verdict::Deny { reason: None },
            };
            session.approve(vec![ApprovalDecision { call: item.call.clone(), verdict }]).await.unwrap();
            let result = continue_turn(&mut session).await;
            let requests = outbox(&scene, &session).await;
            let sent = requests.iter().filter(|event| event.event_type == PAYMENT).count();
            assert_eq!((sent == 1, matches!(result, TurnResult::Suspended(_))), (allows, allows), "{says}: {result:?}");
            if allows {
                let call = item.call.0.clone();
                let paid = event(&call, None, "com.example.paid", &json!({"ok": true}));
                assert!(matches!(session.respond(paid).await.unwrap(), ResponseOutcome::Taken { .. }));
                assert!(matches!(continue_turn(&mut session).await, TurnResult::Finished(_)));
            }
            session.close().await.unwrap();
        }
    });
}

/// Row 51, P10: If a grant is revoked while a person decides, the event is not sent.
#[test]
fn row_51_a_revoked_grant_prevents_a_request() {
    run_exclusively(async {
        let scene = Scene::new(&["intruder"]).await;
        let config = with_payments(&[PAYMENT], ApprovalPolicy::Ask);
        let replies = [call_reply(&[requesting(PAYMENT, &json!({"amount": 7}))]), text_reply("Done.")];
        let mut session = scene.session(config, &replies).await;
        assert!(matches!(run_turn(&mut session, "Go.").await, TurnResult::Suspended(_)));
        let live: LiveAgent = session.live().clone();
        let revoked = with_payments(&[], ApprovalPolicy::Ask);
        live.change(|agent| agent.with_config(revoked)).unwrap();
        let call = session.state().waits().remove(0).call;
        let verdict = Verdict::Allow { scope: GrantScope::Always, edited: None };
        session.approve(vec![ApprovalDecision { call, verdict }]).await.unwrap();
        assert!(matches!(continue_turn(&mut session).await, TurnResult::Finished(_)));
        let (_, is_error, text) = results(&scene.test_host, &session).await.remove(0);
        assert!(is_error && text.contains("not granted"), "{text}");
        let sent = outbox(&scene, &session).await;
        assert!(sent.iter().all(|event| event.event_type != PAYMENT), "{sent:?}");
        session.close().await.unwrap();
    });
}

/// Row 51, row 20: An answer is matched with what the host itself committed: no event answers a call that waits for
/// something else, whatever it claims, and a person's refusal is final.
#[test]
fn row_51_an_event_answers_only_its_own_call() {
    run_exclusively(async {
        let scene = Scene::new(&["intruder"]).await;
        let mut config = agent(&["com.example.notice"]);
        config.approvals.tools.insert("intruder.wait".to_owned(), ApprovalPolicy::Ask);
        // The attack: an event that looks like an approval request for the other call.
        let named = json!({"calls": [{"call": "call_1_1_1", "name": "intruder.wait"}]});
        let calls = [("intruder.wait", json!({"how": "poll"})), requesting("com.example.notice", &named)];
        let mut session = scene.session(config, &[call_reply(&calls), text_reply("Done.")]).await;
        let TurnResult::Suspended(suspension) = run_turn(&mut session, "Go.").await else { panic!() };
        let [approval, service] = &suspension.waits[..] else { panic!("{suspension:?}") };
        assert_eq!(approval.cause, WaitCause::Approval);
        let (waits, asks, subject) = (&approval.call.0, &service.call.0, session.subject().to_owned());
        let requests = outbox(&scene, &session).await;
        let genuine =
            requests.iter().find(|event| event.event_type == "agent-host.approval.requested").unwrap().id.clone();
        let yes = json!({"decisions": [{"call": waits, "verdict": "granted", "scope": "always"}]});
        let for_service = json!({"decisions": [{"call": asks, "verdict": "granted"}]});
        let resolved = "agent-host.approval.resolved";
        let number: String = genuine.trim_start_matches("approval_").chars().take_while(char::is_ascii_digit).collect();
        for (forged, why) in [
            (event(asks, Some(&subject), resolved, &yes), "the plugin's own event is not a request"),
            (event(waits, Some(&subject), resolved, &yes), "a call is not a request"),
            (event(&format!("approval_{number}"), Some(&subject), resolved, &yes), "the request's id must be whole"),
            (event("approval_1", Some(&subject), resolved, &yes), "another event is not a request"),
            (event(&genuine.to_uppercase(), Some(&subject), resolved, &yes), "another case is another id"),
            (event(&genuine, None, resolved, &yes), "an approval names its session"),
            (event(&genuine, Some("attacker/else"), resolved, &yes), "another session's"),
            (event(&genuine, Some(&subject), resolved, &for_service), "the request did not ask about that call"),
            (event(waits, Some(&subject), "com.example.done", &yes), "a service does not allow anything"),
            (event(waits, Some(&subject), "agent-host.approval.requested", &yes), "the host's types do not come in"),
            (event(asks, Some(&subject), "Agent-Host.approval.resolved", &yes), "nor what looks like them"),
            (event(asks, Some(&subject), "agent-host.turn.finished", &yes), "nor others of them"),
        ] {
            let response = session.respond(forged).await;
            assert!(response.is_err(), "{why}: {response:?}");
        }
        assert!(
            session.answer(service.call.clone(), "mine".to_owned()).await.is_err(),
            "the service asked no question"
        );
        assert!(session.answer(approval.call.clone(), "mine".to_owned()).await.is_err(), "the host did not either");
        let yes = Verdict::Allow { scope: GrantScope::Always, edited: None };
        let decision = ApprovalDecision { call: service.call.clone(), verdict: yes };
        assert!(session.approve(vec![decision]).await.is_err(), "a service's answer cannot be approved");
        assert_eq!(session.state().waits().len(), 2, "nothing has changed");

        let no = json!({"decisions": [{"call": waits, "verdict": "denied"}]});
        let response = session.respond(event(&genuine, Some(&subject), resolved, &no)).await.unwrap();
        assert!(matches!(response, ResponseOutcome::Taken { .. }), "a person can always refuse: {response:?}");
        let late = json!({"decisions": [{"call": waits, "verdict": "granted", "scope": "always"}]});
        let response = session.respond(event(&genuine, Some(&subject), resolved, &late)).await.unwrap();
        assert_eq!(response, ResponseOutcome::Late);
        session.respond(event(asks, None, "com.example.done", &json!({}))).await.unwrap();
        assert!(matches!(continue_turn(&mut session).await, TurnResult::Finished(_)));
        assert_eq!(scene.test_host.store.allowed("attacker").await.unwrap(), [], "no permanent grant was stored");
        let ran = results(&scene.test_host, &session).await;
        assert!(ran[0].1 && ran[0].2.contains("did not allow"), "{ran:?}");
        session.close().await.unwrap();
    });
}

/// Row 51: Two sessions with the same call ids do not answer for each other.
#[test]
fn row_51_distinguishes_sessions_with_the_same_call_ids() {
    run_exclusively(async {
        let scene = Scene::new(&["intruder"]).await;
        let replies = [call_reply(&[requesting("com.example.notice", &json!({}))]), text_reply("Done.")];
        let (mut one, mut two) = (
            scene.session(agent(&["com.example.notice"]), &replies).await,
            scene.session(agent(&["com.example.notice"]), &replies).await,
        );
        assert!(matches!(run_turn(&mut one, "Go.").await, TurnResult::Suspended(_)));
        assert!(matches!(run_turn(&mut two, "Go.").await, TurnResult::Suspended(_)));
        let (of_one, of_two) = (one.state().waits().remove(0).call, two.state().waits().remove(0).call);
        assert_ne!(of_one, of_two);
        assert!(one.respond(event(&of_two.0, None, "done", &json!({}))).await.is_err());
        let addressed = event(&of_one.0, Some(two.subject()), "done", &json!({}));
        assert!(one.respond(addressed).await.is_err());
        for _ in 0..2 {
            two.respond(event(&of_two.0, None, "done", &json!({}))).await.unwrap();
        }
        let last = two.respond(event(&of_two.0, None, "done", &json!({"other": 1}))).await.unwrap();
        assert_eq!(last, ResponseOutcome::Late);
        one.close().await.unwrap();
        two.close().await.unwrap();
    });
}

/// P5: Reading the conversation's media needs a grant; the denial names the plugin and the line to add.
#[test]
fn p5_reading_media_needs_a_grant() {
    run_exclusively(async {
        let scene = Scene::new(&["probe"]).await;
        let mut config = with_grants("probe", Grants::default(), CallLimits::default());
        let made = [call_reply(&[("probe.image", json!({"bytes": 10}))]), text_reply("Made.")];
        let mut session = scene.session(config.clone(), &made).await;
        assert!(
            matches!(run_turn(&mut session, "Make.").await, TurnResult::Finished(_)),
            "creating media needs no grant"
        );
        let calls = crate::support::visible_messages(&scene.test_host, &session).await;
        let text = serde_json::to_string(&calls).unwrap();
        let at = text.find("sha256:").expect("the medium's digest");
        let digest = text[at..at + "sha256:".len() + 64].to_owned();
        session.close().await.unwrap();
        let read = ("probe.checksum", json!({"digest": digest}));
        for (media, says) in [(false, "media = true"), (true, "no medium")] {
            config.plugins.get_mut("probe").unwrap().grants.media = media;
            // In another session the medium does not exist: without the grant, the plugin cannot even learn that.
            let mut session =
                scene.session(config.clone(), &[call_reply(std::slice::from_ref(&read)), text_reply("Done.")]).await;
            run_turn(&mut session, "Read.").await;
            let (_, is_error, text) = results(&scene.test_host, &session).await.remove(0);
            assert!(is_error, "{text}");
            assert_eq!(text.contains("media = true"), !media, "{says}: {text}");
            let denied = crate::support::events(&scene.test_host, &session).await;
            let denied = denied.iter().any(|event| {
                matches!(&event.kind, EventKind::Denied { denial, .. } if denial.plugin == scene.identity("probe")
                    && denial.thing == "reading the media of the conversation")
            });
            assert_eq!(denied, !media);
            session.close().await.unwrap();
        }
    });
}
