//! Processes that announce work to each other over NATS (F1, F2), with real servers.

use super::{Fleet, effects};
use crate::nats_server::Cluster;
use crate::serve::client::{Client, encoded};
use crate::serve::process::ServeProcess;
use agent_store::{SessionFilter, SessionIndex};
use async_nats::HeaderMap;
use async_nats::jetstream::Context;
use async_nats::jetstream::stream::Config;
use futures::StreamExt;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(120);

pub(super) fn agents() -> [super::TestAgent<'static>; 5] {
    let probe = "[plugins.probe.grants]\nwrite = [\".\"]\n";
    [
        (
            "clerk",
            "[outbox]\nsubject = \"out.clerk\"\ncompletions = true\n[events.orders]\nsubject = \"shop.orders.*\"\nprompt = \"New:\"\n",
            json!([{"text": "One."}]),
        ),
        (
            "slow",
            probe,
            json!([
                {"calls": [{"name": "probe.idempotent", "arguments": {"path": "effects.txt", "ms": 200}}]},
                {"chunks": ["It ", "goes ", "on ", "and ", "on."], "delay_ms": 800},
            ]),
        ),
        (
            "long",
            probe,
            json!([
                {"calls": [{"name": "probe.idempotent", "arguments": {"path": "effects.txt", "ms": 4_000}}]},
                {"text": "At last."},
            ]),
        ),
        ("brief", "", json!([{"text": "One."}, {"text": "Two."}, {"text": "Three."}])),
        (
            "shipper",
            "[services.ship]\ntype = \"com.example.ship\"\n[outbox]\nsubject = \"out.shipper\"\n[events.answers]\nsubject = \
             \"shop.answers\"\n",
            json!([{"calls": [{"name": "ship", "arguments": {"order": 7}}]}, {"text": "Shipped."}]),
        ),
    ]
}

pub(super) async fn begin(client: &Client, agent: &str) -> String {
    let created = client.post("/api/sessions", json!({"agent": agent, "prompt": "Go."})).await;
    created.json(201)["session"].as_str().expect("an id").to_owned()
}

pub(super) async fn until_ended(client: &Client, session: &str, turns: u64) {
    until(&format!("turn {turns} of {session} ends"), async || {
        let found = client.get(&format!("/api/sessions/{}", encoded(session))).await.json(200);
        found["state"] == "idle" && found["turns"] == turns
    })
    .await;
}

/// Waits until a condition holds.
pub(super) async fn until(what: &str, mut is_reached: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !is_reached().await {
        assert!(begun.elapsed() < PATIENCE, "not reached: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Waits until a process takes the announcements of all agents.
async fn until_announcements_are_taken(nats: &Context) {
    until("announcements are taken", async || {
        let Ok(stream) = nats.get_stream("tests-work").await else { return false };
        stream.cached_info().state.consumer_count >= agents().len()
    })
    .await;
}

fn lines_with(process: &ServeProcess, text: &str) -> usize {
    process.log().iter().filter(|line| line.contains(text)).count()
}

/// Returns the number of messages in a stream, or `None` if there is no stream.
pub(super) async fn messages_in(nats: &Context, stream: &str) -> Option<u64> {
    Some(nats.get_stream(stream).await.ok()?.cached_info().state.messages)
}

impl Fleet {
    pub(super) fn cluster(&self) -> &Cluster {
        self.nats.as_ref().expect("this fleet uses NATS")
    }

    /// Runs the program with the NATS servers of this fleet.
    pub(super) fn dead_letters(&self, arguments: &[&str]) -> (bool, String) {
        let mut command = crate::support::agent_host();
        let output = command
            .arg("dead-letter")
            .args(arguments)
            .env("AGENT_HOST_NATS", self.cluster().address())
            .current_dir(self.folder.path())
            .output()
            .expect("the program runs");
        let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        (output.status.success(), text)
    }
}

/// F1: a worker that stops announces its open turn, the announcement is delivered to another process, and confirmed.
#[tokio::test(flavor = "multi_thread")]
async fn f1_open_turns_are_announced_over_nats() {
    let Some(fleet) = Fleet::with_nats(&agents(), 2, Cluster::start(1)) else { return };
    let nats = fleet.cluster().jetstream().await;
    let (first, second) = (fleet.start("serve", 0), fleet.start("worker", 1));
    until_announcements_are_taken(&nats).await;
    let session = begin(&first.client(), "long").await;
    until("the call has begun", async || !effects(fleet.folder.path()).is_empty()).await;
    first.signal(Signal::TERM);
    assert!(first.wait());
    let announced = nats.get_stream("tests-work").await.expect("the stream").cached_info().state.last_sequence;
    assert!(announced >= 1, "the open turn was announced");
    let first = fleet.start("serve", 0);
    until_ended(&first.client(), &session, 1).await;
    until("all announcements are confirmed", async || messages_in(&nats, "tests-work").await == Some(0)).await;
    assert_eq!(effects(fleet.folder.path()).values().sum::<usize>(), 1, "the call had its effect once");
    assert_eq!(lines_with(&second, "NATS cannot be used"), 0, "{:?}", second.log());
}

/// F1: without NATS at the start, and while it does not answer, turns run and requests reach sessions of other processes. The log
/// says so once, and the processes use NATS as soon as it answers.
#[tokio::test(flavor = "multi_thread")]
async fn f1_nats_may_be_down_at_any_time() {
    let Some(mut fleet) = Fleet::with_nats(&agents(), 2, Cluster::prepare(1)) else { return };
    let (first, second) = (fleet.start("serve", 0), fleet.start("serve", 1));
    let session = begin(&first.client(), "brief").await;
    until_ended(&second.client(), &session, 1).await;
    let prompts = format!("/api/sessions/{}/prompts", encoded(&session));
    let prompt = async |client: Client| {
        let begun = Instant::now();
        assert!(client.post(&prompts, json!({"prompt": "More."})).await.status < 300);
        begun.elapsed()
    };
    assert!(prompt(second.client()).await < Duration::from_secs(5), "the request did not wait for NATS");
    until_ended(&first.client(), &session, 2).await;
    until("the failure is reported", async || lines_with(&first, "NATS cannot be used") == 1).await;

    fleet.nats.as_mut().expect("NATS").start_server(0);
    let nats = fleet.cluster().jetstream().await;
    until("the streams are created", async || messages_in(&nats, "tests-work").await.is_some()).await;
    fleet.cluster().signal(0, Signal::STOP);
    // The session is still open at the first server.
    assert!(prompt(second.client()).await < Duration::from_secs(5), "the request did not wait for the paused server");
    until_ended(&second.client(), &session, 3).await;
    fleet.cluster().signal(0, Signal::CONT);
    // The session is still open at the first server, so each prompt of the second server is announced.
    let stored =
        async || nats.get_stream("tests-work").await.map_or(0, |stream| stream.cached_info().state.last_sequence);
    let before = stored().await;
    until("announcements are stored again", async || {
        prompt(second.client()).await;
        stored().await > before
    })
    .await;
}

/// F2: a client at one server sees the text that a model streams in a session at another server, also if it comes late. Text that
/// others publish is not shown.
#[tokio::test(flavor = "multi_thread")]
async fn f2_streamed_text_reaches_clients_of_other_servers() {
    let Some(fleet) = Fleet::with_nats(&agents(), 2, Cluster::start(1)) else { return };
    let (owner, other) = (fleet.start("serve", 0), fleet.start("serve", 1));
    let nats = fleet.cluster().jetstream().await;
    until("the servers use NATS", async || messages_in(&nats, "tests-work").await.is_some()).await;
    let session = begin(&owner.client(), "slow").await;
    until("the call has run", async || !effects(fleet.folder.path()).is_empty()).await;
    let forged = json!({"is_whole": true, "events": [{"session": session, "turn": 1, "sequence": 5, "provisional": 1,
        "type": "stream_token", "text": "FORGED"}]});
    let subject = format!("tests.{}.live.text", session.replace('/', "."));
    let attacker = tokio::spawn({
        let client = nats.client();
        async move {
            for _ in 0..200 {
                client.publish(subject.clone(), forged.to_string().into()).await.expect("published");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    });
    let reader = other.client();
    // The second reader comes in the middle of the reply.
    let late = async {
        tokio::time::sleep(Duration::from_millis(2_500)).await;
        read_reply(&reader, &session).await
    };
    let (early, late) = tokio::join!(read_reply(&reader, &session), late);
    attacker.abort();
    for (pieces, text, stored) in [early, late] {
        assert!(pieces >= 2, "the text arrives in pieces: {pieces} {text}");
        // The stored reply may arrive before the last piece.
        assert!(text.starts_with("It goes ") && stored.starts_with(&text), "{text}");
        assert_eq!(stored, "It goes on and on.");
    }
}

/// Reads the events of a session until its reply is complete. Returns the number of pieces with text, their text, and the text
/// of the stored reply.
async fn read_reply(client: &Client, session: &str) -> (usize, String, String) {
    let mut events = client.stream(&format!("/api/sessions/{}/events", encoded(session)), "0").await;
    let (mut pieces, mut text) = (0, String::new());
    loop {
        let event = events.next().await.expect("the stream goes on");
        let shown = || event.data["text"].as_str().unwrap_or_default().to_owned();
        match event.name.as_str() {
            "stream_token" => {
                pieces += 1;
                text.push_str(&shown());
            }
            "reply" => {
                pieces += 1;
                text = shown();
            }
            "stream_clear" => text.clear(),
            // The reply with the call has no text.
            "stream_complete" if !shown().is_empty() => return (pieces, text, shown()),
            _ => {}
        }
    }
}

/// F2: an announcement of a session that no process can continue becomes a dead letter with its reason, and can be repeated.
#[tokio::test(flavor = "multi_thread")]
async fn f2_announcements_without_success_become_dead_letters() {
    let Some(fleet) = Fleet::with_nats(&agents(), 2, Cluster::start(3)) else { return };
    let nats = fleet.cluster().jetstream().await;
    let first = fleet.start("serve", 0);
    until_announcements_are_taken(&nats).await;
    let session = begin(&first.client(), "long").await;
    until("the call has begun", async || !effects(fleet.folder.path()).is_empty()).await;
    first.signal(Signal::TERM);
    assert!(first.wait());
    // The second process has never used this version of the plugin, and finds another one.
    let file = fleet.folder.path().join("plugins/probe.wasm");
    let mut component = std::fs::read(&file).expect("a component");
    component.extend(b"\x00\x05\x04note");
    std::fs::write(&file, component).expect("written");
    let second = fleet.start("worker", 1);
    let list = || -> Vec<Value> {
        let (succeeded, printed) = fleet.dead_letters(&["list", "--json"]);
        assert!(succeeded, "{printed}");
        printed.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    };
    let begun = Instant::now();
    while list().is_empty() {
        assert!(begun.elapsed() < PATIENCE, "the announcement is not given up: {}", second.log().join("\n"));
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let letters = list();
    assert_eq!(letters.len(), 1, "{letters:?}");
    let letter = &letters[0];
    assert_eq!(
        (&letter["kind"], &letter["session"], &letter["deliveries"]),
        (&json!("work"), &json!(session), &json!(5))
    );
    let reason = letter["reason"].as_str().expect("a reason");
    assert!(reason.contains("plugin"), "{reason}");
    assert!(letter["worker"].as_str().is_some_and(|worker| worker.starts_with("process ")), "{letter}");
    assert!(letter["time"].as_str().is_some_and(|time| time.ends_with('Z')), "{letter}");
    assert_eq!(messages_in(&nats, "tests-work").await, Some(0));
    let (_, shown) = fleet.dead_letters(&["list"]);
    assert!(shown.contains(&session) && shown.contains("after 5 attempts"), "{shown}");

    // With the first machine, which has the plugin, a repetition succeeds, or the machine has already found the session.
    drop(second);
    let first = fleet.start("serve", 0);
    let number = letter["number"].to_string();
    let (succeeded, printed) = fleet.dead_letters(&["retry", &number]);
    assert!(succeeded && printed.contains("repeated 1 dead letter"), "{printed}");
    until_ended(&first.client(), &session, 1).await;
    assert_eq!(list(), Vec::<Value>::new());
    for command in ["retry", "drop"] {
        let (succeeded, printed) = fleet.dead_letters(&[command, &number]);
        assert!(!succeeded && printed.contains("there is no dead letter"), "{printed}");
    }
    assert_eq!(effects(fleet.folder.path()).values().sum::<usize>(), 1, "the call had its effect once");
}

pub(super) async fn publish(nats: &Context, subject: &str, headers: &[(&str, &str)], payload: &str) {
    let mut map = HeaderMap::new();
    headers.iter().for_each(|(name, value)| map.insert(*name, *value));
    let sent = nats.publish_with_headers(subject.to_owned(), map, payload.to_owned().into()).await.expect("sent");
    sent.await.expect("stored");
}

/// I6: an event of another system begins exactly one session, however often it comes, and the events of the agent are published.
#[tokio::test(flavor = "multi_thread")]
async fn i6_events_come_and_go_over_nats() {
    let Some(fleet) = Fleet::with_nats(&agents(), 2, Cluster::start(1)) else { return };
    let nats = fleet.cluster().jetstream().await;
    for (name, subjects) in [("SHOP", "shop.>"), ("OUT", "out.>")] {
        let config = Config { name: name.to_owned(), subjects: vec![subjects.to_owned()], ..Config::default() };
        nats.create_stream(config).await.expect("created");
    }
    let event = |id: &str| {
        json!({"specversion": "1.0", "id": id, "source": "/shop", "type": "shop.order", "data": {"order": id}})
            .to_string()
    };
    let structured = ("Content-Type", "application/cloudevents+json");
    // A consumer of an earlier configuration gets the subjects of this one.
    let earlier = async_nats::jetstream::consumer::pull::Config {
        durable_name: Some("tests=clerk=orders".to_owned()),
        filter_subject: "shop.>".to_owned(),
        ..Default::default()
    };
    let shop = nats.get_stream("SHOP").await.expect("the stream");
    shop.create_consumer(earlier).await.expect("created");
    publish(&nats, "shop.returns", &[structured], &event("6")).await;
    publish(&nats, "shop.orders.new", &[structured], &event("1")).await;
    let (first, second) = (fleet.start("serve", 0), fleet.start("worker", 1));
    for _ in 0..3 {
        publish(&nats, "shop.orders.new", &[structured], &event("1")).await;
        publish(&nats, "shop.orders.new", &[], &event("2")).await;
    }
    let binary = [("ce-specversion", "1.0"), ("ce-id", "2"), ("ce-source", "/shop"), ("ce-type", "shop.order")];
    publish(&nats, "shop.orders.new", &binary, r#"{"order": "2"}"#).await;
    publish(&nats, "shop.returns", &[structured], &event("3")).await;
    let approval = r#"{"specversion": "1.0", "id": "4", "source": "/x", "type": "agent-host.approval.resolved",
        "parentid": "approval_1", "subject": "clerk/1"}"#;
    publish(&nats, "shop.orders.bad", &[], approval).await;

    let store = fleet.store().await;
    let sessions = async || store.sessions(SessionFilter::default(), 100).await.expect("listed");
    until("both events have taken effect", async || {
        sessions().await.iter().filter(|session| session.state.as_str() == "idle").count() == 2
    })
    .await;
    until("all events are confirmed", async || {
        let stream = nats.get_stream("SHOP").await.expect("the stream");
        let consumer = stream.consumer_info("tests=clerk=orders").await.expect("the consumer");
        consumer.num_pending == 0 && consumer.num_ack_pending == 0
    })
    .await;
    assert_eq!(sessions().await.len(), 2, "each event began one session");
    until("the ends of both turns are published", async || messages_in(&nats, "OUT").await == Some(2)).await;
    let out = nats.get_stream("OUT").await.expect("the stream");
    let consumer =
        out.create_consumer(async_nats::jetstream::consumer::pull::Config::default()).await.expect("created");
    let mut published = consumer.fetch().max_messages(2).messages().await.expect("fetched");
    while let Some(message) = published.next().await {
        let message = message.expect("a message");
        let event: Value = serde_json::from_slice(&message.payload).expect("JSON");
        assert_eq!((&*message.subject, &event["type"]), ("out.clerk", &json!("agent-host.turn.finished")));
    }

    // An approval never comes over NATS. Its dead letter can be dropped, and a forged repetition has no effect.
    let (_, listed) = fleet.dead_letters(&["list", "--json"]);
    let letter: Value = serde_json::from_str(listed.trim()).unwrap_or_else(|error| panic!("{error}: {listed}"));
    assert_eq!(
        (&letter["kind"], &letter["agent"], &letter["name"]),
        (&json!("event"), &json!("clerk"), &json!("orders"))
    );
    assert!(letter["reason"].as_str().is_some_and(|reason| reason.contains("not accepted over NATS")), "{letter}");
    nats.client().publish("tests.clerk.orders.retry", event("5").into()).await.expect("published");
    nats.client().flush().await.expect("sent");
    until("the forged repetition is ignored", async || {
        lines_with(&first, "not a dead letter of this fleet") + lines_with(&second, "not a dead letter of this fleet")
            == 1
    })
    .await;
    let (succeeded, printed) = fleet.dead_letters(&["drop", "--all", "--json"]);
    assert!(succeeded && printed.contains("\"orders\""), "{printed}");
    assert_eq!(sessions().await.len(), 2);

    // The content of this event does not fit into a dead letter.
    publish(&nats, "shop.orders.bad", &[], &"x".repeat(800_000)).await;
    until("the large event is a dead letter", async || {
        fleet.dead_letters(&["list", "--json"]).1.contains("shop.orders.bad")
    })
    .await;
    let (_, listed) = fleet.dead_letters(&["list", "--json"]);
    let letter: Value = serde_json::from_str(listed.trim()).unwrap_or_else(|error| panic!("{error}: {listed}"));
    assert!(letter["reason"].as_str().is_some_and(|reason| reason.contains("too large to be kept here")), "{letter}");
    let (succeeded, printed) = fleet.dead_letters(&["retry", &letter["number"].to_string()]);
    assert!(!succeeded && printed.contains("publish it again"), "{printed}");

    // An id is valid only on its subject, so a sender cannot use up the ids of others.
    publish(&nats, "shop.orders.other", &[structured], &event("1")).await;
    until("the same id on another subject begins a session", async || sessions().await.len() == 3).await;
}

/// I6: a service receives its request over NATS, and its answer continues the turn. An answer on a subject of another agent is not
/// accepted, and a repeated answer changes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn i6_services_answer_over_nats() {
    let Some(fleet) = Fleet::with_nats(&agents(), 2, Cluster::start(1)) else { return };
    let nats = fleet.cluster().jetstream().await;
    for (name, subjects) in [("SHOP", "shop.>"), ("OUT", "out.>")] {
        let config = Config { name: name.to_owned(), subjects: vec![subjects.to_owned()], ..Config::default() };
        nats.create_stream(config).await.expect("created");
    }
    let (server, _worker) = (fleet.start("serve", 0), fleet.start("worker", 1));
    let session = begin(&server.client(), "shipper").await;
    until("the request is published", async || messages_in(&nats, "OUT").await == Some(1)).await;
    let out = nats.get_stream("OUT").await.expect("the stream");
    let request = out.get_raw_message(1).await.expect("a message");
    let request: Value = serde_json::from_slice(&request.payload).expect("JSON");
    assert_eq!((&request["type"], &request["subject"]), (&json!("com.example.ship"), &json!(session)));
    let answer = |id: &str| {
        json!({"specversion": "1.0", "id": id, "source": "/harbour", "type": "com.example.shipped", "subject": session,
            "parentid": request["id"], "data": {"ship": "Anna"}})
        .to_string()
    };
    publish(&nats, "shop.orders.forged", &[], &answer("1")).await;
    until("the answer of another subject is refused", async || {
        let (_, listed) = fleet.dead_letters(&["list", "--json"]);
        listed.contains("has no session") && listed.contains("\"orders\"")
    })
    .await;
    let path = format!("/api/sessions/{}", encoded(&session));
    assert_eq!(server.client().get(&path).await.json(200)["state"], "suspended");
    for _ in 0..3 {
        publish(&nats, "shop.answers", &[], &answer("2")).await;
    }
    until_ended(&server.client(), &session, 1).await;
    let transcript = server.client().get(&format!("{path}/messages")).await.body;
    assert_eq!(transcript.matches("Anna").count(), 1, "{transcript}");
}

/// F1: a password or a token is neither accepted on the command line nor printed.
#[test]
fn f1_secrets_of_nats_are_refused_on_the_command_line() {
    let run = |arguments: &[&str], variables: &[(&str, &str)]| {
        let mut command = crate::support::agent_host();
        command
            .args(arguments)
            .env_remove("AGENT_HOST_NATS")
            .env_remove("NATS_PASSWORD")
            .envs(variables.iter().copied());
        let output = command.output().expect("the program runs");
        assert_eq!(output.status.code(), Some(2));
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
    };
    for address in ["nats://ann:s3cret@127.0.0.1:1", "nats://s3cret@127.0.0.1:1", "s3cret"] {
        for command in [&["dead-letter", "list"][..], &["worker"], &["serve"]] {
            let printed = run(&[command, &["--nats", address]].concat(), &[]);
            assert!(!printed.contains("s3cret"), "{printed}");
        }
    }
    let printed = run(&["dead-letter", "list", "--nats", "nats://ann:s3cret@127.0.0.1:1"], &[]);
    assert!(printed.contains("NATS_PASSWORD") && printed.contains("AGENT_HOST_NATS"), "{printed}");
    let printed = run(&["dead-letter", "list"], &[("AGENT_HOST_NATS", "nats://ann:s3cret@127.0.0.1:1")]);
    assert!(printed.contains("nats://127.0.0.1:1") && !printed.contains("s3cret"), "{printed}");
    assert!(run(&["dead-letter", "list"], &[]).contains("--nats"));
}
